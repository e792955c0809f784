package logstream

import (
	"fmt"

	"tallystick/oplog"
)

// CopyPage lists what was folded away as a copy, in a fixed order, from behind
// a place on; next is the place behind the page, nil at the end.
func CopyPage(views oplog.Views, after []byte, limit int) (out []Copy, next []byte, err error) {
	r := views.View(ViewName)
	var start, last []byte
	if after != nil {
		start = append([]byte{rowCopy}, after...)
	}
	err = r.Scan([]byte{rowCopy}, start, false, func(key, _ []byte) (bool, error) {
		if len(key) != 1+16+oplog.RefSize {
			return false, fmt.Errorf("logstream: copy row of %d bytes", len(key))
		}
		if string(key[1:]) == string(after) {
			return true, nil
		}
		if len(out) == limit {
			next = last
			return false, nil
		}
		counts, _, err := keyRef(r, [16]byte(key[1:17]))
		out, last = append(out, Copy{Copy: oplog.Ref(key[17:]), Counts: counts}), append([]byte{}, key[1:]...)
		return err == nil, err
	})
	return out, next, err
}

// CountsFor is the entry that counts in the place of a copy, and whether the
// entry is one.
func CountsFor(views oplog.Views, e *oplog.Entry) (counts oplog.Ref, isCopy bool, err error) {
	raw, err := Decode(e)
	if err != nil {
		return counts, false, err
	}
	key, ok := raw.dedup()
	if !ok {
		return counts, false, nil
	}
	counts, ok, err = keyRef(views.View(ViewName), key)
	return counts, ok && counts != e.Ref(), err
}
