package logstream_test

import (
	"context"
	"crypto/ed25519"
	"fmt"

	"tallystick/oplog"
	"tallystick/query/logstream"
)

// An agent leaves a note for another, which finds it in its inbox.
func Example() {
	ctx := context.Background()
	log, err := oplog.Open(ctx, oplog.Config{
		InMemory: true, Signer: ed25519.NewKeyFromSeed(make([]byte, 32)), Projections: []oplog.Projection{logstream.View{}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer log.Close()
	op, err := logstream.NewOp("mac:claude:tally", logstream.Event{
		Type: "task.reply", Stream: "project/tally", Room: "delegation", To: "nas:codex:tally", Body: "The parser is fixed.",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := log.Append(ctx, op); err != nil {
		fmt.Println(err)
		return
	}
	err = log.View(func(snap oplog.Snapshot) error {
		page, err := logstream.List(snap, logstream.Filter{To: []string{"nas:codex:tally"}})
		for _, e := range page.Events {
			fmt.Printf("%s: %s\n", e.FromAgent, e.Body)
		}
		return err
	})
	fmt.Println(err)
	// Output:
	// mac:claude:tally: The parser is fixed.
	// <nil>
}
