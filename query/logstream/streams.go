package logstream

import (
	"encoding/binary"
	"fmt"

	"tallystick/oplog"
)

// StreamsOf gives the streams that have events of a correlation, each with the
// first of them, in C2 order. It reads one key per event of the correlation and
// one event per stream.
func StreamsOf(snap oplog.Snapshot, correlation string) (streams []string, first []oplog.Ref, err error) {
	prefix := hashRow(rowCor, hash8(correlation))
	seen := map[uint32]bool{}
	err = snap.View(ViewName).Scan(prefix, nil, false, func(k, v []byte) (bool, error) {
		ref, err := oplog.RefOf(k[len(prefix):])
		if err != nil || len(v) != printLen {
			return false, fmt.Errorf("logstream: row of a correlation of %d and %d bytes", len(k), len(v))
		}
		in := binary.BigEndian.Uint32(v[16:])
		if seen[in] {
			return true, nil
		}
		e, err := snap.Entry(ref)
		if err != nil {
			return false, fmt.Errorf("logstream: event of a row: %w", err)
		}
		if !e.Present() {
			return true, nil // erased: absent
		}
		raw, err := Decode(&e)
		if err == nil && string(raw.Correlation) == correlation {
			seen[in] = true
			streams, first = append(streams, string(raw.Stream)), append(first, ref)
		}
		return true, err
	})
	return streams, first, err
}
