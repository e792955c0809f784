package oplog

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"pgregory.net/rapid"
)

// counted tells how a run reader read.
type counted struct {
	badgerSnapshot
	gets, opened, closed int
}

func (c *counted) get(key []byte) ([]byte, error) {
	c.gets++
	return c.badgerSnapshot.get(key)
}

func (c *counted) cursor(prefix, start []byte) kvCursor {
	c.opened++
	return countedCursor{c.badgerSnapshot.cursor(prefix, start), c}
}

type countedCursor struct {
	kvCursor
	c *counted
}

func (c countedCursor) close() {
	c.c.closed++
	c.kvCursor.close()
}

// laneStore holds entries 1 to 200 of six lanes; of lane 2 each seventh is missing.
func laneStore(t *testing.T, key []byte) *badgerStore {
	t.Helper()
	s, err := openBadger(t.TempDir(), key, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.close() })
	b := newBatch(s.snapshot(), nil)
	defer b.release()
	for lane := range uint32(6) {
		for seq := uint64(1); seq <= 200; seq++ {
			if lane != 2 || seq%7 != 0 {
				b.set(seqKey(tabEntry, lane, seq), laneValue(lane, seq))
			}
		}
	}
	if err := s.commit(b); err != nil {
		t.Fatal(err)
	}
	return s
}

func laneValue(lane uint32, seq uint64) []byte {
	return fmt.Appendf(nil, "lane %d, entry %d", lane, seq)
}

// TestRuns_SameAsPointReads reads places in any order, neighbours or not, there
// or not, by cursor and by key. What was read stays as it was while others are.
func TestRuns_SameAsPointReads(t *testing.T) {
	s := laneStore(t, bytes.Repeat([]byte{7}, 32))
	rapid.Check(t, func(t *rapid.T) {
		snap := s.snapshot().(badgerSnapshot)
		defer snap.release()
		kv := &counted{badgerSnapshot: snap}
		r := runReader{kv: kv}
		at := map[uint32]uint64{}
		type read struct {
			p     place
			value []byte
		}
		var reads []read
		for range rapid.IntRange(1, 60).Draw(t, "n") {
			lane := uint32(rapid.IntRange(0, 6).Draw(t, "lane"))
			if rapid.IntRange(0, 5).Draw(t, "jump") == 0 {
				at[lane] = uint64(rapid.IntRange(0, 210).Draw(t, "to"))
			}
			for range rapid.IntRange(1, 12).Draw(t, "run") {
				at[lane]++
				p := place{lane, at[lane]}
				v, err := r.entry(p)
				if _, want := snap.get(seqKey(tabEntry, p.lane, p.seq)); !errors.Is(err, want) {
					t.Fatalf("%v: %v, want %v", p, err, want)
				}
				if err == nil {
					reads = append(reads, read{p, v})
				}
			}
		}
		r.close()
		if kv.opened != kv.closed {
			t.Fatalf("%d cursors opened, %d closed", kv.opened, kv.closed)
		}
		for _, got := range reads {
			if want := laneValue(got.p.lane, got.p.seq); !bytes.Equal(got.value, want) {
				t.Fatalf("%v: %q, want %q", got.p, got.value, want)
			}
		}
	})
}

// TestRuns_NeighboursCostNoPointRead: in the order of arrival, of four lanes in
// turn, only the first few of each are looked up by key.
func TestRuns_NeighboursCostNoPointRead(t *testing.T) {
	s := laneStore(t, nil)
	snap := s.snapshot().(badgerSnapshot)
	defer snap.release()
	kv := &counted{badgerSnapshot: snap}
	r := runReader{kv: kv}
	for seq := uint64(1); seq <= 200; seq++ {
		for _, lane := range []uint32{0, 1, 3, 4} {
			if v, err := r.entry(place{lane, seq}); err != nil || !bytes.Equal(v, laneValue(lane, seq)) {
				t.Fatalf("%q, %v", v, err)
			}
		}
	}
	r.close()
	if kv.gets != 4*runStart || kv.opened != maxRuns || kv.closed != maxRuns {
		t.Errorf("%d point reads, %d cursors opened, %d closed; want %d, %d, %d", kv.gets, kv.opened, kv.closed, 4*runStart, maxRuns, maxRuns)
	}
}
