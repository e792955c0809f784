package server

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"time"

	"tallystick/oplog"
	"tallystick/query/identity"
	"tallystick/query/mailbox"
	"tallystick/query/rawmemory"
)

type turnAdded struct {
	ID        string     `json:"id"`
	SessionID string     `json:"sessionId"`
	Timestamp *string    `json:"timestamp"`
	Message   string     `json:"message"`
	Mailbox   turnUnread `json:"mailbox"`
	Replayed  bool       `json:"replayed,omitempty"`
	Invisible bool       `json:"invisible,omitempty"`
}

// turnUnread tells the writer of a turn what waits for it.
type turnUnread struct {
	Unread int64       `json:"unreadCount"`
	Latest *turnLatest `json:"latestPreview,omitempty"`
}

type turnLatest struct {
	ID      string `json:"messageId"`
	Subject string `json:"subject"`
	From    string `json:"from"`
	SentAt  string `json:"sentAt"`
}

func (s *Service) addMemory(ctx context.Context, c *call) (any, *Error) {
	t, err := rawmemory.ParseAdd(c.raw, c.id.Name+"@"+time.Now().UTC().Format(time.DateOnly))
	if err != nil {
		return nil, s.asError(ctx, err)
	}
	for i, name := range t.Identities {
		var bad *Error
		if t.Identities[i], bad = c.id.resolveMe("sourceAgentIdentities", name); bad != nil {
			return nil, bad
		}
	}
	op, err := rawmemory.NewOp(c.id.Name, t)
	if err != nil {
		return nil, s.asError(ctx, err)
	}
	op.OpID = c.op
	done, err := s.d.Log.Append(ctx, op)
	if err != nil {
		return nil, s.asError(ctx, err)
	}
	r := turnAdded{ID: rawmemory.ID(done[0].Ref), Message: "The turn is stored.", Replayed: done[0].Replayed}
	err = s.d.Log.View(func(snap oplog.Snapshot) error {
		rec, err := rawmemory.ByRef(snap, done[0].Ref, nil)
		if err != nil {
			return err
		}
		r.SessionID, r.Timestamp, r.Invisible = rec.SessionID, rec.Timestamp, rec.Invisible
		mail, err := mailbox.List(snap, mailbox.Query{Owner: c.id.Name, Status: "unread", Limit: 1})
		if err != nil {
			return err
		}
		if r.Mailbox.Unread = mail.Unread; len(mail.Messages) > 0 {
			m := mail.Messages[0]
			r.Mailbox.Latest = &turnLatest{ID: m.ID, Subject: m.Subject, From: m.From, SentAt: m.SentAt}
		}
		return nil
	})
	if err != nil {
		return nil, s.asError(ctx, committed(err, r.ID))
	}
	return r, nil
}

// who reads the agentIdentity of a call: one rule for every tool that has it.
func (s *Service) who(ctx context.Context, c *call) (identity.Filter, *Error) {
	f, err := identity.ParseFilter("agentIdentity", c.args.str("agentIdentity"), c.args.has("agentIdentity"), c.id.Name)
	if err != nil {
		return f, s.asError(ctx, err)
	}
	return f, nil
}

// withhold takes the thought out of a turn that is not the caller's own.
func withhold(r *rawmemory.Record, id Identity) {
	if r.Thought != "" && !(id.Bound && slices.Contains(r.Identities, id.Name)) {
		r.Thought, r.Withheld = "", true
	}
}

func (s *Service) getSessionMemories(ctx context.Context, c *call) (any, *Error) {
	who, bad := s.who(ctx, c)
	if bad != nil {
		return nil, bad
	}
	q := rawmemory.SessionQuery{
		Session: c.args.str("sessionId"), Filter: who, Limit: int(c.args.integer("limit", rawmemory.DefaultLimit)),
		Offset: int(c.args.integer("offset", 0)), Label: s.labeler(),
	}
	var page rawmemory.SessionPage
	err := s.d.Log.View(func(snap oplog.Snapshot) (err error) {
		page, err = rawmemory.Session(snap, q)
		return err
	})
	if err != nil {
		return nil, s.asError(ctx, err)
	}
	for i := range page.Memories {
		withhold(&page.Memories[i], c.id)
	}
	return page, nil
}

func (s *Service) queryRecentTurns(ctx context.Context, c *call) (any, *Error) {
	a := c.args
	if !a.has("agentIdentity") {
		a["agentIdentity"] = "@me"
	}
	who, bad := s.who(ctx, c)
	if bad != nil {
		return nil, bad
	}
	q := rawmemory.RecentQuery{
		Filter: who, Limit: int(a.integer("limit", rawmemory.DefaultRecent)), Detail: a.str("detail"),
		Projection: a.str("projection"), Caller: c.id.Name, Label: s.labeler(),
	}
	if a.has("before") {
		if q.Before, bad = parseBefore(a.object("before")); bad != nil {
			return nil, bad
		}
	}
	var page rawmemory.RecentPage
	err := s.d.Log.View(func(snap oplog.Snapshot) (err error) {
		page, err = rawmemory.Recent(snap, q)
		return err
	})
	if err != nil {
		return nil, s.asError(ctx, err)
	}
	return page, nil
}

// parseBefore reads the cursor object strictly: timestamp and id, text both.
func parseBefore(raw json.RawMessage) (b rawmemory.Before, bad *Error) {
	const hint = "pass next_before of the page before, {timestamp, id}"
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return b, invalid("before", hint, "before is not an object")
	}
	for name, v := range fields {
		into := &b.Timestamp
		switch name {
		case "timestamp":
		case "id":
			into = &b.ID
		default:
			e := fail(CodeUnknownField, "before", hint, "before has no field %s", quote(name))
			e.Allowed = []string{"id", "timestamp"}
			return b, e
		}
		if v = bytes.TrimSpace(v); v[0] != '"' || json.Unmarshal(v, into) != nil || *into == "" {
			return b, invalid("before", hint, "before.%s must be a string with something in it, not %s", name, jsonKind(v))
		}
	}
	if b == (rawmemory.Before{}) {
		return b, invalid("before", hint, "before is empty")
	}
	return b, nil
}
