package memory

import (
	"slices"
	"testing"

	"tallystick/oplog"
	"tallystick/query/imported"
	"tallystick/query/refusal"
)

// TestM3_RetiredImports: two hosts read in a fact that is retired where it comes
// from, and what stands in its place, before they meet. Both end with the one
// that is live there; what replaced what is known; a fact of the retired text
// that is added afterwards stays, and a copy elsewhere that went unseen is
// listed.
func TestM3_RetiredImports(t *testing.T) {
	a, b := newHost(t, "mac"), newHost(t, "nas")
	old := imported.Key{Source: "tally", ID: "mem_1", Part: "fact"}
	by := imported.Key{Source: "tally", ID: "mem_2", Part: "fact"}
	unseen := b.add("ns", "cut on Fridays")
	b.Later(10)
	in := func(h *host, k imported.Key, text string) {
		h.must(one(NewAdd(h.author, Fact{Namespace: "ns", Text: text, Import: k, Author: "old:a:p", At: "2026-01-02"})))
	}
	for _, h := range []*host{a, b} {
		if op, err := NewReplaced(h.author, by, []imported.Key{old}); err != nil {
			t.Error(err)
		} else if _, err := h.Append(t.Context(), op); refusal.CodeOf(err) != refusal.Conflict {
			t.Errorf("what is not here was replaced: %v", err)
		}
		if h == b {
			b.Later(5000)
		}
		in(h, old, "cut on Fridays")
		h.must(one(NewRetired(h.author, old)))
		if got := h.live("ns"); len(got) != 0 {
			t.Errorf("%s: live %q", h.author, got)
		}
		in(h, by, "cut on Mondays")
		h.must(one(NewReplaced(h.author, by, []imported.Key{old})))
	}
	meet(a, b)
	if a.digest() != b.digest() {
		t.Error("views differ")
	}
	for _, h := range []*host{a, b} {
		if got := h.live("ns"); !slices.Equal(got, []string{"cut on Mondays"}) {
			t.Errorf("%s: live %q", h.author, got)
		}
		h.view(func(s oplog.Snapshot) error {
			was, ok, err := Imported(s, old)
			now, here, bad := Imported(s, by)
			if err != nil || bad != nil || !ok || !here {
				t.Fatal(was, now, err, bad)
			}
			if rec := h.fact(was); rec.Retired == nil || rec.Retired.How != Updated || h.fact(rec.Retired.SupersededBy).Text != "cut on Mondays" || rec.By != "old:a:p" {
				t.Errorf("%s: %+v", h.author, rec)
			}
			if rec := h.fact(now); rec.Retired != nil {
				t.Errorf("%s: %+v", h.author, rec)
			}
			return nil
		})
		if !slices.ContainsFunc(h.merges(), func(m Merge) bool { return m.Lost.ID == unseen }) {
			t.Errorf("%s: a fact that the marks reached unseen is not listed: %+v", h.author, h.merges())
		}
	}
	a.add("ns", "cut on Fridays")
	meet(a, b)
	if got := b.live("ns"); !slices.Equal(got, []string{"cut on Fridays", "cut on Mondays"}) {
		t.Errorf("live %q", got)
	}
	if _, err := NewRetired(a.author, imported.Key{}); err == nil {
		t.Error("a retirement of no key")
	}
}
