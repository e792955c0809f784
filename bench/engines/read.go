package engines

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"

	"github.com/dgraph-io/badger/v4"
	"go.etcd.io/bbolt"

	"tallystick/oplog"
)

// Reader reads a store of n entries that its Engine has written and closed.
type Reader interface {
	// Get reads a random entry by its key.
	Get() error
	// Newest reads the newest n rows of an index, with the entries they name or
	// without.
	Newest(n int, entries bool) error
	// Scan reads all of the store, so that its caches are as full as they get.
	Scan() error
	Close() error
}

var errCount = errors.New("the store does not hold what was written")

// newestRow is above every row of the first index.
var indexPrefix = []byte("vrows\x00\x00" + Indexes[0])

func above(prefix []byte) []byte {
	return append(bytes.Clone(prefix), bytes.Repeat([]byte{0xff}, 64)...)
}

type bareReader struct {
	db *badger.DB
	n  uint64
}

// ReadBare reads what Bare wrote.
func ReadBare(dir string, n int, options func(dir string) badger.Options) (Reader, error) {
	db, err := badger.Open(options(dir))
	return &bareReader{db, uint64(n)}, err
}

func (b *bareReader) value(txn *badger.Txn, seq uint64) error {
	item, err := txn.Get(seqKey([]byte{'e'}, seq))
	if err != nil {
		return err
	}
	v, err := item.ValueCopy(nil)
	if err == nil && len(v) < PayloadSize {
		err = errCount
	}
	return err
}

func (b *bareReader) Get() error {
	txn := b.db.NewTransaction(false)
	defer txn.Discard()
	return b.value(txn, 1+rand.Uint64N(b.n))
}

func (b *bareReader) Newest(n int, entries bool) error {
	txn := b.db.NewTransaction(false)
	defer txn.Discard()
	opts := badger.DefaultIteratorOptions
	opts.PrefetchValues, opts.Reverse, opts.Prefix = false, true, indexPrefix
	it := txn.NewIterator(opts)
	defer it.Close()
	got := 0
	for it.Seek(above(indexPrefix)); it.Valid() && got < n; it.Next() {
		_ = it.Item().KeyCopy(nil)
		if entries {
			if err := b.value(txn, b.n-uint64(got)); err != nil {
				return err
			}
		}
		got++
	}
	if got != n {
		return errCount
	}
	return nil
}

func (b *bareReader) Scan() error {
	return b.db.View(func(txn *badger.Txn) error {
		it := txn.NewIterator(badger.DefaultIteratorOptions)
		defer it.Close()
		for it.Rewind(); it.Valid(); it.Next() {
			if _, err := it.Item().ValueCopy(nil); err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *bareReader) Close() error { return b.db.Close() }

// LogReader reads what Tally wrote.
type LogReader struct {
	Log  *oplog.Log
	refs []oplog.Ref
}

// ReadTally reads what Tally wrote, through the log: entries are decoded and
// checked against their hashes.
func ReadTally(dir string, key []byte) (*LogReader, error) {
	l, err := OpenLog(dir, key)
	if err != nil {
		return nil, err
	}
	return &LogReader{Log: l}, nil
}

// Learn notes the Ref of every stride-th entry for Get.
func (t *LogReader) Learn(stride int) error {
	i := 0
	return t.Log.View(func(s oplog.Snapshot) error {
		return s.View("rows").Scan([]byte(Indexes[0]), nil, false, func(key, _ []byte) (bool, error) {
			if i++; i%stride == 0 {
				t.refs = append(t.refs, oplog.Ref(key[1:]))
			}
			return true, nil
		})
	})
}

// Get implements Reader.
func (t *LogReader) Get() error {
	return t.Log.View(func(s oplog.Snapshot) error {
		e, err := s.Entry(t.refs[rand.IntN(len(t.refs))])
		if err == nil && len(e.Body) < PayloadSize {
			err = errCount
		}
		return err
	})
}

// Newest implements Reader.
func (t *LogReader) Newest(n int, entries bool) error {
	return t.Log.View(func(s oplog.Snapshot) error {
		got := 0
		err := s.View("rows").Scan([]byte(Indexes[0]), nil, true, func(key, _ []byte) (bool, error) {
			if entries {
				if _, err := s.Entry(oplog.Ref(key[1:])); err != nil {
					return false, err
				}
			}
			got++
			return got < n, nil
		})
		if err == nil && got != n {
			err = errCount
		}
		return err
	})
}

// Scan implements Reader.
func (t *LogReader) Scan() error {
	_, err := t.Log.Verify(context.Background(), nil)
	return err
}

// Close implements Reader.
func (t *LogReader) Close() error { return t.Log.Close() }

type sqliteReader struct {
	db          *sql.DB
	get, newest *sql.Stmt
	n           uint64
}

// ReadSQLite reads what SQLite with the log's keys wrote.
func ReadSQLite(dir string, n int) (Reader, error) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "log.db"))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(2)
	s := &sqliteReader{db: db, n: uint64(n)}
	if s.get, err = db.Prepare("SELECT v FROM log WHERE k = ?"); err == nil {
		s.newest, err = db.Prepare("SELECT k FROM log WHERE k BETWEEN ? AND ? ORDER BY k DESC LIMIT ?")
	}
	return s, err
}

