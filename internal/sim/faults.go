package sim

import (
	"time"

	"tallystick/oplog"
)

// scheduleFaults draws partitions, broken connections and crashes for as long
// as the faulty time lasts.
func (w *World) scheduleFaults() {
	var next func()
	next = func() {
		if !w.faults {
			return
		}
		n := len(w.nodes)
		switch a, b := w.rng.IntN(n), w.rng.IntN(n); w.rng.IntN(6) {
		case 0: // two sides
			var side []int
			for i := range n {
				if w.chance(0.5) {
					side = append(side, i)
				}
			}
			w.Partition(w.chance(0.3), side...)
		case 1: // one replica alone
			w.Partition(w.chance(0.3), a)
		case 2: // one pair
			w.Cut(a, b, w.chance(0.3))
		case 3: // everything mended
			for x := range n {
				for y := range x {
					w.Mend(x, y)
				}
			}
		case 4:
			w.crashFor(a, w.between(100*time.Millisecond, 5*time.Second))
		case 5:
			for _, c := range w.connsOf(a, b) {
				w.breakConn(c)
			}
		}
		w.q.after(w.between(200*time.Millisecond, 6*time.Second), next)
	}
	w.q.after(w.between(0, 3*time.Second), next)
}

func (w *World) crashFor(a int, d time.Duration) {
	n := w.nodes[a]
	if n.core == nil {
		return
	}
	n.crash()
	life := n.life
	w.q.after(d, func() {
		if n.core == nil && n.life == life {
			n.start()
		}
	})
}

// scheduleWrites draws who writes what when. A replica that is down writes
// nothing; one that is alone does (A1).
func (w *World) scheduleWrites() {
	for i := range w.cfg.Appends {
		w.q.after(w.between(0, w.cfg.Faulty), func() {
			n := w.nodes[w.rng.IntN(len(w.nodes))]
			task, what, dice := w.rng.IntN(w.cfg.Tasks), w.rng.IntN(100), w.rng.IntN(1000)
			if n.core == nil {
				return
			}
			var op *oplog.Op
			var err error
			switch {
			case what < 45:
				op, err = w.cfg.Domain.Claim(n, task)
			case what < 60:
				op, err = w.cfg.Domain.Act(n, task, dice)
			default:
				op, err = w.cfg.Domain.Note(n, i)
			}
			switch {
			case err != nil:
				w.log("nothing written at %d: %v", n.id, err)
			case op != nil:
				n.append(*op)
			}
		})
	}
}
