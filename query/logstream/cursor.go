package logstream

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"slices"

	"tallystick/oplog"
	"tallystick/query/internal/pack"
	"tallystick/query/refusal"
)

// Limits of a cursor.
const (
	MaxCursor     = 16 << 10 // bytes of text
	maxExceptions = 256
	maxCovered    = 1 << 12
)

// mode says what a cursor continues.
type mode uint64

const (
	modeTail    mode = iota // arrival order, what is not delivered yet
	modeBack                // C2 order against time, then the tail
	modeForward             // C2 order with time, then the tail
	modeOlder               // local arrival against time, below one event
)

// covered says of one origin what has been delivered: everything up to seq
// except some. The tag is the beginning of the hash of the entry at seq, so
// that a position on another branch is noticed.
type covered struct {
	seq    uint64
	tag    [8]byte
	except []uint64 // ascending, all below seq
}

// coverage is what has been delivered, by the first 8 bytes of origin.
type coverage map[[8]byte]covered

func originKey(o oplog.OriginID) [8]byte { return [8]byte(o[:8]) }

func (c coverage) has(ref oplog.Ref) bool {
	v, ok := c[originKey(ref.Origin())]
	if !ok || ref.Seq() > v.seq {
		return false
	}
	if ref.Seq() == v.seq && ref.Tag() != v.tag && v.tag != [8]byte{} {
		return false // another branch
	}
	_, excepted := slices.BinarySearch(v.except, ref.Seq())
	return !excepted
}

// add notes one more entry as delivered. What is missing between it and the
// position is not visible here, and so an exception.
func (c coverage) add(ref oplog.Ref) {
	k, seq := originKey(ref.Origin()), ref.Seq()
	v := c[k]
	if seq <= v.seq {
		if i, ok := slices.BinarySearch(v.except, seq); ok {
			v.except = slices.Delete(slices.Clone(v.except), i, i+1)
			c[k] = v
		}
		return
	}
	if gap := seq - v.seq - 1; gap > 0 {
		if gap+uint64(len(v.except)) > maxExceptions {
			return // repeats on another replica rather than skips
		}
		v.except = slices.Clone(v.except)
		for s := v.seq + 1; s < seq; s++ {
			v.except = append(v.except, s)
		}
	}
	v.seq, v.tag = seq, ref.Tag()
	c[k] = v
}

// remove notes that an entry which a snapshot shows is not delivered yet.
// Entries of one origin are removed from the last to the first.
func (c coverage) remove(ref oplog.Ref) {
	k := originKey(ref.Origin())
	if v, ok := c[k]; ok && ref.Seq() <= v.seq {
		c.cut(k, ref.Seq()-1)
	}
}

// includes reports whether everything in d is in c.
func (c coverage) includes(d coverage) bool {
	for k, v := range d {
		have, ok := c[k]
		if !ok || have.seq < v.seq || have.seq == v.seq && have.tag != v.tag {
			return false
		}
		for _, seq := range have.except {
			if _, excepted := slices.BinarySearch(v.except, seq); seq <= v.seq && !excepted {
				return false
			}
		}
	}
	return true
}

func (c coverage) clone() coverage {
	if c == nil {
		return nil
	}
	out := make(coverage, len(c))
	for k, v := range c {
		out[k] = v
	}
	return out
}

// positioner is what a snapshot offers that can say how far each origin is
// visible. Without it a cursor holds on one replica only.
type positioner interface {
	Positions() ([]oplog.Position, error)
	// Trunks gives, for each forked origin, the last seq before its first fork.
	Trunks() (map[oplog.OriginID]uint64, error)
}

// clip brings the coverage of forked origins back to what all their branches
// share: a seq says nothing of a branch (L7c). What lies beyond is told apart
// by arrival here, and may repeat on another replica.
func (c coverage) clip(snap oplog.Snapshot) (trunks map[oplog.OriginID]uint64, err error) {
	p, ok := snap.(positioner)
	if !ok || c == nil {
		return nil, nil
	}
	if trunks, err = p.Trunks(); err != nil {
		return nil, err
	}
	for origin, seq := range trunks {
		if v, ok := c[originKey(origin)]; ok && v.seq > seq {
			c.cut(originKey(origin), seq)
		}
	}
	return trunks, nil
}

// cut takes back what lies above seq.
func (c coverage) cut(k [8]byte, seq uint64) {
	v := c[k]
	v.seq, v.tag = seq, [8]byte{}
	for n := len(v.except); n > 0 && v.except[n-1] >= v.seq; n-- {
		if v.except[n-1] == v.seq {
			v.seq--
		}
		v.except = v.except[:n-1]
	}
	c[k] = v
}

