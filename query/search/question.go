package search

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"tallystick/query/search/analysis"
)

// Limits of a question (A4).
const (
	MaxQuery = 8 << 10 // bytes of text
	MaxTerms = 40      // distinct terms that are scored; of more, the rarest
	MaxLimit = 500     // hits of one answer
	maxPairs = 48
	// maxFamily is how many terms a question may be widened by.
	maxFamily = 20
)

// question is a text to look for, cut into terms.
type question struct {
	tokens []analysis.Token
	// runs are the words in order, cut where they do not stand side by side.
	runs   [][]string
	quoted []bool
	wants  cue
	date   date
	names  []string // words with a capital, lowered, but for the first
}

// ask cuts a question. Words inside quotation marks are a run of their own.
func ask(a *analysis.Analyser, text string) *question {
	q := &question{wants: asksFor(text), date: dateIn(text)}
	words := strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	for i, w := range words[:min(len(words), maxConsidered)] {
		if r, _ := utf8.DecodeRuneInString(w); i > 0 && unicode.IsUpper(r) {
			q.names = append(q.names, strings.ToLower(w))
		}
	}
	for i, piece := range strings.Split(strings.NewReplacer("\u201c", `"`, "\u201d", `"`).Replace(text), `"`) {
		toks := a.Tokens(piece)
		q.tokens = append(q.tokens, toks...)
		var run []string
		for _, t := range toks {
			if !t.Whole {
				run = append(run, t.Term)
			}
		}
		if len(run) > 0 {
			q.runs = append(q.runs, run)
			q.quoted = append(q.quoted, i%2 == 1)
		}
	}
	return q
}

// named reports whether the question writes a word with a capital, not at its
// beginning.
func (q *question) named(surface string) bool {
	return slices.Contains(q.names, strings.ToLower(surface))
}

// maxConsidered is how many terms of a question are looked up at all.
const maxConsidered = 512

// own finds the question's own terms among what may be seen. Missing are its
// words that nothing visible holds.
func (s *search) ownTerms() (out []qterm, missing []analysis.Token) {
	c, q := s.c, s.q
	at := map[string]int{}
	add := func(t qterm) bool {
		if i, ok := at[t.text]; ok {
			if i >= 0 && t.role <= roleWhole {
				// Said twice counts a little more, never twice as much.
				out[i].weight = min(out[i].weight+0.3*t.weight, 2*t.weight)
			}
			return i >= 0
		}
		df := s.df(t.id)
		if df == 0 {
			at[t.text] = -1
			return false
		}
		t.df, t.idf = df, math.Log(1+(s.n-df+0.5)/(df+0.5))
		at[t.text] = len(out)
		out = append(out, t)
		return true
	}
	for i, t := range q.tokens {
		if i == maxConsidered {
			s.notes = append(s.notes, fmt.Sprintf("the query has more than %d terms; the first %d were considered", maxConsidered, maxConsidered))
			break
		}
		role, w := roleWord, 1.0
		if t.Whole {
			role, w = roleWhole, s.r.Whole
		}
		found := false
		if id, ok := c.dict[t.Term]; ok {
			found = add(qterm{id: id, text: t.Term, surface: t.Surface, role: role, weight: w, named: q.named(t.Surface)})
		}
		for _, id := range c.hexKin(t.Term) {
			found = add(qterm{id: id, text: c.terms[id].text, surface: t.Surface, from: t.Surface, role: roleWhole, weight: 1}) || found
		}
		if !found && !t.Whole {
			// The whole of an identifier, typed without what separates its parts.
			if id, ok := c.dict[strings.ToLower(t.Surface)]; ok {
				found = add(qterm{id: id, text: c.terms[id].text, surface: t.Surface, role: roleWhole, weight: s.r.Whole})
			}
		}
		if !found && !t.Whole && !slices.ContainsFunc(missing, func(m analysis.Token) bool { return m.Term == t.Term }) {
			missing = append(missing, t)
		}
	}
	if len(out) > MaxTerms {
		s.notes = append(s.notes, fmt.Sprintf("the query has %d distinct terms; the %d rarest were used", len(out), MaxTerms))
		slices.SortStableFunc(out, func(a, b qterm) int {
			return cmp.Or(cmp.Compare(a.df, b.df), strings.Compare(a.text, b.text))
		})
		out = out[:MaxTerms]
	}
	return out, missing
}

