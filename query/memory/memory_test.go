package memory

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"tallystick/oplog"
	"tallystick/query/document"
	"tallystick/query/internal/viewtest"
	"tallystick/query/refusal"
)

func TestPinsFollowTheLineage(t *testing.T) {
	a, b := newHost(t, "mac"), newHost(t, "nas")
	a.add("own", "x")
	a.must(one(NewPin(a.author, "own", "x")))
	id := a.update("own", "x", "y")
	if !a.fact(id).Pinned {
		t.Error("the pin did not follow the update")
	}
	a.forget("own", "y")
	fresh := a.add("own", "x")
	if a.fact(fresh).Pinned {
		t.Error("a fact added afterwards is pinned")
	}
	if _, err := a.reflect(`{"action":"pin","agent_id":"own","text":"y"}`); refusal.CodeOf(err) != refusal.NotFound {
		t.Errorf("pinned a retired fact: %v", err)
	}
	if _, err := a.reflect(`{"action":"unpin","agent_id":"own","text":"y"}`); err != nil {
		t.Errorf("unpin reaches retired copies too: %v", err)
	}
	if a.fact(id).Pinned {
		t.Error("still pinned")
	}
	// observed-remove: an unpin takes away the pins it saw, not one made elsewhere
	meet(a, b)
	a.must(one(NewPin(a.author, "own", "x")))
	meet(a, b)
	b.must(one(NewUnpin(b.author, "own", "x")))
	a.must(one(NewPin(a.author, "own", "x")))
	meet(a, b)
	if !a.fact(fresh).Pinned || !b.fact(fresh).Pinned || a.digest() != b.digest() {
		t.Error("a pin that the unpin never saw is gone")
	}
}

func TestAliasesAndLinks(t *testing.T) {
	h, other := newHost(t, "mac"), newHost(t, "nas")
	alias := h.must(one(NewAlias(h.author, "own", " DB ", []string{"database", "postgres", "database"})))
	h.must(one(NewAlias(h.author, "own", "db", []string{"pg"})))
	h.must(one(NewLink(h.author, "own", " Auth ", "TOKENS")))
	h.must(one(NewLink(h.author, "own", "auth", "tokens")))
	meet(h, other)
	other.view(func(s oplog.Snapshot) error {
		words, err := Expand(s, "own", "Db")
		if err != nil || !slices.Equal(words, []string{"database", "postgres", "pg"}) {
			t.Errorf("db expands to %q, %v", words, err)
		}
		if words, _ := Expand(s, "other", "db"); len(words) != 0 {
			t.Errorf("another namespace expands to %q", words)
		}
		if all, err := Aliases(s, "own", "", 1); err != nil || len(all) != 1 || all[0].Term != "db" {
			t.Errorf("aliases %+v, %v", all, err)
		}
		from, to, err := Links(s, "own", "AUTH", 0)
		if err != nil || len(from) != 1 || len(to) != 0 || from[0].To != "tokens" {
			t.Errorf("links %+v %+v, %v", from, to, err)
		}
		if _, to, _ := Links(s, "own", "tokens", 0); len(to) != 1 || to[0].From != "auth" {
			t.Errorf("links to tokens %+v", to)
		}
		page, err := List(s, Filter{Namespaces: []string{"own"}, Retired: true})
		if err != nil || page.Count != 0 {
			t.Errorf("aliases and links are listed as facts: %+v %v", page, err)
		}
		return nil
	})
	var op oplog.Op
	var err error
	h.view(func(s oplog.Snapshot) error {
		op, err = NewRemove(s, h.author, alias.EntryID)
		return nil
	})
	h.must(one(op, err))
	meet(h, other)
	other.view(func(s oplog.Snapshot) error {
		if words, _ := Expand(s, "own", "db"); !slices.Equal(words, []string{"pg"}) {
			t.Errorf("after removing one alias: %q", words)
		}
		return nil
	})
}

// TestNearDuplicates names what says nearly the same on add, live ones only.
func TestNearDuplicates(t *testing.T) {
	h := newHost(t, "mac")
	h.add("own", "The staging database listens on port 5433 behind the proxy")
	h.add("own", "staging database listens on port 5432, behind the proxy!")
	h.add("own", "Deploys happen on Tuesday morning after the stand-up")
	h.add("other", "The staging database listens on port 5433 behind the proxy")
	near := func(text string) (out []Duplicate) {
		h.view(func(s oplog.Snapshot) (err error) {
			out, err = Near(s, "own", text, oplog.Hash{}, 5)
			return err
		})
		return out
	}
	got := near("the STAGING database listens on port 5433 behind the proxy")
	if len(got) != 2 || got[0].Exact || got[0].Likeness != 1 || got[1].Likeness >= 1 {
		t.Errorf("near: %+v", got)
	}
	if got := near("The staging database listens on port 5433 behind the proxy"); len(got) != 2 || !got[0].Exact {
		t.Errorf("near the same bytes: %+v", got)
	}
	if got := near("nothing of the kind was ever said here"); len(got) != 0 {
		t.Errorf("near something else: %+v", got)
	}
	h.forget("own", "The staging database listens on port 5433 behind the proxy")
	if got := near("The staging database listens on port 5433 behind the proxy"); len(got) != 1 || got[0].Exact {
		t.Errorf("a forgotten fact is named: %+v", got)
	}
	id := h.add("own", "!?")
	if got := near("!?"); len(got) != 1 || got[0].ID != id {
		t.Errorf("texts without words: %+v", got)
	}
}

