package claim

import (
	"errors"
	"fmt"
	"sort"

	"tallystick/oplog"
	"tallystick/query/carried"
	"tallystick/query/logstream"
)

// ViewName is the name of this domain's view.
const ViewName = "claim"

// kindBirth is the first entry of every incarnation; it names the device.
const kindBirth = "tally.birth"

// View folds requests and acks into who holds what.
type View struct{}

// Name is "claim".
func (View) Name() string { return ViewName }

// Version of the rows.
func (View) Version() uint32 { return 4 }

// Kinds are events (those that open tasks), acks, births for the device behind
// an origin, and revokes and leaves, which end the claims of a device.
func (View) Kinds() []string {
	return []string{logstream.KindEvent, logstream.KindAck, kindBirth, kindRevoke, kindLeave}
}

// Apply adds one entry to its task and brings the task's rows up to date.
func (View) Apply(tx oplog.Tx, e *oplog.Entry) error {
	switch e.Kind {
	case kindBirth:
		return applyBirth(tx, e)
	case kindRevoke, kindLeave:
		return applyEnd(tx)
	}
	raw, err := logstream.Decode(e)
	if err != nil {
		return err
	}
	if !raw.Ack && !opens(&raw) {
		return nil
	}
	who, err := actorOfEntry(tx, e)
	if err != nil {
		return err
	}
	in := input{ref: e.Ref(), act: actOf(&raw), actor: who, num: raw.LeaseMS, claim: raw.Claim}
	if at := carried.Stamp(e); at != e.Time {
		in.at = at
	}
	if in.act == actRequest {
		in.num = raw.ExpiresAt
	}
	switch {
	case in.act == actTold:
		in.claim = raw.Of
	case !in.act.names():
		in.claim = oplog.Ref{}
	}
	return add(tx, idOf(taskKeyOf(&raw, e.Hash)), in)
}

func applyBirth(tx oplog.Tx, e *oplog.Entry) error {
	b, err := oplog.BirthOf(e)
	if err != nil {
		return oplog.Quarantine("%v", err)
	}
	return tx.Set(key(rowDevice, e.Origin[:]), b.Key[:])
}

// actorOfEntry names the author at its device; an origin whose birth is not
// known stands for its own device.
func actorOfEntry(r oplog.Reader, e *oplog.Entry) (actor, error) {
	device, err := r.Get(key(rowDevice, e.Origin[:]))
	if errors.Is(err, oplog.ErrNotFound) {
		device, err = e.Origin[:], nil
	}
	return actorOf(e.Author, device), err
}

// actOf says what an entry does to its task.
func actOf(raw *logstream.Raw) act {
	if !raw.Ack {
		return actRequest
	}
	switch string(raw.Status) {
	case logstream.StatusClaimed:
		return actClaim
	case logstream.StatusReleased:
		if raw.Automatic {
			return actTold
		}
		return actRelease
	case logstream.StatusApplied:
		return actApply
	case logstream.StatusFailed:
		return actFail
	case logstream.StatusSuperseded:
		if raw.Claim.IsZero() {
			return actWithdraw
		}
		if !raw.Automatic {
			return actYield
		}
		return actLose
	}
	if raw.LeaseMS > 0 {
		return actRenew
	}
	return actKeep
}

// add puts an input into its task.
func add(tx oplog.Tx, id taskID, in input) error {
	rec, err := load(tx, id)
	if err != nil {
		return err
	}
	if rec.many {
		return addToMany(tx, id, rec, in)
	}
	one := []input{in}
	if err := errors.Join(markEnds(tx, rec.inputs), markEnds(tx, one)); err != nil {
		return err
	}
	in = one[0]
	fresh := len(rec.inputs) == 0
	old := derive2(id, rec.inputs)
	at := sort.Search(len(rec.inputs), func(n int) bool { return rec.inputs[n].ref.Compare(in.ref) >= 0 })
	if at < len(rec.inputs) && rec.inputs[at].ref == in.ref {
		return nil
	}
	inputs := make([]input, 0, len(rec.inputs)+1)
	inputs = append(append(append(inputs, rec.inputs[:at]...), in), rec.inputs[at:]...)
	s, losses := replay(inputs)
	if err := change(tx, old, derive(id, &s, losses)); err != nil {
		return err
	}
	next := record{inputs: inputs}
	if len(inputs) > maxInline {
		for n := range inputs {
			if err := tx.Insert(key(rowInput, id[:], inputs[n].ref[:]), inputs[n].appendRest(nil)); err != nil {
				return err
			}
		}
		next = record{many: true, last: inputs[len(inputs)-1].ref, state: s}
	}
	if fresh {
		return tx.Insert(key(rowTask, id[:]), next.bytes())
	}
	return tx.Set(key(rowTask, id[:]), next.bytes())
}

