package replica

import (
	"errors"
	"slices"
	"testing"

	"tallystick/oplog"
)

// letters are notes that may be erased.
type letters struct{ notes }

func (letters) Content() []string { return []string{"note"} }

func erasable(t testing.TB, label string) Config {
	cfg := testConfig(t, label)
	cfg.Projections = []oplog.Projection{letters{}}
	return cfg
}

// receipted waits until r knows that the first erase has been applied under
// every one of the named origins.
func receipted(t testing.TB, r *Replica, by ...*Replica) {
	t.Helper()
	ctx := testContext(t)
	for {
		changed := r.Changed()
		var list []EraseStatus
		if err := r.View(func(s oplog.Snapshot) (err error) { list, err = Erasures(s); return err }); err != nil {
			t.Fatal(err)
		}
		all := len(list) == 1
		for _, b := range by {
			all = all && slices.Contains(list[0].Applied, b.Self().ID)
		}
		if all {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("erases are %+v", list)
		}
	}
}

// TestT5_EveryReplicaReceiptsAnErase: the one that erases, the one that hears
// of it, and one that joins afterwards, each once.
func TestT5_EveryReplicaReceiptsAnErase(t *testing.T) {
	a := mustOpen(t, erasable(t, "a"))
	b := mustJoin(t, a, erasable(t, "b"))
	n := note(t, a, "a password")
	note(t, a, "something harmless")
	converged(t, a, b)
	if _, err := a.Erase(testContext(t), "", "erase-1", "leaked", n.Hash); err != nil {
		t.Fatal(err)
	}
	receipted(t, a, a, b)
	receipted(t, b, a, b)
	for _, r := range []*Replica{a, b} {
		if e := r.Log().ErasePending(); e != 0 {
			t.Errorf("%s has still %d to erase", r.Label(), e)
		}
	}
	c := mustJoin(t, b, erasable(t, "c"))
	receipted(t, a, a, b, c)
	converged(t, a, c)
	for range 2 { // the second finds nothing to look at
		if err := a.settleErasures(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
	var receipts int
	err := a.View(func(s oplog.Snapshot) error {
		return s.Arrived(0, false, func(_ uint64, e *oplog.Entry) (bool, error) {
			if e.Kind == KindErased {
				receipts++
			}
			return true, nil
		})
	})
	if err != nil || receipts != 3 {
		t.Errorf("%d receipts, want 3, %v", receipts, err)
	}
}

// TestT5_ReceiptsAreStructural: what says that something is gone cannot be
// erased itself, nor can an admission.
func TestT5_ReceiptsAreStructural(t *testing.T) {
	a := mustOpen(t, erasable(t, "a"))
	n := note(t, a, "a password")
	if _, err := a.Erase(testContext(t), "", "erase-1", "", n.Hash); err != nil {
		t.Fatal(err)
	}
	var structural []oplog.Hash
	err := a.View(func(s oplog.Snapshot) error {
		return s.Arrived(0, false, func(_ uint64, e *oplog.Entry) (bool, error) {
			if e.Kind != "note" {
				structural = append(structural, e.Hash)
			}
			return true, nil
		})
	})
	if err != nil || len(structural) < 4 {
		t.Fatalf("%d structural entries, %v", len(structural), err)
	}
	for _, h := range structural {
		if _, err := a.Erase(testContext(t), "", "again-"+h.String(), "", h); !errors.Is(err, oplog.ErrStructural) {
			t.Errorf("%s: %v", h, err)
		}
	}
}
