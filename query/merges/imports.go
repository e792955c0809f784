package merges

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"tallystick/oplog"
	"tallystick/query/carried"
	"tallystick/query/imported"
	"tallystick/query/logstream"
	"tallystick/query/rawmemory"
	"tallystick/query/summary"
)

// imports are copies of imported records of one kind: rows that two replicas
// took from a file without knowing of each other.
type imports struct {
	kind   string // of merge
	entry  string // kind of entry
	prefix string // of ids
	page   func(views oplog.Views, after []byte, limit int) ([]summary.Copy, []byte, error)
	counts func(views oplog.Views, key imported.Key) (oplog.Ref, bool, error)
	// read gives the key and the beginning of a record, again how it is written
	// as a record of its own.
	read func(e *oplog.Entry) (key imported.Key, what string, again func(author string) (oplog.Op, error), err error)
	// same reports whether two copies say the same; nil when only equal payloads do.
	same func(a, b *oplog.Entry) bool
}

func (k imports) equal(a, b *oplog.Entry) bool {
	return bytes.Equal(a.Body, b.Body) || k.same != nil && a.Present() && b.Present() && k.same(a, b)
}

var summaries = imports{
	kind: "summary", entry: summary.Kind, prefix: "sum_", page: summary.CopyPage, counts: summary.Imported,
	read: func(e *oplog.Entry) (imported.Key, string, func(string) (oplog.Op, error), error) {
		s, err := summary.Decode(e)
		key := s.Import
		s.Import = imported.Key{}
		return key, s.Title, func(author string) (oplog.Op, error) { return summary.NewOp(author, s) }, err
	},
}

var turns = imports{
	kind: "turn", entry: rawmemory.Kind, prefix: "mem_", page: rawmemory.CopyPage, counts: rawmemory.Imported,
	read: func(e *oplog.Entry) (imported.Key, string, func(string) (oplog.Op, error), error) {
		t, err := rawmemory.Decode(e)
		key := t.Import
		t.Import = imported.Key{}
		return key, strings.TrimSpace(t.Prompt + "\n" + t.Response), func(author string) (oplog.Op, error) { return rawmemory.NewOp(author, t) }, err
	},
}

func (k imports) Kind() string { return k.kind }

func (k imports) id(ref oplog.Ref) string {
	tag := ref.Tag()
	return k.prefix + hex.EncodeToString(tag[:])
}

func (k imports) List(snap oplog.Snapshot, _ Env, after []byte, limit int) (list []Merge, next []byte, err error) {
	copies, next, err := k.page(snap, after, limit)
	if err != nil {
		return nil, nil, err
	}
	for _, c := range copies {
		m := Merge{ID: k.id(c.Copy), Kind: k.kind, Rule: ruleImport}
		a, err := snap.Entry(c.Copy)
		if err != nil {
			return nil, nil, fmt.Errorf("merges: copy: %w", err)
		}
		b, err := snap.Entry(c.Counts)
		if err != nil {
			return nil, nil, fmt.Errorf("merges: what counts: %w", err)
		}
		var key imported.Key
		if m.Lost, key, err = k.side(&a); err != nil {
			return nil, nil, err
		}
		if m.Kept, _, err = k.side(&b); err != nil {
			return nil, nil, err
		}
		m.About, m.Same = aboutKey(key), k.equal(&a, &b)
		m.Undo = undoImport(m.Same)
		list = append(list, m)
	}
	return list, next, nil
}

func (k imports) side(e *oplog.Entry) (s Side, key imported.Key, err error) {
	s = Side{ID: k.id(e.Ref()), Author: e.Author, HLC: e.Ref().Stamp().String(), At: logstream.FormatTime(carried.Stamp(e).Time())}
	if !e.Present() {
		return s, key, nil // erased
	}
	key, what, _, err := k.read(e)
	s.What = cut(what)
	return s, key, err
}

func (k imports) Undo(snap oplog.Snapshot, _ Env, author, id string) (u Undo, ok bool, err error) {
	text, ok := strings.CutPrefix(id, k.prefix)
	prefix, bad := hex.DecodeString(text)
	if !ok || bad != nil || len(prefix) != 8 {
		return u, false, nil
	}
	e, err := snap.ByHash(prefix)
	if errors.Is(err, oplog.ErrNotFound) || err == nil && (e.Kind != k.entry || !e.Present()) {
		return u, false, nil
	}
	if err != nil {
		return u, false, err
	}
	key, _, again, err := k.read(&e)
	if err != nil || key.IsZero() {
		return u, false, err
	}
	counts, ok, err := k.counts(snap, key)
	if err != nil || !ok || counts == e.Ref() {
		return u, false, err
	}
	kept, err := snap.Entry(counts)
	if err != nil {
		return u, true, fmt.Errorf("merges: what counts: %w", err)
	}
	if k.equal(&e, &kept) {
		return u, true, nothingLost(id, true)
	}
	op, err := again(author)
	return Undo{Ops: []oplog.Op{op}, What: "added what " + id + " says as a " + k.kind + " of its own"}, true, err
}