// hexKin finds longer and shorter forms of a hash: a commit is quoted in
// seven digits here and in forty there.
func (c *core) hexKin(t string) (ids []uint32) {
	if len(t) < 7 || !isHex(t) {
		return nil
	}
	c.sorted.Ascend(t, func(text string, id uint32) bool {
		if !strings.HasPrefix(text, t) {
			return false
		}
		if text != t && isHex(text) {
			ids = append(ids, id)
		}
		return len(ids) < 4
	})
	for n := len(t) - 1; n >= 7; n-- {
		if id, ok := c.dict[t[:n]]; ok {
			ids = append(ids, id)
		}
	}
	return ids
}

func isHex(s string) bool {
	digit := false
	for i := range len(s) {
		switch {
		case s[i] >= '0' && s[i] <= '9':
			digit = true
		case s[i] < 'a' || s[i] > 'f':
			return false
		}
	}
	return digit
}

// family finds terms that share their beginning with a word of the question:
// counsel and counselor, photo and photograph. A suffix rule joins some of
// them; the others weigh less than the word itself.
func (s *search) family(own []qterm) (out []qterm) {
	c := s.c
	known := map[uint32]bool{}
	for _, t := range own {
		known[t.id] = true
	}
	var kin []qterm
	seen := map[string]bool{}
	for i, t := range s.q.tokens {
		if i == maxConsidered {
			break
		}
		if t.Whole || seen[t.Term] || len(t.Term) < 5 || strings.ContainsAny(t.Term, "0123456789.") {
			continue
		}
		seen[t.Term] = true
		stem := t.Term
		tries := 0
		c.sorted.Ascend(stem[:5], func(text string, id uint32) bool {
			if !strings.HasPrefix(text, stem[:5]) || tries == 4096 {
				return false
			}
			tries++
			shared := sharedPrefix(stem, text)
			short, long := min(len(stem), len(text)), max(len(stem), len(text))
			if known[id] || long-short > 5 || float64(shared) < 0.8*float64(short) {
				return true
			}
			known[id] = true
			w := s.r.Family * float64(shared) / float64(long)
			kin = append(kin, qterm{id: id, text: text, surface: t.Surface, from: t.Surface, role: roleFamily, weight: w})
			return true
		})
	}
	for i, t := range s.q.tokens {
		if i == maxConsidered || s.r.Kin == 0 {
			break
		}
		if t.Whole {
			continue
		}
		for _, text := range analysis.Kin(t.Term) {
			id, ok := c.dict[text]
			if !ok || known[id] {
				continue
			}
			known[id] = true
			kin = append(kin, qterm{id: id, text: text, surface: t.Surface, from: t.Surface, role: roleFamily, weight: s.r.Kin})
		}
	}
	slices.SortStableFunc(kin, func(a, b qterm) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), strings.Compare(a.text, b.text))
	})
	for _, k := range kin {
		if len(out) == maxFamily {
			break
		}
		if df := s.df(k.id); df > 0 {
			k.df, k.idf = df, math.Log(1+(s.n-df+0.5)/(df+0.5))
			out = append(out, k)
		}
	}
	return out
}

func sharedPrefix(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// pairs gives the neighbours among the question's words that the index knows.
func (q *question) pairs(s *search) (out []pair) {
	at := map[uint32]int{}
	for i := range s.mult {
		if s.mult[i].role <= roleWhole {
			at[s.mult[i].id] = i
		}
	}
	for i, run := range q.runs {
		for j := 0; j+1 < len(run); j++ {
			a, okA := s.c.dict[run[j]]
			b, okB := s.c.dict[run[j+1]]
			atA, usedA := at[a]
			atB, usedB := at[b]
			if !okA || !okB || !usedA || !usedB || a == b {
				continue
			}
			p := pair{a: a, b: b, bits: 1<<atA | 1<<atB, quoted: q.quoted[i], weight: s.r.Phrase}
			if p.quoted {
				p.weight = s.r.Quoted
			}
			if p.weight *= math.Min(s.mult[atA].idf, s.mult[atB].idf); p.weight == 0 {
				continue
			}
			if slices.ContainsFunc(out, func(o pair) bool { return o.a == a && o.b == b }) {
				continue
			}
			if out = append(out, p); len(out) == maxPairs {
				return out
			}
		}
	}
	return out
}
