package replica

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"tallystick/oplog"
)

// Which members are members no more. The view keeps every act, whether it
// counts or not, and replays all of them when one comes, in C2 order, in one
// pass: an act that lies beyond a cut in force by then does not count. So of
// two devices that revoke each other the earlier one stands. Of several revokes
// of one device each adds its cuts, and what lies at or before any of them
// counts. A leave adds nothing to a revoke: it could reach as far as a thief
// likes. An admission that lies beyond a cut is void, also when it was stamped
// before the revoke; a device without another one is suspended, until a member
// admits it again.
//
// Rows:
//
//	r + ref (40)         -> device key (32), cuts   a revoke
//	l + ref (40)         -> device key (32), cuts   a leave
//	e + device key (32)  -> ending                  what follows from all acts
//	v + device key (32) + ref (40) -> nothing       an admission that is void
const (
	rowRevoke = 'r'
	rowLeave  = 'l'
	rowEnding = 'e'
	rowVoid   = 'v'
)

// Standing is what a device is to the mesh.
type Standing byte

// The standings.
const (
	Current   Standing = iota // a member
	Revoked                   // by a member
	Left                      // by its own word
	Suspended                 // its admission lies beyond the cut of a revoked device
)

// String is the standing in a word.
func (s Standing) String() string {
	switch s {
	case Current:
		return "member"
	case Revoked:
		return "revoked"
	case Left:
		return "left"
	case Suspended:
		return "suspended"
	}
	return "unknown"
}

// Ending is how a device ceased to be a member.
type Ending struct {
	Standing Standing
	Act      oplog.Ref // the revoke, the earliest of several; the leave; of a suspended one the act that ended its admitter
	Cuts     []oplog.Cut
}

func (e *Ending) bytes() []byte {
	b := append([]byte{byte(e.Standing)}, e.Act[:]...)
	return appendCuts(b, e.Cuts)
}

func appendCuts(b []byte, cuts []oplog.Cut) []byte {
	for i := range cuts {
		c := &cuts[i]
		var head []byte
		if !c.Head.IsZero() {
			head = c.Head.Append(nil)
		}
		b = append(b, c.Origin[:]...)
		b = binary.BigEndian.AppendUint64(b, c.Tip.Seq)
		b = append(b, c.Tip.Hash[:]...)
		b = binary.BigEndian.AppendUint16(b, uint16(len(head)))
		b = append(b, head...)
	}
	return b
}

const cutRowLen = 16 + 8 + 32 + 2

func parseCuts(b []byte) (cuts []oplog.Cut, err error) {
	for len(b) > 0 {
		if len(b) < cutRowLen {
			return nil, errCutRow
		}
		var c oplog.Cut
		copy(c.Origin[:], b)
		c.Tip.Seq = binary.BigEndian.Uint64(b[16:])
		copy(c.Tip.Hash[:], b[24:])
		n := int(binary.BigEndian.Uint16(b[56:]))
		if b = b[cutRowLen:]; len(b) < n {
			return nil, errCutRow
		}
		if n > 0 {
			if c.Head, _, err = oplog.ParseHead(b[:n]); err != nil {
				return nil, errCutRow
			}
		}
		b = b[n:]
		cuts = append(cuts, c)
	}
	return cuts, nil
}

var errCutRow = fmt.Errorf("%w: cuts of a member row", oplog.ErrDamaged)

func parseEnding(b []byte) (e Ending, err error) {
	if len(b) < 1+oplog.RefSize {
		return e, errCutRow
	}
	e.Standing, e.Act = Standing(b[0]), oplog.Ref(b[1:1+oplog.RefSize])
	e.Cuts, err = parseCuts(b[1+oplog.RefSize:])
	return e, err
}

// EndingsIn lists the devices that are no members any more.
func EndingsIn(views oplog.Views) (map[oplog.DeviceKey]Ending, error) {
	var all map[oplog.DeviceKey]Ending
	err := views.View(MembersView).Scan([]byte{rowEnding}, nil, false, func(k, v []byte) (bool, error) {
		if len(k) != 1+32 {
			return false, errCutRow
		}
		e, err := parseEnding(v)
		if all == nil {
			all = map[oplog.DeviceKey]Ending{}
		}
		all[oplog.DeviceKey(k[1:])] = e
		return true, err
	})
	return all, err
}

// Acts implements oplog.Cutter.
func (m *Membership) Acts() []string { return []string{KindGenesis, KindAdmit, KindRevoke, KindLeave} }

// Endings implements oplog.Cutter.
func (m *Membership) Endings(views oplog.Views) (map[oplog.DeviceKey]oplog.Ending, error) {
	all, err := EndingsIn(views)
	if len(all) == 0 || err != nil {
		return nil, err
	}
	out := map[oplog.DeviceKey]oplog.Ending{}
	for key, e := range all {
		reason := "its device was revoked"
		switch e.Standing {
		case Left:
			reason = "its device has left"
		case Suspended:
			reason = "its device was admitted by one that is revoked, beyond the cut"
		}
		out[key] = oplog.Ending{At: e.Act.Time(), Cuts: e.Cuts, Reason: reason}
	}
	return out, nil
}

