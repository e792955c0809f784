package replica

import (
	"slices"

	"tallystick/oplog"
)

type forkKey struct {
	origin oplog.OriginID
	key    oplog.DeviceKey
}

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
		// Within a session a durable frontier only grows, so a lower seq is an
		// old message and changes nothing.
		for _, o := range m.Tips.Origins() {
			if m.Tips.Seq(o) >= s.peer.tips.Seq(o) {
				s.peer.tips[o] = m.Tips[o]
				c.peerMoved(s, o)
			}
		}
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
		c.compare(s, o)
	}
}

// peerMoved looks at what a peer's position in an origin means here.
func (c *Core) peerMoved(s *session, o oplog.OriginID) {
	c.noteOrigin(o)
	c.replan[o] = true
	c.compare(s, o)
	c.offerHead(s, o)
}

// advance takes in that the log durably holds an origin up to a tip, whoever
// said so first: an ingest, an own commit or a range that was read (L1).
func (c *Core) advance(o oplog.OriginID, tip oplog.Tip, head oplog.Head) {
	if tip.Seq > c.tips.Seq(o) {
		c.noteOrigin(o)
		c.tips[o] = []oplog.Tip{tip}
		c.replan[o] = true
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

// compare notes what a peer's position says beyond more and less: another
// branch (L7c), or more of an own origin than is here (L7b).
func (c *Core) compare(s *session, o oplog.OriginID) {
	k := forkKey{o, s.peer.key}
	forked := false
	for _, mine := range c.tips[o] {
		for _, theirs := range s.peer.tips[o] {
			if mine.Seq == theirs.Seq && mine.Hash != theirs.Hash && !c.tips.Has(o, theirs) {
				forked = true
				c.noteFork(s, o, mine, theirs)
			}
		}
	}
	// Equal tips end a disagreement; a longer log on one side proves nothing.
	if !forked && c.tips.Seq(o) == s.peer.tips.Seq(o) {
		delete(c.forks, k)
	}
	if !c.own[o] || s.peer.tips.Seq(o) <= c.tips.Seq(o) {
		delete(c.ownAhead, k)
		return
	}
	theirs := lastTip(s.peer.tips[o])
	if c.ownAhead[k] != theirs {
		c.ownAhead[k] = theirs
		c.event(Event{Kind: EventOwnAhead, Session: s.id, Key: s.peer.key, Origin: o, Mine: lastTip(c.tips[o]), Theirs: theirs})
	}
}

func (c *Core) noteFork(s *session, o oplog.OriginID, mine, theirs oplog.Tip) {
	k := forkKey{o, s.peer.key}
	f := ForkStatus{Origin: o, Key: s.peer.key, Mine: mine, Theirs: theirs}
	if c.forks[k] == f {
		return
	}
	c.forks[k] = f
	c.event(Event{Kind: EventFork, Session: s.id, Key: s.peer.key, Origin: o, Mine: mine, Theirs: theirs})
}

func lastTip(tips []oplog.Tip) (last oplog.Tip) {
	for _, t := range tips {
		if t.Seq >= last.Seq {
			last = t
		}
	}
	return last
}
