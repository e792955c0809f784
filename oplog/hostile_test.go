package oplog

import (
	"bytes"
	"testing"
)

// TestA4_HostileBytesCostLittle gives every decoder of foreign bytes what it
// wrote, cut, changed in a bit, with huge lengths and nested deeply: less than
// 1 MiB is allocated for any, and nothing panics.
func TestA4_HostileBytesCostLittle(t *testing.T) {
	_, second, _ := goldenEntries()
	l := openTest(t, "a")
	mustAppend(t, l, note("born"))
	first := all(t, l)[0]
	gold := goldenHead(second.Time)
	decoders := map[string]struct {
		good  []byte
		parse func([]byte) error
	}{
		"entry":    {second.Append(nil), whole(ParseEntry)},
		"head":     {gold.Append(nil), whole(ParseHead)},
		"frontier": {goldenFrontier().Append(nil), whole(ParseFrontier)},
		"pack":     {goldenPack(t), func(b []byte) error { _, err := readPack(b); return err }},
		"birth": {first.Body, func(b []byte) error {
			e := first
			e.Body = b
			_, err := BirthOf(&e)
			return err
		}},
		"erasure": {(&Erasure{Hashes: []Hash{{1}, {2}}, Reason: "r"}).body(), func(b []byte) error { _, err := parseErasure(b); return err }},
	}
	for name, d := range decoders {
		if err := d.parse(d.good); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		check := func(what string, mustFail bool, b []byte) {
			t.Helper()
			var err error
			if used := allocated(1<<20-1, func() { err = d.parse(b) }); used >= 1<<20 {
				t.Fatalf("%s, %s: %d bytes allocated", name, what, used)
			}
			if mustFail && err == nil {
				t.Fatalf("%s, %s: taken", name, what)
			}
		}
		for at := range d.good {
			check("cut", true, d.good[:at])
			flipped := bytes.Clone(d.good)
			flipped[at] ^= 1 << (at % 8)
			check("bit", false, flipped)
			for _, form := range []byte{0xc6, 0xdb, 0xdd, 0xdf} {
				for _, n := range []string{"\x80\x00\x00\x00", "\xff\xff\xff\xff"} {
					check("length", false, append(append(append(bytes.Clone(d.good[:at]), form), n...), d.good[at:]...))
				}
			}
		}
		check("nested", true, bytes.Repeat([]byte{0x91}, 1<<20))
		check("one more byte", true, append(bytes.Clone(d.good), 0))
	}
}
