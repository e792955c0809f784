package oplog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseFrontierErrors(t *testing.T) {
	origin := func(n byte) string { return "\xc4\x10" + string([]byte{n}) + strings.Repeat("\x00", 15) }
	tip := func(seq string, hash byte) string {
		return "\x92" + seq + "\xc4\x20" + string([]byte{hash}) + strings.Repeat("\x00", 31)
	}
	one := func(tips string) string { return "\x91\x92" + origin(1) + tips }
	manyTips := strings.Builder{}
	for i := range MaxTips + 1 {
		manyTips.WriteString(tip(string([]byte{byte(i + 1)}), 1))
	}
	for _, c := range []struct{ name, in, want string }{
		{"OK empty", "\x90", ""},
		{"OK", one("\x91" + tip("\x05", 1)), ""},
		{"OK two tips", one("\x92" + tip("\x05", 1) + tip("\x05", 2)), ""},
		{"OK tips at limit", one("\xdc\x00\x40" + manyTips.String()[:MaxTips*36]), ""},
		{"ErrNothing", "", "truncated"},
		{"ErrMap", "\x80", "not an array"},
		{"ErrOriginsLimit", "\xdd\x00\x01\x00\x01", "frontier of 65537, limit 65536"},
		{"ErrOriginsLongForm", "\xdc\x00\x01\x92" + origin(1) + "\x91" + tip("\x05", 1), "shortest"},
		{"ErrRowOfOne", "\x91\x91" + origin(1), "array of 1, want 2"},
		{"ErrRowOfThree", "\x91\x93" + origin(1) + "\x91" + tip("\x05", 1) + "\xc0", "array of 3, want 2"},
		{"ErrOriginShort", "\x91\x92\xc4\x0f" + strings.Repeat("\x00", 15), "byte string of 15, want 16"},
		{"ErrOriginTwice", "\x92\x92" + origin(1) + "\x91" + tip("\x05", 1) + "\x92" + origin(1) + "\x91" + tip("\x05", 1), "origins out of order"},
		{"ErrOriginOrder", "\x92\x92" + origin(2) + "\x91" + tip("\x05", 1) + "\x92" + origin(1) + "\x91" + tip("\x05", 1), "origins out of order"},
		{"ErrNoTips", one("\x90"), "origin without tips"},
		{"ErrTipsLimit", one("\xdc\x00\x41" + manyTips.String()), "tips of 65, limit 64"},
		{"ErrTipsLongForm", one("\xdc\x00\x01" + tip("\x05", 1)), "shortest"},
		{"ErrTipOfOne", one("\x91\x91\x05"), "array of 1, want 2"},
		{"ErrTipSeqZero", one("\x91" + tip("\x00", 1)), "tip at seq 0"},
		{"ErrTipSeqLongForm", one("\x91" + tip("\xcc\x05", 1)), "shortest"},
		{"ErrTipTwice", one("\x92" + tip("\x05", 1) + tip("\x05", 1)), "tips out of order"},
		{"ErrTipSeqOrder", one("\x92" + tip("\x05", 1) + tip("\x04", 1)), "tips out of order"},
		{"ErrTipHashOrder", one("\x92" + tip("\x05", 2) + tip("\x05", 1)), "tips out of order"},
		{"ErrHashShort", one("\x91\x92\x05\xc4\x1f" + strings.Repeat("\x00", 31)), "byte string of 31, want 32"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, rest, err := ParseFrontier([]byte(c.in))
			if c.want == "" {
				if err != nil || len(rest) != 0 || !bytes.Equal(got.Append(nil), []byte(c.in)) {
					t.Fatalf("%v, %v, rest %x", got, err, rest)
				}
				return
			}
			if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want one with %q", err, c.want)
			}
			if got != nil || rest != nil {
				t.Errorf("something beside the error: %v, %x", got, rest)
			}
		})
	}
	b := goldenFrontier().Append(nil)
	for n := range b {
		if _, _, err := ParseFrontier(b[:n]); !errors.Is(err, ErrMalformed) {
			t.Fatalf("%d of %d bytes parse: %v", n, len(b), err)
		}
	}
}

