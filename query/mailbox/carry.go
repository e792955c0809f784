package mailbox

import (
	"encoding/json"
	"fmt"
	"slices"

	"tallystick/oplog"
	"tallystick/query/carried"
	"tallystick/query/logstream"
)

// Carried says how events, those that are mail among them, and marks are
// carried into another log.
func Carried() []carried.Kind {
	return []carried.Kind{
		{Name: logstream.KindEvent, Body: carryEvent, ID: logstream.IDOf},
		{Name: KindMark, Body: carryMark},
	}
}

func carryEvent(e *oplog.Entry, m *carried.Map) ([]byte, error) {
	raw, err := logstream.Decode(e)
	if err != nil {
		return nil, err
	}
	ev := logstream.CarryEvent(&raw, m)
	if string(raw.Type) == TypeMessage && ev.To == Everybody {
		if ev.Metadata, err = carryAudience(ev.Metadata, m); err != nil {
			return nil, err
		}
	}
	return ev.Append(nil), nil
}

// carryAudience brings the names of a broadcast's audience up to date.
func carryAudience(metadata json.RawMessage, m *carried.Map) (json.RawMessage, error) {
	var l letter
	if err := json.Unmarshal(metadata, &l); err != nil {
		return nil, oplog.Quarantine("mail without a readable envelope")
	}
	now := m.Names(l.Audience)
	if slices.Equal(now, l.Audience) {
		return metadata, nil
	}
	slices.Sort(now)
	l.Audience = slices.Compact(now)
	b, err := l.encode()
	if err != nil {
		return nil, fmt.Errorf("mailbox: carry: %w", err)
	}
	return b, nil
}

func carryMark(e *oplog.Entry, m *carried.Map) ([]byte, error) {
	ref, mark, err := decodeMark(e)
	if err != nil {
		return nil, err
	}
	return appendMark(nil, m.Ref(ref), mark), nil
}

// atOf is when a mark was set, as it is shown.
func atOf(snap oplog.Snapshot, mark oplog.Ref) (string, error) {
	e, err := snap.Entry(mark)
	if err != nil {
		return "", fmt.Errorf("mailbox: entry of a mark: %w", err)
	}
	return logstream.FormatTime(carried.Stamp(&e).Time()), nil
}
