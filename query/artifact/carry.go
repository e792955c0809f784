package artifact

import (
	"tallystick/oplog"
	"tallystick/query/carried"
)

// Carried says how artifacts are carried into another log. Their content goes
// with them; see View.Blobs.
func Carried() []carried.Kind {
	return []carried.Kind{{Name: Kind, Body: carry, ID: idOf}}
}

func carry(e *oplog.Entry, m *carried.Map) ([]byte, error) {
	a, err := Decode(e)
	if err != nil {
		return nil, err
	}
	a.Metadata = m.JSON(a.Metadata)
	return a.Append(nil), nil
}

// idOf is the id of an artifact, empty when it is none. The header of a
// carrying entry alone does not tell: it needs the payload.
func idOf(e *oplog.Entry) string {
	a, err := Decode(e)
	if err != nil {
		return ""
	}
	return ID(e.Ref(), a.Hash)
}
