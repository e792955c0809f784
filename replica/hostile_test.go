package replica

import (
	"bytes"
	"errors"
	"testing"

	"tallystick/internal/hostile"
	"tallystick/oplog"
)

// unframed is what is in a small file of ours.
func unframed(t *testing.T, magic string, b []byte) []byte {
	t.Helper()
	body, err := decodeFile(magic, b)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// writerOf is the origin that a genesis, a label or a seal says it is from: the
// fields of these lengths in this order.
func writerOf(body []byte) (o oplog.OriginID) {
	var g genesisBody
	var l labelBody
	var s sealBody
	var key, inc []byte
	switch {
	case unmarshalArrays(body, &g) == nil:
		key, inc = g.Key, g.Incarnation
	case unmarshalArrays(body, &l) == nil:
		key, inc = l.Key, l.Incarnation
	case unmarshalArrays(body, &s) == nil:
		key, inc = s.Key, s.Incarnation
	}
	if len(key) == 32 && len(inc) == 16 {
		o = oplog.OriginOf(oplog.DeviceKey(key), oplog.Incarnation(inc))
	}
	return o
}

// TestA4_HostileMembership: everything that membership reads from strangers,
// peers and files.
func TestA4_HostileMembership(t *testing.T) {
	good := formats(t)
	entry := func(decode func(*oplog.Entry) error) func([]byte) error {
		return func(b []byte) error {
			e := oplog.Entry{Version: memberVersion, Body: b}
			e.Origin = writerOf(b)
			err := decode(&e)
			if q := new(oplog.QuarantineError); err != nil && !errors.As(err, &q) {
				t.Errorf("not set aside: %v", err)
			}
			return err
		}
	}
	mesh := MeshID{1}
	for name, c := range map[string]struct {
		good   []byte
		decode func([]byte) error
	}{
		"genesis": {good["genesis"], entry(func(e *oplog.Entry) error { _, _, _, err := genesisOf(e); return err })},
		"admit":   {good["admit"], entry(func(e *oplog.Entry) error { _, _, err := admitOf(e); return err })},
		"label":   {good["label"], entry(func(e *oplog.Entry) error { _, _, err := labelOf(e); return err })},
		"seal":    {good["seal"], entry(func(e *oplog.Entry) error { _, _, _, err := sealOf(e); return err })},
		"proof": {good["proof"], func(b []byte) error {
			p, err := decodeProof(b)
			if err == nil {
				_, _ = p.verify(mesh, oplog.DeviceKey{}, nobody)
			}
			return err
		}},
		"join request": {unframed(t, joinQMagic, good["join_request"]), func(b []byte) error {
			return readJoin(bytes.NewReader(encodeFile(joinQMagic, b)), joinQMagic, new(joinRequest))
		}},
		"join answer": {unframed(t, joinAMagic, good["join_answer"]), func(b []byte) error {
			return readJoin(bytes.NewReader(encodeFile(joinAMagic, b)), joinAMagic, new(joinAnswer))
		}},
		"peers":   {unframed(t, peersMagic, good["peers"]), func(b []byte) error { _, err := decodePeers(b); return err }},
		"journal": {unframed(t, journalMagic, good["journal"]), func(b []byte) error { _, err := parseJournal(b); return err }},
		"mesh":    {unframed(t, meshMagic, good["mesh"]), func(b []byte) error { _, err := parseMesh(b); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.decode(c.good); err != nil {
				t.Fatalf("the good one: %v", err)
			}
			hostile.Check(t, hostile.Msgpack(c.good), nil, c.decode)
		})
	}
}

// TestA4_HostileFiles: a frame around a file or a join message that is cut,
// has a bit turned, lies about its length or is of a version to come.
func TestA4_HostileFiles(t *testing.T) {
	good := formats(t)
	version := func(b []byte) hostile.Case {
		b = bytes.Clone(b)
		b[8]++
		return hostile.Case{Kind: hostile.Version, Name: "the next", In: b}
	}
	lengths := func(b []byte) (list []hostile.Case) {
		for _, n := range []string{"\x7f\xff\xff\xff", "\x80\x00\x00\x00", "\xff\xff\xff\xff", "\x00\x07\xff\xff"} {
			c := append(append(bytes.Clone(b[:9]), n...), b[13:]...)
			list = append(list, hostile.Case{Kind: hostile.Length, Name: n, In: c})
		}
		return list
	}
	for magic, name := range map[string]string{meshMagic: "mesh", deviceKeyMagic: "device_key", gossipKeyMagic: "gossip_key", peersMagic: "peers", journalMagic: "journal",
		joinQMagic: "join_request", joinAMagic: "join_answer", keyringMagic: ""} {
		b := good[name]
		if name == "" {
			b = encodeFile(magic, []byte("tallystick store 1"))
		}
		decode := func(b []byte) error { _, err := decodeFile(magic, b); return err }
		taken := map[hostile.Kind]string{}
		if magic == joinQMagic || magic == joinAMagic {
			decode = func(b []byte) error { return readJoin(bytes.NewReader(b), magic, new(joinAnswer)) }
			if magic == joinQMagic {
				decode = func(b []byte) error { return readJoin(bytes.NewReader(b), magic, new(joinRequest)) }
			}
			taken[hostile.Behind] = "a stream goes on"
		}
		cases := append(append(hostile.Cuts(b), hostile.Flips(b)...), append(lengths(b), version(b), hostile.Case{Kind: hostile.Behind, Name: "a byte", In: append(bytes.Clone(b), 0)})...)
		for i := range cases {
			if cases[i].Kind == hostile.Flip {
				cases[i].Kind = hostile.Length // its checksum must tell
			}
		}
		hostile.Check(t, cases, taken, decode)
	}
}
