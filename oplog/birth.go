package oplog

import "fmt"

// kindBirth is the kind of the first entry of every incarnation. Its payload
// names the device key and the random incarnation, so that the origin id in
// its header certifies itself and the signature on the head over it can be
// checked by anyone (L4).
const kindBirth = "tally.birth"

const birthVersion = 0

// Birth is the payload of an incarnation's first entry.
type Birth struct {
	Key         DeviceKey
	Incarnation Incarnation
	// Predecessor is the device's incarnation before, as far as this replica
	// held it when it gave that up (L7). Zero for a device's first.
	Predecessor Predecessor
}

// Predecessor names a given-up incarnation and its last entry held.
type Predecessor struct {
	Origin OriginID
	Tip    Tip // seq 0 when nothing of it was written
}

func (b *Birth) body() []byte {
	dst := appendArrayLen(nil, 3)
	dst = appendBin(dst, b.Key[:])
	dst = appendBin(dst, b.Incarnation[:])
	if b.Predecessor.Origin.IsZero() {
		return appendNil(dst)
	}
	return b.Predecessor.append(dst)
}

func (p *Predecessor) append(dst []byte) []byte {
	dst = appendArrayLen(dst, 3)
	dst = appendBin(dst, p.Origin[:])
	dst = appendUint(dst, p.Tip.Seq)
	return appendBin(dst, p.Tip.Hash[:])
}

func (p *Predecessor) read(r *reader) {
	if r.nil() {
		return
	}
	r.array(3)
	copy(p.Origin[:], r.binN(len(p.Origin)))
	p.Tip.Seq = r.uint()
	copy(p.Tip.Hash[:], r.binN(len(p.Tip.Hash)))
}

// BirthOf reads a birth and checks that the entry's origin is the one it
// certifies.
func BirthOf(e *Entry) (b Birth, err error) {
	if e.Kind != kindBirth || e.Seq != 1 || !e.Present() {
		return b, fmt.Errorf("%w: an origin must begin with its birth", ErrBadRange)
	}
	if e.Body == nil {
		if err := e.parsePayload(); err != nil {
			return b, fmt.Errorf("%w: birth: %w", ErrBadRange, err)
		}
	}
	r := reader{b: e.Body}
	r.array(3)
	copy(b.Key[:], r.binN(len(b.Key)))
	copy(b.Incarnation[:], r.binN(len(b.Incarnation)))
	b.Predecessor.read(&r)
	r.end()
	if r.err != nil {
		return b, fmt.Errorf("%w: birth: %w", ErrBadRange, r.err)
	}
	if OriginOf(b.Key, b.Incarnation) != e.Origin {
		return b, fmt.Errorf("%w: birth does not fit its origin", ErrBadRange)
	}
	return b, nil
}
