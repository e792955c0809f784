package oplog

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Position says how much of one origin is visible: everything up to Seq
// except what is set aside below it. Tag is the beginning of the hash of the
// entry at Seq. Portable cursors are made of positions.
type Position struct {
	Origin OriginID
	Seq    uint64
	Tag    [8]byte
	Except []uint64 // ascending, below Seq
}

// Positions lists what is visible of every origin in this snapshot. Held
// entries are a suffix of their origin (C3) and lie above Seq; quarantined
// ones below it are exceptions.
func (s *snapshot) Positions() ([]Position, error) {
	var out []Position
	err := s.kv.scan([]byte{tabLane}, nil, false, func(key, value []byte) (bool, error) {
		if len(key) != 5 || len(value) != laneRecordLen {
			return false, fmt.Errorf("%w: lane record %x", ErrDamaged, key)
		}
		var p Position
		copy(p.Origin[:], value[:16])
		if err := s.position(binary.BigEndian.Uint32(key[1:]), &p); err != nil {
			return false, err
		}
		out = append(out, p)
		return true, nil
	})
	return out, err
}

func (s *snapshot) position(lane uint32, p *Position) error {
	first := true
	err := s.kv.scan(laneKey(tabAside, lane), nil, false, func(key, value []byte) (bool, error) {
		seq := binary.BigEndian.Uint64(key[5:])
		if value[0] == stateHeld {
			p.Seq, first = seq-1, false
			return false, nil
		}
		p.Except = append(p.Except, seq)
		return true, nil
	})
	if err != nil {
		return err
	}
	if first {
		err := s.kv.scan(laneKey(tabEntry, lane), nil, true, func(key, _ []byte) (bool, error) {
			p.Seq = binary.BigEndian.Uint64(key[5:])
			return false, nil
		})
		if err != nil {
			return err
		}
	}
	for n := len(p.Except); n > 0 && p.Except[n-1] == p.Seq; n-- {
		p.Seq--
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
