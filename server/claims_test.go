package server

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"tallystick/oplog"
	"tallystick/query"
	"tallystick/query/logstream"
)

func (e *env) request(args string) string {
	e.t.Helper()
	return e.do(codex, "event_append", `{"type":"task.request","stream":"s","room":"r","status":"open"`+args+`}`)["event"].(map[string]any)["id"].(string)
}

func (e *env) ack(s Session, id, status string) map[string]any {
	e.t.Helper()
	return e.do(s, "event_ack", `{"event_id":"`+id+`","status":"`+status+`"}`)
}

// TestK1_Outcomes: the outcome of every kind of claim, and that those which
// take nothing append nothing.
func TestK1_Outcomes(t *testing.T) {
	e := newEnv(t)
	gemini := Session{Agent: "gemini", Project: "tally", Bound: true}
	id := e.request(``)
	won := e.ack(claude, id, "claimed")
	if won["outcome"] != "won" || won["event"] == nil {
		t.Fatalf("%v", won)
	}
	holder := func(m map[string]any) any {
		c, _ := m["claim"].(map[string]any)
		return c["holder"]
	}
	// Like every write, it says where it has got to so far.
	if won["durable_on"] == nil || won["not_yet"] == nil {
		t.Errorf("a claim that was stored does not say where it is: %v", won)
	}
	before := e.entries()
	for what, c := range map[string]struct {
		s       Session
		outcome string
	}{"K2 the same identity": {claude, "joined"}, "another identity": {gemini, "held"}} {
		m := e.ack(c.s, id, "claimed")
		if m["outcome"] != c.outcome || m["event"] != nil || m["durable_on"] != nil || holder(m) != "mac:claude:tally" {
			t.Errorf("%s: %v", what, m)
		}
	}
	if e.entries() != before {
		t.Error("a claim that takes nothing appended something")
	}
	if m := e.ack(claude, id, "released"); m["outcome"] != "recorded" || m["claim"] != nil {
		t.Errorf("released: %v", m)
	}
	if m := e.ack(gemini, id, "claimed"); m["outcome"] != "won" {
		t.Errorf("after the release: %v", m)
	}
	if m := e.ack(codex, id, "applied"); m["outcome"] != "recorded" {
		t.Errorf("applied by anyone: %v", m)
	}
	if m := e.ack(claude, id, "claimed"); m["outcome"] != "closed" || m["note"] == nil {
		t.Errorf("closed: %v", m)
	}
	gone := e.request(`,"correlation_id":"gone","expires_at":"` + e.after(time.Minute) + `"`)
	e.wall.Add(time.Minute.Milliseconds())
	if m := e.ack(claude, gone, "claimed"); m["outcome"] != "expired" || m["event"] != nil {
		t.Errorf("expired: %v", m)
	}
	// A lease ends by itself; then the next may have it (K3).
	leased := e.request(`,"correlation_id":"leased"`)
	e.do(claude, "event_ack", `{"event_id":"`+leased+`","status":"claimed","lease_ms":900000}`)
	e.wall.Add(16 * 60_000)
	if m := e.do(claude, "claim_list", `{"correlation_id":"leased"}`); m["count"] != 0.0 {
		t.Errorf("after its lease: %v", m)
	}
	if m := e.ack(gemini, leased, "claimed"); m["outcome"] != "won" {
		t.Errorf("after the lease: %v", m)
	}
	if bad := e.refused(claude, "event_ack", `{"event_id":"`+leased+`","status":"released"}`); bad.Code != CodeConflict {
		t.Errorf("release without a claim: %s", bad.JSON())
	}
	if bad := e.refused(claude, "event_ack", `{"event_id":"`+leased+`","status":"claimed","lease_ms":5}`); bad.Field != "lease_ms" {
		t.Errorf("short lease: %s", bad.JSON())
	}
}

// after is what the tests' clock shows d later.
func (e *env) after(d time.Duration) string {
	return logstream.FormatTime(time.UnixMilli(e.wall.Load()).Add(d))
}

// TestK3_ExpiredAtBirth: what would have expired when it is stamped is refused
// and nothing stored; a repeat after the end still has its first answer.
func TestK3_ExpiredAtBirth(t *testing.T) {
	e := newEnv(t)
	const event = `"type":"task.request","stream":"s","room":"r","status":"open"`
	const task = `"project":"tally","to_agent":"*","goal":"g","branch":"b","base_commit":"0123456","done":"d"`
	before := e.entries()
	for _, past := range []string{"2001-01-01T00:00:00Z", e.after(-time.Millisecond), e.after(0)} {
		for tool, args := range map[string]string{"event_append": event, "task_create": task} {
			if bad := e.refused(claude, tool, `{`+args+`,"expires_at":"`+past+`"}`); bad.Code != CodeInvalidArgument || bad.Field != "expires_at" || bad.Hint == "" {
				t.Errorf("%s, %s: %s", tool, past, bad.JSON())
			}
		}
	}
	if e.entries() != before {
		t.Error("what was refused was stored")
	}
	soon := e.after(time.Minute)
	ids := map[string]any{}
	for range 2 {
		for tool, args := range map[string]string{"event_append": event, "task_create": task} {
			m := e.do(claude, tool, `{`+args+`,"expires_at":"`+soon+`","idempotency_key":"`+tool+`"}`)
			id := m["event"].(map[string]any)["id"]
			if first, again := ids[tool]; m["replayed"] != again || again && id != first {
				t.Errorf("%s: %v, first %v", tool, m, first)
			}
			ids[tool] = id
		}
		e.wall.Add(time.Hour.Milliseconds())
	}
}

