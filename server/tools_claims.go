package server

import (
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"strings"

	"tallystick/oplog"
	"tallystick/query/claim"
	"tallystick/query/identity"
	"tallystick/query/logstream"
)

type ackResult struct {
	Outcome  string            `json:"outcome"`
	Event    *logstream.Record `json:"event,omitempty"`
	Claim    *claim.Claim      `json:"claim,omitempty"`
	Replayed bool              `json:"replayed,omitempty"`
	Note     string            `json:"note,omitempty"`

	// Where the event has got to so far; absent when nothing was appended.
	DurableOn []string `json:"durable_on,omitzero"`
	NotYet    []string `json:"not_yet,omitzero"`
}

func (s *Service) eventAck(ctx context.Context, c *call) (any, *Error) {
	a, h := c.args, s.d.Mesh.Horizon()
	in := claim.Input{
		EventID: a.str("event_id"), Status: a.str("status"), Body: a.str("body"), Topic: a.str("topic"),
		LeaseMS: a.integer("lease_ms", 0), Outlier: h.Outlier, Flagged: h.Flagged,
	}
	var op oplog.Op
	var task string
	former := s.formerFlats(c.id.Name)
	err := s.d.Log.View(func(snap oplog.Snapshot) (err error) {
		op, task, err = claim.NewOp(snap, s.d.Log.Self(), c.id.Name, in)
		if err != nil || former == nil {
			return err
		}
		// A claim that was made before this host was renamed goes on under the
		// name that it has.
		t, err := claim.Get(snap, task, h, s.labeler())
		if err == nil && t.Claim != nil && t.Claim.Origin == s.d.Mesh.Self().Label && slices.Contains(former, t.Claim.Holder) {
			op, task, err = claim.NewOp(snap, s.d.Log.Self(), t.Claim.Holder, in)
		}
		return err
	})
	if err != nil {
		return nil, s.asError(ctx, err)
	}
	op.OpID = c.op
	done, err := s.d.Log.Append(ctx, op)
	var not *claim.NotTaken
	switch {
	case errors.As(err, &not): // nothing was appended
		t, err := s.task(task)
		if err != nil {
			return nil, s.asError(ctx, err)
		}
		return ackResult{Outcome: not.Outcome, Claim: t.Claim, Note: outcomeNote[not.Outcome]}, nil
	case err != nil:
		return nil, s.asError(ctx, err)
	}
	ref := done[0].Ref
	r, err := s.record(ref)
	if err != nil {
		return nil, s.asError(ctx, err)
	}
	if in.Status == logstream.StatusClaimed && s.d.AskFloor != nil {
		s.d.AskFloor(ref)
	}
	t, err := s.task(task)
	if err != nil {
		return nil, s.asError(ctx, err)
	}
	out := ackResult{Outcome: claim.Recorded, Event: &r, Claim: t.Claim, Replayed: done[0].Replayed}
	out.DurableOn, out.NotYet = s.spread(ref)
	if in.Status == logstream.StatusClaimed {
		out.Outcome = claimOutcome(&r, &t)
	}
	out.Note = outcomeNote[out.Outcome]
	if out.Outcome == claim.Recorded && t.Closed != "" && t.Closed != r.ID {
		out.Note = "the task was closed already by " + t.Closed + " of " + t.ClosedBy + "; this ack is kept and changes nothing"
	}
	if out.Note == "" && out.Outcome == claim.Recorded && t.Closed == "" {
		gaveUp, err := s.givesUp(ref)
		if err != nil {
			return nil, s.asError(ctx, err)
		}
		out.Note = idleNote(&r, &t, gaveUp)
	}
	return out, nil
}

// givesUp reports whether an ack names a claim that it gives up.
func (s *Service) givesUp(ref oplog.Ref) (yes bool, err error) {
	err = s.d.Log.View(func(snap oplog.Snapshot) error {
		e, err := snap.Entry(ref)
		if err != nil {
			return err
		}
		raw, err := logstream.Decode(&e)
		yes = !raw.Claim.IsZero()
		return err
	})
	return yes, err
}

