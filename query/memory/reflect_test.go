package memory

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tallystick/oplog"
	"tallystick/query/internal/args"
	"tallystick/query/internal/viewtest"
	"tallystick/query/refusal"
)

// reflect runs a call of memory_reflect against a host.
func (h *host) reflect(raw string) (Outcome, error) {
	h.t.Helper()
	r, err := ParseReflect([]byte(raw))
	if err != nil {
		return Outcome{}, err
	}
	ops, err := r.Ops(h.author)
	if err != nil {
		return Outcome{}, err
	}
	done, err := h.try(ops...)
	if err != nil {
		return Outcome{}, err
	}
	var o Outcome
	h.view(func(s oplog.Snapshot) error {
		o, err = OutcomeOf(s, done)
		return err
	})
	return o, nil
}

// TestReflectIdentity is the runtime identity rule, with cases 1 to 4: every
// identity field that is present must be good, agent_id wins, valid values are
// unchanged, and nothing is written when something is wrong.
func TestReflectIdentity(t *testing.T) {
	good := []struct{ fields, ns string }{
		{`"agent_id":"a2"`, "a2"},
		{`"agent":"a1"`, "a1"},
		{`"agent":"a1","agent_id":"a2"`, "a2"},
		{`"agent_id":"a2","agent":"a1"`, "a2"},
		{`"agent_id":"a","agent":"a"`, "a"},
		{`"agent_id":" project "`, " project "},
		{`"agent_id":"\tx\n"`, "\tx\n"},
		{`"agent_id":"__shared__"`, "__shared__"},
		{`"agent_id":"Über/代理:🤖"`, "Über/代理:🤖"},
		{`"agent_id":"\ud83e\udd16"`, "🤖"},
		{`"agent_id":"@me"`, "@me"},
		{`"agent_id":"all"`, "all"},
		{`"agent_id":"a\u200b"`, "a\u200b"},
	}
	for _, g := range good {
		r, err := ParseReflect([]byte(`{"action":"add","text":"X",` + g.fields + `}`))
		if err != nil || r.Namespace != g.ns {
			t.Errorf("%s: %+v, %v; want %q", g.fields, r, err, g.ns)
		}
	}
	h := newHost(t, "mac")
	h.add("a", "X")
	before, entries := h.digest(), len(h.Entries())
	refused := func(fields, field string) {
		t.Helper()
		_, err := h.reflect(`{"action":"add","text":"X"` + fields + `}`)
		var e *refusal.Error
		if !errors.As(err, &e) || e.Field != field || e.Hint == "" || e.Code == refusal.NotFound {
			t.Errorf("%s: error %#v, want a refusal that names %s", fields, err, field)
		}
	}
	refused(``, "agent_id")
	for _, bad := range []string{`null`, `7`, `true`, `false`, `[]`, `["a"]`, `{}`, `""`, `" "`, `" \t\n"`, `"\u00a0\u2003"`, `"a\u0000"`, `"\ud800"`, `"\udc00x"`, `"` + strings.Repeat("a", MaxNamespace+1) + `"`} {
		refused(`,"agent_id":`+bad, "agent_id")
		refused(`,"agent":`+bad, "agent")
		refused(`,"agent_id":`+bad+`,"agent":"valid"`, "agent_id")
		refused(`,"agent_id":"valid","agent":`+bad, "agent")
	}
	refused(`,"agent_id":"a","agent_id":"b"`, "agent_id") // which one counts is no matter of luck
	if h.digest() != before || len(h.Entries()) != entries {
		t.Error("a refused call changed something")
	}
}

