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

// The rows of the view.
//
//	c ns16 Ref          hash: every checkpoint
//	b ns16 branch16 Ref hash: the same by branch
//	o ns16 Ref          hash: those that no later save knew of
//	k hash32            Ref, ns16: where a checkpoint stands
//	w hash32 Ref        nothing: saves that knew of a checkpoint
const (
	rowAll    = 'c'
	rowBranch = 'b'
	rowOpen   = 'o'
	rowPlace  = 'k'
	rowKnown  = 'w'
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
func (View) Version() uint32 { return 1 }

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
	ref, ns := e.Ref(), nsID(c.Namespace)
	for _, k := range [][]byte{row(rowAll, ns, ref[:]), row(rowBranch, ns, digest('b', c.Branch), ref[:])} {
		if err := tx.Insert(k, e.Hash[:]); err != nil {
			return err
		}
	}
	if err := tx.Insert(row(rowPlace, e.Hash[:]), append(ref[:], ns...)); err != nil {
		return err
	}
	known := false
	err = tx.Scan(row(rowKnown, e.Hash[:]), nil, false, func(_, _ []byte) (bool, error) {
		known = true
		return false, nil
	})
	if err != nil {
		return err
	}
	if !known {
		if err := tx.Insert(row(rowOpen, ns, ref[:]), e.Hash[:]); err != nil {
			return err
		}
	}
	if c.Knew.IsZero() {
		return nil
	}
	if err := tx.Insert(row(rowKnown, c.Knew[:], ref[:]), nil); err != nil {
		return err
	}
	v, err := tx.Get(row(rowPlace, c.Knew[:]))
	if errors.Is(err, oplog.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(v) != oplog.RefSize+16 {
		return fmt.Errorf("checkpoint: place of %d bytes", len(v))
	}
	return tx.Delete(row(rowOpen, v[oplog.RefSize:], v[:oplog.RefSize]))
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
