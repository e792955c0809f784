package server

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"
	"unicode"

	"tallystick/oplog"
	"tallystick/query"
	"tallystick/query/memory"
	"tallystick/query/search"
)

// scope is which namespaces of facts a search may see.
type scope struct {
	Name       string   `json:"scope"`      // own, agent_id, identity or all
	Namespaces []string `json:"namespaces"` // empty when scope is all
	note       string
}

// factScope says where to look for facts: the caller's own namespace and the
// shared one, unless the caller asks for another, for an identity's or for all.
func (s *Service) factScope(ctx context.Context, c *call) (scope, *Error) {
	a := c.args
	if a.has("agent_id") {
		ns := a.str("agent_id")
		if err := memory.CheckNamespace("agent_id", ns); err != nil {
			return scope{}, s.asError(ctx, err)
		}
		if a.has("agentIdentity") {
			return scope{}, invalid("agentIdentity", "leave one of them out", "agent_id and agentIdentity are both given")
		}
		return scope{Name: "agent_id", Namespaces: []string{ns}, note: literal(ns)}, nil
	}
	name := "own"
	if a.has("agentIdentity") {
		who, bad := s.who(ctx, c)
		switch {
		case bad != nil:
			return scope{}, bad
		case who.All:
			return scope{Name: "all", Namespaces: []string{}}, nil
		}
		if who.Identity != c.id.Name {
			name = "identity"
		}
		return scope{Name: name, Namespaces: []string{who.Identity, memory.Shared}}, nil
	}
	if !c.id.Bound {
		return scope{}, fail(CodeIdentityUnbound, "agent_id", "name a namespace in agent_id, or start the server with --agent NAME",
			"this session is bound to no identity, so it has no namespace of its own")
	}
	return scope{Name: name, Namespaces: []string{c.id.Name, memory.Shared}}, nil
}

// filter is nil for every namespace.
func (sc *scope) filter() []string {
	if sc.Name == "all" {
		return nil
	}
	return sc.Namespaces
}

// factQuery is what memory_search and its batch have in common.
type factQuery struct {
	scope scope
	k     int
	min   string
	q     search.Query
}

func (s *Service) factQuery(ctx context.Context, c *call) (f factQuery, bad *Error) {
	a := c.args
	if f.scope, bad = s.factScope(ctx, c); bad != nil {
		return f, bad
	}
	switch k := a.integer("top_k", 0); {
	case k > maxResults:
		return f, invalid("top_k", "ask for 1 to 100, or leave it out for 8", "top_k is %d, at most %d are allowed", k, maxResults)
	case k > 0:
		f.k = int(k)
	default:
		f.k = defaultTopK
	}
	f.min = a.str("min_confidence")
	if err := memory.CheckConfidence("min_confidence", f.min, a.has("min_confidence")); err != nil {
		return f, s.asError(ctx, err)
	}
	if err := memory.CheckWeight("confidence_weight", a.number("confidence_weight")); err != nil {
		return f, s.asError(ctx, err)
	}
	f.q = search.Query{
		Filter: search.Filter{Kinds: []string{query.DocFact}, Namespaces: f.scope.filter(), IncludeSuperseded: a.boolean("include_superseded")},
		Limit:  f.k, Collapse: true, ConfidenceWeight: a.number("confidence_weight"),
	}
	if f.min != "" {
		f.q.Filter.MinConfidence = memory.Level(f.min)
	}
	return f, nil
}

// retrieval says which policy ranked, also when nothing was found.
type retrieval struct {
	Policy           string  `json:"policy"`
	MinConfidence    string  `json:"min_confidence"`
	ConfidenceWeight float64 `json:"confidence_weight"`
	KG               string  `json:"kg"`
}

func (f *factQuery) retrieval() retrieval {
	r := retrieval{Policy: memory.ConfidencePolicy, MinConfidence: f.min, ConfidenceWeight: f.q.ConfidenceWeight, KG: "off"}
	if f.min != "" {
		r.KG = "suppressed_min_confidence"
	}
	return r
}

// run searches and reads the facts that were found. What is no longer live in
// the snapshot it reads is left out, whatever the index still says.
func (s *Service) facts(ctx context.Context, f *factQuery, text string) (res search.Result, facts []factRow, bad *Error) {
	q := f.q
	q.Text = text
	err := s.d.Log.View(func(snap oplog.Snapshot) (err error) {
		if q.Text, err = widen(snap, f.scope.Namespaces, text); err != nil {
			return err
		}
		if f.scope.note == "" && (f.scope.Name == "agent_id" || f.scope.Name == "identity") {
			f.scope.note, err = memory.UnknownNote(snap, f.scope.Namespaces[0])
		}
		return err
	})
	if err != nil {
		return res, nil, s.asError(ctx, err)
	}
	if res, bad = s.find(ctx, q); bad != nil {
		return res, nil, bad
	}
	label := s.labeler()
	err = s.d.Log.View(func(snap oplog.Snapshot) error {
		kept := res.Hits[:0]
		for _, h := range res.Hits {
			rec, err := memory.ByRef(snap, h.Ref)
			if errors.Is(err, oplog.ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			if rec.Retired != nil && (rec.Retired.SupersededBy == "" || !f.q.Filter.IncludeSuperseded) {
				continue
			}
			kept = append(kept, h)
			facts = append(facts, factRow{Record: rec, Origin: label(rec.OriginID), Score: h.Score, Why: h.Why.String()})
		}
		if res.Hits = kept; len(facts) > 0 {
			return nil
		}
		same, err := f.exact(snap, text)
		for _, rec := range same {
			res.Hits = append(res.Hits, search.Hit{ID: rec.ID, Time: rec.Written.Millis(), Score: exactScore})
			facts = append(facts, factRow{Record: rec, Origin: label(rec.OriginID), Score: exactScore, Why: "is this text"})
		}
		return err
	})
	if err != nil {
		return res, nil, s.asError(ctx, err)
	}
	return res, facts, nil
}

// exactScore is the score of a fact that is the query itself.
const exactScore = 1

// exact is the newest fact that is this text to the byte in each namespace. A
// text of nothing but common words, such as "To be or not to be", is found in
// no other way.
func (f *factQuery) exact(snap oplog.Snapshot, text string) (out []memory.Record, err error) {
	for _, ns := range f.scope.Namespaces {
		list, err := memory.Copies(snap, ns, text)
		if err != nil {
			return nil, err
		}
		if len(list) > 0 && memory.Level(list[0].Confidence) >= f.q.Filter.MinConfidence {
			return append(out, list[0]), nil // the others are equal texts
		}
	}
	return nil, nil
}

type factRow struct {
	memory.Record
	Origin string  `json:"origin"`
	Score  float64 `json:"score"`
	Why    string  `json:"why"`
}

// maxAliasWords is how many words of a query are looked up as aliases.
const maxAliasWords = 24

// widen adds to a query what its words are also called in these namespaces.
func widen(snap oplog.Snapshot, namespaces []string, text string) (string, error) {
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(`"?!,;()`, r) })
	words = words[:min(len(words), maxAliasWords)]
	out := text
	for _, ns := range namespaces {
		any, err := memory.Aliases(snap, ns, "", 1)
		if err != nil || len(any) == 0 {
			if err != nil {
				return "", err
			}
			continue
		}
		for i := range words {
			for n := 1; n <= 3 && i+n <= len(words); n++ {
				more, err := memory.Expand(snap, ns, strings.Join(words[i:i+n], " "))
				if err != nil {
					return "", err
				}
				for _, w := range more {
					if len(out)+len(w) < maxQueryBytes {
						out += " " + w
					}
				}
			}
		}
	}
	return out, nil
}

type memoryFound struct {
	AgentID string `json:"agent_id,omitempty"` // the first namespace searched
	Query   string `json:"query"`
	scope
	Count     int               `json:"count"`
	Facts     []json.RawMessage `json:"facts"`
	Explained []json.RawMessage `json:"explained,omitempty"`
	Feedback  string            `json:"feedback,omitempty"`
	Retrieval retrieval         `json:"retrieval"`
	about
	Truncated bool   `json:"truncated,omitempty"` // ended by size
	Note      string `json:"note,omitempty"`
}

func (s *Service) memorySearch(ctx context.Context, c *call) (any, *Error) {
	f, bad := s.factQuery(ctx, c)
	if bad != nil {
		return nil, bad
	}
	text := c.args.str("query")
	res, facts, bad := s.facts(ctx, &f, text)
	if bad != nil {
		return nil, bad
	}
	r := memoryFound{Query: text, scope: f.scope, Facts: []json.RawMessage{}, Retrieval: f.retrieval(), Note: f.scope.note}
	if len(f.scope.Namespaces) > 0 {
		r.AgentID = f.scope.Namespaces[0]
	}
	r.take(&res)
	r.Feedback = feedback(&res)
	p := newPage(len(text))
	explain := c.args.boolean("explain")
	for i := range facts {
		var row any = facts[i]
		if explain {
			if h := &res.Hits[i]; h.Why.LexicalRank == 0 && h.Why.VectorRank == 0 {
				h.Why.LexicalRank = i + 1 // one way of search alone: its rank is the rank
			}
			row = explainRow(&facts[i], &res.Hits[i])
		}
		if !p.add(row) {
			r.Truncated = true
			break
		}
	}
	r.Count = len(p.rows)
	if r.Count == 0 && r.Note == "" {
		r.Note = "No memories found. They may not have arrived on this replica yet, or be in another namespace."
	}
	if explain {
		r.Explained = p.rows
		return r, nil
	}
	return framed{r, "facts", p.rows}, nil
}

// feedback says which words found nothing, and how to teach them.
func feedback(res *search.Result) string {
	if len(res.Missing) == 0 {
		return ""
	}
	var words []string
	for _, w := range res.Missing[:min(len(res.Missing), 5)] {
		words = append(words, quote(w))
	}
	return "No fact in these namespaces holds " + strings.Join(words, ", ") + ". If it has another name there, say so once with memory_alias."
}

