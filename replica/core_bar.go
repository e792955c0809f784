package replica

import (
	"maps"
	"slices"

	"tallystick/oplog"
)

// Devices that are no members any more: their sessions end with the reason,
// and a session that one still opens ends at once.

// Bar says which devices are no members any more, and what to tell each.
func (c *Core) Bar(now Now, barred map[oplog.DeviceKey]string) Output {
	c.begin(now)
	c.barred = maps.Clone(barred)
	for _, s := range slices.Clone(c.sessions) {
		if text, out := barred[s.peer.key]; out {
			c.flush(s) // its last entries are here: it may want to know
			c.hangUp(s, WireEnded, text, endedRetry)
		}
	}
	return c.finish()
}

// TellGossip changes the gossip key that hellos tell, and tells it to every
// peer with a session: a hello that is repeated says nothing else that is new.
func (c *Core) TellGossip(now Now, epoch uint64, key []byte) Output {
	c.begin(now)
	c.SetGossip(epoch, key)
	for _, s := range c.sessions {
		if s.hello != nil {
			c.send(s, c.hello(s, c.tips.Digest()))
		}
	}
	return c.finish()
}

// hello is what this replica says of itself in a session.
func (c *Core) hello(s *session, digest oplog.Hash) *MsgHello {
	return &MsgHello{
		VersionMin: ProtocolVersion, VersionMax: ProtocolVersion,
		Mesh: c.cfg.Mesh, Key: c.cfg.Key, Origin: c.self, Label: c.cfg.Label,
		WallMillis: c.now.Wall, Digest: digest,
		GossipEpoch: c.cfg.GossipEpoch, GossipKey: c.cfg.GossipKey, Addrs: c.cfg.Addrs,
	}
}

// helloAgain takes what a repeated hello may say: another gossip key.
func (c *Core) helloAgain(s *session, m *MsgHello) {
	if m.Key != s.peer.key || m.GossipEpoch < s.hello.GossipEpoch || slices.Equal(m.GossipKey, s.hello.GossipKey) {
		return
	}
	again := *s.hello
	again.GossipEpoch, again.GossipKey = m.GossipEpoch, m.GossipKey
	s.hello = &again
	c.event(Event{Kind: EventGossip, Session: s.id, Key: m.Key, Hello: &again})
}
