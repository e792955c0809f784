package hlc_test

import (
	"errors"
	"math"
	"math/big"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tallystick/hlc"
)

const noon = int64(1772366400000) // 2026-03-01T12:00:00Z

// walls draws readings of a wall clock that may be anything: about right,
// 1970, 2099, or nonsense.
func walls() *rapid.Generator[int64] {
	return rapid.OneOf(
		rapid.Int64Range(noon-1000, noon+1000),
		rapid.Int64Range(0, hlc.MaxMillis),
		rapid.SampledFrom([]int64{math.MinInt64, -1, 0, 1, hlc.MaxMillis, hlc.MaxMillis + 1, math.MaxInt64}),
		rapid.Int64(),
	)
}

func clamp(ms int64) int64 { return min(max(ms, 0), hlc.MaxMillis-1<<20) }

// C1, C3: a model of the clock. Whatever the wall does and whatever is
// merged, timestamps strictly increase, restarts included; what was merged
// lies below; what lies beyond the bound changes nothing; and the clock is
// never further ahead than walls, merges within the bound and borrowed
// milliseconds explain.
func TestC1_C3_Model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wall := walls().Draw(t, "wall")
		bound := rapid.SampledFrom([]time.Duration{0, -1, 1, time.Millisecond, time.Second, hlc.DefaultBound, math.MaxInt64}).Draw(t, "bound")
		effective := bound
		if bound == 0 {
			effective = hlc.DefaultBound
		}
		open := func(floor hlc.Timestamp) *hlc.Clock {
			return hlc.NewClock(hlc.Config{Wall: func() int64 { return wall }, Bound: bound, Floor: floor})
		}
		c := open(0)
		var last hlc.Timestamp
		var issued int64
		highest := clamp(wall)
		t.Repeat(map[string]func(*rapid.T){
			"wall": func(t *rapid.T) { wall = walls().Draw(t, "wall") },
			"step": func(t *rapid.T) { wall = clamp(wall) + rapid.Int64Range(-3, 3).Draw(t, "step") },
			"now": func(t *rapid.T) {
				got := c.Now()
				highest = max(highest, clamp(wall))
				issued++
				if got <= last {
					t.Fatalf("C1: issued %d after %d", got, last)
				}
				if got < hlc.New(clamp(wall), 0) {
					t.Fatalf("issued %d below the wall %d", got, wall)
				}
				if got > hlc.Max {
					t.Fatalf("issued %d, which has no text form", got)
				}
				last = got
			},
			"merge": func(t *rapid.T) {
				ts := hlc.Timestamp(rapid.OneOf(
					rapid.Uint64(),
					rapid.Map(timestamps(), func(v hlc.Timestamp) uint64 { return uint64(v) }),
					rapid.Map(rapid.Int64Range(-2000, 2000), func(d int64) uint64 { return uint64(hlc.New(clamp(wall)+d, 0xffff)) }),
				).Draw(t, "ts"))
				ahead := ts.Millis() - clamp(wall)
				nanos := new(big.Int).Mul(big.NewInt(ahead), big.NewInt(int64(time.Millisecond)))
				refuse := ahead > 0 && nanos.Cmp(big.NewInt(int64(max(effective, 0)))) > 0 || ts.Millis() > hlc.MaxMillis-1<<20
				lead, beyond := c.Ahead(ts)
				if beyond != refuse {
					t.Fatalf("C3: Ahead(%d) at wall %d, bound %s says %v", ts, wall, effective, beyond)
				}
				if (lead > 0) != (ahead > 0) {
					t.Fatalf("Ahead(%d) at wall %d gives a lead of %s", ts, wall, lead)
				}
				before := c.Last()
				err := c.Merge(ts)
				var aheadErr *hlc.AheadError
				switch {
				case refuse != errors.As(err, &aheadErr):
					t.Fatalf("C3: Merge(%d) at wall %d, bound %s: %v", ts, wall, effective, err)
				case refuse:
					if c.Last() != before || aheadErr.Timestamp != ts || aheadErr.Wall != wall || aheadErr.Error() == "" {
						t.Fatalf("C3: refused, yet %d became %d (%v)", before, c.Last(), err)
					}
				default:
					highest = max(highest, ts.Millis())
					last = max(last, ts)
				}
			},
			"restart": func(t *rapid.T) { c = open(last) },
			"": func(t *rapid.T) {
				if c.Last() != last {
					t.Fatalf("Last is %d, want %d", c.Last(), last)
				}
				if borrowed := issued/65536 + 1; last.Millis() > highest+borrowed {
					t.Fatalf("C3: the clock is at %d ms, nothing seen was above %d", last.Millis(), highest)
				}
			},
		})
	})
}

func TestC1_WallStepsBack(t *testing.T) {
	wall := noon
	c := hlc.NewClock(hlc.Config{Wall: func() int64 { return wall }})
	a := c.Now()
	wall -= 3600_000
	b := c.Now()
	if b != a.Next() {
		t.Errorf("issued %d after %d", b, a)
	}
	wall = noon + 1
	if got := c.Now(); got != hlc.New(noon+1, 0) {
		t.Errorf("the clock does not return to the wall: %d", got)
	}
}

func TestC1_FullCounterBorrowsTheNextMillisecond(t *testing.T) {
	c := hlc.NewClock(hlc.Config{Wall: func() int64 { return noon }, Floor: hlc.New(noon, 0xfffe)})
	for _, want := range []hlc.Timestamp{hlc.New(noon, 0xffff), hlc.New(noon+1, 0), hlc.New(noon+1, 1)} {
		if got := c.Now(); got != want {
			t.Fatalf("issued %d-%04x, want %d-%04x", got.Millis(), got.Counter(), want.Millis(), want.Counter())
		}
	}
}

