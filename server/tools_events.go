package server

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"tallystick/hlc"
	"tallystick/oplog"
	"tallystick/query"
	"tallystick/query/artifact"
	"tallystick/query/claim"
	"tallystick/query/logstream"
	"tallystick/query/refusal"
)

type appendResult struct {
	Event     logstream.Record `json:"event"`
	DurableOn []string         `json:"durable_on"`
	NotYet    []string         `json:"not_yet"`
	Replayed  bool             `json:"replayed"`
	Note      string           `json:"note,omitempty"`
}

func (s *Service) eventAppend(ctx context.Context, c *call) (any, *Error) {
	a := c.args
	to, bad := c.id.recipient(a, "to_agent")
	if bad != nil {
		return nil, bad
	}
	ev := logstream.Event{
		Type: a.str("type"), Stream: a.str("stream"), Room: a.str("room"), Topic: a.str("topic"), To: to,
		Correlation: a.str("correlation_id"), Branch: a.str("branch"), BaseCommit: a.str("base_commit"),
		Status: a.str("status"), Body: a.str("body"), Metadata: a.object("metadata"), ArtifactIDs: a.list("artifact_ids"),
	}
	if a.has("expires_at") {
		t, err := logstream.ParseTime("expires_at", a.str("expires_at"))
		if err != nil {
			return nil, s.asError(ctx, err)
		}
		ev.ExpiresAt = t.UnixMilli()
	}
	op, err := logstream.NewOp(c.id.Name, ev)
	if err != nil {
		return nil, s.asError(ctx, err)
	}
	op.OpID = c.op
	op.Guard = func(views oplog.Views, stamp hlc.Timestamp) error {
		if ev.ExpiresAt != 0 {
			if err := expiresLater(ev.ExpiresAt)(views, stamp); err != nil {
				return err
			}
		}
		return artifact.CheckKnown(views, "artifact_ids", ev.ArtifactIDs)
	}
	done, err := s.d.Log.Append(ctx, op)
	if err != nil {
		return nil, s.asError(ctx, err)
	}
	r, err := s.record(done[0].Ref)
	if err != nil {
		return nil, s.asError(ctx, err)
	}
	out := appendResult{Event: r, Replayed: done[0].Replayed}
	out.DurableOn, out.NotYet = s.spread(done[0].Ref)
	out.Note, err = s.unheard(c.id.Name, to)
	return out, s.asError(ctx, err)
}

// expiresLater refuses what would have expired when it is stamped. A repeat
// with the same idempotency key is answered before it is asked.
func expiresLater(ms int64) func(oplog.Views, hlc.Timestamp) error {
	return func(_ oplog.Views, stamp hlc.Timestamp) error {
		if hlc.New(ms, 0) > stamp {
			return nil
		}
		return refusal.Invalid("expires_at", "use a time that is still to come, or leave it out", "expires_at is %s, which is past: it is %s now",
			logstream.FormatTime(time.UnixMilli(ms)), logstream.FormatTime(stamp.Time()))
	}
}

// spread never gives nil lists: they become JSON.
func (s *Service) spread(ref oplog.Ref) (durableOn, notYet []string) {
	durableOn, notYet = s.d.Mesh.Spread(ref)
	return append([]string{}, durableOn...), append([]string{}, notYet...)
}

// record reads one event as clients see it.
func (s *Service) record(ref oplog.Ref) (r logstream.Record, err error) {
	err = s.d.Log.View(func(snap oplog.Snapshot) error {
		e, err := snap.Entry(ref)
		if err != nil {
			return fmt.Errorf("read what was appended: %w", err)
		}
		r, err = logstream.NewRecord(snap, &e, s.labeler())
		return err
	})
	return r, err
}

type listResult struct {
	logstream.Page
	Note string `json:"note,omitempty"`
}

const fromNote = "from_agent says who you are and does not filter; use writer to filter by author"