func TestReflectArguments(t *testing.T) {
	h := newHost(t, "mac")
	h.add("a", "X")
	before, entries := h.digest(), len(h.Entries())
	for _, c := range []struct {
		raw, field string
		allowed    bool
		code       refusal.Code
	}{
		// case 5
		{`{"action":"ADD","agent_id":"a","text":"X"}`, "action", true, refusal.InvalidArgument},
		{`{"action":" add","agent_id":"a","text":"X"}`, "action", true, refusal.InvalidArgument},
		{`{"action":null,"agent_id":"a","text":"X"}`, "action", true, refusal.InvalidArgument},
		{`{"action":1,"agent_id":"a","text":"X"}`, "action", true, refusal.InvalidArgument},
		{`{"agent_id":"a","text":"X"}`, "action", true, refusal.InvalidArgument},
		{`{"action":"delete","agent_id":"a","text":"X"}`, "action", true, refusal.InvalidArgument},
		// extra keys and wrong case of keys
		{`{"action":"add","agent_id":"a","text":"X","from":"b"}`, "from", true, args.UnknownField},
		{`{"action":"add","agent_id":"a","text":"X","Agent_id":"b"}`, "Agent_id", true, args.UnknownField},
		// texts
		{`{"action":"add","agent_id":"a"}`, "text", false, refusal.InvalidArgument},
		{`{"action":"add","agent_id":"a","text":""}`, "text", false, refusal.InvalidArgument},
		{`{"action":"add","agent_id":"a","text":" \n"}`, "text", false, refusal.InvalidArgument},
		{`{"action":"add","agent_id":"a","text":null}`, "text", false, refusal.InvalidArgument},
		{`{"action":"add","agent_id":"a","text":["X"]}`, "text", false, refusal.InvalidArgument},
		{`{"action":"add","agent_id":"a","text":"X","target":3}`, "target", false, refusal.InvalidArgument},
		{`{"action":"add","agent_id":"a","text":"` + strings.Repeat("x", MaxText+1) + `"}`, "text", false, refusal.TooLarge},
		{`{"action":"add","agent_id":"a","text":"` + strings.Repeat("x", 10<<20) + `"}`, "text", false, refusal.TooLarge},
		{`{"action":"update","agent_id":"a","text":"Y"}`, "target", false, refusal.InvalidArgument},
		{`{"action":"update","agent_id":"a","target":"X"}`, "text", false, refusal.InvalidArgument},
		{`{"action":"update","agent_id":"a","target":"X","text":"  "}`, "text", false, refusal.InvalidArgument},
		{`{"action":"forget","agent_id":"a"}`, "target", false, refusal.InvalidArgument},
		{`{"action":"pin","agent_id":"a","text":"","target":""}`, "target", false, refusal.InvalidArgument},
		{`{"action":"link","agent_id":"a","text":"n"}`, "target", false, refusal.InvalidArgument},
		{`{"action":"link","agent_id":"a","target":"n"}`, "text", false, refusal.InvalidArgument},
		// no such fact: byte-exact, no trimming, and not in another namespace
		{`{"action":"forget","agent_id":"a","text":"x"}`, "target", false, refusal.NotFound},
		{`{"action":"forget","agent_id":"a","text":"X "}`, "target", false, refusal.NotFound},
		{`{"action":"forget","agent_id":"A","text":"X"}`, "target", false, refusal.NotFound},
		{`{"action":"update","agent_id":"a","text":"Z","target":"Y"}`, "target", false, refusal.NotFound},
		{`{"action":"pin","agent_id":"a","text":"Y"}`, "target", false, refusal.NotFound},
		{`{"action":"unpin","agent_id":"a","text":"Y"}`, "target", false, refusal.NotFound},
		// confidence (A3)
		{`{"action":"add","agent_id":"a","text":"X","confidence":null}`, "confidence", true, refusal.InvalidArgument},
		{`{"action":"add","agent_id":"a","text":"X","confidence":""}`, "confidence", true, refusal.InvalidArgument},
		{`{"action":"add","agent_id":"a","text":"X","confidence":"Verified"}`, "confidence", true, refusal.InvalidArgument},
		{`{"action":"add","agent_id":"a","text":"X","confidence":" verified"}`, "confidence", true, refusal.InvalidArgument},
		{`{"action":"add","agent_id":"a","text":"X","confidence":2}`, "confidence", true, refusal.InvalidArgument},
		{`{"action":"update","agent_id":"a","text":"Y","target":"X","confidence":"sure"}`, "confidence", true, refusal.InvalidArgument},
		{`{"action":"forget","agent_id":"a","text":"X","confidence":"verified"}`, "confidence", false, refusal.InvalidArgument},
		{`{"action":"pin","agent_id":"a","text":"X","confidence":"verified"}`, "confidence", false, refusal.InvalidArgument},
		{`{"action":"unpin","agent_id":"a","text":"X","confidence":"verified"}`, "confidence", false, refusal.InvalidArgument},
		{`{"action":"link","agent_id":"a","text":"x","target":"y","confidence":"verified"}`, "confidence", false, refusal.InvalidArgument},
		// no object at all
		{`null`, "", false, refusal.InvalidArgument},
		{`[]`, "", false, refusal.InvalidArgument},
		{`"add"`, "", false, refusal.InvalidArgument},
		{`{"action":"add","agent_id":"a","text":"X"} {}`, "", false, refusal.InvalidArgument},
		{`{"action":"add",`, "", false, refusal.InvalidArgument},
		{"{\"action\":\"add\",\"agent_id\":\"a\",\"text\":\"\xff\"}", "", false, refusal.InvalidArgument},
	} {
		_, err := h.reflect(c.raw)
		var e *refusal.Error
		short := c.raw[:min(len(c.raw), 90)]
		if !errors.As(err, &e) || e.Field != c.field || e.Code != c.code || e.Hint == "" || (len(e.Allowed) > 0) != c.allowed {
			t.Errorf("%s: %#v, want field %q, code %s, allowed %v", short, err, c.field, c.code, c.allowed)
		}
	}
	if h.digest() != before || len(h.Entries()) != entries {
		t.Error("a refused call changed something")
	}
}

