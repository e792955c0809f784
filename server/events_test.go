package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func bodies(m map[string]any) string {
	var out []string
	for _, ev := range m["events"].([]any) {
		out = append(out, ev.(map[string]any)["body"].(string))
	}
	return strings.Join(out, " ")
}

func (e *env) append(s Session, to, body string) map[string]any {
	e.t.Helper()
	fields := map[string]string{"type": "status", "stream": "s", "room": "r", "body": body}
	if to != "" {
		fields["to_agent"] = to
	}
	args, _ := json.Marshal(fields)
	return e.do(s, "event_append", string(args))["event"].(map[string]any)
}

// TestA2_Idempotency: the same key from the same identity gets the first
// result, from any process; another identity or another tool is another write.
func TestA2_Idempotency(t *testing.T) {
	e := newEnv(t)
	const args = `{"type":"status","stream":"s","room":"r","body":"%s","idempotency_key":"k1"}`
	first := e.do(claude, "event_append", fmt.Sprintf(args, "one"))
	again := e.do(claude, "event_append", fmt.Sprintf(args, "two"))
	id := func(m map[string]any) any { return m["event"].(map[string]any)["id"] }
	if first["replayed"] != false || again["replayed"] != true || id(again) != id(first) || again["event"].(map[string]any)["body"] != "one" {
		t.Errorf("first %v, again %v", first, again)
	}
	if other := e.do(codex, "event_append", fmt.Sprintf(args, "mine")); other["replayed"] != false || id(other) == id(first) {
		t.Errorf("another identity: %v", other)
	}
	ack := `{"event_id":"` + id(first).(string) + `","body":"seen","idempotency_key":"k1"}`
	if a, b := e.do(claude, "event_ack", ack), e.do(claude, "event_ack", ack); a["replayed"] != nil || b["replayed"] != true || id(a) != id(b) || id(a) == id(first) {
		t.Errorf("another tool: %v %v", a, b)
	}
	// The op id of the transport does the same for one call that is repeated.
	for range 2 {
		if _, bad := e.svc.Call(t.Context(), claude, "add_summary", json.RawMessage(`{"title":"t","summary":"s"}`), "op-1"); bad != nil {
			t.Fatal(bad)
		}
	}
	if m := e.do(claude, "get_all_summaries", `{}`); m["total"] != 1.0 {
		t.Errorf("%v summaries", m["total"])
	}
}

// TestDurableOn: who has the entry on disk, and who does not yet.
func TestDurableOn(t *testing.T) {
	e := newEnv(t)
	const args = `{"type":"status","stream":"s","room":"r","idempotency_key":"k"}`
	m := e.do(claude, "event_append", args)
	if fmt.Sprint(m["durable_on"], m["not_yet"]) != "[mac] [nas]" {
		t.Errorf("at first: %v %v", m["durable_on"], m["not_yet"])
	}
	e.mesh.set(func() { e.mesh.holds = true })
	m = e.do(claude, "event_append", args)
	if fmt.Sprint(m["durable_on"], m["not_yet"], m["replayed"]) != "[mac nas] [] true" {
		t.Errorf("later: %v %v %v", m["durable_on"], m["not_yet"], m["replayed"])
	}
}

// TestInbox: exactly the name or *, and the caller's own name never filters.
func TestInbox(t *testing.T) {
	e := newEnv(t)
	e.append(claude, "mac:codex:tally", "to-codex")
	e.append(claude, "*", "to-all")
	e.append(codex, "mac:claude:tally", "to-claude")
	e.do(claude, "event_append", `{"type":"status","stream":"s","room":"r","body":"to-nobody"}`)
	if got := bodies(e.do(codex, "event_list", `{"to_agent":"@me"}`)); got != "to-all to-codex" {
		t.Errorf("inbox: %s", got)
	}
	if got := bodies(e.do(codex, "event_list", `{"to_agent":"@mac:codex:tally","order":"ASC"}`)); got != "to-codex to-all" {
		t.Errorf("inbox by name: %s", got)
	}
	m := e.do(codex, "event_list", `{"from_agent":"mac:codex:tally"}`)
	if m["count"] != 4.0 || m["note"] == nil {
		t.Errorf("from_agent filters: %v", m)
	}
	if got := bodies(e.do(codex, "event_list", `{"writer":"@me"}`)); got != "to-claude" {
		t.Errorf("writer: %s", got)
	}
	if got := bodies(e.do(codex, "event_wait", `{"to_agent":["@me","mac:claude:tally"],"type":["status","x"],"timeout_ms":0}`)); got != "to-nobody" && got != "to-claude to-all to-codex" {
		t.Errorf("lists: %s", got)
	}
	if got := bodies(e.do(codex, "event_wait", `{"to_agent":"@me","type":"status","timeout_ms":0}`)); got != "to-all to-codex" {
		t.Errorf("one instead of a list: %s", got)
	}
}

