package oplog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Position says how much of one origin is visible: everything up to Seq
// except what is set aside below it. Tag is the beginning of the hash of the
// entry at Seq. Portable cursors are made of positions. Of a forked origin it
// speaks of the trunk only, below its first fork (L7c).
type Position struct {
	Origin OriginID
	Seq    uint64
	Tag    [8]byte
	Except []uint64 // ascending, below Seq
	Forked bool
}

// Positions lists what is visible of every origin in this snapshot. Held
// entries are a suffix of their origin (C3) and lie above Seq; quarantined
// ones below it are exceptions.
func (s *snapshot) Positions() ([]Position, error) {
	lanes, trunks, err := s.trunks()
	if err != nil {
		return nil, err
	}
	out := make([]Position, 0, len(lanes))
	for _, ln := range lanes {
		p := Position{Origin: ln.id}
		end, forked := trunks[ln.id]
		if p.Forked = forked; !forked {
			end = math.MaxUint64
		}
		if err := s.position(ln.idx, end, &p); err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// Trunks gives, for each forked origin, the last seq before its first fork.
func (s *snapshot) Trunks() (map[OriginID]uint64, error) {
	_, trunks, err := s.trunks()
	return trunks, err
}

// trunks lists the first lane of every origin, and where forked ones part.
func (s *snapshot) trunks() (lanes []lane, trunks map[OriginID]uint64, err error) {
	trunks = map[OriginID]uint64{}
	err = s.kv.scan([]byte{tabLane}, nil, false, func(key, value []byte) (bool, error) {
		if len(key) != 5 || len(value) != laneRecordLen {
			return false, fmt.Errorf("%w: lane record %x", ErrDamaged, key)
		}
		ln := lane{idx: binary.BigEndian.Uint32(key[1:])}
		copy(ln.id[:], value[:16])
		if binary.BigEndian.Uint32(value[64:]) == ln.idx {
			lanes = append(lanes, ln)
			return true, nil
		}
		seq := binary.BigEndian.Uint64(value[68:])
		if at, ok := trunks[ln.id]; !ok || seq < at {
			trunks[ln.id] = seq
		}
		return true, nil
	})
	return lanes, trunks, err
}

func (s *snapshot) position(lane uint32, end uint64, p *Position) error {
	held := false
	err := s.kv.scan(laneKey(tabAside, lane), nil, false, func(key, value []byte) (bool, error) {
		seq := binary.BigEndian.Uint64(key[5:])
		if value[0] == stateHeld || value[0] == stateBeyond {
			p.Seq, held = seq-1, true
			return false, nil
		}
		p.Except = append(p.Except, seq)
		return true, nil
	})
	if err != nil {
		return err
	}
	if !held {
		err := s.kv.scan(laneKey(tabEntry, lane), nil, true, func(key, _ []byte) (bool, error) {
			p.Seq = binary.BigEndian.Uint64(key[5:])
			return false, nil
		})
		if err != nil {
			return err
		}
	}
	p.Seq = min(p.Seq, end)
	for n := len(p.Except); n > 0 && p.Except[n-1] >= p.Seq; n-- {
		if p.Except[n-1] == p.Seq {
			p.Seq--
		}
		p.Except = p.Except[:n-1]
	}
	if p.Seq == 0 {
		return nil
	}
	e, _, err := getEntry(s.kv.get, place{lane, p.Seq})
	if errors.Is(err, ErrNotFound) {
		return fmt.Errorf("%w: entry %d of %s is missing", ErrDamaged, p.Seq, p.Origin)
	}
	if err != nil {
		return err
	}
	copy(p.Tag[:], e.Hash[:8])
	return nil
}
