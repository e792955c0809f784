package oplog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// withhold is a range as a relay gives it that leaves payloads out.
func withhold(t testing.TB, rg Range, which func(*Entry) bool) Range {
	t.Helper()
	var out []byte
	for rest := rg.Entries; len(rest) > 0; {
		e, left, err := ParseEntry(rest)
		if err != nil {
			t.Fatal(err)
		}
		if rest = left; which(&e) {
			e.Salt, e.Payload = nil, nil
		}
		out = e.Append(out)
	}
	rg.Entries = out
	return rg
}

// pullBare is pull from a relay that leaves payloads out.
func pullBare(t testing.TB, to, from *testLog, which func(*Entry) bool) {
	t.Helper()
	for _, o := range from.Origins() {
		for {
			rg, err := from.ReadRange(o.ID, to.Frontier().Seq(o.ID), 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if rg.Count == 0 {
				break
			}
			if _, err := to.Ingest(context.Background(), withhold(t, rg, which)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func notes(e *Entry) bool { return e.Kind == "note" }

// owedBy lists what a log owes, two at a time.
func owedBy(t testing.TB, l *testLog) (list []OwedEntry) {
	t.Helper()
	for after := ""; ; {
		part, next, err := l.Owed(after, 2)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, part...)
		if next == "" {
			break
		}
		after = next
	}
	if len(list) != l.OwedTotal() {
		t.Errorf("%d listed, %d counted", len(list), l.OwedTotal())
	}
	return list
}

func wholeEntry(t testing.TB, l *testLog, h Hash) []byte {
	t.Helper()
	b, err := l.WholeEntry(h)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestT5_WithheldPayloadIsOwed: an entry that comes without its payload is held
// and listed, in no view and without an arrival number, passed on as it came,
// and folded when the payload comes. Nothing else is taken for it.
func TestT5_WithheldPayloadIsOwed(t *testing.T) {
	ctx := context.Background()
	a, b := openTest(t, "a", withContent), openTest(t, "b", onDisk(t), withContent)
	write(t, a, "x", 3)
	op := note("with an op id")
	op.OpID = "op-1"
	it := mustAppend(t, a, op)[0]
	claim := mustAppend(t, a, Op{Kind: "claim", Author: "a:b:c", Body: []byte{0xc0}})[0]
	write(t, a, "y", 2)
	pullBare(t, b, a, func(e *Entry) bool { return e.Hash == it.Hash || e.Hash == claim.Hash })
	check := func(l *testLog) {
		t.Helper()
		list := owedBy(t, l)
		// What a verdict may hang on comes first.
		if len(list) != 2 || list[0].Hash != claim.Hash || list[1].Hash != it.Hash || list[1].Seq != it.Ref.Seq() || list[1].Ref != it.Ref || list[1].Kind != "note" || list[1].Origin != a.Self().ID {
			t.Fatalf("owed %+v", list)
		}
		aside, err := l.Aside(10)
		if err != nil || len(aside) != 2 || !aside[0].Owed || aside[0].Held || aside[0].Ref != it.Ref || aside[0].Reason != reasonOwed {
			t.Errorf("aside %+v, %v", aside, err)
		}
		since, err := l.OwedSince()
		if err != nil || len(since) != 1 || since[a.Self().ID] != claim.Ref.Time() {
			t.Errorf("settled up to %v, %v; want the stamp of the claim", since, err)
		}
		if l.Frontier().Seq(a.Self().ID) != a.Frontier().Seq(a.Self().ID) {
			t.Error("the frontier does not count it")
		}
		err = l.View(func(s Snapshot) error {
			if n, err := s.Arrival(it.Ref); err != nil || n != 0 {
				t.Errorf("arrival %d, %v", n, err)
			}
			if e, err := s.Entry(it.Ref); err != nil || e.Present() {
				t.Errorf("entry %+v, %v", e, err)
			}
			p, err := s.(*snapshot).Positions()
			if err != nil || len(p) == 0 || len(p[0].Except) != 2 {
				t.Errorf("positions %+v, %v", p, err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if l.Views()[0].Rows != 5+1 {
			t.Errorf("%d rows", l.Views()[0].Rows)
		}
		if _, err := l.WholeEntry(it.Hash); !errors.Is(err, ErrNotFound) {
			t.Errorf("it gives what it has not got: %v", err)
		}
		if v, err := l.Verify(ctx, nil); err != nil || len(v.Findings) > 0 {
			t.Errorf("verify %+v, %v", v, err)
		}
	}
	check(b)
	b = b.reopen(t)
	check(b)
	c := openTest(t, "c", withContent)
	pull(t, c, b, 1<<20) // a relay that owes it itself
	check(c)
	if err := b.Rebuild(ctx, nil); err != nil {
		t.Fatal(err)
	}
	check(b)

	exact := wholeEntry(t, a, it.Hash)
	other := wholeEntry(t, a, claim.Hash)
	bare := withhold(t, Range{Entries: exact}, notes).Entries
	for name, bytes := range map[string][]byte{
		"another entry": other, "no payload": bare, "more behind it": append(bytes.Clone(exact), 0xc0), "nothing": nil,
		"another payload": append(bytes.Clone(exact[:len(exact)-1]), exact[len(exact)-1]^1),
	} {
		if err := b.PutOwed(ctx, it.Hash, bytes); !errors.Is(err, ErrBadRange) || !IsRangeError(err) {
			t.Errorf("%s was taken: %v", name, err)
		}
	}
	if err := b.PutOwed(ctx, hashFrom(it.Hash, 1), exact); !errors.Is(err, ErrBadRange) {
		t.Errorf("taken for another: %v", err)
	}
	epoch := b.OwedEpoch()
	for _, h := range []Hash{it.Hash, claim.Hash} {
		if err := b.PutOwed(ctx, h, wholeEntry(t, a, h)); err != nil {
			t.Fatal(err)
		}
		if err := b.PutOwed(ctx, h, wholeEntry(t, a, h)); !errors.Is(err, ErrNotOwed) {
			t.Errorf("put again: %v", err)
		}
	}
	if b.OwedEpoch() != epoch {
		t.Error("the epoch has moved with what was put")
	}
	for range 2 {
		if b.Views()[0] != a.Views()[0] || len(owedBy(t, b)) != 0 || b.OwedTotal() != 0 {
			t.Errorf("view %+v, want %+v; %d owed", b.Views()[0], a.Views()[0], b.OwedTotal())
		}
		err := b.View(func(s Snapshot) error {
			if n, err := s.Arrival(it.Ref); err != nil || n == 0 || n < s.LastArrival()-1 {
				t.Errorf("arrival %d of %d, %v: it became visible last", n, s.LastArrival(), err)
			}
			if e, err := s.ByOp("a:b:c", "op-1"); err != nil || e.Hash != it.Hash {
				t.Errorf("by its op id %v, %v", e.Hash, err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if v, err := b.Verify(ctx, nil); err != nil || len(v.Findings) > 0 {
			t.Errorf("verify %+v, %v", v, err)
		}
		if !bytes.Equal(wholeEntry(t, b, it.Hash), exact) {
			t.Error("other bytes are given on")
		}
		b = b.reopen(t)
	}
	if err := b.PutOwed(ctx, hashFrom(it.Hash, 1), exact); !errors.Is(err, ErrBadRange) {
		t.Errorf("nothing is owed: %v", err)
	}
}

func hashFrom(h Hash, d byte) Hash { h[31] ^= d; return h }

// TestT5_OwedIsPaidByAPack: whoever brings the payload pays, also a range of
// entries that are held already.
func TestT5_OwedIsPaidByAPack(t *testing.T) {
	a, b := openTest(t, "a", withContent), openTest(t, "b", withContent)
	write(t, a, "x", 30)
	pullBare(t, b, a, notes)
	if n := len(owedBy(t, b)); n != 30 {
		t.Fatalf("%d owed", n)
	}
	got := imported(t, b, exported(t, b))
	if got.Added != 0 || b.OwedTotal() != 30 {
		t.Errorf("its own export pays: %+v, %d owed", got, b.OwedTotal())
	}
	got = imported(t, b, exported(t, a))
	if got.Added != 0 || b.OwedTotal() != 0 || b.Views()[0] != a.Views()[0] {
		t.Errorf("imported %+v, %d owed, view %+v, want %+v", got, b.OwedTotal(), b.Views()[0], a.Views()[0])
	}
}

// TestT5_EraseBeatsALatePayload: what was owed and is erased is owed no longer
// and never comes back; a kind that is not content stays owed whatever an
// erase says.
func TestT5_EraseBeatsALatePayload(t *testing.T) {
	ctx := context.Background()
	const secret = "correct-horse-battery-staple"
	a, keeper := openTest(t, "a", withContent), openTest(t, "keeper", withContent)
	write(t, a, "x", 2)
	it := mustAppend(t, a, note(secret))[0]
	claim := mustAppend(t, a, Op{Kind: "claim", Author: "a:b:c", Body: []byte{0xc0}})[0]
	pull(t, keeper, a, 1<<20)
	late := map[Hash][]byte{it.Hash: wholeEntry(t, a, it.Hash), claim.Hash: wholeEntry(t, a, claim.Hash)}
	lax := openTest(t, "lax", func(c *Config) { c.Projections = []Projection{laxContent{}} })
	pull(t, lax, a, 1<<20)
	mustErase(t, lax, it.Hash, claim.Hash)
	for _, eraseFirst := range []bool{false, true} {
		dir := t.TempDir()
		b := openTest(t, fmt.Sprint("b", eraseFirst), withContent, func(c *Config) { c.InMemory, c.Dir = false, dir })
		eraser := openTest(t, "eraser", withContent)
		mustErase(t, eraser, it.Hash)
		if eraseFirst {
			pull(t, b, eraser, 1<<20)
		}
		pullBare(t, b, a, func(e *Entry) bool { return late[e.Hash] != nil })
		if want := 2; !eraseFirst && b.OwedTotal() != want || eraseFirst && b.OwedTotal() != want-1 {
			t.Errorf("erase first %v: %d owed", eraseFirst, b.OwedTotal())
		}
		epoch := b.OwedEpoch()
		pull(t, b, eraser, 1<<20)
		if !eraseFirst && b.OwedEpoch() == epoch {
			t.Error("nobody is told that it is owed no longer")
		}
		if list := owedBy(t, b); len(list) != 1 || list[0].Hash != claim.Hash {
			t.Errorf("erase first %v: owed %+v, want the claim", eraseFirst, list)
		}
		if err := b.PutOwed(ctx, it.Hash, late[it.Hash]); !errors.Is(err, ErrNotOwed) {
			t.Errorf("erased, and taken back: %v", err)
		}
		imported(t, b, exported(t, keeper))
		if b.OwedTotal() != 0 {
			t.Errorf("%d owed after the pack of one that keeps everything", b.OwedTotal())
		}
		pull(t, b, lax, 1<<20)
		if err := b.ApplyErasures(ctx); err != nil {
			t.Fatal(err)
		}
		if err := b.Purge(ctx); err != nil {
			t.Fatal(err)
		}
		err := b.View(func(s Snapshot) error {
			e, err := s.Entry(it.Ref)
			if err != nil || e.Present() {
				t.Errorf("the erased entry is %+v, %v", e, err)
			}
			if n, err := s.Arrival(it.Ref); err != nil || n == 0 {
				t.Errorf("arrival %d, %v: it is as visible as any erased one", n, err)
			}
			e, err = s.Entry(claim.Ref)
			if err != nil || !e.Present() {
				t.Errorf("the claim is %+v, %v", e, err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if v, err := b.Verify(ctx, nil); err != nil || len(v.Findings) > 0 {
			t.Errorf("verify %+v, %v", v, err)
		}
		fresh := openTest(t, "fresh", withContent)
		pull(t, fresh, b, 1<<20)
		if fresh.OwedTotal() != 0 || fresh.Views()[0] != b.Views()[0] {
			t.Errorf("a newcomer owes %d and sees %+v, want %+v", fresh.OwedTotal(), fresh.Views()[0], b.Views()[0])
		}
		b = b.reopen(t)
		if b.OwedTotal() != 0 || len(grep(t, dir, secret)) > 0 {
			t.Errorf("%d owed after reopening", b.OwedTotal())
		}
	}
}

// TestT5_HeldAndOwed: what waits for its time and has no payload is owed at
// once, and folded in its time.
func TestT5_HeldAndOwed(t *testing.T) {
	ctx := context.Background()
	wall := int64(1_800_000_000_000)
	clock := func(c *Config) { c.Wall = func() int64 { return wall } }
	a := openTest(t, "a", withContent, func(c *Config) { c.Wall = func() int64 { return wall + time.Hour.Milliseconds() } })
	it := mustAppend(t, a, note("from the future"))[0]
	for _, before := range []bool{true, false} {
		wall = 1_800_000_000_000
		b := openTest(t, fmt.Sprint("b", before), withContent, clock)
		pullBare(t, b, a, notes)
		list := owedBy(t, b)
		aside, err := b.Aside(10)
		if err != nil || len(list) != 1 || list[0].Since.UnixMilli() != wall || len(aside) != 1 || !aside[0].Held || aside[0].Owed {
			t.Fatalf("owed %+v, aside %+v, %v", list, aside, err)
		}
		pay := func() {
			if err := b.PutOwed(ctx, it.Hash, wholeEntry(t, a, it.Hash)); err != nil {
				t.Fatal(err)
			}
		}
		if before {
			pay()
			if b.Views()[0].Rows != 0 || b.Held() != 1 {
				t.Errorf("%d rows, %d held before its time", b.Views()[0].Rows, b.Held())
			}
		}
		wall += time.Hour.Milliseconds()
		if err := b.ReleaseHeld(ctx); err != nil {
			t.Fatal(err)
		}
		if !before {
			if aside, err := b.Aside(10); err != nil || len(aside) != 1 || !aside[0].Owed || b.Held() != 0 {
				t.Errorf("aside %+v, %v", aside, err)
			}
			pay()
		}
		if b.OwedTotal() != 0 || b.Held() != 0 || b.Views()[0] != a.Views()[0] {
			t.Errorf("paid before %v: %d owed, %d held, view %+v, want %+v", before, b.OwedTotal(), b.Held(), b.Views()[0], a.Views()[0])
		}
	}
}

// TestM1_OwedInAnyOrder: whichever payloads were withheld, in whatever order
// they, their erases and amends come, replicas with the same entries and
// payloads show the same.
func TestM1_OwedInAnyOrder(t *testing.T) {
	ctx := context.Background()
	wall := int64(1_800_000_000_000)
	clock := func(c *Config) { c.Wall = func() int64 { return wall } }
	a := openTest(t, "a", withContent, clock)
	write(t, a, "x", 40)
	fast := openTest(t, "fast", withContent, func(c *Config) { c.Wall = func() int64 { return wall + 2*time.Hour.Milliseconds() } })
	write(t, fast, "later", 10)
	pull(t, a, fast, 1<<20)
	line := a.FutureLines()
	if len(line) != 1 {
		t.Fatalf("lines in the future: %+v", line)
	}
	if _, err := a.Amend(ctx, "a:b:c", "", Amendment{Origin: line[0].Origin, Last: line[0].Last}, nil); err != nil {
		t.Fatal(err)
	}
	var erase, keep []Hash
	payloads := map[Hash][]byte{}
	err := a.View(func(s Snapshot) error {
		return s.Arrived(0, false, func(n uint64, e *Entry) (bool, error) {
			if e.Kind == "note" {
				if n%7 == 0 {
					erase = append(erase, e.Hash)
				} else {
					keep = append(keep, e.Hash)
				}
				payloads[e.Hash] = (&Entry{Header: e.Header, RawHeader: e.RawHeader, Salt: e.Salt, Payload: e.Payload}).Append(nil)
			}
			return true, nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	full := openTest(t, "full", withContent, clock)
	pull(t, full, a, 1<<20)
	mustErase(t, a, erase...)
	want := a.Views()[0]
	for round := range 12 {
		rnd := rand.New(rand.NewPCG(seed, uint64(round)))
		b := openTest(t, fmt.Sprint("b", round), withContent, clock)
		from := full
		if round%3 == 0 {
			from = a // has erased them
		}
		bare := map[Hash]bool{}
		for h := range payloads {
			bare[h] = rnd.IntN(2) == 0
		}
		steps := []func(){
			func() { pullBare(t, b, from, func(e *Entry) bool { return bare[e.Hash] }) },
			func() { pull(t, b, a, 1+rnd.IntN(4000)) },
			func() { mustDo(t, b.ApplyErasures(ctx)) },
			func() { mustDo(t, b.ApplyAmends(ctx)) },
			func() { mustDo(t, b.Rebuild(ctx, nil)) },
		}
		for _, h := range append(append([]Hash{}, keep...), erase...) {
			steps = append(steps, func() {
				if err := b.PutOwed(ctx, h, payloads[h]); err != nil && !errors.Is(err, ErrNotOwed) {
					t.Fatal(err)
				}
			})
		}
		rnd.Shuffle(len(steps), func(i, k int) { steps[i], steps[k] = steps[k], steps[i] })
		for _, step := range steps {
			step()
		}
		pullBare(t, b, from, notes) // whatever the order above has left out
		pull(t, b, a, 1<<20)
		for _, h := range keep {
			if err := b.PutOwed(ctx, h, payloads[h]); err != nil && !errors.Is(err, ErrNotOwed) {
				t.Fatal(err)
			}
		}
		mustDo(t, b.ApplyErasures(ctx))
		mustDo(t, b.ApplyAmends(ctx))
		mustDo(t, b.ReleaseHeld(ctx))
		if got := b.Views()[0]; got != want || b.OwedTotal() != 0 {
			t.Errorf("round %d: view %+v, want %+v; %d owed", round, got, want, b.OwedTotal())
		}
		if v, err := b.Verify(ctx, nil); err != nil || len(v.Findings) > 0 {
			t.Errorf("round %d: %+v, %v", round, v.Findings, err)
		}
	}
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
