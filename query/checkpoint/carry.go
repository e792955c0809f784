package checkpoint

import (
	"tallystick/oplog"
	"tallystick/query/carried"
)

// Carried says how checkpoints are carried into another log. A state stays as
// it is, to the byte.
func Carried() []carried.Kind {
	return []carried.Kind{{Name: Kind, Body: carry, ID: func(e *oplog.Entry) string { return ID(e.Hash) }}}
}

func carry(e *oplog.Entry, m *carried.Map) ([]byte, error) {
	c, err := Decode(e)
	if err != nil {
		return nil, err
	}
	c.Namespace, c.Knew = m.Name(c.Namespace), m.Hash(c.Knew)
	return c.encode(), nil
}
