package oplog

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"tallystick/hlc"
)

// OriginID names one incarnation of one device: the first 16 bytes of
// SHA-256 over a fixed prefix, the device key and the incarnation (L4).
type OriginID [16]byte

// DeviceKey is an ed25519 public key.
type DeviceKey [32]byte

// Incarnation is the random part of an origin.
type Incarnation [16]byte

// Hash is a SHA-256 digest: of an entry's header bytes, or of a payload.
type Hash [32]byte

const originPrefix = "tallystick origin 0\x00"

// OriginOf computes the id of an incarnation of a device.
func OriginOf(key DeviceKey, inc Incarnation) OriginID {
	h := sha256.New()
	h.Write([]byte(originPrefix))
	h.Write(key[:])
	h.Write(inc[:])
	var id OriginID
	copy(id[:], h.Sum(nil))
	return id
}

// String is the full id in hex.
func (o OriginID) String() string { return hex.EncodeToString(o[:]) }

// Short is the part of the id that stands in a timestamp's text form.
func (o OriginID) Short() (s [6]byte) { copy(s[:], o[:6]); return s }

// IsZero reports whether no origin is named.
func (o OriginID) IsZero() bool { return o == OriginID{} }

// Compare orders origins by their bytes.
func (o OriginID) Compare(p OriginID) int { return bytes.Compare(o[:], p[:]) }

// ParseOriginID reads the hex form, lower case only: an id has one text.
func ParseOriginID(s string) (OriginID, error) {
	var o OriginID
	if err := parseHex(o[:], s); err != nil {
		return OriginID{}, fmt.Errorf("oplog: origin id: %w", err)
	}
	return o, nil
}

// String is the key in hex.
func (k DeviceKey) String() string { return hex.EncodeToString(k[:]) }

// IsZero reports whether no key is given.
func (k DeviceKey) IsZero() bool { return k == DeviceKey{} }

// String is the digest in hex.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// IsZero reports whether no digest is given.
func (h Hash) IsZero() bool { return h == Hash{} }

// ParseHash reads the hex form, lower case only.
func ParseHash(s string) (Hash, error) {
	var h Hash
	if err := parseHex(h[:], s); err != nil {
		return Hash{}, fmt.Errorf("oplog: hash: %w", err)
	}
	return h, nil
}

func parseHex(dst []byte, s string) error {
	if len(s) != 2*len(dst) {
		return fmt.Errorf("want %d hex digits, got %d", 2*len(dst), len(s))
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return fmt.Errorf("want lower-case hex digits, got %q", s)
		}
	}
	_, err := hex.Decode(dst, []byte(s))
	return err
}

// RefSize is the length of a Ref in bytes.
const RefSize = 40

// Ref is an entry's place in the total order (C2) as bytes: timestamp,
// origin, seq and the first 8 bytes of the entry's hash, big-endian, so that
// byte order is the order of C2. It is the same on every replica; views use
// it as key and as reference.
type Ref [RefSize]byte

// MakeRef builds a Ref.
func MakeRef(t hlc.Timestamp, origin OriginID, seq uint64, hash Hash) (r Ref) {
	binary.BigEndian.PutUint64(r[0:], uint64(t))
	copy(r[8:], origin[:])
	binary.BigEndian.PutUint64(r[24:], seq)
	copy(r[32:], hash[:8])
	return r
}

// RefOf reads a Ref from bytes of exactly RefSize.
func RefOf(b []byte) (r Ref, err error) {
	if len(b) != RefSize {
		return r, fmt.Errorf("oplog: reference of %d bytes, want %d", len(b), RefSize)
	}
	copy(r[:], b)
	return r, nil
}

// Time is the entry's timestamp.
func (r Ref) Time() hlc.Timestamp { return hlc.Timestamp(binary.BigEndian.Uint64(r[:8])) }

// Origin is the entry's origin.
func (r Ref) Origin() (o OriginID) { copy(o[:], r[8:24]); return o }

// Seq is the entry's sequence number at its origin.
func (r Ref) Seq() uint64 { return binary.BigEndian.Uint64(r[24:32]) }

// Tag is the first 8 bytes of the entry's hash.
func (r Ref) Tag() (t [8]byte) { copy(t[:], r[32:]); return t }

// Stamp is the timestamp with the origin's short id, as clients see it.
func (r Ref) Stamp() hlc.Stamp { return hlc.Stamp{Timestamp: r.Time(), Origin: r.Origin().Short()} }

// IsZero reports whether no entry is named.
func (r Ref) IsZero() bool { return r == Ref{} }

// Compare is the order of C2.
func (r Ref) Compare(s Ref) int { return bytes.Compare(r[:], s[:]) }