// A4: as many origins as the limit allows go there and back.
func TestA4_LargestFrontier(t *testing.T) {
	f := Frontier{}
	for i := range MaxFrontierOrigins {
		var o OriginID
		binary.BigEndian.PutUint32(o[:], uint32(i))
		f[o] = []Tip{{Seq: 1, Hash: Hash{1}}}
	}
	got, rest, err := ParseFrontier(f.Append(nil))
	if err != nil || len(rest) != 0 || len(got) != MaxFrontierOrigins {
		t.Fatalf("%d origins, rest of %d, %v", len(got), len(rest), err)
	}
	f[OriginID{0xff}] = []Tip{{Seq: 1, Hash: Hash{1}}}
	if _, _, err := ParseFrontier(f.Append(nil)); !errors.Is(err, ErrMalformed) {
		t.Errorf("one origin more: %v", err)
	}
}

func TestFrontierRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := frontiers().Draw(t, "frontier")
		b := want.Append(nil)
		got, rest, err := ParseFrontier(append(bytes.Clone(b), 7))
		if err != nil || len(rest) != 1 || !reflect.DeepEqual(got, want) || !bytes.Equal(got.Append(nil), b) {
			t.Fatalf("got %v, rest %x, %v, want %v", got, rest, err, want)
		}
	})
}

// L2: equal sets of tips have one digest, in whatever order and however
// often they were noted; other sets have others.
func TestL2_DigestIsOfTheSetOfTips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := frontiers().Draw(t, "frontier")
		same := f.Clone()
		for o, tips := range same {
			same[o] = append(rapid.Permutation(tips).Draw(t, "tips"), tips[0])
		}
		same[OriginID{15: 0xff, 14: 1}] = nil
		if f.Digest() != same.Digest() {
			t.Fatalf("two digests for one set:\n%x\n%x", f.Append(nil), same.Append(nil))
		}
		if len(f) == 0 {
			return
		}
		o := rapid.SampledFrom(f.Origins()).Draw(t, "origin")
		for name, change := range map[string]func(Frontier){
			"seq":    func(g Frontier) { g[o][0].Seq-- },
			"hash":   func(g Frontier) { g[o][0].Hash[31] ^= 1 },
			"origin": func(g Frontier) { delete(g, o) },
			"tip":    func(g Frontier) { g[o] = append(g[o], Tip{Seq: 9, Hash: Hash{0, 9}}) },
		} {
			g := f.Clone()
			change(g)
			if g.Digest() == f.Digest() {
				t.Fatalf("another %s, the same digest: %x", name, g.Append(nil))
			}
		}
	})
}

func TestFrontierReads(t *testing.T) {
	a, b := OriginID{1}, OriginID{2}
	f := Frontier{b: {{Seq: 3, Hash: Hash{3}}, {Seq: 7, Hash: Hash{7}}}, a: {{Seq: 5, Hash: Hash{5}}}}
	if f.Seq(a) != 5 || f.Seq(b) != 7 || f.Seq(OriginID{}) != 0 || f.Total() != 12 {
		t.Errorf("Seq %d %d %d, Total %d", f.Seq(a), f.Seq(b), f.Seq(OriginID{}), f.Total())
	}
	if !f.Has(b, Tip{Seq: 3, Hash: Hash{3}}) || f.Has(b, Tip{Seq: 3, Hash: Hash{4}}) || f.Has(OriginID{}, Tip{}) {
		t.Error("Has")
	}
	if !slices.Equal(f.Origins(), []OriginID{a, b}) {
		t.Errorf("Origins %v", f.Origins())
	}
	c := f.Clone()
	c[a][0].Seq = 9
	delete(c, b)
	if f.Seq(a) != 5 || len(f) != 2 {
		t.Error("the clone is not its own")
	}
	var none Frontier
	if none.Seq(a) != 0 || none.Total() != 0 || none.Has(a, Tip{}) || none.Digest() != (Frontier{}).Digest() {
		t.Error("the zero frontier does not read as empty")
	}
	f[b][0], f[b][1] = f[b][1], f[b][0]
	before := f.Clone()
	f.Append(nil)
	if !reflect.DeepEqual(f, before) {
		t.Error("Append changes the frontier")
	}
}
