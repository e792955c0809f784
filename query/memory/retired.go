package memory

import (
	"tallystick/oplog"
	"tallystick/query/imported"
	"tallystick/query/internal/args"
	"tallystick/query/refusal"
)

// NewRetired makes the op that retires a fact imported under a key, because it
// is retired where it comes from. It belongs into one Append behind the fact.
func NewRetired(author string, k imported.Key) (oplog.Op, error) {
	return markImported(author, func(r oplog.Reader) (m markBody, err error) {
		m.Action, m.Roots = actForget, []oplog.Hash{importRoot(k)}
		m.Names, err = importedUnder(r, k)
		return m, err
	}, k)
}

// NewReplaced makes the op that says of facts imported under some keys that the
// one imported under by stands in their place. It is refused with code conflict
// when none of them is here, or that one is not.
func NewReplaced(author string, by imported.Key, keys []imported.Key) (oplog.Op, error) {
	return markImported(author, func(r oplog.Reader) (m markBody, err error) {
		m.Action = actUpdate
		with, err := importedUnder(r, by)
		if err != nil || len(with) == 0 {
			return m, err
		}
		m.New = with[0]
		for _, k := range keys {
			names, err := importedUnder(r, k)
			if err != nil {
				return m, err
			}
			if len(m.Names)+len(names) <= maxNames {
				m.Names = append(m.Names, names...)
			}
		}
		return m, nil
	}, append([]imported.Key{by}, keys...)...)
}

func markImported(author string, find func(oplog.Reader) (markBody, error), keys ...imported.Key) (oplog.Op, error) {
	if err := args.Author(author); err != nil {
		return oplog.Op{}, err
	}
	for _, k := range keys {
		if err := k.Check(); err != nil {
			return oplog.Op{}, err
		}
	}
	return markOp(author, func(r oplog.Reader) (markBody, error) {
		m, err := find(r)
		if err == nil && len(m.Names) == 0 {
			err = refusal.New(refusal.Conflict, "", "import again", "what is to be retired is not here, or was erased")
		}
		return m, err
	}), nil
}

// importedUnder are the facts imported under a key, the one that counts first.
func importedUnder(r oplog.Reader, k imported.Key) (out []oplog.Hash, err error) {
	root := importRoot(k)
	err = r.Scan(key(rowLineage, root[:], []byte{0}), nil, false, func(_, v []byte) (bool, error) {
		_, h, err := tagged(v)
		if err == nil {
			out = append(out, h)
		}
		return len(out) < maxNames, err
	})
	return out, err
}