func (s *Service) eventList(ctx context.Context, c *call) (any, *Error) {
	f, bad := s.filter(ctx, c)
	if bad != nil {
		return nil, bad
	}
	a := c.args
	f.BeforeEventID, f.Order, f.Preview = a.str("before_event_id"), a.str("order"), a.boolean("preview")
	page, err := s.list(f)
	if err != nil {
		return nil, s.asError(ctx, err)
	}
	r := listResult{Page: page}
	if a.has("from_agent") {
		r.Note = fromNote
	}
	return r, nil
}

// list gives one page of events. An inbox also shows, as computed rows, the
// losses of its owner that no ack tells of yet. Nearly always there are none;
// only else is the horizon worth asking for, and it is read before the view
// that it judges.
func (s *Service) list(f logstream.Filter) (page logstream.Page, err error) {
	look := func(h claim.Horizon) error {
		return s.d.Log.View(func(snap oplog.Snapshot) (err error) {
			page, err = query.Events(snap, f, h)
			return err
		})
	}
	if err = look(claim.Horizon{}); err != nil || len(page.Events) == 0 || !page.Events[0].Computed {
		return page, err
	}
	err = look(s.d.Mesh.Horizon())
	// The computed rows come on top of a page that may be full.
	for n := page.Count / 2; err == nil && n > 0 && len(encode(page)) > pageBytes; n /= 2 {
		f.Limit = n
		err = look(s.d.Mesh.Horizon())
	}
	return page, err
}

// filter makes the filter that event_list and event_wait share.
func (s *Service) filter(ctx context.Context, c *call) (logstream.Filter, *Error) {
	a := c.args
	f := logstream.Filter{
		Stream: a.str("stream"), Room: a.str("room"), Topic: a.str("topic"),
		Correlation: a.str("correlation_id"), Status: a.str("status"),
		Cursor: a.str("cursor"), SinceEventID: a.str("since_event_id"),
		Limit:   int(a.integer("limit", defaultLimit)),
		Replica: s.d.Log.Self().ID, Label: s.labeler(),
		Types: values(a, "type"),
	}
	for _, to := range values(a, "to_agent") {
		name, bad := c.id.resolveMe("to_agent", to)
		if bad != nil {
			return f, bad
		}
		f.To = append(f.To, name)
	}
	writer, bad := c.id.resolveMe("writer", a.str("writer"))
	if bad != nil {
		return f, bad
	}
	f.Writer = writer
	if a.has("since_created_at") {
		t, err := logstream.ParseTime("since_created_at", a.str("since_created_at"))
		if err != nil {
			return f, s.asError(ctx, err)
		}
		f.SinceCreated = t
	}
	return f, nil
}

// values reads a field that is one token or a list of them.
func values(a arguments, name string) []string {
	if s := a.str(name); s != "" {
		return []string{s}
	}
	return a.list(name)
}

type waitResult struct {
	TimedOut   bool               `json:"timed_out"`
	Events     []logstream.Record `json:"events"`
	Count      int                `json:"count"`
	HasMore    bool               `json:"has_more"`
	Truncated  bool               `json:"truncated,omitempty"`
	NextCursor string             `json:"next_cursor"`
	Note       string             `json:"note,omitempty"`
}

func (s *Service) eventWait(ctx context.Context, c *call) (any, *Error) {
	f, bad := s.filter(ctx, c)
	if bad != nil {
		return nil, bad
	}
	if w := c.args.str("exclude_writer"); w != "" {
		if f.ExcludeWriter, bad = c.id.resolveMe("exclude_writer", w); bad != nil {
			return nil, bad
		}
	}
	page, timedOut, bad := s.wait(ctx, f, time.Duration(c.args.integer("timeout_ms", defWaitMS))*time.Millisecond, false)
	if bad != nil {
		return nil, bad
	}
	if page.Events == nil {
		page.Events = []logstream.Record{}
	}
	r := waitResult{TimedOut: timedOut, Events: page.Events, Count: page.Count, HasMore: page.HasMore, Truncated: page.Truncated, NextCursor: page.NextCursor}
	if c.args.has("from_agent") {
		r.Note = fromNote
	}
	return r, nil
}

