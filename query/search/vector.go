package search

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
)

// Vectorizer gives texts a place in a space of meaning. It is off unless one
// is configured; what it gives stays on this machine.
type Vectorizer interface {
	// Name tells one space from another; vectors of another name are made
	// anew.
	Name() string
	// Embed gives a vector for each text, all of one length. Question says
	// whether the texts are questions or documents, for models that care.
	Embed(ctx context.Context, texts []string, question bool) ([][]float32, error)
}

// maxDims bounds a vector's length.
const maxDims = 4096

// vectors are unit vectors in bytes, one per document that has one.
type vectors struct {
	name string
	dims int
	of   map[uint32][]int8
	// fresh are documents whose vectors no file holds.
	fresh []uint32
}

// quantize gives a unit vector in bytes; nil for one without direction.
func quantize(v []float32) []int8 {
	largest := 0.0
	for _, f := range v {
		if a := math.Abs(float64(f)); a > largest {
			largest = a
		}
	}
	if largest == 0 || math.IsNaN(largest) || math.IsInf(largest, 0) {
		return nil
	}
	out := make([]int8, len(v))
	for i, f := range v {
		out[i] = int8(math.Round(float64(f) / largest * 127))
	}
	return out
}

func cosine(a, b []int8) float64 {
	var dot, na, nb int64
	for i := range a {
		x, y := int64(a[i]), int64(b[i])
		dot += x * y
		na += x * x
		nb += y * y
	}
	if na == 0 || nb == 0 {
		return 0
	}
	return float64(dot) / math.Sqrt(float64(na)*float64(nb))
}

// nearest gives the visible documents closest in meaning, best first.
func (c *core) nearest(v []float32, f *filter, k int) []ranked {
	if c.vec == nil || len(v) != c.vec.dims {
		return nil
	}
	q := quantize(v)
	if q == nil {
		return nil
	}
	var list []ranked
	s := search{c: c}
	for n, d := range c.vec.of {
		if !f.may(c, n) {
			continue
		}
		if s := cosine(q, d); s > 0 {
			list = append(list, ranked{n: n, score: s})
		}
	}
	slices.SortFunc(list, func(a, b ranked) int { return s.order(&a, &b) })
	return list[:min(k, len(list))]
}

// fuse joins both arms by reciprocal ranks: what either finds is in, and
// neither gates the other.
func (s *search) fuse(words, meaning []ranked) []ranked {
	at := make(map[uint32]int, len(words))
	out := make([]ranked, 0, len(words)+len(meaning))
	for i, r := range words {
		r.lexical = i + 1
		r.score = 1 / float64(rrf+i+1) * s.trust(r.n)
		at[r.n] = len(out)
		out = append(out, r)
	}
	for i, r := range meaning {
		gain := 1 / float64(rrf+i+1) * s.trust(r.n)
		if j, ok := at[r.n]; ok {
			out[j].score += gain
			out[j].vector = i + 1
			out[j].arms |= armVector
			continue
		}
		out = append(out, ranked{n: r.n, score: gain, vector: i + 1, arms: armVector})
	}
	slices.SortFunc(out, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(s.c.hot[b.n].time, s.c.hot[a.n].time), strings.Compare(s.c.cold[a.n].id, s.c.cold[b.n].id))
	})
	return out
}