// TestK4_Grade: a claim is provisional until every member has promised to
// write nothing earlier; the fresh floor is asked for.
func TestK4_Grade(t *testing.T) {
	e := newEnv(t)
	var asked []oplog.Ref
	e.svc.d.AskFloor = func(ref oplog.Ref) { asked = append(asked, ref) }
	id := e.request(``)
	m := e.ack(claude, id, "claimed")["claim"].(map[string]any)
	if m["grade"] != "provisional" || m["fence_final"] != false || !strings.Contains(fmt.Sprint(m["unheard"]), "nas") || len(asked) != 1 {
		t.Errorf("%v, asked %v", m, asked)
	}
	e.mesh.set(func() { e.mesh.other = asked[0].Time().Next() })
	m = e.do(codex, "claim_list", `{"identity":"mac:claude:tally"}`)["claims"].([]any)[0].(map[string]any)
	if m["grade"] != "settled" || m["fence_final"] != true || len(m["unheard"].([]any)) != 0 {
		t.Errorf("after the floor: %v", m)
	}
	e.mesh.set(func() { e.mesh.gone = true })
	if m := e.ack(claude, e.request(``), "claimed")["claim"].(map[string]any); m["grade"] != "settled" {
		t.Errorf("alone: %v", m)
	}
}

// TestK1_Replay: a repeat of a claim tells the truth of now.
func TestK1_Replay(t *testing.T) {
	e := newEnv(t)
	id := e.request(``)
	args := `{"event_id":"` + id + `","status":"claimed","idempotency_key":"k"}`
	e.do(claude, "event_ack", args)
	if m := e.do(claude, "event_ack", args); m["outcome"] != "won" || m["replayed"] != true || m["event"] == nil {
		t.Errorf("at once: %v", m)
	}
	e.ack(codex, id, "applied")
	if m := e.do(claude, "event_ack", args); m["outcome"] != "closed" || m["replayed"] != true {
		t.Errorf("after the close: %v", m)
	}
}

// TestK1_Concurrent: of many identities that claim at once exactly one wins.
func TestK1_Concurrent(t *testing.T) {
	e := newEnv(t)
	id := e.request(``)
	var mu sync.Mutex
	outcomes := map[string]int{}
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			s := Session{Agent: fmt.Sprintf("a%d", i), Project: "p", Bound: true}
			out, bad := e.svc.Call(t.Context(), s, "event_ack", json.RawMessage(`{"event_id":"`+id+`","status":"claimed"}`), "")
			if bad != nil {
				t.Error(bad)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			outcomes[parse(t, out)["outcome"].(string)]++
		})
	}
	wg.Wait()
	if outcomes["won"] != 1 || outcomes["held"] != 15 {
		t.Errorf("%v", outcomes)
	}
}

// peer is another replica's log that exchanges ranges with an env.
type peer struct{ log *oplog.Log }

