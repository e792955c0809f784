package rawmemory_test

import (
	"context"
	"crypto/ed25519"
	"fmt"

	"tallystick/oplog"
	"tallystick/query/identity"
	"tallystick/query/rawmemory"
)

func Example() {
	ctx := context.Background()
	log, err := oplog.Open(ctx, oplog.Config{
		InMemory: true, MinFree: -1, Signer: ed25519.NewKeyFromSeed(make([]byte, 32)), Projections: []oplog.Projection{rawmemory.View{}},
	})
	if err != nil {
		panic(err)
	}
	defer log.Close()

	op, err := rawmemory.NewOp("mac:claude:tally", rawmemory.Turn{Session: "s1", Prompt: "why?", Response: "because"})
	if err != nil {
		panic(err)
	}
	if _, err := log.Append(ctx, op); err != nil {
		panic(err)
	}
	err = log.View(func(s oplog.Snapshot) error {
		own, err := identity.ParseFilter("agentIdentity", "@me", true, "mac:claude:tally")
		if err != nil {
			return err
		}
		page, err := rawmemory.Recent(s, rawmemory.RecentQuery{Filter: own})
		for _, t := range page.Turns {
			fmt.Println(t.SessionID, t.Prompt, t.Response)
		}
		return err
	})
	if err != nil {
		panic(err)
	}
	// Output: s1 why? because
}
