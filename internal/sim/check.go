package sim

import (
	"context"
	"fmt"
	"maps"
	"time"

	"tallystick/oplog"
)

// checkEvery is how often the checks that hold at all times are made.
const checkEvery = 500 * time.Millisecond

// Settle lets time pass until the mesh has converged and keeps still, and
// makes the final checks. It is an error if that takes longer than the
// configured time, or if any check failed on the way.
func (w *World) Settle(ctx context.Context) error {
	healed := w.q.now
	var why error
	for w.q.now < healed+w.cfg.Settle {
		if err := ctx.Err(); err != nil {
			return err
		}
		w.Play(checkEvery)
		w.checkAlways()
		if w.err != nil {
			return w.err
		}
		if why = w.converged(); why == nil {
			w.res.Healed = w.q.now - healed
			return w.finalChecks()
		}
	}
	return fmt.Errorf("not converged %s after healing: %w", w.cfg.Settle, why)
}

// checkAlways makes the checks that hold at any time, faults or not.
func (w *World) checkAlways() {
	for _, n := range w.nodes {
		if n.core == nil {
			continue
		}
		durable := n.log.Frontier()
		// L1: what a core advertises is durable.
		for o := range n.core.Frontier() {
			if n.core.Frontier().Seq(o) > durable.Seq(o) {
				w.fail("L1: replica %d advertises %d of %s, holds %d", n.id, n.core.Frontier().Seq(o), o, durable.Seq(o))
			}
		}
		// L1, from the other side: what is believed of a peer is true of it.
		for _, p := range w.nodes {
			for o, seq := range believed(n, p, durable) {
				if held := p.log.Frontier().Seq(o); seq > held {
					w.fail("L1: replica %d believes that %d holds %d of %s, it holds %d", n.id, p.id, seq, o, held)
				}
			}
		}
		if err := n.core.CheckInvariants(); err != nil {
			w.fail("replica %d: %v", n.id, err)
		}
	}
}

// believed is up to where n thinks that p durably holds the origins n knows.
func believed(n, p *Node, durable oplog.Frontier) map[oplog.OriginID]uint64 {
	seqs := map[oplog.OriginID]uint64{}
	for _, o := range durable.Origins() {
		seqs[o] = n.core.PeerSeq(p.key, o)
	}
	return seqs
}

// converged says what is still missing for the mesh to have converged.
func (w *World) converged() error {
	first := w.nodes[0]
	want := first.log.Frontier().Digest()
	for _, n := range w.nodes[1:] {
		if got := n.log.Frontier().Digest(); got != want {
			return fmt.Errorf("frontier of replica %d differs from that of 0: %v, %v", n.id, describe(n.log.Frontier()), describe(first.log.Frontier()))
		}
	}
	for _, n := range w.nodes {
		if held := n.log.Held(); held > 0 {
			return fmt.Errorf("replica %d holds %d entries back", n.id, held)
		}
		if pending := n.log.AmendPending(); pending > 0 {
			return fmt.Errorf("replica %d has %d amends to apply", n.id, pending)
		}
		if err := n.missesBlobs(); err != nil {
			return err
		}
		if owed := n.log.OwedTotal(); owed > 0 {
			return fmt.Errorf("replica %d is owed %d payloads", n.id, owed)
		}
		for _, p := range w.nodes {
			if p != n && !n.knowsAll(p) {
				return fmt.Errorf("replica %d does not know that %d holds everything", n.id, p.id)
			}
		}
	}
	verdicts, err := w.cfg.Domain.Verdicts(first)
	if err != nil {
		return err
	}
	for task, v := range verdicts {
		for c, acks := range v.Losers {
			if acks == 0 {
				return fmt.Errorf("task %s: the loss of %s is not settled", task, c)
			}
		}
	}
	return nil
}

func (n *Node) knowsAll(p *Node) bool {
	f := n.log.Frontier()
	for _, o := range f.Origins() {
		if n.core.PeerSeq(p.key, o) < f.Seq(o) {
			return false
		}
	}
	return true
}

func describe(f oplog.Frontier) string {
	s := ""
	for _, o := range f.Origins() {
		s += fmt.Sprintf(" %s:%d", o.String()[:6], f.Seq(o))
	}
	return s
}

// finalChecks are made once, on a converged mesh.
func (w *World) finalChecks() error {
	first := w.nodes[0]
	views := first.log.Views()
	verdicts, err := w.cfg.Domain.Verdicts(first)
	if err != nil {
		return err
	}
	for _, n := range w.nodes {
		// M1: the same entries in another order give the same rows.
		for i, v := range n.log.Views() {
			if v != views[i] {
				return fmt.Errorf("M1: view %s of replica %d is %v, of replica 0 %v", v.Name, n.id, v, views[i])
			}
		}
		aside, err := n.log.Aside(1)
		if err != nil || len(aside) > 0 {
			return fmt.Errorf("L6: replica %d holds %v aside, %v", n.id, aside, err)
		}
		if err := w.checkAcked(n); err != nil {
			return err
		}
		if err := w.checkBlobs(n); err != nil {
			return err
		}
		theirs, err := w.cfg.Domain.Verdicts(n)
		if err != nil {
			return err
		}
		if !maps.EqualFunc(verdicts, theirs, func(a, b Verdict) bool { return a.State == b.State && maps.Equal(a.Losers, b.Losers) }) {
			return fmt.Errorf("K1: replica %d sees %v, replica 0 %v", n.id, theirs, verdicts)
		}
		if st := n.core.Status(n.now()); len(st.Forks) > 0 || st.Paused {
			return fmt.Errorf("replica %d ends with forks %v, paused %v", n.id, st.Forks, st.Paused)
		}
	}
	for task, v := range verdicts {
		w.res.Claimed++
		for c, acks := range v.Losers {
			w.res.Losers++
			if acks != 1 {
				return fmt.Errorf("K1: claim %s of task %s has %d superseded acks", c, task, acks)
			}
		}
	}
	return w.checkQuiet()
}

// checkAcked looks for everything a writer was told is safe (L1).
func (w *World) checkAcked(n *Node) error {
	return n.log.View(func(snap oplog.Snapshot) error {
		for _, a := range w.acked {
			arrival, err := snap.Arrival(a.Ref)
			if err != nil {
				return err
			}
			if arrival == 0 {
				return fmt.Errorf("L1: entry %s, acknowledged at replica %d, is not visible at %d", a.Ref.Stamp(), a.node, n.id)
			}
		}
		return nil
	})
}

// checkQuiet lets a converged mesh run on: it must not chatter, but for pings
// and for what was still under way (B5).
func (w *World) checkQuiet() error {
	w.Play(5 * time.Second)
	before := w.res.Frames
	w.Play(10 * time.Second)
	n := len(w.nodes)
	// A ping and a pong each way per pair, and as much again for the odd
	// reconnect of a stream that had a hole in it.
	if limit := 8 * n * (n - 1); w.res.Frames-before > limit {
		return fmt.Errorf("B5: %d frames in 10 s on a converged mesh, limit %d", w.res.Frames-before, limit)
	}
	return w.err
}
