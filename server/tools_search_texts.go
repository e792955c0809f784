package server

import (
	"context"
	"encoding/json"
	"errors"

	"tallystick/oplog"
	"tallystick/query"
	"tallystick/query/identity"
	"tallystick/query/rawmemory"
	"tallystick/query/search"
	"tallystick/query/summary"
)

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
