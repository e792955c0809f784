package oplog

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"tallystick/hlc"
)

// Limits of the envelope. They are frozen for the life of the protocol (L6).
const (
	EnvelopeVersion = 0
	// MaxPayload is in bytes; larger things are blobs. It leaves the encoded
	// entry below 1 MiB, where badger would move it to the value log, a second
	// file that a power cut can tear from the first.
	MaxPayload = 1<<20 - 1024
	MaxKind    = 32  // bytes
	MaxAuthor  = 256 // bytes
	MaxOpID    = 256 // bytes
	SaltSize   = 16
	// MaxEntry is the hard ceiling of an encoded entry in bytes.
	MaxEntry = 1<<20 - 64
)

// Header is what the chain covers of an entry. Its exact bytes are kept and
// relayed; Hash is SHA-256 over them (L3).
type Header struct {
	Origin      OriginID
	Seq         uint64 // 1, 2, 3... along each branch (L2)
	Time        hlc.Timestamp
	Prev        Hash   // hash of the entry before; zero at seq 1
	Kind        string // what the payload is, e.g. "event"; at most MaxKind bytes
	Author      string // identity the op was written under; empty for the replica's own acts
	PayloadLen  uint32
	PayloadHash Hash // SHA-256 over salt and payload
}

// Entry is an op as stored: stamped, chained and with its payload, unless
// that is erased or owed.
type Entry struct {
	Header
	Hash      Hash
	stamped   hlc.Timestamp // the header's own stamp where an amend lowered Time; zero otherwise
	beyond    bool          // stored as void, beyond a cut of its device
	RawHeader []byte        // exact bytes the hash covers
	Salt      []byte        // SaltSize bytes, nil when the payload is absent
	Payload   []byte        // nil when erased or owed

	// Read from the payload's fixed opening; zero when the payload is absent.
	Version uint64 // payload version
	OpID    string // client op id, or empty
	Body    []byte // msgpack of the domain
}

// Stamped is the stamp in the signed header. Time is that, too, unless an
// amend lowered it (C3): then Time is what counts.
func (e *Entry) Stamped() hlc.Timestamp {
	if e.stamped != 0 {
		return e.stamped
	}
	return e.Time
}

// Ref is the entry's place in the total order.
func (e *Entry) Ref() Ref { return MakeRef(e.Time, e.Origin, e.Seq, e.Hash) }

// goesBy reports whether ref names the entry, and gives it the stamp that ref
// has: views that are not rebuilt yet since an amend name entries as they were
// stamped before.
func (e *Entry) goesBy(ref Ref) bool {
	if e.Ref() == ref {
		return true
	}
	t := ref.Time()
	if e.stamped == 0 || t <= e.Time || t > e.stamped || MakeRef(t, e.Origin, e.Seq, e.Hash) != ref {
		return false
	}
	e.Time = t
	return true
}

// Present reports whether the payload is here.
func (e *Entry) Present() bool { return e.Payload != nil }

// Size is the encoded size in bytes, give or take the length prefixes.
func (e *Entry) Size() int { return len(e.RawHeader) + len(e.Salt) + len(e.Payload) + 12 }

// EncodePayload puts a body of a domain behind the opening that every
// payload has: [payload version, client op id, body].
func EncodePayload(version uint64, opID string, body []byte) []byte {
	dst := make([]byte, 0, len(body)+len(opID)+8)
	dst = appendArrayLen(dst, 3)
	dst = appendUint(dst, version)
	dst = appendStr(dst, opID)
	return append(dst, body...)
}

// parsePayload reads the opening. The body is what is left, uninterpreted.
func (e *Entry) parsePayload() error {
	r := reader{b: e.Payload}
	r.array(3)
	version := r.uint()
	opID := r.str(MaxOpID)
	if r.err != nil {
		return r.err
	}
	e.Version, e.OpID, e.Body = version, string(opID), e.Payload[r.pos:]
	if len(e.Body) == 0 {
		return fmt.Errorf("%w: payload without body", ErrMalformed)
	}
	return nil
}

func payloadHash(salt, payload []byte) (h Hash) {
	var buf [512]byte
	if len(salt)+len(payload) <= len(buf) {
		n := copy(buf[:], salt)
		n += copy(buf[n:], payload)
		return sha256.Sum256(buf[:n])
	}
	d := sha256.New()
	d.Write(salt)
	d.Write(payload)
	d.Sum(h[:0])
	return h
}

// appendHeader writes the header: a msgpack array of nine. The timestamp is
// always the 9-byte form so that its place is fixed. The fixed-size fields go in
// as arrays, which the compiler moves without a call.
func appendHeader(dst []byte, h *Header) []byte {
	dst = slices.Grow(dst, h.maxSize())
	n := len(dst)
	b := dst[n : n+20]
	b[0], b[1], b[2], b[3] = 0x90|9, EnvelopeVersion, 0xc4, byte(len(h.Origin))
	*(*OriginID)(b[4:]) = h.Origin
	dst = appendUint(dst[:n+20], h.Seq)
	n = len(dst)
	b = dst[n : n+43]
	b[0] = 0xcf
	binary.BigEndian.PutUint64(b[1:], uint64(h.Time))
	b[9], b[10] = 0xc4, byte(len(h.Prev))
	*(*Hash)(b[11:]) = h.Prev
	dst = appendStr(dst[:n+43], h.Kind)
	dst = appendStr(dst, h.Author)
	dst = appendUint(dst, uint64(h.PayloadLen))
	n = len(dst)
	b = dst[n : n+34]
	b[0], b[1] = 0xc4, byte(len(h.PayloadHash))
	*(*Hash)(b[2:]) = h.PayloadHash
	return dst[:n+34]
}

