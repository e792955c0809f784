package replica

import (
	"context"
	"fmt"
	"log/slog"
	"math"

	"tallystick/hlc"
	"tallystick/oplog"
)

// KindRename is the kind of a rename: a device gives itself another label, from
// this entry's seq on (I9). It needs nobody's admission under the new one.
// What the device has written before stays under the label that it had then.
const KindRename = "tally.rename"

// A rename has the body of a label: both say under which label an incarnation
// writes from then on. They differ in what they need, so a label that is none
// of the device's waits, and a rename does not.
func renameOp(self oplog.Origin, label string) (oplog.Op, error) {
	op, err := labelOp(self, label)
	op.Kind, op.OpID = KindRename, ""
	return op, err
}

// Renamed is what a rename did.
type Renamed struct {
	From, To string
	// Ref is the entry; zero when the replica had that label already.
	Ref oplog.Ref
}

// Rename gives this replica another label, from now on, on every replica that
// hears of it. A label that another member has is refused with CodeConflict. A
// repeat with the same op id renames once, and counts also when another rename
// has come since. Peers need nothing: identities of this host have the new
// label in their names, what they wrote stays under the old one.
func (r *Replica) Rename(ctx context.Context, opID, label string) (Renamed, error) {
	if err := CheckLabel(label); err != nil {
		return Renamed{}, err
	}
	if err := r.settleLabel(ctx); err != nil {
		return Renamed{}, err
	}
	r.renaming.Lock()
	defer r.renaming.Unlock()
	done := Renamed{From: r.Label(), To: label}
	if done.From == label {
		return done, nil
	}
	op, err := renameOp(r.log.Self(), label)
	if err != nil {
		return done, err
	}
	op.OpID = opID
	op.Guard = func(views oplog.Views, _ hlc.Timestamp) error { return labelFree(views, r.key, label) }
	res, err := r.log.Append(ctx, op)
	if err != nil {
		return done, storeError(r.cfg.Dir, err)
	}
	done.Ref = res[0].Ref
	return done, r.adoptLabel()
}

// labelFree refuses a label that another member has.
func labelFree(views oplog.Views, self oplog.DeviceKey, label string) error {
	members, err := MembersIn(views)
	if err != nil {
		return err
	}
	for _, m := range members {
		if m.Label == label && m.Key != self {
			return errorf(CodeConflict, "label", "choose another label", "the label %q is used in this mesh by device %s", label, shortKey(m.Key))
		}
	}
	return nil
}

// adoptLabel goes by the label that the own log says last.
func (r *Replica) adoptLabel() error {
	self := r.log.Self()
	var said string
	err := r.log.View(func(s oplog.Snapshot) (err error) {
		said, err = saidLabel(s.View(MembersView), self.ID, math.MaxUint64)
		return err
	})
	if err != nil || said == "" {
		return err
	}
	r.mu.Lock()
	r.state.Label = said
	state := r.state
	r.mu.Unlock()
	if err := saveMesh(&r.cfg, &state); err != nil { // the log has it: the next start saves it
		r.logger.Warn("the new label is not in the mesh file yet", slog.Any("error", err))
	}
	cert, err := newCertificate(r.keys.device, said, state.Proof, r.cfg.Rand)
	if err != nil {
		return fmt.Errorf("replica: certificate under the new label: %w", err)
	}
	r.tr.cert.Store(cert)
	r.post(func(Now) Output { r.core.cfg.Label = said; return Output{} })
	return nil
}

// ownLabel is the label to say first in a new incarnation: the last that the
// device has said in any, else the one of its admission.
func (r *Replica) ownLabel(views oplog.Views) (label string, known bool, err error) {
	label = r.Label()
	err = scanDevice(views.View(MembersView), 'd', r.key, func(_ oplog.Ref, said string) { label, known = said, true })
	if err == nil && !known {
		known, err = r.members.admitted(views.View(MembersView), r.key, label)
	}
	return label, known, err
}

// LabelMove is a rename of a device as the log tells it: the act by which it had
// its label before, and the one that put another in its place.
type LabelMove struct {
	Key        oplog.DeviceKey
	From, To   string
	Lost, Kept oplog.Ref
	Last       bool // the device goes by To now
}

// LabelMovesIn lists how members' labels have moved, by device and then in C2
// order.
func LabelMovesIn(views oplog.Views) ([]LabelMove, error) {
	members, err := MembersIn(views)
	if err != nil {
		return nil, err
	}
	var list []LabelMove
	for _, m := range members {
		var from string
		var since oplog.Ref
		begin := len(list)
		err := scanDevice(views.View(MembersView), 'd', m.Key, func(ref oplog.Ref, label string) {
			switch {
			case since.IsZero():
				since = m.Admission
			case label != from:
				list = append(list, LabelMove{Key: m.Key, From: from, To: label, Lost: since, Kept: ref})
				since = ref
			}
			from = label
		})
		if err != nil {
			return nil, err
		}
		if len(list) > begin {
			list[len(list)-1].Last = true
		}
	}
	return list, nil
}

// LabelMoves is LabelMovesIn of what is here now.
func (r *Replica) LabelMoves() (list []LabelMove, err error) {
	err = r.log.View(func(s oplog.Snapshot) (err error) {
		list, err = LabelMovesIn(s)
		return err
	})
	return list, err
}
