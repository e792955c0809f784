package retrieval

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"text/tabwriter"

	"tallystick/query/search"
)

// Question is a text to look for and the records that answer it.
type Question struct {
	Category string
	Text     string
	Expect   []string // ids of records, any of whose documents will do
	// Group holds questions of one making together in one half.
	Group string
}

// FirstHalf reports which half of its corpus a question belongs to, by a hash
// of its text or group. Neither half is unseen: weights were chosen from sweeps
// that showed both.
func (q Question) FirstHalf() bool {
	h := fnv.New32a()
	if q.Group != "" {
		io.WriteString(h, q.Group)
	} else {
		io.WriteString(h, q.Text)
	}
	return h.Sum32()%2 == 0
}

// Corpus is documents and questions about them. Record names the record a
// document belongs to.
type Corpus struct {
	Name      string
	Docs      []search.Document
	Record    map[string]string // document id -> record id
	Questions []Question
}

// Finder is a way of searching: the ids of documents, best first.
type Finder interface {
	Name() string
	Find(text string, k int) ([]string, error)
}

// Score is what a Finder reached over some questions.
type Score struct {
	Questions         int
	Recall5, Recall10 float64
	MRR               float64
	Missed            []Question // nothing expected among the first ten
}

func (s *Score) add(q Question, records []string) {
	s.Questions++
	at := func(k int) float64 {
		found := 0
		for _, e := range q.Expect {
			if slices.Contains(records[:min(k, len(records))], e) {
				found++
			}
		}
		return float64(found) / float64(len(q.Expect))
	}
	s.Recall5 += at(5)
	s.Recall10 += at(10)
	for i, r := range records {
		if i < 10 && slices.Contains(q.Expect, r) {
			s.MRR += 1 / float64(i+1)
			return
		}
	}
	s.Missed = append(s.Missed, q)
}

func (s *Score) mean() {
	if n := float64(s.Questions); n > 0 {
		s.Recall5, s.Recall10, s.MRR = s.Recall5/n, s.Recall10/n, s.MRR/n
	}
}

// Measure asks the questions that pass and scores the answers.
func Measure(c *Corpus, f Finder, pass func(Question) bool) (Score, error) {
	answers, err := answer(c, f, pass)
	return score(answers, pass), err
}

// answered is a question and the records that a Finder gave, best first.
type answered struct {
	Question
	records []string
}

func answer(c *Corpus, f Finder, pass func(Question) bool) (out []answered, _ error) {
	for _, q := range c.Questions {
		if !pass(q) {
			continue
		}
		ids, err := f.Find(q.Text, 60)
		if err != nil {
			return nil, fmt.Errorf("%s: %q: %w", f.Name(), q.Text, err)
		}
		a := answered{Question: q}
		for _, id := range ids {
			if r := c.Record[id]; !slices.Contains(a.records, r) {
				a.records = append(a.records, r)
			}
		}
		out = append(out, a)
	}
	return out, nil
}

func score(list []answered, pass func(Question) bool) (s Score) {
	for _, a := range list {
		if pass(a.Question) {
			s.add(a.Question, a.records)
		}
	}
	s.mean()
	return s
}

// Ours is a Finder over this project's index.
type Ours struct {
	Label   string
	Index   *search.Index
	Ranking *search.Ranking
}

// NewOurs indexes a corpus in memory.
func NewOurs(ctx context.Context, c *Corpus) (*Ours, error) {
	x, err := search.Open(ctx, search.Config{})
	if err != nil {
		return nil, err
	}
	if err := x.Put(ctx, c.Docs...); err != nil {
		return nil, err
	}
	return &Ours{Label: "ours", Index: x}, nil
}

// Name is the label.
func (o *Ours) Name() string { return o.Label }

// Find asks the index.
func (o *Ours) Find(text string, k int) ([]string, error) {
	res, err := o.Index.Search(context.Background(), search.Query{Text: text, Limit: k, Ranking: o.Ranking})
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(res.Hits))
	for i, h := range res.Hits {
		ids[i] = h.ID
	}
	return ids, nil
}

// Table measures all finders and prints a table: all questions by category,
// then both halves.
func Table(w io.Writer, c *Corpus, finders []Finder) error {
	var categories []string
	for _, q := range c.Questions {
		if !slices.Contains(categories, q.Category) {
			categories = append(categories, q.Category)
		}
	}
	fmt.Fprintf(w, "%s: %d documents, %d questions\n", c.Name, len(c.Docs), len(c.Questions))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "questions\t")
	for _, f := range finders {
		fmt.Fprintf(t, "%s\t", f.Name())
	}
	fmt.Fprintln(t)
	all := make([][]answered, len(finders))
	for i, f := range finders {
		var err error
		if all[i], err = answer(c, f, func(Question) bool { return true }); err != nil {
			return err
		}
	}
	row := func(name string, pass func(Question) bool) {
		var scores []Score
		for _, answers := range all {
			scores = append(scores, score(answers, pass))
		}
		fmt.Fprintf(t, "%s (%d)\t", name, scores[0].Questions)
		for _, s := range scores {
			fmt.Fprintf(t, "%.3f %.3f %.3f\t", s.Recall5, s.Recall10, s.MRR)
		}
		fmt.Fprintln(t)
	}
	for _, cat := range categories {
		row(cat, func(q Question) bool { return q.Category == cat })
	}
	for _, part := range []struct {
		name string
		pass func(Question) bool
	}{
		{"all", func(Question) bool { return true }},
		{"one half", Question.FirstHalf},
		{"other half", func(q Question) bool { return !q.FirstHalf() }},
	} {
		row(part.name, part.pass)
	}
	fmt.Fprintln(t, "each cell: recall@5 recall@10 MRR\t")
	return t.Flush()
}

// Finders gives the naive ways and ours, which is last.
func Finders(ctx context.Context, c *Corpus) ([]Finder, error) {
	ours, err := NewOurs(ctx, c)
	if err != nil {
		return nil, err
	}
	return []Finder{
		NewSubstring(c),
		NewBM25("BM25 AND", c, Variant{Stem: true, All: true}),
		NewBM25("BM25 OR, unstemmed", c, Variant{}),
		NewBM25("BM25 OR", c, Variant{Stem: true}),
		NewBM25("+ session", c, Variant{Stem: true, Context: true}),
		NewBM25("+ session + feedback", c, Variant{Stem: true, Context: true, Feedback: true}),
		NewBM25("+ session + RM3", c, Variant{Stem: true, Context: true, RM3: true}),
		ours,
	}, nil
}
