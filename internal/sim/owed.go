package sim

import (
	"context"
	"time"

	"tallystick/oplog"
	"tallystick/replica"
)

// runOwed carries out what the core decided about entries whose payload is
// owed.
func (n *Node) runOwed(ctx context.Context, out replica.Output) {
	for _, e := range out.Lists {
		n.later(n.w.between(0, 3*time.Millisecond), func() {
			list, next, err := e.From(n.log)
			n.w.log("owed %d: %d err %v", n.id, len(list), err)
			n.run(n.core.OwedListed(n.now(), e, list, next, err))
		})
	}
	for _, e := range out.Entries {
		n.later(n.w.between(0, 3*time.Millisecond), func() {
			exact, err := n.log.WholeEntry(e.Hash)
			if n.w.faults && len(exact) > 0 && n.w.chance(0.05) {
				exact = append([]byte{}, exact...)
				exact[n.w.rng.IntN(len(exact))] ^= 1 << n.w.rng.IntN(8)
			}
			n.w.log("entry %d %s: %d err %v", n.id, e.Hash.String()[:6], len(exact), err)
			n.later(n.w.between(0, 2*time.Millisecond), func() { n.run(n.core.EntryRead(n.now(), e, exact, err)) })
		})
	}
	for _, e := range out.Pays {
		n.ingest = max(n.ingest, n.w.q.now) + n.w.between(time.Millisecond, 8*time.Millisecond)
		n.later(n.ingest-n.w.q.now, func() {
			var err error = oplog.ErrNoSpace
			if !n.w.faults || !n.w.chance(0.003) {
				err = n.log.PutOwed(ctx, e.Hash, e.Entry)
			}
			n.w.log("pay %d %s: err %v", n.id, e.Hash.String()[:6], err)
			n.later(n.w.between(0, 2*time.Millisecond), func() {
				n.run(n.core.EntryPut(n.now(), e, err))
				n.changed()
			})
		})
	}
}

// tellOwed tells the core that what the log owes has changed.
func (n *Node) tellOwed() {
	if n.core == nil || n.owed == n.log.OwedEpoch()+1 {
		return
	}
	n.owed = n.log.OwedEpoch() + 1
	n.run(n.core.OwedChanged(n.now()))
}

// withhold leaves payloads out of a range, as a relay does that wants some
// entries unread: the chain does not show it (T5). A birth would not verify.
func (n *Node) withhold(r *oplog.Range, which func(*oplog.Entry) bool) {
	var out []byte
	left := 0
	for rest := r.Entries; len(rest) > 0; {
		e, after, err := oplog.ParseEntry(rest)
		if err != nil {
			return // damaged already
		}
		if rest = after; e.Seq > 1 && e.Present() && which(&e) {
			e.Salt, e.Payload = nil, nil
			left++
		}
		out = e.Append(out)
	}
	r.Entries = out
	n.w.log("withhold %d %s: %d of %d", n.id, r.Origin.String()[:6], left, r.Count)
	n.w.res.Withheld += left
}

// origins are those of the log, with the floors as far as everything below
// them is in the views: not beyond an act that is owed (K4).
func (n *Node) origins() ([]oplog.Origin, error) {
	since, err := n.log.OwedSince()
	list := n.log.Origins()
	for i := range list {
		if t, owed := since[list[i].ID]; owed {
			list[i].Head.Floor = min(list[i].Head.Floor, t)
		}
	}
	return list, err
}