func TestListPagesAndRefusals(t *testing.T) {
	h := newHost(t, "mac")
	for i := range 25 {
		h.add([]string{"a", "b"}[i%2], fmt.Sprint("fact ", i))
	}
	h.forget("a", "fact 10")
	for _, retired := range []bool{false, true} {
		var texts []string
		f := Filter{Namespaces: []string{"a", "b"}, Limit: 7, Retired: retired}
		for {
			var page Page
			h.view(func(s oplog.Snapshot) (err error) {
				page, err = List(s, f)
				return err
			})
			for _, r := range page.Facts {
				texts = append(texts, r.Text)
			}
			if !page.HasMore {
				break
			}
			f.Cursor = page.NextCursor
		}
		want := 24
		if retired {
			want = 25
		}
		if len(texts) != want || texts[0] != "fact 24" || texts[want-1] != "fact 0" || len(slices.Compact(slices.Sorted(slices.Values(texts)))) != want {
			t.Errorf("retired=%v: %d texts %q", retired, len(texts), texts)
		}
	}
	h.view(func(s oplog.Snapshot) error {
		for field, f := range map[string]Filter{
			"limit":    {Namespaces: []string{"a"}, Limit: 1e9},
			"agent_id": {},
			"cursor":   {Namespaces: []string{"a"}, Cursor: "m0.zzz"},
		} {
			_, err := List(s, f)
			if e, ok := err.(*refusal.Error); !ok || e.Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
		if _, err := List(s, Filter{Namespaces: []string{"a"}, Limit: -1}); refusal.CodeOf(err) != refusal.InvalidArgument {
			t.Errorf("negative limit: %v", err)
		}
		for _, id := range []string{"", "mem_", "mem_0123456789ABCDEF", "sum_0123456789abcdef", "mem_0123456789abcdeg"} {
			if _, err := Get(s, "id", id); refusal.CodeOf(err) != refusal.InvalidArgument {
				t.Errorf("id %q: %v", id, err)
			}
		}
		if _, err := Get(s, "id", "mem_0123456789abcdef"); refusal.CodeOf(err) != refusal.NotFound {
			t.Errorf("unknown id: %v", err)
		}
		return nil
	})
	big := strings.Repeat("x", 20<<10)
	h.add("big", big)
	h.add("big", big+"y")
	h.view(func(s oplog.Snapshot) error {
		page, err := List(s, Filter{Namespaces: []string{"big"}})
		if page.Count != 1 || !page.Truncated || !page.HasMore || page.NextCursor == "" {
			t.Errorf("a page over its size: %d of %+v", page.Count, page.Truncated)
		}
		return err
	})
}

// TestReadsCostThePage: with 10,000 facts in one namespace a page, a lookup
// and the search for near-duplicates touch as many rows as with 300.
func TestReadsCostThePage(t *testing.T) {
	h := newHost(t, "mac")
	cost := func() map[string]int {
		out := map[string]int{}
		h.view(func(s oplog.Snapshot) error {
			for name, fn := range map[string]func(s oplog.Snapshot) error{
				"list": func(s oplog.Snapshot) error {
					_, err := List(s, Filter{Namespaces: []string{"own", Shared}, Limit: 8})
					return err
				},
				"copies": func(s oplog.Snapshot) error {
					_, err := Copies(s, "own", "service 77 listens on port 10077")
					return err
				},
				"count": func(s oplog.Snapshot) error { _, err := CountOf(s, "own"); return err },
				"near": func(s oplog.Snapshot) error {
					_, err := Near(s, "own", "service 78 listens on port 10077", oplog.Hash{}, 5)
					return err
				},
				"merges": func(s oplog.Snapshot) error { _, err := Merges(s, MergeFilter{}); return err },
			} {
				steps := 0
				if err := fn(viewtest.Counting{Snapshot: s, Steps: &steps}); err != nil {
					t.Error(err)
				}
				out[name] = steps
			}
			return nil
		})
		return out
	}
	fill := func(from, to int) {
		for at := from; at < to; {
			var ops []oplog.Op
			for ; at < to && len(ops) < 500; at++ {
				op, err := NewAdd(h.author, Fact{Namespace: "own", Text: fmt.Sprintf("service %d listens on port %d", at, 10000+at)})
				if err != nil {
					t.Fatal(err)
				}
				ops = append(ops, op)
			}
			if _, err := h.try(ops...); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill(0, 300)
	few := cost()
	fill(300, 10000)
	many := cost()
	for name, n := range many {
		if n > 2*few[name]+50 {
			t.Errorf("%s touches %d rows with 10,000 facts and %d with 300", name, n, few[name])
		}
	}
}

// dry is a view that takes writes and forgets them.
type dry struct{ oplog.Reader }

func (dry) Insert(_, _ []byte) error { return nil }
func (dry) Set(_, _ []byte) error    { return nil }
func (dry) Delete(_ []byte) error    { return nil }

// TestFoldCostsTheEntry: the two thousandth update of one fact, and the forget
// of a text that was forgotten and written again as often, fold in as many
// steps as the tenth.
func TestFoldCostsTheEntry(t *testing.T) {
	h := newHost(t, "mac")
	cost := func() (steps int) {
		last := h.Entries()
		h.view(func(s oplog.Snapshot) error {
			for _, e := range last[len(last)-5:] {
				if err := (View{}).Apply(dry{viewtest.CountingReader{Reader: s.View(ViewName), Steps: &steps}}, &e); err != nil {
					return err
				}
			}
			return nil
		})
		return steps
	}
	h.add("own", "v0")
	few := 0
	for i := range 2000 {
		h.update("own", fmt.Sprint("v", i), fmt.Sprint("v", i+1))
		h.add("own", "again")
		h.forget("own", "again")
		if i == 10 {
			few = cost()
		}
	}
	if many := cost(); many > few+10 {
		t.Errorf("%d steps after 2,000 rounds, %d after 10", many, few)
	}
}

// TestDocuments: following the log by arrival with Documents ends in the state
// that the view has, on a replica that got everything in another order too.
func TestDocuments(t *testing.T) {
	a, b := newHost(t, "mac"), newHost(t, "nas")
	index := map[string]document.Document{}
	after := uint64(0)
	check := func() {
		a.view(func(s oplog.Snapshot) error {
			for id, d := range index {
				rec, err := Get(s, "id", id)
				if err != nil {
					return err
				}
				want := document.Live
				if rec.Retired != nil {
					if want = document.Superseded; rec.Retired.SupersededBy == "" {
						want = document.Forgotten
					}
				}
				if d.State != want || d.Text != rec.Text || d.Namespace != rec.Namespace || d.Ref != rec.Ref {
					t.Errorf("%s %q is %s in the index, %s in the view", id, rec.Text, d.State, want)
				}
				if live, err := Live(s, d.Namespace, d.Ref); err != nil || live != (want == document.Live) {
					t.Errorf("%s: Live says %v, %v", id, live, err)
				}
			}
			return nil
		})
	}
	follow := func() {
		a.view(func(s oplog.Snapshot) error {
			return s.Arrived(after, false, func(n uint64, e *oplog.Entry) (bool, error) {
				after = n
				docs, err := Documents(s, e)
				for _, d := range docs {
					index[d.ID] = d
				}
				return true, err
			})
		})
		check()
	}
	a.add("own", "x")
	a.add("own", "keep")
	follow()
	meet(a, b)
	a.update("own", "x", "y")
	follow()
	b.add("own", "y")
	b.later(500)
	b.update("own", "x", "z")
	b.add(Shared, "gone")
	b.forget(Shared, "gone")
	meet(a, b)
	follow()
	a.later(1000)
	a.forget("own", "y")
	follow()
	// a mark that never saw a copy which lives here
	c := newHost(t, "vps")
	a.add("own", "q")
	follow()
	c.later(9000)
	c.add("own", "q")
	c.forget("own", "q")
	meet(a, c)
	follow()
	if len(index) != 8 {
		t.Errorf("%d documents, want 8", len(index))
	}
}

// TestA2_RepeatGivesTheFirstResult: a repeated op id changes nothing and gives
// the first answer.
func TestA2_RepeatGivesTheFirstResult(t *testing.T) {
	h := newHost(t, "mac")
	h.add("own", "x")
	run := func() Outcome {
		ops, err := NewUpdate(h.author, Fact{Namespace: "own", Text: "y"}, "x")
		SetOpID(ops, "op-1")
		return h.must(ops, err)
	}
	first := run()
	again := run()
	if !again.Replayed || again.FactID != first.FactID || !slices.Equal(again.Retired, first.Retired) || len(first.Retired) != 1 {
		t.Errorf("first %+v, again %+v", first, again)
	}
	if got := h.live("own"); !slices.Equal(got, []string{"y"}) {
		t.Errorf("live %q", got)
	}
}

// TestReadsWriteNothing: no read changes a row or appends an entry (M2).
func TestReadsWriteNothing(t *testing.T) {
	h := newHost(t, "mac")
	id := h.add("own", "x")
	before, last := h.digest(), uint64(0)
	h.view(func(s oplog.Snapshot) error { last = s.LastArrival(); return nil })
	for range 200 {
		h.fact(id)
		h.live("own")
		h.merges()
	}
	h.view(func(s oplog.Snapshot) error {
		if h.digest() != before || s.LastArrival() != last {
			t.Error("reading wrote something")
		}
		return nil
	})
}
