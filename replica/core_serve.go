package replica

import (
	"errors"
	"slices"
	"time"

	"tallystick/oplog"
)

// The giving side: what peers want of this log.

// serveState is the giving side of a session.
type serveState struct {
	granted  uint64 // running total of credit, by the peer
	spent    uint64 // running total of RangeCost sent
	reserved uint64 // asked of the log and not yet sent
	subs     map[uint64]*sub
	byOrigin map[oplog.OriginID]*sub
	reads    int    // in flight
	last     uint64 // highest subscription seen
	queue    []uint64
}

// sub is a subscription a peer has here.
type sub struct {
	id      uint64
	origin  oplog.OriginID
	held    []oplog.Tip // what the peer holds: its word, then what was sent
	probe   bool        // it asked to find the last common entry
	queued  bool
	reading bool
	retry   time.Duration // the log gave nothing; ask it again no sooner
}

const (
	// rangeOverhead stands for everything in a range's frame but its entries.
	rangeOverhead = 256
	// minRead keeps ranges from getting tiny while credit trickles in.
	minRead = 64 << 10
	// maxReads bounds the reads in flight for one session: a range may be larger
	// than asked for, since it ends at a signed head.
	maxReads = 2
	// maxSubs bounds the subscriptions of one session.
	maxSubs = oplog.MaxFrontierOrigins
)

// RangeCost is what a range takes from the credit of a session.
func RangeCost(r *oplog.Range) uint64 { return uint64(len(r.Entries)) + rangeOverhead }

func (c *Core) onWant(s *session, m *MsgWant) {
	if m.Sub <= s.serve.last {
		return // a repeat
	}
	s.serve.last = m.Sub
	if len(s.serve.subs) >= maxSubs {
		c.send(s, &MsgError{Code: WireBusy, Sub: m.Sub, Origin: m.Origin, RetryMillis: 60_000, Text: "too many subscriptions"})
		return
	}
	if old := s.serve.byOrigin[m.Origin]; old != nil {
		s.serve.drop(old)
	}
	b := &sub{id: m.Sub, origin: m.Origin, held: slices.Clone(m.After), probe: m.Probe}
	s.serve.subs[m.Sub] = b
	s.serve.byOrigin[m.Origin] = b
	c.enqueue(s, b)
}

func (v *serveState) drop(b *sub) {
	delete(v.subs, b.id)
	if v.byOrigin[b.origin] == b {
		delete(v.byOrigin, b.origin)
	}
}

func (c *Core) onUnwant(s *session, id uint64) {
	if b := s.serve.subs[id]; b != nil {
		s.serve.drop(b)
	}
}

// wakeSub queues what a session wants of an origin that has grown.
func (c *Core) wakeSub(s *session, o oplog.OriginID) {
	if b := s.serve.byOrigin[o]; b != nil {
		c.enqueue(s, b)
	}
}

// wakeSubs queues the subscriptions whose last read gave nothing.
func (c *Core) wakeSubs(s *session) {
	if len(s.serve.subs) == 0 {
		return
	}
	for _, o := range c.origins {
		c.wakeSub(s, o)
	}
}

func (c *Core) enqueue(s *session, b *sub) {
	if b.queued || b.reading || b.retry > c.now.Mono {
		return
	}
	if _, ok := c.target(b); !ok {
		return
	}
	b.queued = true
	s.serve.queue = append(s.serve.queue, b.id)
}

// target is the tip to send toward: one that the peer surely lacks.
func (c *Core) target(b *sub) (oplog.Tip, bool) {
	mine := c.tips[b.origin]
	for _, t := range mine {
		if apart(t, b.held, mine) {
			return t, true
		}
	}
	return oplog.Tip{}, false
}

// pump asks the log for as much as the credit of the session allows, each
// subscription in its turn, so that a long catch-up does not stall a tail
// (A3).
func (c *Core) pump(s *session) {
	v := &s.serve
	for len(v.queue) > 0 && v.reads < maxReads {
		used := v.spent + v.reserved
		if used >= v.granted || v.granted-used < minRead && v.reserved > 0 {
			return
		}
		b := v.subs[v.queue[0]]
		v.queue = v.queue[1:]
		if b == nil {
			continue
		}
		b.queued = false
		t, ok := c.target(b)
		if b.reading || !ok {
			continue
		}
		e := ReadRange{Session: s.id, Sub: b.id, Origin: b.origin, After: lastTip(b.held).Seq}
		if b.probe || len(c.tips[b.origin]) > 1 {
			e.After, e.Held, e.Toward = 0, slices.Clone(b.held), t
		} else if t.Seq <= e.After {
			// One seq, two hashes: let the peer show more of its line.
			v.drop(b)
			c.send(s, &MsgError{Code: WireFork, Sub: b.id, Origin: b.origin, Tip: t, Text: "another branch is held here"})
			c.noteFork(s.peer, b.origin, t, lastTip(b.held))
			continue
		}
		n := min(uint64(c.cfg.MaxRange), v.granted-used)
		e.MaxBytes = int(n)
		b.reading = true
		v.reserved += n
		v.reads++
		c.out.Reads = append(c.out.Reads, e)
	}
}

// RangeRead says what the log gave for a ReadRange.
func (c *Core) RangeRead(now Now, e ReadRange, r oplog.Range, err error) Output {
	c.begin(now)
	s := c.session(e.Session)
	if s == nil {
		return c.finish()
	}
	v := &s.serve
	v.reads--
	v.reserved -= min(v.reserved, uint64(e.MaxBytes))
	b := v.subs[e.Sub]
	if b == nil || !b.reading {
		return c.finish()
	}
	b.reading = false
	switch {
	case errors.Is(err, oplog.ErrClosed):
	case e.Toward.Seq > 0 && errors.Is(err, oplog.ErrNotFound):
		// The branch has grown meanwhile; the core is about to hear of it.
		b.retry = now.Mono + c.cfg.FlushEvery
	case err != nil || len(r.Entries) > MaxRangeFrame-1024:
		v.drop(b)
		c.send(s, &MsgError{Code: WireRead, Sub: b.id, Origin: b.origin, RetryMillis: 5000, Text: "the log cannot give this range"})
		if err != nil {
			c.event(Event{Kind: EventStore, Session: s.id, Key: s.peer.key, Origin: b.origin, Err: err})
		}
	case r.Count == 0:
		b.retry = now.Mono + scanEvery
	default:
		c.sendRange(s, b, r)
	}
	return c.finish()
}

func (c *Core) sendRange(s *session, b *sub, r oplog.Range) {
	c.send(s, &MsgRange{Sub: b.id, Range: r})
	s.serve.spent += RangeCost(&r)
	o, tip := b.origin, r.Head.Tip()
	if one := []oplog.Tip{tip}; len(c.tips[o]) <= 1 && height(one) > height(c.tips[o]) {
		c.advance(o, one, r.Head, nil) // the log has grown and the core was not told yet
	}
	// What the range continues is no end of a line any more.
	b.held = slices.DeleteFunc(b.held, func(t oplog.Tip) bool { return t.Seq == r.First-1 && !c.tips.Has(o, t) })
	if b.held = append(b.held, tip); len(b.held) > maxAfter {
		b.held = b.held[1:]
	}
	if h := s.told[o]; r.Head.Newer(&h) {
		s.told[o] = r.Head
	}
	if tips := c.tips[o]; len(tips) == 1 && tips[0] == tip {
		delete(s.dirtyTips, o) // the range itself says that we hold it
	}
	c.enqueue(s, b)
}
