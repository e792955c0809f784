package oplog

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tallystick/hlc"
)

// The cases of a restored, copied or forked log, one by one (L7). Stores are
// real where a file plays a part in the case.

// all lists every visible entry of a log in C2 order.
func all(t *testing.T, l *testLog) (list []Entry) {
	t.Helper()
	err := l.View(func(s Snapshot) error {
		return s.Arrived(0, false, func(_ uint64, e *Entry) (bool, error) {
			list = append(list, *e)
			return true, nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(list, func(a, b Entry) int { return a.Ref().Compare(b.Ref()) })
	return list
}

// reused are the (origin, seq) pairs that stand for more than one entry.
func reused(t *testing.T, logs ...*testLog) (pairs []string) {
	t.Helper()
	seen := map[string]Hash{}
	for _, l := range logs {
		for _, e := range all(t, l) {
			at := fmt.Sprintf("%s/%d", e.Origin, e.Seq)
			if h, ok := seen[at]; ok && h != e.Hash && !slices.Contains(pairs, at) {
				pairs = append(pairs, at)
			}
			seen[at] = e.Hash
		}
	}
	return pairs
}

// sameOrder wants the same entries in the same total order (C2).
func sameOrder(t *testing.T, a, b *testLog) {
	t.Helper()
	x, y := all(t, a), all(t, b)
	if !slices.EqualFunc(x, y, func(a, b Entry) bool { return a.Hash == b.Hash }) {
		t.Errorf("%d and %d entries, or another order", len(x), len(y))
	}
}

// backup copies a closed store.
func backup(t *testing.T, l *testLog) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(l.cfg.Dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// restoreTo opens a copy of a backup in a home of its own, as another machine
// with the device's key would: no copy of the token is there.
func restoreTo(t *testing.T, from, name string) *testLog {
	t.Helper()
	root := t.TempDir()
	if err := os.CopyFS(filepath.Join(root, "store"), os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return openTest(t, "a", withState(t), func(c *Config) {
		c.Dir, c.StateDir, c.Rand = filepath.Join(root, "store"), filepath.Join(root, "state"), seeded(name)
	})
}

// TestL7_TwoRestoresFromOneBackup: one backup comes to life twice, while what
// it was made of has gone on. Each opens an incarnation of its own, so that
// all three may write before they meet and no number is used twice.
func TestL7_TwoRestoresFromOneBackup(t *testing.T) {
	a := openTest(t, "a", withState(t))
	write(t, a, "before", 10)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	copied := backup(t, a)
	a = a.reopen(t)
	old := a.Self().ID
	write(t, a, "original", 5)
	one, two := restoreTo(t, copied, "one"), restoreTo(t, copied, "two")
	for _, r := range []*testLog{one, two} {
		if r.Doubt() == "" || r.Self().ID == old {
			t.Fatalf("a restore goes on as %s, doubt %q", r.Self().ID, r.Doubt())
		}
		write(t, r, "restored", 4)
	}
	if one.Self().ID == two.Self().ID {
		t.Fatal("two restores of one backup write one incarnation")
	}
	if pairs := reused(t, a, one, two); len(pairs) > 0 {
		t.Errorf("numbers used twice: %v", pairs)
	}
	peer := openTest(t, "peer")
	for _, order := range [][]*testLog{{a, one, two}, {two, a, one}} {
		for _, from := range order {
			exchange(t, peer, from, 3000)
		}
	}
	for _, r := range []*testLog{a, one, two} {
		exchange(t, r, peer, 1<<20)
		sameState(t, peer, r)
		sameOrder(t, peer, r)
	}
	if a.Self().ID != old || a.Doubt() != "" {
		t.Errorf("the one that went on gave its incarnation up: %q", a.Doubt())
	}
	if n := len(peer.Frontier()[old]); n != 1 {
		t.Errorf("%d branches where nobody forked", n)
	}
}

// TestL7_TokenRestoredToo: the store comes back together with the token's copy
// outside, as when a machine is rolled back, and is written to before the
// first contact. Nothing here can raise a doubt, so this is a true fork: the
// first peer proves it, both branches stay, and the next write is in a new
// incarnation.
func TestL7_TokenRestoredToo(t *testing.T) {
	for _, mine := range []int{0, 3} {
		t.Run(fmt.Sprintf("%d written before contact", mine), func(t *testing.T) {
			a := openTest(t, "a", withState(t))
			write(t, a, "before", 6)
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			store, state := backup(t, a), t.TempDir()
			if err := os.CopyFS(state, os.DirFS(a.cfg.StateDir)); err != nil {
				t.Fatal(err)
			}
			a = a.reopen(t)
			old := a.Self().ID
			write(t, a, "lost", 5)
			peer := openTest(t, "peer")
			exchange(t, peer, a, 1<<20)
			before := peer.Frontier().Seq(old)
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			putBack(t, a.cfg.Dir, store)
			putBack(t, a.cfg.StateDir, state)
			a = a.reopen(t)
			if a.Doubt() != "" || a.Self().ID != old {
				t.Fatalf("doubted at open: %q", a.Doubt())
			}
			write(t, a, "mine", mine)
			exchange(t, a, peer, 1<<20)
			if a.Self().ID == old || a.Doubt() == "" {
				t.Fatal("the peer's proof was not taken")
			}
			write(t, a, "after", 2)
			exchange(t, peer, a, 1<<20)
			sameState(t, a, peer)
			sameOrder(t, a, peer)
			if got := peer.Frontier().Seq(old); got < before {
				t.Errorf("the frontier went back from %d to %d", before, got)
			}
			// What was used twice is told: the origin has as many tips as branches.
			twice, tips := len(reused(t, a)), len(a.Frontier()[old])
			if mine == 0 && (twice != 0 || tips != 1) || mine > 0 && (twice != mine || tips != 2) {
				t.Errorf("%d numbers used twice, %d tips", twice, tips)
			}
		})
	}
}

// TestL7_ForkOfAFork: clones that gave their incarnation up are cloned again,
// and fork what they opened instead. The frontier of a bystander only grows.
func TestL7_ForkOfAFork(t *testing.T) {
	a := openTest(t, "a", onDisk(t))
	write(t, a, "common", 8)
	a, b := cloneDisk(t, a)
	first := a.Self().ID
	write(t, a, "a", 4)
	write(t, b, "b", 6)
	peer := openTest(t, "peer")
	var before Frontier
	meet := func(logs ...*testLog) {
		t.Helper()
		for range 2 {
			for _, l := range logs {
				exchange(t, peer, l, 900)
				exchange(t, l, peer, 1<<20)
				for o, tips := range before {
					for _, tip := range tips {
						if ok, err := peer.Holds(o, tip); err != nil || !ok {
							t.Fatalf("the frontier went back: %s %d, %v", o, tip.Seq, err)
						}
					}
				}
				before = peer.Frontier()
			}
		}
	}
	meet(a, b)
	write(t, a, "a in a new one", 3)
	second := a.Self().ID
	if second == first || b.Self().ID == first || second == b.Self().ID {
		t.Fatalf("incarnations after the first fork: %s, %s, was %s", second, b.Self().ID, first)
	}
	a, c := cloneDisk(t, a)
	write(t, a, "a again", 2)
	write(t, c, "c", 5)
	meet(a, b, c)
	write(t, c, "c in a new one", 1)
	write(t, a, "a in a third", 1)
	write(t, b, "b goes on", 1)
	meet(a, b, c)
	for _, l := range []*testLog{a, b, c} {
		sameState(t, peer, l)
		sameOrder(t, peer, l)
	}
	f := peer.Frontier()
	if len(f[first]) != 2 || len(f[second]) != 2 {
		t.Errorf("tips of the first %d, of the second %d, want two each", len(f[first]), len(f[second]))
	}
	if rows := peer.Views()[0].Rows; rows != 8+4+6+3+2+5+3+1 {
		t.Errorf("%d rows, want every note of every branch and the counter", rows)
	}
}

// branchLog writes a branch of one device: a letter per entry, the same
// letters the same entries. The wall stands still, so that clones stamp alike.
func branchLog(t *testing.T, branch string, wall func(i int) int64) *testLog {
	t.Helper()
	i := 0
	l := openTest(t, "thing", func(c *Config) {
		c.Wall = func() int64 { return wall(i) }
	})
	for i = range len(branch) {
		mustAppend(t, l, note(branch[i:i+1]))
	}
	return l
}

func still(int) int64 { return 1_800_000_000_000 }

// TestA1a_EqualStampsAtTheFork: clones stamp their first different entries
// alike, so that (timestamp, origin, seq) ties. The hash decides, and it
// decides the same on every replica.
func TestA1a_EqualStampsAtTheFork(t *testing.T) {
	a, b := branchLog(t, "xxxab", still), branchLog(t, "xxxcd", still)
	x, y := all(t, a)[4], all(t, b)[4]
	if x.Time != y.Time || x.Origin != y.Origin || x.Seq != y.Seq || x.Hash == y.Hash {
		t.Fatalf("no tie: %+v, %+v", x.Header, y.Header)
	}
	if x.Ref().Compare(y.Ref()) == 0 || x.Ref().Compare(y.Ref()) != -y.Ref().Compare(x.Ref()) {
		t.Error("C2 does not order the two")
	}
	p, q := openTest(t, "p"), openTest(t, "q")
	exchange(t, p, a, 1)
	exchange(t, p, b, 1)
	exchange(t, q, b, 1<<20)
	exchange(t, q, a, 1<<20)
	sameState(t, p, q)
	sameOrder(t, p, q)
}

// TestA1b_RandomTrees: random trees of forks, arriving in random orders: no
// entry changes its name, no frontier goes back, all end alike.
func TestA1b_RandomTrees(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 7))
		branches := []string{"oooooo"}
		for range 1 + rng.IntN(4) {
			from := branches[rng.IntN(len(branches))]
			b := []byte(from[:1+rng.IntN(len(from))])
			for range 1 + rng.IntN(5) {
				b = append(b, byte('a'+rng.IntN(3)))
			}
			branches = append(branches, string(b))
		}
		var logs, ends []*testLog
		for _, b := range branches {
			logs = append(logs, branchLog(t, b, still))
		}
		id := logs[0].Self().ID
		for i := range 3 {
			x := openTest(t, fmt.Sprint("x", i))
			var held []Tip
			names := map[Hash]Ref{}
			for _, j := range rng.Perm(len(logs)) {
				exchange(t, x, logs[j], []int{1, 400, 1 << 20}[i])
				for _, tip := range held {
					if ok, err := x.Holds(id, tip); err != nil || !ok {
						t.Fatalf("seed %d, %v: tip %d is gone, %v", seed, branches, tip.Seq, err)
					}
				}
				held = x.Frontier()[id]
				for _, e := range all(t, x) {
					if ref, ok := names[e.Hash]; ok && ref != e.Ref() {
						t.Fatalf("seed %d: entry %s was renamed from %v to %v", seed, e.Hash, ref, e.Ref())
					}
					names[e.Hash] = e.Ref()
				}
			}
			ends = append(ends, x)
		}
		for _, x := range ends[1:] {
			sameState(t, ends[0], x)
			sameOrder(t, ends[0], x)
		}
		if t.Failed() {
			t.Fatalf("seed %d: %v", seed, branches)
		}
		for _, l := range append(logs, ends...) {
			l.Close()
		}
	}
}

// TestA1d_ForgedForkWithLowStamps: who has the key forks the log at seq 5 with
// stamps below the true ones. The truth keeps its origin and its names.
func TestA1d_ForgedForkWithLowStamps(t *testing.T) {
	hours := func(i int) int64 { return still(i) + int64(i)*3_600_000 }
	truth := branchLog(t, "truthful", hours)
	thief := branchLog(t, "trutTHEFT", func(i int) int64 { return hours(min(i, 3)) })
	wanted := all(t, truth)
	if f := all(t, thief); f[5].Time >= wanted[5].Time || f[4].Hash != wanted[4].Hash {
		t.Fatalf("the forgery is not stamped below: %v, %v", f[5].Time, wanted[5].Time)
	}
	for _, order := range [][]*testLog{{truth, thief}, {thief, truth}} {
		x := openTest(t, "x")
		for _, from := range order {
			exchange(t, x, from, 1<<20)
		}
		err := x.View(func(s Snapshot) error {
			for _, e := range wanted {
				if got, err := s.Entry(e.Ref()); err != nil || got.Hash != e.Hash || got.Origin != truth.Self().ID {
					t.Errorf("seq %d of the truth: %v, %v", e.Seq, got.Hash, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if tips := x.Frontier()[truth.Self().ID]; len(tips) != 2 {
			t.Errorf("%d tips: the fork is not told", len(tips))
		}
	}
}

// TestL7_KeyWithoutItsStore: a device comes back with its key and nothing
// else, and writes at once. The report behind this: an identity restored from
// its key wrote seq 1 again and was read-only for ever.
func TestL7_KeyWithoutItsStore(t *testing.T) {
	a := openTest(t, "a", withState(t))
	write(t, a, "before", 3)
	peer := openTest(t, "peer")
	exchange(t, peer, a, 1<<20)
	again := openTest(t, "a", withState(t), func(c *Config) { c.Rand = seeded("another life") })
	write(t, again, "first act", 2)
	if again.Self().ID == a.Self().ID {
		t.Fatal("the old incarnation was begun again")
	}
	exchange(t, peer, again, 1<<20)
	exchange(t, again, peer, 1<<20)
	write(t, again, "goes on", 1)
	exchange(t, peer, again, 1<<20)
	sameState(t, peer, again)
	if pairs := reused(t, peer, a, again); len(pairs) > 0 {
		t.Errorf("numbers used twice: %v", pairs)
	}
}

// TestB4_IncarnationsAreDrawnNotCounted: an incarnation is 128 random bits, so
// that no two restores can come to the same one; a machine whose source of
// randomness fails opens none.
func TestB4_IncarnationsAreDrawnNotCounted(t *testing.T) {
	seen := map[Incarnation]bool{}
	for i := range 20 {
		l := openTest(t, "a", func(c *Config) { c.Rand = seeded(fmt.Sprint("draw", i)) })
		if inc := l.Self().Incarnation; seen[inc] || inc == (Incarnation{}) {
			t.Fatalf("incarnation %x again", inc)
		} else {
			seen[inc] = true
		}
	}
	_, err := Open(context.Background(), Config{InMemory: true, Signer: deviceKey("a"), Rand: strings.NewReader("short")})
	if err == nil {
		t.Error("an incarnation was drawn from five bytes")
	}
}

// TestC_OneHeadPerPlace: a head of the same place with a higher floor replaces
// the one before; a lower one, a repeat and one for a place not held change
// nothing; a head of the same seq and another hash is no head of this branch.
func TestC_OneHeadPerPlace(t *testing.T) {
	a, b := openTest(t, "a"), openTest(t, "b")
	write(t, a, "x", 4)
	exchange(t, b, a, 1<<20)
	key := deviceKey("a")
	held := a.Self().Head
	head := func(change func(*Head)) Head {
		h := held
		change(&h)
		h.sign(key)
		return h
	}
	for _, c := range []struct {
		name    string
		head    Head
		changed bool
	}{
		{"higher floor", head(func(h *Head) { h.Floor += 1000 }), true},
		{"the same again", head(func(h *Head) { h.Floor += 1000 }), false},
		{"lower floor", head(func(h *Head) { h.Floor += 10 }), false},
		{"same seq, other hash", head(func(h *Head) { h.Floor += 2000; h.Hash[0] ^= 1 }), false},
		{"beyond what is held", head(func(h *Head) { h.Floor += 2000; h.Seq++ }), false},
	} {
		if changed, err := b.PutHead(context.Background(), c.head); err != nil || changed != c.changed {
			t.Errorf("%s: changed %v, %v", c.name, changed, err)
		}
	}
	if got := b.Origins()[0].Head.Floor; got != held.Floor+1000 {
		t.Errorf("floor %v, want %v", got, hlc.Timestamp(held.Floor+1000))
	}
	if !bytes.Equal(b.Origins()[0].Head.Hash[:], held.Hash[:]) {
		t.Error("the head moved to another branch")
	}
}
