package oplog

import "fmt"

// kindBirth is the kind of the first entry of every incarnation. Its payload
// names the device key and the random incarnation, so that the origin id in
// its header certifies itself and the signature on the head over it can be
// checked by anyone (L4).
const kindBirth = "tally.birth"

const birthVersion = 0

func birthBody(key DeviceKey, inc Incarnation) []byte {
	b := appendArrayLen(nil, 2)
	b = appendBin(b, key[:])
	return appendBin(b, inc[:])
}

// parseBirth reads who was born, and checks that the header's origin is theirs.
func parseBirth(e *Entry) (key DeviceKey, inc Incarnation, err error) {
	if e.Kind != kindBirth || e.Seq != 1 || !e.Present() {
		return key, inc, fmt.Errorf("%w: an origin must begin with its birth", ErrBadRange)
	}
	if e.Body == nil {
		if err := e.parsePayload(); err != nil {
			return key, inc, fmt.Errorf("%w: birth: %w", ErrBadRange, err)
		}
	}
	r := reader{b: e.Body}
	r.array(2)
	copy(key[:], r.binN(len(key)))
	copy(inc[:], r.binN(len(inc)))
	r.end()
	if r.err != nil {
		return key, inc, fmt.Errorf("%w: birth: %w", ErrBadRange, r.err)
	}
	if OriginOf(key, inc) != e.Origin {
		return key, inc, fmt.Errorf("%w: birth does not fit its origin", ErrBadRange)
	}
	return key, inc, nil
}
