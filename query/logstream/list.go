package logstream

import (
	"encoding/json"
	"fmt"

	"tallystick/hlc"
	"tallystick/oplog"
	"tallystick/query/internal/merge"
	"tallystick/query/refusal"
)

// List returns one page of the events that match.
func List(snap oplog.Snapshot, f Filter) (Page, error) {
	f, err := f.check()
	if err != nil {
		return Page{}, err
	}
	l := &lister{snap: snap, f: &f, view: snap.View(ViewName), hashes: f.hashes()}
	if err := l.run(); err != nil {
		return Page{}, err
	}
	l.page.Count = len(l.page.Events)
	if l.page.Events == nil {
		l.page.Events = []Record{}
	}
	return l.page, nil
}

// Tail returns the cursor behind everything that is visible now.
func Tail(snap oplog.Snapshot, replica oplog.OriginID) (string, error) {
	cover, err := positions(snap)
	if err != nil {
		return "", err
	}
	c := cursor{mode: modeTail, replica: replica, arrival: snap.LastArrival(), cover: cover}
	return c.text(), nil
}

type lister struct {
	snap   oplog.Snapshot
	f      *Filter
	view   oplog.Reader
	hashes hashes
	page   Page
	bytes  int
	last   oplog.Ref // last event given
}

func (l *lister) run() error {
	if l.f.Cursor != "" {
		c, err := parseCursor(l.f.Cursor)
		if err != nil {
			return err
		}
		if err := l.related(&c); err != nil {
			return err
		}
		return l.resume(c)
	}
	if l.f.SinceEventID != "" || l.f.BeforeEventID != "" {
		return l.window()
	}
	cover, err := positions(l.snap)
	if err != nil {
		return err
	}
	c := cursor{mode: modeBack, replica: l.f.Replica, arrival: l.snap.LastArrival(), cover: cover}
	if l.f.Order == "asc" {
		c.mode = modeForward
	}
	return l.ordered(c)
}

func (l *lister) resume(c cursor) error {
	want := map[mode]string{modeTail: "asc", modeForward: "asc", modeBack: "desc", modeOlder: "desc"}[c.mode]
	if l.f.Order != "" && l.f.Order != want {
		return refusal.Invalid("order", "leave order out, or start again without cursor", "order is %s, but the cursor continues a listing that runs %s", l.f.Order, want)
	}
	switch c.mode {
	case modeTail:
		return l.tail(c)
	case modeOlder:
		at, err := l.snap.Arrival(c.ref)
		if err != nil {
			return err
		}
		if at == 0 {
			return unknownCursor("cursor", "the event it stands at has not arrived here")
		}
		var after uint64
		if !c.since.IsZero() {
			if after, err = l.snap.Arrival(c.since); err != nil {
				return err
			}
		}
		return l.older(at, after, c)
	}
	if l.f.BeforeEventID != "" {
		return refusal.Invalid("before_event_id", "leave it out", "before_event_id does not go with this cursor")
	}
	return l.ordered(c)
}

// related refuses a cursor of another mesh: one that tells of nothing that is
// known here. Its place would mean that everything is still to be delivered.
func (l *lister) related(c *cursor) error {
	if c.replica == l.f.Replica || c.cover != nil && len(c.cover) == 0 { // nothing was delivered yet
		return nil
	}
	here, err := positions(l.snap)
	if err != nil || here == nil {
		return err
	}
	if _, ok := here[originKey(c.replica)]; ok {
		return nil
	}
	for k := range c.cover {
		if _, ok := here[k]; ok {
			return nil
		}
	}
	return refusal.New(refusal.ForeignCursor, "cursor", "start again without it", "the cursor comes from another mesh, or from a replica of which nothing has arrived here")
}

// local reports whether the cursor's arrival number is one of this replica.
func (l *lister) local(c *cursor) bool {
	return c.replica == l.f.Replica && c.arrival <= l.snap.LastArrival()
}

func foreignCursor() error {
	return refusal.New(refusal.ForeignCursor, "cursor", "start again without it on this replica",
		"the cursor comes from another replica, and this one cannot tell what is left of its listing")
}

