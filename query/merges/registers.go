package merges

import (
	"fmt"
	"slices"
	"strings"

	"tallystick/oplog"
	"tallystick/query/checkpoint"
	"tallystick/query/imported"
	"tallystick/query/logstream"
	"tallystick/query/refusal"
)

// checkpoints are checkpoints that were saved on one host while another saved
// a later one of the same namespace, and behind those the copies of imported
// ones, as of other records.
type checkpoints struct{}

var checkpointCopies = imports{
	kind: "checkpoint", entry: checkpoint.Kind, prefix: "chk_", page: checkpoint.CopyPage, counts: checkpoint.Imported,
	read: func(e *oplog.Entry) (imported.Key, string, func(string) (oplog.Op, error), error) {
		c, err := checkpoint.Decode(e)
		key := c.Import
		c.Import, c.Author, c.At, c.Knew = imported.Key{}, "", "", oplog.Hash{}
		return key, c.State, func(author string) (oplog.Op, error) { return checkpoint.NewOp(author, c) }, err
	},
	same: func(a, b *oplog.Entry) bool { // what each knew of may differ
		x, err := checkpoint.Decode(a)
		y, bad := checkpoint.Decode(b)
		return err == nil && bad == nil && x.Namespace == y.Namespace && sameCheckpoint(x, y)
	},
}

// Places of a page begin with which of the two they are of.
const (
	placeFork = 'f'
	placeCopy = 'k'
)

func (checkpoints) Kind() string { return "checkpoint" }

const ruleLatest = "latest_stamp_wins"

func (checkpoints) List(snap oplog.Snapshot, env Env, after []byte, limit int) (list []Merge, next []byte, err error) {
	var from []byte
	if len(after) > 1 {
		from = after[1:]
	}
	if len(after) == 0 || after[0] == placeFork {
		list, next, err = forks(snap, from, limit)
		switch {
		case err != nil:
			return nil, nil, err
		case next != nil:
			return list, append([]byte{placeFork}, next...), nil
		case len(list) > 0:
			return list, []byte{placeCopy}, nil
		}
		from = nil
	}
	list, next, err = checkpointCopies.List(snap, env, from, limit)
	if next != nil {
		next = append([]byte{placeCopy}, next...)
	}
	return list, next, err
}

func forks(snap oplog.Snapshot, after []byte, limit int) (list []Merge, next []byte, err error) {
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

func (checkpoints) Undo(snap oplog.Snapshot, env Env, author, id string) (u Undo, ok bool, err error) {
	f, ok, err := checkpoint.ForkOf(snap, id)
	if err == nil && !ok {
		return checkpointCopies.Undo(snap, env, author, id)
	}
	if err != nil {
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
	c.Import, c.Author, c.At = imported.Key{}, "", "" // a save of its own
	op, err := checkpoint.NewOp(author, c)
	return Undo{Ops: []oplog.Op{op}, What: "saved " + id + " again, as the latest of its namespace"}, true, err
}

// LabelClash is a label that two devices have: who has it since earlier keeps
// it, the later device may not claim (I9). Lost and Kept are what gave them the
// label, an admission or a rename.
type LabelClash struct {
	Label              string
	Lost, Kept         oplog.Ref
	LostBy, KeptBy     oplog.DeviceKey
	LostName, KeptName string // of the devices
}

// LabelMove is a device's own rename: what gave it the label before, and the
// rename that put another in its place.
type LabelMove struct {
	From, To   string
	Lost, Kept oplog.Ref
	By         oplog.DeviceKey
	Name       string // of the device
	Last       bool   // the device goes by To now
}

// labels are labels that two devices have, and labels that devices gave up.
type labels struct{}

func (labels) Kind() string { return "label" }

const (
	ruleClash = "earlier_holder_keeps_the_label"
	ruleMove  = "own_last_rename_counts"
	undoClash = "the machine that keeps it takes another label, by this id; or the other does with tally rename LABEL"
	undoMove  = "that machine takes the label back, by this id, while no other has it"
)

func (labels) List(_ oplog.Snapshot, env Env, after []byte, limit int) (list []Merge, next []byte, err error) {
	var all []Merge
	for _, c := range env.Clashes {
		all = append(all, Merge{ID: logstream.EventID(c.Lost), Kind: "label", About: c.Label, Rule: ruleClash,
			Lost: labelSide(c.Lost, c.LostName, c.Label), Kept: labelSide(c.Kept, c.KeptName, c.Label), Undo: undoClash})
	}
	for _, m := range env.Moves {
		all = append(all, Merge{ID: logstream.EventID(m.Lost), Kind: "label", About: m.From, Rule: ruleMove,
			Lost: labelSide(m.Lost, m.Name, m.From), Kept: labelSide(m.Kept, m.Name, m.To), Undo: undoMove})
	}
	slices.SortFunc(all, func(a, b Merge) int { return strings.Compare(a.ID, b.ID) })
	for _, m := range all {
		if after != nil && m.ID <= string(after) {
			continue
		}
		if len(list) == limit {
			return list, []byte(list[limit-1].ID), nil
		}
		list = append(list, m)
	}
	return list, nil, nil
}

func labelSide(ref oplog.Ref, device, label string) Side {
	return Side{ID: logstream.EventID(ref), Author: device, HLC: ref.Stamp().String(), At: logstream.FormatTime(ref.Time().Time()), What: "named " + label}
}

// Undo names the label that this replica is to take: a rename is its own act
// and no op of a domain.
func (labels) Undo(_ oplog.Snapshot, env Env, _, id string) (u Undo, ok bool, err error) {
	for _, c := range env.Clashes {
		if logstream.EventID(c.Lost) != id {
			continue
		}
		switch env.Self.Key {
		case c.KeptBy:
			u.Label = freeLabel(c.Label, env.Labels)
			u.What = fmt.Sprintf("took the label %s; %s alone has %s now", u.Label, c.LostName, c.Label)
			return u, true, nil
		case c.LostBy:
			return u, true, refusal.New(refusal.Conflict, "id", "take another label with tally rename LABEL; or say this at the machine that keeps "+c.Label,
				"this machine is the one that has the label %s since later", c.Label)
		}
		return u, true, elsewhere(c.KeptName, c.Label)
	}
	for _, m := range env.Moves {
		if logstream.EventID(m.Lost) != id {
			continue
		}
		if m.By != env.Self.Key {
			return u, true, elsewhere(m.Name, m.To)
		}
		u.Label, u.What = m.From, "took the label "+m.From+" back"
		return u, true, nil
	}
	return u, false, nil
}

func elsewhere(device, label string) error {
	return refusal.New(refusal.Conflict, "id", "say this at that machine", "only %s, which goes by %s, can give itself another label", device, label)
}

const maxLabel = 32

// freeLabel is a label like another that nobody has.
func freeLabel(label string, used []string) string {
	for n := 2; ; n++ {
		end := fmt.Sprintf("_%d", n)
		if l := label[:min(len(label), maxLabel-len(end))] + end; !slices.Contains(used, l) {
			return l
		}
	}
}
