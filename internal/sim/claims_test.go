package sim

import (
	"testing"
	"time"

	"tallystick/oplog"
	"tallystick/query/claim"
	"tallystick/query/imported"
	"tallystick/query/logstream"
)

// The counter-examples of claims over a whole mesh: real logs, folds and
// reactors, with the network between them.

func ackAt(t *testing.T, n *Node, in claim.Input) {
	t.Helper()
	op, err := real{}.ack(n, 1, in)
	act(t, n, op, err)
}

func claimFor(t *testing.T, n *Node, lease time.Duration) {
	t.Helper()
	ackAt(t, n, claim.Input{Status: logstream.StatusClaimed, LeaseMS: lease.Milliseconds()})
}

// taskAt is task 1 as a replica shows it.
func taskAt(t *testing.T, n *Node) (task claim.Task) {
	t.Helper()
	err := n.log.View(func(snap oplog.Snapshot) error {
		h, err := n.horizon(snap)
		if err != nil {
			return err
		}
		task, err = claim.Get(snap, claim.TaskKey(simStream, string(taskName(1)), imported.Key{}, oplog.Hash{}), h, nil)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return task
}

func holds(t *testing.T, w *World, holder int) {
	t.Helper()
	for _, n := range w.nodes {
		task := taskAt(t, n)
		if task.Claim == nil || task.Claim.Holder != w.Node(holder).author() || !task.Open {
			t.Errorf("replica %d: open %v, held by %+v, want replica %d", n.id, task.Open, task.Claim, holder)
		}
	}
}

// TestA7a_A7f_LosersActsEndNothing: in a partition the later claim's holder
// reports, and fails. None of that is about the earlier claim: after healing
// its task is open and held, and the loser's superseded ack closes nothing.
func TestA7a_A7f_LosersActsEndNothing(t *testing.T) {
	for _, status := range []string{logstream.StatusReady, logstream.StatusBlocked, logstream.StatusFailed, logstream.StatusReleased} {
		t.Run(status, func(t *testing.T) {
			w := scenario(t, Config{Replicas: 3, Skew: time.Millisecond})
			w.Partition(false, 0)
			claimAt(t, w.Node(0), 1)
			w.Play(time.Second)
			claimAt(t, w.Node(2), 1)
			w.Play(time.Second)
			ackAt(t, w.Node(2), claim.Input{Status: status})
			w.Play(5 * time.Second)
			settle(t, w)
			holds(t, w, 0)
			if w.res.Losers != 1 {
				t.Errorf("%d claims lost", w.res.Losers)
			}
		})
	}
}

// TestA7b_LossOutlivesTheWinner: the winner's lease ends. The claim that lost
// to it does not come to life again, although its own lease goes on.
func TestA7b_LossOutlivesTheWinner(t *testing.T) {
	w := scenario(t, Config{Replicas: 3, Skew: time.Millisecond})
	w.Partition(false, 0)
	claimFor(t, w.Node(0), 20*time.Minute)
	w.Play(time.Second)
	claimFor(t, w.Node(2), 24*time.Hour)
	w.Play(5 * time.Second)
	settle(t, w)
	holds(t, w, 0)
	w.Play(25 * time.Minute)
	for _, n := range w.nodes {
		if task := taskAt(t, n); task.Claim != nil || !task.Open {
			t.Errorf("replica %d: open %v, held by %+v, want nobody", n.id, task.Open, task.Claim)
		}
	}
	claimAt(t, w.Node(2), 1) // a new claim is another thing
	settle(t, w)
	holds(t, w, 2)
}

// TestA2_PresumedDropsNothing: a replica claims and is away for longer than
// the window. What is claimed meanwhile is presumed to stand, and says whom
// that does not cover. When the first one is back its claim wins as it would
// have at once, and the other is told; nothing was dropped for good.
func TestA2_PresumedDropsNothing(t *testing.T) {
	w := scenario(t, Config{Replicas: 3, Skew: time.Millisecond})
	w.Partition(false, 2)
	claimFor(t, w.Node(2), 30*24*time.Hour)
	w.Play(5 * time.Second)
	away := 9 * 24 * time.Hour
	w.Node(0).skew += away // nine days go by
	w.Node(1).skew += away
	w.Play(10 * time.Second)
	claimFor(t, w.Node(1), 30*24*time.Hour)
	w.Play(time.Minute)
	for i := range 2 {
		task := taskAt(t, w.Node(i))
		if task.Claim == nil || task.Claim.Holder != w.Node(1).author() || task.Claim.Grade != claim.Presumed || len(task.Claim.Unheard) != 1 || task.Claim.Unheard[0].Replica != "r2" {
			t.Fatalf("replica %d: %+v", i, task.Claim)
		}
		if task.Claim.FenceFinal {
			t.Error("a presumed claim has a final fence")
		}
	}
	w.Node(2).skew += away
	settle(t, w)
	holds(t, w, 2)
	if w.res.Losers != 1 {
		t.Errorf("%d claims lost", w.res.Losers)
	}
}
