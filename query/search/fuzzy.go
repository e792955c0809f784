package search

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"strings"

	"tallystick/query/search/analysis"
)

// A question without a hit is asked again with words that are spelt like its
// own: one letter off in short words (from three letters), two in long ones, or holding the word
// inside.

// maxSimilar is how many terms stand in for one word.
const maxSimilar = 6

// signature has a bit for each kind of letter in a term. Words within two
// edits differ in at most four bits.
func signature(t string) (sig uint64) {
	for i := range len(t) {
		sig |= 1 << (t[i] & 63)
	}
	return sig
}

// edits is how many letters may be wrong in a word of n letters.
func edits(n int) int {
	switch {
	case n < 3:
		return 0
	case n < 8:
		return 1
	}
	return 2
}

// similar finds visible terms for words that have none.
func (s *search) similar(words []analysis.Token) (out []qterm) {
	c := s.c
	for _, word := range words[:min(len(words), MaxTerms/maxSimilar)] {
		var found []qterm
		w, allow := word.Term, edits(len([]rune(word.Term)))
		sig := signature(w)
		for id := range c.terms {
			t := &c.terms[id]
			weight := 0.0
			switch {
			case allow > 0 && abs(len(t.text)-len(w)) <= allow && bits.OnesCount64(sig^t.sig) <= 2*allow:
				d := distance(w, t.text, allow)
				if d > allow || len(w) == 3 && !startsAlike(w, t.text) {
					continue
				}
				weight = 1 - float64(d)/float64(len(w))
			case len(w) >= 4 && len(t.text) > len(w) && sig&^t.sig == 0 && strings.Contains(t.text, w):
				weight = 0.6 * float64(len(w)) / float64(len(t.text))
			default:
				continue
			}
			found = append(found, qterm{id: uint32(id), text: t.text, surface: word.Surface, from: word.Surface, role: roleFuzzy, weight: weight})
		}
		slices.SortFunc(found, func(a, b qterm) int {
			return cmp.Or(cmp.Compare(b.weight, a.weight), strings.Compare(a.text, b.text))
		})
		taken := 0
		for _, f := range found {
			if taken == maxSimilar {
				break
			}
			if df := s.df(f.id); df > 0 && !slices.ContainsFunc(out, func(o qterm) bool { return o.id == f.id }) {
				f.df, f.idf = df, math.Log(1+(s.n-df+0.5)/(df+0.5))
				out = append(out, f)
				taken++
			}
		}
	}
	return out
}

// startsAlike keeps words of three letters apart: one letter off, nearly every
// other is near.
func startsAlike(a, b string) bool {
	return len(b) >= 3 && (a[0] == b[0] || a[0] == b[1] && a[1] == b[0])
}

func abs(n int) int {
	if n < 0 {
		return -n
	}
	return n
}

// distance counts the edits (a swap of neighbours is one) between two terms,
// or gives most+1 when there are more.
func distance(a, b string, most int) int {
	ra, rb := []rune(a), []rune(b)
	if abs(len(ra)-len(rb)) > most {
		return most + 1
	}
	var rows [3][analysis.MaxTerm + 1]int
	two, one, row := rows[0][:], rows[1][:], rows[2][:]
	for j := range len(rb) + 1 {
		one[j] = j
	}
	for i := 1; i <= len(ra); i++ {
		row[0] = i
		least := i
		for j := 1; j <= len(rb); j++ {
			cost := 1
			if ra[i-1] == rb[j-1] {
				cost = 0
			}
			row[j] = min(row[j-1]+1, one[j]+1, one[j-1]+cost)
			if i > 1 && j > 1 && ra[i-1] == rb[j-2] && ra[i-2] == rb[j-1] {
				row[j] = min(row[j], two[j-2]+1)
			}
			least = min(least, row[j])
		}
		if least > most {
			return most + 1
		}
		two, one, row = one, row, two
	}
	return one[len(rb)]
}
