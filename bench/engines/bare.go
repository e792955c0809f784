package engines

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"
)

// Tuned are the options that the log opens badger with.
func Tuned(key []byte) func(dir string) badger.Options {
	return func(dir string) badger.Options { return tuned(dir, key) }
}

func tuned(dir string, key []byte) badger.Options {
	return badger.DefaultOptions(dir).
		WithSyncWrites(true).
		WithDetectConflicts(false).
		WithMemTableSize(16 << 20).
		WithNumMemtables(2).
		WithBlockCacheSize(16 << 20).
		WithIndexCacheSize(16 << 20).
		WithValueLogFileSize(64 << 20).
		WithNumCompactors(2).
		WithNumLevelZeroTables(3).
		WithNumLevelZeroTablesStall(8).
		WithMetricsEnabled(false).
		WithLogger(nil).
		WithEncryptionKey(key)
}

// Default are badger's own options, but synced and silent. An encrypted store
// cannot be reopened without a cache of indexes.
func Default(key []byte) func(dir string) badger.Options {
	return func(dir string) badger.Options {
		o := badger.DefaultOptions(dir).WithSyncWrites(true).WithLogger(nil).WithEncryptionKey(key)
		if key != nil {
			o = o.WithIndexCacheSize(100 << 20)
		}
		return o
	}
}

type bare struct {
	db *badger.DB
	n  atomic.Uint64
}

// Bare opens badger without anything around it: one transaction an Append,
// with the keys and the bytes that the log writes for the same payloads (entry,
// arrival, hash, four index rows; head, state and the view's record once a
// transaction). The entry's hashes, salt and head are random bytes of the same
// length: nothing is hashed or signed.
func Bare(options func(dir string) badger.Options) Open {
	return func(dir string) (Engine, error) {
		db, err := badger.Open(options(dir))
		if err != nil {
			return nil, err
		}
		return &bare{db: db}, nil
	}
}

func (b *bare) Append(payloads ...[]byte) error {
	txn := b.db.NewTransaction(true)
	defer txn.Discard()
	for _, p := range pairs(&b.n, payloads) {
		if err := txn.Set(p.key, p.value); err != nil {
			return err
		}
	}
	return txn.Commit()
}

type pair struct{ key, value []byte }

// pairs are the keys and values that the log writes for some payloads in one
// transaction.
func pairs(count *atomic.Uint64, payloads [][]byte) []pair {
	all := make([]pair, 0, 7*len(payloads)+3)
	for _, p := range payloads {
		n := count.Add(1)
		entry := make([]byte, 9+175+len(p))
		copy(entry, random(9+16+32+32+16))
		copy(entry[9+175:], p)
		place := seqKey(nil, n)
		ref := binary.BigEndian.AppendUint64(make([]byte, 24), n)
		binary.BigEndian.PutUint64(ref, n)
		ref = append(ref, random(8)...)
		all = append(all, pair{seqKey([]byte{'e'}, n), entry},
			pair{binary.BigEndian.AppendUint64([]byte{'a'}, n), place},
			pair{append([]byte{'h'}, random(8)...), place})
		for _, prefix := range Indexes {
			all = append(all, pair{append([]byte("vrows\x00\x00"+prefix), ref...), nil})
		}
	}
	return append(all, pair{[]byte("mstate"), binary.BigEndian.AppendUint64(make([]byte, 8), count.Load())},
		pair{[]byte("d\x00\x00\x00\x00"), random(135)}, pair{[]byte("wrows"), random(29)})
}

func (b *bare) Close() error { return b.db.Close() }

func seqKey(prefix []byte, n uint64) []byte {
	return binary.BigEndian.AppendUint64(append(prefix, 0, 0, 0, 0), n)
}

// Load appends n payloads, many at a time.
func Load(e Engine, n int) error {
	for i := 0; i < n; {
		group := make([][]byte, min(512, n-i))
		for k := range group {
			group[k] = Payload()
		}
		if err := e.Append(group...); err != nil {
			return fmt.Errorf("load: %w", err)
		}
		i += len(group)
	}
	return nil
}
