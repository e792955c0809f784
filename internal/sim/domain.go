package sim

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"

	"tallystick/hlc"
	"tallystick/oplog"
	"tallystick/replica"
)

// Domain is what a mesh writes and folds. The network part of a simulation
// does not care. A nil op means that there is nothing to write just now.
type Domain interface {
	// Folds returns fresh projections and the gate for one log.
	Folds() ([]oplog.Projection, oplog.Gate)
	// Found is what the founder writes before anything else, for so many tasks.
	Found(n *Node, tasks int) ([]oplog.Op, error)
	// Note is the i-th plain entry, written at n.
	Note(n *Node, i int) (*oplog.Op, error)
	// Claim is a claim of a task, refused locally if the task is taken.
	Claim(n *Node, task int) (*oplog.Op, error)
	// Act does something else to a task: the dice say what.
	Act(n *Node, task int, dice int) (*oplog.Op, error)
	// React returns what n must append because of what its views hold, and the
	// timestamp it needs floors above, or 0.
	React(n *Node) ([]oplog.Op, hlc.Timestamp, error)
	// Verdicts reads each claimed task at n.
	Verdicts(n *Node) (map[string]Verdict, error)
}

// Verdict is what became of a task.
type Verdict struct {
	State string // who holds it, or how it was closed
	// Losers are the claims that lost, with how many superseded acks there are.
	Losers map[string]int
}

// Label is the replica's label.
func (n *Node) Label() string { return n.label }

// Log is the replica's log.
func (n *Node) Log() *oplog.Log { return n.log }

// found writes the genesis of the mesh, the admissions and what the domain
// begins with at replica 0, and each replica's label. A replica that joins has
// its admitter's log up to the admission; with every fourth seed it has not,
// and what it writes is held until it has.
func (w *World) found() error {
	first := w.nodes[0]
	self := first.log.Self()
	w.mesh = replica.MeshOf(self.ID)
	if err := first.write(replica.KindGenesis, w.mesh[:], first.label, self.Key[:], self.Incarnation[:]); err != nil {
		return err
	}
	for _, n := range w.nodes[1:] {
		if err := first.write(replica.KindAdmit, n.key[:], n.label); err != nil {
			return err
		}
	}
	for _, n := range w.nodes[1:] {
		if w.cfg.Seed%4 != 3 {
			admission, err := first.log.ReadRange(self.ID, 0, 1<<20)
			if err != nil {
				return err
			}
			if _, err := n.log.Ingest(context.Background(), admission); err != nil {
				return err
			}
		}
		id := n.log.Self()
		if err := n.write(replica.KindLabel, n.label, id.Key[:], id.Incarnation[:]); err != nil {
			return err
		}
	}
	ops, err := w.cfg.Domain.Found(first, w.cfg.Tasks)
	for _, op := range ops {
		first.append(op)
	}
	return err
}

// write appends an entry of membership.
func (n *Node) write(kind string, fields ...any) error {
	body, err := msgpack.Marshal(fields)
	n.append(oplog.Op{Kind: kind, Version: 1, Body: body})
	return err
}

// Kinds of the small domain.
const (
	kindNote  = "sim.note"
	kindClaim = "sim.claim"
	kindAck   = "sim.ack"
)

// small is a domain of three kinds that is small enough to be seen through:
// the earliest claim of a task wins, for ever. It checks the core and the log
// without the rules of the real domains.
type small struct{}

// Small returns the small domain.
func Small() Domain { return small{} }

// Folds implements Domain: membership is projection 0, as in a replica.
func (small) Folds() ([]oplog.Projection, oplog.Gate) {
	m := replica.NewMembership(replica.MeshID{})
	return []oplog.Projection{m, smallFold{}}, m
}

type smallFold struct{}

func (smallFold) Name() string    { return "sim" }
func (smallFold) Version() uint32 { return 1 }
func (smallFold) Kinds() []string { return []string{kindNote, kindClaim, kindAck} }

// Apply keeps every input as a row of its own, so that order cannot matter
// (M1): n+ref, c+task+ref, s+claim+ref.
func (smallFold) Apply(tx oplog.Tx, e *oplog.Entry) error {
	var prefix []byte
	switch e.Kind {
	case kindNote:
		prefix = []byte{'n'}
	case kindClaim:
		if len(e.Body) != taskLen {
			return oplog.Quarantine("task of %d bytes", len(e.Body))
		}
		prefix = append([]byte{'c'}, e.Body...)
	case kindAck:
		if len(e.Body) != oplog.RefSize {
			return oplog.Quarantine("ack of %d bytes", len(e.Body))
		}
		prefix = append([]byte{'s'}, e.Body...)
	}
	ref := e.Ref()
	return tx.Insert(append(prefix, ref[:]...), []byte(e.Author))
}