// ordered gives events in C2 order from the cursor's place; what was not
// visible when the listing began is left to the tail that follows.
func (l *lister) ordered(c cursor) error {
	first := c.ref.IsZero()
	if !first && !l.local(&c) {
		// The listing may go on here only if all it was to hold is here: what it
		// has given is no prefix of anything, so a gap could not be told later.
		here, err := positions(l.snap)
		if err != nil {
			return err
		}
		if c.cover == nil || !here.includes(c.cover) {
			return foreignCursor()
		}
	}
	reverse := c.mode == modeBack
	var from []byte
	if !first {
		from = c.ref[:]
	} else if !reverse && !l.f.SinceCreated.IsZero() {
		ref := oplog.MakeRef(hlc.New(l.f.SinceCreated.UnixMilli(), 0), oplog.OriginID{}, 0, oplog.Hash{})
		from = ref[:]
	}
	err := merge.Scan(l.view, l.f.prefixes(), from, reverse, func(rest, p []byte) (bool, error) {
		if !l.hashes.may(p) {
			return true, nil
		}
		ref, err := oplog.RefOf(rest)
		if err != nil {
			return false, fmt.Errorf("logstream: row: %w", err)
		}
		if ref == c.ref {
			return true, nil
		}
		if reverse && !l.f.SinceCreated.IsZero() && ref.Time().Time().Before(l.f.SinceCreated) {
			return false, nil
		}
		if !first {
			if ok, err := l.bounded(&c, ref); err != nil || !ok {
				return err == nil, err
			}
		}
		e, err := l.snap.Entry(ref)
		if err != nil {
			return false, fmt.Errorf("logstream: event of a row: %w", err)
		}
		if !e.Present() {
			return true, nil // erased: absent
		}
		raw, err := Decode(&e)
		if err != nil {
			return false, err
		}
		if !l.f.match(&raw, &e) {
			return true, nil
		}
		arrival, err := l.snap.Arrival(ref)
		if err != nil {
			return false, err
		}
		return l.give(&raw, &e, arrival)
	})
	if err != nil {
		return err
	}
	if l.page.HasMore {
		c.ref = l.last
	} else {
		c.mode, c.ref = modeTail, oplog.Ref{}
	}
	l.page.NextCursor = c.text()
	return nil
}

// bounded reports whether an event was visible when the listing began.
func (l *lister) bounded(c *cursor, ref oplog.Ref) (bool, error) {
	if !l.local(c) {
		return c.cover.has(ref), nil
	}
	if l.snap.LastArrival() == c.arrival {
		return true, nil
	}
	n, err := l.snap.Arrival(ref)
	return n <= c.arrival, err
}

// tail gives what has arrived and was not delivered, in order of arrival.
func (l *lister) tail(c cursor) error {
	after := c.arrival
	if !l.local(&c) {
		if c.cover == nil {
			return foreignCursor()
		}
		after = 0
	}
	before, err := l.eventArrival("before_event_id", l.f.BeforeEventID)
	if err != nil {
		return err
	}
	return l.forward(after, before, c.cover.clone())
}

// forward gives events by arrival number, above after and below before (0 for
// no end), leaving out what cover says was delivered.
func (l *lister) forward(after, before uint64, cover coverage) error {
	at := after
	trunks, err := cover.clip(l.snap)
	if err != nil {
		return err
	}
	err = l.snap.Arrived(after, false, func(arrival uint64, e *oplog.Entry) (bool, error) {
		if before != 0 && arrival >= before {
			return false, nil
		}
		if ref := e.Ref(); cover == nil || !cover.has(ref) {
			if more, err := l.offer(e, arrival); err != nil || !more {
				return false, err
			}
			if trunk, forked := trunks[e.Origin]; cover != nil && (!forked || e.Seq <= trunk) {
				cover.add(ref)
			}
		}
		at = arrival
		return true, nil
	})
	if err != nil {
		return err
	}
	if cover == nil {
		if cover, err = l.coverageAt(at); err != nil {
			return err
		}
	}
	l.page.after, l.page.upTo = after, at
	c := cursor{mode: modeTail, replica: l.f.Replica, arrival: at, cover: cover}
	l.page.NextCursor = c.text()
	return nil
}

// coverageBack is how many entries are looked through to say what was visible
// at an earlier arrival number.
const coverageBack = 5000

