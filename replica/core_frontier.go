package replica

import (
	"slices"

	"tallystick/oplog"
)

// maxTipsPerFrame keeps a frontier's frame well below MaxFrame: an origin
// with one tip takes up to 70 bytes.
const maxTipsPerFrame = 8192

func (c *Core) noteOrigin(o oplog.OriginID) {
	i, found := slices.BinarySearchFunc(c.origins, o, oplog.OriginID.Compare)
	if !found {
		c.origins = slices.Insert(c.origins, i, o)
	}
}

// tellFrontier sends tips, in several frames when they are many.
func (c *Core) tellFrontier(s *session, tips oplog.Frontier, full bool) {
	part, n := oplog.Frontier{}, 0
	for _, o := range tips.Origins() {
		if n+len(tips[o]) > maxTipsPerFrame {
			c.send(s, &MsgFrontier{Full: full, Tips: part})
			part, n, full = oplog.Frontier{}, 0, false
		}
		part[o] = slices.Clone(tips[o])
		n += len(tips[o])
	}
	if n > 0 || full {
		c.send(s, &MsgFrontier{Full: full, Tips: part})
	}
}

// flush tells a session what changed here since it was last told.
func (c *Core) flush(s *session) {
	if s.hello == nil {
		return
	}
	s.flushed = c.now.Mono
	if len(s.dirtyTips) > 0 {
		changed := oplog.Frontier{}
		for o := range s.dirtyTips {
			if b := s.serve.byOrigin[o]; b != nil && b.reading {
				continue // the range on its way will say so
			}
			changed[o] = c.tips[o]
			delete(s.dirtyTips, o)
		}
		c.tellFrontier(s, changed, false)
	}
	if len(s.dirtyHeads) > 0 {
		origins := make([]oplog.OriginID, 0, len(s.dirtyHeads))
		for o := range s.dirtyHeads {
			origins = append(origins, o)
		}
		clear(s.dirtyHeads)
		slices.SortFunc(origins, oplog.OriginID.Compare)
		c.tellHeads(s, origins)
	}
}

func (c *Core) onFrontier(s *session, m *MsgFrontier) {
	switch {
	case m.Full && !s.ready:
		c.learnFrontier(s, m.Tips)
	case !s.ready:
		c.hangUp(s, WireProtocol, "a change of a frontier that was never told", violationRetry)
	default:
		for _, o := range m.Tips.Origins() {
			c.peerAt(s, o, m.Tips[o])
		}
	}
	if len(s.peer.tips) > oplog.MaxFrontierOrigins {
		c.hangUp(s, WireProtocol, "a frontier of too many origins", violationRetry)
	}
}

// learnFrontier takes the peer's whole frontier at the start of a session.
func (c *Core) learnFrontier(s *session, tips oplog.Frontier) {
	s.peer.tips = tips
	s.ready = true
	s.peer.status.Known = true
	for _, o := range tips.Origins() {
		c.peerMoved(s, o)
	}
	for _, o := range c.origins {
		c.replan[o] = true
	}
}

// height grows with every change of an origin's tips: branches only grow and
// are only added. Within a session anything lower is an old message.
func height(tips []oplog.Tip) (sum uint64) {
	for _, t := range tips {
		sum += t.Seq
	}
	return sum
}

func (c *Core) peerAt(s *session, o oplog.OriginID, tips []oplog.Tip) {
	if height(tips) > height(s.peer.tips[o]) {
		s.peer.tips[o] = tips
		c.peerMoved(s, o)
	}
}

// peerMoved looks at what a peer's position in an origin means here.
func (c *Core) peerMoved(s *session, o oplog.OriginID) {
	c.noteOrigin(o)
	c.replan[o] = true
	c.compare(s, o)
	c.offerHead(s, o)
}

// advance takes in that the log durably holds an origin up to its tips,
// whoever said so first: an ingest, an own commit or a range that was read
// (L1). from is the peer that it came from, or nil.
func (c *Core) advance(o oplog.OriginID, tips []oplog.Tip, head oplog.Head, from *peer) {
	if height(tips) > height(c.tips[o]) {
		c.noteOrigin(o)
		c.tips[o] = slices.Clone(tips)
		c.replan[o] = true
		if len(tips) > 1 {
			c.noteFork(from, o, tips[0], tips[1])
		}
		for _, s := range c.sessions {
			s.dirtyTips[o] = true
			c.wakeSub(s, o)
			if s.ready {
				c.compare(s, o)
			}
		}
	}
	if head.Origin == o && c.tips.Has(o, head.Tip()) {
		c.setHead(head, false)
	}
	c.storeSaid(o)
}

// lacking reports whether theirs has a branch of which mine has nothing or
// less, as far as tips can tell. A tip that is not mine may lie below one of
// mine; it does not if it is the highest, or if every higher tip of mine is
// one of theirs too, for the tips of one log do not lie below each other.
func lacking(mine, theirs []oplog.Tip) bool {
	for _, t := range theirs {
		if apart(t, mine, theirs) {
			return true
		}
	}
	return false
}

// apart reports whether t, a tip of one log, is surely not held by another
// log with the given tips.
func apart(t oplog.Tip, other, own []oplog.Tip) bool {
	for _, m := range other {
		if m == t || m.Seq > t.Seq && !slices.Contains(own, m) {
			return false
		}
	}
	return true
}

func (c *Core) lacks(s *session, o oplog.OriginID) bool { return lacking(c.tips[o], s.peer.tips[o]) }

// parted reports whether a peer is surely on another branch: its tip and ours
// are at one seq and differ.
func (c *Core) parted(s *session, o oplog.OriginID) (mine, theirs oplog.Tip, ok bool) {
	for _, mine := range c.tips[o] {
		for _, theirs := range s.peer.tips[o] {
			if mine.Seq == theirs.Seq && mine.Hash != theirs.Hash {
				return mine, theirs, true
			}
		}
	}
	return mine, theirs, false
}

// compare notes what a peer's position says beyond more and less: another
// branch (L7c), or more of an own origin than is here (L7b).
func (c *Core) compare(s *session, o oplog.OriginID) {
	if mine, theirs, ok := c.parted(s, o); ok {
		c.noteFork(s.peer, o, mine, theirs)
	}
	if !c.own[o] || !c.lacks(s, o) {
		return
	}
	theirs := lastTip(s.peer.tips[o])
	if c.ownAhead[o] != theirs {
		c.ownAhead[o] = theirs
		c.event(Event{Kind: EventOwnAhead, Session: s.id, Key: s.peer.key, Origin: o, Mine: lastTip(c.tips[o]), Theirs: theirs})
	}
}

// noteFork remembers that an origin has branches. It never has fewer again.
func (c *Core) noteFork(p *peer, o oplog.OriginID, mine, theirs oplog.Tip) {
	if _, known := c.forks[o]; known {
		return
	}
	f := ForkStatus{Origin: o, Mine: mine, Theirs: theirs}
	e := Event{Kind: EventFork, Origin: o, Mine: mine, Theirs: theirs}
	if p != nil {
		f.Key, e.Key = p.key, p.key
		if p.session != nil {
			e.Session = p.session.id
		}
	}
	c.forks[o] = f
	c.event(e)
}

func lastTip(tips []oplog.Tip) (last oplog.Tip) {
	for _, t := range tips {
		if t.Seq >= last.Seq {
			last = t
		}
	}
	return last
}