// maxSize is the most that the encoded header can take.
func (h *Header) maxSize() int { return maxHeader - MaxKind - MaxAuthor + len(h.Kind) + len(h.Author) }

// Append encodes the entry: [header, salt, payload], the last two nil when
// the payload is absent.
func (e *Entry) Append(dst []byte) []byte {
	dst = slices.Grow(dst, e.Size())
	dst = appendArrayLen(dst, 3)
	dst = appendBin(dst, e.RawHeader)
	if e.Payload == nil {
		return appendNil(appendNil(dst))
	}
	dst = appendBin(dst, e.Salt)
	return appendBin(dst, e.Payload)
}

// seal fills the hashes and the raw header of an entry whose other fields
// are set.
func (e *Entry) seal() {
	e.PayloadLen = uint32(len(e.Payload))
	e.PayloadHash = payloadHash(e.Salt, e.Payload)
	e.RawHeader = appendHeader(make([]byte, 0, e.maxSize()), &e.Header)
	e.Hash = sha256.Sum256(e.RawHeader)
}

// ErrVersion is returned for an envelope of a version this program does not
// know. The envelope is frozen, so this is damage or another protocol.
var ErrVersion = errors.New("oplog: unknown envelope version")

// maxHeader is the size of the largest header within the limits.
const maxHeader = 1 + 1 + (2 + 16) + 9 + 9 + (2 + 32) + (2 + MaxKind) + (3 + MaxAuthor) + 5 + (2 + 32)

// ParseEntry reads one entry from the start of b and returns what is left.
// The entry's slices alias b. It checks form and limits, and that a present
// payload fits the header; it does not check the payload's own opening, which
// is a matter for quarantine (L6), nor the chain.
func ParseEntry(b []byte) (e Entry, rest []byte, err error) {
	if rest, err = e.decode(b); err != nil {
		return Entry{}, nil, err
	}
	e.Hash = sha256.Sum256(e.RawHeader)
	if e.Payload != nil && payloadHash(e.Salt, e.Payload) != e.PayloadHash {
		return Entry{}, nil, fmt.Errorf("%w: payload does not fit its header's hash", ErrMalformed)
	}
	return e, rest, nil
}

// decode is ParseEntry without the hashing: Hash stays as it is and the
// payload is unproven.
func (e *Entry) decode(b []byte) (rest []byte, err error) {
	r := reader{b: b}
	r.array(3)
	e.RawHeader = r.bin(maxHeader)
	if r.err != nil {
		return nil, r.err
	}
	if err := e.Header.decode(e.RawHeader); err != nil {
		return nil, err
	}
	if r.nil() {
		if !r.nil() {
			r.fail("payload without salt")
		}
		e.Salt, e.Payload = nil, nil
	} else {
		e.Salt = r.binN(SaltSize)
		e.Payload = r.bin(MaxPayload)
		if r.err == nil && len(e.Payload) != int(e.PayloadLen) {
			r.fail("payload is not as long as its header says,")
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	return b[r.pos:], nil
}

func (h *Header) decode(raw []byte) error {
	r := reader{b: raw}
	r.array(9)
	if v := r.uint(); r.err == nil && v != EnvelopeVersion {
		return fmt.Errorf("%w: %d", ErrVersion, v)
	}
	r.fixed(h.Origin[:])
	h.Seq = r.uint()
	h.Time = hlc.Timestamp(r.uint64())
	r.fixed(h.Prev[:])
	// Kind and author lie side by side: one allocation holds both.
	start := r.pos
	kind := r.str(MaxKind)
	kindEnd := r.pos
	author := r.str(MaxAuthor)
	if r.err == nil {
		both := string(raw[start:r.pos])
		h.Kind = both[kindEnd-start-len(kind) : kindEnd-start]
		h.Author = both[len(both)-len(author):]
	}
	n := r.uint()
	if r.err == nil && n > MaxPayload {
		r.fail(fmt.Sprintf("payload of %d bytes, limit %d,", n, MaxPayload))
	}
	h.PayloadLen = uint32(n)
	r.fixed(h.PayloadHash[:])
	r.end()
	switch {
	case r.err != nil:
	case h.Seq == 0:
		r.fail("seq 0 before the end")
	case h.Time == 0:
		r.fail("no timestamp before the end")
	case h.Time > hlc.Max:
		r.fail("timestamp without a text form before the end")
	case h.Kind == "":
		r.fail("no kind before the end")
	case (h.Seq == 1) != h.Prev.IsZero():
		r.fail(fmt.Sprintf("previous hash does not fit seq %d, before the end", h.Seq))
	}
	return r.err
}

// Clone copies everything the entry's slices alias.
func (e *Entry) Clone() Entry {
	c := *e
	c.RawHeader = bytes.Clone(e.RawHeader)
	c.Salt = bytes.Clone(e.Salt)
	c.Payload = bytes.Clone(e.Payload)
	c.Body = nil
	if e.Body != nil {
		c.Body = c.Payload[len(c.Payload)-len(e.Body):]
	}
	return c
}
