package merges

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"tallystick/oplog"
	"tallystick/query/carried"
	"tallystick/query/claim"
	"tallystick/query/imported"
	"tallystick/query/logstream"
	"tallystick/query/memory"
	"tallystick/query/refusal"
)

// claims are claims that lost.
type claims struct{}

func (claims) Kind() string { return "claim" }

func (claims) List(snap oplog.Snapshot, env Env, after []byte, limit int) (list []Merge, next []byte, err error) {
	losses, next, err := claim.LossPage(snap, env.Horizon, after, limit)
	if err != nil {
		return nil, nil, err
	}
	for _, l := range losses {
		m := Merge{ID: l.Claim, Kind: "claim", About: l.Task, Rule: l.Rule, Grade: l.Grade,
			Undo: l.WonBy + " gives the task up, then " + l.Loser + " claims anew; both by this id"}
		if l.Rule != claim.RuleEarliest.String() {
			m.Undo = "not: the task is closed or has expired"
		}
		if m.Lost, err = eventSide(snap, l.Claim); err != nil {
			return nil, nil, err
		}
		if m.Kept, err = eventSide(snap, l.Winner); err != nil {
			return nil, nil, err
		}
		list = append(list, m)
	}
	return list, next, nil
}

func (claims) Undo(snap oplog.Snapshot, env Env, author, id string) (u Undo, ok bool, err error) {
	e, ok, err := event(snap, id, logstream.KindAck)
	if err != nil || !ok {
		return u, false, err
	}
	if _, isCopy, err := logstream.CountsFor(snap, &e); err != nil || isCopy {
		return u, false, err
	}
	op, what, err := claim.UndoLoss(snap, env.Self, author, id, &env.Horizon)
	return Undo{Ops: []oplog.Op{op}, What: what}, true, err
}

// event finds an event or ack by its id; ok is false when there is none, or
// its kind is another.
func event(snap oplog.Snapshot, id string, kinds ...string) (e oplog.Entry, ok bool, err error) {
	if !strings.HasPrefix(id, "evt_") {
		return e, false, nil
	}
	e, err = logstream.Find(snap, "id", id)
	if refusal.CodeOf(err) == refusal.NotFound {
		return e, false, nil
	}
	for _, k := range kinds {
		ok = ok || e.Kind == k
	}
	return e, ok && e.Present(), err
}

func eventSide(snap oplog.Snapshot, id string) (s Side, err error) {
	e, err := logstream.Find(snap, "id", id)
	if err != nil {
		return s, err
	}
	if !e.Present() { // erased
		return Side{ID: id, Author: e.Author, HLC: e.Ref().Stamp().String(), At: logstream.FormatTime(carried.Stamp(&e).Time())}, nil
	}
	r, err := logstream.NewRecord(snap, &e, nil)
	if err != nil {
		return s, err
	}
	what := r.Body
	if r.Status != "" {
		what = r.Status + " " + what
	}
	return Side{ID: id, Author: r.FromAgent, HLC: r.HLC, At: r.CreatedAt, What: cut(strings.TrimSpace(what))}, nil
}

const ruleImport = "earliest_copy_of_an_imported_row_counts"

// events are copies of imported events, and automatic notices written twice.
type events struct{}

func (events) Kind() string { return "import" }

func (events) List(snap oplog.Snapshot, _ Env, after []byte, limit int) (list []Merge, next []byte, err error) {
	copies, next, err := logstream.CopyPage(snap, after, limit)
	if err != nil {
		return nil, nil, err
	}
	for _, c := range copies {
		m := Merge{ID: logstream.EventID(c.Copy), Kind: "import", Rule: ruleImport}
		a, err := snap.Entry(c.Copy)
		if err != nil {
			return nil, nil, fmt.Errorf("merges: copy: %w", err)
		}
		b, err := snap.Entry(c.Counts)
		if err != nil {
			return nil, nil, fmt.Errorf("merges: what counts: %w", err)
		}
		if m.Same, m.About, err = sameEvent(&a, &b); err != nil {
			return nil, nil, err
		}
		if m.Lost, err = eventSide(snap, m.ID); err != nil {
			return nil, nil, err
		}
		if m.Kept, err = eventSide(snap, logstream.EventID(c.Counts)); err != nil {
			return nil, nil, err
		}
		m.Undo = undoImport(m.Same)
		list = append(list, m)
	}
	return list, next, nil
}