// TestReflectEffects is the table of actions (A2), cases 1, 6 and 7.
func TestReflectEffects(t *testing.T) {
	h := newHost(t, "mac")
	do := func(raw string) Outcome {
		t.Helper()
		o, err := h.reflect(raw)
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		return o
	}
	// 1: agent_id wins, the alias namespace stays empty
	if o := do(`{"action":"add","agent":"a1","agent_id":"a2","text":"X"}`); o.FactID == "" || h.fact(o.FactID).Namespace != "a2" {
		t.Errorf("outcome %+v", o)
	}
	if len(h.live("a1")) != 0 || !slices.Equal(h.live("a2"), []string{"X"}) {
		t.Errorf("a1 %q, a2 %q", h.live("a1"), h.live("a2"))
	}
	// 6: target wins
	h.add("c6", "A")
	h.add("c6", "B")
	do(`{"action":"forget","agent_id":"c6","text":"A","target":"B"}`)
	if got := h.live("c6"); !slices.Equal(got, []string{"A"}) {
		t.Errorf("case 6: %q", got)
	}
	// 7: all three copies leave at once, later writes are found
	for range 3 {
		h.add("c7", "X")
	}
	if o := do(`{"action":"forget","agent_id":"c7","text":"X"}`); len(o.Retired) != 3 || len(h.live("c7")) != 0 {
		t.Errorf("case 7: retired %q, live %q", o.Retired, h.live("c7"))
	}
	if _, err := h.reflect(`{"action":"forget","agent_id":"c7","text":"X"}`); refusal.CodeOf(err) != refusal.NotFound {
		t.Errorf("case 7: a second forget: %v", err)
	}
	h.add("c7", "X")
	if got := h.live("c7"); !slices.Equal(got, []string{"X"}) {
		t.Errorf("case 7: after adding again: %q", got)
	}
	// update retires every live copy with the replacement's id
	h.add("up", "old")
	h.add("up", "old")
	h.add("up", "old ")
	o := do(`{"action":"update","agent_id":"up","target":"old","text":"new"}`)
	if got := h.live("up"); len(o.Retired) != 2 || !slices.Equal(got, []string{"new", "old "}) {
		t.Errorf("update: retired %q, live %q", o.Retired, got)
	}
	for _, id := range o.Retired {
		if r := h.fact(id).Retired; r == nil || r.How != Updated || r.SupersededBy != o.FactID {
			t.Errorf("update: %s says %+v, want superseded by %s", id, r, o.FactID)
		}
	}
	// an update to the same text is one live copy
	do(`{"action":"update","agent_id":"up","target":"new","text":"new","confidence":"verified"}`)
	if got := h.live("up"); !slices.Equal(got, []string{"new", "old "}) {
		t.Errorf("update to the same text: %q", got)
	}
	// an update onto a text that exists makes one more copy of it
	do(`{"action":"update","agent_id":"up","target":"old ","text":"new"}`)
	if got := h.live("up"); !slices.Equal(got, []string{"new", "new"}) {
		t.Errorf("update onto an existing text: %q", got)
	}
}

