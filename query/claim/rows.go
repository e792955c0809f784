package claim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sort"

	"tallystick/hlc"
	"tallystick/oplog"
)

// The rows of the view.
//
//	s task16            a task: its inputs while they are few, its state after them when not
//	i task16 Ref        an input of a task with many
//	q Ref of request    task16: tasks that are not closed
//	h end8 task16       Ref of the claim that lives until end, or was ended earlier by nobody
//	l task16 Ref        a claim that lost: rule 1, told 1, loser 16, Ref of the winner
//	p Ref               task16: losses that no superseded ack names yet
//	b origin16          device key, from the origin's birth
//	f Ref               task16, Ref of the ack: the claim that won although its home has ended it as lost
//	e                   devices that were revoked or have left: key 32, stamp 8, each (ends.go)
//
// Everything but i and b follows from the inputs alone: an entry changes the
// rows from what the inputs said before to what they say now (M1).
const (
	rowTask    = 's'
	rowInput   = 'i'
	rowOpen    = 'q'
	rowHeld    = 'h'
	rowLoss    = 'l'
	rowPending = 'p'
	rowDevice  = 'b'
	rowEnds    = 'e'
	rowFreed   = 'f'
)

// maxInline is how many inputs stand in the task's own row. Most tasks have
// a request, a claim and a close; a row each would cost more than it saves.
const maxInline = 12

var errRow = errors.New("claim: malformed row")

func key(table byte, parts ...[]byte) []byte {
	n := 1
	for _, p := range parts {
		n += len(p)
	}
	k := append(make([]byte, 0, n), table)
	for _, p := range parts {
		k = append(k, p...)
	}
	return k
}

func endBytes(t hlc.Timestamp) []byte { return binary.BigEndian.AppendUint64(nil, uint64(t)) }

// appendInput writes what follows the Ref.
func (i *input) appendRest(dst []byte) []byte {
	what := byte(i.act)
	if i.at != 0 {
		what |= restCarried
	}
	dst = append(dst, what)
	dst = append(dst, i.actor[:]...)
	dst = binary.BigEndian.AppendUint64(dst, uint64(i.num))
	if i.act.names() {
		dst = append(dst, i.claim[:]...)
	}
	if i.at != 0 {
		dst = append(dst, endBytes(i.at)...)
	}
	return dst
}

const (
	inputRest   = 1 + 16 + 8
	restCarried = 0x80 // with the act: the time of a carried entry comes last
)

func parseRest(ref oplog.Ref, b []byte) (i input, rest []byte, err error) {
	if len(b) < inputRest {
		return i, nil, errRow
	}
	i = input{ref: ref, act: act(b[0] &^ restCarried), num: int64(binary.BigEndian.Uint64(b[17:]))}
	copy(i.actor[:], b[1:17])
	isCarried := b[0]&restCarried != 0
	b = b[inputRest:]
	if i.act.names() {
		if len(b) < oplog.RefSize {
			return i, nil, errRow
		}
		copy(i.claim[:], b)
		b = b[oplog.RefSize:]
	}
	if isCarried {
		if len(b) < 8 {
			return i, nil, errRow
		}
		i.at, b = hlc.Timestamp(binary.BigEndian.Uint64(b)), b[8:]
	}
	return i, b, nil
}

// record is a task's own row.
type record struct {
	inputs []input // while they are few; then in rows of their own
	many   bool
	last   oplog.Ref // many: the last input in C2 order
	state  state     // many: after all of them
}

func (r *record) bytes() []byte {
	if !r.many {
		b := []byte{0}
		for n := range r.inputs {
			b = append(b, r.inputs[n].ref[:]...)
			b = r.inputs[n].appendRest(b)
		}
		return b
	}
	b := append([]byte{1}, r.last[:]...)
	s := &r.state
	for _, ref := range []oplog.Ref{s.request, s.closed, s.claim, s.freed} {
		b = append(b, ref[:]...)
	}
	b = append(b, byte(s.closedBy))
	b = append(b, s.holder[:]...)
	b = append(b, endBytes(s.end)...)
	b = append(b, endBytes(s.expires)...)
	b = binary.BigEndian.AppendUint64(b, uint64(s.length))
	if s.ended {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(s.shadows)))
	for _, h := range s.shadows {
		b = append(append(b, h.actor[:]...), endBytes(h.end)...)
		b = binary.BigEndian.AppendUint64(b, uint64(h.length))
	}
	for _, a := range s.requester {
		b = append(b, a[:]...)
	}
	return b
}

const manyLen = 5*oplog.RefSize + 1 + 16 + 8 + 8 + 8 + 1 + 4

const shadowLen = 16 + 8 + 8

