package oplog

import (
	"crypto/ed25519"
	"encoding/binary"
	"fmt"

	"tallystick/hlc"
)

// Head is an origin's signed word: "my log up to Seq ends in Hash, and no
// later entry of mine is stamped below Floor" (L4). It covers everything
// before it by the chain.
type Head struct {
	Origin OriginID
	Seq    uint64
	Hash   Hash
	Floor  hlc.Timestamp
	Sig    [ed25519.SignatureSize]byte
}

const headPrefix = "tallystick head 0\x00"

func (h *Head) signed() []byte {
	b := make([]byte, 0, 96)
	b = append(b, headPrefix...)
	b = append(b, h.Origin[:]...)
	b = binary.BigEndian.AppendUint64(b, h.Seq)
	b = append(b, h.Hash[:]...)
	return binary.BigEndian.AppendUint64(b, uint64(h.Floor))
}

func (h *Head) sign(key ed25519.PrivateKey) { copy(h.Sig[:], ed25519.Sign(key, h.signed())) }

// Verify reports whether the device signed this head. That the origin is one
// of the device's is the caller's to know.
func (h *Head) Verify(key DeviceKey) bool {
	return ed25519.Verify(ed25519.PublicKey(key[:]), h.signed(), h.Sig[:])
}

// Newer reports whether h says more than g of the same origin: a longer log,
// or the same log and a higher floor.
func (h *Head) Newer(g *Head) bool {
	return h.Seq > g.Seq || h.Seq == g.Seq && h.Hash == g.Hash && h.Floor > g.Floor
}

// Tip is the place the head speaks of.
func (h *Head) Tip() Tip { return Tip{Seq: h.Seq, Hash: h.Hash} }

// IsZero reports whether there is no head.
func (h *Head) IsZero() bool { return h.Seq == 0 }

// Append encodes the head: [version, origin, seq, hash, floor, signature].
func (h *Head) Append(dst []byte) []byte {
	dst = appendArrayLen(dst, 6)
	dst = appendUint(dst, EnvelopeVersion)
	dst = appendBin(dst, h.Origin[:])
	dst = appendUint(dst, h.Seq)
	dst = appendBin(dst, h.Hash[:])
	dst = appendUint(dst, uint64(h.Floor))
	return appendBin(dst, h.Sig[:])
}

// ParseHead reads one head from the start of b and returns what is left. It
// does not check the signature.
func ParseHead(b []byte) (h Head, rest []byte, err error) {
	r := reader{b: b}
	r.array(6)
	if v := r.uint(); r.err == nil && v != EnvelopeVersion {
		return Head{}, nil, fmt.Errorf("%w: %d", ErrVersion, v)
	}
	r.fixed(h.Origin[:])
	h.Seq = r.uint()
	r.fixed(h.Hash[:])
	h.Floor = hlc.Timestamp(r.uint())
	r.fixed(h.Sig[:])
	if r.err == nil && h.Seq == 0 {
		r.fail("head at seq 0")
	}
	if r.err == nil && h.Floor > hlc.Max {
		r.fail("floor above every timestamp")
	}
	if r.err != nil {
		return Head{}, nil, r.err
	}
	return h, b[r.pos:], nil
}
