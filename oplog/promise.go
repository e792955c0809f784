package oplog

import (
	"encoding/binary"
	"fmt"

	"tallystick/hlc"
)

// A head's floor is a promise (L4): nothing later of the incarnation is stamped
// below it. A device whose program or clock does not keep it, by an entry
// stamped below or by a lower floor at a higher seq, has signed the proof
// itself. It is kept for good, shown like a fork, and floors of that incarnation
// do not count any more (K4): what it breaks once it may break again.

// BrokenPromise is a floor that its origin has not kept.
type BrokenPromise struct {
	Head  Head          // the promise
	Seq   uint64        // of the entry or head that broke it, after Head.Seq
	Stamp hlc.Timestamp // the entry's stamp, or the later head's floor; below Head.Floor
}

const promiseKey = "promise" // and the lane

func promiseKeyOf(lane uint32) []byte {
	return binary.BigEndian.AppendUint32(metaKey(promiseKey), lane)
}

func (p *BrokenPromise) record() []byte {
	b := p.Head.Append(nil)
	b = binary.BigEndian.AppendUint64(b, p.Seq)
	return binary.BigEndian.AppendUint64(b, uint64(p.Stamp))
}

func parsePromise(b []byte) (*BrokenPromise, error) {
	h, rest, err := ParseHead(b)
	if err != nil || len(rest) != 16 {
		return nil, fmt.Errorf("%w: record of a broken promise", ErrDamaged)
	}
	return &BrokenPromise{h, binary.BigEndian.Uint64(rest), hlc.Timestamp(binary.BigEndian.Uint64(rest[8:]))}, nil
}

// loadPromises reads whose promises were broken.
func (l *Log) loadPromises(snap kvSnapshot) error {
	prefix := metaKey(promiseKey)
	return snap.scan(prefix, nil, false, func(key, value []byte) (bool, error) {
		p, err := parsePromise(value)
		if err == nil && len(key) != len(prefix)+4 {
			err = fmt.Errorf("%w: key of a broken promise", ErrDamaged)
		}
		if err != nil {
			return false, err
		}
		if idx := binary.BigEndian.Uint32(key[len(prefix):]); int(idx) < len(l.lanes) {
			l.lanes[idx].broken = p
		}
		return true, nil
	})
}

// keepsPromise looks whether what a lane's origin says at seq is stamped below
// what it has promised before. The first breach is kept.
func (g *group) keepsPromise(ln *lane, seq uint64, stamp hlc.Timestamp) {
	if ln.broken != nil || ln.head.IsZero() || seq <= ln.head.Seq || stamp >= ln.head.Floor {
		return
	}
	ln.broken = &BrokenPromise{Head: ln.head, Seq: seq, Stamp: stamp}
	g.b.set(promiseKeyOf(ln.idx), ln.broken.record())
	g.l.cfg.Logger.Error("a replica has broken the promise of its log", "origin", ln.id.String(), "promised", ln.head.Floor.Time(), "at", ln.head.Seq, "broken", seq)
}
