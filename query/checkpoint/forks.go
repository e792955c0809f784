package checkpoint

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"tallystick/oplog"
)

// Fork is a checkpoint that was saved while another host saved a later one,
// which resuming gives (M3).
type Fork struct {
	Lost, Kept oplog.Ref
}

// ForkPage gives the forks of all namespaces in a fixed order, at most limit
// from behind a place on; next is nil at the end.
func ForkPage(views oplog.Views, after []byte, limit int) (list []Fork, next []byte, err error) {
	r := views.View(ViewName)
	var place []byte
	err = r.Scan([]byte{rowOpen}, start(after), false, func(k, v []byte) (bool, error) {
		if len(k) != 1+16+oplog.RefSize || after != nil && string(k[1:]) <= string(after) {
			return true, nil
		}
		ref, _, err := parse(k, v)
		if err != nil {
			return false, err
		}
		kept, _, _, err := latest(r, row(rowAll, k[1:17]))
		if err != nil || kept == ref {
			return err == nil, err
		}
		if len(list) == limit {
			next = place
			return false, nil
		}
		list, place = append(list, Fork{Lost: ref, Kept: kept}), append([]byte{}, k[1:]...)
		return true, nil
	})
	return list, next, err
}

func start(after []byte) []byte {
	if after == nil {
		return nil
	}
	return append([]byte{rowOpen}, after...)
}

// ForkOf finds the checkpoint of that id and, when it is the lost side of a
// fork, what resuming gives instead.
func ForkOf(snap oplog.Snapshot, id string) (f Fork, ok bool, err error) {
	b, bad := hex.DecodeString(strings.TrimPrefix(id, "chk_"))
	if !strings.HasPrefix(id, "chk_") || bad != nil || len(b) != 8 {
		return f, false, nil
	}
	e, err := snap.ByHash(b)
	if errors.Is(err, oplog.ErrNotFound) || err == nil && (e.Kind != Kind || !e.Present()) {
		return f, false, nil
	}
	if err != nil {
		return f, false, fmt.Errorf("find checkpoint: %w", err)
	}
	c, err := Decode(&e)
	if err != nil {
		return f, false, err
	}
	view, ns, ref := snap.View(ViewName), nsID(c.Namespace), e.Ref()
	if _, err := view.Get(row(rowOpen, ns, ref[:])); err != nil {
		if errors.Is(err, oplog.ErrNotFound) {
			err = nil
		}
		return f, false, err
	}
	kept, _, ok, err := latest(view, row(rowAll, ns))
	return Fork{Lost: ref, Kept: kept}, ok && kept != ref, err
}
