package claim

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"time"

	"tallystick/hlc"
	"tallystick/oplog"
	"tallystick/query/carried"
	"tallystick/query/logstream"
	"tallystick/query/refusal"
)

// Claim is a live claim as clients see it.
type Claim struct {
	Task        string    `json:"task"` // correlation id, or the request's event id
	Stream      string    `json:"stream"`
	Event       string    `json:"event"` // the claiming ack
	Holder      string    `json:"holder"`
	Origin      string    `json:"origin"` // label of the holder's replica
	Since       string    `json:"since"`
	LeaseEnds   string    `json:"lease_ends"`
	Grade       string    `json:"grade"`
	Unheard     []Unheard `json:"unheard"`
	Fence       string    `json:"fence"` // the claim's stamp: grows with each successive settled holder
	FenceFinal  bool      `json:"fence_final"`
	Correlation string    `json:"-"`
}

// HeldBy reports whether an identity of the holder's replica holds the claim, by
// the name that it was made under or by the one of today.
func (c *Claim) HeldBy(identity string) bool {
	return identity == c.Holder || identity == under(c.Holder, c.Origin)
}

// Loss is a claim that a rule discarded, with both sides (M3).
type Loss struct {
	Task      string    `json:"task"`
	Claim     string    `json:"claim"` // event id of the losing claim
	Loser     string    `json:"loser"`
	ClaimHLC  string    `json:"claim_hlc"`
	Winner    string    `json:"winner"` // event id of what it lost to
	WonBy     string    `json:"won_by,omitempty"`
	WinnerHLC string    `json:"winner_hlc"`
	Rule      string    `json:"rule"`
	Told      bool      `json:"told"` // a superseded ack names it
	Grade     string    `json:"grade"`
	Unheard   []Unheard `json:"unheard"`
}

// Task is all there is to say about one task.
type Task struct {
	Key      string `json:"-"`
	Request  string `json:"request,omitempty"` // event id of what opened it
	Open     bool   `json:"open"`              // neither closed nor expired
	Closed   string `json:"closed,omitempty"`  // event id of the close
	ClosedBy string `json:"closed_by,omitempty"`
	Expires  string `json:"expires_at,omitempty"`
	Claim    *Claim `json:"claim,omitempty"`
	Losses   []Loss `json:"losses,omitempty"`
}

// Get reads a task by its key, as of the horizon's now.
func Get(snap oplog.Snapshot, taskKey string, h Horizon, label logstream.Labeler) (Task, error) {
	s, losses, err := verdict(snap.View(ViewName), idOf(taskKey))
	if err != nil {
		return Task{}, err
	}
	now := h.now()
	t := Task{Key: taskKey, Open: s.closed.IsZero() && now < s.expiry()}
	if !s.request.IsZero() {
		t.Request = logstream.EventID(s.request)
		if s.expires != forever {
			t.Expires = logstream.FormatTime(s.expires.Time())
		}
	}
	if !s.closed.IsZero() {
		t.Closed = logstream.EventID(s.closed)
		e, err := snap.Entry(s.closed)
		if err != nil {
			return Task{}, fmt.Errorf("claim: close: %w", err)
		}
		t.ClosedBy = e.Author
	}
	if s.live(now) {
		c, err := claimOf(snap, s.claim, s.end, &h, label)
		if err != nil {
			return Task{}, err
		}
		t.Claim = &c
	}
	for n := range losses {
		l, err := lossOf(snap, &losses[n], &h)
		if err != nil {
			return Task{}, err
		}
		t.Losses = append(t.Losses, l)
	}
	return t, nil
}

// now is the reader's clock as a timestamp: every counter of its millisecond.
func (h *Horizon) now() hlc.Timestamp { return hlc.New(h.Now.UnixMilli(), maxCounter) }

func claimOf(snap oplog.Snapshot, ref oplog.Ref, end hlc.Timestamp, h *Horizon, label logstream.Labeler) (Claim, error) {
	e, err := snap.Entry(ref)
	if err != nil {
		return Claim{}, fmt.Errorf("claim: entry of a claim: %w", err)
	}
	raw, err := logstream.Decode(&e)
	if err != nil {
		return Claim{}, err
	}
	c := Claim{
		Task: string(raw.Correlation), Stream: string(raw.Stream), Correlation: string(raw.Correlation),
		Event: logstream.EventID(ref), Holder: e.Author, Since: logstream.FormatTime(carried.Stamp(&e).Time()),
		LeaseEnds: logstream.FormatTime(end.Time()), Fence: strconv.FormatUint(uint64(ref.Time()), 10),
	}
	if label != nil {
		c.Origin = label(ref.Origin())
	}
	c.Grade, c.Unheard = h.Grade(ref.Time())
	c.FenceFinal = c.Grade == Settled
	return c, nil
}