func (s *sqliteReader) value(seq uint64) error {
	var v []byte
	err := s.get.QueryRow(seqKey([]byte{'e'}, seq)).Scan(&v)
	if err == nil && len(v) < PayloadSize {
		err = errCount
	}
	return err
}

func (s *sqliteReader) Get() error { return s.value(1 + rand.Uint64N(s.n)) }

func (s *sqliteReader) Newest(n int, entries bool) error {
	rows, err := s.newest.Query(indexPrefix, above(indexPrefix), n)
	if err != nil {
		return err
	}
	defer rows.Close()
	got := 0
	for rows.Next() {
		var k []byte
		if err := rows.Scan(&k); err != nil {
			return err
		}
		if entries {
			if err := s.value(s.n - uint64(got)); err != nil {
				return err
			}
		}
		got++
	}
	if got != n {
		return fmt.Errorf("%w: %d of %d rows, %v", errCount, got, n, rows.Err())
	}
	return nil
}

func (s *sqliteReader) Scan() error {
	var n int
	return s.db.QueryRow("SELECT sum(length(v)) FROM log").Scan(&n)
}

func (s *sqliteReader) Close() error { return s.db.Close() }

type boltReader struct {
	db *bbolt.DB
	n  uint64
}

// ReadBolt reads what Bolt with the log's keys wrote.
func ReadBolt(dir string, n int) (Reader, error) {
	db, err := bbolt.Open(filepath.Join(dir, "log.bolt"), 0o600, &bbolt.Options{ReadOnly: true})
	return &boltReader{db, uint64(n)}, err
}

func (b *boltReader) value(log *bbolt.Bucket, seq uint64) error {
	if v := bytes.Clone(log.Get(seqKey([]byte{'e'}, seq))); len(v) < PayloadSize {
		return errCount
	}
	return nil
}

func (b *boltReader) Get() error {
	return b.db.View(func(tx *bbolt.Tx) error { return b.value(tx.Bucket([]byte("log")), 1+rand.Uint64N(b.n)) })
}

func (b *boltReader) Newest(n int, entries bool) error {
	return b.db.View(func(tx *bbolt.Tx) error {
		log := tx.Bucket([]byte("log"))
		c := log.Cursor()
		got := 0
		c.Seek(above(indexPrefix))
		for k, _ := c.Prev(); bytes.HasPrefix(k, indexPrefix) && got < n; k, _ = c.Prev() {
			_ = bytes.Clone(k)
			if entries {
				if err := b.value(log, b.n-uint64(got)); err != nil {
					return err
				}
			}
			got++
		}
		if got != n {
			return errCount
		}
		return nil
	})
}

func (b *boltReader) Scan() error {
	return b.db.View(func(tx *bbolt.Tx) error {
		n := 0
		return tx.Bucket([]byte("log")).ForEach(func(_, v []byte) error { n += len(v); return nil })
	})
}

func (b *boltReader) Close() error { return b.db.Close() }
