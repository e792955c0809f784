package server

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"tallystick/oplog"
	"tallystick/query/logstream"
)

// What went wrong in earlier systems of this kind, each with the behaviour
// that is right. Faults that other tests hold already are not repeated here.

// nas puts a service in front of a peer's log.
func (e *env) nas(p *peer) *env {
	e.t.Helper()
	mesh := &testMesh{log: p.log, wall: e.wall, label: "nas"}
	svc, err := New(Deps{Log: p.log, Mesh: mesh})
	if err != nil {
		e.t.Fatal(err)
	}
	return &env{t: e.t, log: p.log, svc: svc, mesh: mesh, wall: e.wall}
}

// TestFault_CursorOnAnotherReplica: a cursor goes on where it stood, without
// skip or repeat, on a replica where things have arrived in another order.
func TestFault_CursorOnAnotherReplica(t *testing.T) {
	e := newEnv(t)
	p := newPeer(t, func() int64 { return testWall + 1 })
	nas := e.nas(p)
	for i := range 4 {
		e.append(claude, "*", fmt.Sprintf("mac-%d", i))
		nas.append(codex, "*", fmt.Sprintf("nas-%d", i))
	}
	first := e.do(claude, "event_wait", `{"to_agent":"@me","timeout_ms":0,"limit":500}`)
	if first["count"] != 4.0 {
		t.Fatalf("%v", first)
	}
	carry(t, e.log, p.log)
	carry(t, p.log, e.log)
	rest := nas.do(claude, "event_wait", fmt.Sprintf(`{"to_agent":"*","timeout_ms":0,"cursor":"%s"}`, first["next_cursor"]))
	if got := bodies(rest); strings.Contains(got, "mac-") || strings.Count(got, "nas-") != 4 {
		t.Errorf("behind the cursor on the other replica: %s", got)
	}
}

// TestFault_SlowClockIsShown: the machine whose clock is behind wins a race
// that it entered later. That is the rule; it is not hidden from who lost.
func TestFault_SlowClockIsShown(t *testing.T) {
	e := newEnv(t)
	id := e.request(`,"correlation_id":"task"`)
	slow := newPeer(t, func() int64 { return testWall + 1000 })
	carry(t, e.log, slow.log)
	nas := e.nas(slow)
	e.wall.Add(300_000) // five minutes, within the bound
	if m := e.ack(claude, id, "claimed"); m["outcome"] != "won" {
		t.Fatalf("%v", m)
	}
	if m := nas.ack(codex, id, "claimed"); m["outcome"] != "won" {
		t.Fatalf("%v", m)
	}
	carry(t, slow.log, e.log)
	m := e.do(claude, "merges_list", `{}`)["merges"].([]any)[0].(map[string]any)
	lost, kept := m["lost"].(map[string]any), m["kept"].(map[string]any)
	if lost["author"] != "mac:claude:tally" || kept["author"] != "nas:codex:tally" || lost["hlc"].(string) <= kept["hlc"].(string) {
		t.Errorf("%v", m)
	}
	why := fmt.Sprint(e.do(claude, "claim_why", `{"id":"task"}`)["lines"])
	if !strings.Contains(why, lost["hlc"].(string)) || !strings.Contains(why, kept["hlc"].(string)) {
		t.Errorf("why: %s", why)
	}
	if m := e.do(claude, "event_list", `{"to_agent":"@me","status":"superseded"}`); m["count"] != 1.0 {
		t.Errorf("the loser is not told: %v", m)
	}
}

// blind folds nothing and objects to nothing.
type blind struct{}

func (blind) Name() string                       { return "blind" }
func (blind) Version() uint32                    { return 1 }
func (blind) Kinds() []string                    { return []string{logstream.KindEvent} }
func (blind) Apply(oplog.Tx, *oplog.Entry) error { return nil }

