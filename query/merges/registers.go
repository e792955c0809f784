package merges

import (
	"fmt"

	"tallystick/oplog"
	"tallystick/query/checkpoint"
	"tallystick/query/logstream"
	"tallystick/query/refusal"
)

// checkpoints are checkpoints that were saved on one host while another saved
// a later one of the same namespace.
type checkpoints struct{}

func (checkpoints) Kind() string { return "checkpoint" }

const ruleLatest = "latest_stamp_wins"

func (checkpoints) List(snap oplog.Snapshot, _ Env, after []byte, limit int) (list []Merge, next []byte, err error) {
	forks, next, err := checkpoint.ForkPage(snap, after, limit)
	if err != nil {
		return nil, nil, err
	}
	for _, f := range forks {
		lost, a, err := checkpointSide(snap, f.Lost)
		if err != nil {
			return nil, nil, err
		}
		kept, b, err := checkpointSide(snap, f.Kept)
		if err != nil {
			return nil, nil, err
		}
		m := Merge{ID: lost.ID, Kind: "checkpoint", About: b.Namespace, Rule: ruleLatest, Lost: lost, Kept: kept, Same: sameCheckpoint(a, b),
			Undo: "anybody saves the lost side again, as the latest"}
		if m.Same {
			m.Undo = undoImport(true)
		}
		list = append(list, m)
	}
	return list, next, nil
}

func checkpointSide(snap oplog.Snapshot, ref oplog.Ref) (s Side, c checkpoint.Checkpoint, err error) {
	e, err := snap.Entry(ref)
	if err != nil {
		return s, c, fmt.Errorf("merges: checkpoint: %w", err)
	}
	s = Side{ID: checkpoint.ID(e.Hash), Author: e.Author, HLC: ref.Stamp().String(), At: logstream.FormatTime(e.Time.Time())}
	if !e.Present() { // erased
		return s, c, nil
	}
	c, err = checkpoint.Decode(&e)
	s.What = cut(c.State)
	return s, c, err
}

func sameCheckpoint(a, b checkpoint.Checkpoint) bool {
	return a.State == b.State && a.Branch == b.Branch && a.BaseCommit == b.BaseCommit
}

func (checkpoints) Undo(snap oplog.Snapshot, _ Env, author, id string) (u Undo, ok bool, err error) {
	f, ok, err := checkpoint.ForkOf(snap, id)
	if err != nil || !ok {
		return u, false, err
	}
	_, c, err := checkpointSide(snap, f.Lost)
	if err != nil {
		return u, true, err
	}
	_, kept, err := checkpointSide(snap, f.Kept)
	if err != nil {
		return u, true, err
	}
	if sameCheckpoint(c, kept) {
		return u, true, nothingLost(id, true)
	}
	op, err := checkpoint.NewOp(author, c)
	return Undo{Ops: []oplog.Op{op}, What: "saved " + id + " again, as the latest of its namespace"}, true, err
}

// LabelClash is a label under which two devices were admitted: the earlier
// admission keeps it, the later device may not claim (I9).
type LabelClash struct {
	Label              string
	Lost, Kept         oplog.Ref // the admissions
	LostName, KeptName string    // devices
}

// labels are labels that a later admission has lost.
type labels struct{}

func (labels) Kind() string { return "label" }

const undoLabel = "join again from a fresh home with another --label; what the device wrote stays"

func (labels) List(_ oplog.Snapshot, env Env, after []byte, limit int) (list []Merge, next []byte, err error) {
	for _, c := range env.Clashes {
		id := logstream.EventID(c.Lost)
		if after != nil && id <= string(after) {
			continue
		}
		if len(list) == limit {
			return list, []byte(list[limit-1].ID), nil
		}
		list = append(list, Merge{ID: id, Kind: "label", About: c.Label, Rule: "earliest_admission_keeps_the_label",
			Lost: admissionSide(c.Lost, c.LostName), Kept: admissionSide(c.Kept, c.KeptName), Undo: undoLabel})
	}
	return list, nil, nil
}

func admissionSide(ref oplog.Ref, device string) Side {
	return Side{ID: logstream.EventID(ref), Author: device, HLC: ref.Stamp().String(), At: logstream.FormatTime(ref.Time().Time()), What: "admitted"}
}

func (labels) Undo(_ oplog.Snapshot, env Env, _, id string) (u Undo, ok bool, err error) {
	for _, c := range env.Clashes {
		if logstream.EventID(c.Lost) == id {
			return u, true, refusal.New(refusal.Conflict, "id", undoLabel, "the label %s stays with the device that was admitted first", c.Label)
		}
	}
	return u, false, nil
}