func newPeer(t *testing.T, wall func() int64) *peer {
	t.Helper()
	projections, _ := query.Default()
	seed := make([]byte, ed25519.SeedSize)
	seed[0] = 9
	log, err := oplog.Open(t.Context(), oplog.Config{InMemory: true, Signer: ed25519.NewKeyFromSeed(seed), Wall: wall, Projections: projections, Rand: rand.NewChaCha8([32]byte{2}), MinFree: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	return &peer{log}
}

func carry(t *testing.T, from, to *oplog.Log) {
	t.Helper()
	have := to.Frontier()
	for _, o := range from.Origins() {
		for after := have.Seq(o.ID); ; {
			r, err := from.ReadRange(o.ID, after, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if r.Count == 0 {
				break
			}
			if _, err := to.Ingest(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			after += uint64(r.Count)
		}
	}
}

// TestK5_LoserHears: who loses to an earlier claim that arrives late is told
// in the inbox at once, with both sides and the grade; a wait wakes by it.
func TestK5_LoserHears(t *testing.T) {
	e := newEnv(t)
	id := e.request(``)
	p := newPeer(t, func() int64 { return testWall + 1000 })
	carry(t, e.log, p.log)
	other, err := New(Deps{Log: p.log, Mesh: &testMesh{log: p.log, wall: e.wall, label: "nas"}})
	if err != nil {
		t.Fatal(err)
	}
	nas := &env{t: t, log: p.log, svc: other}
	if m := nas.ack(codex, id, "claimed"); m["outcome"] != "won" {
		t.Fatalf("%v", m)
	}
	e.wall.Add(5000) // stamped after the other's claim
	if m := e.ack(claude, id, "claimed"); m["outcome"] != "won" {
		t.Fatalf("%v", m)
	}
	cursor := e.do(claude, "event_wait", `{"to_agent":"@me","timeout_ms":0}`)["next_cursor"].(string)
	done := make(chan map[string]any)
	go func() {
		out, bad := e.svc.Call(t.Context(), claude, "event_wait", json.RawMessage(`{"to_agent":"@me","cursor":"`+cursor+`"}`), "")
		if bad != nil {
			t.Error(bad)
		}
		done <- parse(t, out)
	}()
	e.untilWaiting(1)
	carry(t, p.log, e.log)
	m := <-done
	check := func(what string, m map[string]any) {
		t.Helper()
		events := m["events"].([]any)
		if len(events) == 0 {
			t.Fatalf("%s: no notice: %v", what, m)
		}
		n := events[0].(map[string]any)
		meta := n["metadata"].(map[string]any)
		if n["computed"] != true || n["grade"] != "provisional" || n["status"] != "superseded" || n["to_agent"] != "mac:claude:tally" ||
			meta["winner"] == nil || meta["winner_hlc"] == nil || meta["claim"] == nil || meta["automatic"] != true {
			t.Errorf("%s: %v", what, n)
		}
	}
	check("wait", m)
	check("inbox", e.do(claude, "event_list", `{"to_agent":"@me"}`))
	if m := e.do(claude, "event_wait", `{"to_agent":"@me","timeout_ms":1,"cursor":"`+m["next_cursor"].(string)+`"}`); m["timed_out"] != true {
		t.Errorf("told again behind the cursor: %v", m)
	}
	if m := e.do(codex, "event_list", `{"to_agent":"@me"}`); m["count"] != 2.0 { // the two claims of the request are addressed to its writer
		t.Errorf("another's inbox: %v", m)
	}
	if m := e.ack(claude, id, "claimed"); m["outcome"] != "superseded" && m["outcome"] != "held" {
		t.Errorf("claiming again: %v", m)
	}
	if m := e.do(claude, "claim_list", `{}`); m["count"] != 1.0 || m["claims"].([]any)[0].(map[string]any)["origin_id"] == "mac" {
		t.Errorf("%v", m)
	}
}

// TestClaimPages: a long list of claims is paged like any other.
func TestClaimPages(t *testing.T) {
	e := newEnv(t)
	const n = 150
	for i := range n {
		e.wall.Add(1)
		e.ack(claude, e.request(fmt.Sprintf(`,"correlation_id":"task-%03d-%s"`, i, strings.Repeat("x", 100))), "claimed")
	}
	seen, cursor := map[string]bool{}, ""
	for range 20 {
		args := `{}`
		if cursor != "" {
			args = `{"cursor":"` + cursor + `"}`
		}
		out, bad := e.svc.Call(t.Context(), codex, "claim_list", json.RawMessage(args), "")
		if bad != nil {
			t.Fatal(bad)
		}
		m := parse(t, out)
		if len(out) > pageBytes {
			t.Errorf("page of %d bytes", len(out))
		}
		for _, c := range m["claims"].([]any) {
			task := c.(map[string]any)["task"].(string)
			if seen[task] {
				t.Errorf("%s twice", task)
			}
			seen[task] = true
		}
		if m["has_more"] != true {
			break
		}
		cursor = m["next_cursor"].(string)
	}
	if len(seen) != n {
		t.Errorf("saw %d claims of %d", len(seen), n)
	}
	for _, bad := range []string{"x", "Y2xhaW1zIDEg", cursor[:len(cursor)/2]} {
		if e := e.refused(codex, "claim_list", `{"cursor":"`+bad+`"}`); e.Code != CodeUnknownCursor {
			t.Errorf("%s", e.JSON())
		}
	}
}

// TestClaimsOfUnknownIdentity: a name of which nothing has arrived is no
// error, and said, with those that look like it.
func TestClaimsOfUnknownIdentity(t *testing.T) {
	e := newEnv(t)
	e.speak(claude)
	m := e.do(codex, "claim_list", `{"identity":"mac:claud:tally"}`)
	if note, _ := m["note"].(string); m["count"] != 0.0 || !strings.Contains(note, "mac:claude:tally") {
		t.Errorf("%v", m)
	}
	if m := e.do(codex, "claim_list", `{"identity":"mac:claude:tally"}`); m["note"] != nil {
		t.Errorf("a known name: %v", m)
	}
}
