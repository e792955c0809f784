package sim_test

import (
	"context"
	"fmt"
	"time"

	"tallystick/internal/sim"
)

// A seed says everything: what is written, what breaks, and when.
func ExampleRun() {
	res, err := sim.Run(context.Background(), sim.Config{Seed: 7, Replicas: 3, Faulty: 10 * time.Second, Appends: 30})
	if err != nil {
		fmt.Println(err)
		return
	}
	again, err := sim.Run(context.Background(), sim.Config{Seed: 7, Replicas: 3, Faulty: 10 * time.Second, Appends: 30})
	fmt.Println("converged:", res.Healed > 0, "same trace:", res.Hash == again.Hash, err)
	// Output: converged: true same trace: true <nil>
}

// A world can also be driven by hand.
func ExampleWorld() {
	w, err := sim.New(sim.Config{Replicas: 3, Quiet: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer w.Close()
	w.Play(5 * time.Second)
	w.Partition(false, 0) // replica 0 alone
	op, err := sim.Real().Claim(w.Node(0), 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	w.Append(0, *op)
	w.Heal()
	fmt.Println(w.Settle(context.Background()))
	// Output: <nil>
}
