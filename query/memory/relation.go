package memory

import (
	"fmt"

	"tallystick/oplog"
	"tallystick/query/carried"
	"tallystick/query/logstream"
)

// Relation is what an entry of kind "fact.link" or "fact.alias" says.
type Relation struct {
	ID          string
	Namespace   string
	From, To    string   // of a link
	Term        string   // of an alias
	Equivalents []string // of an alias
	Author      string
	CreatedAt   string
}

// RelationOf reads a link or an alias; ok is false when it was taken away, is
// not one or is not here.
func RelationOf(snap oplog.Snapshot, e *oplog.Entry) (r Relation, ok bool, err error) {
	if e.Kind != KindLink && e.Kind != KindAlias || !e.Present() {
		return r, false, nil
	}
	view := snap.View(ViewName)
	if _, ok, err = getInfo(view, e.Hash); err != nil || !ok {
		return r, false, err
	}
	if gone, err := isRemoved(view, e.Hash); err != nil || gone {
		return r, false, err
	}
	r = Relation{ID: ID(e.Hash), Author: e.Author, CreatedAt: logstream.FormatTime(carried.Stamp(e).Time())}
	if e.Kind == KindLink {
		b, err := decodeLink(e.Body)
		if err != nil {
			return r, false, fmt.Errorf("memory: %w", err)
		}
		r.Namespace, r.From, r.To = b.Namespace, b.From, b.To
		return r, true, nil
	}
	b, err := decodeAlias(e.Body)
	if err != nil {
		return r, false, fmt.Errorf("memory: %w", err)
	}
	r.Namespace, r.Term, r.Equivalents = b.Namespace, b.Term, b.Equivalents
	return r, true, nil
}