func lossOf(snap oplog.Snapshot, l *loss, h *Horizon) (Loss, error) {
	e, err := snap.Entry(l.claim)
	if err != nil {
		return Loss{}, fmt.Errorf("claim: entry of a loss: %w", err)
	}
	raw, err := logstream.Decode(&e)
	if err != nil {
		return Loss{}, err
	}
	w, err := snap.Entry(l.winner)
	if err != nil {
		return Loss{}, fmt.Errorf("claim: entry of a winner: %w", err)
	}
	out := Loss{
		Task: string(raw.Correlation), Claim: logstream.EventID(l.claim), Loser: e.Author, ClaimHLC: l.claim.Stamp().String(),
		Winner: logstream.EventID(l.winner), WonBy: w.Author, WinnerHLC: l.winner.Stamp().String(), Rule: l.rule.String(), Told: l.told,
	}
	out.Grade, out.Unheard = h.Grade(l.claim.Time())
	return out, nil
}

// Filter says which live claims to list. Empty values do not filter.
type Filter struct {
	Identity    string   // also under its device's former labels, when the labeler is given
	Formerly    []string // flat names by which that identity went on the replica labelled Host
	Host        string
	Correlation string // correlation id, or the request's event id
	Stream      string
	Limit       int // 0 means DefaultLimit
}

// Limits of List.
const (
	DefaultLimit = 200
	MaxLimit     = 1000
)

// Page is an answer of List.
type Page struct {
	Claims  []Claim `json:"claims"`
	Count   int     `json:"count"`
	HasMore bool    `json:"has_more,omitempty"` // more match than the limit shows
}

// List gives the claims that are live at the horizon's now, earliest first.
// It costs as much as there are live claims, however long the history.
func List(snap oplog.Snapshot, f Filter, h Horizon, label logstream.Labeler) (Page, error) {
	switch {
	case f.Limit == 0:
		f.Limit = DefaultLimit
	case f.Limit < 0 || f.Limit > MaxLimit:
		return Page{}, refusal.Invalid("limit", "use 1 to 1000", "limit is %d, at most %d are allowed", f.Limit, MaxLimit)
	}
	page := Page{Claims: []Claim{}}
	err := heldAfter(snap.View(ViewName), h.now(), func(ref oplog.Ref, end hlc.Timestamp) (bool, error) {
		c, err := claimOf(snap, ref, end, &h, label)
		if err != nil {
			return false, err
		}
		if f.Identity != "" && !isOf(f.Identity, c.Holder, ref.Origin(), label) && !(c.Origin == f.Host && slices.Contains(f.Formerly, c.Holder)) || f.Stream != "" && f.Stream != c.Stream ||
			f.Correlation != "" && f.Correlation != c.Correlation {
			return true, nil
		}
		page.Claims = append(page.Claims, c)
		return true, nil
	})
	if err != nil {
		return Page{}, err
	}
	sort.SliceStable(page.Claims, func(i, j int) bool {
		a, b := &page.Claims[i], &page.Claims[j]
		if len(a.Fence) != len(b.Fence) {
			return len(a.Fence) < len(b.Fence)
		}
		return a.Fence < b.Fence || a.Fence == b.Fence && a.Event < b.Event
	})
	if len(page.Claims) > f.Limit {
		page.Claims, page.HasMore = page.Claims[:f.Limit], true
	}
	page.Count = len(page.Claims)
	return page, nil
}

// heldAfter calls fn for the claims whose life ends after t.
func heldAfter(r oplog.Reader, t hlc.Timestamp, fn func(claim oplog.Ref, end hlc.Timestamp) (bool, error)) error {
	if t == forever {
		return nil
	}
	return r.Scan([]byte{rowHeld}, key(rowHeld, endBytes(t.Next())), false, func(k, v []byte) (bool, error) {
		if len(k) != 1+8+16 || len(v) != oplog.RefSize {
			return false, errRow
		}
		return fn(oplog.Ref(v), hlc.Timestamp(binary.BigEndian.Uint64(k[1:])))
	})
}