func parseRecord(b []byte) (r record, err error) {
	if len(b) == 0 || b[0] > 1 {
		return r, errRow
	}
	r.many = b[0] == 1
	b = b[1:]
	if !r.many {
		for len(b) > 0 {
			if len(b) < oplog.RefSize {
				return r, errRow
			}
			var i input
			if i, b, err = parseRest(oplog.Ref(b[:oplog.RefSize]), b[oplog.RefSize:]); err != nil {
				return r, err
			}
			r.inputs = append(r.inputs, i)
		}
		return r, nil
	}
	if len(b) < manyLen {
		return r, errRow
	}
	s := &r.state
	for _, ref := range []*oplog.Ref{&r.last, &s.request, &s.closed, &s.claim, &s.freed} {
		*ref, b = oplog.Ref(b[:oplog.RefSize]), b[oplog.RefSize:]
	}
	s.closedBy = act(b[0])
	copy(s.holder[:], b[1:17])
	s.end = hlc.Timestamp(binary.BigEndian.Uint64(b[17:]))
	s.expires = hlc.Timestamp(binary.BigEndian.Uint64(b[25:]))
	s.length = int64(binary.BigEndian.Uint64(b[33:]))
	s.ended = b[41] == 1
	shadows := int(binary.BigEndian.Uint32(b[42:]))
	if b = b[46:]; len(b) < shadowLen*shadows || (len(b)-shadowLen*shadows)%16 != 0 {
		return r, errRow
	}
	for ; shadows > 0; shadows, b = shadows-1, b[shadowLen:] {
		s.shadows = append(s.shadows, shadow{actor(b[:16]), hlc.Timestamp(binary.BigEndian.Uint64(b[16:])), int64(binary.BigEndian.Uint64(b[24:]))})
	}
	for ; len(b) > 0; b = b[16:] {
		s.requester = append(s.requester, actor(b[:16]))
	}
	return r, nil
}

// load reads a task's row; the zero record if there is none.
func load(r oplog.Reader, id taskID) (record, error) {
	v, err := r.Get(key(rowTask, id[:]))
	if errors.Is(err, oplog.ErrNotFound) {
		return record{}, nil
	}
	if err != nil {
		return record{}, err
	}
	return parseRecord(v)
}

// loadInputs reads the input rows of a task with many.
func loadInputs(r oplog.Reader, id taskID) (in []input, err error) {
	prefix := key(rowInput, id[:])
	err = r.Scan(prefix, nil, false, func(k, v []byte) (bool, error) {
		ref, err := oplog.RefOf(k[len(prefix):])
		if err != nil {
			return false, fmt.Errorf("%w: %w", errRow, err)
		}
		i, _, err := parseRest(ref, v)
		in = append(in, i)
		return err == nil, err
	})
	return in, err
}

// verdict reads a task's state and what was lost on it.
func verdict(r oplog.Reader, id taskID) (state, []loss, error) {
	rec, err := load(r, id)
	if err != nil {
		return state{}, nil, err
	}
	if !rec.many {
		if err := markEnds(r, rec.inputs); err != nil {
			return state{}, nil, err
		}
		s, losses := replay(rec.inputs)
		return s, losses, nil
	}
	losses, err := lossesOf(r, id)
	return rec.state, losses, err
}

func lossesOf(r oplog.Reader, id taskID) (losses []loss, err error) {
	prefix := key(rowLoss, id[:])
	err = r.Scan(prefix, nil, false, func(k, v []byte) (bool, error) {
		l, err := parseLoss(k[len(prefix):], v)
		losses = append(losses, l)
		return err == nil, err
	})
	return losses, err
}

func (l *loss) bytes() []byte {
	b := []byte{byte(l.rule), 0}
	if l.told {
		b[1] = 1
	}
	return append(append(b, l.actor[:]...), l.winner[:]...)
}

func parseLoss(ref, v []byte) (l loss, err error) {
	if len(ref) != oplog.RefSize || len(v) != 2+16+oplog.RefSize {
		return l, errRow
	}
	return loss{
		claim: oplog.Ref(ref), rule: Rule(v[0]), told: v[1] == 1, actor: actor(v[2:18]), winner: oplog.Ref(v[18:]),
	}, nil
}

// derived are the rows that follow from a task's state and losses.
type derived map[string][]byte

func (d derived) state(id taskID, s *state) {
	if !s.request.IsZero() && s.closed.IsZero() {
		d[string(key(rowOpen, s.request[:]))] = id[:]
	}
	if s.live0() && s.closed.IsZero() {
		d[string(key(rowHeld, endBytes(s.end), id[:]))] = s.claim[:]
	}
	if !s.freed.IsZero() && s.closed.IsZero() {
		d[string(key(rowFreed, s.claim[:]))] = append(id[:], s.freed[:]...)
	}
}

func (d derived) loss(id taskID, l *loss) {
	d[string(key(rowLoss, id[:], l.claim[:]))] = l.bytes()
	if !l.told {
		d[string(key(rowPending, l.claim[:]))] = id[:]
	}
}

func derive(id taskID, s *state, losses []loss) derived {
	d := derived{}
	d.state(id, s)
	for n := range losses {
		d.loss(id, &losses[n])
	}
	return d
}

// change writes the difference between two sets of rows.
func change(tx oplog.Tx, old, now derived) error {
	for _, k := range sorted(old) {
		if _, stays := now[k]; !stays {
			if err := tx.Delete([]byte(k)); err != nil {
				return err
			}
		}
	}
	for _, k := range sorted(now) {
		was, there := old[k]
		var err error
		switch {
		case !there:
			err = tx.Insert([]byte(k), now[k])
		case !bytes.Equal(was, now[k]):
			err = tx.Set([]byte(k), now[k])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func sorted(d derived) []string {
	keys := make([]string, 0, len(d))
	for k := range d {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
