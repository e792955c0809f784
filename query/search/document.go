package search

import (
	"errors"

	"tallystick/oplog"
	"tallystick/query/document"
)

// Document is one thing that can be found. See the document package, which the
// domains import: its ID is unique over all kinds, and a second document of an
// ID takes the place of the first. Documents of one Session lend each other
// weight. Title and Text are searched, not kept. One leading @ of an identity
// is ignored.
type Document = document.Document

// state is a document.State as the index keeps it.
type state uint8

const (
	stLive state = iota
	stSuperseded
	stForgotten
	stErased
	// stReplaced is a number out of use.
	stReplaced state = 255
)

// parseState reads a document's state; an unknown one is not shown.
func parseState(s document.State) state {
	switch s {
	case document.Live, "":
		return stLive
	case document.Superseded:
		return stSuperseded
	case document.Erased:
		return stErased
	}
	return stForgotten
}

func (s state) public() document.State {
	switch s {
	case stLive:
		return document.Live
	case stSuperseded:
		return document.Superseded
	case stForgotten:
		return document.Forgotten
	}
	return document.Erased
}

// Levels of Document.Confidence, lowest first.
const (
	Unverified = iota
	Inferred
	Verified
)

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

// SourceOf makes a Source of a domain's function.
func SourceOf(name string, version uint32, kinds []string, documents func(oplog.Snapshot, *oplog.Entry) ([]Document, error)) Source {
	return source{name, version, kinds, documents}
}

type source struct {
	name      string
	version   uint32
	kinds     []string
	documents func(oplog.Snapshot, *oplog.Entry) ([]Document, error)
}

func (s source) Name() string    { return s.name }
func (s source) Version() uint32 { return s.version }
func (s source) Kinds() []string { return s.kinds }
func (s source) Documents(snap oplog.Snapshot, e *oplog.Entry) ([]Document, error) {
	return s.documents(snap, e)
}

// ErrRefold is what a Source returns when everything must be folded anew.
var ErrRefold = errors.New("search: fold everything anew")
