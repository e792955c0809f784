package oplog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
)

// cloneDisk copies a closed store, so that two logs write one incarnation.
func cloneDisk(t *testing.T, l *testLog) (again, clone *testLog) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(l.cfg.Dir)); err != nil {
		t.Fatal(err)
	}
	return l.reopen(t), openTest(t, "a", onDisk(t), func(c *Config) { c.Dir, c.Rand = dir, seeded("clone "+dir) })
}

func write(t *testing.T, l *testLog, what string, n int) {
	t.Helper()
	for i := range n {
		mustAppend(t, l, note(fmt.Sprint(what, i)))
	}
}

// exchange copies every branch that from holds and to lacks, as peers do: the
// one that lacks shows samples of what it holds.
func exchange(t *testing.T, to, from *testLog, maxBytes int) {
	t.Helper()
	for _, o := range from.Origins() {
		for _, tip := range o.Tips {
			for {
				held, err := to.Holds(o.ID, tip)
				if err != nil {
					t.Fatal(err)
				}
				if held {
					break
				}
				var after []Tip
				for _, mine := range to.Frontier()[o.ID] {
					s, err := to.Samples(o.ID, mine)
					if err != nil {
						t.Fatal(err)
					}
					after = append(after, s...)
				}
				rg, err := from.ReadToward(o.ID, after, tip, maxBytes)
				if err != nil {
					t.Fatal(err)
				}
				res, err := to.Ingest(context.Background(), rg)
				if err != nil {
					t.Fatal(err)
				}
				if res.Added == 0 {
					t.Fatalf("no progress towards %d of %s: %+v", tip.Seq, o.ID, res)
				}
			}
		}
	}
}

func sameState(t *testing.T, a, b *testLog) {
	t.Helper()
	if got, want := b.Views()[0], a.Views()[0]; got != want {
		t.Errorf("views differ: %+v, %+v", got, want)
	}
	if a.Frontier().Digest() != b.Frontier().Digest() {
		t.Errorf("frontiers differ: %v, %v", a.Frontier(), b.Frontier())
	}
}

// TestL7c_EveryBranchSurvives: two clones wrote one incarnation, one of them
// was cloned once more. Whatever the order of arrival, every replica ends with
// all branches, the same views and the same tips, and no frontier goes back.
func TestL7c_EveryBranchSurvives(t *testing.T) {
	a := openTest(t, "a", onDisk(t))
	write(t, a, "common", 40)
	a, b := cloneDisk(t, a)
	write(t, b, "b", 5)
	b, c := cloneDisk(t, b)
	write(t, a, "a", 60)
	write(t, b, "b again", 3)
	write(t, c, "c", 9)
	id := a.Self().ID

	var ends []*testLog
	for i, order := range [][]*testLog{{a, b, c}, {c, b, a}, {b, a, c}, {c, a, b}} {
		x := openTest(t, fmt.Sprint("x", i))
		var before uint64
		for _, from := range order {
			exchange(t, x, from, []int{1, 3000, 1 << 20, 500}[i])
			if got := x.Frontier().Seq(id); got < before {
				t.Errorf("the frontier went back from %d to %d", before, got)
			} else {
				before = got
			}
		}
		ends = append(ends, x)
	}
	for _, x := range ends[1:] {
		sameState(t, ends[0], x)
	}
	if tips := ends[0].Frontier()[id]; len(tips) != 3 {
		t.Errorf("tips %v, want three branches", tips)
	}
	if rows := ends[0].Views()[0].Rows; rows != 40+5+60+3+9+1 {
		t.Errorf("%d rows, want every note of every branch and the counter", rows)
	}
	// A forked origin passes through a replica that has it all.
	y := openTest(t, "y")
	exchange(t, y, ends[3], 2000)
	sameState(t, ends[0], y)
	// Every entry is found by its reference, on whatever branch it lies.
	err := y.View(func(s Snapshot) error {
		return s.Arrived(0, false, func(n uint64, e *Entry) (bool, error) {
			got, err := s.Entry(e.Ref())
			if err != nil || got.Hash != e.Hash {
				t.Errorf("entry %d: %v", n, err)
			}
			return true, nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestL7b_ProofOpensANewIncarnation: a writer that is shown entries of its own
// incarnation which it did not write gives the incarnation up before its next
// write, keeps what it had, and reuses no number.
func TestL7b_ProofOpensANewIncarnation(t *testing.T) {
	for _, c := range []struct {
		name       string
		mine, them int
	}{{"restored, nothing written since", 0, 4}, {"restored and written since", 6, 4}} {
		t.Run(c.name, func(t *testing.T) {
			a := openTest(t, "a", onDisk(t))
			write(t, a, "common", 10)
			a, b := cloneDisk(t, a)
			old := a.Self()
			write(t, b, "lost", c.them)
			peer := openTest(t, "peer")
			exchange(t, peer, b, 1<<20)
			write(t, a, "mine", c.mine)
			exchange(t, a, peer, 1<<20)
			if a.Self().ID == old.ID || a.Doubt() == "" {
				t.Fatalf("still writes %s; doubt %q", a.Self().ID, a.Doubt())
			}
			res := mustAppend(t, a, note("after"))[0]
			if res.Ref.Origin() == old.ID {
				t.Error("the next append went to the old incarnation")
			}
			exchange(t, peer, a, 1<<20)
			sameState(t, a, peer)
			if rows := a.Views()[0].Rows; rows != uint64(10+c.mine+c.them+1+1) {
				t.Errorf("%d rows", rows)
			}
			first := a.Self()
			a = a.reopen(t)
			if a.Self().ID != first.ID {
				t.Error("the new incarnation did not last")
			}
		})
	}
}

func TestReadTowardUnknown(t *testing.T) {
	a := openTest(t, "a")
	write(t, a, "x", 3)
	if _, err := a.ReadToward(OriginID{1}, nil, Tip{}, 100); !errors.Is(err, ErrUnknownOrigin) {
		t.Errorf("unknown origin: %v", err)
	}
	if _, err := a.ReadToward(a.Self().ID, nil, Tip{Seq: 2}, 100); !errors.Is(err, ErrNotFound) {
		t.Errorf("not a tip: %v", err)
	}
	if ok, err := a.Holds(a.Self().ID, Tip{Seq: 9}); ok || err != nil {
		t.Errorf("holds what it does not: %v, %v", ok, err)
	}
}
