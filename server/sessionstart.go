package server

import (
	"context"
	"time"

	"tallystick/oplog"
	"tallystick/query/claim"
	"tallystick/query/identity"
	"tallystick/query/logstream"
	"tallystick/query/mailbox"
	"tallystick/query/summary"
)

// SessionStart is what an agent should know when it begins: read in one call,
// from indexes, so that a hook costs next to nothing however long the log is.
type SessionStart struct {
	Identity  string           `json:"identity"`
	Replica   string           `json:"replica"`
	Note      string           `json:"note,omitempty"` // why there is no identity
	Unread    int64            `json:"unread"`         // mail
	Requests  []StartRequest   `json:"requests"`       // open tasks for this identity that nobody holds, newest first
	Claims    []claim.Claim    `json:"claims"`         // open, of this identity
	Summaries []summary.Record `json:"summaries"`      // own, newest first
	Stale     []StalePeer      `json:"stale"`
	OldNames  []oldName        `json:"old_names,omitempty"`

	MoreClaims   bool `json:"more_claims,omitempty"`   // more are open than are shown
	MoreRequests bool `json:"more_requests,omitempty"` // more wait than are shown
}

// StartRequest is a task that waits for somebody.
type StartRequest struct {
	ID   string `json:"id"`
	From string `json:"from"`
	Task string `json:"task,omitempty"`
	Body string `json:"body"` // its beginning
}

// StalePeer is a replica whose state may be long out of date here.
type StalePeer struct {
	Label    string `json:"label"`
	LastSeen string `json:"last_seen,omitempty"` // empty: never
	Ahead    uint64 `json:"entries_ahead,string,omitempty"`
}

// Limits of a session's start. It is read into a model's context.
const (
	startClaims    = 10
	startSummaries = 3
	startRequests  = 5
	startLook      = 30 // requests looked at for open ones
	staleAfter     = 24 * time.Hour
)

// SessionStart gathers it.
func (s *Service) SessionStart(ctx context.Context, session Session) (SessionStart, *Error) {
	id, bad := s.bind(session)
	if bad != nil {
		return SessionStart{}, bad
	}
	r := SessionStart{
		Identity: id.Name, Replica: s.d.Mesh.Self().Label,
		Requests: []StartRequest{}, Claims: []claim.Claim{}, Summaries: []summary.Record{}, Stale: []StalePeer{},
	}
	if id.why != nil {
		r.Note = id.why.Error()
	}
	st, err := s.d.Mesh.Status(ctx)
	if err != nil {
		return r, s.asError(ctx, err)
	}
	h := s.d.Mesh.Horizon()
	for _, p := range st.Peers {
		if p.Reachable || !p.LastSeen.IsZero() && h.Now.Sub(p.LastSeen) < staleAfter {
			continue
		}
		row := StalePeer{Label: p.Label, Ahead: p.EntriesAhead}
		if !p.LastSeen.IsZero() {
			row.LastSeen = timeText(p.LastSeen)
		}
		r.Stale = append(r.Stale, row)
	}
	if st.Note != "" && r.Note == "" {
		r.Note = st.Note
	}
	if !id.Bound {
		return r, nil
	}
	err = s.d.Log.View(func(snap oplog.Snapshot) error {
		counts, err := mailbox.CountsOf(snap, id.Name)
		if err != nil {
			return err
		}
		r.Unread = counts.Unread
		claims, err := claim.List(snap, claim.Filter{Identity: id.Name, Limit: startClaims, Formerly: s.formerFlats(id.Name), Host: r.Replica}, h, s.labeler())
		if err != nil {
			return err
		}
		r.Claims, r.MoreClaims = claims.Claims, claims.HasMore
		own, err := summary.List(snap, summary.Query{Filter: identity.Filter{Identity: id.Name}, Limit: startSummaries, Label: s.labeler()})
		if err != nil {
			return err
		}
		r.Summaries = append(r.Summaries, own.Summaries...)
		r.Requests, err = s.openRequests(snap, id.Name, h)
		if len(r.Requests) > startRequests {
			r.Requests, r.MoreRequests = r.Requests[:startRequests], true
		}
		return err
	})
	if err != nil {
		return r, s.asError(ctx, err)
	}
	if r.OldNames, err = s.oldNames(); err != nil {
		return r, s.asError(ctx, err)
	}
	return r, nil
}

// openRequests finds what waits for an identity among the latest requests to
// it and to everybody, one more than is shown.
func (s *Service) openRequests(snap oplog.Snapshot, name string, h claim.Horizon) ([]StartRequest, error) {
	page, err := logstream.List(snap, logstream.Filter{
		To: []string{name}, Types: []string{logstream.TypeRequest}, ExcludeWriter: name, Limit: startLook, Preview: true, Replica: s.d.Log.Self().ID,
	})
	if err != nil {
		return nil, err
	}
	out := []StartRequest{}
	for i := range page.Events {
		ev := &page.Events[i]
		e, err := logstream.Find(snap, "event_id", ev.ID)
		if err != nil {
			return nil, err
		}
		key, err := claim.TaskKeyOf(&e)
		if err != nil {
			return nil, err
		}
		t, err := claim.Get(snap, key, h, nil)
		if err != nil {
			return nil, err
		}
		if !t.Open || t.Claim != nil {
			continue
		}
		if out = append(out, StartRequest{ID: ev.ID, From: ev.FromAgent, Task: ev.Correlation, Body: ev.Body}); len(out) > startRequests {
			break
		}
	}
	return out, nil
}
