package memory

import (
	"errors"
	"fmt"

	"tallystick/oplog"
	"tallystick/query/document"
)

// DocumentVersion changes whenever the documents of the same entries would.
const DocumentVersion = 1

// Documents gives every document that an entry of kind "fact" or "fact.mark"
// makes or whose state it changes, as the snapshot has it now. A fact that is
// not here yet is given by its own entry, later, with the state it has by
// then.
func Documents(snap oplog.Snapshot, e *oplog.Entry) ([]document.Document, error) {
	if e.Kind == KindFact && !e.Present() {
		return []document.Document{{ID: ID(e.Hash), Ref: e.Ref(), Kind: KindFact, State: document.Erased}}, nil
	}
	t := touched{snap: snap, r: snap.View(ViewName), seen: map[oplog.Hash]bool{}}
	switch e.Kind {
	case KindFact:
		b, err := decodeFact(e.Body)
		if err != nil {
			return nil, nil // in quarantine: no document
		}
		if err := t.fact(e.Hash, &b); err != nil {
			return nil, err
		}
	case KindMark:
		b, err := decodeMark(e.Body)
		if err != nil || b.Action != actUpdate && b.Action != actForget {
			return nil, nil
		}
		if err := t.names(b.Names); err != nil {
			return nil, err
		}
		for _, root := range b.Roots {
			if err := t.lineage(root); err != nil {
				return nil, err
			}
		}
	}
	return t.out, nil
}

// touched collects documents without repeats.
type touched struct {
	snap oplog.Snapshot
	r    oplog.Reader
	seen map[oplog.Hash]bool
	out  []document.Document
}

func (t *touched) fact(hash oplog.Hash, b *factBody) error {
	if err := t.add(hash); err != nil {
		return err
	}
	i, ok, err := getInfo(t.r, hash)
	if err != nil || !ok {
		return err
	}
	if err := t.losers('s', i.slot[:]); err != nil {
		return err
	}
	for _, root := range i.roots {
		if err := t.lineage(root); err != nil {
			return err
		}
	}
	return t.names(b.Parents)
}

// names adds facts that are named, and the copies of their texts that were
// reached unseen.
func (t *touched) names(list []oplog.Hash) error {
	for _, h := range list {
		i, ok, err := getInfo(t.r, h)
		if err != nil {
			return err
		}
		if !ok || !i.fact() {
			continue
		}
		if err := t.add(h); err != nil {
			return err
		}
		if err := t.losers('s', i.slot[:]); err != nil {
			return err
		}
	}
	return nil
}

func (t *touched) lineage(root oplog.Hash) error {
	if h, ok, err := head(t.r, root); err != nil {
		return err
	} else if ok && h.typ == typeFact {
		if err := t.add(h.hash); err != nil {
			return err
		}
	}
	return t.losers('l', root[:])
}

func (t *touched) losers(rule byte, where []byte) error {
	var list []oplog.Hash
	err := t.r.Scan(key(rowLosers, []byte{rule}, where), nil, false, func(_, v []byte) (bool, error) {
		list = append(list, oplog.Hash(v))
		return true, nil
	})
	for n := 0; err == nil && n < len(list); n++ {
		err = t.add(list[n])
	}
	return err
}

func (t *touched) add(h oplog.Hash) error {
	if t.seen[h] {
		return nil
	}
	t.seen[h] = true
	i, ok, err := getInfo(t.r, h)
	if err != nil || !ok || !i.fact() {
		return err
	}
	rec, err := ByRef(t.snap, i.ref)
	if errors.Is(err, oplog.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("document of %s: %w", ID(h), err)
	}
	d := document.Document{
		ID: rec.ID, Ref: rec.Ref, Kind: KindFact, Namespace: rec.Namespace, Category: rec.Category,
		Identities: []string{rec.Author}, Time: rec.Written.Millis(), Confidence: Level(rec.Confidence),
		State: document.Live, Text: rec.Text,
	}
	if rec.By != "" {
		d.Identities = append(d.Identities, rec.By)
	}
	if rec.Retired != nil {
		if d.State = document.Superseded; rec.Retired.SupersededBy == "" {
			d.State = document.Forgotten
		}
	}
	t.out = append(t.out, d)
	return nil
}
