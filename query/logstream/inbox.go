package logstream

import (
	"fmt"

	"tallystick/oplog"
)

// Addressed counts the events and acks addressed to exactly this name, "*" not
// among them, that come after a place in C2 order (the zero Ref for all). It
// stops at limit.
func Addressed(snap oplog.Snapshot, name string, after oplog.Ref, limit int) (n int, err error) {
	prefix := hashRow(rowTo, hash8(name))
	var start []byte
	if !after.IsZero() {
		start = append(append([]byte{}, prefix...), after[:]...)
	}
	err = snap.View(ViewName).Scan(prefix, start, false, func(k, _ []byte) (bool, error) {
		ref, err := oplog.RefOf(k[len(prefix):])
		if err != nil {
			return false, fmt.Errorf("logstream: row: %w", err)
		}
		e, err := snap.Entry(ref)
		if err != nil {
			return false, fmt.Errorf("logstream: event of a row: %w", err)
		}
		if !e.Present() {
			return true, nil // erased: absent
		}
		raw, err := Decode(&e)
		if err != nil {
			return false, err
		}
		if ref != after && string(raw.To) == name {
			n++
		}
		return n < limit, nil
	})
	return n, err
}
