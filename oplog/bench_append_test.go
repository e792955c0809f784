package oplog

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// The benchmarks below measure a durable append (stamp, hash, chain, fold,
// head signature, sync) against bare badger with the same keys and bytes,
// alternating between the two within one run so that a noisy machine hurts
// both. Each reports x_bare: our rate as a multiple of badger's.

// bareKeys are the keys and values that one append writes.
type bareKeys struct {
	db *badger.DB
	n  atomic.Uint64
}

func openBare(b *testing.B, key []byte) *bareKeys {
	s, err := openBadger(b.TempDir(), key, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.close() })
	return &bareKeys{db: s.db}
}

type pair struct{ key, value []byte }

// pairs has the tables of keys.go: entry, arrival, hash, state and head.
func (k *bareKeys) pairs(payload []byte, group bool) []pair {
	n := k.n.Add(1)
	entry := make([]byte, entryPrefixLen+150+len(payload))
	copy(entry[entryPrefixLen+150:], payload)
	rand.Read(entry[:entryPrefixLen+64]) // hashes and salt do not compress
	var h [8]byte
	rand.Read(h[:])
	p := []pair{
		{seqKey(tabEntry, 0, n), entry},
		{arrKey(n), place{0, n}.bytes()},
		{hashKey(h[:]), place{0, n}.bytes()},
	}
	if !group {
		p = append(p, k.tail()...)
	}
	return p
}

// tail is what one commit group writes beside its entries.
func (k *bareKeys) tail() []pair {
	head := make([]byte, 135)
	rand.Read(head)
	return []pair{
		{metaKey("state"), binary.BigEndian.AppendUint64(make([]byte, 8), k.n.Load())},
		{laneKey(tabHead, 0), head},
	}
}

func (k *bareKeys) commit(b *testing.B, pairs []pair) {
	txn := k.db.NewTransaction(true)
	defer txn.Discard()
	for _, p := range pairs {
		if err := txn.Set(p.key, p.value); err != nil {
			b.Fatal(err)
		}
	}
	if err := txn.Commit(); err != nil {
		b.Fatal(err)
	}
}

// committer is the plainest group commit on bare badger.
type committer struct {
	k    *bareKeys
	jobs chan committed
}

type committed struct {
	pairs []pair
	done  chan struct{}
}

func newCommitter(b *testing.B, k *bareKeys) *committer {
	c := &committer{k: k, jobs: make(chan committed, 512)}
	var wg sync.WaitGroup
	wg.Go(func() {
		for first := range c.jobs {
			group := []committed{first}
		drain:
			for len(group) < maxGroupJobs {
				select {
				case j, ok := <-c.jobs:
					if !ok {
						break drain
					}
					group = append(group, j)
				default:
					break drain
				}
			}
			pairs := k.tail()
			for _, j := range group {
				pairs = append(pairs, j.pairs...)
			}
			k.commit(b, pairs)
			for _, j := range group {
				close(j.done)
			}
		}
	})
	b.Cleanup(func() { close(c.jobs); wg.Wait() })
	return c
}

func (c *committer) append(payload []byte) {
	done := make(chan struct{})
	c.jobs <- committed{c.k.pairs(payload, true), done}
	<-done
}

// timed runs n calls of f over some writers and returns how long it took.
func timed(writers, n int, f func()) time.Duration {
	start := time.Now()
	var wg sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(n))
	for range writers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				f()
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}

func benchPayload() []byte {
	p := make([]byte, 400)
	rand.Read(p[:200])
	copy(p[200:], "a text of the kind that agents write to each other, with words that compress ")
	return p
}

func benchAppend(b *testing.B, writers int, key []byte, bare func(*testing.B) func()) {
	l := openTest(b, "bench", func(c *Config) {
		c.InMemory, c.Dir, c.EncryptionKey, c.Projections = false, b.TempDir(), key, []Projection{noFold{}}
	})
	body := appendBin(nil, benchPayload())
	ours := func() {
		if _, err := l.Append(context.Background(), Op{Kind: "note", Author: "mac:claude:bench", Body: body}); err != nil {
			b.Fatal(err)
		}
	}
	other := bare(b)
	round := 16 * writers
	timed(writers, round, ours)
	timed(writers, round, other)
	var mine, theirs time.Duration
	n := 0
	for b.Loop() {
		mine += timed(writers, round, ours)
		theirs += timed(writers, round, other)
		n += round
	}
	b.ReportMetric(float64(theirs)/float64(mine), "x_bare")
	b.ReportMetric(float64(n)/mine.Seconds(), "appends/s")
	b.ReportMetric(float64(n)/theirs.Seconds(), "bare/s")
}

type noFold struct{}

func (noFold) Name() string           { return "none" }
func (noFold) Version() uint32        { return 1 }
func (noFold) Kinds() []string        { return []string{"note"} }
func (noFold) Apply(Tx, *Entry) error { return nil }

func BenchmarkAppendAgainstBadger(b *testing.B) {
	payload := benchPayload()
	perTxn := func(key []byte) func(*testing.B) func() {
		return func(b *testing.B) func() {
			k := openBare(b, key)
			return func() { k.commit(b, k.pairs(payload, false)) }
		}
	}
	grouped := func(key []byte) func(*testing.B) func() {
		return func(b *testing.B) func() {
			c := newCommitter(b, openBare(b, key))
			return func() { c.append(payload) }
		}
	}
	for _, enc := range []struct {
		name string
		key  []byte
	}{{"plain", nil}, {"aes256", make([]byte, 32)}} {
		b.Run(enc.name+"/writers=1/bare=txn", func(b *testing.B) { benchAppend(b, 1, enc.key, perTxn(enc.key)) })
		b.Run(enc.name+"/writers=16/bare=committer", func(b *testing.B) { benchAppend(b, 16, enc.key, grouped(enc.key)) })
		b.Run(enc.name+"/writers=128/bare=committer", func(b *testing.B) { benchAppend(b, 128, enc.key, grouped(enc.key)) })
		b.Run(enc.name+"/writers=128/bare=txn", func(b *testing.B) { benchAppend(b, 128, enc.key, perTxn(enc.key)) })
	}
}
