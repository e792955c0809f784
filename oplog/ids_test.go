package oplog

import (
	"cmp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tallystick/hlc"
)

func TestL4_OriginOf(t *testing.T) {
	_, pub, origin := goldenKey()
	var inc Incarnation
	if OriginOf(pub, inc) == origin {
		t.Error("two incarnations of a device have one origin")
	}
	other := pub
	other[31] ^= 1
	for i := range inc {
		inc[i] = 0xa0 + byte(i)
	}
	if OriginOf(other, inc) == origin || OriginOf(pub, inc) != origin {
		t.Error("the origin does not follow the device key")
	}
}

func TestParseIDs(t *testing.T) {
	hex32 := strings.Repeat("0f", 16)
	hex64 := strings.Repeat("0f", 32)
	for _, c := range []struct {
		name, origin, hash string
		ok                 bool
	}{
		{"OK", hex32, hex64, true},
		{"ErrEmpty", "", "", false},
		{"ErrShort", hex32[1:], hex64[1:], false},
		{"ErrLong", hex32 + "0", hex64 + "00", false},
		{"ErrDigit", hex32[:31] + "g", hex64[:63] + " ", false},
		{"ErrUpper", strings.ToUpper(hex32), strings.ToUpper(hex64), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, err := ParseOriginID(c.origin)
			if (err == nil) != c.ok || c.ok && o.String() != c.origin || !c.ok && !o.IsZero() {
				t.Errorf("ParseOriginID(%q) = %s, %v", c.origin, o, err)
			}
			h, err := ParseHash(c.hash)
			if (err == nil) != c.ok || c.ok && h.String() != c.hash || !c.ok && !h.IsZero() {
				t.Errorf("ParseHash(%q) = %s, %v", c.hash, h, err)
			}
		})
	}
	if !(DeviceKey{}).IsZero() || (DeviceKey{1}).IsZero() {
		t.Error("DeviceKey.IsZero")
	}
}

// C2: a Ref sorts as bytes by (timestamp, origin, seq, hash), and gives back
// what it was made of.
func TestC2_RefOrder(t *testing.T) {
	type place struct {
		time   hlc.Timestamp
		origin OriginID
		seq    uint64
		hash   Hash
	}
	places := rapid.Custom(func(t *rapid.T) place {
		small := rapid.Uint64Range(0, 2)
		return place{
			time:   hlc.Timestamp(rapid.OneOf(small, rapid.Uint64()).Draw(t, "time")),
			origin: OriginID{15: byte(small.Draw(t, "origin"))},
			seq:    rapid.OneOf(small, rapid.Uint64()).Draw(t, "seq"),
			hash:   Hash{7: byte(small.Draw(t, "hash")), 31: rapid.Byte().Draw(t, "end")},
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := places.Draw(t, "a"), places.Draw(t, "b")
		ra, rb := MakeRef(a.time, a.origin, a.seq, a.hash), MakeRef(b.time, b.origin, b.seq, b.hash)
		want := cmp.Or(a.time.Compare(b.time), a.origin.Compare(b.origin), cmp.Compare(a.seq, b.seq),
			strings.Compare(string(a.hash[:8]), string(b.hash[:8])))
		if got := ra.Compare(rb); got != want {
			t.Fatalf("%+v against %+v is %d, want %d", a, b, got, want)
		}
		tag := ra.Tag()
		if ra.Time() != a.time || ra.Origin() != a.origin || ra.Seq() != a.seq || string(tag[:]) != string(a.hash[:8]) {
			t.Fatalf("%x is not %+v", ra, a)
		}
		if again, err := RefOf(ra[:]); err != nil || again != ra {
			t.Fatalf("RefOf gives %x, %v", again, err)
		}
		if s := ra.Stamp(); s.Timestamp != a.time || s.Origin != a.origin.Short() {
			t.Fatalf("stamp %s of %x", s, ra)
		}
	})
	for _, n := range []int{0, RefSize - 1, RefSize + 1} {
		if r, err := RefOf(make([]byte, n)); err == nil || !r.IsZero() {
			t.Errorf("a reference of %d bytes: %x, %v", n, r, err)
		}
	}
}
