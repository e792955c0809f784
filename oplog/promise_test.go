package oplog

import (
	"context"
	"testing"
	"time"

	"tallystick/hlc"
)

// signedAs is a range of a's log that ends at a head with another floor, which
// a's device signs: it lies, or its clock was set back under its log.
func signedAs(t *testing.T, a *testLog, rg Range, floor hlc.Timestamp) Range {
	t.Helper()
	rg.Head.Floor = floor
	rg.Head.sign(a.cfg.Signer)
	return rg
}

func rangeAfter(t *testing.T, a *testLog, seq uint64) Range {
	t.Helper()
	rg, err := a.ReadRange(a.Self().ID, seq, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return rg
}

// TestL4K4_BrokenFloorIsNoticed: an origin signs a floor and later stamps below
// it, or signs a lower floor at a higher seq. Whoever has seen the promise notices,
// keeps the proof over a restart, and so does whoever gets the log from there.
// Entries are taken all the same. Floors that only rise are none of it.
func TestL4K4_BrokenFloorIsNoticed(t *testing.T) {
	ctx := context.Background()
	ms := int64(1_772_366_400_000)
	for _, c := range []struct {
		name  string
		floor time.Duration // promised beyond the last stamp
		later time.Duration // the floor of the next head beyond its last stamp; 0 as it is
		wait  time.Duration // between the head and what comes
		want  bool
	}{
		{"kept", time.Minute, 0, time.Hour, false},
		{"stamped below it", time.Hour, 0, time.Second, true},
		{"stamped below it, and a floor above it", time.Hour, 2 * time.Hour, time.Second, true},
		{"a lower floor at a higher seq", time.Hour, -90 * time.Minute, 2 * time.Hour, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := ms
			a, b := openTest(t, "a", wallAt(&now)), openTest(t, "b", onDisk(t), wallAt(&now))
			write(t, a, "x", 4)
			rg := rangeAfter(t, a, 0)
			promised := hlc.New(now+c.floor.Milliseconds(), 0)
			if _, err := b.Ingest(ctx, signedAs(t, a, rg, promised)); err != nil {
				t.Fatal(err)
			}
			now += c.wait.Milliseconds()
			write(t, a, "y", 20) // a relay keeps the head before that many
			next := rangeAfter(t, a, rg.Head.Seq)
			if c.later != 0 {
				next = signedAs(t, a, next, hlc.New(now+c.later.Milliseconds(), 0))
			}
			if _, err := b.Ingest(ctx, next); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				o := b.Origins()[0]
				if o.Tips[0].Seq != next.Head.Seq || (o.Broken != nil) != c.want {
					t.Fatalf("tip %d, broken: %+v", o.Tips[0].Seq, o.Broken)
				}
				if p := o.Broken; p != nil {
					if p.Head.Seq != rg.Head.Seq || p.Head.Floor != promised || !p.Head.Verify(o.Key) || p.Seq <= p.Head.Seq || p.Stamp >= promised {
						t.Errorf("proof: %+v", p)
					}
				}
				b = b.reopen(t)
			}
			d := openTest(t, "d", wallAt(&now))
			pull(t, d, b, 1)
			if o := d.Origins()[0]; (o.Broken != nil) != c.want {
				t.Errorf("behind a relay: broken %+v", o.Broken)
			}
		})
	}
}
