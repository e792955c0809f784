// Package viewtest helps tests to prove that a fold is a pure function of the
// set of its entries: logs in memory, copying between them in pieces, and
// folding in any order whatever (M1).
package viewtest

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"tallystick/oplog"
)

// WallStart is the time at which the clocks of tests begin.
const WallStart = 1_790_000_000_000

// Log is one replica's log in memory, with a clock of its own.
type Log struct {
	*oplog.Log
	TB     testing.TB
	Author string // "NAME:agent:proj"
	wall   *int64
}

type seeded struct{ *rand.ChaCha8 }

// New opens a log that depends on nothing but its name. It is closed with the
// test.
func New(tb testing.TB, name string, projections ...oplog.Projection) *Log {
	tb.Helper()
	seed, wall := sha256.Sum256([]byte(name)), int64(WallStart)
	l, err := oplog.Open(context.Background(), oplog.Config{
		InMemory: true, MinFree: -1, Signer: ed25519.NewKeyFromSeed(seed[:]), Rand: io.Reader(seeded{rand.NewChaCha8(seed)}),
		Wall: func() int64 { wall++; return wall }, Projections: projections,
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close() })
	return &Log{Log: l, TB: tb, Author: name + ":agent:proj", wall: &wall}
}

// Later moves the log's clock on.
func (l *Log) Later(ms int64) { *l.wall += ms }

// Add appends ops that must succeed.
func (l *Log) Add(ops []oplog.Op, err error) []oplog.Appended {
	l.TB.Helper()
	if err != nil {
		l.TB.Fatal(err)
	}
	done, err := l.Append(context.Background(), ops...)
	if err != nil {
		l.TB.Fatal(err)
	}
	return done
}

// One makes a list of the one op that constructors give.
func One(op oplog.Op, err error) ([]oplog.Op, error) { return []oplog.Op{op}, err }

// Read runs fn over a snapshot.
func (l *Log) Read(fn func(s oplog.Snapshot) error) {
	l.TB.Helper()
	if err := l.View(fn); err != nil {
		l.TB.Fatal(err)
	}
}

// Digest is the digest of the first view.
func (l *Log) Digest() string { return l.Views()[0].Digest }

// Pull copies everything that from holds and l lacks, in pieces.
func (l *Log) Pull(from *Log, maxBytes int) {
	l.TB.Helper()
	for again := true; again; {
		again = false
		for _, o := range from.Origins() {
			rg, err := from.ReadRange(o.ID, l.Frontier().Seq(o.ID), maxBytes)
			if err != nil {
				l.TB.Fatal(err)
			}
			if rg.Count == 0 {
				continue
			}
			if _, err := l.Ingest(context.Background(), rg); err != nil {
				l.TB.Fatal(err)
			}
			again = true
		}
	}
}

// Meet copies both ways.
func Meet(a, b *Log) {
	a.TB.Helper()
	a.Pull(b, 1<<20)
	b.Pull(a, 1<<20)
}

// Entries lists the visible entries by arrival, births left out.
func (l *Log) Entries() (list []oplog.Entry) {
	l.TB.Helper()
	l.Read(func(s oplog.Snapshot) error {
		return s.Arrived(0, false, func(_ uint64, e *oplog.Entry) (bool, error) {
			if e.Kind != "tally.birth" {
				list = append(list, *e)
			}
			return true, nil
		})
	})
	return list
}

// Fold folds entries in the order given.
func Fold(p oplog.Projection, entries []oplog.Entry) (Rows, error) {
	r := Rows{}
	for i := range entries {
		if err := p.Apply(r, &entries[i]); err != nil {
			return nil, fmt.Errorf("entry %d of kind %s: %w", i, entries[i].Kind, err)
		}
	}
	return r, nil
}

// Same describes the first row in which two views differ, empty when none.
func Same(a, b Rows) string {
	for k, v := range a {
		if w, ok := b[k]; !ok || w != v {
			return fmt.Sprintf("row %q is %x here and %x there", k, v, w)
		}
	}
	for k, v := range b {
		if _, ok := a[k]; !ok {
			return fmt.Sprintf("row %q: %x only there", k, v)
		}
	}
	return ""
}

// Rows is a view as a plain map: what a fold writes, in any order of Apply.
type Rows map[string]string

// View makes Rows an oplog.Views of one view.
func (r Rows) View(string) oplog.Reader { return r }

// Get implements oplog.Reader.
func (r Rows) Get(k []byte) ([]byte, error) {
	v, ok := r[string(k)]
	if !ok {
		return nil, oplog.ErrNotFound
	}
	return []byte(v), nil
}

// Scan implements oplog.Reader.
func (r Rows) Scan(prefix, start []byte, reverse bool, fn func(key, value []byte) (bool, error)) error {
	var keys []string
	for k := range r {
		if bytes.HasPrefix([]byte(k), prefix) && (start == nil || !reverse && k >= string(start) || reverse && k <= string(start)) {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	if reverse {
		slices.Reverse(keys)
	}
	for _, k := range keys {
		if more, err := fn([]byte(k), []byte(r[k])); err != nil || !more {
			return err
		}
	}
	return nil
}

// Insert implements oplog.Tx; a key that exists is a mistake of the fold.
func (r Rows) Insert(k, v []byte) error {
	if _, twice := r[string(k)]; twice {
		return fmt.Errorf("viewtest: key %q is inserted twice", k)
	}
	return r.Set(k, v)
}

// Set implements oplog.Tx.
func (r Rows) Set(k, v []byte) error { r[string(k)] = string(v); return nil }

// Delete implements oplog.Tx.
func (r Rows) Delete(k []byte) error { delete(r, string(k)); return nil }

// Counting is a snapshot that counts the rows and entries that are read.
type Counting struct {
	oplog.Snapshot
	Steps *int
}

// View counts what is read of a view.
func (c Counting) View(name string) oplog.Reader {
	return CountingReader{c.Snapshot.View(name), c.Steps}
}

// Entry counts as one step.
func (c Counting) Entry(ref oplog.Ref) (oplog.Entry, error) {
	*c.Steps++
	return c.Snapshot.Entry(ref)
}

// CountingReader counts the rows that are read.
type CountingReader struct {
	oplog.Reader
	Steps *int
}

// Get counts as one step.
func (c CountingReader) Get(k []byte) ([]byte, error) {
	*c.Steps++
	return c.Reader.Get(k)
}

// Scan counts each row.
func (c CountingReader) Scan(prefix, start []byte, reverse bool, fn func(k, v []byte) (bool, error)) error {
	return c.Reader.Scan(prefix, start, reverse, func(k, v []byte) (bool, error) {
		*c.Steps++
		return fn(k, v)
	})
}
