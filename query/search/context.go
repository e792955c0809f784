package search

import (
	"math"
	"slices"
)

// ringed is how many of the best documents look at their neighbours, bridged
// of how many even a neighbour without a word of the question comes in.
const (
	ringed  = 160
	bridged = 30
)

// context lends documents the weight of their session and of their
// neighbours: what is asked in one turn is often answered in the next. It
// gives the k best, and the neighbours that came in.
func (s *search) context(k int) []slot {
	c, sc := s.c, s.sc
	if s.r.Session > 0 && len(sc.sessAll) > 0 {
		w := float32(s.r.Session)
		for _, n := range sc.touched {
			if id := c.lean[n].session; id != 0 {
				sc.score[n] += w * s.needs(n) * sc.sess[id]
			}
		}
	}
	ring := s.top(k, s.confWeight != 0)
	if s.r.Neighbour <= 0 || len(c.bySess) == 0 {
		return ring
	}
	slices.SortFunc(ring, s.bySlot)
	first := ring[:min(len(ring), ringed)]
	gains := make([]float32, len(first))
	type lone struct {
		n    uint32
		gain float32
	}
	var alone []lone
	for i, r := range first {
		if c.lean[r.n].session == 0 {
			continue
		}
		for dist, sides := range s.around(r.n) {
			for side, m := range sides {
				if m == none {
					continue
				}
				gains[i] += s.beside(dist, side) * sc.own[m]
				if i < bridged && sc.score[m] == 0 {
					// Seen from there, this one is on the other side.
					alone = append(alone, lone{m, 2 * s.beside(dist, 1-side) * sc.own[r.n]})
				}
			}
		}
	}
	for i, r := range first {
		sc.score[r.n] += gains[i] * s.needs(r.n)
	}
	for _, l := range alone {
		if sc.score[l.n] == 0 {
			sc.touched = append(sc.touched, l.n)
			sc.score[l.n] = float32(s.r.Session) * s.needs(l.n) * sc.sess[c.hot[l.n].session]
			ring = append(ring, slot{n: l.n})
		}
		sc.score[l.n] += l.gain * s.needs(l.n)
	}
	return ring
}

// beside is what a neighbour lends at a distance, on a side: 0 is before.
func (s *search) beside(dist, side int) float32 {
	w := s.r.Neighbour
	if side == 1 {
		w *= s.r.Next
	}
	if dist == 1 {
		w /= 3
	}
	return float32(w)
}

// needs is how much of its context a document takes: a turn of ten words says
// little by itself, a report of three hundred needs nobody.
func (s *search) needs(n uint32) float32 {
	return float32(s.needy(float64(s.c.hot[n].words)))
}

func (s *search) needy(words float64) float64 {
	return s.r.Short * s.r.Short / (s.r.Short*s.r.Short + words*words)
}

func (s *search) bySlot(a, b slot) int {
	switch {
	case a.n == b.n:
		return 0
	case s.later(a, b):
		return -1
	}
	return 1
}

const none = math.MaxUint32

// around gives the visible documents one and two places before and after n in
// its session.
func (s *search) around(n uint32) (out [2][2]uint32) {
	list := s.c.bySess[s.c.hot[n].session]
	at := -1
	if len(list) <= 128 {
		at = slices.Index(list, n)
	} else {
		at, _ = slices.BinarySearchFunc(list, n, s.c.compareInSession)
	}
	for side, step := range [2]int{-1, 1} {
		i := at
		for dist := range out {
			out[dist][side] = none
			for tries := 0; tries < 16; tries++ {
				if i += step; i < 0 || i >= len(list) {
					break
				}
				if s.f.may(s.c, list[i]) {
					out[dist][side] = list[i]
					break
				}
			}
		}
	}
	return out
}

