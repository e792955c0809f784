package claim

import (
	"tallystick/oplog"
	"tallystick/query/carried"
	"tallystick/query/logstream"
)

// Carried says how acks are carried into another log: they speak of the
// carrying entries of what they spoke of, and their leases run from when they
// were first written (carried.Stamp), so that a lease that was over stays over.
func Carried() []carried.Kind {
	return []carried.Kind{{Name: logstream.KindAck, Body: carryAck, ID: logstream.IDOf}}
}

func carryAck(e *oplog.Entry, m *carried.Map) ([]byte, error) {
	raw, err := logstream.Decode(e)
	if err != nil {
		return nil, err
	}
	ack := raw.AckPayload()
	ack.Event = logstream.CarryEvent(&raw, m)
	ack.Task = logstream.CarryTask(ack.Task, m)
	ack.Of, ack.Claim = m.Ref(ack.Of), m.Ref(ack.Claim)
	return ack.Append(nil), nil
}
