package replica

import (
	"bytes"
	"fmt"
	"slices"

	"tallystick/oplog"
)

// Status is a snapshot of what the core knows.
func (c *Core) Status(now Now) CoreStatus {
	var st CoreStatus
	for _, p := range c.peersByKey() {
		ps := p.status
		if now.Mono >= p.busyUntil {
			ps.Busy = ""
		}
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
	slices.SortFunc(st.Forks, func(a, b ForkStatus) int { return a.Origin.Compare(b.Origin) })
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

// PeerSeq is up to where a device is known to durably hold an origin.
func (c *Core) PeerSeq(key oplog.DeviceKey, o oplog.OriginID) uint64 {
	if p := c.peers[key]; p != nil && p.status.Known {
		return p.tips.Seq(o)
	}
	return 0
}

// CheckInvariants says which promise of the core's own state is broken. The
// simulation calls it after every few steps.
func (c *Core) CheckInvariants() error {
	wanted := map[oplog.OriginID]SessionID{}
	for _, s := range c.sessions {
		if s.peer.session != s {
			return fmt.Errorf("session %d is not the session of its peer", s.id)
		}
		for sub, w := range s.take.wants {
			if other, ok := wanted[w.origin]; ok {
				return fmt.Errorf("origin %s is wanted from sessions %d and %d", w.origin, other, s.id)
			}
			if c.wants[w.origin] != w || w.sub != sub {
				return fmt.Errorf("subscription %d of session %d is not the one of its origin", sub, s.id)
			}
			wanted[w.origin] = s.id
		}
		if limit := uint64(c.cfg.Window) + (maxReads+1)*MaxRangeFrame; s.take.bytes > limit {
			return fmt.Errorf("session %d has %d bytes in ingests, limit %d", s.id, s.take.bytes, limit)
		}
		if len(s.serve.byOrigin) != len(s.serve.subs) || s.serve.reads < 0 || s.serve.reads > maxReads {
			return fmt.Errorf("session %d serves %d subscriptions of %d origins with %d reads", s.id, len(s.serve.subs), len(s.serve.byOrigin), s.serve.reads)
		}
	}
	for _, m := range c.blobs.order {
		if f := m.fetch; f != nil && (f.m != m || f.s.blob.fetch != f || c.session(f.s.id) != f.s) {
			return fmt.Errorf("blob %s is fetched from a session that does not know", m.Hash)
		}
	}
	for _, s := range c.sessions {
		if f := s.blob.fetch; f != nil && c.blobs.missing[f.m.Hash] != f.m {
			return fmt.Errorf("session %d fetches a blob that is not missing", s.id)
		}
		if len(s.blob.asked) > maxBlobHashes {
			return fmt.Errorf("session %d has asked for %d blobs", s.id, len(s.blob.asked))
		}
	}
	asked := map[oplog.Hash]SessionID{}
	for _, s := range c.sessions {
		if f := s.entry.fetch; f != nil {
			for _, h := range f.left {
				if other, twice := asked[h]; twice {
					return fmt.Errorf("entry %s is asked of sessions %d and %d", h, other, s.id)
				}
				asked[h] = s.id
			}
			if len(f.left) > maxEntryHashes || f.puts < 0 || len(f.left)+f.puts == 0 {
				return fmt.Errorf("session %d asks for %d entries and takes in %d", s.id, len(f.left), f.puts)
			}
		}
		if len(s.entry.asked) > maxOwedNotes || len(s.entry.backoff) > maxOwedNotes {
			return fmt.Errorf("session %d remembers %d and %d entries", s.id, len(s.entry.asked), len(s.entry.backoff))
		}
	}
	for o, w := range c.wants {
		if wanted[o] != w.s.id {
			return fmt.Errorf("origin %s is wanted from a session that is gone", o)
		}
	}
	return nil
}