// feedback takes the terms that set the best documents apart and scores them
// too, lightly: words the question did not know. The heaviest weighs most.
func (s *search) feedback(most float64) {
	c := s.c
	top := s.top(s.r.FeedbackDocs, false)
	slices.SortFunc(top, s.bySlot)
	asked := map[uint32]bool{}
	for i := range s.mult {
		asked[s.mult[i].id] = true
	}
	type gain struct {
		id uint32
		w  float64
	}
	weights := map[uint32]float64{}
	var order []uint32
	for _, r := range top {
		words := float64(max(c.hot[r.n].words, 10))
		c.each(r.n, func(i int, id uint32, whole bool) {
			if whole || i > 512 || asked[id] {
				return
			}
			if _, ok := weights[id]; !ok {
				order = append(order, id)
			}
			weights[id] += float64(r.score/top[0].score) / words
		})
	}
	found := make([]gain, 0, len(order))
	for _, id := range order {
		if len(c.terms[id].text) < 3 {
			continue
		}
		found = append(found, gain{id, weights[id]})
	}
	slices.SortFunc(found, func(a, b gain) int {
		if a.w != b.w {
			if a.w > b.w {
				return -1
			}
			return 1
		}
		return compareText(c.terms[a.id].text, c.terms[b.id].text)
	})
	if len(found) > 96 {
		found = found[:96]
	}
	var chosen []qterm
	for _, g := range found {
		df := s.df(g.id)
		if df < 2 || df > s.n/10+2 {
			continue
		}
		idf := math.Log(1 + (s.n-df+0.5)/(df+0.5))
		chosen = append(chosen, qterm{id: g.id, text: c.terms[g.id].text, role: roleRelated, weight: g.w * idf, df: df, idf: idf})
	}
	slices.SortStableFunc(chosen, func(a, b qterm) int {
		if a.weight != b.weight {
			if a.weight > b.weight {
				return -1
			}
			return 1
		}
		return compareText(a.text, b.text)
	})
	if len(chosen) > s.r.FeedbackTerms {
		chosen = chosen[:s.r.FeedbackTerms]
	}
	first := 1.0
	if len(chosen) > 0 {
		first = chosen[0].weight
	}
	for i := range chosen {
		if len(s.mult) == 64 {
			break
		}
		chosen[i].weight *= most / first
		s.mult = append(s.mult, chosen[i])
		s.add(&s.mult[len(s.mult)-1], uint64(1)<<(len(s.mult)-1), false)
	}
}

func compareText(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// phrases looks at the best documents word by word: words of the question that
// stand side by side there too weigh more than the same words apart.
func (s *search) phrases(front []int32) {
	pairs := s.q.pairs(s)
	if len(pairs) == 0 {
		return
	}
	for _, i := range front {
		r := &s.cand[i]
		for j := range pairs {
			if r.mask&pairs[j].bits == pairs[j].bits {
				r.phrase = s.adjacent(r.n, pairs)
				r.score += r.phrase * s.trust(r.n)
				break
			}
		}
	}
}

// pair is two terms that stood side by side in the question.
type pair struct {
	a, b   uint32
	bits   uint64 // of both in a mask
	weight float64
	quoted bool
}

// adjacent adds the weights of the pairs that document n holds, each once.
func (s *search) adjacent(n uint32, pairs []pair) float64 {
	var got [maxPairs]float64
	prev, before := uint32(none), uint32(none)
	k := &s.c.cold[n]
	b := s.c.fwd.at(k.fwd)
	for range k.count {
		v, w := uvarint(b)
		b = b[w:]
		if v&1 != 0 {
			continue // an identifier kept whole takes no place
		}
		id := uint32(v >> 1)
		for i := range pairs {
			p := &pairs[i]
			switch {
			case p.b == id && p.a == prev:
				got[i] = p.weight
			case p.quoted:
			case p.b == id && p.a == before, p.a == id && p.b == prev:
				got[i] = max(got[i], p.weight*s.r.AnyOrder)
			}
		}
		prev, before = id, prev
	}
	sum := 0.0
	for i := range pairs {
		sum += got[i]
	}
	return sum
}
