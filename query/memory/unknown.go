package memory

import (
	"strings"

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
	var names []string
	err := snap.View(ViewName).Scan([]byte{rowCounts}, nil, false, func(k, _ []byte) (bool, error) {
		names = append(names, string(k[1:]))
		return len(names) < near.MaxCandidates, nil
	})
	if err != nil {
		return "", err
	}
	note := "No facts in namespace " + refusal.Quote(namespace) + " here. They may not have arrived yet, or it is spelled otherwise."
	if like := near.Names(namespace, names); len(like) > 0 {
		for i := range like {
			like[i] = refusal.Quote(like[i])
		}
		note += " Near names: " + strings.Join(like, ", ") + "."
	}
	return note, nil
}
