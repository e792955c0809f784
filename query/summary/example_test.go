package summary_test

import (
	"context"
	"crypto/ed25519"
	"fmt"

	"tallystick/oplog"
	"tallystick/query/identity"
	"tallystick/query/summary"
)

// A session starts with its own last summaries.
func Example() {
	ctx := context.Background()
	log, err := oplog.Open(ctx, oplog.Config{
		InMemory: true, Signer: ed25519.NewKeyFromSeed(make([]byte, 32)), Projections: []oplog.Projection{summary.View{}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer log.Close()
	for _, me := range []string{"mac:claude:tally", "nas:codex:tally"} {
		op, err := summary.NewOp(me, summary.Summary{Title: "Session of " + me, Text: "What was done.", Category: "feature"})
		if err == nil {
			_, err = log.Append(ctx, op)
		}
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	own, err := identity.ParseFilter("agentIdentity", "@me", true, "mac:claude:tally")
	if err != nil {
		fmt.Println(err)
		return
	}
	err = log.View(func(snap oplog.Snapshot) error {
		page, err := summary.List(snap, summary.Query{Filter: own, Limit: 5})
		for _, s := range page.Summaries {
			fmt.Println(s.Title)
		}
		fmt.Println(page.Count, "of", page.Total)
		return err
	})
	fmt.Println(err)
	// Output:
	// Session of mac:claude:tally
	// 1 of 1
	// <nil>
}
