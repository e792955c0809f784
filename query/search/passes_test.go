package search_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"tallystick/query/document"
	"tallystick/query/search"
)

// TestM1_RememberedFiltersChangeNoAnswer: what is remembered of a filter from
// one search to the next gives the scores that an index gives which remembers
// nothing, after documents were added, replaced, superseded and erased.
func TestM1_RememberedFiltersChangeNoAnswer(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	words := []string{"parser", "queue", "mesh", "clock"}
	make1 := func(i int) search.Document {
		text := ""
		for range 3 + r.IntN(8) {
			text += words[r.IntN(len(words))] + " "
		}
		return search.Document{
			ID: fmt.Sprint("d", i), Kind: []string{"fact", "turn"}[r.IntN(2)], Namespace: fmt.Sprint("n", r.IntN(3)), Session: fmt.Sprint("s", r.IntN(50)),
			Text: text + fmt.Sprint("word", r.IntN(900)), Time: int64(i), Identities: []string{fmt.Sprint("mac:a", r.IntN(2), ":p")},
		}
	}
	now := map[string]search.Document{}
	var order []string
	put := func(x *search.Index, d search.Document) {
		if err := x.Put(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if _, ok := now[d.ID]; !ok {
			order = append(order, d.ID)
		}
		now[d.ID] = d
	}
	x := index(t)
	var docs []search.Document
	for i := range 5000 {
		d := make1(i)
		docs, now[d.ID], order = append(docs, d), d, append(order, d.ID)
	}
	if err := x.Put(t.Context(), docs...); err != nil {
		t.Fatal(err)
	}
	filters := []search.Filter{
		{Kinds: []string{"turn"}}, {Kinds: []string{"fact", "turn"}, Namespaces: []string{"n0", "n1"}}, {Identities: []string{"@mac:a1:p"}},
		{Kinds: []string{"turn"}, IncludeSuperseded: true}, {Namespaces: []string{"n2"}, Sessions: []string{"s1"}},
	}
	ask := func(x *search.Index, f search.Filter, text string) string {
		res := find(t, x, search.Query{Text: text, Filter: f, Limit: 20})
		out := fmt.Sprint(res.Matched, res.Missing)
		for _, h := range res.Hits {
			out += fmt.Sprintf(" %s=%.9g", h.ID, h.Score)
		}
		return out
	}
	for round := range 6 {
		for range 40 {
			what := 0 // every other round only adds
			if round%2 == 0 {
				what = r.IntN(4)
			}
			switch d := now[order[r.IntN(len(order))]]; what {
			case 0:
				put(x, make1(len(order)))
			case 1:
				d.Text += " rewritten"
				put(x, d)
			case 2:
				d.State = document.Superseded
				put(x, d)
			case 3:
				d.State = document.Forgotten
				put(x, d)
			}
		}
		fresh := index(t)
		var all []search.Document
		for _, id := range order {
			all = append(all, now[id])
		}
		if err := fresh.Put(t.Context(), all...); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for _, f := range filters {
			for q := range 3 {
				text := words[q%len(words)] + " " + words[(q+1)%len(words)] + fmt.Sprint(" word", 7*q)
				wg.Go(func() {
					if got, want := ask(x, f, text), ask(fresh, f, text); got != want {
						t.Errorf("round %d, %+v, %q:\n%s\nwant\n%s", round, f, text, got, want)
					}
				})
			}
		}
		wg.Wait()
	}
}
