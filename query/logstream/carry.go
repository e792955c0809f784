package logstream

import (
	"strings"

	"tallystick/oplog"
	"tallystick/query/carried"
)

// CarryEvent is an event's payload as it is carried into another log: ids of
// other entries in its correlation, its metadata and its artifacts become those
// of the entries that carry them, and the recipient keeps up with its machine's
// label.
func CarryEvent(raw *Raw, m *carried.Map) Event {
	ev := raw.Event()
	ev.To, ev.Correlation = m.Name(ev.To), m.ID(ev.Correlation)
	ev.Metadata = m.JSON(ev.Metadata)
	for i, id := range ev.ArtifactIDs {
		ev.ArtifactIDs[i] = m.ID(id)
	}
	return ev
}

// CarryTask is a task key as it is carried: its parts name events.
func CarryTask(key string, m *carried.Map) string {
	parts := strings.SplitN(key, "\x00", 3)
	switch {
	case len(parts) == 3 && parts[0] == "c":
		parts[2] = m.ID(parts[2])
	case len(parts) == 2 && parts[0] == "r":
		h, err := oplog.ParseHash(parts[1])
		if err != nil {
			return key
		}
		parts[1] = m.Hash(h).String()
	}
	return strings.Join(parts, "\x00")
}

// IDOf is the id of an event or ack.
func IDOf(e *oplog.Entry) string { return EventID(e.Ref()) }
