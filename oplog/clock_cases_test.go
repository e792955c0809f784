package oplog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tallystick/hlc"
)

// wallAt is a wall clock that a test moves.
func wallAt(ms *int64) func(*Config) { return func(c *Config) { c.Wall = func() int64 { return *ms } } }

const clockNow = int64(1_800_000_000_000)

// TestA3b_WayDownFrom2099: a machine wrote and promised with its clock in
// 2099. Once the clock is right the incarnation can only go on up there. What
// leads down is a new one, which stamps as of today.
func TestA3b_WayDownFrom2099(t *testing.T) {
	wall := time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	l := openTest(t, "a", withState(t), wallAt(&wall))
	mustAppend(t, l, note("from the future"))
	head, err := l.RaiseFloor(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	wall = clockNow
	l = l.reopen(t)
	if res := mustAppend(t, l, note("same incarnation"))[0]; res.Ref.Time() < head.Floor {
		t.Fatalf("stamped %v, below its own promise %v", res.Ref.Time(), head.Floor)
	}
	l = l.reopen(t, func(c *Config) { c.StateDir = t.TempDir() }) // restored: no copy of the token
	res := mustAppend(t, l, note("new incarnation"))[0]
	if got := res.Ref.Time().Millis(); got < clockNow || got > clockNow+1000 {
		t.Errorf("a new incarnation stamps %v", res.Ref.Time().Time())
	}
	if l.Origins()[0].Head.Floor < head.Floor {
		t.Error("the old promise was taken back")
	}
}

// TestA3d_FloorsBesideWrites: floors are signed by the writer only, so that
// none is promised while a lower stamp still waits to be written.
func TestA3d_FloorsBesideWrites(t *testing.T) {
	l := openTest(t, "a")
	var mu sync.Mutex
	var heads []Head
	saw := func(h Head) {
		mu.Lock()
		defer mu.Unlock()
		heads = append(heads, h)
	}
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			for i := range 40 {
				if w < 2 {
					h, err := l.RaiseFloor(context.Background(), 0)
					if err != nil {
						t.Error(err)
					}
					saw(h)
					continue
				}
				if _, err := l.Append(context.Background(), note(fmt.Sprint(w, i))); err != nil {
					t.Error(err)
				}
				saw(l.Self().Head)
			}
		})
	}
	wg.Wait()
	list := all(t, l)
	for _, h := range heads {
		if !h.Verify(l.Self().Key) {
			t.Fatalf("head at %d does not verify", h.Seq)
		}
		for _, e := range list {
			if e.Seq > h.Seq && e.Time < h.Floor {
				t.Fatalf("seq %d is stamped %v, the head at %d promised %v", e.Seq, e.Time, h.Seq, h.Floor)
			}
		}
	}
}

// TestA8c_PoisonedMaximum: a batch ends in an entry from the far future. Its
// sane part moves the clock all the same, so that what is written next is
// stamped above what it may answer.
func TestA8c_PoisonedMaximum(t *testing.T) {
	wall, theirs := clockNow, clockNow+300_000
	peer := openTest(t, "peer", wallAt(&theirs))
	sane := mustAppend(t, peer, note("sane"))[0]
	theirs = clockNow + 86_400_000
	mustAppend(t, peer, note("poison"))
	l := openTest(t, "a", wallAt(&wall))
	pull(t, l, peer, 1<<20)
	answer := mustAppend(t, l, note("answer"))[0]
	if got := answer.Ref.Time(); got <= sane.Ref.Time() || got.Millis() > clockNow+301_000 {
		t.Errorf("the answer is stamped %v, what it answers %v", got, sane.Ref.Time())
	}
	if l.Held() != 1 {
		t.Errorf("%d held, want the poisoned one", l.Held())
	}
}

