package claim_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"

	"tallystick/oplog"
	"tallystick/query/claim"
	"tallystick/query/logstream"
)

// Two agents want one task. The second is told who holds it.
func Example() {
	ctx := context.Background()
	log, err := oplog.Open(ctx, oplog.Config{
		InMemory: true, Signer: ed25519.NewKeyFromSeed(make([]byte, 32)), Projections: []oplog.Projection{logstream.View{}, claim.View{}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer log.Close()
	request, err := logstream.NewOp("mac:owner:tally", logstream.Event{
		Type: logstream.TypeRequest, Stream: "project/tally", Room: "delegation", Status: "open", Body: "Fix the parser.",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	task, err := log.Append(ctx, request)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, agent := range []string{"mac:claude:tally", "mac:codex:tally"} {
		var op oplog.Op
		err := log.View(func(snap oplog.Snapshot) (err error) {
			op, _, err = claim.NewOp(snap, log.Self(), agent, claim.Input{EventID: logstream.EventID(task[0].Ref), Status: "claimed"})
			return err
		})
		if err == nil {
			_, err = log.Append(ctx, op)
		}
		var not *claim.NotTaken
		switch {
		case errors.As(err, &not):
			fmt.Println(agent, not.Outcome)
		case err == nil:
			fmt.Println(agent, claim.Won)
		default:
			fmt.Println(err)
		}
	}
	// Output:
	// mac:claude:tally won
	// mac:codex:tally held
}
