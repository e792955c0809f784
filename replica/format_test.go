package replica

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"tallystick/oplog"
)

// steady gives the same bytes in every run.
type steady struct{ n byte }

func (s *steady) Read(b []byte) (int, error) {
	for i := range b {
		s.n++
		b[i] = s.n
	}
	return len(b), nil
}

// steadyDevice is a device whose every byte is the same in every run.
func steadyDevice(t testing.TB, seed byte) *device {
	t.Helper()
	priv := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
	log, err := oplog.Open(testContext(t), oplog.Config{InMemory: true, Signer: priv, Rand: &steady{seed},
		Wall: func() int64 { return 1_700_000_000_000 }, Projections: []oplog.Projection{NewMembership(MeshID{})}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	return &device{oplog.DeviceKey(priv.Public().(ed25519.PublicKey)), log}
}

// formats are examples of everything replica writes that outlives the process
// or leaves it, apart from the sync stream.
func formats(t testing.TB) map[string][]byte {
	t.Helper()
	must := func(b []byte, err error) []byte {
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	f, b := steadyDevice(t, 1), steadyDevice(t, 2)
	self := f.log.Self()
	genesis, err := genesisOp(self, "alpha")
	f.append(t, genesis, err)
	first, err := cutLink(f.log, f.log.Self(), 2)
	if err != nil {
		t.Fatal(err)
	}
	admit, err := admitOp(b.key, "beta")
	res := f.append(t, admit, err)
	second, err := cutLink(f.log, f.log.Self(), res.Ref.Seq())
	if err != nil {
		t.Fatal(err)
	}
	label, err := labelOp(b.log.Self(), "beta")
	if err != nil {
		t.Fatal(err)
	}
	rename, err := renameOp(b.log.Self(), "bee")
	if err != nil {
		t.Fatal(err)
	}
	sealer := b.log.Self()
	seal, err := sealOp(&sealer, &oplog.Origin{Incarnation: oplog.Incarnation{9}}, oplog.Tip{Seq: 300, Hash: oplog.Hash{8}})
	if err != nil {
		t.Fatal(err)
	}
	b.append(t, label, nil)
	cuts := cutsAt(b.log, b.key, oplog.OriginID{})
	revoke, err := revokeOp(b.key, cuts, "lost")
	if err != nil {
		t.Fatal(err)
	}
	leave, err := leaveOp(f.log.Self(), nil)
	if err != nil {
		t.Fatal(err)
	}
	mesh := MeshOf(self.ID)
	shown := must(proof{first}.append(second).encode())
	gkey, err := newGossipKey(&steady{3}, 1_700_000_000_000)
	if err != nil {
		t.Fatal(err)
	}
	token := inviteToken{Version: tokenVersion, Mesh: mesh[:], Key: f.key[:], Addrs: []string{"192.0.2.1:7717"},
		Secret: bytes.Repeat([]byte{7}, secretSize), Expires: 1_700_000_600_000}
	text, err := token.encode()
	if err != nil {
		t.Fatal(err)
	}
	peers := []peerRecord{{Key: f.key[:], Label: "alpha", Addrs: token.Addrs, Seen: 1_700_000_000_000}}
	id := inviteID(token.Secret)
	return map[string][]byte{
		"file":       encodeFile(meshMagic, []byte("body")),
		"device_key": encodeFile(deviceKeyMagic, bytes.Repeat([]byte{1}, ed25519.SeedSize)),
		"gossip_key": encodeFile(gossipKeyMagic, gkey[:]),
		"mesh":       encodeFile(meshMagic, must(marshalArrays(&meshState{Mesh: mesh[:], Label: "beta", Proof: []byte{0x90}}))),
		"journal":    encodeFile(journalMagic, must(marshalArrays(&bringJournal{To: mesh[:], From: bytes.Repeat([]byte{5}, 16), Label: "beta"}))),
		"peers":      encodeFile(peersMagic, must(marshalArrays(peers))),
		"genesis":    genesis.Body,
		"admit":      admit.Body,
		"label":      label.Body,
		"rename":     rename.Body,
		"seal":       seal.Body,
		"revoke":     revoke.Body,
		"leave":      leave.Body,
		"ended": encodeFile(endedMagic, must(marshalArrays(&endedWord{Standing: uint8(Revoked), Key: b.key[:], By: "alpha", At: 1_700_000_000_000,
			Reason: "lost", Teller: f.key[:]}))),
		"proof":        shown,
		"token":        []byte(text),
		"join_request": encodeFile(joinQMagic, must(marshalArrays(&joinRequest{Version: 1, Invite: id[:], Label: "beta", Wall: 1_700_000_000_000, Proof: make([]byte, 32)}))),
		"join_answer": encodeFile(joinAMagic, must(marshalArrays(&joinAnswer{Mesh: mesh[:], Label: "beta", Inviter: "alpha", Wall: 1_700_000_000_000,
			Proof: []byte{0x90}, Peers: peers, Gossip: gkey[:]}))),
		"join_refusal": encodeFile(joinAMagic, must(marshalArrays(&joinAnswer{Code: "invite_used", Message: "m", Field: "token", Hint: "h"}))),
	}
}

// TestL8_MembershipFormats: the bytes are those of testdata/mesh, which
// -update writes anew. A change here is a new version of the format.
func TestL8_MembershipFormats(t *testing.T) {
	for name, b := range formats(t) {
		path := filepath.Join("testdata", "mesh", name+".hex")
		if flag.Lookup("update").Value.String() == "true" {
			if err := os.WriteFile(path, []byte(wrap(hex.EncodeToString(b))), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		golden, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := hex.EncodeToString(b), strings.Join(strings.Fields(string(golden)), ""); got != want {
			t.Errorf("%s:\n%s\ngolden\n%s", name, got, want)
		}
	}
}

func wrap(s string) string {
	var b strings.Builder
	for len(s) > 96 {
		b.WriteString(s[:96] + "\n")
		s = s[96:]
	}
	return b.String() + s + "\n"
}

// TestL8_GoldenFilesAreRead: what is in testdata/mesh is what this program
// reads, so that a change of the reader shows as well.
func TestL8_GoldenFilesAreRead(t *testing.T) {
	golden := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join("testdata", "mesh", name+".hex"))
		if err != nil {
			t.Fatal(err)
		}
		b, err = hex.DecodeString(strings.Join(strings.Fields(string(b)), ""))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	tok, err := parseToken(string(golden("token")))
	if err != nil {
		t.Fatal(err)
	}
	p, err := decodeProof(golden("proof"))
	if err != nil {
		t.Fatal(err)
	}
	b := steadyDevice(t, 2)
	if label, err := p.verify(MeshID(tok.Mesh), b.key, nobody); err != nil || label != "beta" {
		t.Errorf("proof: label %q, %v", label, err)
	}
	var q joinRequest
	if err := readJoin(bytes.NewReader(golden("join_request")), joinQMagic, &q); err != nil || q.Label != "beta" {
		t.Errorf("request %+v, %v", q, err)
	}
	var a joinAnswer
	if err := readJoin(bytes.NewReader(golden("join_answer")), joinAMagic, &a); err != nil || a.Inviter != "alpha" || len(a.Peers) != 1 {
		t.Errorf("answer %+v, %v", a, err)
	}
	body, err := decodeFile(peersMagic, golden("peers"))
	if err != nil {
		t.Fatal(err)
	}
	if list, err := decodePeers(body); err != nil || len(list) != 1 || list[0].Addrs[0] != tok.Addrs[0] {
		t.Errorf("peers %+v, %v", list, err)
	}
}

// TestL8_MembershipPage: the examples of docs/format-mesh.md are golden bytes
// and its limits are the code's.
func TestL8_MembershipPage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "format-mesh.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	examples := regexp.MustCompile("(?s)<!-- golden (\\w+) -->\n```\n(.*?)```").FindAllStringSubmatch(page, -1)
	if len(examples) < 3 {
		t.Fatalf("%d worked examples", len(examples))
	}
	line := regexp.MustCompile(`^((?:[0-9a-f]{2} )*[0-9a-f]{2})(  |\n|$)`)
	for _, e := range examples {
		golden, err := os.ReadFile(filepath.Join("testdata", "mesh", e[1]+".hex"))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for l := range strings.Lines(e[2]) {
			m := line.FindStringSubmatch(l)
			if m == nil {
				t.Fatalf("example %s: line %q", e[1], l)
			}
			got += strings.ReplaceAll(m[1], " ", "")
		}
		if want := strings.Join(strings.Fields(string(golden)), ""); got != want {
			t.Errorf("example %s:\n%s\ngolden\n%s", e[1], got, want)
		}
	}
	for name, v := range map[string]int{"maxFile": maxFile, "maxMemberBody": maxMemberBody, "maxLinks": maxLinks, "maxLinkBytes": maxLinkBytes,
		"maxProofBytes": maxProofBytes, "maxToken": maxToken, "maxJoinBytes": maxJoinBytes, "maxRemember": maxRemember, "maxPeersTold": maxPeersTold,
		"maxCuts": maxCuts, "maxCutsBody": maxCutsBody, "maxRevokeWords": maxRevokeWords,
		"maxValues": maxValues} {
		if !strings.Contains(page, fmt.Sprintf("| `%s` | %d |", name, v)) {
			t.Errorf("the page does not give %s as %d", name, v)
		}
	}
}

func FuzzDecodeFile(f *testing.F) {
	for name, b := range formats(f) {
		if name != "token" {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, magic := range []string{meshMagic, deviceKeyMagic, gossipKeyMagic, peersMagic, journalMagic, endedMagic} {
			body, err := decodeFile(magic, b)
			if err != nil {
				continue
			}
			if !bytes.Equal(encodeFile(magic, body), b) {
				t.Error("reading and writing again gives other bytes")
			}
			_, _ = decodePeers(body) // must not panic
			_, _ = parseJournal(body)
			_, _ = parseMesh(body)
		}
		var q joinRequest
		_ = readJoin(bytes.NewReader(b), joinQMagic, &q)
		var a joinAnswer
		_ = readJoin(bytes.NewReader(b), joinAMagic, &a)
		if w, err := decodeEnded(b); err == nil {
			_ = w.valid(oplog.DeviceKey{})
		}
	})
}

func TestA4_ClaimedLengthsAreChecked(t *testing.T) {
	for what, b := range map[string]string{
		"ErrEmpty": "", "ErrBin": "\x94\xc6\x20\x34\xb4\xd9x", "ErrStr": "\xdb\x7f\xff\xff\xff", "ErrArray": "\xdd\xff\xff\xff\xff",
		"ErrNested": strings.Repeat("\x91", 20) + "\x01", "ErrMap": "\x81\x01\x01", "ErrTrailing": "\x01\x01", "ErrCut": "\x92\x01", "ErrLength": "\xc5\x01",
	} {
		most := maxValues
		if _, err := skipValue([]byte(b), 0, &most); what != "ErrTrailing" && err == nil {
			t.Errorf("%s is taken", what)
		}
		var v []any
		if err := unmarshalArrays([]byte(b), &v); err == nil {
			t.Errorf("%s is decoded", what)
		}
	}
	b, err := marshalArrays([]any{nil, true, -1, -40000, 1 << 40, "s", []byte("b"), []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	most := 10 // the array, the list in it and its one item among them
	if rest, err := skipValue(b, 0, &most); err != nil || len(rest) != 0 || most != 0 {
		t.Errorf("%x: rest %x, %v, %d values left", b, rest, err, most)
	}
	most = 9
	if _, err := skipValue(b, 0, &most); !errors.Is(err, errMany) {
		t.Errorf("ten values under a limit of nine: %v", err)
	}
}

// FuzzMembershipBodies: a body of a peer is read or quarantined, whatever it is.
func FuzzMembershipBodies(f *testing.F) {
	for _, name := range []string{"genesis", "admit", "label", "rename", "seal", "revoke", "leave"} {
		f.Add(formats(f)[name])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, kind := range []string{KindGenesis, KindAdmit, KindLabel, KindRename, KindSeal, KindRevoke, KindLeave} {
			e := oplog.Entry{Version: memberVersion, Body: b}
			e.Kind = kind
			var err error
			switch kind {
			case KindGenesis:
				_, _, _, err = genesisOf(&e)
			case KindAdmit:
				_, _, err = admitOf(&e)
			case KindLabel, KindRename:
				_, _, err = labelOf(&e)
			case KindSeal:
				_, _, _, err = sealOf(&e)
			case KindRevoke:
				_, _, _, err = revokeOf(&e)
			case KindLeave:
				_, _, err = leaveOf(&e)
			}
			var q *oplog.QuarantineError
			if err != nil && !errors.As(err, &q) {
				t.Errorf("%s: %v", kind, err)
			}
		}
	})
}
