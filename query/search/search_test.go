package search_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"tallystick/query/document"
	"tallystick/query/refusal"
	"tallystick/query/search"
)

func index(t testing.TB, docs ...search.Document) *search.Index {
	t.Helper()
	x, err := search.Open(t.Context(), search.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	if err := x.Put(t.Context(), docs...); err != nil {
		t.Fatal(err)
	}
	return x
}

func find(t testing.TB, x *search.Index, q search.Query) search.Result {
	t.Helper()
	res, err := x.Search(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func ids(r search.Result) string {
	var out []string
	for _, h := range r.Hits {
		out = append(out, h.ID)
	}
	return strings.Join(out, " ")
}

func note(id, text string) search.Document { return search.Document{ID: id, Kind: "note", Text: text} }

func TestSearch_AnyWordWillDo(t *testing.T) {
	x := index(t,
		note("a", "The daemon retries the upload three times"),
		note("b", "Uploads are retried by the daemon, then parked"),
		note("c", "Breakfast is served at eight"),
	)
	res := find(t, x, search.Query{Text: "why does the daemon retry an upload forever"})
	if got := ids(res); got != "a b" && got != "b a" {
		t.Fatalf("hits %q", got)
	}
	if !slices.Equal(res.Missing, []string{"forever"}) || res.Fuzzy {
		t.Errorf("missing %v fuzzy %v", res.Missing, res.Fuzzy)
	}
	if w := res.Hits[0].Why.Words; !slices.Equal(w, []string{"daemon", "retry", "upload"}) {
		t.Errorf("why %v", w)
	}
}

func TestSearch_IdentifiersInAnySpelling(t *testing.T) {
	x := index(t,
		note("camel", "queryContext is cancelled too early"),
		note("snake", "see query_context in the old client"),
		note("apart", "the query runs without a context"),
		note("path", "fixed in internal/rpc/server_conn.go:228"),
		note("version", "regression since v1.38.2 of the driver"),
		note("sha", "merged as 3c5b7414e2a90f31d2c0aa71bb9e5c6d7e8f9a0b yesterday"),
		note("issue", "same as bd-9063acda, see there"),
	)
	for _, c := range []struct{ text, want string }{
		{"queryContext", "camel snake apart"},
		{"QUERY_CONTEXT", "camel snake apart"},
		{"query-context", "camel snake apart"},
		{"server_conn.go", "path"},
		{"internal/rpc/server_conn.go", "path"},
		{"1.38.2", "version"},
		{"v1.38.2", "version"},
		{"3c5b7414", "sha"},
		{"bd-9063acda", "issue"},
		{"9063acda", "issue"},
	} {
		got := strings.Fields(ids(find(t, x, search.Query{Text: c.text})))
		want := strings.Fields(c.want)
		if len(want) == 3 {
			// The two that hold the identifier come before the one that holds
			// its parts.
			if len(got) != 3 || got[2] != "apart" {
				t.Errorf("%q: %v", c.text, got)
			}
			continue
		}
		if len(got) == 0 || got[0] != c.want {
			t.Errorf("%q: %v, want %s first", c.text, got, c.want)
		}
	}
	res := find(t, x, search.Query{Text: "query_context"})
	if w := res.Hits[0].Why.Identifiers; !slices.Equal(w, []string{"query_context"}) {
		t.Errorf("why %v", w)
	}
}

func TestSearch_PhraseBeatsTheSameWordsApart(t *testing.T) {
	x := index(t,
		note("apart", "the merge failed because the queue was blamed on one processor"),
		note("together", "this merge queue failed and was blamed on the processor"),
	)
	for _, text := range []string{"merge queue", `"merge queue"`} {
		res := find(t, x, search.Query{Text: text})
		if got := ids(res); got != "together apart" {
			t.Errorf("%s: %q", text, got)
		}
		if res.Hits[0].Why.ByPhrase <= 0 {
			t.Errorf("%s: no phrase in %+v", text, res.Hits[0].Why)
		}
	}
}

func TestSearch_ContextOfASession(t *testing.T) {
	turn := func(id, session, text string, at int64) search.Document {
		return search.Document{ID: id, Kind: "turn", Session: session, Text: text, Time: at}
	}
	docs := []search.Document{
		turn("q", "s1", "Where do we sail on our summer holiday?", 1),
		turn("a", "s1", "To the islands, all in one week", 2),
		turn("other", "s2", "The islands report is due in one week", 3),
		turn("far", "s2", "Nothing to see", 4),
	}
	for i := range 20 {
		docs = append(docs, turn(fmt.Sprint("n", i), fmt.Sprint("t", i), "Unrelated talk about plumbing", int64(10+i)))
	}
	x := index(t, docs...)
	res := find(t, x, search.Query{Text: "which islands on the sailing holiday"})
	if got := strings.Fields(ids(res)); len(got) < 3 || got[0] != "q" || got[1] != "a" || got[2] != "other" {
		t.Fatalf("order %v", got)
	}
	if res.Hits[1].Why.ByContext <= res.Hits[2].Why.ByContext {
		t.Errorf("context of the answer %v, of the stranger %v", res.Hits[1].Why.ByContext, res.Hits[2].Why.ByContext)
	}
	// An answer without a word of the question comes in beside its question.
	res = find(t, x, search.Query{Text: "where did they sail"})
	if got := strings.Fields(ids(res)); len(got) != 2 || got[1] != "a" {
		t.Errorf("neighbour not found: %v", got)
	}
}

func TestSearch_SupersededAndForgottenStayOut(t *testing.T) {
	old, gone := note("old", "the port is 7000"), note("gone", "the port is secret")
	old.State, gone.State = document.Superseded, document.Forgotten
	x := index(t, note("new", "the port is 7717"), old, gone)
	for _, c := range []struct {
		f    search.Filter
		want []string
	}{
		{search.Filter{}, []string{"new"}},
		{search.Filter{IncludeSuperseded: true}, []string{"new", "old"}},
		{search.Filter{IncludeForgotten: true}, []string{"gone", "new"}},
	} {
		got := strings.Fields(ids(find(t, x, search.Query{Text: "port", Filter: c.f})))
		if slices.Sort(got); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, want %v", c.f, got, c.want)
		}
	}
	// A state alone changes without the text, and back.
	if err := x.Put(t.Context(), search.Document{ID: "new", State: document.Forgotten}); err != nil {
		t.Fatal(err)
	}
	if got := ids(find(t, x, search.Query{Text: "7717"})); got != "" {
		t.Errorf("forgotten is found: %q", got)
	}
}

func TestSearch_FiltersAreWholeAndExact(t *testing.T) {
	at := func(s string) int64 {
		tm, err := search.ParseTime("t", s)
		if err != nil {
			t.Fatal(err)
		}
		return tm.UnixMilli()
	}
	a := search.Document{ID: "a", Kind: "memory", Namespace: "h:a:p", Category: "bugfix", Identities: []string{"@ann", "bo"}, Text: "cache", Time: at("2026-01-01"), Confidence: search.Verified}
	b := search.Document{ID: "b", Kind: "summary", Namespace: "__shared__", Category: "other", Identities: []string{"an"}, Text: "cache", Time: at("2026-02-01"), Confidence: search.Unverified, Session: "s"}
	x := index(t, a, b)
	day := func(s string) time.Time { return time.UnixMilli(at(s)) }
	for _, c := range []struct {
		name string
		f    search.Filter
		want string
	}{
		{"kind", search.Filter{Kinds: []string{"memory"}}, "a"},
		{"namespace", search.Filter{Namespaces: []string{"__shared__"}}, "b"},
		{"two namespaces", search.Filter{Namespaces: []string{"__shared__", "h:a:p"}}, "b a"},
		{"category", search.Filter{Categories: []string{"bugfix"}}, "a"},
		{"identity", search.Filter{Identities: []string{"ann"}}, "a"},
		{"identity with @", search.Filter{Identities: []string{"@bo"}}, "a"},
		{"no substring", search.Filter{Identities: []string{"nn"}}, ""},
		{"case", search.Filter{Identities: []string{"Ann"}}, ""},
		{"unknown", search.Filter{Namespaces: []string{"nobody"}}, ""},
		{"empty list", search.Filter{Kinds: []string{}}, ""},
		{"session", search.Filter{Sessions: []string{"s"}}, "b"},
		{"after", search.Filter{After: day("2026-02-01")}, "b"},
		{"before", search.Filter{Before: day("2026-02-01")}, "a"},
		{"confidence", search.Filter{MinConfidence: search.Inferred}, "a"},
		{"both", search.Filter{Kinds: []string{"memory"}, Identities: []string{"an"}}, ""},
	} {
		if got := ids(find(t, x, search.Query{Text: "cache", Filter: c.f})); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// What a filter hides has no influence: scores and terms are those of an index
// that never held it.
func TestSearch_HiddenDocumentsInfluenceNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	words := strings.Fields("alpha beta gamma delta epsilon zeta theta kappa lambda sigma counsel counselor photo photograph")
	var seen, hidden []search.Document
	for i := range 120 {
		var text []string
		for range 3 + rng.IntN(12) {
			text = append(text, words[rng.IntN(len(words))])
		}
		d := search.Document{ID: fmt.Sprint("d", i), Kind: "k", Namespace: "mine", Text: strings.Join(text, " "), Time: int64(i), Session: fmt.Sprint("s", i%7), Confidence: search.Verified}
		if i%3 == 0 {
			switch i % 4 {
			case 0:
				d.Namespace = "yours"
			case 1:
				d.Confidence = search.Unverified
			case 2:
				d.State = document.Superseded
			default:
				d.Time = 5000
			}
			hidden = append(hidden, d)
			continue
		}
		seen = append(seen, d)
	}
	f := search.Filter{Namespaces: []string{"mine"}, MinConfidence: search.Inferred, Before: time.UnixMilli(1000)}
	with, without := index(t, append(slices.Clone(hidden), seen...)...), index(t, seen...)
	for _, q := range []string{"alpha beta", "counsel", "photo sigma delta", "gama", `"zeta theta"`} {
		a := find(t, with, search.Query{Text: q, Filter: f, Limit: 50})
		b := find(t, without, search.Query{Text: q, Filter: f, Limit: 50})
		if fmt.Sprint(a.Hits) != fmt.Sprint(b.Hits) || a.Matched != b.Matched || fmt.Sprint(a.Missing) != fmt.Sprint(b.Missing) {
			t.Errorf("%s: hidden documents change the answer\n%v\n%v", q, a, b)
		}
	}
}

// The same documents in any order, and after any detours, give the same
// answers on every replica.
func TestM1_AnswersDoNotDependOnArrival(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	words := strings.Fields("store log entry frontier claim lease peer stream queryContext retry_budget v1.2.3 clock drift merge")
	var docs []search.Document
	for i := range 150 {
		var text []string
		for range 2 + rng.IntN(20) {
			text = append(text, words[rng.IntN(len(words))])
		}
		docs = append(docs, search.Document{
			ID: fmt.Sprintf("d%03d", i), Kind: "note", Title: words[i%len(words)], Text: strings.Join(text, " "),
			Session: []string{"", "s1", "s2", "s3"}[i%4], Time: int64(i / 3),
		})
	}
	queries := []string{"claim lease", "queryContext", "clock drift of a peer", "v1.2.3 merge", "retries", "store"}
	answers := func(x *search.Index) string {
		var b strings.Builder
		for _, q := range queries {
			for _, h := range find(t, x, search.Query{Text: q, Limit: 100}).Hits {
				fmt.Fprintf(&b, "%s %.9f %s\n", h.ID, h.Score, h.Why)
			}
		}
		return b.String()
	}
	want := answers(index(t, docs...))
	for range 5 {
		shuffled := slices.Clone(docs)
		rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		x := index(t)
		for len(shuffled) > 0 {
			n := min(1+rng.IntN(40), len(shuffled))
			for _, d := range shuffled[:n] {
				if rng.IntN(4) == 0 { // another text and state first
					o := d
					o.Text, o.State = "something else about claims", document.Superseded
					if err := x.Put(t.Context(), o, d, o, d); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := x.Put(t.Context(), shuffled[:n]...); err != nil {
				t.Fatal(err)
			}
			shuffled = shuffled[n:]
		}
		if got := answers(x); got != want {
			t.Fatal("answers depend on the order of arrival")
		}
	}
}

func TestSearch_NothingFoundFallsBackToSpelling(t *testing.T) {
	x := index(t, note("a", "the reconciliation of frontiers"), note("b", "querycontext was nil"), note("c", "lunch"))
	for _, c := range []struct{ text, want, found string }{
		{"reconcilliation", "a", ""},
		{"fronteirs", "a", ""},
		{"erycontex", "b", "querycontext"},
	} {
		res := find(t, x, search.Query{Text: c.text})
		if ids(res) != c.want || !res.Fuzzy || len(res.Notes) == 0 || len(res.Missing) != 1 {
			t.Errorf("%s: %q fuzzy %v notes %v", c.text, ids(res), res.Fuzzy, res.Notes)
			continue
		}
		if w := res.Hits[0].Why; len(w.Spelt) != 1 || w.Spelt[0].Asked != c.text || c.found != "" && w.Spelt[0].Found != c.found {
			t.Errorf("%s: why %+v", c.text, w)
		}
	}
	if res := find(t, x, search.Query{Text: "zzzzzz"}); len(res.Hits) != 0 || res.Fuzzy {
		t.Errorf("nonsense found %q", ids(res))
	}
	if res := find(t, x, search.Query{Text: "who are you"}); len(res.Hits) != 0 || len(res.Notes) == 0 {
		t.Errorf("common words: %q %v", ids(res), res.Notes)
	}
}

func TestSearch_PagesAreOneOrder(t *testing.T) {
	var docs []search.Document
	for i := range 700 {
		docs = append(docs, note(fmt.Sprintf("d%03d", i), "page order "+strings.Repeat("x ", i%9)+"order page"))
	}
	x := index(t, docs...)
	var all, paged []string
	for off := 0; off < 700; off += 500 {
		for _, h := range find(t, x, search.Query{Text: "page order", Limit: 500, Offset: off}).Hits {
			all = append(all, h.ID)
		}
	}
	for off := 0; ; {
		res := find(t, x, search.Query{Text: "page order", Limit: 37, Offset: off})
		for _, h := range res.Hits {
			paged = append(paged, h.ID)
		}
		off += len(res.Hits)
		if !res.More {
			break
		}
	}
	if len(all) != 700 || !slices.Equal(all, paged) {
		t.Fatalf("%d in one go, %d by pages, equal %v", len(all), len(paged), slices.Equal(all, paged))
	}
}

func TestSearch_CollapseShowsEqualTextOnce(t *testing.T) {
	var docs []search.Document
	for i := range 300 {
		docs = append(docs, note(fmt.Sprintf("c%03d", i), "deploy on Tuesdays"))
	}
	docs = append(docs, note("z", "never deploy on the last of the Tuesdays in a month without a review by somebody"))
	x := index(t, docs...)
	if got := ids(find(t, x, search.Query{Text: "deploy tuesdays", Collapse: true, Limit: 2})); got != "c000 z" {
		t.Errorf("collapsed %q", got)
	}
}

func TestA4_LimitsAreNamed(t *testing.T) {
	x := index(t, note("a", "text"))
	many := make([]string, search.MaxFilterValues+1)
	for _, c := range []struct {
		name, field string
		q           search.Query
	}{
		{"empty", "query", search.Query{}},
		{"blank", "query", search.Query{Text: " \t\n"}},
		{"long", "query", search.Query{Text: strings.Repeat("a", search.MaxQuery+1)}},
		{"limit", "limit", search.Query{Text: "a", Limit: search.MaxLimit + 1}},
		{"negative limit", "limit", search.Query{Text: "a", Limit: -1}},
		{"offset", "offset", search.Query{Text: "a", Offset: 1 << 40}},
		{"negative offset", "offset", search.Query{Text: "a", Offset: -1}},
		{"weight", "confidence_weight", search.Query{Text: "a", ConfidenceWeight: 0.6}},
		{"values", "namespaces", search.Query{Text: "a", Filter: search.Filter{Namespaces: many}}},
		{"times", "before", search.Query{Text: "a", Filter: search.Filter{After: time.Unix(2, 0), Before: time.Unix(1, 0)}}},
		{"confidence", "min_confidence", search.Query{Text: "a", Filter: search.Filter{MinConfidence: 9}}},
	} {
		_, err := x.Search(t.Context(), c.q)
		if e, ok := err.(*refusal.Error); !ok || e.Field != c.field || e.Hint == "" {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := search.ParseTime("since", "yesterday"); refusal.CodeOf(err) != refusal.InvalidArgument {
		t.Errorf("time: %v", err)
	}
	if _, _, err := x.SearchAll(t.Context(), make([]search.Query, search.MaxBatch+1)); refusal.CodeOf(err) != refusal.TooLarge {
		t.Errorf("batch: %v", err)
	}
	// Many words: the rarest are used, and the answer says so.
	var b strings.Builder
	for i := range 1500 {
		fmt.Fprintf(&b, "w%d ", i)
	}
	big := index(t, note("a", b.String()), note("b", "w7"))
	res := find(t, big, search.Query{Text: b.String()[:7000]})
	if len(res.Notes) != 2 || len(res.Hits) == 0 {
		t.Errorf("notes %v", res.Notes)
	}
}

func TestSearchAllAndMerge(t *testing.T) {
	x := index(t, note("a", "red apple"), note("b", "green apple"), note("c", "green pear"))
	res, errs, err := x.SearchAll(t.Context(), []search.Query{{Text: "apple"}, {Text: ""}, {Text: "green"}})
	if err != nil || errs[0] != nil || errs[2] != nil || refusal.CodeOf(errs[1]) != refusal.InvalidArgument {
		t.Fatalf("%v %v", errs, err)
	}
	merged := search.Merge(res...)
	if len(merged) != 3 || merged[0].ID != "b" {
		t.Errorf("merged %v", merged)
	}
}

func TestSearch_ConfidenceWeight(t *testing.T) {
	a, b := note("a", "the limit is ten"), note("b", "the limit is ten or so, said somebody")
	b.Confidence = search.Verified
	x := index(t, a, b)
	if got := ids(find(t, x, search.Query{Text: "limit ten"})); got != "a b" {
		t.Errorf("without weight %q", got)
	}
	if got := ids(find(t, x, search.Query{Text: "limit ten", ConfidenceWeight: 0.5})); got != "b a" {
		t.Errorf("with weight %q", got)
	}
}
