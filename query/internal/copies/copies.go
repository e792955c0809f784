// Package copies keeps, of several entries with one key, the earliest by C2
// order, whatever came first (M1), and lists the others (M3). It is the part
// that the views of imported events, summaries and turns have in common: the
// rows
//
//	k key16       of the entry that counts, as its view wants them
//	d key16 Ref   nothing: copies that do not count
package copies

import (
	"errors"
	"fmt"

	"tallystick/oplog"
)

const (
	rowKey  = 'k'
	rowCopy = 'd'
	keyLen  = 16
	copyLen = 1 + keyLen + oplog.RefSize
)

// Copy is an entry that does not count because an earlier one has the same
// key, beside the one that counts.
type Copy struct {
	Copy, Counts oplog.Ref
}

// Rows are the rows of one view.
type Rows struct {
	// View is its name.
	View string
	// Ref reads from the row of a key which entry counts.
	Ref func(row []byte) (oplog.Ref, error)
}

func keyRow(key [keyLen]byte) []byte { return append([]byte{rowKey}, key[:]...) }

func copyRow(key [keyLen]byte, ref oplog.Ref) []byte {
	return append(append(append(make([]byte, 0, copyLen), rowCopy), key[:]...), ref[:]...)
}

// Take settles which of several copies counts and reports whether it is the
// entry at ref, whose row is given. If another counted until now, undo takes
// its rows away.
func (r Rows) Take(tx oplog.Tx, key [keyLen]byte, ref oplog.Ref, row []byte, undo func(was []byte) error) (counts bool, err error) {
	k := keyRow(key)
	was, err := tx.Get(k)
	if errors.Is(err, oplog.ErrNotFound) {
		return true, tx.Insert(k, row)
	}
	if err != nil {
		return false, err
	}
	first, err := r.Ref(was)
	if err != nil {
		return false, fmt.Errorf("%s: import row: %w", r.View, err)
	}
	if first.Compare(ref) <= 0 {
		return false, tx.Insert(copyRow(key, ref), nil)
	}
	if err := undo(was); err != nil {
		return false, err
	}
	if err := tx.Insert(copyRow(key, first), nil); err != nil {
		return false, err
	}
	return true, tx.Set(k, row)
}

// Counts is the entry that counts for a key, and whether there is one.
func (r Rows) Counts(view oplog.Reader, key [keyLen]byte) (ref oplog.Ref, ok bool, err error) {
	row, err := view.Get(keyRow(key))
	if errors.Is(err, oplog.ErrNotFound) {
		return ref, false, nil
	}
	if err == nil {
		ref, err = r.Ref(row)
	}
	return ref, err == nil, err
}

// Page lists what was folded away as a copy, in a fixed order, from behind a
// place on; next is the place behind the page, nil at the end.
func (r Rows) Page(views oplog.Views, after []byte, limit int) (out []Copy, next []byte, err error) {
	view := views.View(r.View)
	var start, last []byte
	if after != nil {
		start = append([]byte{rowCopy}, after...)
	}
	err = view.Scan([]byte{rowCopy}, start, false, func(key, _ []byte) (bool, error) {
		if len(key) != copyLen {
			return false, fmt.Errorf("%s: copy row of %d bytes", r.View, len(key))
		}
		if string(key[1:]) == string(after) {
			return true, nil
		}
		if len(out) == limit {
			next = last
			return false, nil
		}
		counts, ok, err := r.Counts(view, [keyLen]byte(key[1:]))
		if err == nil && !ok {
			err = oplog.ErrNotFound
		}
		if err != nil {
			return false, fmt.Errorf("%s: import row of a copy: %w", r.View, err)
		}
		out, last = append(out, Copy{Copy: oplog.Ref(key[1+keyLen:]), Counts: counts}), append([]byte{}, key[1:]...)
		return true, nil
	})
	return out, next, err
}

// Others are the entries of a key that do not count.
func (r Rows) Others(view oplog.Reader, key [keyLen]byte) (out []oplog.Ref, err error) {
	prefix := append([]byte{rowCopy}, key[:]...)
	err = view.Scan(prefix, nil, false, func(k, _ []byte) (bool, error) {
		if len(k) != copyLen {
			return false, fmt.Errorf("%s: copy row of %d bytes", r.View, len(k))
		}
		out = append(out, oplog.Ref(k[1+keyLen:]))
		return true, nil
	})
	return out, err
}