// OpenTask is a task that nobody has closed.
type OpenTask struct {
	Request oplog.Ref
	Event   string // event id of the request
	Key     string
	Stream  string
	Task    string // correlation id, or the request's event id
	Expired bool
	Held    bool // somebody holds it now
}

// OpenTasks calls fn for every task that is not closed, in C2 order of their
// requests, starting after a request (the zero Ref for all).
func OpenTasks(snap oplog.Snapshot, after oplog.Ref, now time.Time, fn func(OpenTask) (bool, error)) error {
	r := snap.View(ViewName)
	h := Horizon{Now: now}
	var start []byte
	if !after.IsZero() {
		start = key(rowOpen, after[:])
	}
	return r.Scan([]byte{rowOpen}, start, false, func(k, v []byte) (bool, error) {
		ref, err := oplog.RefOf(k[1:])
		if err != nil || len(v) != 16 {
			return false, errRow
		}
		if ref == after {
			return true, nil
		}
		e, err := snap.Entry(ref)
		if err != nil {
			return false, fmt.Errorf("claim: request: %w", err)
		}
		if !e.Present() {
			return true, nil // erased: absent
		}
		raw, err := logstream.Decode(&e)
		if err != nil {
			return false, err
		}
		s, _, err := verdict(r, taskID(v))
		if err != nil {
			return false, err
		}
		t := OpenTask{
			Request: ref, Event: logstream.EventID(ref), Key: taskKeyOf(&raw, e.Hash), Stream: string(raw.Stream),
			Task: string(raw.Correlation), Expired: h.now() >= s.expiry(), Held: s.live(h.now()),
		}
		if t.Task == "" {
			t.Task = t.Event
		}
		return fn(t)
	})
}

// CountOpen is how many tasks nobody has closed, expired ones included.
func CountOpen(views oplog.Views) (n int, err error) {
	err = views.View(ViewName).Scan([]byte{rowOpen}, nil, false, func(_, _ []byte) (bool, error) {
		n++
		return true, nil
	})
	return n, err
}

// Losses lists every claim that a rule discarded, at most limit of them (M3).
func Losses(snap oplog.Snapshot, h Horizon, limit int) ([]Loss, error) {
	var out []Loss
	err := snap.View(ViewName).Scan([]byte{rowLoss}, nil, false, func(k, v []byte) (bool, error) {
		if len(out) == limit {
			return false, nil
		}
		if len(k) != 1+16+oplog.RefSize {
			return false, errRow
		}
		l, err := parseLoss(k[17:], v)
		if err != nil {
			return false, err
		}
		shown, err := lossOf(snap, &l, &h)
		out = append(out, shown)
		return err == nil, err
	})
	return out, err
}

// pending calls fn for the losses that no superseded ack names yet.
func pending(r oplog.Reader, fn func(id taskID, l loss) error) error {
	type row struct {
		id  taskID
		ref oplog.Ref
	}
	var rows []row
	err := r.Scan([]byte{rowPending}, nil, false, func(k, v []byte) (bool, error) {
		ref, err := oplog.RefOf(k[1:])
		if err != nil || len(v) != 16 {
			return false, errRow
		}
		rows = append(rows, row{taskID(v), ref})
		return true, nil
	})
	if err != nil {
		return err
	}
	for _, p := range rows {
		v, err := r.Get(key(rowLoss, p.id[:], p.ref[:]))
		if err != nil {
			return fmt.Errorf("claim: loss of a pending row: %w", err)
		}
		l, err := parseLoss(p.ref[:], v)
		if err != nil {
			return err
		}
		if err := fn(p.id, l); err != nil {
			return err
		}
	}
	return nil
}

// freed calls fn for the claims that have won although their home has ended them
// as lost, of tasks that are not closed, until that is told.
func freed(r oplog.Reader, fn func(id taskID, claim, ack oplog.Ref) error) error {
	return r.Scan([]byte{rowFreed}, nil, false, func(k, v []byte) (bool, error) {
		if len(k) != 1+oplog.RefSize || len(v) != 16+oplog.RefSize {
			return false, errRow
		}
		err := fn(taskID(v[:16]), oplog.Ref(k[1:]), oplog.Ref(v[16:]))
		return err == nil, err
	})
}
