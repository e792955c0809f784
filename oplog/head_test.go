package oplog

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tallystick/hlc"
)

func TestParseHeadErrors(t *testing.T) {
	h := goldenHead(hlc.New(1772366400000, 2))
	good := [6][]byte{
		{EnvelopeVersion}, appendBin(nil, h.Origin[:]), appendUint(nil, h.Seq), appendBin(nil, h.Hash[:]),
		appendUint(nil, uint64(h.Floor)), appendBin(nil, h.Sig[:]),
	}
	for _, c := range []struct {
		name  string
		array string
		field int
		bytes []byte
		want  string
	}{
		{"OK", "\x96", 0, []byte{0}, ""},
		{"OK no floor", "\x96", 4, []byte{0}, ""},
		{"OK floor at max", "\x96", 4, appendUint(nil, uint64(hlc.Max)), ""},
		{"ErrVersion", "\x96", 0, []byte{1}, "unknown envelope version: 1"},
		{"ErrOriginShort", "\x96", 1, appendBin(nil, make([]byte, 15)), "byte string of 15, want 16"},
		{"ErrSeqZero", "\x96", 2, []byte{0}, "head at seq 0"},
		{"ErrSeqLongForm", "\x96", 2, []byte("\xcd\x00\x02"), "shortest"},
		{"ErrHashLong", "\x96", 3, appendBin(nil, make([]byte, 33)), "byte string of 33"},
		{"ErrFloorAboveMax", "\x96", 4, appendUint(nil, uint64(hlc.Max)+1), "floor above every timestamp"},
		{"ErrFloorLongForm", "\x96", 4, []byte("\xcf\x00\x00\x00\x00\x00\x00\x00\x01"), "shortest"},
		{"ErrSigShort", "\x96", 5, appendBin(nil, make([]byte, 63)), "byte string of 63, want 64"},
		{"ErrSigNil", "\x96", 5, []byte("\xc0"), "not a byte string"},
		{"ErrArrayFive", "\x95", 0, []byte{0}, "array of 5, want 6"},
		{"ErrArrayLongForm", "\xdc\x00\x06", 0, []byte{0}, "shortest"},
		{"ErrMap", "\x86", 0, []byte{0}, "not an array"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := good
			f[c.field] = c.bytes
			got, rest, err := ParseHead(append([]byte(c.array), bytes.Join(f[:], nil)...))
			if c.want == "" {
				if err != nil || len(rest) != 0 {
					t.Fatalf("%v, rest %x", err, rest)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrVersion) {
				t.Fatalf("error %v, want one with %q", err, c.want)
			}
			if !got.IsZero() || rest != nil {
				t.Errorf("something beside the error: %+v, %x", got, rest)
			}
		})
	}
	b := h.Append(nil)
	for n := range b {
		if _, _, err := ParseHead(b[:n]); !errors.Is(err, ErrMalformed) {
			t.Fatalf("%d of %d bytes parse: %v", n, len(b), err)
		}
	}
}

func heads() *rapid.Generator[Head] {
	return rapid.Custom(func(t *rapid.T) Head {
		return Head{
			Origin: OriginID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "origin")),
			Seq:    max(numbers().Draw(t, "seq"), 1),
			Hash:   hashes().Draw(t, "hash"),
			Floor:  min(hlc.Timestamp(numbers().Draw(t, "floor")), hlc.Max),
		}
	})
}

func TestHeadRoundTrip(t *testing.T) {
	key, pub, _ := goldenKey()
	rapid.Check(t, func(t *rapid.T) {
		want := heads().Draw(t, "head")
		want.sign(key)
		b := want.Append(nil)
		got, rest, err := ParseHead(append(bytes.Clone(b), 7))
		if err != nil || got != want || len(rest) != 1 || !got.Verify(pub) || !bytes.Equal(got.Append(nil), b) {
			t.Fatalf("got %+v, rest %x, %v, want %+v", got, rest, err, want)
		}
	})
}

// L4: a head says who, how far, what and until when; change any bit of it, or
// ask another device, and it is not signed.
func TestL4_AnyBitOfAHeadIsSigned(t *testing.T) {
	_, pub, _ := goldenKey()
	h := goldenHead(hlc.New(1772366400000, 2))
	b := h.Append(nil)
	for bit := range 8 * len(b) {
		bad := bytes.Clone(b)
		bad[bit/8] ^= 1 << (bit % 8)
		if got, rest, err := ParseHead(bad); err == nil && len(rest) == 0 && got.Verify(pub) {
			t.Fatalf("bit %d of byte %d flipped unseen", bit%8, bit/8)
		}
	}
	other := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{9}, ed25519.SeedSize))
	var otherPub DeviceKey
	copy(otherPub[:], other.Public().(ed25519.PublicKey))
	if h.Verify(otherPub) || h.Verify(DeviceKey{}) {
		t.Error("another device's key verifies the head")
	}
	if !h.Verify(pub) {
		t.Error("the device's own key does not")
	}
	// The signature is over bytes that begin with their purpose: what else the
	// device key signs cannot be passed off as a head.
	if !bytes.HasPrefix(h.signed(), []byte("tallystick head 0\x00")) {
		t.Errorf("signed bytes begin %q", h.signed()[:18])
	}
}

func TestHeadNewer(t *testing.T) {
	a := Head{Seq: 5, Hash: Hash{1}, Floor: 100}
	for _, c := range []struct {
		name string
		h    Head
		want bool
	}{
		{"same", a, false},
		{"longer", Head{Seq: 6, Hash: Hash{2}, Floor: 100}, true},
		{"longer, lower floor", Head{Seq: 6, Hash: Hash{2}, Floor: 1}, true},
		{"shorter, higher floor", Head{Seq: 4, Hash: Hash{1}, Floor: 200}, false},
		{"higher floor", Head{Seq: 5, Hash: Hash{1}, Floor: 101}, true},
		{"lower floor", Head{Seq: 5, Hash: Hash{1}, Floor: 99}, false},
		{"fork, higher floor", Head{Seq: 5, Hash: Hash{9}, Floor: 101}, false},
	} {
		if got := c.h.Newer(&a); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	if a.IsZero() || !(&Head{}).IsZero() || a.Tip() != (Tip{Seq: 5, Hash: Hash{1}}) || !a.Newer(&Head{}) {
		t.Error("IsZero, Tip or Newer than nothing")
	}
}