// coverageAt is what was visible at an arrival number, nil if that is too far
// back to say.
func (l *lister) coverageAt(at uint64) (coverage, error) {
	if l.snap.LastArrival()-at > coverageBack {
		return nil, nil
	}
	cover, err := positions(l.snap)
	if err != nil || cover == nil || l.snap.LastArrival() == at {
		return cover, err
	}
	err = l.snap.Arrived(0, true, func(arrival uint64, e *oplog.Entry) (bool, error) {
		if arrival <= at {
			return false, nil
		}
		cover.remove(e.Ref())
		return true, nil
	})
	return cover, err
}

// offer gives the entry if it is an event that matches and counts.
func (l *lister) offer(e *oplog.Entry, arrival uint64) (more bool, err error) {
	if e.Kind != KindEvent && e.Kind != KindAck || !e.Present() {
		return true, nil
	}
	raw, err := Decode(e)
	if err != nil {
		return false, err
	}
	if !l.f.match(&raw, e) {
		return true, nil
	}
	if key, ok := raw.dedup(); ok {
		counts, _, err := imports.Counts(l.view, key)
		if err != nil {
			return false, err
		}
		if counts != e.Ref() {
			return true, nil
		}
	}
	return l.give(&raw, e, arrival)
}

// give puts an event on the page, or says that the page is full.
func (l *lister) give(raw *Raw, e *oplog.Entry, arrival uint64) (more bool, err error) {
	if len(l.page.Events) == l.f.Limit {
		l.page.HasMore = true
		return false, nil
	}
	r := record(raw, e, arrival, l.f.Label)
	if l.f.Preview {
		r.preview()
	}
	b, err := json.Marshal(r)
	if err != nil {
		return false, fmt.Errorf("logstream: encode event: %w", err)
	}
	if len(l.page.Events) > 0 && l.bytes+len(b) > MaxPageBytes {
		l.page.HasMore, l.page.Truncated = true, true
		return false, nil
	}
	l.bytes += len(b)
	l.page.Events = append(l.page.Events, r)
	l.last = e.Ref()
	return true, nil
}

// window lists by since_event_id and before_event_id: local arrival order,
// oldest first when there is a since, newest first otherwise.
func (l *lister) window() error {
	after, err := l.eventArrival("since_event_id", l.f.SinceEventID)
	if err != nil {
		return err
	}
	before, err := l.eventArrival("before_event_id", l.f.BeforeEventID)
	if err != nil {
		return err
	}
	if l.f.Order == "asc" || l.f.Order == "" && l.f.SinceEventID != "" {
		return l.forward(after, before, nil)
	}
	c := cursor{mode: modeOlder, replica: l.f.Replica, arrival: l.snap.LastArrival()}
	if l.f.SinceEventID != "" {
		e, err := Find(l.snap, "since_event_id", l.f.SinceEventID)
		if err != nil {
			return err
		}
		c.since = e.Ref()
	}
	if before == 0 {
		before = l.snap.LastArrival() + 1
	}
	return l.older(before, after, c)
}

// older gives events by arrival number against time: below before, above
// after.
func (l *lister) older(before, after uint64, c cursor) error {
	if before > after+1 {
		err := l.snap.Arrived(before-1, true, func(arrival uint64, e *oplog.Entry) (bool, error) {
			if arrival <= after {
				return false, nil
			}
			return l.offer(e, arrival)
		})
		if err != nil {
			return err
		}
	}
	switch {
	case l.page.HasMore:
		c.ref = l.last
		l.page.NextCursor = c.text()
	case l.local(&c):
		c = cursor{mode: modeTail, replica: c.replica, arrival: c.arrival}
		l.page.NextCursor = c.text()
	}
	return nil
}

// eventArrival is the local arrival number of an event named as a place; 0
// when none is named.
func (l *lister) eventArrival(field, id string) (uint64, error) {
	if id == "" {
		return 0, nil
	}
	e, err := Find(l.snap, field, id)
	if err != nil {
		if refusal.CodeOf(err) == refusal.NotFound {
			return 0, refusal.New(refusal.UnknownCursor, field, "use an id from a listing of this replica", "%s %s is not an event that has arrived here", field, id)
		}
		return 0, err
	}
	return l.snap.Arrival(e.Ref())
}