const taskLen = 6

func taskName(task int) []byte { return fmt.Appendf(nil, "task%02d", task) }

func (n *Node) author() string { return n.label + ":agent:sim" }

// Found implements Domain.
func (small) Found(*Node, int) ([]oplog.Op, error) { return nil, nil }

// Act implements Domain: there is nothing else to do to a task.
func (small) Act(*Node, int, int) (*oplog.Op, error) { return nil, nil }

// Note implements Domain.
func (small) Note(n *Node, i int) (*oplog.Op, error) {
	return &oplog.Op{Kind: kindNote, Author: n.author(), Version: 1, Body: fmt.Appendf(nil, "note %d", i)}, nil
}

var errTaken = errors.New("the task is taken")

// Claim implements Domain.
func (small) Claim(n *Node, task int) (*oplog.Op, error) {
	name := taskName(task)
	return &oplog.Op{Kind: kindClaim, Author: n.author(), Version: 1, Body: name,
		Guard: func(views oplog.Views, _ hlc.Timestamp) error {
			return views.View("sim").Scan(append([]byte{'c'}, name...), nil, false, func(_, _ []byte) (bool, error) {
				return false, errTaken
			})
		}}, nil
}

// scanClaims calls fn with the claims of each task in C2 order.
func scanClaims(r oplog.Reader, fn func(task string, claims []oplog.Ref) error) error {
	tasks := map[string][]oplog.Ref{}
	var names []string
	err := r.Scan([]byte{'c'}, nil, false, func(k, _ []byte) (bool, error) {
		task := string(k[1 : 1+taskLen])
		ref, err := oplog.RefOf(k[1+taskLen:])
		if tasks[task] == nil {
			names = append(names, task)
		}
		tasks[task] = append(tasks[task], ref)
		return true, err
	})
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := fn(name, tasks[name]); err != nil {
			return err
		}
	}
	return nil
}

// React implements Domain: once a loss is settled, the loser's home says so
// (K1, K4). Until then it asks for floors above its claim.
func (small) React(n *Node) (ops []oplog.Op, ask hlc.Timestamp, err error) {
	self := n.log.Self().ID
	err = n.log.View(func(snap oplog.Snapshot) error {
		r := snap.View("sim")
		return scanClaims(r, func(_ string, claims []oplog.Ref) error {
			for _, c := range claims[1:] {
				if c.Origin() != self {
					continue
				}
				acks, err := countAcks(r, c)
				if err != nil || acks > 0 {
					return err
				}
				ok, err := n.settled(snap, c.Time())
				if err != nil {
					return err
				}
				if !ok {
					ask = max(ask, c.Time())
					continue
				}
				ops = append(ops, oplog.Op{Kind: kindAck, Author: n.author(), Version: 1,
					OpID: fmt.Sprintf("superseded:%x", c[:]), Body: c[:]})
			}
			return nil
		})
	})
	return ops, ask, err
}

func countAcks(r oplog.Reader, claim oplog.Ref) (n int, err error) {
	err = r.Scan(append([]byte{'s'}, claim[:]...), nil, false, func(_, _ []byte) (bool, error) {
		n++
		return true, nil
	})
	return n, err
}

// settled reports whether every member has promised to stamp nothing at or
// below t any more, with all entries up to that promise here (K4).
func (n *Node) settled(snap oplog.Snapshot, t hlc.Timestamp) (bool, error) {
	members, err := replica.MembersIn(snap)
	if err != nil {
		return false, err
	}
	if len(members) < len(n.w.nodes) {
		return false, nil
	}
	floors := map[oplog.DeviceKey]hlc.Timestamp{}
	origins, err := n.origins()
	if err != nil {
		return false, err
	}
	for _, o := range origins {
		// A floor too far ahead does not count (K4). The clocks of a simulation
		// stay within the bound.
		if _, beyond := n.log.Clock().Ahead(o.Head.Floor); !beyond {
			floors[o.Key] = max(floors[o.Key], o.Head.Floor)
		}
	}
	for _, m := range n.w.nodes {
		if floors[m.key] <= t {
			return false, nil
		}
	}
	return true, nil
}

// Verdicts implements Domain.
func (small) Verdicts(n *Node) (map[string]Verdict, error) {
	all := map[string]Verdict{}
	err := n.log.View(func(snap oplog.Snapshot) error {
		r := snap.View("sim")
		return scanClaims(r, func(task string, claims []oplog.Ref) error {
			v := Verdict{State: claims[0].Stamp().String(), Losers: map[string]int{}}
			for _, c := range claims[1:] {
				acks, err := countAcks(r, c)
				if err != nil {
					return err
				}
				v.Losers[c.Stamp().String()] = acks
			}
			all[task] = v
			return nil
		})
	})
	return all, err
}
