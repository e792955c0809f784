package rawmemory

import (
	"tallystick/oplog"
	"tallystick/query/carried"
	"tallystick/query/logstream"
)

// Carried says how turns are carried into another log: one without a timestamp
// gets that of its first writing.
func Carried() []carried.Kind {
	return []carried.Kind{{Name: Kind, Body: carry, ID: func(e *oplog.Entry) string { return ID(e.Ref()) }}}
}

func carry(e *oplog.Entry, m *carried.Map) ([]byte, error) {
	t, err := Decode(e)
	if err != nil {
		return nil, err
	}
	if t.Timestamp == "" {
		t.Timestamp = logstream.FormatTime(carried.Stamp(e).Time())
	}
	t.Identities = m.Names(t.Identities)
	return t.encode(), nil
}
