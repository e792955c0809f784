package artifact_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"

	"tallystick/oplog"
	"tallystick/query/artifact"
)

// Content first, then the entry that names it.
func Example() {
	ctx := context.Background()
	log, err := oplog.Open(ctx, oplog.Config{
		InMemory: true, Signer: ed25519.NewKeyFromSeed(make([]byte, 32)), Projections: []oplog.Projection{artifact.View{}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer log.Close()
	patch := []byte("--- a\n+++ b")
	var look artifact.Scanner
	look.Write(patch)
	hash, size, err := log.PutBlob(ctx, bytes.NewReader(patch), -1)
	if err != nil {
		fmt.Println(err)
		return
	}
	op, err := artifact.NewOp("mac:claude:tally", artifact.Artifact{Kind: "patch", Hash: hash, Size: size, Warnings: look.Warnings("patch")})
	if err == nil {
		_, err = log.Append(ctx, op)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	err = log.View(func(snap oplog.Snapshot) error {
		page, err := artifact.List(snap, 10, 0, log, nil)
		for _, a := range page.Artifacts {
			fmt.Println(a.Kind, a.Size, a.Here, a.Warnings)
		}
		return err
	})
	fmt.Println(err)
	// Output:
	// patch 11 true [the patch does not end with a newline; git apply may refuse it]
	// <nil>
}
