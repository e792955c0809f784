package search

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"tallystick/query/search/analysis"
)

// What a question asks for says something about how its answer looks: "when"
// is answered by a day or a time, "how many" by a number. Such documents are
// preferred a little among those that match; nothing is left out for it.

// cue is a kind of answer.
type cue uint8

const (
	cueTime cue = 1 << iota
	cueNumber
)

// cueWords are terms that tell a time or a number. Written numbers tell both:
// "two weeks ago" has its own word.
var cueWords = sync.OnceValue(func() map[string]cue {
	out := map[string]cue{}
	put := func(list string, c cue) {
		for w := range strings.FieldsSeq(list) {
			out[analysis.Stem(w)] |= c
		}
	}
	put(`yesterday today tonight tomorrow ago last next since until week weeks weekend month months year years
		monday tuesday wednesday thursday friday saturday sunday january february march april june july august
		september october november december spring summer autumn fall winter morning evening afternoon night noon
		midnight hour hours day days minute minutes birthday christmas easter daily weekly nightly monthly soon recently
		date am pm o'clock`, cueTime)
	put(`one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
		eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million dozen couple
		pair twice thrice several half`, cueNumber)
	return out
})

// cueOf says what a term tells.
func cueOf(t string) cue {
	if c, ok := cueWords()[t]; ok {
		return c
	}
	digits := 0
	for i := range len(t) {
		switch {
		case t[i] >= '0' && t[i] <= '9':
			digits++
		case t[i] == '-' || t[i] == ':' || t[i] == '.' || t[i] == ',':
		default:
			return 0
		}
	}
	switch {
	case digits == 0:
		return 0
	case digits == 4 && len(t) == 4 && (t[:2] == "19" || t[:2] == "20"), digits == 8 && len(t) == 10:
		return cueTime | cueNumber
	}
	return cueNumber
}

// asksFor reads off the first words of a question what kind of answer it wants.
func asksFor(text string) (c cue) {
	words := strings.FieldsFunc(strings.ToLower(text[:min(len(text), 160)]), func(r rune) bool { return r < 'a' || r > 'z' })
	for i, w := range words[:min(len(words), 6)] {
		next := ""
		if i+1 < len(words) {
			next = words[i+1]
		}
		switch {
		case w == "when", (w == "what" || w == "which") && timeWord[next]:
			c |= cueTime
		case w == "how" && (next == "long" || next == "often" || next == "soon"):
			c |= cueTime | cueNumber
		case w == "how" && (next == "many" || next == "much" || next == "old" || next == "far" || next == "tall" || next == "big" || next == "fast" || next == "heavy"):
			c |= cueNumber
		}
	}
	return c
}

var timeWord = map[string]bool{
	"day": true, "days": true, "date": true, "time": true, "year": true, "month": true, "week": true, "weekday": true,
	"evening": true, "night": true, "morning": true, "season": true, "hour": true,
}

// cues raises those of the best documents that look like an answer.
func (s *search) cues(front []int32) {
	for _, i := range front {
		r := &s.cand[i]
		part := 0.0
		if s.q.wants != 0 && s.r.Cue > 0 && s.tells(r.n)&s.q.wants != 0 {
			part += s.r.Cue
		}
		if s.q.date.set() && s.r.Cue > 0 && s.q.date.holds(s.c.hot[r.n].time) {
			part += s.r.Cue
		}
		if s.r.Speaker > 0 && s.said(r.n) {
			part += s.r.Speaker
		}
		if part > 0 {
			r.cue = part * r.score * s.needy(float64(s.c.hot[r.n].words))
			r.score += r.cue
		}
	}
}

// date is a day, a month or a year that a question names; zero parts are open.
type date struct {
	year, day int
	month     time.Month
}

func (d date) set() bool { return d.year != 0 || d.month != 0 }

// holds reports whether a time in unix milliseconds lies on the date.
func (d date) holds(millis int64) bool {
	if millis == 0 {
		return false
	}
	t := time.UnixMilli(millis).UTC()
	return (d.year == 0 || t.Year() == d.year) && (d.month == 0 || t.Month() == d.month) && (d.day == 0 || t.Day() == d.day)
}

var monthNames = func() map[string]time.Month {
	out := map[string]time.Month{}
	for m := time.January; m <= time.December; m++ {
		out[m.String()], out[m.String()[:3]] = m, m
	}
	return out
}()

// dateIn finds the first date that a question names: 2026-03-05, 5 March 2026,
// March 5, March 2026, March, 2026. A month has a capital: may is also a verb.
func dateIn(text string) (d date) {
	words := strings.FieldsFunc(text[:min(len(text), 1024)], func(r rune) bool { return r == ' ' || r == ',' || r == '?' || r == '!' || r == ';' })
	number := func(i int) int {
		if i < 0 || i >= len(words) {
			return 0
		}
		w := words[i]
		for _, end := range []string{"st", "nd", "rd", "th", "."} {
			w = strings.TrimSuffix(w, end)
		}
		n, err := strconv.Atoi(w)
		if err != nil || n < 1 || n > 2199 {
			return 0
		}
		return n
	}
	for i, w := range words {
		if t, err := time.Parse(time.DateOnly, w); err == nil {
			return date{t.Year(), t.Day(), t.Month()}
		}
		if m := monthNames[strings.TrimSuffix(w, ".")]; m != 0 {
			d.month = m
			for _, n := range []int{number(i - 1), number(i + 1), number(i + 2)} {
				switch {
				case n >= 1900 && d.year == 0:
					d.year = n
				case n >= 1 && n <= 31 && d.day == 0:
					d.day = n
				}
			}
			return d
		}
		if n := number(i); n >= 1990 && len(w) == 4 && d.year == 0 {
			d.year = n
		}
	}
	return d
}

// said reports whether document n is by somebody the question names: its
// identity has that part, or it begins with the name as a transcript does.
func (s *search) said(n uint32) bool {
	k := &s.c.cold[n]
	for _, id := range k.idents {
		for part := range strings.FieldsFuncSeq(s.c.names.names[id], func(r rune) bool { return strings.ContainsRune(":/@-._ ", r) }) {
			for i := range s.q.tokens[:min(len(s.q.tokens), maxConsidered)] {
				if strings.EqualFold(part, s.q.tokens[i].Surface) {
					return true
				}
			}
		}
	}
	if k.count == 0 {
		return false
	}
	v, _ := uvarint(s.c.fwd.at(k.fwd))
	for i := range s.mult {
		if t := &s.mult[i]; t.id == uint32(v>>1) && t.role == roleWord && t.named {
			return true
		}
	}
	return false
}

// tells says which kinds of answer document n holds. Long documents hold all
// kinds and are not looked through.
func (s *search) tells(n uint32) (c cue) {
	if s.c.cold[n].count > 128 {
		return 0
	}
	s.c.each(n, func(_ int, id uint32, _ bool) { c |= s.c.terms[id].cue })
	return c
}
