package retrieval_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tallystick/internal/retrieval"
)

// ahead wants ours to find at least what the best naive way finds, on all
// questions and on the other half.
func ahead(t *testing.T, c *retrieval.Corpus, recall10, mrr float64) {
	t.Helper()
	finders, err := retrieval.Finders(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for _, half := range []struct {
		name string
		pass func(retrieval.Question) bool
	}{
		{"all", func(retrieval.Question) bool { return true }},
		{"other half", func(q retrieval.Question) bool { return !q.FirstHalf() }},
	} {
		ours, err := retrieval.Measure(c, finders[len(finders)-1], half.pass)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range finders[:len(finders)-1] {
			s, err := retrieval.Measure(c, f, half.pass)
			if err != nil {
				t.Fatal(err)
			}
			if s.Recall5 > ours.Recall5 || s.Recall10 > ours.Recall10 {
				t.Errorf("%s, %s: %s finds %.3f %.3f, ours %.3f %.3f", c.Name, half.name, f.Name(), s.Recall5, s.Recall10, ours.Recall5, ours.Recall10)
			}
		}
		if half.name == "all" && (ours.Recall10 < recall10 || ours.MRR < mrr) {
			t.Errorf("%s: recall@10 %.3f MRR %.3f, were at least %.3f %.3f", c.Name, ours.Recall10, ours.MRR, recall10, mrr)
		}
	}
}

func TestFixture_AheadOfNaiveSearch(t *testing.T) {
	ahead(t, retrieval.Fixture(), 0.92, 0.68)
}

// TestConversations_AheadOfNaiveSearch: questions about what people told each
// other, against BM25, BM25 with session context, and both kinds of feedback.
func TestConversations_AheadOfNaiveSearch(t *testing.T) {
	c := retrieval.Conversations()
	if len(c.Docs) < 1500 || len(c.Questions) < 700 {
		t.Fatalf("%d documents, %d questions", len(c.Docs), len(c.Questions))
	}
	ahead(t, c, 0.62, 0.52)
}

// TestTable: the bench prints a row for each kind of question and each half,
// and a cell for each way of searching.
func TestTable(t *testing.T) {
	for _, c := range []*retrieval.Corpus{retrieval.Fixture(), retrieval.Conversations()} {
		finders, err := retrieval.Finders(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := retrieval.Table(&out, c, finders); err != nil {
			t.Fatal(err)
		}
		t.Log("\n" + out.String())
		want := []string{"recall@5 recall@10 MRR", "all (", "one half (", "other half ("}
		for _, f := range finders {
			want = append(want, f.Name())
		}
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("the table lacks %q:\n%s", w, &out)
			}
		}
	}
}

func TestFixture_ExpectsWhatIsThere(t *testing.T) {
	c := retrieval.Fixture()
	if len(c.Docs) < 70 || len(c.Questions) < 40 {
		t.Fatalf("%d documents, %d questions", len(c.Docs), len(c.Questions))
	}
	for _, q := range c.Questions {
		for _, id := range q.Expect {
			if c.Record[id] == "" {
				t.Errorf("%q expects %s, which is not there", q.Text, id)
			}
		}
	}
}

func TestBeads_AheadOfNaiveSearch(t *testing.T) {
	path := filepath.Join("..", "..", "..", "shared", "data", "agent-work.beads.jsonl")
	c, err := retrieval.LoadBeads(path)
	if os.IsNotExist(err) {
		t.Logf("%s is not here: only the fixture is measured", path)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Questions) != 200 {
		t.Errorf("%d questions, want 200", len(c.Questions))
	}
	known := map[string]bool{}
	for _, r := range c.Record {
		known[r] = true
	}
	byCategory := map[string]int{}
	for _, q := range c.Questions {
		byCategory[q.Category]++
		if !slices.ContainsFunc(q.Expect, func(id string) bool { return known[id] }) {
			t.Errorf("%q expects %v, none of which is there", q.Text, q.Expect)
		}
	}
	for _, cat := range []string{"identifiers", "decisions", "superseded facts", "cross-agent notes"} {
		if byCategory[cat] != 50 {
			t.Errorf("%d questions about %s", byCategory[cat], cat)
		}
	}
	ahead(t, c, 0.95, 0.85)
}

func ExampleMeasure() {
	c := &retrieval.Corpus{Record: map[string]string{}}
	f := retrieval.NewSubstring(c)
	c.Questions = []retrieval.Question{{Category: "c", Text: "anything", Expect: []string{"a"}}}
	s, err := retrieval.Measure(c, f, func(retrieval.Question) bool { return true })
	fmt.Println(s.Recall10, s.MRR, err)
	// Output: 0 0 <nil>
}
