package engines

import (
	"encoding/binary"
	"path/filepath"
	"sync/atomic"

	"go.etcd.io/bbolt"
)

type bolt struct {
	db   *bbolt.DB
	keys bool
	n    atomic.Uint64
}

// Bolt opens a bucket in bbolt with its defaults, which sync: one transaction
// an Append. It writes the payload alone, or with keys the keys and values
// that the log writes.
func Bolt(keys bool) Open {
	return func(dir string) (Engine, error) {
		db, err := bbolt.Open(filepath.Join(dir, "log.bolt"), 0o600, nil)
		if err != nil {
			return nil, err
		}
		err = db.Update(func(tx *bbolt.Tx) error {
			_, err := tx.CreateBucketIfNotExists([]byte("log"))
			return err
		})
		return &bolt{db: db, keys: keys}, err
	}
}

func (b *bolt) Append(payloads ...[]byte) error {
	return b.db.Update(func(tx *bbolt.Tx) error {
		log := tx.Bucket([]byte("log"))
		if b.keys {
			for _, p := range pairs(&b.n, payloads) {
				if err := log.Put(p.key, p.value); err != nil {
					return err
				}
			}
			return nil
		}
		log.FillPercent = 0.9 // keys only grow
		for _, p := range payloads {
			seq, err := log.NextSequence()
			if err != nil {
				return err
			}
			if err := log.Put(binary.BigEndian.AppendUint64(nil, seq), p); err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *bolt) Close() error { return b.db.Close() }