// TestPages: a page ends at a record boundary below 32 kB and says how to get
// the rest; walking gives everything once.
func TestPages(t *testing.T) {
	e := newEnv(t)
	big := strings.Repeat("é", 5000) // 10,000 bytes
	for i := range 7 {
		e.append(claude, "", fmt.Sprintf("%d%s", i, big))
	}
	e.append(claude, "", "huge"+strings.Repeat("x", 200_000))
	seen, cursor := "", ""
	for range 20 {
		args, _ := json.Marshal(map[string]any{"order": "asc", "stream": "s", "limit": 100})
		if cursor != "" {
			args, _ = json.Marshal(map[string]any{"cursor": cursor, "stream": "s", "limit": 100})
		}
		out, bad := e.svc.Call(t.Context(), claude, "event_list", args, "")
		if bad != nil {
			t.Fatal(bad)
		}
		m := parse(t, out)
		events := m["events"].([]any)
		if len(out) > pageBytes && len(events) != 1 {
			t.Errorf("%d bytes with %d events", len(out), len(events))
		}
		for _, ev := range events {
			seen += ev.(map[string]any)["body"].(string)[:1]
		}
		if m["has_more"] == true && m["truncated"] != true {
			t.Errorf("ended by size, but says nothing: %v", m["count"])
		}
		cursor = m["next_cursor"].(string)
		if m["has_more"] != true {
			break
		}
	}
	if seen != "0123456h" {
		t.Errorf("walked %s", seen)
	}
	e.append(claude, "", "later")
	if got := bodies(e.do(claude, "event_list", `{"cursor":"`+cursor+`"}`)); got != "later" {
		t.Errorf("after the end: %.40s", got)
	}
	ev := e.do(claude, "event_list", `{"preview":true,"limit":2}`)["events"].([]any)[1].(map[string]any)
	if len(ev["body"].(string)) != 200 || ev["body_truncated"] != true || ev["body_length"] != 200_004.0 {
		t.Errorf("preview: %.50v %v %v", ev["body"], ev["body_truncated"], ev["body_length"])
	}
}

// TestWait: a match that is there answers at once, one that comes wakes the
// call, none is a normal answer after the time; the cursor leads on without
// gap.
func TestWait(t *testing.T) {
	e := newEnv(t)
	e.append(claude, "mac:codex:tally", "early")
	m := e.do(codex, "event_wait", `{"to_agent":"@me"}`)
	if bodies(m) != "early" || m["timed_out"] != false {
		t.Errorf("%v", m)
	}
	cursor := m["next_cursor"].(string)
	m = e.do(codex, "event_wait", `{"to_agent":"@me","timeout_ms":0,"cursor":"`+cursor+`"}`)
	if m["timed_out"] != true || m["count"] != 0.0 || m["next_cursor"] == "" {
		t.Errorf("nothing new: %v", m)
	}
	cursor = m["next_cursor"].(string)
	type answer struct {
		m   map[string]any
		bad *Error
	}
	done := make(chan answer)
	go func() {
		out, bad := e.svc.Call(t.Context(), codex, "event_wait", json.RawMessage(`{"to_agent":"@me","cursor":"`+cursor+`"}`), "")
		if bad != nil {
			done <- answer{bad: bad}
			return
		}
		done <- answer{m: parse(t, out)}
	}()
	e.untilWaiting(1)
	e.append(claude, "mac:other:tally", "not-for-codex")
	e.append(claude, "mac:codex:tally", "wake")
	a := <-done
	if a.bad != nil || bodies(a.m) != "wake" {
		t.Fatalf("%v %v", a.m, a.bad)
	}
	m = e.do(codex, "event_wait", `{"to_agent":"@me","timeout_ms":1,"cursor":"`+a.m["next_cursor"].(string)+`"}`)
	if m["timed_out"] != true {
		t.Errorf("%v", m)
	}
	// since_event_id is another way to say where to start.
	first := e.do(codex, "event_list", `{"order":"asc","limit":1}`)["events"].([]any)[0].(map[string]any)["id"].(string)
	if got := bodies(e.do(codex, "event_wait", `{"since_event_id":"`+first+`"}`)); got != "not-for-codex wake" {
		t.Errorf("since: %s", got)
	}
}

