package minted

import (
	"slices"

	"tallystick/oplog"
	"tallystick/query/carried"
)

// Carried says how minted names are carried into another log. When the
// machine's label has changed, so has the name, and the one before is among the
// former ones: instructions may hold it still, and mail to it is looked for.
func Carried() []carried.Kind {
	return []carried.Kind{{Name: Kind, Body: carry}}
}

func carry(e *oplog.Entry, m *carried.Map) ([]byte, error) {
	n, err := Decode(e)
	if err != nil {
		return nil, err
	}
	if before, after := m.Hosts(); before != after && n.Host == before {
		n.Host = after
		if !slices.Contains(n.Former, e.Author) && len(n.Former) < MaxFormer {
			n.Former = append(n.Former, e.Author)
		}
	}
	return n.encode(), nil
}
