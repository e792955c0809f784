package oplog

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/dgraph-io/badger/v4"
)

// TestM2_ValuesAreTheReadersOwn reads values that lie in tables and such that
// lie in the value log, and looks at them when the store and its memory maps
// are gone.
func TestM2_ValuesAreTheReadersOwn(t *testing.T) {
	s, err := openBadger(t.TempDir(), nil, slog.New(slog.DiscardHandler), func(o *badger.Options) { *o = o.WithValueThreshold(1000) })
	if err != nil {
		t.Fatal(err)
	}
	sizes := []int{0, 1, 999, 1000, 5000, 300_000}
	b := newBatch(s.snapshot(), nil)
	for i, n := range sizes {
		b.set([]byte{'k', byte(i)}, bytes.Repeat([]byte{byte(i)}, n))
	}
	if err := s.commit(b); err != nil {
		t.Fatal(err)
	}
	b.release()
	got := make([][]byte, len(sizes))
	snap := s.snapshot()
	for i := range sizes {
		if got[i], err = snap.get([]byte{'k', byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	snap.release()
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	for i, n := range sizes {
		if !bytes.Equal(got[i], bytes.Repeat([]byte{byte(i)}, n)) {
			t.Errorf("a value of %d bytes is another one now, of %d bytes", n, len(got[i]))
		}
	}
}
