package minted_test

import (
	"encoding/hex"
	"reflect"
	"strings"
	"testing"

	"tallystick/oplog"
	"tallystick/query/internal/foldtest"
	"tallystick/query/minted"
)

// golden is a mint with every field: [host, agent, project, flat, root, remote,
// chosen, former names].
const golden = "98a36d6163a6636c61756465a574616c6c79c2d928" + "61616161616161616161616161616161616161616161616161616161616161616161616161616161" +
	"b46578616d706c652e6f72672f6d652f74616c6c79c391ae77696e646f77732d636c61756465"

func goldenMint() minted.Mint {
	return minted.Mint{Host: "mac", Agent: "claude", Project: "tally", Repo: tally, Chosen: true, Former: []string{"windows-claude"}}
}

// L8: the bytes of a mint do not change.
func TestL8_GoldenMint(t *testing.T) {
	op, err := minted.NewOp(goldenMint())
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(op.Body); got != golden {
		t.Errorf("a mint is now\n%s\nwas\n%s", got, golden)
	}
	raw, err := hex.DecodeString(golden)
	if err != nil {
		t.Fatal(err)
	}
	e := foldtest.Entry(1, 1, foldtest.At(1), minted.Kind, "mac:claude:tally", raw)
	if m, err := minted.Decode(&e); err != nil || !reflect.DeepEqual(m, goldenMint()) {
		t.Errorf("%+v, %v", m, err)
	}
}

// FuzzDecode: whatever a peer sends is a mint that can be written again, or is
// set aside.
func FuzzDecode(f *testing.F) {
	raw, err := hex.DecodeString(golden)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw, "mac:claude:tally")
	f.Add(raw[:20], "mac-claude")
	f.Fuzz(func(t *testing.T, body []byte, author string) {
		e := oplog.Entry{Header: oplog.Header{Kind: minted.Kind, Author: author}, Body: body}
		m, err := minted.Decode(&e)
		if err != nil {
			return
		}
		op, err := minted.NewOp(m)
		if err != nil || op.Author != author || strings.Contains(author, "\x00") {
			t.Fatalf("%+v: %v", m, err)
		}
		e.Body = op.Body
		if again, err := minted.Decode(&e); err != nil || !reflect.DeepEqual(again, m) {
			t.Fatalf("%+v became %+v: %v", m, again, err)
		}
	})
}
