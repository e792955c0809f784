package oplog

import (
	"bytes"
	"testing"

	"tallystick/internal/hostile"
)

// TestA4_HostileBodies: the payloads that the log itself reads, as a member may
// write them, and packs, which come from anywhere.
func TestA4_HostileBodies(t *testing.T) {
	a := Amendment{Origin: OriginID{1, 15: 2}, Last: Tip{Seq: 300, Hash: Hash{3, 31: 4}}}
	x := Erasure{Hashes: []Hash{{1}, {2}}, Reason: "r"}
	hostile.Check(t, hostile.Msgpack(a.body()), nil, func(b []byte) error { _, err := parseAmendment(b); return err })
	hostile.Check(t, hostile.Msgpack(x.body()), nil, func(b []byte) error { _, err := parseErasure(b); return err })
	pack := goldenPack(t)
	if _, err := readPack(pack); err != nil {
		t.Fatal(err)
	}
	hostile.Check(t, hostile.Bytes(pack), nil, func(b []byte) error { _, err := readPack(b); return err })
}

func FuzzParseErasure(f *testing.F) {
	x := Erasure{Hashes: []Hash{{1}, {2}}, Reason: "r"}
	f.Add(x.body())
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := parseErasure(b)
		if err == nil && !bytes.Equal(x.body(), b) {
			if y, err := parseErasure(x.body()); err != nil || len(y.Hashes) != len(x.Hashes) || y.Reason != x.Reason {
				t.Errorf("%x reads as %+v, which does not come back", b, x)
			}
		}
	})
}
