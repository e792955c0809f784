package memory

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"

	"tallystick/oplog"
	"tallystick/query/imported"
	"tallystick/query/internal/pack"
	"tallystick/query/internal/viewtest"
)

func samples() map[string][]byte {
	h := func(b byte) (h oplog.Hash) { h[0], h[31] = b, b; return h }
	fact := factBody{Fact: Fact{
		Namespace: "mac:claude:tally", Text: "the port is 7717", Confidence: Verified, Category: "decision", Author: "me", At: "2026-01-02T03:04:05Z",
	}, Roots: []oplog.Hash{h(1)}, Parents: []oplog.Hash{h(2), h(3)}}
	row := factBody{Fact: Fact{Namespace: Shared, Text: "x", Import: imported.Key{Source: "s", ID: "1", Part: "fact"}}}
	update := markBody{Action: actUpdate, Names: []oplog.Hash{h(2), h(3)}, New: h(4)}
	forget := markBody{Action: actForget, Names: []oplog.Hash{h(2)}, Roots: []oplog.Hash{h(1)}}
	link := linkBody{Namespace: "a", From: "auth", To: "tokens"}
	alias := aliasBody{Namespace: "a", Term: "DB", Equivalents: []string{"database"}}
	return map[string][]byte{
		"fact": fact.encode(), "row": row.encode(), "update": update.encode(), "forget": forget.encode(), "link": link.encode(), "alias": alias.encode(),
	}
}

// golden are the bytes of format 0. They change with the payload version only.
var golden = map[string]string{
	"link":  "93a161a461757468a6746f6b656e73",
	"alias": "93a161a2444291a86461746162617365",
	"forget": "940291c4200200000000000000000000000000000000000000000000000000000000000002" +
		"91c4200100000000000000000000000000000000000000000000000000000000000001c0",
	"row": "99aa5f5f7368617265645f5fa178a0a093a173a131a466616374a0a09090",
}

func TestL8_GoldenBytes(t *testing.T) {
	s := samples()
	for name, want := range golden {
		if got := hex.EncodeToString(s[name]); got != want {
			t.Errorf("%s is %s, was %s", name, got, want)
		}
	}
}

// TestL6_Quarantine: what a fold cannot read is set aside, whoever wrote it.
func TestL6_Quarantine(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	bad := map[string]struct {
		kind string
		body []byte
	}{
		"blank namespace":   {KindFact, (&factBody{Fact: Fact{Namespace: " ", Text: "x"}}).encode()},
		"blank text":        {KindFact, (&factBody{Fact: Fact{Namespace: "a", Text: "\n"}}).encode()},
		"NUL":               {KindFact, (&factBody{Fact: Fact{Namespace: "a", Text: "x\x00"}}).encode()},
		"not UTF-8":         {KindFact, (&factBody{Fact: Fact{Namespace: "a\xff", Text: "x"}}).encode()},
		"long text":         {KindFact, (&factBody{Fact: Fact{Namespace: "a", Text: long(MaxText + 1)}}).encode()},
		"long namespace":    {KindFact, (&factBody{Fact: Fact{Namespace: long(MaxNamespace + 1), Text: "x"}}).encode()},
		"orphan parents":    {KindFact, (&factBody{Fact: Fact{Namespace: "a", Text: "x"}, Parents: []oplog.Hash{{1}}}).encode()},
		"trailing bytes":    {KindFact, append(samples()["fact"], 0)},
		"truncated":         {KindFact, samples()["fact"][:20]},
		"no action":         {KindMark, (&markBody{Names: []oplog.Hash{{1}}}).encode()},
		"unknown action":    {KindMark, (&markBody{Action: 9, Names: []oplog.Hash{{1}}}).encode()},
		"update of nothing": {KindMark, (&markBody{Action: actUpdate, New: oplog.Hash{1}}).encode()},
		"update to nothing": {KindMark, (&markBody{Action: actUpdate, Names: []oplog.Hash{{1}}}).encode()},
		"pin of nothing":    {KindMark, (&markBody{Action: actPin}).encode()},
		"hashes unsorted": {KindMark, func() []byte {
			b := pack.Uint(pack.Array(nil, 4), uint64(actForget))
			b = pack.Array(b, 2)
			b = pack.Bin(pack.Bin(b, bytes.Repeat([]byte{2}, 32)), bytes.Repeat([]byte{1}, 32))
			b = pack.Bin(pack.Array(b, 1), bytes.Repeat([]byte{1}, 32))
			return pack.Nil(b)
		}()},
		"million names":  {KindMark, append(pack.Uint(pack.Array(nil, 4), uint64(actForget)), 0xdd, 0, 0xf, 0xff, 0xff)},
		"node not plain": {KindLink, (&linkBody{"a", "Auth", "b"}).encode()},
		"no equivalents": {KindAlias, (&aliasBody{Namespace: "a", Term: "x"}).encode()},
		"nil":            {KindFact, []byte{0xc0}},
	}
	for name, c := range bad {
		e := oplog.Entry{Header: oplog.Header{Kind: c.kind, Author: "a:b:c"}, Body: c.body}
		var q *oplog.QuarantineError
		if err := (View{}).Apply(viewtest.Rows{}, &e); !errors.As(err, &q) || q.Reason == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, e := range map[string]oplog.Entry{
		"newer version": {Header: oplog.Header{Kind: KindFact, Author: "a:b:c"}, Version: 1, Body: samples()["fact"]},
		"no author":     {Header: oplog.Header{Kind: KindFact}, Body: samples()["fact"]},
	} {
		var q *oplog.QuarantineError
		if err := (View{}).Apply(viewtest.Rows{}, &e); !errors.As(err, &q) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzPayloads: decoding never fails otherwise than by an error, and what it
// accepts encodes to the same bytes.
func FuzzPayloads(f *testing.F) {
	for _, b := range samples() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		check := func(name string, again []byte, err error) {
			if err == nil && !bytes.Equal(again, b) {
				t.Errorf("%s: %x encodes as %x", name, b, again)
			}
		}
		fact, err := decodeFact(b)
		check("fact", fact.encode(), err)
		mark, err := decodeMark(b)
		check("mark", mark.encode(), err)
		link, err := decodeLink(b)
		check("link", link.encode(), err)
		alias, err := decodeAlias(b)
		check("alias", alias.encode(), err)
		if i, err := decodeInfo(oplog.Hash{9}, b); err == nil && len(i.roots) == 0 {
			t.Error("a row without lineage")
		}
	})
}

func FuzzReflect(f *testing.F) {
	f.Add([]byte(`{"action":"add","agent_id":"a","text":"X","confidence":"verified"}`))
	f.Add([]byte(`{"action":"forget","agent":"a","agent_id":" b","target":"\ud83e\udd16"}`))
	f.Add([]byte(`{"action":"add","agent_id":null,"agent":"x"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseReflect(b)
		if err != nil {
			return
		}
		if strings.TrimSpace(r.Namespace) == "" || !slices.Contains(Actions(), string(r.Action)) {
			t.Errorf("%q gives %+v", b, r)
		}
		if _, err := r.Ops("mac:a:p"); err != nil {
			t.Errorf("%q is valid but makes no ops: %v", b, err)
		}
	})
}
