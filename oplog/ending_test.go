package oplog

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestT2_CutMovesEitherWay: a cut is put anywhere, later and earlier than before,
// and the log is reopened between an act and what it brings about. What lies
// beyond is kept, passed on and listed, and the views are those of a log that
// knew of the cut before it had any of these entries.
func TestT2_CutMovesEitherWay(t *testing.T) {
	ctx := context.Background()
	gate := &cutGate{}
	a, b := openTest(t, "a", withContent), openTest(t, "b", onDisk(t), withContent, gate.in)
	list := mustAppend(t, a, note("0"), note("1"), note("2"), note("3"), note("4"))
	pull(t, b, a, 1<<20)
	whole := a.Frontier().Seq(a.Self().ID)
	for _, at := range []int{2, 0, 3, 4, 1, 1, 4} {
		before := b.Endings()
		gate.set(a.Self(), list[at])
		if b.EndingsPending() {
			t.Fatalf("cut at %d: pending before the act", at)
		}
		mustAppend(t, b, Op{Kind: "end", Author: "a:b:c", Body: appendNil(nil)})
		was, ended := before[a.Self().Key]
		now := b.Endings()[a.Self().Key]
		moved := !ended || !was.equal(&now)
		if b.EndingsPending() != moved {
			t.Fatalf("cut at %d: pending %v, want %v", at, !moved, moved)
		}
		b = b.reopen(t)
		if b.EndingsPending() != moved {
			t.Fatalf("cut at %d: pending %v over a reopening, want %v", at, !moved, moved)
		}
		if err := b.ApplyEndings(ctx); err != nil {
			t.Fatal(err)
		}
		if b.EndingsPending() {
			t.Errorf("cut at %d: still pending", at)
		}
		var want []uint64 // its birth and the notes up to the cut
		for seq := uint64(1); seq <= list[at].Ref.Seq(); seq++ {
			want = append(want, seq)
		}
		if got := noted(t, b, a.Self().ID); !slices.Equal(got, want) {
			t.Errorf("cut at %d: %v count, want %v", at, got, want)
		}
		if has := b.Frontier().Seq(a.Self().ID); has != whole {
			t.Errorf("cut at %d: %d of %d entries are kept", at, has, whole)
		}
		aside, err := b.Aside(10)
		if err != nil || uint64(len(aside)) != whole-list[at].Ref.Seq() {
			t.Errorf("cut at %d: %d aside, %v", at, len(aside), err)
		}
		for _, e := range aside {
			if !e.Beyond || !strings.HasSuffix(e.Reason, "revoked") || e.Ref.Seq() <= list[at].Ref.Seq() {
				t.Errorf("cut at %d: aside %+v", at, e)
			}
		}
		knew := openTest(t, "knew", withContent, gate.in)
		pull(t, knew, b, 1<<20) // all of it through b
		if x, y := b.Views()[0], knew.Views()[0]; x.Digest != y.Digest {
			t.Errorf("cut at %d: view %s, of who knew before %s", at, x.Digest, y.Digest)
		}
	}
}

// TestT2_EndedLogTakesNothing: once its own device has ended a log refuses what
// it is asked to append, also when it is opened again, and repeats what it had
// answered before.
func TestT2_EndedLogTakesNothing(t *testing.T) {
	ctx := context.Background()
	gate := &cutGate{}
	l := openTest(t, "a", onDisk(t), withContent, gate.in)
	known := note("before")
	known.OpID = "before"
	first := mustAppend(t, l, known)[0]
	gate.cut(t, l, l.Self(), first)
	for range 2 {
		if _, err := l.Append(ctx, note("after")); !errors.Is(err, ErrEnded) || !strings.Contains(err.Error(), "revoked") {
			t.Errorf("after the end: %v", err)
		}
		if again := mustAppend(t, l, known)[0]; again.Hash != first.Hash || !again.Replayed {
			t.Errorf("a repeat is answered with %+v, want %+v", again, first)
		}
		if got := noted(t, l, l.Self().ID); !slices.Equal(got, []uint64{1, 2, 3}) { // its birth, the note and the act
			t.Errorf("%v count", got)
		}
		l = l.reopen(t)
	}
}
