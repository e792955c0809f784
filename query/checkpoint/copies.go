package checkpoint

import (
	"errors"
	"fmt"

	"tallystick/oplog"
	"tallystick/query/imported"
	"tallystick/query/internal/copies"
)

// imports are the rows of imported checkpoints, k and d of the view.
var imports = copies.Rows{View: ViewName, Ref: func(v []byte) (oplog.Ref, error) {
	it, err := parseItem(v)
	return it.ref, err
}}

// Copy is an entry that does not count because an earlier one has the same
// import key, beside the one that counts (M3).
type Copy = copies.Copy

// Imported returns the entry that counts for an import key, and whether there
// is one.
func Imported(views oplog.Views, key imported.Key) (oplog.Ref, bool, error) {
	return imports.Counts(views.View(ViewName), key.Hash())
}

// CopyPage lists what was folded away as a copy, in a fixed order, from behind
// a place on; next is the place behind the page, nil at the end.
func CopyPage(views oplog.Views, after []byte, limit int) (out []Copy, next []byte, err error) {
	return imports.Page(views, after, limit)
}

// item is what the rows of a checkpoint are made of.
type item struct {
	ref        oplog.Ref
	hash       oplog.Hash
	ns, branch []byte // 16 bytes each
}

const itemSize = oplog.RefSize + len(oplog.Hash{}) + 32

func (it *item) bytes() []byte {
	b := append(make([]byte, 0, itemSize), it.ref[:]...)
	return append(append(append(b, it.hash[:]...), it.ns...), it.branch...)
}

func parseItem(v []byte) (it item, err error) {
	if len(v) != itemSize {
		return it, fmt.Errorf("checkpoint: import row of %d bytes", len(v))
	}
	n := copy(it.ref[:], v)
	n += copy(it.hash[:], v[n:])
	it.ns, it.branch = append([]byte{}, v[n:n+16]...), append([]byte{}, v[n+16:]...)
	return it, nil
}

// insert writes the rows of a checkpoint that counts; open, when no later save
// knew of it.
func (it *item) insert(tx oplog.Tx, open bool) error {
	keys := [][]byte{row(rowAll, it.ns, it.ref[:]), row(rowBranch, it.ns, it.branch, it.ref[:])}
	if open {
		keys = append(keys, row(rowOpen, it.ns, it.ref[:]))
	}
	for _, k := range keys {
		if err := tx.Insert(k, it.hash[:]); err != nil {
			return err
		}
	}
	return nil
}

func (it *item) remove(tx oplog.Tx) error {
	for _, k := range [][]byte{row(rowAll, it.ns, it.ref[:]), row(rowBranch, it.ns, it.branch, it.ref[:]), row(rowOpen, it.ns, it.ref[:])} {
		if err := tx.Delete(k); err != nil {
			return err
		}
	}
	return nil
}

// see notes that a save knew of a copy of an import. All copies are one
// checkpoint, so it is known whichever of them counts.
func see(tx oplog.Tx, key [16]byte) error {
	if err := tx.Set(row(rowSeen, key[:]), nil); err != nil {
		return err
	}
	it, ok, err := counting(tx, key)
	if err != nil || !ok {
		return err
	}
	return tx.Delete(row(rowOpen, it.ns, it.ref[:]))
}

// counting is the copy of an import that counts.
func counting(r oplog.Reader, key [16]byte) (it item, ok bool, err error) {
	v, err := r.Get(row(rowImport, key[:]))
	if errors.Is(err, oplog.ErrNotFound) {
		return it, false, nil
	}
	if err == nil {
		it, err = parseItem(v)
	}
	return it, err == nil, err
}

func has(r oplog.Reader, k []byte) (bool, error) {
	_, err := r.Get(k)
	if errors.Is(err, oplog.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// copyOf is the checkpoint that counts for one that is a copy of it; ok is
// false for one that is none.
func copyOf(view oplog.Reader, hash oplog.Hash) (ref oplog.Ref, ok bool, err error) {
	v, err := view.Get(row(rowPlace, hash[:]))
	if errors.Is(err, oplog.ErrNotFound) || err == nil && len(v) != oplog.RefSize+32 {
		return ref, false, nil
	}
	if err != nil {
		return ref, false, err
	}
	return imports.Counts(view, [16]byte(v[oplog.RefSize+16:]))
}
