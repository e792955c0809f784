package summary

import (
	"errors"
	"fmt"

	"tallystick/oplog"
	"tallystick/query/document"
)

// DocumentVersion changes whenever the documents of the same entries would.
const DocumentVersion = 1

// ByRef returns a summary by its entry's Ref, as a search that found it needs
// it; oplog.ErrNotFound if it is none that is here.
func ByRef(snap oplog.Snapshot, ref oplog.Ref, label func(oplog.OriginID) string) (Record, error) {
	e, err := snap.Entry(ref)
	if err != nil {
		return Record{}, err
	}
	if e.Kind != Kind || !e.Present() {
		return Record{}, oplog.ErrNotFound
	}
	return NewRecord(&e, label)
}

// Documents gives the document of a summary, as the snapshot has it now: the
// earliest of several copies of an import is live, the others are not shown.
func Documents(snap oplog.Snapshot, e *oplog.Entry) ([]document.Document, error) {
	if e.Kind != Kind {
		return nil, nil
	}
	gone := func(ref oplog.Ref) document.Document {
		return document.Document{ID: ID(ref), Ref: ref, Kind: Kind, State: document.Erased}
	}
	if !e.Present() {
		return []document.Document{gone(e.Ref())}, nil
	}
	s, err := Decode(e)
	if err != nil {
		return nil, nil // in quarantine: no document
	}
	if s.Import.IsZero() {
		return []document.Document{documentOf(e, &s)}, nil
	}
	first, ok, err := Imported(snap, s.Import)
	if err != nil || !ok {
		return nil, err
	}
	if first == e.Ref() {
		return []document.Document{documentOf(e, &s)}, nil
	}
	fe, err := snap.Entry(first)
	if errors.Is(err, oplog.ErrNotFound) {
		return []document.Document{gone(e.Ref())}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("summary: entry of an import: %w", err)
	}
	fs, err := Decode(&fe)
	if err != nil {
		return []document.Document{gone(e.Ref())}, nil
	}
	return []document.Document{gone(e.Ref()), documentOf(&fe, &fs)}, nil
}

func documentOf(e *oplog.Entry, s *Summary) document.Document {
	d := document.Document{
		ID: ID(e.Ref()), Ref: e.Ref(), Kind: Kind, Category: s.Category, Identities: s.Identities, Session: s.Session,
		Confidence: 1, State: document.Live, Title: s.Title, Text: s.Text,
	}
	d.Time, _ = s.millis(e)
	return d
}
