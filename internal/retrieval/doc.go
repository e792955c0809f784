// Package retrieval measures search: questions with the records that answer
// them, recall at 5 and 10, mean reciprocal rank, and naive ways of searching
// beside ours.
//
// Three corpora are known. Fixture is a small one of our own and Conversations
// a larger one made from talks.txt; both always run. LoadBeads reads an issue tracker's JSONL where it lies; its questions are
// phrased by us or made by a rule from the file while it is read, and name the
// records they expect by id. No text of that file is in this repository.
//
// The questions fall into two halves, reported apart. Weights were chosen from
// sweeps that showed both, so neither is unseen. Run it with
//
//	go run ./internal/retrieval/cmd/retrieval -data ../shared/data/agent-work.beads.jsonl
package retrieval
