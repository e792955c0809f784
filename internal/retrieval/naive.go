package retrieval

import (
	"cmp"
	"math"
	"regexp"
	"slices"
	"strings"

	"tallystick/query/search"
	"tallystick/query/search/analysis"
)

// Substring finds documents that hold the question as it stands, the way a
// store that scans does.
type Substring struct {
	docs    []search.Document
	lowered []string
}

// NewSubstring takes a corpus.
func NewSubstring(c *Corpus) *Substring {
	s := &Substring{docs: c.Docs}
	for _, d := range c.Docs {
		s.lowered = append(s.lowered, strings.ToLower(d.Title+"\n"+d.Text))
	}
	return s
}

// Name says what it does.
func (s *Substring) Name() string { return "substring" }

// Find gives matches in the order of the file.
func (s *Substring) Find(text string, k int) (ids []string, _ error) {
	want := strings.ToLower(text)
	for i, d := range s.docs {
		if strings.Contains(s.lowered[i], want) {
			if ids = append(ids, d.ID); len(ids) == k {
				break
			}
		}
	}
	return ids, nil
}

// Variant says which textbook is followed.
type Variant struct {
	Stem    bool // leave out stop words and stem the rest
	All     bool // every word must be there
	Context bool // add half of the session's best and a third of each neighbour
	// Feedback adds the words that stand out in the five best; RM3 does so as
	// the relevance model of that name: weights by the likelihood of the ten best.
	Feedback, RM3 bool
}

// BM25 is the textbook: words, BM25, nothing of identifiers, titles or states.
type BM25 struct {
	label string
	Variant
	docs     []search.Document
	tf       []map[string]int
	length   []int
	posts    map[string][]int
	avg      float64
	sessions map[string][]int
	stems    map[string]string
}

var word = regexp.MustCompile(`[\p{L}\p{N}_]+`)

// NewBM25 takes a corpus.
func NewBM25(label string, c *Corpus, v Variant) *BM25 {
	b := &BM25{label: label, Variant: v, docs: c.Docs, posts: map[string][]int{}, sessions: map[string][]int{}, stems: map[string]string{}}
	total := 0
	for i, d := range c.Docs {
		m := map[string]int{}
		words := b.words(d.Title + "\n" + d.Text)
		for _, w := range words {
			m[w]++
		}
		for w := range m {
			b.posts[w] = append(b.posts[w], i)
		}
		b.tf, b.length = append(b.tf, m), append(b.length, len(words))
		total += len(words)
		if d.Session != "" {
			b.sessions[d.Session] = append(b.sessions[d.Session], i)
		}
	}
	b.avg = float64(total) / float64(max(1, len(c.Docs)))
	return b
}

// Name is the label.
func (b *BM25) Name() string { return b.label }

func (b *BM25) words(text string) (out []string) {
	for _, w := range word.FindAllString(strings.ToLower(text), -1) {
		if b.Stem {
			if analysis.StopWord(w) {
				continue
			}
			stem, ok := b.stems[w]
			if !ok {
				stem = analysis.Stem(w)
				b.stems[w] = stem
			}
			w = stem
		}
		out = append(out, w)
	}
	return out
}

// scores adds up BM25 by postings.
func (b *BM25) scores(weights map[string]float64) []float64 {
	const k1, norm = 1.2, 0.75
	out, hits := make([]float64, len(b.docs)), make([]int, len(b.docs))
	n := float64(len(b.docs))
	words := make([]string, 0, len(weights))
	for w := range weights {
		words = append(words, w)
	}
	slices.Sort(words)
	for _, w := range words {
		list := b.posts[w]
		df := float64(len(list))
		idf := weights[w] * math.Log(1+(n-df+0.5)/(df+0.5))
		for _, i := range list {
			tf := float64(b.tf[i][w])
			out[i] += idf * tf * (k1 + 1) / (tf + k1*(1-norm+norm*float64(b.length[i])/b.avg))
			hits[i]++
		}
	}
	if b.All {
		for i := range out {
			if hits[i] < len(words) {
				out[i] = 0
			}
		}
	}
	return out
}

// Find scores every document that holds a word.
func (b *BM25) Find(text string, k int) ([]string, error) {
	weights := map[string]float64{}
	for _, w := range b.words(text) {
		weights[w] = 1
	}
	scores := b.scores(weights)
	switch {
	case b.RM3:
		b.rm3(weights, scores)
		scores = b.scores(weights)
	case b.Feedback:
		b.feedback(weights, scores)
		scores = b.scores(weights)
	}
	if b.Context {
		scores = b.surround(scores)
	}
	order := ranked(scores)
	var ids []string
	for _, i := range order[:min(k, len(order))] {
		ids = append(ids, b.docs[i].ID)
	}
	return ids, nil
}

// ranked gives the documents that scored, best first, then by place in the
// file.
func ranked(scores []float64) (order []int) {
	for i, s := range scores {
		if s > 0 {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(x, y int) int { return cmp.Or(cmp.Compare(scores[y], scores[x]), x-y) })
	return order
}

// feedback adds the ten words that stand out in the five best documents.
func (b *BM25) feedback(weights map[string]float64, scores []float64) {
	order := ranked(scores)
	gain := map[string]float64{}
	for _, i := range order[:min(5, len(order))] {
		for w, tf := range b.tf[i] {
			if _, asked := weights[w]; !asked && len(b.posts[w]) > 1 {
				gain[w] += float64(tf) / float64(max(10, b.length[i])) * math.Log(float64(len(b.docs))/float64(len(b.posts[w])))
			}
		}
	}
	words := make([]string, 0, len(gain))
	for w := range gain {
		words = append(words, w)
	}
	slices.SortFunc(words, func(x, y string) int {
		switch {
		case gain[x] > gain[y]:
			return -1
		case gain[x] < gain[y]:
			return 1
		}
		return strings.Compare(x, y)
	})
	for _, w := range words[:min(10, len(words))] {
		weights[w] = 0.2 * gain[w] / gain[words[0]]
	}
}

// rm3 joins the question, half of the weight, with the relevance model of the
// ten best documents: the twenty likeliest words, each document counting by
// its score.
func (b *BM25) rm3(weights map[string]float64, scores []float64) {
	order := ranked(scores)
	order = order[:min(10, len(order))]
	sum := 0.0
	for _, i := range order {
		sum += scores[i]
	}
	model := map[string]float64{}
	for _, i := range order {
		for w, tf := range b.tf[i] {
			model[w] += scores[i] / sum * float64(tf) / float64(b.length[i])
		}
	}
	words := make([]string, 0, len(model))
	for w := range model {
		words = append(words, w)
	}
	slices.SortFunc(words, func(x, y string) int {
		return cmp.Or(cmp.Compare(model[y], model[x]), strings.Compare(x, y))
	})
	words = words[:min(20, len(words))]
	total := 0.0
	for _, w := range words {
		total += model[w]
	}
	asked := float64(len(weights))
	for w := range weights {
		weights[w] = 0.5 / asked
	}
	for _, w := range words {
		weights[w] += 0.5 * model[w] / total
	}
}

// surround adds half of the session's best score and a third of each
// neighbour's.
func (b *BM25) surround(scores []float64) []float64 {
	out := slices.Clone(scores)
	for _, list := range b.sessions {
		best := 0.0
		for _, i := range list {
			best = max(best, scores[i])
		}
		for at, i := range list {
			if scores[i] == 0 {
				continue
			}
			out[i] += 0.5 * best
			for _, j := range []int{at - 1, at + 1} {
				if j >= 0 && j < len(list) {
					out[i] += 0.3 * scores[list[j]]
				}
			}
		}
	}
	return out
}
