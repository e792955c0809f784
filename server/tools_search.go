package server

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"tallystick/oplog"
	"tallystick/query"
	"tallystick/query/search"
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
