package search

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
)

// qterm is one term of a question as the index knows it.
type qterm struct {
	id      uint32
	text    string
	surface string // as the question had it
	from    string // what it stands for, when it is not the question's own
	role    role
	weight  float64
	named   bool // written with a capital within the question
	df, idf float64
}

type role uint8

const (
	roleWord    role = iota // a word of the question
	roleWhole               // an identifier of the question
	roleFamily              // begins like a word of the question
	roleFuzzy               // spelt like a word of the question
	roleRelated             // from the best documents
)

// scratch holds a search's accumulators, one cell per document. A cell is
// clean when no search uses it.
type scratch struct {
	score   []float32
	own     []float32 // without what the context gave
	mask    []uint64  // which terms of the question matched
	touched []uint32
	sessMax []float32
	sess    []float32
	sessHit []uint32
	sessAll []uint32
	counted []bool
	heap    []slot
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func (s *scratch) fit(docs, names int) {
	if len(s.score) < docs {
		n := docs + docs/8
		s.score, s.own, s.mask = make([]float32, n), make([]float32, n), make([]uint64, n)
	}
	if len(s.sess) < names {
		n := names + names/8
		s.sess, s.sessMax, s.counted = make([]float32, n), make([]float32, n), make([]bool, n)
	}
}

func (s *scratch) clean() {
	for _, n := range s.touched {
		s.score[n], s.own[n], s.mask[n] = 0, 0, 0
	}
	for _, id := range s.sessAll {
		s.sess[id], s.counted[id] = 0, false
	}
	s.touched, s.sessAll, s.sessHit = s.touched[:0], s.sessAll[:0], s.sessHit[:0]
}

// ranked is a document with its score and what it is made of.
type ranked struct {
	n       uint32
	score   float64
	words   float64 // from terms of the question
	context float64
	phrase  float64
	cue     float64
	mask    uint64
	arms    uint8
	vector  int // rank by vectors, from 1; 0 is none
	lexical int
}

const (
	armWords uint8 = 1 << iota
	armVector
)

// search is one question put to a core.
type search struct {
	c    *core
	f    *filter
	r    Ranking
	q    *question
	sc   *scratch
	n    float64 // visible documents
	avg  float64 // words of one
	mult []qterm // terms in use, bit i of a mask each
	cand []ranked

	confWeight float64

	fuzzy   bool
	missing []string // words of the question that nothing visible holds
	notes   []string
}

// rerank is how many of the best documents are looked at word by word.
const rerank = 120

// run scores and gives the best k documents, best first, in a total order, and
// how many matched in all.
func (s *search) run(k int) ([]ranked, int) {
	s.sc = scratches.Get().(*scratch)
	defer func() {
		s.sc.clean()
		scratches.Put(s.sc)
	}()
	s.sc.fit(len(s.c.hot), len(s.c.names.names))
	docs, words := s.f.size(s.c)
	if docs == 0 {
		return nil, 0
	}
	s.n, s.avg = float64(docs), max(1, float64(words)/float64(docs))
	own, missing := s.ownTerms()
	for _, m := range missing {
		s.missing = append(s.missing, m.Surface)
	}
	s.mult = own
	if len(own) > 0 && s.r.Family > 0 {
		s.mult = append(s.mult, s.family(own)...)
	}
	if len(own) == 0 {
		s.fuzzy = true
		s.mult = s.similar(missing)
		s.mult = append(s.mult, s.family(s.mult)...)
	}
	for i := range s.mult {
		s.add(&s.mult[i], uint64(1)<<i, true)
	}
	matched := len(s.sc.touched)
	if matched == 0 {
		return nil, 0
	}
	// Among long documents feedback would weigh next to nothing.
	if w := s.r.Feedback * s.needy(s.avg); w > 0.02 {
		s.feedback(w)
	}
	for _, n := range s.sc.touched {
		s.sc.own[n] = s.sc.score[n]
	}
	s.gather(s.context(max(k, ringed)))
	order := make([]int32, len(s.cand))
	for i := range order {
		order[i] = int32(i)
	}
	by := func(a, b int32) int { return s.order(&s.cand[a], &s.cand[b]) }
	if len(order) > rerank {
		slices.SortFunc(order, by)
	}
	// Only the first are looked at word by word, however deep the page: so
	// pages of any size show one order.
	front := order[:min(len(order), rerank)]
	s.phrases(front)
	s.cues(front)
	slices.SortFunc(front, by)
	out := make([]ranked, min(k, len(order)))
	for i := range out {
		out[i] = s.cand[order[i]]
	}
	return out, matched
}

// order is total: score, newer first, then the id.
func (s *search) order(a, b *ranked) int {
	if o := cmp.Compare(b.score, a.score); o != 0 {
		return o
	}
	if o := cmp.Compare(s.c.hot[b.n].time, s.c.hot[a.n].time); o != 0 {
		return o
	}
	return strings.Compare(s.c.cold[a.n].id, s.c.cold[b.n].id)
}

// df counts the visible documents that hold a term.
func (s *search) df(id uint32) float64 {
	t := &s.c.terms[id]
	if s.f.trivial {
		return float64(t.df)
	}
	if s.f.set != nil {
		return float64(s.f.set.dfOf(s.c, id))
	}
	return float64(s.c.countDF(id, func(n uint32) bool { return s.f.ok(s.c, n) }))
}

// uvarint is binary.Uvarint with a short way for one and two bytes.
func uvarint(b []byte) (uint64, int) {
	if b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	if len(b) > 1 && b[1] < 0x80 {
		return uint64(b[0]&0x7f) | uint64(b[1])<<7, 2
	}
	return binary.Uvarint(b)
}

// add scores one term over its postings. Terms that reach new documents are
// marked by bit; bit 0 marks none.
func (s *search) add(q *qterm, bit uint64, reach bool) {
	c, sc := s.c, s.sc
	w := float32(q.weight * q.idf)
	k1 := float32(s.r.K1)
	base, slope := k1*float32(1-s.r.B), k1*float32(s.r.B/s.avg)
	b, doc := c.terms[q.id].post, uint32(0)
	trivial, sessions := s.f.trivial, s.r.Session > 0
	for len(b) > 0 {
		v, n := uvarint(b)
		b = b[n:]
		doc += uint32(v >> 1)
		tf := uint64(1)
		if v&1 != 0 {
			tf, n = uvarint(b)
			b = b[n:]
		}
		h := c.lean[doc-1]
		if trivial {
			if h.words == hidden {
				continue
			}
		} else if !s.f.may(c, doc-1) {
			continue
		} else if h.words == hidden {
			h.words = c.hot[doc-1].words
		}
		f := float32(tf)
		gain := w * f * (k1 + 1) / (f + base + slope*float32(h.words))
		if sc.score[doc-1] == 0 {
			if !reach {
				continue
			}
			sc.touched = append(sc.touched, doc-1)
		}
		sc.score[doc-1] += gain
		sc.mask[doc-1] |= bit
		if sessions && h.session != 0 {
			if sc.sessMax[h.session] == 0 {
				sc.sessHit = append(sc.sessHit, h.session)
			}
			sc.sessMax[h.session] = max(sc.sessMax[h.session], gain)
		}
	}
	for _, id := range sc.sessHit {
		sc.sess[id] += sc.sessMax[id]
		sc.sessMax[id] = 0
		if !sc.counted[id] {
			sc.counted[id] = true
			sc.sessAll = append(sc.sessAll, id)
		}
	}
	sc.sessHit = sc.sessHit[:0]
}

// trust is what a document's confidence makes of its score.
func (s *search) trust(n uint32) float64 {
	return 1 + s.confWeight*(float64(s.c.hot[n].conf)-1)
}

// gather makes candidates of documents.
func (s *search) gather(list []slot) {
	s.cand = make([]ranked, len(list))
	for i, t := range list {
		r := ranked{n: t.n, score: float64(s.sc.score[t.n]), words: float64(s.sc.own[t.n]), mask: s.sc.mask[t.n], arms: armWords}
		r.context = r.score - r.words
		r.score *= s.trust(t.n)
		s.cand[i] = r
	}
}

// slot is a document on its way into a list of the best.
type slot struct {
	score float32
	n     uint32
}

// top gives the k best of the touched documents by the score they have now,
// in no order. Trusted says whether confidence counts.
func (s *search) top(k int, trusted bool) []slot {
	score := s.sc.score
	heap := s.sc.heap[:0]
	for _, n := range s.sc.touched {
		t := slot{score[n], n}
		if trusted {
			t.score *= float32(s.trust(n))
		}
		if len(heap) < k {
			if heap = append(heap, t); len(heap) == k {
				for i := k/2 - 1; i >= 0; i-- {
					s.sink(heap, i)
				}
			}
			continue
		}
		if t.score < heap[0].score || t.score == heap[0].score && s.later(heap[0], t) {
			continue
		}
		heap[0] = t
		s.sink(heap, 0)
	}
	s.sc.heap = heap
	return heap
}

// later reports whether b comes after a in the total order.
func (s *search) later(a, b slot) bool {
	if a.score != b.score {
		return b.score < a.score
	}
	if ta, tb := s.c.hot[a.n].time, s.c.hot[b.n].time; ta != tb {
		return tb < ta
	}
	return s.c.cold[b.n].id > s.c.cold[a.n].id
}

// sink keeps the last of a heap at its root.
func (s *search) sink(heap []slot, i int) {
	for {
		child := 2*i + 1
		if child >= len(heap) {
			return
		}
		if child+1 < len(heap) && s.later(heap[child], heap[child+1]) {
			child++
		}
		if !s.later(heap[i], heap[child]) {
			return
		}
		heap[i], heap[child] = heap[child], heap[i]
		i = child
	}
}