// TestC8_UpdateLeavesNoGap: an update that fails leaves the old fact live, and
// no prefix of what it writes leaves none.
func TestC8_UpdateLeavesNoGap(t *testing.T) {
	h := newHost(t, "mac")
	h.add("own", "old")
	ops, err := NewUpdate(h.author, Fact{Namespace: "own", Text: "new"}, "old")
	if err != nil {
		t.Fatal(err)
	}
	bad := oplog.Op{Kind: KindMark, Author: h.author, Body: []byte{0xc0}}
	if _, err := h.try(append(ops, bad)...); err == nil {
		t.Fatal("a malformed third op was written")
	}
	if got := h.live("own"); !slices.Equal(got, []string{"old"}) {
		t.Fatalf("after a failed update: %q", got)
	}
	h.must(ops, nil)
	view := viewtest.Rows{}
	for _, e := range h.Entries() {
		if err := (View{}).Apply(view, &e); err != nil {
			t.Fatal(err)
		}
		if c, _ := CountOf(view, "own"); c.Live == 0 {
			t.Errorf("after a %s of %s nothing lives", e.Kind, e.Author)
		}
	}
}

// TestConfidencePolicy is table A3 as far as writing and filtering go.
func TestConfidencePolicy(t *testing.T) {
	h := newHost(t, "mac")
	label := func(id string) string { return h.fact(id).Confidence }
	add := func(text, conf string) string {
		return h.must(one(NewAdd(h.author, Fact{Namespace: "own", Text: text, Confidence: conf}))).FactID
	}
	if id := add("plain", ""); label(id) != "" || Level(label(id)) != Level(Inferred) {
		t.Errorf("absent is stored as %q", label(id))
	}
	add("twice", Unverified)
	add("twice", Verified)
	if id := h.update("own", "twice", "once"); label(id) != Unverified {
		t.Errorf("an update without confidence has %q: it promotes", label(id))
	}
	o := h.must(NewUpdate(h.author, Fact{Namespace: "own", Text: "sure", Confidence: Verified}, "once"))
	if label(o.FactID) != Verified {
		t.Errorf("an update with confidence has %q", label(o.FactID))
	}
	if id := h.update("own", "sure", "still sure"); label(id) != Verified {
		t.Errorf("an inherited label is %q", label(id))
	}
	for _, c := range []struct {
		stored, wanted string
		passes         bool
	}{
		{Verified, Verified, true}, {"", Verified, false}, {"", Inferred, true}, {Inferred, Inferred, true}, {Unverified, Inferred, false},
		{"certain", Inferred, false}, {"certain", Unverified, true}, {"certain", "", true}, {Unverified, Unverified, true}, {"Verified", Inferred, false},
	} {
		if Passes(c.stored, c.wanted) != c.passes {
			t.Errorf("%q passes %q: %v", c.stored, c.wanted, !c.passes)
		}
	}
	for _, w := range []float64{0, 0.25, 0.5} {
		if err := CheckWeight("confidence_weight", w); err != nil {
			t.Error(err)
		}
	}
	nan := json.Number("0")
	zero, _ := nan.Float64()
	for _, w := range []float64{-0.1, 0.51, zero / zero, 1 / zero} {
		if err := CheckWeight("confidence_weight", w); refusal.CodeOf(err) != refusal.InvalidArgument {
			t.Errorf("weight %v: %v", w, err)
		}
	}
	if got := fmt.Sprint(Weigh(1, 0.5, Verified), Weigh(1, 0.5, ""), Weigh(1, 0.5, "odd"), Weigh(1, 0, Verified)); got != "1.5 1 0.5 1" {
		t.Errorf("weighed: %s", got)
	}
}