// C1: 65,537 stamps of one millisecond arrive in one tick; merging them one
// by one neither fails nor lifts the clock above their maximum.
func TestC1_ManyMergesInOneTick(t *testing.T) {
	c := hlc.NewClock(hlc.Config{Wall: func() int64 { return noon }})
	for i := range 1<<16 + 1 {
		if err := c.Merge(hlc.New(noon, 0) + hlc.Timestamp(i)); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := c.Now(), hlc.New(noon+1, 1); got != want {
		t.Errorf("issued %d, want %d", got, want)
	}
}

func TestC1_ContinuesAboveFloor(t *testing.T) {
	floor := hlc.New(noon+3000, 5)
	c := hlc.NewClock(hlc.Config{Wall: func() int64 { return noon }, Floor: floor})
	if got := c.Now(); got != floor.Next() {
		t.Errorf("issued %d above the floor %d", got, floor)
	}
}

func TestC3_Bound(t *testing.T) {
	for _, c := range []struct {
		name  string
		wall  int64
		bound time.Duration
		ts    hlc.Timestamp
		err   bool
	}{
		{"OK behind", noon, 0, hlc.New(1, 0), false},
		{"OK at the wall", noon, 0, hlc.New(noon, 0xffff), false},
		{"OK at the default bound", noon, 0, hlc.New(noon+600_000, 0xffff), false},
		{"ErrDefaultBound", noon, 0, hlc.New(noon+600_001, 0), true},
		{"OK own bound", noon, time.Second, hlc.New(noon+1000, 0), false},
		{"ErrOwnBound", noon, time.Second, hlc.New(noon+1001, 0), true},
		{"OK part of a millisecond", noon, 1500 * time.Microsecond, hlc.New(noon+1, 0), false},
		{"ErrPartOfAMillisecond", noon, 1500 * time.Microsecond, hlc.New(noon+2, 0), true},
		{"OK negative bound, behind", noon, -time.Hour, hlc.New(noon, 9), false},
		{"ErrNegativeBound", noon, -time.Hour, hlc.New(noon+1, 0), true},
		{"OK wall in 1970", 0, 0, hlc.New(600_000, 0), false},
		// 317 years of milliseconds do not fit a time.Duration.
		{"ErrFarAheadOf1970", 0, 0, hlc.Max, true},
		{"ErrFarAheadOfNegativeWall", math.MinInt64, 0, hlc.New(noon, 0), true},
		{"ErrHighest", noon, 0, math.MaxUint64, true},
		{"ErrHighestWithoutBound", noon, math.MaxInt64, math.MaxUint64, true},
		{"ErrHighestAtTheEnd", math.MaxInt64, 0, hlc.Max, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := hlc.NewClock(hlc.Config{Wall: func() int64 { return c.wall }, Bound: c.bound})
			err := clock.Merge(c.ts)
			var ahead *hlc.AheadError
			if got := errors.As(err, &ahead); got != c.err {
				t.Fatalf("Merge = %v", err)
			}
			if c.err && clock.Last() != 0 {
				t.Errorf("C3: the clock moved to %d", clock.Last())
			}
			if !c.err && clock.Now() <= c.ts {
				t.Errorf("C1: issued %d after merging %d", clock.Last(), c.ts)
			}
		})
	}
}

func TestClockAtItsEnd(t *testing.T) {
	c := hlc.NewClock(hlc.Config{Wall: func() int64 { return math.MaxInt64 }})
	for range 1 << 17 {
		c.Now()
	}
	if c.Last() > hlc.Max {
		t.Fatalf("a stuck wall took the clock to %d", c.Last())
	}
	for _, floor := range []hlc.Timestamp{hlc.Max, math.MaxUint64} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a clock above %d issued a timestamp", floor)
				}
			}()
			hlc.NewClock(hlc.Config{Floor: floor}).Now()
		}()
	}
}

func TestC1_ConcurrentCallers(t *testing.T) {
	c := hlc.NewClock(hlc.Config{})
	const callers, each = 8, 2000
	got := make([][]hlc.Timestamp, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for range each {
				ts := c.Now()
				got[i] = append(got[i], ts)
				_ = c.Merge(ts)
			}
		})
	}
	wg.Wait()
	for i, own := range got {
		if !slices.IsSorted(own) {
			t.Errorf("caller %d saw the clock go back", i)
		}
	}
	all := slices.Concat(got...)
	slices.Sort(all)
	if n := len(slices.Compact(all)); n != callers*each {
		t.Errorf("C1: %d timestamps, %d distinct", callers*each, n)
	}
}

func TestClockDefaults(t *testing.T) {
	before := time.Now().UnixMilli()
	c := hlc.NewClock(hlc.Config{})
	if c.Bound() != hlc.DefaultBound {
		t.Errorf("bound %s", c.Bound())
	}
	if w := c.Wall(); w < before || w > time.Now().UnixMilli() {
		t.Errorf("wall %d is not the machine's", w)
	}
	if ts := c.Now(); ts.Millis() < before {
		t.Errorf("issued %d before %d", ts.Millis(), before)
	}
}

func BenchmarkClockNow(b *testing.B) {
	c := hlc.NewClock(hlc.Config{})
	for b.Loop() {
		c.Now()
	}
}
