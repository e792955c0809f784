package memory

import (
	"context"
	"errors"
	"slices"
	"testing"

	"tallystick/oplog"
	"tallystick/query/document"
)

// TestT5_Erase: erasing a fact takes it out of every view, digests included,
// on each replica; what a mark retired stays retired, and marks themselves
// cannot be erased.
func TestT5_Erase(t *testing.T) {
	a, b := newHost(t, "mac"), newHost(t, "nas")
	old := a.fact(a.add("own", "password: 1234"))
	a.add("own", "keep")
	fresh := a.fact(a.update("own", "password: 1234", "password: 5678"))
	meet(a, b)
	var mark oplog.Entry
	for _, e := range a.Entries() {
		if e.Kind == KindMark {
			mark = e
		}
	}
	if _, err := a.Erase(context.Background(), a.author, "", "secret", mark.Hash); !errors.Is(err, oplog.ErrStructural) {
		t.Errorf("a mark was erased: %v", err)
	}
	if _, err := a.Erase(context.Background(), a.author, "", "secret", fresh.Hash, old.Hash); err != nil {
		t.Fatal(err)
	}
	meet(a, b)
	if err := b.ApplyErasures(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, h := range []*host{a, b} {
		if got := h.live("own"); !slices.Equal(got, []string{"keep"}) {
			t.Errorf("%s: live %q", h.author, got)
		}
		h.view(func(s oplog.Snapshot) error {
			for _, slot := range []id16{slotID("own", "password: 1234"), slotID("own", "password: 5678")} {
				for _, table := range []byte{rowOpen, rowNamed, rowReach, hasReach} {
					if found, err := anyRow(s.View(ViewName), key(table, slot[:])); found || err != nil {
						t.Errorf("%s: a digest of an erased text is left in table %c, %v", h.author, table, err)
					}
				}
			}
			if _, err := Get(s, "id", old.ID); err == nil {
				t.Errorf("%s: an erased fact is given", h.author)
			}
			e, err := s.Entry(fresh.Ref)
			if err != nil {
				return err
			}
			docs, err := Documents(s, &e)
			if err != nil || len(docs) != 1 || docs[0].State != document.Erased || docs[0].Text != "" {
				t.Errorf("%s: documents %+v, %v", h.author, docs, err)
			}
			return nil
		})
	}
	if a.digest() != b.digest() {
		t.Error("views differ")
	}
	// erasing the replacement alone does not bring back what it replaced
	a.add("own", "v1")
	v2 := a.fact(a.update("own", "v1", "v2"))
	if _, err := a.Erase(context.Background(), a.author, "", "secret", v2.Hash); err != nil {
		t.Fatal(err)
	}
	if got := a.live("own"); !slices.Equal(got, []string{"keep"}) {
		t.Errorf("live %q after erasing a replacement", got)
	}
}