// TestC3_SeventyFiveYearsAhead: one clock is 75 years ahead. Its entries are
// stored and relayed, their effects wait, each says how far ahead it is, and
// no other clock moves.
func TestC3_SeventyFiveYearsAhead(t *testing.T) {
	far, wall := clockNow+75*365*86_400_000, clockNow
	ahead := openTest(t, "fast", wallAt(&far))
	write(t, ahead, "x", 3)
	var logs []*testLog
	from := ahead
	for i := range 3 {
		l := openTest(t, fmt.Sprint("l", i), wallAt(&wall))
		write(t, l, "own", 2)
		pull(t, l, from, 1<<20) // each has it from the one before
		from = l
		logs = append(logs, l)
	}
	for _, l := range logs {
		if got := l.Clock().Last().Millis(); got > clockNow+600_000 {
			t.Errorf("a clock moved to %v", time.UnixMilli(got))
		}
		asides, err := l.Aside(10)
		if err != nil || len(asides) != 3 {
			t.Fatalf("aside: %+v, %v", asides, err)
		}
		for i, a := range asides {
			lead, beyond := l.Clock().Ahead(a.Ref.Time())
			if !a.Held || !beyond || lead < 74*365*24*time.Hour || i == 0 && !strings.Contains(a.Reason, "ahead of this machine's clock") {
				t.Errorf("%+v, lead %v", a, lead)
			}
		}
		if l.Frontier().Seq(ahead.Self().ID) != 4 {
			t.Error("held entries were not stored")
		}
	}
	mustAppend(t, logs[2], note("life goes on"))
}

// TestA4_HeldIsASuffix: what is held of an origin is a suffix of it, however
// it is cut on the way; a release gives arrival numbers in order, in a
// transaction of its own, and moves the clock.
func TestA4_HeldIsASuffix(t *testing.T) {
	theirs, wall := clockNow, clockNow
	peer := openTest(t, "peer", wallAt(&theirs))
	write(t, peer, "before", 3)
	theirs += 3_600_000
	write(t, peer, "ahead", 3)
	theirs -= 3_600_000 // mended, and still stamped above
	write(t, peer, "behind", 3)
	for _, size := range []int{1, 500, 1 << 20} {
		wall = clockNow
		l := openTest(t, "a", wallAt(&wall))
		pull(t, l, peer, size)
		if l.Held() != 6 || l.Views()[0].Rows != 3+1 {
			t.Fatalf("size %d: %d held, %d rows", size, l.Held(), l.Views()[0].Rows)
		}
		asides, err := l.Aside(10)
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range asides {
			if a.Ref.Seq() != uint64(5+i) {
				t.Errorf("held: %+v", a)
			}
		}
		wall += 3_600_000
		if err := l.ReleaseHeld(context.Background()); err != nil {
			t.Fatal(err)
		}
		var seqs []uint64
		err = l.View(func(s Snapshot) error {
			return s.Arrived(0, false, func(n uint64, e *Entry) (bool, error) {
				seqs = append(seqs, e.Seq)
				if n != uint64(len(seqs)) {
					t.Errorf("arrival %d after %d", n, len(seqs)-1)
				}
				return true, nil
			})
		})
		if err != nil || !slices.IsSorted(seqs) || len(seqs) != 10 {
			t.Errorf("delivered %v, %v", seqs, err)
		}
		if l.Views()[0] != peer.Views()[0] {
			t.Error("views differ after the release")
		}
		if l.Clock().Last() < all(t, peer)[9].Time {
			t.Error("the release did not move the clock")
		}
	}
}

// TestA4_HeldBehindTheHeld: the time of an entry has come, that of the one
// before it, which was taken in earlier, has not been looked at again. It
// waits behind that one.
func TestA4_HeldBehindTheHeld(t *testing.T) {
	theirs, wall := clockNow+3_600_000, clockNow
	peer, l := openTest(t, "peer", wallAt(&theirs)), openTest(t, "a", wallAt(&wall))
	write(t, peer, "first", 1)
	pull(t, l, peer, 1<<20)
	wall = theirs
	write(t, peer, "second", 1)
	pull(t, l, peer, 1<<20)
	if l.Held() != 2 || l.Views()[0].Rows != 0 {
		t.Errorf("%d held, %d rows", l.Held(), l.Views()[0].Rows)
	}
	if err := l.ReleaseHeld(context.Background()); err != nil || l.Held() != 0 || l.Views()[0] != peer.Views()[0] {
		t.Errorf("%d held after the release, %v", l.Held(), err)
	}
}