// TestWaitLimit: more waiting calls than there are slots is a clear answer.
func TestWaitLimit(t *testing.T) {
	e := newEnv(t)
	e.svc.waits = make(chan struct{}, 1)
	done := make(chan *Error)
	go func() {
		_, bad := e.svc.Call(t.Context(), claude, "event_wait", nil, "")
		done <- bad
	}()
	e.untilWaiting(1)
	if bad := e.refused(codex, "event_wait", `{}`); bad.Code != CodeBusy {
		t.Errorf("%s", bad.JSON())
	}
	e.append(claude, "", "end")
	if bad := <-done; bad != nil {
		t.Error(bad)
	}
}

// TestSummaries: whose, how many, in which order, and unknown names.
func TestSummaries(t *testing.T) {
	e := newEnv(t)
	for i, who := range []string{`[]`, `["mac:codex:tally","@crew/emma"]`, `["@me"]`} {
		e.do(claude, "add_summary", fmt.Sprintf(`{"title":"s%d","summary":"x","timestamp":"2026-01-0%dT00:00:00Z","sourceAgentIdentities":%s}`, i, i+1, who))
	}
	e.do(claude, "add_summary", `{"title":"mine","summary":"x","category":"analysis"}`)
	titles := func(s Session, args string) (string, map[string]any) {
		m := e.do(s, "get_all_summaries", args)
		var out []string
		for _, r := range m["summaries"].([]any) {
			out = append(out, r.(map[string]any)["title"].(string))
		}
		return strings.Join(out, " "), m
	}
	for args, want := range map[string]string{
		`{}`: "mine s2 s1 s0", `{"agentIdentity":"all"}`: "mine s2 s1 s0", `{"agentIdentity":"@me"}`: "mine s2",
		`{"agentIdentity":"mac:codex:tally"}`: "s1", `{"agentIdentity":"@crew/emma"}`: "s1", `{"agentIdentity":"crew/emma","category":"bugfix"}`: "",
		`{"limit":1,"offset":1}`: "s2", `{"category":"analysis"}`: "mine", `{"offset":99}`: "",
	} {
		if got, _ := titles(claude, args); got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
	_, m := titles(claude, `{"agentIdentity":"mac:codex:tallly"}`)
	if note, _ := m["note"].(string); m["count"] != 0.0 || !strings.Contains(note, "mac:codex:tally") {
		t.Errorf("unknown name: %v", m)
	}
	big := strings.Repeat("x", 20_000)
	e.wall.Add(60_000)
	for i := range 3 {
		e.do(claude, "add_summary", fmt.Sprintf(`{"title":"big%d","summary":"%s"}`, i, big))
	}
	out, _ := e.svc.Call(t.Context(), claude, "get_all_summaries", json.RawMessage(`{"limit":3}`), "")
	m = parse(t, out)
	if len(out) > pageBytes || m["truncated"] != true || m["has_more"] != true || m["next_offset"] != 1.0 {
		t.Errorf("%d bytes: count %v, truncated %v, next_offset %v", len(out), m["count"], m["truncated"], m["next_offset"])
	}
}
