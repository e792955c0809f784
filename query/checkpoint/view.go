package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"

	"tallystick/oplog"
)

// ViewName is the name of this domain's view.
const ViewName = "checkpoint"

// The rows of the view. Of several copies of one import only the earliest by C2
// has rows c, b and o.
//
//	c ns16 Ref          hash: every checkpoint
//	b ns16 branch16 Ref hash: the same by branch
//	o ns16 Ref          hash: those that no later save knew of
//	p hash32            Ref, ns16, import16 of an imported one: where it stands
//	w hash32 Ref        nothing: saves that knew of a checkpoint
//	k import16          the copy that counts: Ref, hash32, ns16, branch16
//	d import16 Ref      nothing: the other copies
//	W import16          nothing: some save knew of a copy
const (
	rowAll    = 'c'
	rowBranch = 'b'
	rowOpen   = 'o'
	rowPlace  = 'p'
	rowKnown  = 'w'
	rowImport = 'k' // with rows d written by package copies
	rowSeen   = 'W'
)

func digest(kind byte, s string) []byte {
	d := sha256.Sum256(append([]byte{kind, 0}, s...))
	return d[:16]
}

func nsID(namespace string) []byte { return digest('n', namespace) }

func row(table byte, parts ...[]byte) []byte {
	return append([]byte{table}, bytes.Join(parts, nil)...)
}

// View folds checkpoints.
type View struct{}

// Name is "checkpoint".
func (View) Name() string { return ViewName }

// Version of the rows.
func (View) Version() uint32 { return 2 }

// Kinds are checkpoints.
func (View) Kinds() []string { return []string{Kind} }

// Content are the kinds that may be erased (T5).
func (View) Content() []string { return []string{Kind} }

// Apply checks one entry and writes its rows.
func (View) Apply(tx oplog.Tx, e *oplog.Entry) error {
	c, err := Decode(e)
	if err != nil {
		return err
	}
	it := item{ref: e.Ref(), hash: e.Hash, ns: nsID(c.Namespace), branch: digest('b', c.Branch)}
	known := false
	err = tx.Scan(row(rowKnown, e.Hash[:]), nil, false, func(_, _ []byte) (bool, error) {
		known = true
		return false, nil
	})
	if err != nil {
		return err
	}
	counts := true
	place := append(it.ref[:len(it.ref):len(it.ref)], it.ns...)
	if !c.Import.IsZero() {
		key := c.Import.Hash()
		place = append(place, key[:]...)
		if known {
			err = see(tx, key)
		} else {
			known, err = has(tx, row(rowSeen, key[:]))
		}
		if err == nil {
			counts, err = imports.Take(tx, key, it.ref, it.bytes(), func(was []byte) error {
				first, err := parseItem(was)
				if err != nil {
					return err
				}
				return first.remove(tx)
			})
		}
		if err != nil {
			return err
		}
	}
	if counts {
		if err := it.insert(tx, !known); err != nil {
			return err
		}
	}
	if err := tx.Insert(row(rowPlace, e.Hash[:]), place); err != nil {
		return err
	}
	if c.Knew.IsZero() {
		return nil
	}
	if err := tx.Insert(row(rowKnown, c.Knew[:], it.ref[:]), nil); err != nil {
		return err
	}
	v, err := tx.Get(row(rowPlace, c.Knew[:]))
	switch {
	case errors.Is(err, oplog.ErrNotFound):
		return nil
	case err != nil:
		return err
	case len(v) == oplog.RefSize+16:
		return tx.Delete(row(rowOpen, v[oplog.RefSize:], v[:oplog.RefSize]))
	case len(v) == oplog.RefSize+32:
		return see(tx, [16]byte(v[oplog.RefSize+16:]))
	}
	return fmt.Errorf("checkpoint: place of %d bytes", len(v))
}

// latest is the last row below a prefix.
func latest(r oplog.Reader, prefix []byte) (ref oplog.Ref, hash oplog.Hash, ok bool, err error) {
	err = r.Scan(prefix, nil, true, func(k, v []byte) (bool, error) {
		ref, hash, err = parse(k, v)
		ok = err == nil
		return false, err
	})
	return ref, hash, ok, err
}

func parse(k, v []byte) (ref oplog.Ref, hash oplog.Hash, err error) {
	if len(k) < oplog.RefSize || len(v) != len(hash) {
		return ref, hash, fmt.Errorf("checkpoint: row of %d and %d bytes", len(k), len(v))
	}
	return oplog.Ref(k[len(k)-oplog.RefSize:]), oplog.Hash(v), nil
}
