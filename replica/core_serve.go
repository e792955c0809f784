package replica

import (
	"errors"
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
	pos     uint64 // sent up to
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
	for _, mine := range c.tips[m.Origin] {
		if mine.Seq == m.After.Seq && !c.tips.Has(m.Origin, m.After) {
			c.send(s, &MsgError{Code: WireFork, Sub: m.Sub, Origin: m.Origin, Tip: mine, Text: "another branch is held here"})
			c.noteFork(s, m.Origin, mine, m.After)
			return
		}
	}
	if old := s.serve.byOrigin[m.Origin]; old != nil {
		s.serve.drop(old)
	}
	b := &sub{id: m.Sub, origin: m.Origin, pos: m.After.Seq}
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
	if b.queued || b.reading || b.pos >= c.tips.Seq(b.origin) || b.retry > c.now.Mono {
		return
	}
	b.queued = true
	s.serve.queue = append(s.serve.queue, b.id)
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
		if b.reading || b.pos >= c.tips.Seq(b.origin) {
			continue
		}
		n := min(uint64(c.cfg.MaxRange), v.granted-used)
		b.reading = true
		v.reserved += n
		v.reads++
		c.out.Reads = append(c.out.Reads, ReadRange{Session: s.id, Sub: b.id, Origin: b.origin, After: b.pos, MaxBytes: int(n)})
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
	last := r.First + uint64(r.Count) - 1
	switch {
	case errors.Is(err, oplog.ErrClosed):
	case err != nil || r.Count > 0 && (r.First > b.pos+1 || last <= b.pos || len(r.Entries) > MaxRangeFrame-1024):
		v.drop(b)
		c.send(s, &MsgError{Code: WireRead, Sub: b.id, Origin: b.origin, RetryMillis: 5000, Text: "the log cannot give this range"})
		if err != nil {
			c.event(Event{Kind: EventStore, Session: s.id, Key: s.peer.key, Origin: b.origin, Err: err})
		}
	case r.Count == 0:
		b.retry = now.Mono + scanEvery
	default:
		c.sendRange(s, b, r, last)
	}
	return c.finish()
}

func (c *Core) sendRange(s *session, b *sub, r oplog.Range, last uint64) {
	c.send(s, &MsgRange{Sub: b.id, Range: r})
	s.serve.spent += RangeCost(&r)
	b.pos = last
	if r.Head.Seq == last {
		c.advance(b.origin, r.Head.Tip(), r.Head)
		if h := s.told[b.origin]; r.Head.Newer(&h) {
			s.told[b.origin] = r.Head
		}
		if last == c.tips.Seq(b.origin) {
			delete(s.dirtyTips, b.origin) // the range itself says that we hold it
		}
	}
	c.enqueue(s, b)
}
