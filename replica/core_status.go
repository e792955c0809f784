package replica

import (
	"bytes"
	"slices"

	"tallystick/oplog"
)

// Status is a snapshot of what the core knows.
func (c *Core) Status(now Now) CoreStatus {
	var st CoreStatus
	for _, p := range c.peersByKey() {
		ps := p.status
		if p.status.Known {
			ps.Behind, ps.Ahead = drift(c.tips, p.tips)
		}
		if s := p.session; s != nil {
			ps.Session, ps.Ready = s.id, s.ready
			ps.Wants, ps.Wanted = len(s.serve.subs), len(s.take.wants)
		}
		ps.Addrs = slices.Clone(ps.Addrs)
		st.Peers = append(st.Peers, ps)
	}
	for _, f := range c.forks {
		st.Forks = append(st.Forks, f)
	}
	slices.SortFunc(st.Forks, func(a, b ForkStatus) int {
		if n := a.Origin.Compare(b.Origin); n != 0 {
			return n
		}
		return bytes.Compare(a.Key[:], b.Key[:])
	})
	st.Paused = now.Mono < c.paused
	return st
}

func (c *Core) peersByKey() []*peer {
	peers := make([]*peer, 0, len(c.peers))
	for _, p := range c.peers {
		peers = append(peers, p)
	}
	slices.SortFunc(peers, func(a, b *peer) int { return bytes.Compare(a.key[:], b.key[:]) })
	return peers
}

// drift counts the entries that one side holds and the other does not.
func drift(mine, theirs oplog.Frontier) (behind, ahead uint64) {
	for o := range mine {
		if m, t := mine.Seq(o), theirs.Seq(o); m > t {
			behind += m - t
		}
	}
	for o := range theirs {
		if m, t := mine.Seq(o), theirs.Seq(o); t > m {
			ahead += t - m
		}
	}
	return behind, ahead
}

// DurableOn splits the devices met so far into those that durably hold an
// origin up to seq and those that are not known to.
func (c *Core) DurableOn(o oplog.OriginID, seq uint64) (on, notYet []oplog.DeviceKey) {
	for _, p := range c.peersByKey() {
		if p.status.Known && p.tips.Seq(o) >= seq {
			on = append(on, p.key)
		} else {
			notYet = append(notYet, p.key)
		}
	}
	return on, notYet
}

// Frontier is what the core knows to be durable here.
func (c *Core) Frontier() oplog.Frontier { return c.tips.Clone() }
