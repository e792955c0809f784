package sim

import (
	"fmt"
	"time"

	"tallystick/hlc"
	"tallystick/oplog"
	"tallystick/query"
	"tallystick/query/claim"
	"tallystick/query/imported"
	"tallystick/query/logstream"
	"tallystick/query/summary"
	"tallystick/replica"
)

// real is what a replica folds: membership and query.Default, with the
// reactors of the product.
type real struct{}

// Real returns the domain of the product.
func Real() Domain { return real{} }

const simStream = "project/sim"

// Folds implements Domain.
func (real) Folds() ([]oplog.Projection, oplog.Gate) {
	m := replica.NewMembership(replica.MeshID{})
	projections, _ := query.Default()
	return append([]oplog.Projection{m}, projections...), m
}

// Found implements Domain: the tasks are requested.
func (real) Found(n *Node, tasks int) (ops []oplog.Op, err error) {
	for i := range tasks {
		op, err := logstream.NewOp(n.author(), logstream.Event{
			Type: logstream.TypeRequest, Stream: simStream, Room: "delegation", Status: logstream.StatusOpen,
			Correlation: string(taskName(i)), Body: "do it",
		})
		if err != nil {
			return nil, err
		}
		ops = append(ops, op)
	}
	return ops, nil
}

// Note implements Domain: events, summaries and artifacts.
func (real) Note(n *Node, i int) (*oplog.Op, error) {
	var op oplog.Op
	var err error
	if i%10 == 5 {
		sizes := []int{1, 900, 70_000, oplog.ChunkSize, 2*oplog.ChunkSize + 1}
		return artifactAt(n, i%40, sizes[i/10%len(sizes)])
	}
	if i%4 == 0 {
		op, err = summary.NewOp(n.author(), summary.Summary{Title: fmt.Sprintf("summary %d", i), Text: "what was done"})
	} else {
		op, err = logstream.NewOp(n.author(), logstream.Event{
			Type: "note", Stream: simStream, Room: "general", To: fmt.Sprintf("r%d:agent:sim", i%5), Body: fmt.Sprintf("note %d", i),
		})
	}
	return &op, err
}

// Claim implements Domain.
func (d real) Claim(n *Node, task int) (*oplog.Op, error) {
	return d.ack(n, task, claim.Input{Status: logstream.StatusClaimed})
}

// Act implements Domain: releases, renewals, failures and, now and then, a
// close (K3).
func (d real) Act(n *Node, task int, dice int) (*oplog.Op, error) {
	in := claim.Input{}
	switch {
	case dice < 400:
		in.Status = logstream.StatusReleased
	case dice < 650:
		in.Status = logstream.StatusBlocked
	case dice < 850:
		in.Status, in.LeaseMS = logstream.StatusReady, (24 * time.Hour).Milliseconds()
	case dice < 930:
		in.Status = logstream.StatusFailed
	default:
		in.Status = logstream.StatusApplied
	}
	return d.ack(n, task, in)
}

func (real) ack(n *Node, task int, in claim.Input) (op *oplog.Op, err error) {
	err = n.log.View(func(snap oplog.Snapshot) error {
		request, err := requestOf(snap, string(taskName(task)))
		if err != nil {
			return err
		}
		in.Of = request
		made, _, err := claim.NewOp(snap, n.log.Self(), n.author(), in)
		op = &made
		return err
	})
	return op, err
}

// requestOf finds a task's request. Replicas know it once it has arrived.
func requestOf(snap oplog.Snapshot, task string) (ref oplog.Ref, err error) {
	page, err := logstream.List(snap, logstream.Filter{Correlation: task, Types: []string{logstream.TypeRequest}, Limit: 1})
	if err != nil {
		return ref, err
	}
	if len(page.Events) == 0 {
		return ref, fmt.Errorf("the request of %s has not arrived", task)
	}
	e, err := logstream.Find(snap, "event_id", page.Events[0].ID)
	return e.Ref(), err
}

