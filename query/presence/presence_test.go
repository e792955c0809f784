package presence_test

import (
	"fmt"
	"slices"
	"testing"

	"tallystick/oplog"
	"tallystick/query/internal/foldtest"
	"tallystick/query/presence"
)

type views struct{ tx *foldtest.Tx }

func (v views) View(string) oplog.Reader { return v.tx }

func fold(t *testing.T, entries ...oplog.Entry) views {
	t.Helper()
	tx := foldtest.NewTx()
	for i := range entries {
		if err := (presence.View{}).Apply(tx, &entries[i]); err != nil {
			t.Fatal(err)
		}
	}
	return views{tx}
}

// TestM1_PresenceInAnyOrder: the earliest entry and the latest hour, whatever
// came first, and entries without author are nobody's.
func TestM1_PresenceInAnyOrder(t *testing.T) {
	const hour = 3_600_000
	entries := []oplog.Entry{
		foldtest.Entry(1, 1, foldtest.At(0), "tally.birth", "", nil),
		foldtest.Entry(1, 2, foldtest.At(10), "event", "mac:claude:x", nil),
		foldtest.Entry(1, 3, foldtest.At(20), "summary", "mac:claude:x", nil),
		foldtest.Entry(2, 1, foldtest.At(5*hour), "anything", "mac:claude:x", nil),
		foldtest.Entry(2, 2, foldtest.At(6*hour), "event", "nas:codex:x", nil),
	}
	want := fold(t, entries...)
	back := slices.Clone(entries)
	slices.Reverse(back)
	if a, b := want.tx.Dump(), fold(t, back...).tx.Dump(); a != b {
		t.Errorf("rows differ by order\n%s\n%s", a, b)
	}
	list, err := presence.List(want, "", 10)
	if err != nil || len(list) != 2 || list[0].Name != "mac:claude:x" || list[0].First != entries[1].Ref() {
		t.Fatalf("%+v, %v", list, err)
	}
	if got := list[0].Last; !got.Equal(foldtest.At(5 * hour).Time()) {
		t.Errorf("last seen %v", got)
	}
	rest, err := presence.List(want, "mac:claude:x", 10)
	if err != nil || len(rest) != 1 || rest[0].Name != "nas:codex:x" {
		t.Errorf("after the first: %+v, %v", rest, err)
	}
}

func TestKnownAndNear(t *testing.T) {
	v := fold(t, foldtest.Entry(1, 1, foldtest.At(0), "event", "mac:claude:x", nil))
	for name, want := range map[string]bool{"mac:claude:x": true, "mac:claude": false, "mac:claude:xy": false} {
		if known, err := presence.Known(v, name); err != nil || known != want {
			t.Errorf("%s: known %v, %v", name, known, err)
		}
	}
	near, err := presence.Near(v, "mac:claud:x")
	if err != nil || !slices.Equal(near, []string{"mac:claude:x"}) {
		t.Errorf("near: %v, %v", near, err)
	}
}

func Example() {
	tx := foldtest.NewTx()
	e := foldtest.Entry(1, 1, foldtest.At(0), "event", "mac:claude:x", nil)
	if err := (presence.View{}).Apply(tx, &e); err != nil {
		fmt.Println(err)
	}
	known, _ := presence.Known(views{tx}, "mac:claude:x")
	near, _ := presence.Near(views{tx}, "mac:claude:y")
	fmt.Println(known, near)
	// Output: true [mac:claude:x]
}
