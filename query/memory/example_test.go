package memory_test

import (
	"context"
	"crypto/ed25519"
	"fmt"

	"tallystick/oplog"
	"tallystick/query/memory"
)

func Example() {
	ctx := context.Background()
	log, err := oplog.Open(ctx, oplog.Config{
		InMemory: true, MinFree: -1, Signer: ed25519.NewKeyFromSeed(make([]byte, 32)), Projections: []oplog.Projection{memory.View{}},
	})
	if err != nil {
		panic(err)
	}
	defer log.Close()

	const me = "mac:claude:tally"
	add, err := memory.NewAdd(me, memory.Fact{Namespace: me, Text: "the port is 7716"})
	if err != nil {
		panic(err)
	}
	if _, err := log.Append(ctx, add); err != nil {
		panic(err)
	}
	call, err := memory.ParseReflect([]byte(`{"action": "update", "agent_id": "mac:claude:tally", "target": "the port is 7716", "text": "the port is 7717"}`))
	if err != nil {
		panic(err)
	}
	ops, err := call.Ops(me)
	if err != nil {
		panic(err)
	}
	done, err := log.Append(ctx, ops...)
	if err != nil {
		panic(err)
	}
	err = log.View(func(s oplog.Snapshot) error {
		outcome, err := memory.OutcomeOf(s, done)
		if err != nil {
			return err
		}
		fmt.Println("retired", len(outcome.Retired))
		page, err := memory.List(s, memory.Filter{Namespaces: []string{me, memory.Shared}})
		for _, f := range page.Facts {
			fmt.Println(f.Text)
		}
		return err
	})
	if err != nil {
		panic(err)
	}
	// Output:
	// retired 1
	// the port is 7717
}

func ExampleParseReflect() {
	_, err := memory.ParseReflect([]byte(`{"action": "add", "agent_id": " ", "agent": "valid", "text": "x"}`))
	fmt.Println(err)
	// Output:
	// agent_id is required and must hold more than white space; give agent_id
}
