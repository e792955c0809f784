package sim

import (
	"slices"
	"time"

	"tallystick/replica"
)

// conn is one stream between two replicas: frames arrive in order or not at
// all.
type conn struct {
	open bool
	ends [2]end
}

type end struct {
	node    *Node
	life    int
	session replica.SessionID
	last    time.Duration // when the last frame sent to this end arrives
	holed   bool          // a frame to this end was lost in silence; nothing more arrives
}

func (c *conn) side(n *Node) int {
	if c.ends[0].node == n {
		return 0
	}
	return 1
}

func (w *World) connsOf(a, b int) []*conn {
	var list []*conn
	for _, c := range w.conns {
		if c.open && pair(c.ends[0].node.id, c.ends[1].node.id) == pair(a, b) {
			list = append(list, c)
		}
	}
	return list
}

func (w *World) connected(a, b *Node) bool {
	return a.dials[b.id] || len(w.connsOf(a.id, b.id)) > 0
}

// dial opens a stream after a while, if both sides are there by then. Crossed
// dials and second sessions come about by themselves.
func (w *World) dial(from, to *Node) {
	if from.core == nil {
		return
	}
	from.dials[to.id] = true
	life, d := from.life, w.between(2*time.Millisecond, 60*time.Millisecond)
	w.q.after(d, func() {
		if from.life != life {
			return
		}
		delete(from.dials, to.id)
		if from.core == nil || to.core == nil || w.cut[pair(from.id, to.id)] {
			return
		}
		w.sessions += 2
		c := &conn{open: true}
		c.ends[0] = end{node: from, life: from.life, session: replica.SessionID(w.sessions)}
		c.ends[1] = end{node: to, life: to.life, session: replica.SessionID(w.sessions + 1)}
		w.conns = append(w.conns, c)
		w.log("connect %d %d", from.id, to.id)
		for i := range c.ends {
			e := &c.ends[i]
			peer := c.ends[1-i].node
			up := w.between(0, 20*time.Millisecond)
			e.last = w.q.now + up // frames wait for the side that is up later
			e.node.later(up, func() {
				if c.open {
					e.node.run(e.node.core.PeerUp(e.node.now(), e.session, peer.key, i == 0))
				}
			})
		}
		if w.faults && w.chance(0.3) {
			w.q.after(w.between(50*time.Millisecond, 8*time.Second), func() {
				if w.faults {
					w.breakConn(c)
				}
			})
		}
	})
}

// breakConn ends a stream: what is under way is lost, and each side hears of
// it in its own time.
func (w *World) breakConn(c *conn) {
	if !c.open {
		return
	}
	c.open = false
	w.conns = slices.DeleteFunc(w.conns, func(d *conn) bool { return d == c })
	w.log("break %d %d", c.ends[0].node.id, c.ends[1].node.id)
	for i := range c.ends {
		e := &c.ends[i]
		e.node.later(w.between(0, 30*time.Millisecond), func() {
			if e.node.life == e.life {
				e.node.run(e.node.core.PeerDown(e.node.now(), e.session))
			}
		})
	}
}

// hangUp is a core's wish to end a session: what it sent before still arrives.
func (w *World) hangUp(n *Node, d replica.Disconnect) {
	for _, c := range w.conns {
		if e := &c.ends[c.side(n)]; c.open && e.session == d.Session && e.node == n {
			peer := c.ends[1-c.side(n)]
			w.log("hangup %d %d: %s", n.id, peer.node.id, d.Reason)
			if d.RetryAfter > 0 {
				n.retry[peer.node.id] = w.q.now + d.RetryAfter
			}
			w.q.at(peer.last+time.Millisecond, func() { w.breakConn(c) })
			return
		}
	}
}

// transmit sends a frame. It is encoded and parsed on the way, so that a run
// exercises the codec as well.
func (w *World) transmit(n *Node, e replica.Envelope) {
	for _, c := range w.conns {
		i := c.side(n)
		if c.ends[i].node != n || c.ends[i].session != e.To || !c.open {
			continue
		}
		frame, err := replica.AppendFrame(nil, e.Msg)
		if err != nil {
			w.fail("replica %d: %v", n.id, err)
			return
		}
		to := &c.ends[1-i]
		if w.black[pair(n.id, to.node.id)] {
			to.holed = true
		}
		if to.holed {
			return
		}
		copies := 1
		if w.faults && w.chance(0.05) {
			copies = 2 // L5: a repeat costs nothing
		}
		for range copies {
			delay := w.between(time.Millisecond, 40*time.Millisecond)
			if w.faults && w.chance(0.02) {
				delay += w.between(0, 3*time.Second)
			}
			if w.rate > 0 {
				// A slow stream: each frame takes its time behind the one before.
				to.last = max(to.last, w.q.now) + time.Duration(len(frame))*time.Second/time.Duration(w.rate)
			}
			to.last = max(to.last, w.q.now+delay)
			w.q.at(to.last, func() { w.deliver(c, to, frame) })
		}
		return
	}
}

func (w *World) deliver(c *conn, to *end, frame []byte) {
	from := c.ends[1-c.side(to.node)].node
	if !c.open || to.node.life != to.life || to.node.core == nil || w.black[pair(from.id, to.node.id)] {
		if c.open && w.black[pair(from.id, to.node.id)] {
			to.holed = true
		}
		return
	}
	if to.holed {
		return
	}
	m, _, err := replica.ParseFrame(frame)
	if err != nil {
		w.fail("frame from %d to %d: %v", from.id, to.node.id, err)
		return
	}
	w.res.Frames++
	w.log("frame %d>%d %T %x", from.id, to.node.id, m, sum(frame))
	to.node.run(to.node.core.Step(to.node.now(), to.session, m))
}

func sum(b []byte) (h uint64) {
	h = 14695981039346656037
	for _, c := range b {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h
}
