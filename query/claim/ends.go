package claim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"tallystick/hlc"
	"tallystick/oplog"
)

// Entries by which a device ceases to be a member (T2); replica writes them.
// Which of them count the log's gate knows. A claim of such a device ends at the
// stamp of the first that does (K1).
const (
	kindRevoke = "tally.revoke"
	kindLeave  = "tally.leave"
)

const endLen = 32 + 8

// ends are the devices whose claims have ended, and when, as in their row.
type ends map[oplog.DeviceKey]hlc.Timestamp

func (e ends) bytes() []byte {
	keys := make([]oplog.DeviceKey, 0, len(e))
	for k := range e {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b oplog.DeviceKey) int { return bytes.Compare(a[:], b[:]) })
	var b []byte
	for _, k := range keys {
		b = binary.BigEndian.AppendUint64(append(b, k[:]...), uint64(e[k]))
	}
	return b
}

// loadEnds reads the row; nil when there is none, as in most meshes.
func loadEnds(r oplog.Reader) (ends, error) {
	v, err := r.Get([]byte{rowEnds})
	if errors.Is(err, oplog.ErrNotFound) {
		return nil, nil
	}
	if err != nil || len(v)%endLen != 0 {
		return nil, errors.Join(err, errRow)
	}
	e := ends{}
	for ; len(v) > 0; v = v[endLen:] {
		e[oplog.DeviceKey(v[:32])] = hlc.Timestamp(binary.BigEndian.Uint64(v[32:]))
	}
	return e, nil
}

// markEnds says of each input when its device ceased to be a member.
func markEnds(r oplog.Reader, in []input) error {
	e, err := loadEnds(r)
	if len(e) == 0 || err != nil {
		return err
	}
	return e.mark(r, in)
}

func (e ends) mark(r oplog.Reader, in []input) error {
	known := map[oplog.OriginID]hlc.Timestamp{}
	for n := range in {
		o := in[n].ref.Origin()
		at, ok := known[o]
		if !ok {
			device, err := r.Get(key(rowDevice, o[:]))
			switch {
			case err == nil && len(device) == 32:
				at = e[oplog.DeviceKey(device)]
			case err != nil && !errors.Is(err, oplog.ErrNotFound):
				return err
			}
			known[o] = at
		}
		in[n].until = at
	}
	return nil
}

// applyEnd brings the tasks up to date with which devices are members no more.
func applyEnd(tx oplog.Tx) error {
	all, err := oplog.EndingsOf(tx)
	if err != nil {
		return err
	}
	now := ends{}
	for k, e := range all {
		now[k] = e.At
	}
	was, err := loadEnds(tx)
	if err != nil || bytes.Equal(was.bytes(), now.bytes()) {
		return err
	}
	changed := map[oplog.DeviceKey]bool{}
	for k, at := range now {
		changed[k] = was[k] != at
	}
	for k, at := range was {
		changed[k] = now[k] != at
	}
	if len(now) == 0 {
		err = tx.Delete([]byte{rowEnds})
	} else {
		err = tx.Set([]byte{rowEnds}, now.bytes())
	}
	if err != nil {
		return err
	}
	ids, err := tasksOf(tx, changed)
	for _, id := range ids {
		if err == nil {
			err = redo(tx, id, was, now)
		}
	}
	return err
}

// tasksOf lists the tasks to which some devices have written. It looks through
// all tasks: a device is revoked a few times in the life of a mesh.
func tasksOf(r oplog.Reader, devices map[oplog.DeviceKey]bool) (ids []taskID, err error) {
	origins := map[oplog.OriginID]bool{}
	err = r.Scan([]byte{rowDevice}, nil, false, func(k, v []byte) (bool, error) {
		if len(k) != 1+16 || len(v) != 32 {
			return false, errRow
		}
		if devices[oplog.DeviceKey(v)] {
			origins[oplog.OriginID(k[1:])] = true
		}
		return true, nil
	})
	if err != nil || len(origins) == 0 {
		return nil, err
	}
	touched := map[taskID]bool{}
	err = r.Scan([]byte{rowTask}, nil, false, func(k, v []byte) (bool, error) {
		if len(k) != 1+16 {
			return false, errRow
		}
		rec, err := parseRecord(v)
		if err == nil && slices.ContainsFunc(rec.inputs, func(i input) bool { return origins[i.ref.Origin()] }) {
			touched[taskID(k[1:])] = true
		}
		return true, err
	})
	if err != nil {
		return nil, err
	}
	err = r.Scan([]byte{rowInput}, nil, false, func(k, _ []byte) (bool, error) {
		if len(k) != 1+16+oplog.RefSize {
			return false, errRow
		}
		if origins[oplog.Ref(k[17:]).Origin()] {
			touched[taskID(k[1:17])] = true
		}
		return true, nil
	})
	for id := range touched {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b taskID) int { return bytes.Compare(a[:], b[:]) })
	return ids, err
}

// redo replays a task by other ends.
func redo(tx oplog.Tx, id taskID, was, now ends) error {
	rec, err := load(tx, id)
	if err != nil {
		return err
	}
	inputs := rec.inputs
	if rec.many {
		if inputs, err = loadInputs(tx, id); err != nil {
			return err
		}
	}
	if err := was.mark(tx, inputs); err != nil {
		return err
	}
	old := derive2(id, inputs)
	if err := now.mark(tx, inputs); err != nil {
		return err
	}
	s, losses := replay(inputs)
	if err := change(tx, old, derive(id, &s, losses)); err != nil {
		return fmt.Errorf("claim: a member less: %w", err)
	}
	if !rec.many {
		return nil // its row holds the inputs alone
	}
	rec.state = s
	return tx.Set(key(rowTask, id[:]), rec.bytes())
}
