// Package document is what a search index needs to know of a record of any
// domain: where it comes from, by what it is filtered, whether it still holds
// and what its words are.
//
//	docs, err := memory.Documents(snap, entry)
package document

import "tallystick/oplog"

// State says whether a document still holds.
type State string

// The states.
const (
	Live       State = "live"
	Superseded State = "superseded" // a newer one stands in its place
	Forgotten  State = "forgotten"  // tombstoned
	Erased     State = "erased"     // no byte of it may stay
)

// Document is one record that can be found.
type Document struct {
	ID         string    // towards clients, unique over all kinds
	Ref        oplog.Ref // the entry it comes from
	Kind       string
	Namespace  string
	Category   string
	Identities []string // whose it is
	Session    string
	Time       int64 // unix milliseconds
	Confidence int   // 2 verified, 1 inferred or not said, 0 unverified
	State      State
	Title      string
	Text       string
}
