package sim

import (
	"fmt"
	"testing"
	"time"

	"tallystick/oplog"
	"tallystick/query/claim"
	"tallystick/query/logstream"
	"tallystick/replica"
)

// The counter-examples of claims whose home is revoked, or writes twice what it
// tells: over a whole mesh.

// unaware gives a mesh in which replica 0 holds the task, and replica 2 has
// claimed it later and hears of nobody: the others have its claim, and it takes
// nothing in.
func unaware(t *testing.T, seed uint64) *World {
	t.Helper()
	w := scenario(t, Config{Seed: seed, Replicas: 3, Skew: time.Millisecond})
	w.Node(2).refuse = func(*oplog.Range) error { return oplog.ErrNoSpace }
	w.Partition(false, 2)
	claimAt(t, w.Node(0), 1)
	w.Play(time.Second)
	claimAt(t, w.Node(2), 1)
	w.Heal()
	w.Play(30 * time.Second)
	for i := range 2 {
		if !w.Node(i).has(w.Node(2)) {
			t.Fatalf("replica %d has not heard of the later claim", i)
		}
	}
	return w
}

// automatic are the acks that homes have written, as a replica holds them.
func automatic(t *testing.T, n *Node) (acks []oplog.Entry) {
	t.Helper()
	err := n.log.View(func(snap oplog.Snapshot) error {
		return snap.Arrived(0, false, func(_ uint64, e *oplog.Entry) (bool, error) {
			if e.Kind != logstream.KindAck {
				return true, nil
			}
			raw, err := logstream.Decode(e)
			if err == nil && raw.Automatic {
				acks = append(acks, *e)
			}
			return true, err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return acks
}

func revokeAt(t *testing.T, n *Node, whom *Node) {
	t.Helper()
	op, err := replica.RevokeOp(n.log, whom.key, "lost")
	act(t, n, &op, err)
}

// TestA7e_HomeIsRevoked: the home of a claim that lost is revoked before it could
// tell. Nobody writes the ack in its place; the loss shows on every replica
// without one, settled, and the task stays with who holds it.
func TestA7e_HomeIsRevoked(t *testing.T) { perSeed(t, homeIsRevoked) }

func homeIsRevoked(t *testing.T, seed uint64) {
	w := unaware(t, seed)
	revokeAt(t, w.Node(0), w.Node(2))
	w.Node(2).crash()
	w.Play(2 * time.Minute)
	for _, n := range w.nodes[:2] {
		task := taskAt(t, n)
		if task.Claim == nil || task.Claim.Holder != w.Node(0).author() || !task.Open {
			t.Errorf("replica %d: open %v, held by %+v", n.id, task.Open, task.Claim)
		}
		if len(task.Losses) != 1 || task.Losses[0].Told || task.Losses[0].Grade != claim.Settled || task.Losses[0].Loser != w.Node(2).author() {
			t.Errorf("replica %d: losses %+v", n.id, task.Losses)
		}
		if acks := automatic(t, n); len(acks) != 0 {
			t.Errorf("replica %d: %d acks in the place of who is gone", n.id, len(acks))
		}
	}
	sameViews(t, w.nodes[:2])
}

// TestA7e_K5_RevokedHolder: who holds the task is revoked, at a cut before its
// claim. The claim that had lost to it was the only one all along: its home holds
// the task on every replica, settled, and no ack says otherwise.
func TestA7e_K5_RevokedHolder(t *testing.T) { perSeed(t, revokedHolder) }

func revokedHolder(t *testing.T, seed uint64) {
	w := scenario(t, Config{Seed: seed, Replicas: 3, Skew: time.Millisecond})
	revoke, err := replica.RevokeOp(w.Node(0).log, w.Node(2).key, "stolen") // cut where it has claimed nothing
	if err != nil {
		t.Fatal(err)
	}
	w.Partition(false, 0)
	claimAt(t, w.Node(2), 1)
	w.Play(time.Second)
	w.Node(2).crash()
	w.Partition(false, 1)
	claimAt(t, w.Node(0), 1) // it has heard of no other
	w.Play(time.Second)
	act(t, w.Node(0), &revoke, nil)
	w.Heal()
	w.Node(2).crash() // healing has started it
	w.Play(2 * time.Minute)
	for _, n := range w.nodes[:2] {
		task := taskAt(t, n)
		if task.Claim == nil || task.Claim.Holder != w.Node(0).author() || !task.Open || task.Claim.Grade != claim.Settled || len(task.Losses) != 0 {
			t.Errorf("replica %d: open %v, held by %+v, losses %+v", n.id, task.Open, task.Claim, task.Losses)
		}
		if acks := automatic(t, n); len(acks) != 0 {
			t.Errorf("replica %d: %d acks of a loss that is none", n.id, len(acks))
		}
	}
	sameViews(t, w.nodes[:2])
}

// TestA7d_HomeTellsTwice: the home of a lost claim writes its ack again, as one
// that was restored would before its tail is back. It counts once everywhere, and
// what its agent claims afterwards is not ended by it.
func TestA7d_HomeTellsTwice(t *testing.T) { perSeed(t, homeTellsTwice) }

func homeTellsTwice(t *testing.T, seed uint64) {
	w := unaware(t, seed)
	loser := w.Node(2)
	loser.refuse = nil
	w.Play(2 * time.Minute)
	acks := automatic(t, loser)
	if len(acks) != 1 {
		t.Fatalf("%d acks, want the one of its home", len(acks))
	}
	op, err := Real().Act(w.Node(0), 1, 0) // released
	act(t, w.Node(0), op, err)
	w.Play(10 * time.Second)
	claimAt(t, loser, 1)
	again := oplog.Op{Kind: acks[0].Kind, Author: acks[0].Author, Version: acks[0].Version, Body: acks[0].Body} // its op id is forgotten
	act(t, loser, &again, nil)
	w.Play(2 * time.Minute)
	holds(t, w, 2)
	for _, n := range w.nodes {
		err := n.log.View(func(snap oplog.Snapshot) error {
			page, err := logstream.List(snap, logstream.Filter{Status: logstream.StatusSuperseded})
			if err == nil && page.Count != 1 {
				t.Errorf("replica %d lists %d superseded acks, want 1", n.id, page.Count)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	sameViews(t, w.nodes)
}

// perSeed plays a scenario in ten orders of what happens at about the same time.
func perSeed(t *testing.T, play func(t *testing.T, seed uint64)) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { play(t, seed) })
	}
}

// sameViews demands that replicas have folded the same (M1).
func sameViews(t *testing.T, nodes []*Node) {
	t.Helper()
	want := nodes[0].log.Views()
	for _, n := range nodes[1:] {
		for i, v := range n.log.Views() {
			if v.Digest != want[i].Digest {
				t.Errorf("M1: view %s is %s on replica %d, %s on %d", v.Name, v.Digest, n.id, want[i].Digest, nodes[0].id)
			}
		}
	}
}
