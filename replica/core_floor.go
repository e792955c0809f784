package replica

import (
	"errors"
	"slices"
	"time"

	"tallystick/hlc"
	"tallystick/oplog"
)

// Floors: the promises in heads, and asking for higher ones (L4, K4). They
// are outside the frontier's digest (B5), so they are told at the start of a
// session and flooded when raised.

// headState is the newest head of an origin that the log holds.
type headState struct {
	oplog.Head
	// raised: the floor rose without a new entry, so no range will carry this
	// head to those who have the tip already; it is flooded.
	raised bool
}

type floorState struct {
	ask     hlc.Timestamp   // highest asked within the clock bound
	later   []hlc.Timestamp // asked, but beyond the bound still
	seen    []hlc.Timestamp // asked and passed on, oldest first
	raising bool
	retry   time.Duration
	fails   int
}

const (
	maxSeenAsks  = 256
	maxLaterAsks = 16
)

// setHead keeps a head whose tip is held; raised says that it came without
// entries.
func (c *Core) setHead(h oplog.Head, raised bool) {
	old := c.heads[h.Origin]
	switch {
	case h.Newer(&old.Head):
		c.heads[h.Origin] = headState{Head: h, raised: raised}
	case raised && !old.raised && h == old.Head:
		// Somebody floods what a range brought here: pass it on.
		c.heads[h.Origin] = headState{Head: h, raised: true}
	default:
		return
	}
	for _, s := range c.sessions {
		c.offerHead(s, h.Origin)
	}
}

// offerHead marks a raised head to be told to a peer that holds its tip and,
// as far as we know, an older floor.
func (c *Core) offerHead(s *session, o oplog.OriginID) {
	h := c.heads[o]
	if !h.raised || !s.ready || !s.peer.tips.Has(o, h.Tip()) {
		return
	}
	said, told := s.said[o], s.told[o]
	if h.Newer(&said) && h.Newer(&told) {
		s.dirtyHeads[o] = true
	}
}

func (c *Core) tellHeads(s *session, origins []oplog.OriginID) {
	var heads []oplog.Head
	for _, o := range origins {
		h, ok := c.heads[o]
		if !ok {
			continue
		}
		s.told[o] = h.Head
		if heads = append(heads, h.Head); len(heads) == maxHeads {
			c.send(s, &MsgHeads{Heads: heads})
			heads = nil
		}
	}
	if len(heads) > 0 {
		c.send(s, &MsgHeads{Heads: heads})
	}
}

func (c *Core) onHeads(s *session, m *MsgHeads) {
	for i := range m.Heads {
		h := m.Heads[i]
		if said := s.said[h.Origin]; h.Newer(&said) && (len(s.said) < oplog.MaxFrontierOrigins || !said.IsZero()) {
			s.said[h.Origin] = h
		}
		c.setSaid(s, h)
	}
}

// setSaid asks the log to keep a head that a peer told, when it is for a tip
// held here. Otherwise it waits in said until the entries are here.
func (c *Core) setSaid(s *session, h oplog.Head) {
	mine := c.heads[h.Origin]
	switch {
	case c.own[h.Origin] || !c.tips.Has(h.Origin, h.Tip()):
	case h.Newer(&mine.Head):
		c.out.Heads = append(c.out.Heads, PutHead{Session: s.id, Head: h})
	case h == mine.Head:
		c.setHead(h, true)
	}
}

// storeSaid looks at the heads that waited for an origin's entries.
func (c *Core) storeSaid(o oplog.OriginID) {
	for _, s := range c.sessions {
		if h, ok := s.said[o]; ok {
			c.setSaid(s, h)
		}
	}
}

// HeadStored says what the log made of a head.
func (c *Core) HeadStored(now Now, e PutHead, changed bool, err error) Output {
	c.begin(now)
	switch {
	case errors.Is(err, oplog.ErrNoSpace):
		c.event(Event{Kind: EventStore, Session: e.Session, Origin: e.Head.Origin, Err: err})
		c.pause(err) // the peer's word is kept until there is room
	case err != nil:
		// It did not verify, or the store failed: forget that the peer said it,
		// so that a true one can take its place.
		if s := c.session(e.Session); s != nil && s.said[e.Head.Origin] == e.Head {
			delete(s.said, e.Head.Origin)
		}
		c.event(Event{Kind: EventBadRange, Session: e.Session, Origin: e.Head.Origin, Err: err})
	case changed:
		c.setHead(e.Head, true)
	}
	return c.finish()
}

// LocalCommit says that own entries, or an own head with a higher floor, are
// durable. The head is Log.Self().Head.
func (c *Core) LocalCommit(now Now, head oplog.Head) Output {
	c.begin(now)
	c.localHead(head)
	return c.finish()
}

func (c *Core) localHead(head oplog.Head) {
	if head.IsZero() {
		return
	}
	o := head.Origin
	c.self, c.own[o], c.owner[o] = o, true, c.cfg.Key
	old := c.heads[o]
	raised := head.Newer(&old.Head) && c.tips.Has(o, head.Tip())
	c.advance(o, []oplog.Tip{head.Tip()}, head, nil)
	if raised {
		c.setHead(head, true)
	}
}

// AskFloor says that somebody here has a claim that stays provisional until
// every replica's floor is above a timestamp. It is asked of the mesh once.
func (c *Core) AskFloor(now Now, above hlc.Timestamp) Output {
	c.begin(now)
	c.ask(nil, above)
	return c.finish()
}

func (c *Core) onFloorAsk(s *session, above hlc.Timestamp) { c.ask(s, above) }

// ask passes a new value on and remembers to promise it. A value beyond the
// clock bound is passed on too, since this may be the clock that is slow, but
// it neither counts as asked nor hides lower ones.
func (c *Core) ask(from *session, above hlc.Timestamp) {
	f := &c.floor
	if above == 0 || slices.Contains(f.seen, above) {
		return
	}
	f.seen = append(f.seen, above)
	if len(f.seen) > maxSeenAsks {
		f.seen = f.seen[1:]
	}
	if c.beyond(above) {
		if len(f.later) < maxLaterAsks {
			f.later = append(f.later, above)
		}
	} else {
		f.ask = max(f.ask, above)
	}
	for _, s := range c.sessions {
		if s != from && s.hello != nil {
			c.send(s, &MsgFloorAsk{Above: above})
		}
	}
	c.tryRaise()
}

func (c *Core) beyond(t hlc.Timestamp) bool {
	return t.Millis()-c.now.Wall > c.cfg.Bound.Milliseconds()
}

// tryRaise promises what was asked, unless the promise is already given.
func (c *Core) tryRaise() {
	f := &c.floor
	f.later = slices.DeleteFunc(f.later, func(t hlc.Timestamp) bool {
		if c.beyond(t) {
			return false
		}
		f.ask = max(f.ask, t)
		return true
	})
	if f.raising || f.ask == 0 || c.heads[c.self].Floor > f.ask || c.now.Mono < f.retry {
		return
	}
	f.raising = true
	c.out.Floors = append(c.out.Floors, RaiseFloor{Above: f.ask})
}

// FloorRaised says what the log made of RaiseFloor.
func (c *Core) FloorRaised(now Now, e RaiseFloor, head oplog.Head, err error) Output {
	c.begin(now)
	f := &c.floor
	f.raising = false
	if err != nil {
		f.retry = now.Mono + min(c.cfg.BackoffMin<<min(f.fails, 10), time.Minute)
		f.fails++
		c.event(Event{Kind: EventStore, Origin: c.self, Err: err})
		return c.finish()
	}
	f.fails = 0
	c.localHead(head)
	c.tryRaise()
	return c.finish()
}
