package checkpoint_test

import (
	"context"
	"crypto/ed25519"
	"fmt"

	"tallystick/oplog"
	"tallystick/query/checkpoint"
)

func Example() {
	ctx := context.Background()
	log, err := oplog.Open(ctx, oplog.Config{
		InMemory: true, MinFree: -1, Signer: ed25519.NewKeyFromSeed(make([]byte, 32)), Projections: []oplog.Projection{checkpoint.View{}},
	})
	if err != nil {
		panic(err)
	}
	defer log.Close()

	const me = "mac:claude:tally"
	op, err := checkpoint.NewOp(me, checkpoint.Checkpoint{Namespace: me, State: `{"step": 3}`, Branch: "main", BaseCommit: "c0ffee"})
	if err != nil {
		panic(err)
	}
	if _, err := log.Append(ctx, op); err != nil {
		panic(err)
	}
	err = log.View(func(s oplog.Snapshot) error {
		r, err := checkpoint.Resume(s, checkpoint.ResumeQuery{Namespace: me})
		fmt.Println(r.Record.Branch, r.Record.BaseCommit, r.Record.Raw)
		return err
	})
	if err != nil {
		panic(err)
	}
	// Output: main c0ffee {"step": 3}
}