// idleNote says that an ack which would close a task, or give up a claim, did
// neither.
func idleNote(r *logstream.Record, t *claim.Task, gaveUp bool) string {
	if t.Request == "" && t.Claim == nil {
		return "" // no task, as far as is known here
	}
	who := "nobody holds the task"
	if t.Claim != nil {
		if t.Claim.HeldBy(r.FromAgent) && t.Claim.Origin == r.Origin && r.Status != logstream.StatusSuperseded {
			return ""
		}
		who = t.Claim.Holder + " holds it until " + t.Claim.LeaseEnds
	}
	switch r.Status {
	case logstream.StatusFailed:
		return "this ack is kept and changes nothing: only the holder's failed closes a task, and " + who
	case logstream.StatusSuperseded:
		if gaveUp {
			return ""
		}
		return "this ack is kept and changes nothing: only the requester can withdraw a task, only a claimant give up its claim, and " + who
	case logstream.StatusReady, logstream.StatusBlocked:
		return "this ack is kept and does not touch the claim: " + who
	}
	return ""
}

// claimOutcome says what a claim that was appended is worth now. It was won
// when it was written; of a repeat much later, or when a peer's earlier claim
// has arrived since, the present state is told.
func claimOutcome(r *logstream.Record, t *claim.Task) string {
	switch {
	case t.Claim != nil && t.Claim.Event == r.ID:
		return claim.Won
	case t.Claim != nil && t.Claim.HeldBy(r.FromAgent) && t.Claim.Origin == r.Origin:
		return claim.Joined
	case t.Closed != "":
		return claim.Closed
	case t.Claim != nil:
		return claim.Superseded
	}
	return claim.Expired
}

var outcomeNote = map[string]string{
	claim.Held:       "another identity holds the task; leave it or wait until lease_ends",
	claim.Superseded: "an earlier claim of another identity counts; stop working on the task",
	claim.Closed:     "the task is closed; nothing is to be done",
	claim.Expired:    "the task or the claim has expired",
}

// task reads the present state of a task. The horizon is read first: what is
// below its floors is then in the views.
func (s *Service) task(key string) (t claim.Task, err error) {
	h := s.d.Mesh.Horizon()
	err = s.d.Log.View(func(snap oplog.Snapshot) (err error) {
		t, err = claim.Get(snap, key, h, s.labeler())
		return err
	})
	return t, err
}

type claimResult struct {
	Claims     any    `json:"claims"`
	Count      int    `json:"count"`
	HasMore    bool   `json:"has_more"`
	Truncated  bool   `json:"truncated,omitempty"`
	NextCursor string `json:"next_cursor,omitempty"`
	Note       string `json:"note,omitempty"`
}

func (s *Service) claimList(ctx context.Context, c *call) (any, *Error) {
	a := c.args
	who, err := identity.ParseFilter("identity", a.str("identity"), a.has("identity"), c.id.Name)
	if err != nil {
		return nil, s.asError(ctx, err)
	}
	after, bad := claimPlace(a.str("cursor"))
	if bad != nil {
		return nil, bad
	}
	h := s.d.Mesh.Horizon()
	var all claim.Page
	err = s.d.Log.View(func(snap oplog.Snapshot) (err error) {
		f := claim.Filter{Identity: who.Identity, Correlation: a.str("correlation_id"), Stream: a.str("stream"), Limit: claim.MaxLimit,
			Formerly: s.formerFlats(who.Identity), Host: s.d.Mesh.Self().Label}
		all, err = claim.List(snap, f, h, s.labeler())
		return err
	})
	if err != nil {
		return nil, s.asError(ctx, err)
	}
	p := newPage(256)
	out := claimResult{}
	last := after
	for i := range all.Claims {
		row := &all.Claims[i]
		if place := placeOf(row); after != "" && place <= after {
			continue
		}
		if !p.add(row) {
			out.HasMore, out.Truncated = true, true
			out.NextCursor = base64.RawURLEncoding.EncodeToString([]byte(claimCursor + last))
			break
		}
		last = placeOf(row)
	}
	if all.HasMore && !out.HasMore {
		out.HasMore, out.Truncated = true, true
		out.Note = "more claims are live than one listing shows; name identity, stream or correlation_id"
	}
	out.Claims, out.Count = p.rows, len(p.rows)
	if out.Count == 0 && out.Note == "" {
		out.Note, err = s.unheard(c.id.Name, who.Identity)
	}
	return out, s.asError(ctx, err)
}

const claimCursor = "claims 1 "

// placeOf orders claims as they are listed: by stamp, padded so that text
// order is the order of numbers, then by id.
func placeOf(c *claim.Claim) string {
	return strings.Repeat("0", max(0, 20-len(c.Fence))) + c.Fence + " " + c.Event
}

func claimPlace(cursor string) (string, *Error) {
	if cursor == "" {
		return "", nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	place, ok := strings.CutPrefix(string(b), claimCursor)
	if err != nil || !ok || len(place) < 21 {
		return "", fail(CodeUnknownCursor, "cursor", "start again without it", "cursor is not one of claim_list")
	}
	return place, nil
}
