// Package checkpoint keeps the state an agent wants to go on from, in a
// namespace, with the branch and the commit it was working on, so that it can
// be saved on one machine and resumed on another.
//
//	op, err := checkpoint.NewOp("mac:claude:tally", checkpoint.Checkpoint{Namespace: "mac:claude:tally", State: `{"step": 3}`, Branch: "main"})
//	c, err := checkpoint.Resume(snap, checkpoint.ResumeQuery{Namespace: "mac:claude:tally"})
//
// Checkpoints are a grow-only set. The latest is the last in C2 order, which is
// total and the same on every replica. Each save notes the latest that its
// writer knew; when two hosts save in a partition, resuming gives the later one
// and names the other, which stays listed and can be resumed by its id (M3).
//
// State is a string that holds a JSON object, kept byte for byte. Anything
// else, null included, is refused and never dropped in silence.
package checkpoint
