package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"tallystick/oplog"
	"tallystick/query/imported"
	"tallystick/query/internal/viewtest"
)

// edit lets a host do something that a caller may do; refusals are fine.
func edit(t *rapid.T, h *host) {
	texts := []string{"alpha", "beta", "gamma", "delta"}
	text := rapid.SampledFrom(texts).Draw(t, "text")
	target := rapid.SampledFrom(texts).Draw(t, "target")
	ns := rapid.SampledFrom([]string{"own", Shared}).Draw(t, "ns")
	h.later(int64(rapid.IntRange(0, 3).Draw(t, "later")))
	var ops []oplog.Op
	var err error
	switch rapid.IntRange(0, 13).Draw(t, "what") {
	case 0, 1:
		ops, err = one(NewAdd(h.author, Fact{Namespace: ns, Text: text, Confidence: rapid.SampledFrom([]string{"", Verified}).Draw(t, "label")}))
	case 2:
		key := imported.Key{Source: "s", ID: text, Part: "fact"}
		ops, err = one(NewAdd(h.author, Fact{Namespace: ns, Text: target, Import: key}))
	case 3, 4, 5:
		ops, err = NewUpdate(h.author, Fact{Namespace: ns, Text: text}, target)
	case 6:
		ops, err = one(NewForget(h.author, ns, target))
	case 10:
		ops, err = one(NewAlias(h.author, ns, text, []string{target}))
	case 11:
		ops, err = one(NewLink(h.author, ns, text, target))
	case 12, 13:
		h.view(func(s oplog.Snapshot) error {
			list, _ := Aliases(s, ns, text, 0)
			from, _, _ := Links(s, ns, text, 0)
			for _, a := range list {
				ops, err = one(NewRemove(s, h.author, a.ID))
			}
			for _, l := range from {
				ops, err = one(NewRemove(s, h.author, l.ID))
			}
			return nil
		})
	case 7:
		ops, err = one(NewPin(h.author, ns, target))
	case 8:
		ops, err = one(NewUnpin(h.author, ns, target))
	case 9:
		list := h.merges()
		if len(list) == 0 {
			return
		}
		lost := list[rapid.IntRange(0, len(list)-1).Draw(t, "lost")]
		h.view(func(s oplog.Snapshot) error {
			ops, err = NewUndo(s, h.author, lost.Lost.ID)
			return nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	h.try(ops...)
}

// model decides from the set of entries alone which facts live.
func model(entries []oplog.Entry) (live map[string]bool, lost map[oplog.Ref]bool) {
	type fact struct {
		e     oplog.Entry
		b     factBody
		roots []oplog.Hash
		class byte
	}
	facts := map[oplog.Hash]*fact{}
	named := map[oplog.Hash]bool{}
	type mk struct {
		e oplog.Entry
		b markBody
	}
	var marks []mk
	for _, e := range entries {
		switch e.Kind {
		case KindFact:
			b, _ := decodeFact(e.Body)
			f := &fact{e: e, b: b, roots: b.Roots, class: 1}
			if !b.Import.IsZero() {
				f.roots, f.class = []oplog.Hash{importRoot(b.Import)}, 0
			} else if len(b.Roots) == 0 {
				f.roots, f.class = []oplog.Hash{e.Hash}, 0
			}
			facts[e.Hash] = f
			for _, h := range b.Parents {
				named[h] = true
			}
		case KindMark:
			b, _ := decodeMark(e.Body)
			if b.Action == actUpdate || b.Action == actForget {
				marks = append(marks, mk{e, b})
				for _, h := range b.Names {
					named[h] = true
				}
			}
		}
	}
	heads := map[oplog.Hash]op{}
	ops := map[oplog.Hash][]op{}
	put := func(root oplog.Hash, o op) {
		ops[root] = append(ops[root], o)
		if h, ok := heads[root]; !ok || o.beats(h) {
			heads[root] = o
		}
	}
	for h, f := range facts {
		for _, root := range f.roots {
			put(root, op{typ: typeFact, class: f.class, ref: f.e.Ref(), hash: h})
		}
	}
	for _, m := range marks {
		if m.b.Action == actForget {
			for _, root := range m.b.Roots {
				put(root, op{typ: typeForget, class: 1, ref: m.e.Ref(), hash: m.e.Hash})
			}
		}
	}
	live, lost = map[string]bool{}, map[oplog.Ref]bool{}
	for root, list := range ops {
		for _, o := range list {
			if o.hash != heads[root].hash && !named[o.hash] {
				lost[o.ref] = true
			}
		}
	}
	for h, f := range facts {
		ok := !named[h]
		for _, root := range f.roots {
			ok = ok && heads[root].hash == h
		}
		for _, m := range marks {
			if m.b.New == h || m.e.Ref().Compare(f.e.Ref()) < 0 {
				continue
			}
			for _, n := range m.b.Names {
				if g := facts[n]; g != nil && g.b.Namespace == f.b.Namespace && g.b.Text == f.b.Text {
					if ok = false; !named[h] {
						lost[f.e.Ref()] = true
					}
				}
			}
		}
		if ok {
			live[f.b.Namespace+"|"+f.b.Text+"|"+ID(h)] = true
		}
	}
	return live, lost
}

// TestM1_AnyOrderAnySplit edits on three hosts with meetings in between, then
// folds the same entries in any order whatever, and in any order that sync can
// give, in pieces of any size: always the same rows, and what lives and what
// is listed as merged is what the rules say of the set.
func TestM1_AnyOrderAnySplit(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		hosts := []*host{newHost(t, "red"), newHost(t, "green"), newHost(t, "blue")}
		defer func() {
			for _, h := range hosts {
				h.Close()
			}
		}()
		for n := rapid.IntRange(1, 30).Draw(rt, "steps"); n > 0; n-- {
			h := hosts[rapid.IntRange(0, 2).Draw(rt, "host")]
			if rapid.IntRange(0, 5).Draw(rt, "meet") == 0 {
				h.pull(hosts[rapid.IntRange(0, 2).Draw(rt, "other")], 1<<20)
				continue
			}
			edit(rt, h)
		}
		for range 2 {
			for _, a := range hosts {
				for _, b := range hosts {
					a.pull(b, rapid.SampledFrom([]int{1, 600, 1 << 20}).Draw(rt, "piece"))
				}
			}
		}
		for _, h := range hosts[1:] {
			if h.digest() != hosts[0].digest() {
				rt.Fatalf("views differ: %s and %s", hosts[0].digest(), h.digest())
			}
		}
		entries := hosts[0].Entries()
		want, err := viewtest.Fold(View{}, entries)
		if err != nil {
			rt.Fatal(err)
		}
		got, err := viewtest.Fold(View{}, rapid.Permutation(entries).Draw(rt, "order"))
		if err != nil {
			rt.Fatal(err)
		}
		if diff := viewtest.Same(want, got); diff != "" {
			rt.Fatal(diff)
		}
		live, lost := model(entries)
		checkLive(rt, hosts[0], live)
		for ref := range lost {
			if found, err := anyRow(want, key(rowMerge, ref[:])); err != nil || !found {
				rt.Fatalf("a discarded operation is not listed: %v", ref.Stamp())
			}
		}
		for k := range want {
			if k[0] == rowMerge && !lost[oplog.Ref([]byte(k[1:1+oplog.RefSize]))] {
				rt.Fatal("something is listed that was not discarded")
			}
		}
	})
}

func checkLive(rt *rapid.T, h *host, want map[string]bool) {
	got := map[string]bool{}
	h.view(func(s oplog.Snapshot) error {
		counts, err := Namespaces(s, "", 0)
		if err != nil {
			return err
		}
		for _, c := range counts {
			page, err := List(s, Filter{Namespaces: []string{c.Namespace}, Limit: MaxLimit})
			if err != nil {
				return err
			}
			if uint64(page.Count) != c.Live {
				rt.Fatalf("%s lists %d and counts %d", c.Namespace, page.Count, c.Live)
			}
			for _, f := range page.Facts {
				got[f.Namespace+"|"+f.Text+"|"+f.ID] = true
			}
			all, err := List(s, Filter{Namespaces: []string{c.Namespace}, Retired: true, Limit: MaxLimit})
			if err != nil {
				return err
			}
			if uint64(all.Count) != c.All {
				rt.Fatalf("%s lists %d of all and counts %d", c.Namespace, all.Count, c.All)
			}
		}
		return nil
	})
	if !maps.Equal(got, want) {
		rt.Fatalf("live: %v, by the rules %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

// TestM3_ConcurrentUpdates: two hosts update one fact in a partition. Both end
// with one head and one listed merge with both sides, and the undo restores
// the lost side.
func TestM3_ConcurrentUpdates(t *testing.T) {
	a, b := newHost(t, "mac"), newHost(t, "nas")
	a.add("own", "port is 1")
	meet(a, b)
	a.update("own", "port is 1", "port is 2")
	b.later(500)
	b.update("own", "port is 1", "port is 3")
	meet(a, b)
	for _, h := range []*host{a, b} {
		if got := h.live("own"); !slices.Equal(got, []string{"port is 3"}) {
			t.Errorf("%s: live %q, want the later update alone", h.author, got)
		}
		list := h.merges()
		if len(list) != 1 || list[0].Lost.Text != "port is 2" || list[0].Kept.Text != "port is 3" || list[0].Rule != RuleLatest ||
			list[0].Lost.Author != a.author || list[0].Kept.Author != b.author || list[0].Namespace != "own" {
			t.Fatalf("%s: merges %+v", h.author, list)
		}
	}
	lost := a.fact(a.merges()[0].Lost.ID)
	if lost.Retired == nil || lost.Retired.How != Overruled || lost.Retired.SupersededBy != a.merges()[0].Kept.ID {
		t.Errorf("the lost side says %+v", lost.Retired)
	}
	var ops []oplog.Op
	var err error
	a.view(func(s oplog.Snapshot) error {
		ops, err = NewUndo(s, a.author, lost.ID)
		return nil
	})
	a.later(2000)
	a.must(ops, err)
	if _, err := a.try(ops...); err == nil {
		t.Error("a merge was undone twice")
	}
	meet(a, b)
	for _, h := range []*host{a, b} {
		if got := h.live("own"); !slices.Equal(got, []string{"port is 2"}) {
			t.Errorf("%s: live %q after the undo", h.author, got)
		}
		if list := h.merges(); len(list) != 0 {
			t.Errorf("%s: still listed after the undo: %+v", h.author, list)
		}
	}
}

// TestM3_LatestRevisionWins: the head is the latest revision, although the
// fork it comes from is the older one.
func TestM3_LatestRevisionWins(t *testing.T) {
	a, b := newHost(t, "mac"), newHost(t, "nas")
	a.add("own", "v1")
	meet(a, b)
	a.update("own", "v1", "v2 of mac")
	b.later(500)
	b.update("own", "v1", "v2 of nas")
	a.later(1000)
	a.update("own", "v2 of mac", "v3 of mac")
	meet(a, b)
	for _, h := range []*host{a, b} {
		if got := h.live("own"); !slices.Equal(got, []string{"v3 of mac"}) {
			t.Errorf("%s: live %q", h.author, got)
		}
		if list := h.merges(); len(list) != 1 || list[0].Lost.Text != "v2 of nas" || list[0].Kept.Text != "v3 of mac" {
			t.Errorf("%s: merges %+v", h.author, list)
		}
	}
}

func TestM3_ForgetAgainstUpdate(t *testing.T) {
	for _, forgetLater := range []bool{true, false} {
		t.Run(fmt.Sprint("forgetLater=", forgetLater), func(t *testing.T) {
			a, b := newHost(t, "mac"), newHost(t, "nas")
			a.add("own", "x")
			meet(a, b)
			if forgetLater {
				b.later(500)
			} else {
				a.later(500)
			}
			a.update("own", "x", "y")
			b.forget("own", "x")
			meet(a, b)
			want := []string{"y"}
			if forgetLater {
				want = nil
			}
			for _, h := range []*host{a, b} {
				if got := h.live("own"); !slices.Equal(got, want) {
					t.Fatalf("live %q, want %q", got, want)
				}
				list := h.merges()
				if len(list) != 1 || (list[0].Lost.Op == "fact") != forgetLater || (list[0].Kept.Op == "forget") != forgetLater || list[0].Namespace != "own" {
					t.Fatalf("merges %+v", list)
				}
			}
			var ops []oplog.Op
			var err error
			b.view(func(s oplog.Snapshot) error {
				ops, err = NewUndo(s, b.author, b.merges()[0].Lost.ID)
				return nil
			})
			b.later(5000)
			b.must(ops, err)
			meet(a, b)
			if got := a.live("own"); (len(got) == 1) != forgetLater {
				t.Errorf("live %q after the undo", got)
			}
			if list := a.merges(); len(list) != 0 {
				t.Errorf("still listed: %+v", list)
			}
		})
	}
}

// TestM3_LateCopyStaysHidden: a tombstone beats an older write of the same
// text that it never saw; the copy is listed and can be brought back.
func TestM3_LateCopyStaysHidden(t *testing.T) {
	for _, update := range []bool{false, true} {
		a, b := newHost(t, "mac"), newHost(t, "nas")
		a.add("own", "x")
		b.add("own", "x")
		a.later(500)
		if update {
			a.update("own", "x", "y")
		} else {
			a.forget("own", "x")
		}
		meet(a, b)
		for _, h := range []*host{a, b} {
			if got := h.live("own"); slices.Contains(got, "x") {
				t.Errorf("update=%v: a late copy lives: %q", update, got)
			}
			list := h.merges()
			if len(list) != 1 || list[0].Rule != RuleLate || list[0].Lost.Text != "x" || list[0].Lost.Author != b.author {
				t.Fatalf("update=%v: merges %+v", update, list)
			}
			if rec := h.fact(list[0].Lost.ID); rec.Retired == nil || rec.Retired.How != Late || (rec.Retired.SupersededBy != "") != update {
				t.Errorf("update=%v: %+v", update, rec.Retired)
			}
		}
		var ops []oplog.Op
		var err error
		b.view(func(s oplog.Snapshot) error {
			ops, err = NewUndo(s, b.author, b.merges()[0].Lost.ID)
			return nil
		})
		b.later(5000)
		b.must(ops, err)
		meet(a, b)
		if got := a.live("own"); !slices.Contains(got, "x") || len(a.merges()) != 0 {
			t.Errorf("update=%v: live %q after the undo, merges %+v", update, got, a.merges())
		}
	}
}

// TestForgetRacingSync: while one host forgets, others write, search and sync
// at once. No acknowledged forget is ever undone: the published fault of a
// store whose reads write back whole records.
func TestForgetRacingSync(t *testing.T) {
	a, b := newHost(t, "mac"), newHost(t, "nas")
	const n = 200
	for i := range n {
		a.add("own", fmt.Sprint("fact ", i))
	}
	b.pull(a, 1<<20)
	done := make(chan error, 2)
	go func() {
		for i := range n {
			op, err := NewForget(a.author, "own", fmt.Sprint("fact ", i))
			if err == nil {
				_, err = a.Append(context.Background(), op)
			}
			if err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	go func() {
		for range n {
			err := b.View(func(s oplog.Snapshot) error {
				_, err := List(s, Filter{Namespaces: []string{"own"}, Limit: 8})
				return err
			})
			for _, o := range a.Origins() {
				rg, err := a.ReadRange(o.ID, b.Frontier().Seq(o.ID), 4096)
				if err == nil && rg.Count > 0 {
					_, err = b.Ingest(context.Background(), rg)
				}
				if err != nil {
					done <- err
					return
				}
			}
			if err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for range 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	meet(a, b)
	for _, h := range []*host{a, b} {
		if got := h.live("own"); len(got) != 0 {
			t.Errorf("%s: %d forgotten facts live, e.g. %q", h.author, len(got), got[0])
		}
	}
}

// TestImportedRows: rows of one key are one fact, the earliest counts, and a
// forget holds against importing again.
func TestImportedRows(t *testing.T) {
	a, b, c := newHost(t, "mac"), newHost(t, "nas"), newHost(t, "vps")
	row := func(h *host, text string) {
		h.must(one(NewAdd(h.author, Fact{Namespace: "own", Text: text, Import: imported.Key{Source: "s", ID: "1", Part: "fact"}})))
	}
	row(a, "x")
	b.later(100)
	row(b, "x changed")
	meet(a, b)
	if got := b.live("own"); !slices.Equal(got, []string{"x"}) {
		t.Fatalf("live %q, want the earliest", got)
	}
	if list := b.merges(); len(list) != 1 || list[0].Rule != RuleImport || list[0].Lost.Text != "x changed" {
		t.Fatalf("merges %+v", list)
	}
	a.later(1000)
	a.forget("own", "x")
	c.later(5000)
	row(c, "x")
	meet(a, c)
	if got := c.live("own"); len(got) != 0 {
		t.Errorf("a forgotten row came back by importing it again: %q", got)
	}
	a.view(func(s oplog.Snapshot) error {
		id, ok, err := Imported(s, imported.Key{Source: "s", ID: "1", Part: "fact"})
		if !ok || id == "" {
			t.Errorf("the import key is not known: %q %v", id, ok)
		}
		return err
	})
}
