package summary

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
			return false, fmt.Errorf("summary: copy row of %d bytes", len(key))
		}
		if string(key[1:]) == string(after) {
			return true, nil
		}
		if len(out) == limit {
			next = last
			return false, nil
		}
		v, err := r.Get(append([]byte{rowKey}, key[1:17]...))
		if err != nil {
			return false, fmt.Errorf("summary: import row of a copy: %w", err)
		}
		it, err := parseItem(v)
		out, last = append(out, Copy{Copy: oplog.Ref(key[17:]), Counts: it.ref}), append([]byte{}, key[1:]...)
		return err == nil, err
	})
	return out, next, err
}