// TestFault_OneBadPeerEntryBlocksNothing: what a peer writes against every
// rule is set aside and listed; what comes behind it is shown.
func TestFault_OneBadPeerEntryBlocksNothing(t *testing.T) {
	e := newEnv(t)
	// A log whose fold looks at nothing takes anything, as a peer of another
	// program might.
	wild, err := oplog.Open(t.Context(), oplog.Config{
		InMemory: true, Signer: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), Wall: e.wall.Load, Rand: rand.NewChaCha8([32]byte{3}), MinFree: -1,
		Projections: []oplog.Projection{blind{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { wild.Close() })
	good := func(body string) oplog.Op {
		op, err := logstream.NewOp("win-gemini", logstream.Event{Type: "note", Stream: "s", Room: "r", To: "*", Body: body})
		if err != nil {
			t.Fatal(err)
		}
		return op
	}
	bad := good("bad")
	bad.Body = []byte{0x93, 0x01, 0x02, 0x03}
	loud := logstream.Event{Type: "Shouting", Stream: "s", Room: "r", To: "*"}
	badType := oplog.Op{Kind: logstream.KindEvent, Author: "win-gemini", Body: loud.Append(nil)}
	mail := logstream.Event{Type: "mail.message", Stream: "mail", Room: "mail", To: "*", Metadata: json.RawMessage(`{"subject":"x"}`)}
	badMail := oplog.Op{Kind: logstream.KindEvent, Author: "win-gemini", Body: mail.Append(nil)}
	for _, op := range []oplog.Op{good("before"), bad, badType, badMail, good("behind")} {
		if _, err := wild.Append(t.Context(), op); err != nil {
			t.Fatal(err)
		}
	}
	carry(t, wild, e.log)
	if got := bodies(e.do(claude, "event_list", `{"to_agent":"*","order":"asc"}`)); got != "before behind" {
		t.Errorf("shown: %s", got)
	}
	aside, err := e.log.Aside(10)
	if err != nil || len(aside) != 3 {
		t.Errorf("set aside: %+v, %v", aside, err)
	}
}

// TestFault_LongCorrelation: ten thousand events of one correlation list page
// by page, and the task among them is claimed like any other.
func TestFault_LongCorrelation(t *testing.T) {
	e := newEnv(t)
	id := e.request(`,"correlation_id":"busy"`)
	const n = 10_000
	for done := 0; done < n; done += 500 {
		ops := make([]oplog.Op, 500)
		for i := range ops {
			op, err := logstream.NewOp("mac:codex:tally", logstream.Event{Type: "note", Stream: "s", Room: "r", Correlation: "busy", Body: "b"})
			if err != nil {
				t.Fatal(err)
			}
			ops[i] = op
		}
		if _, err := e.log.Append(t.Context(), ops...); err != nil {
			t.Fatal(err)
		}
	}
	if m := e.ack(claude, id, "claimed"); m["outcome"] != "won" {
		t.Errorf("%v", m)
	}
	m := e.do(claude, "event_list", `{"correlation_id":"busy","limit":500}`)
	if m["has_more"] != true || m["count"].(float64) < 50 {
		t.Errorf("%v events, more %v", m["count"], m["has_more"])
	}
	if m := e.do(claude, "claim_why", `{"id":"busy"}`); len(m["verdicts"].([]any)) != 1 {
		t.Errorf("%v", m["verdicts"])
	}
}

// TestFault_AcksOfAcks: an ack of an ack of a claim acts on the task that
// all of them belong to, and answers whoever wrote what it acks.
func TestFault_AcksOfAcks(t *testing.T) {
	e := newEnv(t)
	id := e.request(``)
	claimed := e.ack(claude, id, "claimed")["event"].(map[string]any)
	seen := e.do(codex, "event_ack", `{"event_id":"`+claimed["id"].(string)+`"}`)["event"].(map[string]any)
	if seen["to_agent"] != "mac:claude:tally" || seen["correlation_id"] != id || seen["metadata"].(map[string]any)["ack_of"] != claimed["id"] {
		t.Errorf("%v", seen)
	}
	if m := e.ack(codex, seen["id"].(string), "claimed"); m["outcome"] != "held" {
		t.Errorf("claimed by way of an ack: %v", m)
	}
	if m := e.ack(codex, seen["id"].(string), "applied"); m["outcome"] != "recorded" {
		t.Errorf("%v", m)
	}
	if m := e.ack(claude, id, "claimed"); m["outcome"] != "closed" {
		t.Errorf("after an ack of an ack has closed it: %v", m)
	}
}

// TestFault_OwnIdentityHidesNothing: an agent that says who it is still sees
// the task addressed to it.
func TestFault_OwnIdentityHidesNothing(t *testing.T) {
	e := newEnv(t)
	m := e.do(claude, "task_create", `{"project":"p","to_agent":"mac:codex:tally","goal":"g","branch":"b","base_commit":"1f3c2d0","done":"d"}`)
	for _, tool := range []string{"event_list", "event_wait"} {
		args := `{"to_agent":"@me","from_agent":"mac:codex:tally","type":"task.request"}`
		got := e.do(codex, tool, args)
		if got["count"] != 1.0 || got["events"].([]any)[0].(map[string]any)["id"] != m["event"].(map[string]any)["id"] || got["note"] == nil {
			t.Errorf("%s: %v", tool, got)
		}
	}
}

// TestFault_BytesAsGiven: line ends, tabs and a missing last newline stay.
func TestFault_BytesAsGiven(t *testing.T) {
	e := newEnv(t)
	e.speak(codex)
	for _, body := range []string{"a\r\nb\n", "a\nb", "\ta \u00e9 \U0001F600\r", " lead and trail \n\n"} {
		raw, _ := json.Marshal(body)
		ev := e.do(claude, "event_append", `{"type":"note","stream":"s","room":"r","body":`+string(raw)+`}`)["event"].(map[string]any)
		if ev["body"] != body {
			t.Errorf("event %q came back as %q", body, ev["body"])
		}
		id := e.send(claude, `{"to":"mac:codex:tally","subject":"s","body":`+string(raw)+`}`)
		if m := e.do(codex, "get_message", `{"messageId":"`+id+`"}`); m["body"] != body {
			t.Errorf("mail %q came back as %q", body, m["body"])
		}
	}
}
