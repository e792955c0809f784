package summary

import (
	"tallystick/oplog"
	"tallystick/query/carried"
	"tallystick/query/logstream"
)

// Carried says how summaries are carried into another log: one without a
// timestamp gets that of its first writing.
func Carried() []carried.Kind {
	return []carried.Kind{{Name: Kind, Body: carry, ID: func(e *oplog.Entry) string { return ID(e.Ref()) }}}
}

func carry(e *oplog.Entry, m *carried.Map) ([]byte, error) {
	s, err := Decode(e)
	if err != nil {
		return nil, err
	}
	if s.Timestamp == "" {
		s.Timestamp = logstream.FormatTime(carried.Stamp(e).Time())
	}
	s.Identities = m.Names(s.Identities)
	return s.Append(nil), nil
}
