package oplog

import (
	"encoding/binary"
	"errors"
	"fmt"

	"tallystick/hlc"
)

// lane is what the log keeps in memory of one branch of one origin. The
// writer works on copies; a committed lane is never changed in place.
type lane struct {
	idx uint32
	id  OriginID
	key DeviceKey
	inc Incarnation
	// A branch begins after entry forkSeq of its parent lane (L7c). The first
	// lane of an origin is its own parent.
	parent  uint32
	forkSeq uint64
	tip     Tip
	last    hlc.Timestamp // stamp in the tip's header
	amended bool          // an amend lowered that
	head    Head          // latest signed head whose tip is held; zero if none
	broken  *BrokenPromise

	lastCheck  uint64 // seq of the last head kept as a place where ranges can end
	sinceCheck int    // bytes of entries since then, as far as known
	forceCheck bool   // keep the next head: how much lies since the last is unknown

	heldFrom uint64 // seq from which entries are held; 0 if none (C3: a suffix)
}

func (ln *lane) branch() bool { return ln.parent != ln.idx }

// originOf describes an origin by its lanes, the first one first.
func originOf(lanes []*lane, self bool) Origin {
	o := Origin{ID: lanes[0].id, Key: lanes[0].key, Incarnation: lanes[0].inc, Self: self}
	for _, ln := range lanes {
		o.Tips = append(o.Tips, ln.tip)
		if ln.head.Seq > o.Head.Seq || o.Head.IsZero() {
			o.Head = ln.head
		}
		o.LastTime = max(o.LastTime, ln.last)
		if o.Broken == nil {
			o.Broken = ln.broken
		}
	}
	return o
}

func (ln *lane) record() []byte {
	b := append([]byte{}, ln.id[:]...)
	b = append(b, ln.key[:]...)
	b = append(b, ln.inc[:]...)
	b = binary.BigEndian.AppendUint32(b, ln.parent)
	return binary.BigEndian.AppendUint64(b, ln.forkSeq)
}

const laneRecordLen = 16 + 32 + 16 + 4 + 8

// loadLanes reads the lane table and finds each lane's tip and heads.
func (l *Log) loadLanes(snap kvSnapshot) error {
	err := snap.scan([]byte{tabLane}, nil, false, func(key, value []byte) (bool, error) {
		if len(key) != 5 || len(value) != laneRecordLen {
			return false, fmt.Errorf("%w: lane record %x", ErrDamaged, key)
		}
		ln := &lane{idx: binary.BigEndian.Uint32(key[1:]), forceCheck: true}
		copy(ln.id[:], value[:16])
		copy(ln.key[:], value[16:48])
		copy(ln.inc[:], value[48:64])
		ln.parent = binary.BigEndian.Uint32(value[64:])
		ln.forkSeq = binary.BigEndian.Uint64(value[68:])
		if int(ln.idx) != len(l.lanes) || ln.parent > ln.idx {
			return false, fmt.Errorf("%w: lane %d out of order", ErrDamaged, ln.idx)
		}
		l.lanes = append(l.lanes, ln)
		l.byID[ln.id] = append(l.byID[ln.id], ln.idx)
		return true, nil
	})
	if err != nil {
		return err
	}
	for _, ln := range l.lanes {
		hurt, err := loadTip(snap, ln)
		if err != nil {
			return err
		}
		if hurt {
			l.suspectAt(place{ln.idx, ln.tip.Seq})
		}
	}
	return snap.scan([]byte{tabAside}, nil, false, func(key, value []byte) (bool, error) {
		if len(key) != 13 || len(value) < 1 {
			return false, fmt.Errorf("%w: aside record %x", ErrDamaged, key)
		}
		lane, seq := binary.BigEndian.Uint32(key[1:]), binary.BigEndian.Uint64(key[5:])
		if value[0] == stateHeld && int(lane) < len(l.lanes) {
			l.aside++
			if ln := l.lanes[lane]; ln.heldFrom == 0 || seq < ln.heldFrom {
				ln.heldFrom = seq
			}
		}
		return true, nil
	})
}

// loadTip finds where a lane ends. When the last entry is damaged, hurt, its
// signed head still says which it was.
func loadTip(snap kvSnapshot, ln *lane) (hurt bool, err error) {
	v, err := snap.get(laneKey(tabHead, ln.idx))
	switch {
	case errors.Is(err, ErrNotFound):
	case err != nil:
		return false, err
	default:
		if ln.head, _, err = ParseHead(v); err != nil {
			return false, fmt.Errorf("%w: head of %s: %v", ErrDamaged, ln.id, err)
		}
	}
	err = snap.scan(laneKey(tabEntry, ln.idx), nil, true, func(key, value []byte) (bool, error) {
		e, err := parseStored(value)
		at := binary.BigEndian.Uint64(key[5:])
		if ln.head.Seq == at && (err != nil || e.Hash != ln.head.Hash) && ln.head.Verify(ln.key) {
			hurt = true
			ln.tip, ln.last = ln.head.Tip(), ln.head.Floor
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("%w: last entry of %s: %v", ErrDamaged, ln.id, err)
		}
		ln.tip = Tip{Seq: e.Seq, Hash: e.Hash}
		ln.last, ln.amended = e.Stamped(), e.stamped != 0
		return false, nil
	})
	if err != nil {
		return false, err
	}
	if ln.tip.Seq == 0 {
		return false, fmt.Errorf("%w: lane %d has no entry", ErrDamaged, ln.idx)
	}
	return hurt, snap.scan(laneKey(tabCheck, ln.idx), nil, true, func(key, _ []byte) (bool, error) {
		ln.lastCheck = binary.BigEndian.Uint64(key[5:])
		return false, nil
	})
}

// parseStored reads an entry as the store keeps it and its payload's opening.
// An opening that does not parse leaves Version, OpID and Body zero.
func parseStored(value []byte) (Entry, error) {
	exact, amended, err := exactOf(value)
	if err != nil {
		return Entry{}, err
	}
	e, rest, err := ParseEntry(exact)
	if err != nil {
		return Entry{}, err
	}
	if len(rest) != 0 {
		return Entry{}, fmt.Errorf("%w: %d bytes after entry", ErrMalformed, len(rest))
	}
	e.beyond = value[0]&^amendedFlag == stateBeyond
	if amended != 0 {
		e.stamped, e.Time = e.Time, amended
	}
	if e.Present() {
		_ = e.parsePayload() // not a defect of the store; folding reports it
	}
	return e, nil
}

func storedEntry(state byte, arrival uint64, e *Entry) []byte {
	b := make([]byte, 0, entryPrefixLen+e.Size()+8)
	if e.stamped != 0 {
		state |= amendedFlag
	}
	b = append(b, state)
	b = binary.BigEndian.AppendUint64(b, arrival)
	b = e.Append(b)
	if e.stamped != 0 {
		b = binary.BigEndian.AppendUint64(b, uint64(e.Time))
	}
	return b
}

// exactOf takes a stored entry apart: its exact bytes, and what an amend makes
// its stamp, zero if none does.
func exactOf(value []byte) (exact []byte, amended hlc.Timestamp, err error) {
	if len(value) < entryPrefixLen {
		return nil, 0, fmt.Errorf("%w: stored entry", ErrMalformed)
	}
	exact = value[entryPrefixLen:]
	if value[0]&amendedFlag == 0 {
		return exact, 0, nil
	}
	n := len(exact) - 8
	if n < 0 {
		return nil, 0, fmt.Errorf("%w: stored entry", ErrMalformed)
	}
	return exact[:n], hlc.Timestamp(binary.BigEndian.Uint64(exact[n:])), nil
}