// TestC1_In1970: the clock of a machine is at 1970 before its first entry, and
// again in the middle of its life. Stamps only grow.
func TestC1_In1970(t *testing.T) {
	wall := int64(0)
	l := openTest(t, "a", onDisk(t), wallAt(&wall))
	var last hlc.Timestamp
	for i, ms := range []int64{0, 0, -5, clockNow, 0, 1, clockNow + 1, -clockNow} {
		wall = ms
		if i%3 == 2 {
			l = l.reopen(t)
		}
		if got := mustAppend(t, l, note(fmt.Sprint(i)))[0].Ref.Time(); got <= last {
			t.Fatalf("at wall %d: %v after %v", ms, got, last)
		} else {
			last = got
		}
	}
	// A peer's sane entries lie decades ahead of it: held, not lost.
	wall = 0
	young := openTest(t, "young", wallAt(&wall))
	pull(t, young, l, 1<<20)
	if young.Held() == 0 || young.Frontier().Seq(l.Self().ID) != 9 {
		t.Errorf("%d held of %d", young.Held(), young.Frontier().Seq(l.Self().ID))
	}
	wall = clockNow + 10
	if err := young.ReleaseHeld(context.Background()); err != nil || young.Held() != 0 {
		t.Errorf("%d held once the clock is right, %v", young.Held(), err)
	}
}

// TestC1_AThousandSteps: the wall is stepped forward and back a thousand
// times, by seconds, as after a sleep, and by days. Local writes and reads go
// on, stamps only grow, and nobody else is poisoned for longer than the step.
func TestC1_AThousandSteps(t *testing.T) {
	wall, other := clockNow, clockNow
	l, peer := openTest(t, "a", wallAt(&wall)), openTest(t, "b", wallAt(&other))
	steps := []int64{100_000, -100_000, 86_400_000, -86_400_000, 1, -1, 0}
	var last hlc.Timestamp
	for i := range 1000 {
		wall += steps[i%len(steps)]
		got := mustAppend(t, l, note(fmt.Sprint(i)))[0].Ref.Time()
		if got <= last {
			t.Fatalf("step %d: %v after %v", i, got, last)
		}
		last = got
	}
	pull(t, peer, l, 4000)
	if ahead := peer.Clock().Last().Millis() - other; ahead > 600_000 {
		t.Errorf("the peer's clock was moved %d ms ahead", ahead)
	}
	mustAppend(t, peer, note("not stopped"))
	other += 86_400_000 + 1_000_000
	if err := peer.ReleaseHeld(context.Background()); err != nil || peer.Held() != 0 {
		t.Errorf("%d held when their time has come, %v", peer.Held(), err)
	}
	if got := peer.Views()[0].Rows; got != 1000+1+1 {
		t.Errorf("%d rows", got)
	}
}

// TestC1_A4_SeventyThousandInOneTick: 70,000 tiny entries are written and
// taken in while the wall stands still, which is more than the counter of a
// millisecond holds. The next one is borrowed; commits are batched, and none is
// too large for the store.
func TestC1_A4_SeventyThousandInOneTick(t *testing.T) {
	wall := clockNow
	l := openTest(t, "a", onDisk(t), wallAt(&wall))
	const calls, each = 70, 1000
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := w; i < calls; i += 4 {
				ops := make([]Op, each)
				for j := range ops {
					ops[j] = note(fmt.Sprint(i, j))
				}
				if _, err := l.Append(context.Background(), ops...); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	peer := openTest(t, "peer", wallAt(&wall))
	pull(t, peer, l, 1<<20)
	sameState(t, l, peer)
	top := l.Clock().Last()
	if top.Millis() <= clockNow || top.Millis() > clockNow+2 {
		t.Errorf("the clock stands at %v, wall %d", top, clockNow)
	}
	if got := mustAppend(t, peer, note("next"))[0].Ref.Time(); got <= top-1 {
		t.Errorf("stamped %v after %v", got, top)
	}
}

// TestA4_HugeOp: an op of 64 MiB is refused by name before anything of it is
// written, and the log goes on; that much goes into a blob.
func TestA4_HugeOp(t *testing.T) {
	l := openTest(t, "a")
	before := l.Clock().Last()
	var limit *LimitError
	_, err := l.Append(context.Background(), Op{Kind: "note", Author: "a:b:c", Body: make([]byte, 64<<20)})
	if !errors.As(err, &limit) || limit.Limit == 0 || limit.Field != "payload" {
		t.Fatalf("%v", err)
	}
	many := make([]Op, MaxAppendOps+1)
	for i := range many {
		many[i] = note("x")
	}
	if _, err := l.Append(context.Background(), many...); !errors.As(err, &limit) {
		t.Errorf("too many ops: %v", err)
	}
	if l.Clock().Last() != before || len(l.Frontier()) != 0 {
		t.Error("a refused op left a trace")
	}
	mustAppend(t, l, note("goes on"))
	if MaxBlob < 64<<20 {
		t.Errorf("a blob holds %d bytes", MaxBlob)
	}
}