func undoImport(same bool) string {
	if same {
		return "not needed: both say the same"
	}
	return "anybody appends the copy's content as an entry of its own"
}

func sameEvent(a, b *oplog.Entry) (same bool, about string, err error) {
	if !a.Present() || !b.Present() {
		return false, "", nil // erased
	}
	raw, err := logstream.Decode(a)
	if err != nil {
		return false, "", err
	}
	about = aboutKey(raw.Import)
	if raw.Automatic {
		about = "notice of a lost claim"
	}
	return raw.Automatic || bytes.Equal(a.Body, b.Body), about, nil
}

func aboutKey(k imported.Key) string { return k.Source + " " + k.ID + " " + k.Part }

func (events) Undo(snap oplog.Snapshot, env Env, author, id string) (u Undo, ok bool, err error) {
	e, ok, err := event(snap, id, logstream.KindEvent, logstream.KindAck)
	if err != nil || !ok {
		return u, false, err
	}
	counts, isCopy, err := logstream.CountsFor(snap, &e)
	if err != nil || !isCopy {
		return u, false, err
	}
	kept, err := snap.Entry(counts)
	if err != nil {
		return u, true, fmt.Errorf("merges: what counts: %w", err)
	}
	if same, _, err := sameEvent(&e, &kept); err != nil || same {
		return u, true, errors.Join(err, nothingLost(id, same))
	}
	raw, err := logstream.Decode(&e)
	if err != nil {
		return u, true, err
	}
	ev := raw.Event()
	ev.Import = imported.Key{}
	if ev.Metadata, err = withUndo(ev.Metadata, id); err != nil {
		return u, true, err
	}
	u.What = "appended what " + id + " says as an entry of its own"
	var op oplog.Op
	if e.Kind == logstream.KindEvent {
		op, err = logstream.NewOp(author, ev)
	} else {
		op, _, err = claim.NewOp(snap, env.Self, author, claim.Input{Of: raw.Of, Status: ev.Status, Body: ev.Body, Topic: ev.Topic, Metadata: ev.Metadata})
	}
	u.Ops = []oplog.Op{op}
	return u, true, err
}

func nothingLost(id string, same bool) error {
	if !same {
		return nil
	}
	return refusal.New(refusal.Conflict, "id", "leave it as it is", "both sides of %s say the same; nothing was lost", id)
}

// withUndo adds to an object what it undoes.
func withUndo(meta json.RawMessage, id string) (json.RawMessage, error) {
	fields := map[string]json.RawMessage{}
	if len(meta) > 0 {
		if err := json.Unmarshal(meta, &fields); err != nil {
			return nil, fmt.Errorf("merges: metadata: %w", err)
		}
	}
	fields["undo_of"] = json.RawMessage(fmt.Sprintf("%q", id))
	return json.Marshal(fields)
}

// facts are facts that were updated or forgotten by somebody who had not seen
// the other side.
type facts struct{}

func (facts) Kind() string { return "fact" }

func (facts) List(snap oplog.Snapshot, _ Env, after []byte, limit int) (list []Merge, next []byte, err error) {
	page, err := memory.Merges(snap, memory.MergeFilter{Limit: limit, Cursor: string(after)})
	if err != nil {
		return nil, nil, err
	}
	for _, m := range page.Merges {
		list = append(list, Merge{
			ID: m.Lost.ID, Kind: "fact", About: m.Namespace, Rule: strings.ReplaceAll(m.Rule, " ", "_"), Lost: factSide(m.Lost), Kept: factSide(m.Kept),
			Undo: "anybody restores the lost side in place of what was kept",
		})
	}
	if page.HasMore {
		next = []byte(page.NextCursor)
	}
	return list, next, nil
}

func factSide(s memory.Side) Side {
	return Side{ID: s.ID, Author: s.Author, HLC: s.HLC, At: s.CreatedAt, What: cut(strings.TrimSpace(s.Op + " " + s.Text))}
}

func (facts) Undo(snap oplog.Snapshot, _ Env, author, id string) (u Undo, ok bool, err error) {
	if !strings.HasPrefix(id, "mem_") {
		return u, false, nil
	}
	ops, err := memory.NewUndo(snap, author, id)
	return Undo{Ops: ops, What: "restored " + id}, true, err
}
