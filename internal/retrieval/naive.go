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
type Substring struct{ docs []search.Document }

// NewSubstring takes a corpus.
func NewSubstring(c *Corpus) *Substring { return &Substring{c.Docs} }

// Name says what it does.
func (s *Substring) Name() string { return "substring" }

// Find gives matches in the order of the file.
func (s *Substring) Find(text string, k int) (ids []string, _ error) {
	want := strings.ToLower(text)
	for _, d := range s.docs {
		if strings.Contains(strings.ToLower(d.Title+"\n"+d.Text), want) {
			if ids = append(ids, d.ID); len(ids) == k {
				break
			}
		}
	}
	return ids, nil
}

// BM25 is the textbook: words, BM25, nothing of identifiers, titles or states.
type BM25 struct {
	label    string
	stem     bool
	all      bool // every word must be there
	context  bool // session score, neighbours and pseudo-feedback
	docs     []search.Document
	tf       []map[string]int
	length   []int
	posts    map[string][]int
	avg      float64
	sessions map[string][]int
}

var word = regexp.MustCompile(`[\p{L}\p{N}_]+`)

// NewBM25 takes a corpus. Stem leaves out stop words and stems the rest, all
// is an AND, context adds session, neighbours and pseudo-feedback.
func NewBM25(label string, c *Corpus, stem, all, context bool) *BM25 {
	b := &BM25{label: label, stem: stem, all: all, context: context, docs: c.Docs, posts: map[string][]int{}, sessions: map[string][]int{}}
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
		if b.stem {
			if analysis.StopWord(w) {
				continue
			}
			w = analysis.Stem(w)
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
	if b.all {
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
	if b.context {
		b.feedback(weights, scores)
		scores = b.surround(b.scores(weights))
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