// wait returns the first page that is not empty, or an empty one when the
// time is over. It sleeps until an event arrives that may be for it; each look
// goes on where the last one ended. With progress it also returns when it has
// only got further.
func (s *Service) wait(ctx context.Context, f logstream.Filter, d time.Duration, progress bool) (logstream.Page, bool, *Error) {
	select {
	case s.waits <- struct{}{}:
		defer func() { <-s.waits }()
	default:
		return logstream.Page{}, false, fail(CodeBusy, "", "try again in a second", "%d calls are waiting for events already", cap(s.waits))
	}
	var wake chan struct{}
	if d > 0 {
		w, err := s.hub.join(f, progress)
		if err != nil {
			return logstream.Page{}, false, s.asError(ctx, err)
		}
		defer s.hub.leave(w)
		wake = w.wake
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	for last := d == 0; ; {
		s.looks.Add(1)
		page, err := s.list(f)
		if err != nil {
			return logstream.Page{}, false, s.asError(ctx, err)
		}
		if page.Count > 0 || last || progress && page.NextCursor != f.Cursor {
			return page, page.Count == 0 && last, nil
		}
		if page.NextCursor != "" {
			f.Cursor, f.SinceEventID = page.NextCursor, ""
		}
		s.hub.ensure()
		select {
		case <-wake:
		case <-timer.C:
			last = true // a last look, so that the cursor is past what was not for it
		case <-ctx.Done():
			return logstream.Page{}, false, s.asError(ctx, ctx.Err())
		}
	}
}

// Watch gives each batch of events that matches to fn until ctx ends, which
// is no error, or fn fails. It begins where the cursor says; without one at
// the end of the log, after an empty first batch that tells the cursor.
func (s *Service) Watch(ctx context.Context, q WatchRequest, fn func(batch json.RawMessage) error) *Error {
	return s.watch(ctx, q, func(p *logstream.Page) error {
		return fn(encode(waitResult{Events: p.Events, Count: p.Count, HasMore: p.HasMore, Truncated: p.Truncated, NextCursor: p.NextCursor}))
	}, nil)
}

// watch is Watch in pages. ready is called once all that was asked is found to
// be right, before the first page.
func (s *Service) watch(ctx context.Context, q WatchRequest, fn func(*logstream.Page) error, ready func()) *Error {
	id, bad := s.bind(q.Session)
	if bad != nil {
		return bad
	}
	a, bad := toolByName("event_wait").decode(q.Args)
	if bad != nil {
		return bad
	}
	c := &call{id: id, args: a}
	f, bad := s.filter(ctx, c)
	if bad != nil {
		if bad.Code == CodeIdentityUnbound && id.why != nil {
			return id.why
		}
		return bad
	}
	if q.ExcludeWriter != "" {
		if f.ExcludeWriter, bad = id.resolveMe("exclude_writer", strings.TrimSpace(q.ExcludeWriter)); bad != nil {
			return bad
		}
	}
	placed := f.Cursor != "" || f.SinceEventID != "" || !f.SinceCreated.IsZero()
	switch {
	case q.FromStart && !placed:
		f.Order = "asc"
	case !placed:
		err := s.d.Log.View(func(snap oplog.Snapshot) (err error) {
			f.Cursor, err = logstream.Tail(snap, f.Replica)
			return err
		})
		if err != nil {
			return s.asError(ctx, err)
		}
	}
	first := true
	for {
		d := maxWaitMS * time.Millisecond
		if first {
			d = 0 // finds out whether the filter and the cursor are right
		}
		page, timedOut, bad := s.wait(ctx, f, d, q.Progress)
		if bad != nil {
			if ctx.Err() != nil && bad.Code != CodeUnreachable {
				return nil
			}
			return bad
		}
		if first && ready != nil {
			ready()
		}
		if f.Cursor != "" && !placed && first { // the end of the log is worth telling
			timedOut = false
		}
		if q.Progress && (first || page.NextCursor != f.Cursor) {
			timedOut = false
		}
		first = false
		if page.NextCursor != "" {
			f.Cursor, f.SinceEventID = page.NextCursor, ""
		}
		if !page.HasMore {
			f.Order = ""
		}
		if timedOut {
			continue
		}
		if fn(&page) != nil {
			return nil
		}
	}
}
