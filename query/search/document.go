package search

import (
	"errors"
	"fmt"

	"tallystick/oplog"
)

// State says whether a document still holds.
type State uint8

// The states of a document. A search gives Live ones unless asked.
const (
	Live       State = iota
	Superseded       // a newer one stands in its place
	Forgotten        // tombstoned
	Erased           // gone: no byte of it may stay, searchable or not
)

// String is the state's name.
func (s State) String() string {
	switch s {
	case Live:
		return "live"
	case Superseded:
		return "superseded"
	case Forgotten:
		return "forgotten"
	case Erased:
		return "erased"
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// The levels of Document.Confidence, lowest first.
const (
	Unverified uint8 = iota
	Inferred
	Verified
)

// Document is one thing that can be found.
type Document struct {
	// ID names the document towards clients, unique over all kinds. A second
	// document of that ID takes the place of the first.
	ID string
	// Ref is the entry it comes from.
	Ref oplog.Ref
	// Kind, Namespace and Category are exact values to filter by; empty is a
	// value like any other.
	Kind, Namespace, Category string
	// Identities are whose it is; one leading @ of each is ignored.
	Identities []string
	// Session binds documents that belong together: a session, a thread, a
	// task. Documents of one session lend each other weight. Empty is none.
	Session string
	// Time orders documents within a session and filters them: unix
	// milliseconds.
	Time int64
	// Confidence is Unverified, Inferred or Verified.
	Confidence uint8
	State      State
	// Title and Text are what is searched. They are not kept.
	Title, Text string
}

// Source maps the entries of one domain to documents. It is called on the
// index's goroutines, one call at a time, and must not keep the snapshot or the
// entry.
type Source interface {
	// Name is unique among the sources of an index.
	Name() string
	// Version changes whenever the documents of the same entries would change;
	// the index is then folded anew.
	Version() uint32
	// Kinds are the entries it wants to see; "*" is every kind.
	Kinds() []string
	// Documents gives every document that this entry makes or whose state it
	// changes, as the snapshot has it now. The snapshot may know later entries
	// too, so documents are right in any order of arrival: an entry that
	// forgets gives the forgotten document again with its new State (Title
	// and Text may then be empty); when the document is not here yet, nothing;
	// and the entry that brings it later gives it with the state it has by
	// then. ErrRefold asks for all documents again, for changes that no list of
	// documents can tell.
	Documents(snap oplog.Snapshot, e *oplog.Entry) ([]Document, error)
}

// ErrRefold is what a Source returns when everything must be folded anew.
var ErrRefold = errors.New("search: fold everything anew")