func derive2(id taskID, inputs []input) derived {
	s, losses := replay(inputs)
	return derive(id, &s, losses)
}

// addToMany adds to a task with many inputs: in C2 order by one step, else by
// replaying all.
func addToMany(tx oplog.Tx, id taskID, rec record, in input) error {
	row := key(rowInput, id[:], in.ref[:])
	switch _, err := tx.Get(row); {
	case err == nil:
		return nil
	case !errors.Is(err, oplog.ErrNotFound):
		return err
	}
	one := []input{in}
	if err := markEnds(tx, one); err != nil {
		return err
	}
	in = one[0]
	if in.ref.Compare(rec.last) < 0 {
		return addLate(tx, id, rec, in)
	}
	if err := tx.Insert(row, in.appendRest(nil)); err != nil {
		return err
	}
	old, now := derived{}, derived{}
	old.state(id, &rec.state)
	rec.state.requester = append([]actor(nil), rec.state.requester...)
	lost, isLoss := rec.state.step(in)
	now.state(id, &rec.state)
	if isLoss {
		now.loss(id, &lost)
	}
	if in.act == actLose || in.act == actYield {
		if err := tell(tx, id, in); err != nil {
			return err
		}
	}
	if err := change(tx, old, now); err != nil {
		return err
	}
	rec.last = in.ref
	return tx.Set(key(rowTask, id[:]), rec.bytes())
}

// tell marks a loss as named by an ack.
func tell(tx oplog.Tx, id taskID, in input) error {
	l, found, err := lossNamed(tx, id, in.claim)
	if err != nil || !found {
		return err
	}
	if l.told || l.actor != in.actor {
		return nil
	}
	old, now := derived{}, derived{}
	old.loss(id, &l)
	l.told = true
	now.loss(id, &l)
	return change(tx, old, now)
}

// lossNamed finds the loss of a claim, also when an amend has changed the
// claim's stamp since it was named.
func lossNamed(tx oplog.Tx, id taskID, claim oplog.Ref) (l loss, found bool, err error) {
	v, err := tx.Get(key(rowLoss, id[:], claim[:]))
	if err == nil {
		l, err = parseLoss(claim[:], v)
		return l, err == nil, err
	}
	if !errors.Is(err, oplog.ErrNotFound) {
		return l, false, err
	}
	prefix := key(rowLoss, id[:])
	err = tx.Scan(prefix, nil, false, func(k, v []byte) (bool, error) {
		ref, err := oplog.RefOf(k[len(prefix):])
		if err != nil {
			return false, errRow
		}
		if found = sameEntry(ref, claim); found {
			l, err = parseLoss(ref[:], v)
		}
		return !found, err
	})
	return l, found, err
}

// addLate replays a task with many inputs because one came out of order.
func addLate(tx oplog.Tx, id taskID, rec record, in input) error {
	inputs, err := loadInputs(tx, id)
	if err == nil {
		err = markEnds(tx, inputs)
	}
	if err != nil {
		return err
	}
	old := derive2(id, inputs)
	at := sort.Search(len(inputs), func(n int) bool { return inputs[n].ref.Compare(in.ref) >= 0 })
	inputs = append(inputs, input{})
	copy(inputs[at+1:], inputs[at:])
	inputs[at] = in
	s, losses := replay(inputs)
	if err := change(tx, old, derive(id, &s, losses)); err != nil {
		return fmt.Errorf("claim: late entry: %w", err)
	}
	if err := tx.Insert(key(rowInput, id[:], in.ref[:]), in.appendRest(nil)); err != nil {
		return err
	}
	rec.state = s
	return tx.Set(key(rowTask, id[:]), rec.bytes())
}
