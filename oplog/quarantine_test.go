package oplog

import (
	"context"
	"fmt"
	"testing"
)

// future folds what byKind does and, if it is new enough, another kind and a
// newer version of notes.
type future struct {
	version uint32
	kinds   []string
	notes   uint64 // highest payload version of a note that it reads
	bodies  bool   // reads the body that byKind calls bad
}

func (f future) Name() string    { return "bykind" }
func (f future) Version() uint32 { return f.version }
func (f future) Kinds() []string { return f.kinds }
func (f future) Apply(tx Tx, e *Entry) error {
	if e.Version > f.notes {
		return Quarantine("version %d of %s", e.Version, e.Kind)
	}
	if string(e.Body) == "\xa3bad" && !f.bodies {
		return Quarantine("bad body")
	}
	ref := e.Ref()
	return tx.Insert(append([]byte("r"), ref[:]...), e.Body)
}

var (
	older = future{version: 1, kinds: []string{"note"}}
	newer = future{version: 2, kinds: []string{"note", "future"}, notes: 1, bodies: true}
)

func folding(p Projection) func(*Config) { return func(c *Config) { c.Projections = []Projection{p} } }

// TestL6_MixedVersions: replicas of two versions. The older one keeps, passes
// on and lists what it cannot fold, in order to fold it once it is upgraded;
// after a downgrade nothing is lost either.
func TestL6_MixedVersions(t *testing.T) {
	a := openTest(t, "a", folding(newer))
	mustAppend(t, a, note("one"), Op{Kind: "future", Body: []byte{0xc0}}, note("bad"),
		Op{Kind: "note", Version: 1, Body: []byte{0xc1}}, note("two"))
	b := openTest(t, "b", onDisk(t), folding(older))
	pull(t, b, a, 1<<20)
	check := func(what string, rows uint64, aside int) {
		t.Helper()
		list, err := b.Aside(10)
		if err != nil || len(list) != aside || b.Views()[0].Rows != rows {
			t.Fatalf("%s: %d rows, aside %+v, %v", what, b.Views()[0].Rows, list, err)
		}
		for _, e := range list {
			if e.Held || e.Reason == "" || e.Kind == "" {
				t.Errorf("%s: not said why: %+v", what, e)
			}
		}
	}
	check("older", 2, 3)
	if list, total, err := b.Quarantined(2); err != nil || len(list) != 2 || total != 3 {
		t.Errorf("%d quarantined listed of %d, %v; want 2 of 3", len(list), total, err)
	}
	if list, err := b.Waiting(2); err != nil || len(list) != 0 {
		t.Errorf("held: %+v, %v", list, err)
	}
	c := openTest(t, "c", folding(newer))
	pull(t, c, b, 1<<20) // what the older one does not understand comes through it
	sameState(t, a, c)
	b = b.reopen(t, folding(newer))
	check("upgraded", 5, 0)
	sameState(t, a, b)
	b = b.reopen(t, folding(future{version: 1, kinds: older.kinds}))
	if rows := b.Views()[0].Rows; rows != 2 {
		t.Errorf("downgraded: %d rows", rows)
	}
	mustAppend(t, b, note("by the older one"))
	b = b.reopen(t, folding(newer))
	check("upgraded again", 6, 0)
	d := openTest(t, "d", folding(newer))
	pull(t, d, b, 1<<20)
	sameState(t, b, d)
}

// TestL6_UpgradeThatOnlyAddsAKind: a version that understands one kind more
// and folds the others as before needs no rebuild. It folds what was kept for
// it all the same.
func TestL6_UpgradeThatOnlyAddsAKind(t *testing.T) {
	a := openTest(t, "a", folding(newer))
	mustAppend(t, a, note("one"), Op{Kind: "future", Body: []byte{0xc0}}, note("two"))
	b := openTest(t, "b", onDisk(t), folding(older))
	pull(t, b, a, 1<<20)
	if list, err := b.Aside(10); err != nil || len(list) != 1 {
		t.Fatalf("aside %+v, %v", list, err)
	}
	b = b.reopen(t, folding(future{version: older.version, kinds: newer.kinds}))
	if list, err := b.Aside(10); err != nil || len(list) != 0 || b.Views()[0].Rows != 3 {
		t.Errorf("%d rows, aside %+v, %v", b.Views()[0].Rows, list, err)
	}
}

// TestL6_OneAmongTenThousand: every other entry is delivered in its order and
// in the same transaction as if the bad one were not there.
func TestL6_OneAmongTenThousand(t *testing.T) {
	a := openTest(t, "a", folding(newer))
	for i := range 10 {
		ops := make([]Op, 1000)
		for j := range ops {
			ops[j] = note(fmt.Sprint(i, j))
		}
		if i == 3 {
			ops[500] = Op{Kind: "future", Body: []byte{0xc0}}
		}
		mustAppend(t, a, ops...)
	}
	b := openTest(t, "b", folding(older))
	for tip := uint64(0); ; {
		rg, err := a.ReadRange(a.Self().ID, tip, 100_000)
		if err != nil {
			t.Fatal(err)
		}
		if rg.Count == 0 {
			break
		}
		if _, err := b.Ingest(context.Background(), rg); err != nil {
			t.Fatal(err)
		}
		tip = rg.Head.Seq
		// As soon as a range is in, all of it is visible but for the bad one.
		want := tip
		if tip >= 3502 {
			want--
		}
		err = b.View(func(s Snapshot) error {
			if got := s.LastArrival(); got != want {
				t.Errorf("%d of %d entries are visible", got, want)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	last := uint64(0)
	for _, e := range all(t, b) {
		if e.Seq != last+1 && e.Seq != 3503 {
			t.Fatalf("seq %d after %d", e.Seq, last)
		}
		last = e.Seq
	}
	if list, err := b.Aside(5); err != nil || len(list) != 1 || list[0].Ref.Seq() != 3502 || last != 10_001 {
		t.Errorf("aside %+v, %v; the last is %d", list, err, last)
	}
}