// applyEnd folds a revoke or a leave.
func applyEnd(tx oplog.Tx, e *oplog.Entry) error {
	ref := e.Ref()
	row := byte(rowRevoke)
	key, cuts, _, err := oplog.DeviceKey{}, []oplog.Cut(nil), "", error(nil)
	if e.Kind == KindLeave {
		row = rowLeave
		key, cuts, err = leaveOf(e)
	} else {
		key, cuts, _, err = revokeOf(e)
	}
	if err != nil {
		return err
	}
	if err := tx.Set(append([]byte{row}, ref[:]...), appendCuts(bytes.Clone(key[:]), cuts)); err != nil {
		return err
	}
	return settleActs(tx)
}

// actRow is an act as the replay needs it.
type actRow struct {
	table byte // 'a', 'r' or 'l'
	ref   oplog.Ref
	key   oplog.DeviceKey // who it is about
	cuts  []oplog.Cut
}

func actsIn(r oplog.Reader) (acts []actRow, ends bool, err error) {
	for _, table := range []byte{rowRevoke, rowLeave} {
		err := r.Scan([]byte{table}, nil, false, func(k, v []byte) (bool, error) {
			if len(k) != 1+oplog.RefSize || len(v) < 32 {
				return false, errCutRow
			}
			cuts, err := parseCuts(v[32:])
			acts = append(acts, actRow{table, oplog.Ref(k[1:]), oplog.DeviceKey(v[:32]), cuts})
			return true, err
		})
		if err != nil {
			return nil, false, err
		}
	}
	if len(acts) == 0 {
		return nil, false, nil
	}
	err = scanDevices(r, 'a', func(key oplog.DeviceKey, ref oplog.Ref, _ string) {
		acts = append(acts, actRow{table: 'a', ref: ref, key: key})
	})
	slices.SortFunc(acts, func(a, b actRow) int { return a.ref.Compare(b.ref) })
	return acts, true, err
}

// settleActs replays all acts and brings the rows of what follows up to date.
func settleActs(tx oplog.Tx) error {
	acts, ends, err := actsIn(tx)
	if err != nil || !ends {
		return err
	}
	now, err := replayActs(acts, oplog.LinesOf(tx))
	if err != nil {
		return err
	}
	var gone [][]byte
	for _, table := range []byte{rowEnding, rowVoid} {
		err := tx.Scan([]byte{table}, nil, false, func(k, _ []byte) (bool, error) {
			if _, stays := now[string(k)]; !stays {
				gone = append(gone, bytes.Clone(k))
			}
			return true, nil
		})
		if err != nil {
			return err
		}
	}
	for _, k := range gone {
		if err := tx.Delete(k); err != nil {
			return err
		}
	}
	keys := make([]string, 0, len(now))
	for k := range now {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		if err := tx.Set([]byte(k), now[k]); err != nil {
			return err
		}
	}
	return nil
}

// lines is the part of oplog.Lines that a replay needs.
type lines interface {
	DeviceOf(o oplog.OriginID) (oplog.DeviceKey, bool)
	Within(ref oplog.Ref, cut *oplog.Cut) (bool, error)
}

// replayActs goes through the acts, which are in C2 order, and gives the rows
// of endings and void admissions.
func replayActs(acts []actRow, log lines) (map[string][]byte, error) {
	ended := map[oplog.DeviceKey]*Ending{}
	counts := func(ref oplog.Ref, by oplog.DeviceKey) (bool, error) {
		end := ended[by]
		if end == nil {
			return true, nil
		}
		for i := range end.Cuts {
			if in, err := log.Within(ref, &end.Cuts[i]); in || err != nil {
				return in, err
			}
		}
		return false, nil
	}
	for i := range acts {
		a := &acts[i]
		by, ok := log.DeviceOf(a.ref.Origin())
		if !ok || a.table == 'a' || a.table == rowRevoke && by == a.key || a.table == rowLeave && by != a.key {
			continue
		}
		in, err := counts(a.ref, by)
		if err != nil {
			return nil, err
		}
		was := ended[a.key]
		switch {
		case !in:
		case a.table == rowLeave && was == nil:
			ended[a.key] = &Ending{Left, a.ref, a.cuts}
		case a.table == rowLeave:
		case was == nil || was.Standing == Left:
			ended[a.key] = &Ending{Revoked, a.ref, a.cuts}
		default:
			for _, c := range a.cuts {
				if !slices.Contains(was.Cuts, c) {
					was.Cuts = append(slices.Clip(was.Cuts), c)
				}
			}
		}
	}
	now := map[string][]byte{}
	if err := voidAdmissions(acts, log, ended, counts, now); err != nil {
		return nil, err
	}
	for key, e := range ended {
		slices.SortFunc(e.Cuts, func(a, b oplog.Cut) int {
			return bytes.Compare(appendCuts(nil, []oplog.Cut{a}), appendCuts(nil, []oplog.Cut{b}))
		})
		now[string(append([]byte{rowEnding}, key[:]...))] = e.bytes()
	}
	return now, nil
}

// voidAdmissions finds the admissions that lie beyond a cut, and the devices
// that no other one admits.
func voidAdmissions(acts []actRow, log lines, ended map[oplog.DeviceKey]*Ending, counts func(oplog.Ref, oplog.DeviceKey) (bool, error), now map[string][]byte) error {
	type doubt struct {
		key oplog.DeviceKey
		act oplog.Ref
	}
	admitted := map[oplog.DeviceKey]bool{}
	var doubts []doubt
	for i := range acts {
		a := &acts[i]
		by, ok := log.DeviceOf(a.ref.Origin())
		if a.table != 'a' || !ok {
			continue
		}
		in := true
		if by != a.key { // a genesis admits its own device, and nothing voids it
			var err error
			if in, err = counts(a.ref, by); err != nil {
				return err
			}
			for _, d := range doubts { // what a suspended device did is void as well
				in = in && (d.key != by || admitted[by])
			}
		}
		if in {
			admitted[a.key] = true
			continue
		}
		row := append(append([]byte{rowVoid}, a.key[:]...), a.ref[:]...)
		now[string(row)] = []byte{}
		d := doubt{key: a.key}
		if e := ended[by]; e != nil {
			d.act = e.Act
		}
		for _, earlier := range doubts {
			if earlier.key == by && d.act.IsZero() {
				d.act = earlier.act
			}
		}
		doubts = append(doubts, d)
	}
	for _, d := range doubts {
		if !admitted[d.key] && ended[d.key] == nil {
			ended[d.key] = &Ending{Standing: Suspended, Act: d.act}
		}
	}
	return nil
}

// endedAndVoid gives the devices that are no members any more, and the
// admissions that are void.
func endedAndVoid(r oplog.Reader) (ended map[oplog.DeviceKey]bool, void map[oplog.Ref]bool, err error) {
	ended, void = map[oplog.DeviceKey]bool{}, map[oplog.Ref]bool{}
	err = r.Scan([]byte{rowEnding}, nil, false, func(k, _ []byte) (bool, error) {
		if len(k) != 1+32 {
			return false, errCutRow
		}
		ended[oplog.DeviceKey(k[1:])] = true
		return true, nil
	})
	if err != nil || len(ended) == 0 {
		return ended, void, err
	}
	err = r.Scan([]byte{rowVoid}, nil, false, func(k, _ []byte) (bool, error) {
		if len(k) != 1+32+oplog.RefSize {
			return false, errCutRow
		}
		void[oplog.Ref(k[33:])] = true
		return true, nil
	})
	return ended, void, err
}

// Departed is a device that is no member any more.
type Departed struct {
	Key    oplog.DeviceKey
	Label  string // its last; empty when its admission is not here
	Ending Ending
	By     string // label of the replica that wrote the act; empty when it is not known
	Reason string // of a revoke
}

// DepartedIn lists the devices that are no members any more, by the acts that
// ended them.
func DepartedIn(s oplog.Snapshot, label func(oplog.OriginID) string) ([]Departed, error) {
	all, err := EndingsIn(s)
	if err != nil {
		return nil, err
	}
	var list []Departed
	r := s.View(MembersView)
	for key, end := range all {
		f := Departed{Key: key, Ending: end, By: label(end.Act.Origin())}
		if f.Label, err = lastLabel(r, key); err != nil {
			return nil, err
		}
		if end.Standing == Revoked {
			switch e, err := s.Entry(end.Act); {
			case err == nil:
				if _, _, f.Reason, err = revokeOf(&e); err != nil {
					return nil, err
				}
			case !errors.Is(err, oplog.ErrNotFound):
				return nil, err
			}
		}
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b Departed) int {
		return cmp.Or(a.Ending.Act.Compare(b.Ending.Act), bytes.Compare(a.Key[:], b.Key[:]))
	})
	return list, nil
}

// lastLabel is what a device said last of itself, else its first admission's.
func lastLabel(r oplog.Reader, key oplog.DeviceKey) (label string, err error) {
	err = r.Scan(append([]byte{'d'}, key[:]...), nil, true, func(_, v []byte) (bool, error) {
		label = string(v)
		return false, nil
	})
	if label != "" || err != nil {
		return label, err
	}
	err = r.Scan(append([]byte{'a'}, key[:]...), nil, false, func(_, v []byte) (bool, error) {
		label = string(v)
		return false, nil
	})
	return label, err
}