// TestShared is table A4: __shared__ is a namespace like any other.
func TestShared(t *testing.T) {
	h := newHost(t, "mac")
	h.add(Shared, "for all")
	h.add("a", "for a")
	if got := h.live("a"); !slices.Equal(got, []string{"for a"}) {
		t.Errorf("a sees %q", got)
	}
	h.view(func(s oplog.Snapshot) error {
		page, err := List(s, Filter{Namespaces: []string{"a", Shared}})
		if page.Count != 2 {
			t.Errorf("both together give %+v", page)
		}
		return err
	})
	for _, ns := range []string{"__SHARED__", "__shared__ ", "A"} {
		if got := h.live(ns); len(got) != 0 {
			t.Errorf("%q sees %q", ns, got)
		}
	}
}

func TestParseAddAndAlias(t *testing.T) {
	a, err := ParseAdd([]byte(`{"text":" X ","confidence":"inferred"}`), "mac:a:p")
	if err != nil || a.Namespace != "mac:a:p" || a.Given || a.Text != " X " || a.Confidence != Inferred {
		t.Errorf("%+v %v", a, err)
	}
	if a, err = ParseAdd([]byte(`{"agent_id":"z","text":"X"}`), ""); err != nil || a.Namespace != "z" || !a.Given {
		t.Errorf("%+v %v", a, err)
	}
	for raw, field := range map[string]string{
		`{"text":"X"}`:                                "agent_id",
		`{"agent_id":"a"}`:                            "text",
		`{"agent_id":"","text":"X"}`:                  "agent_id",
		`{"agent_id":"a","text":"X","confidence":""}`: "confidence",
		`{"agent_id":"a","text":"X","top_k":3}`:       "top_k",
	} {
		var e *refusal.Error
		if _, err := ParseAdd([]byte(raw), ""); !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s: %v", raw, err)
		}
	}
	if al, err := ParseAlias([]byte(`{"agent_id":"a","term":"db","equivalents":["database"]}`), ""); err != nil || al.Term != "db" || len(al.Equivalents) != 1 {
		t.Errorf("%+v %v", al, err)
	}
	for raw, field := range map[string]string{
		`{"agent_id":"a","term":"db","equivalents":[]}`:                                            "equivalents",
		`{"agent_id":"a","term":"db","equivalents":[" "]}`:                                         "equivalents",
		`{"agent_id":"a","term":"db","equivalents":"x"}`:                                           "equivalents",
		`{"agent_id":"a","term":"db","equivalents":[1]}`:                                           "equivalents",
		`{"agent_id":"a","term":"db"}`:                                                             "equivalents",
		`{"agent_id":"a","term":"db","equivalents":["` + strings.Repeat(`a","`, MaxTerms) + `b"]}`: "equivalents",
		`{"agent_id":"a","term":" ","equivalents":["x"]}`:                                          "term",
		`{"term":"db","equivalents":["x"]}`:                                                        "agent_id",
	} {
		var e *refusal.Error
		if _, err := ParseAlias([]byte(raw), ""); !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

func TestI8_UnboundWritesNothing(t *testing.T) {
	for name, err := range map[string]error{
		"add":    second(NewAdd("", Fact{Namespace: "a", Text: "x"})),
		"update": second(NewUpdate("", Fact{Namespace: "a", Text: "x"}, "y")),
		"forget": second(NewForget("", "a", "x")),
		"pin":    second(NewPin("", "a", "x")),
		"unpin":  second(NewUnpin("", "a", "x")),
		"link":   second(NewLink("", "a", "x", "y")),
		"alias":  second(NewAlias("", "a", "x", []string{"y"})),
	} {
		if refusal.CodeOf(err) != refusal.IdentityUnbound {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }
