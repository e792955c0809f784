package server

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"

	"tallystick/oplog"
	"tallystick/query"
	"tallystick/query/identity"
	"tallystick/query/memory"
	"tallystick/query/rawmemory"
	"tallystick/query/search"
	"tallystick/query/summary"
)

// Searcher finds documents of the log. *search.Index is one.
type Searcher interface {
	Search(ctx context.Context, q search.Query) (search.Result, error)
	Status() search.Status
}

const (
	maxQueryBytes  = 8 << 10
	maxQueries     = search.MaxBatch
	maxResults     = 100
	defaultTopK    = 8
	defaultResults = 10
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

// about is what every answer of a search says of itself.
type about struct {
	Fuzzy   bool     `json:"fuzzy"`             // nothing matched; what is shown is spelt alike
	Missing []string `json:"missing,omitempty"` // words of the query that nothing here holds
	Notes   []string `json:"notes,omitempty"`
	Index   indexRow `json:"index"`
}

// indexRow says how far the index is.
type indexRow struct {
	Behind uint64 `json:"behind"` // entries it has not seen yet
}

func (r *about) take(res *search.Result) {
	r.Fuzzy, r.Missing, r.Notes = res.Fuzzy, res.Missing, res.Notes
	r.behind(res.Behind)
}

func (r *about) behind(n uint64) {
	if r.Index.Behind = max(r.Index.Behind, n); n > 0 {
		r.Notes = append(r.Notes, "the search index is still catching up with the log; what is missing may turn up in a moment")
	}
}

func (s *Service) find(ctx context.Context, q search.Query) (search.Result, *Error) {
	if s.d.Search == nil {
		return search.Result{}, fail(CodeBusy, "", "read with the tools that list, such as get_all_summaries", "this replica has no search index")
	}
	res, err := s.d.Search.Search(ctx, q)
	if err != nil {
		return search.Result{}, s.asError(ctx, err)
	}
	return res, nil
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

type found struct {
	Query     string            `json:"query"`
	Count     int               `json:"count"`
	Results   []json.RawMessage `json:"results"`
	HasMore   bool              `json:"has_more,omitempty"`
	Truncated bool              `json:"truncated,omitempty"`
	about
	Sharing string `json:"memorySharing,omitempty"` // what applied, when it was asked for
	Note    string `json:"note,omitempty"`
}

// Policies of memorySharing, from narrow to wide. They narrow one call; there
// is no wider or narrower default to set, since every replica holds everything
// and belongs to one person.
const (
	sharingPrivate = "private" // rows that the caller has a part in
	sharingLegacy  = "legacy"  // those and rows that name nobody
	sharingTeam    = "team"    // every row: the default
)

// sharingOf narrows a filter by memorySharing, which is another thing than
// agentIdentity: both hold. An unknown policy counts as team, and the answer
// says so.
func sharingOf(c *call, f *search.Filter) (policy, note string, bad *Error) {
	if !c.args.has("memorySharing") {
		return "", "", nil
	}
	policy = c.args.str("memorySharing")
	switch policy {
	case sharingTeam:
		return policy, "", nil
	case sharingPrivate, sharingLegacy:
	default:
		return sharingTeam, "memorySharing " + quote(policy) + " is not private, legacy or team: it was clamped to team", nil
	}
	if !c.id.Bound {
		return "", "", fail(CodeIdentityUnbound, "memorySharing", "use team, or start the server with --agent NAME",
			"memorySharing is %s, but this session is bound to no identity", policy)
	}
	f.Owner, f.OrNobodys = c.id.Name, policy == sharingLegacy
	return policy, "", nil
}

// relevance is upstream's pair of numbers: distance falls, relevance rises with
// the score.
type relevance struct {
	Distance  float64 `json:"distance"`
	Relevance float64 `json:"relevanceScore"`
	Why       string  `json:"why"`
}

func relevanceOf(h *search.Hit) relevance {
	d := 1 / max(h.Score, 1e-9)
	return relevance{Distance: d, Relevance: 1 / (1 + d), Why: h.Why.String()}
}

func (s *Service) querySummaries(ctx context.Context, c *call) (any, *Error) {
	q := search.Query{Filter: search.Filter{Kinds: []string{query.DocSummary}}}
	if v := c.args.str("category"); v != "" {
		q.Filter.Categories = []string{v}
	}
	label := s.labeler()
	return s.queryKind(ctx, c, q,
		func(snap oplog.Snapshot, h *search.Hit) (any, error) {
			rec, err := summary.ByRef(snap, h.Ref, label)
			return struct {
				summary.Record
				relevance
			}{rec, relevanceOf(h)}, err
		},
		func(snap oplog.Snapshot, who identity.Filter) (string, error) {
			page, err := summary.List(snap, summary.Query{Filter: who, Limit: 1})
			return page.Note, err
		})
}

func (s *Service) queryRawMemories(ctx context.Context, c *call) (any, *Error) {
	q := search.Query{Filter: search.Filter{Kinds: []string{query.DocTurn}}}
	if c.args.has("sessionId") {
		q.Filter.Sessions = []string{c.args.str("sessionId")}
	}
	label := s.labeler()
	return s.queryKind(ctx, c, q,
		func(snap oplog.Snapshot, h *search.Hit) (any, error) {
			rec, err := rawmemory.ByRef(snap, h.Ref, label)
			withhold(&rec, c.id)
			return struct {
				rawmemory.Record
				relevance
			}{rec, relevanceOf(h)}, err
		},
		func(snap oplog.Snapshot, who identity.Filter) (string, error) {
			page, err := rawmemory.Recent(snap, rawmemory.RecentQuery{Filter: who, Limit: 1})
			return page.Note, err
		})
}

// queryKind searches records of one kind, scoped by agentIdentity.
func (s *Service) queryKind(ctx context.Context, c *call, q search.Query, row func(oplog.Snapshot, *search.Hit) (any, error),
	note func(oplog.Snapshot, identity.Filter) (string, error)) (any, *Error) {
	who, bad := s.who(ctx, c)
	if bad != nil {
		return nil, bad
	}
	sharing, clamped, bad := sharingOf(c, &q.Filter)
	if bad != nil {
		return nil, bad
	}
	if !who.All {
		q.Filter.Identities = []string{who.Identity}
	}
	q.Text, q.Limit = c.args.str("query"), int(c.args.integer("nResults", defaultResults))
	res, bad := s.find(ctx, q)
	if bad != nil {
		return nil, bad
	}
	r := found{Query: q.Text, HasMore: res.More, Sharing: sharing}
	r.take(&res)
	if clamped != "" {
		r.Notes = append(r.Notes, clamped)
	}
	p := newPage(len(q.Text))
	err := s.d.Log.View(func(snap oplog.Snapshot) (err error) {
		for i := range res.Hits {
			v, err := row(snap, &res.Hits[i])
			if errors.Is(err, oplog.ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			if !p.add(v) {
				r.HasMore, r.Truncated = true, true
				break
			}
		}
		if len(p.rows) == 0 {
			r.Note, err = note(snap, who)
		}
		return err
	})
	if err != nil {
		return nil, s.asError(ctx, err)
	}
	r.Results, r.Count = []json.RawMessage{}, len(p.rows)
	return framed{r, "results", p.rows}, nil
}

// docKinds are the words for kinds of document in a search.
var docKinds = map[string]string{
	"fact": query.DocFact, "turn": query.DocTurn, "summary": query.DocSummary, "event": query.DocEvent, "ack": query.DocAck, "mail": query.DocMail,
}

// SearchKinds lists what the tool search looks through.
func SearchKinds() []string { return slices.Clone(docKindNames) }

var docKindNames = []string{"fact", "turn", "summary", "event", "ack", "mail"}

type foundAll struct {
	found
	scope
}

type foundRow struct {
	ID        string   `json:"id"`
	Kind      string   `json:"kind"`
	Title     string   `json:"title,omitempty"`
	Text      string   `json:"text"` // its beginning
	Where     string   `json:"where,omitempty"`
	Category  string   `json:"category,omitempty"`
	Whose     []string `json:"identities"`
	Timestamp *string  `json:"timestamp"`
	Score     float64  `json:"score"`
	Why       string   `json:"why"`
	Invisible bool     `json:"invisible,omitempty"`
}

// searchAll searches every kind. Facts keep their own scope: those of the
// caller and of everybody, unless more is asked for.
func (s *Service) searchAll(ctx context.Context, c *call) (any, *Error) {
	a := c.args
	who, bad := s.who(ctx, c)
	if bad != nil {
		return nil, bad
	}
	kinds := a.list("kinds")
	if len(kinds) == 0 {
		kinds = docKindNames
	}
	var facts bool
	other := []string{}
	for _, k := range kinds {
		doc, ok := docKinds[k]
		switch {
		case !ok:
			e := invalid("kinds", "use some of the allowed values", "kinds contains %s", quote(k))
			e.Allowed = docKindNames
			return nil, e
		case k == "fact":
			facts = true
		case k == "mail" && !c.id.Bound:
		default:
			other = append(other, doc)
		}
	}
	q := search.Query{Text: a.str("query"), Limit: int(a.integer("limit", defaultResults)), Collapse: true}
	for field, into := range map[string]*time.Time{"after": &q.Filter.After, "before": &q.Filter.Before} {
		if v := a.str(field); v != "" {
			t, err := search.ParseTime(field, v)
			if err != nil {
				return nil, s.asError(ctx, err)
			}
			*into = t
		}
	}
	if v := a.str("category"); v != "" {
		q.Filter.Categories = []string{v}
	}
	r := foundAll{scope: scope{Name: "all", Namespaces: []string{}}}
	r.Query = q.Text
	var results []search.Result
	ask := func(q search.Query) *Error {
		res, bad := s.find(ctx, q)
		if bad != nil {
			return bad
		}
		results = append(results, res)
		r.HasMore = r.HasMore || res.More
		return nil
	}
	if facts && (c.id.Bound || a.has("agentIdentity")) {
		if r.scope, bad = s.factScope(ctx, c); bad != nil {
			return nil, bad
		}
		fq := q
		fq.Filter.Kinds, fq.Filter.Namespaces = []string{query.DocFact}, r.scope.filter()
		if bad := ask(fq); bad != nil {
			return nil, bad
		}
	}
	if len(other) > 0 {
		oq := q
		oq.Filter.Kinds = other
		if !who.All {
			oq.Filter.Identities = []string{who.Identity}
		}
		if bad := ask(oq); bad != nil {
			return nil, bad
		}
	}
	// What is only spelt alike does not stand beside what matches.
	if exact := slices.DeleteFunc(slices.Clone(results), func(r search.Result) bool { return r.Fuzzy || len(r.Hits) == 0 }); len(exact) > 0 {
		results = exact
	}
	for i := range results {
		if i == 0 {
			r.take(&results[i])
			continue
		}
		r.Missing = slices.DeleteFunc(r.Missing, func(w string) bool { return !slices.Contains(results[i].Missing, w) })
		r.behind(results[i].Behind)
	}
	hits := search.Merge(results...)
	if len(hits) > q.Limit {
		hits, r.HasMore = hits[:q.Limit], true
	}
	p := newPage(len(q.Text))
	err := s.d.Log.View(func(snap oplog.Snapshot) error {
		for i := range hits {
			row, err := foundRowOf(snap, &hits[i])
			if errors.Is(err, oplog.ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			if !p.add(row) {
				r.HasMore, r.Truncated = true, true
				break
			}
		}
		return nil
	})
	if err != nil {
		return nil, s.asError(ctx, err)
	}
	r.Results, r.Count = []json.RawMessage{}, len(p.rows)
	return framed{r, "results", p.rows}, nil
}
