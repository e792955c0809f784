package search

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"tallystick/oplog"
	"tallystick/query/document"
	"tallystick/query/refusal"
)

// Query is a question.
type Query struct {
	// Text is words, identifiers, "quoted phrases", in any order and number; a
	// document need not hold them all.
	Text   string
	Filter Filter
	// Limit is how many hits to give, 1 to MaxLimit; zero means 10. Offset
	// leaves out that many first.
	Limit, Offset int
	// Collapse shows documents of equal title and text once.
	Collapse bool
	// ConfidenceWeight, 0 to 0.5, raises verified documents and lowers
	// unverified ones: score x (1 + weight x (level - 1)).
	ConfidenceWeight float64
	// NoVectors keeps the vector arm out even where there is one.
	NoVectors bool
	// Ranking replaces the weights, for measurements.
	Ranking *Ranking
}

// MaxOffset is how deep a page may begin (A4).
const MaxOffset = 5000

// Hit is a document found.
type Hit struct {
	ID         string
	Ref        oplog.Ref
	Kind       string
	Namespace  string
	Category   string
	Session    string
	Time       int64 // unix milliseconds
	Confidence int
	State      document.State
	Score      float64
	Why        Why
}

// Like is a term found in place of a word asked for.
type Like struct{ Asked, Found string }

// Why says what made a hit.
type Why struct {
	Words       []string // words of the question it holds
	Identifiers []string // identifiers of the question it holds whole
	Family      []Like   // words that begin like one of the question's
	Spelt       []Like   // words that are spelt like one of the question's
	Related     []string // terms taken from the best hits
	// ByWords, ByPhrase and ByContext are the parts of the lexical score:
	// terms, words side by side, session and neighbours.
	ByWords, ByPhrase, ByContext float64
	// ByCue is what it gained for looking like an answer: a time or a number
	// that was asked for, a date or a speaker that was named.
	ByCue float64
	// LexicalRank and VectorRank are the ranks in each arm, from 1; 0 means
	// that the arm did not find it.
	LexicalRank, VectorRank int
}

// String tells it in one line.
func (w Why) String() string {
	var parts []string
	list := func(name string, words []string) {
		if len(words) > 0 {
			parts = append(parts, name+" "+strings.Join(words, ", "))
		}
	}
	likes := func(name string, l []Like) {
		var words []string
		for _, x := range l {
			words = append(words, x.Found+" for "+x.Asked)
		}
		list(name, words)
	}
	list("words", w.Words)
	list("identifiers", w.Identifiers)
	likes("like", w.Family)
	likes("spelt like", w.Spelt)
	list("related", w.Related)
	if w.ByPhrase > 0 {
		parts = append(parts, "side by side")
	}
	if w.ByCue > 0 {
		parts = append(parts, "looks like an answer")
	}
	if w.ByContext > 0 {
		parts = append(parts, "context")
	}
	if w.VectorRank > 0 {
		parts = append(parts, "meaning")
	}
	return strings.Join(parts, "; ")
}

// Result is the answer to a Query.
type Result struct {
	Hits []Hit
	// Matched is how many documents hold a word of the question.
	Matched int
	More    bool // there are hits behind these
	// Fuzzy says that nothing matched, and what is shown is spelt alike or means
	// about the same.
	Fuzzy bool
	// Missing are words of the question that no visible document holds.
	Missing []string
	// Arms are the ways of search that ran: "words", "vectors".
	Arms []string
	// Position is the arrival number the index has folded, Behind how many
	// more the log has.
	Position, Behind uint64
	// Notes tell a reader what else to know: what was left out, which arm
	// failed.
	Notes []string
}

func (q *Query) validate() error {
	if len(q.Text) > MaxQuery {
		return refusal.New(refusal.TooLarge, "query", "ask with the words that matter", "query of %d bytes, at most %d", len(q.Text), MaxQuery)
	}
	if strings.TrimSpace(q.Text) == "" {
		return refusal.Invalid("query", "give some words to look for", "query is empty")
	}
	if q.Limit < 0 || q.Limit > MaxLimit {
		return refusal.Invalid("limit", "ask for less and page on", "limit is %d, allowed are 1 to %d", q.Limit, MaxLimit)
	}
	if q.Offset < 0 || q.Offset > MaxOffset {
		return refusal.Invalid("offset", "narrow the query", "offset is %d, allowed are 0 to %d", q.Offset, MaxOffset)
	}
	if w := q.ConfidenceWeight; math.IsNaN(w) || w < 0 || w > 0.5 {
		return refusal.Invalid("confidence_weight", "use 0 to leave ranks alone", "confidence weight is %v, allowed are 0 to 0.5", w)
	}
	return q.Filter.validate()
}

// Search answers a question. Writes acknowledged before the call are in the
// answer, unless Result.Behind says otherwise.
func (x *Index) Search(ctx context.Context, q Query) (Result, error) {
	if err := q.validate(); err != nil {
		return Result{}, err
	}
	if q.Limit == 0 {
		q.Limit = 10
	}
	var res Result
	last, err := x.freshen(ctx)
	if err != nil {
		return Result{}, err
	}
	var vec []float32
	if x.vec != nil && !q.NoVectors {
		if vec, err = x.vec.ask(ctx, q.Text); err != nil {
			res.Notes = append(res.Notes, "the vector arm did not run: "+err.Error())
		}
	}
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	a := x.analysers.Get().(*analyser)
	question := ask(&a.Analyser, q.Text)
	x.analysers.Put(a)

	x.mu.RLock()
	defer x.mu.RUnlock()
	res.Position = x.pos.arrival
	res.Behind = last - min(last, x.pos.arrival)
	if x.fault != "" {
		res.Notes = append(res.Notes, "the index does not follow the log: "+x.fault)
	}
	x.answer(&res, question, &q, vec)
	return res, nil
}