type explained struct {
	Text       string          `json:"text"`
	Weight     float64         `json:"weight"`
	AgeDays    float64         `json:"age_days"`
	Ranks      explainedRanks  `json:"ranks"`
	Provenance explainedOrigin `json:"provenance"`
	Why        string          `json:"why"`
	Invisible  bool            `json:"invisible,omitempty"`
}

type explainedRanks struct {
	Vector  int     `json:"vector"` // 0: not found by meaning
	Keyword int     `json:"keyword"`
	Recency int     `json:"recency"` // 0: recency does not rank, it breaks ties
	Fused   float64 `json:"fused_score"`
	K       int     `json:"k"`
}

type explainedOrigin struct {
	FactID       string   `json:"fact_id"`
	AgentID      string   `json:"agent_id"`
	WrittenAt    string   `json:"written_at"`
	Author       string   `json:"author"`
	Origin       string   `json:"origin"`
	SupersededBy string   `json:"superseded_by"`
	Confidence   string   `json:"confidence"`
	Pinned       bool     `json:"pinned"`
	Supersedes   []string `json:"supersedes"`
}

func explainRow(f *factRow, h *search.Hit) explained {
	e := explained{
		Text: f.Text, Weight: 1, Why: f.Why, Invisible: f.Invisible,
		Ranks: explainedRanks{Vector: h.Why.VectorRank, Keyword: h.Why.LexicalRank, Fused: h.Score, K: 60},
		Provenance: explainedOrigin{
			FactID: f.ID, AgentID: f.Namespace, WrittenAt: f.CreatedAt, Author: f.Author, Origin: f.Origin,
			Confidence: f.Confidence, Pinned: f.Pinned, Supersedes: append([]string{}, f.Supersedes...),
		},
	}
	if f.Retired != nil {
		e.Provenance.SupersededBy = f.Retired.SupersededBy
	}
	e.AgeDays = max(0, float64(time.Now().UnixMilli()-f.Written.Millis())/float64(24*time.Hour/time.Millisecond))
	return e
}

type batchFound struct {
	AgentID string `json:"agent_id,omitempty"`
	scope
	Count     int               `json:"count"` // of merged
	Merged    []json.RawMessage `json:"merged"`
	PerQuery  []batchQuery      `json:"per_query"`
	Retrieval retrieval         `json:"retrieval"`
	Index     indexRow          `json:"index"`
	Truncated bool              `json:"truncated,omitempty"`
	Note      string            `json:"note,omitempty"`
}

type batchQuery struct {
	Query string     `json:"query"`
	Facts []batchRow `json:"facts"` // whole in merged
	Fuzzy bool       `json:"fuzzy,omitempty"`
	Error *Error     `json:"error,omitempty"`
}

type batchRow struct {
	ID    string  `json:"id"`
	Text  string  `json:"text"` // its beginning
	Score float64 `json:"score"`
	Why   string  `json:"why"`
}

func (s *Service) memorySearchBatch(ctx context.Context, c *call) (any, *Error) {
	f, bad := s.factQuery(ctx, c)
	if bad != nil {
		return nil, bad
	}
	queries := c.args.list("queries")
	if len(queries) == 0 {
		return nil, invalid("queries", "give 1 to 32 queries", "queries is empty")
	}
	r := batchFound{scope: f.scope, PerQuery: make([]batchQuery, len(queries)), Retrieval: f.retrieval()}
	if len(f.scope.Namespaces) > 0 {
		r.AgentID = f.scope.Namespaces[0]
	}
	byID := map[string]*factRow{}
	var results []search.Result
	for i, text := range queries {
		one := &r.PerQuery[i]
		*one = batchQuery{Query: cut(text, 500), Facts: []batchRow{}}
		res, facts, bad := s.facts(ctx, &f, text)
		if ctx.Err() != nil {
			return nil, s.asError(ctx, ctx.Err())
		}
		if bad != nil {
			one.Error = bad
			continue
		}
		one.Fuzzy = res.Fuzzy
		for n := range facts {
			byID[facts[n].ID] = &facts[n]
			if len(one.Facts) < 10 {
				one.Facts = append(one.Facts, batchRow{ID: facts[n].ID, Text: cut(facts[n].Text, 60), Score: facts[n].Score, Why: facts[n].Why})
			}
		}
		r.Index.Behind = max(r.Index.Behind, res.Behind)
		results = append(results, res)
	}
	p := newPage(len(encode(r.PerQuery)))
	seen := map[string]bool{}
	for _, h := range search.Merge(results...) {
		row := byID[h.ID]
		if row == nil || seen[row.Namespace+"\x00"+row.Text] {
			continue
		}
		seen[row.Namespace+"\x00"+row.Text] = true
		if row.Score = h.Score; !p.add(*row) {
			r.Truncated = true
			break
		}
	}
	r.Merged, r.Count, r.Note = []json.RawMessage{}, len(p.rows), f.scope.note
	return framed{r, "merged", p.rows}, nil
}