// horizon is what the replica tells claims of the members (K4). The shell
// computes the same from the same.
func (n *Node) horizon(snap oplog.Snapshot) (claim.Horizon, error) {
	h := claim.Horizon{Now: time.UnixMilli(n.wall()), Self: n.log.Self().ID}
	members, err := replica.MembersIn(snap)
	if err != nil {
		return h, err
	}
	origins := map[oplog.DeviceKey][]oplog.Origin{}
	heard, err := n.origins()
	if err != nil {
		return h, err
	}
	for _, o := range heard {
		origins[o.Key] = append(origins[o.Key], o)
	}
	for _, m := range members {
		for _, o := range origins[m.Key] {
			h.Members = append(h.Members, claim.MemberFloor{
				Label: m.Label, Origin: o.ID, Floor: o.Head.Floor, Self: m.Key == n.key,
				Complete: len(o.Tips) == 1 && o.Tips[0] == o.Head.Tip(),
			})
		}
		if len(origins[m.Key]) == 0 {
			h.Members = append(h.Members, claim.MemberFloor{Label: m.Label, Floor: m.Admission.Time()})
		}
	}
	return h, nil
}

// React implements Domain with the product's reactors.
func (real) React(n *Node) (ops []oplog.Op, ask hlc.Timestamp, err error) {
	_, reactors := query.Default()
	err = n.log.View(func(snap oplog.Snapshot) error {
		h, err := n.horizon(snap)
		if err != nil {
			return err
		}
		env := query.Env{Self: n.log.Self(), Label: n.label, Now: h.Now, Horizon: h}
		for _, r := range reactors {
			more, wait, err := r.React(snap, env)
			if err != nil {
				return fmt.Errorf("%s: %w", r.Name(), err)
			}
			ops = append(ops, more...)
			ask = max(ask, wait)
		}
		return nil
	})
	return ops, ask, err
}

// Verdicts implements Domain.
func (real) Verdicts(n *Node) (map[string]Verdict, error) {
	all := map[string]Verdict{}
	err := n.log.View(func(snap oplog.Snapshot) error {
		acks, err := supersededAcks(snap)
		if err != nil {
			return err
		}
		h, err := n.horizon(snap)
		if err != nil {
			return err
		}
		// Everybody reads at the same time, or a reading would differ for as long
		// as clocks do (K3).
		h.Now = time.UnixMilli(epoch + n.w.q.now.Milliseconds())
		for i := range n.w.cfg.Tasks {
			task, err := claim.Get(snap, claim.TaskKey(simStream, string(taskName(i)), imported.Key{}, oplog.Hash{}), h, nil)
			if err != nil {
				return err
			}
			if task.Claim == nil && task.Closed == "" && len(task.Losses) == 0 {
				continue
			}
			v := Verdict{State: "free", Losers: map[string]int{}}
			if task.Claim != nil {
				v.State = "held by " + task.Claim.Event
			}
			if task.Closed != "" {
				v.State = "closed by " + task.Closed
			}
			for _, l := range task.Losses {
				v.Losers[l.Claim] = acks[l.Claim]
			}
			all[string(taskName(i))] = v
			for _, l := range task.Losses {
				delete(acks, l.Claim)
			}
		}
		// An ack too early would end a claim that is rightful (A7c).
		for c := range acks {
			return fmt.Errorf("K1: claim %s has a superseded ack and has not lost", c)
		}
		return nil
	})
	return all, err
}

// supersededAcks counts the acks by the claim that they end.
func supersededAcks(snap oplog.Snapshot) (map[string]int, error) {
	acks := map[string]int{}
	err := snap.Arrived(0, false, func(_ uint64, e *oplog.Entry) (bool, error) {
		if e.Kind != logstream.KindAck {
			return true, nil
		}
		raw, err := logstream.Decode(e)
		if err == nil && raw.Automatic {
			acks[logstream.EventID(raw.Claim)]++
		}
		return true, err
	})
	return acks, err
}