// positions is everything that is visible in the snapshot; nil if the
// snapshot cannot tell.
func positions(snap oplog.Snapshot) (coverage, error) {
	p, ok := snap.(positioner)
	if !ok {
		return nil, nil
	}
	list, err := p.Positions()
	if err != nil {
		return nil, err
	}
	c := make(coverage, len(list))
	exceptions := 0
	for _, pos := range list {
		v := covered{seq: pos.Seq, tag: pos.Tag}
		for _, seq := range pos.Except {
			if exceptions == maxExceptions {
				v.seq, v.tag = seq-1, [8]byte{} // stops before what it cannot name
				break
			}
			exceptions++
			v.except = append(v.except, seq)
		}
		if v.seq > 0 {
			c[originKey(pos.Origin)] = v
		}
	}
	return c, nil
}

// cursor is a position in a listing.
type cursor struct {
	mode    mode
	replica oplog.OriginID // whose arrival numbers; zero if none
	arrival uint64         // delivered up to here there; for back and forward the bound
	ref     oplog.Ref      // last given, for back, forward and older
	since   oplog.Ref      // older: give nothing up to here
	cover   coverage       // nil if not known
}

const cursorVersion = 0

// text encodes the cursor; a coverage that does not fit is left out.
func (c *cursor) text() string {
	s := c.encode(c.cover)
	if len(s) > MaxCursor {
		s = c.encode(nil)
	}
	return s
}

func (c *cursor) encode(cover coverage) string {
	b := pack.Array(nil, 7)
	b = pack.Uint(b, cursorVersion)
	b = pack.Uint(b, uint64(c.mode))
	b = pack.Bin(b, c.replica[:])
	b = pack.Uint(b, c.arrival)
	b = appendRef(b, c.ref)
	b = appendRef(b, c.since)
	if cover == nil {
		b = pack.Nil(b)
	} else {
		keys := make([][8]byte, 0, len(cover))
		for k := range cover {
			keys = append(keys, k)
		}
		slices.SortFunc(keys, func(a, b [8]byte) int { return bytes.Compare(a[:], b[:]) })
		b = pack.Array(b, len(keys))
		for _, k := range keys {
			v := cover[k]
			b = pack.Array(b, 4)
			b = pack.Bin(b, k[:])
			b = pack.Uint(b, v.seq)
			b = pack.Bin(b, v.tag[:])
			b = pack.Array(b, len(v.except))
			for _, seq := range v.except {
				b = pack.Uint(b, seq)
			}
		}
	}
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.RawURLEncoding.EncodeToString(b)
}

func appendRef(dst []byte, ref oplog.Ref) []byte {
	if ref.IsZero() {
		return pack.Nil(dst)
	}
	return pack.Bin(dst, ref[:])
}

func unknownCursor(field, why string) error {
	return refusal.New(refusal.UnknownCursor, field, "start again without it", "%s is not a cursor of this stream: %s", field, why)
}

func parseCursor(text string) (c cursor, err error) {
	if len(text) > MaxCursor {
		return c, refusal.New(refusal.TooLarge, "cursor", "pass next_cursor as it was given", "cursor has %d bytes, at most %d are allowed", len(text), MaxCursor)
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) < 5 {
		return c, unknownCursor("cursor", "it does not decode")
	}
	sum := binary.BigEndian.Uint32(b[len(b)-4:])
	b = b[:len(b)-4]
	if crc32.ChecksumIEEE(b) != sum {
		return c, unknownCursor("cursor", "it is damaged")
	}
	r := pack.NewReader(b)
	r.Exactly(7)
	if v := r.Uint(1 << 32); r.Err() == nil && v != cursorVersion {
		return c, unknownCursor("cursor", "it is of another version")
	}
	c.mode = mode(r.Uint(uint64(modeOlder)))
	copy(c.replica[:], r.Bin(16))
	c.arrival = r.Uint(1 << 62)
	c.ref, c.since = readRef(&r), readRef(&r)
	if !r.Nil() {
		n := r.Array(maxCovered)
		c.cover = make(coverage, n)
		for i := 0; i < n && r.Err() == nil; i++ {
			r.Exactly(4)
			var k [8]byte
			var v covered
			copy(k[:], r.Bin(8))
			v.seq = r.Uint(1 << 62)
			copy(v.tag[:], r.Bin(8))
			m := r.Array(maxExceptions)
			for j := 0; j < m; j++ {
				v.except = append(v.except, r.Uint(1<<62))
			}
			if r.Err() == nil && !slices.IsSorted(v.except) {
				r.Fail("exceptions out of order")
			}
			c.cover[k] = v
		}
	}
	if err := r.End(); err != nil {
		return cursor{}, unknownCursor("cursor", err.Error())
	}
	if (c.mode == modeTail) == !c.ref.IsZero() {
		return cursor{}, unknownCursor("cursor", "it names no place")
	}
	return c, nil
}
