package sim

import (
	"testing"
	"time"

	"tallystick/oplog"
)

// TestC3_AmendAcrossAPartition: a replica's clock is 1,000 hours ahead while it
// writes. Two others, apart from each other, hold all that, and each amends
// another part of it. After healing every replica shows the same views, the one
// that had folded it all by its own clock included.
func TestC3_AmendAcrossAPartition(t *testing.T) {
	for seed := range uint64(5) {
		w := scenario(t, Config{Replicas: 4, Seed: seed})
		fast, b, c := w.Node(3), w.Node(1), w.Node(2)
		fast.skew += 1000 * time.Hour
		noteAt(t, fast, 1)
		noteAt(t, fast, 2)
		early := fast.log.Self().Tips[0]
		w.Play(10 * time.Second)
		noteAt(t, fast, 3)
		w.Play(10 * time.Second)
		for _, n := range []*Node{b, c} {
			if n.log.Held() != 3 || len(n.log.FutureLines()) != 1 {
				t.Fatalf("seed %d: replica %d holds %d, %+v", seed, n.id, n.log.Held(), n.log.FutureLines())
			}
		}
		w.Partition(false, 1)
		w.Play(time.Second)
		line := b.log.FutureLines()[0]
		for _, part := range []struct {
			n    *Node
			last oplog.Tip
		}{{b, early}, {c, line.Last}} {
			a := oplog.Amendment{Origin: line.Origin, Last: part.last}
			op := a.Op("", "")
			act(t, part.n, &op, nil)
			w.Play(7 * time.Second)
		}
		fast.skew -= 1000 * time.Hour
		settle(t, w)
		for i := range 4 { // settle has found the views the same; no stamp is left in the future
			if lines := w.Node(i).log.FutureLines(); len(lines) > 0 {
				t.Errorf("seed %d: replica %d still names %+v", seed, i, lines)
			}
		}
	}
}
