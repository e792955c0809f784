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
}

// Tuned reports whether a question belongs to the half on which weights were
// chosen.
func (q Question) Tuned() bool {
	h := fnv.New32a()
	io.WriteString(h, q.Text)
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
	var s Score
	for _, q := range c.Questions {
		if !pass(q) {
			continue
		}
		ids, err := f.Find(q.Text, 60)
		if err != nil {
			return s, fmt.Errorf("%s: %q: %w", f.Name(), q.Text, err)
		}
		var records []string
		for _, id := range ids {
			if r := c.Record[id]; !slices.Contains(records, r) {
				records = append(records, r)
			}
		}
		s.add(q, records)
	}
	s.mean()
	return s, nil
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
	row := func(name string, pass func(Question) bool) error {
		var scores []Score
		for _, f := range finders {
			s, err := Measure(c, f, pass)
			if err != nil {
				return err
			}
			scores = append(scores, s)
		}
		fmt.Fprintf(t, "%s (%d)\t", name, scores[0].Questions)
		for _, s := range scores {
			fmt.Fprintf(t, "%.3f %.3f %.3f\t", s.Recall5, s.Recall10, s.MRR)
		}
		fmt.Fprintln(t)
		return nil
	}
	for _, cat := range categories {
		if err := row(cat, func(q Question) bool { return q.Category == cat }); err != nil {
			return err
		}
	}
	for _, part := range []struct {
		name string
		pass func(Question) bool
	}{
		{"all", func(Question) bool { return true }},
		{"tuned on", Question.Tuned},
		{"held out", func(q Question) bool { return !q.Tuned() }},
	} {
		if err := row(part.name, part.pass); err != nil {
			return err
		}
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
		NewBM25("BM25 AND", c, true, true, false),
		NewBM25("BM25 OR, unstemmed", c, false, false, false),
		NewBM25("BM25 OR", c, true, false, false),
		NewBM25("BM25 OR + session + feedback", c, true, false, true),
		ours,
	}, nil
}
