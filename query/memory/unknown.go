package memory

import (
	"tallystick/oplog"
	"tallystick/query/internal/near"
	"tallystick/query/refusal"
)

// UnknownNote says of a namespace that holds nothing here why that may be, and
// which names look like it. It is empty for one that holds or held facts.
func UnknownNote(snap oplog.Snapshot, namespace string) (string, error) {
	if c, err := CountOf(snap, namespace); err != nil || c.All > 0 {
		return "", err
	}
	return near.Note(snap.View(ViewName), rowCounts, namespace,
		"No facts in namespace "+refusal.Quote(namespace)+" here. They may not have arrived yet, or it is spelled otherwise.")
}
