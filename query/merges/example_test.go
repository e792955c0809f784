package merges_test

import (
	"fmt"

	"tallystick/oplog"
	"tallystick/query/merges"
)

func ExampleList() {
	show := func(snap oplog.Snapshot, env merges.Env) error {
		page, err := merges.List(snap, env, merges.Filter{Kind: "claim"})
		for _, m := range page.Merges {
			fmt.Println(m.ID, "lost to", m.Kept.ID, "by", m.Rule)
		}
		return err
	}
	_ = show
	fmt.Println(merges.Kinds())
	// Output: [claim import summary turn fact checkpoint label]
}