// answer fills res. The caller holds mu.
func (x *Index) answer(res *Result, question *question, q *Query, vec []float32) {
	r := DefaultRanking()
	if q.Ranking != nil {
		r = *q.Ranking
	}
	f := q.Filter.compile(x.c)
	f.remember(x.c)
	want := q.Offset + q.Limit + 1
	var list []ranked
	var s *search
	for fetch := want; ; fetch *= 4 {
		if q.Collapse {
			fetch = max(fetch, rerank)
		}
		s = &search{c: x.c, f: f, r: r, q: question, confWeight: q.ConfidenceWeight}
		list, res.Matched = s.run(fetch)
		exhausted := len(list) < fetch
		res.Arms = []string{"words"}
		if vec != nil {
			res.Arms = append(res.Arms, "vectors")
			list = s.fuse(list, x.c.nearest(vec, f, max(fetch, rerank)))
		}
		if q.Collapse {
			list = collapse(x.c, list)
		}
		if len(list) >= want || exhausted || !q.Collapse {
			break
		}
	}
	res.Fuzzy = s.fuzzy && len(list) > 0 && len(s.mult) > 0
	res.Missing = s.missing
	res.Notes = append(res.Notes, s.notes...)
	if len(question.tokens) == 0 {
		res.Notes = append(res.Notes, "the query holds only words too common to look for")
	} else if res.Fuzzy {
		res.Notes = append(res.Notes, "no document holds a word of the query; these hold words that are spelt alike or mean about the same")
	}
	list = list[min(q.Offset, len(list)):]
	if len(list) > q.Limit {
		list, res.More = list[:q.Limit], true
	}
	res.Hits = make([]Hit, len(list))
	for i, r := range list {
		res.Hits[i] = s.hit(r)
	}
}

// collapse keeps the first of documents with equal content.
func collapse(c *core, list []ranked) []ranked {
	seen := make(map[uint64]bool, len(list))
	return slices.DeleteFunc(list, func(r ranked) bool {
		d := c.cold[r.n].digest
		was := seen[d]
		seen[d] = true
		return was
	})
}

func (s *search) hit(r ranked) Hit {
	h, k, names := &s.c.hot[r.n], &s.c.cold[r.n], s.c.names.names
	hit := Hit{
		ID: k.id, Ref: k.ref, Kind: names[h.kind], Namespace: names[h.ns], Category: names[h.category], Session: names[h.session],
		Time: h.time, Confidence: int(h.conf), State: h.state.public(), Score: r.score,
		Why: Why{ByWords: r.words, ByPhrase: r.phrase, ByCue: r.cue, ByContext: max(0, r.context), LexicalRank: r.lexical, VectorRank: r.vector},
	}
	for i := range s.mult {
		if r.mask&(1<<i) == 0 {
			continue
		}
		switch t := &s.mult[i]; t.role {
		case roleWord:
			hit.Why.Words = append(hit.Why.Words, t.surface)
		case roleWhole:
			hit.Why.Identifiers = append(hit.Why.Identifiers, t.surface)
		case roleFamily:
			hit.Why.Family = append(hit.Why.Family, Like{t.from, t.text})
		case roleFuzzy:
			hit.Why.Spelt = append(hit.Why.Spelt, Like{t.from, t.text})
		case roleRelated:
			hit.Why.Related = append(hit.Why.Related, t.text)
		}
	}
	return hit
}

// SearchAll answers several questions. One that fails has its error in its own
// place; the last error is about all of them.
func (x *Index) SearchAll(ctx context.Context, queries []Query) ([]Result, []error, error) {
	if len(queries) > MaxBatch {
		return nil, nil, refusal.New(refusal.TooLarge, "queries", "ask in several calls", "%d queries, at most %d", len(queries), MaxBatch)
	}
	out, errs := make([]Result, len(queries)), make([]error, len(queries))
	for i, q := range queries {
		out[i], errs[i] = x.Search(ctx, q)
	}
	return out, errs, ctx.Err()
}

// MaxBatch is how many questions one call may hold.
const MaxBatch = 32

// Merge fuses answers to several questions into one list without repeats,
// best first: by reciprocal ranks, then newer first, then the id.
func Merge(results ...Result) []Hit {
	at := map[string]int{}
	var out []Hit
	for _, r := range results {
		for i, h := range r.Hits {
			gain := 1 / float64(rrf+i+1)
			if j, ok := at[h.ID]; ok {
				out[j].Score += gain
				continue
			}
			at[h.ID] = len(out)
			h.Score = gain
			out = append(out, h)
		}
	}
	slices.SortFunc(out, func(a, b Hit) int {
		switch {
		case a.Score != b.Score:
			if a.Score > b.Score {
				return -1
			}
			return 1
		case a.Time != b.Time:
			if a.Time > b.Time {
				return -1
			}
			return 1
		}
		return strings.Compare(a.ID, b.ID)
	})
	return out
}

// rrf is the constant of reciprocal rank fusion.
const rrf = 60

// ParseTime reads a bound of a Filter as clients give it: RFC 3339 or a date.
func ParseTime(field, s string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, refusal.Invalid(field, "use RFC 3339, as in 2026-01-31T12:00:00Z", "%s is no time", refusal.Quote(s))
}
