package server

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

var gemini = Session{Agent: "gemini", Bound: true} // flat

// speak makes sessions known: a recipient must have written something.
func (e *env) speak(sessions ...Session) {
	e.t.Helper()
	for _, s := range sessions {
		e.do(s, "event_append", `{"type":"status","stream":"s","room":"r"}`)
	}
}

func (e *env) send(s Session, args string) string {
	e.t.Helper()
	return e.do(s, "add_message", args)["messageId"].(string)
}

func messageIDs(m map[string]any) (ids []string) {
	for _, row := range m["messages"].([]any) {
		ids = append(ids, row.(map[string]any)["messageId"].(string))
	}
	return ids
}

// TestMailWalk: sent, told how far it got, listed, read, archived.
func TestMailWalk(t *testing.T) {
	e := newEnv(t)
	e.speak(claude, codex)
	sent := e.do(claude, "add_message", `{"to":"@mac:codex:tally","subject":"Review","body":"Please look.","priority":"high","idempotency_key":"k"}`)
	id := sent["messageId"].(string)
	if sent["to"] != "mac:codex:tally" || sent["status"] != "sent" || sent["threadId"] != id || sent["recipientCount"] != 1.0 ||
		fmt.Sprint(sent["durable_on"], sent["not_yet"]) != "[mac] [nas]" {
		t.Errorf("sent %v", sent)
	}
	if again := e.do(claude, "add_message", `{"to":"mac:codex:tally","subject":"Another","body":"text","idempotency_key":"k"}`); again["messageId"] != id || again["replayed"] != true {
		t.Errorf("a repeat: %v", again)
	}
	m := e.do(codex, "list_messages", `{"status":"unread"}`)
	if m["owner"] != "mac:codex:tally" || m["totalCount"] != 1.0 || m["unreadCount"] != 1.0 || m["truncated"] != false || m["nextOffset"] != nil {
		t.Errorf("unread %v", m)
	}
	row := m["messages"].([]any)[0].(map[string]any)
	if row["preview"] != "Please look." || row["priority"] != "high" || row["status"] != "unread" || row["origin"] != "mac" || row["body"] != nil {
		t.Errorf("row %v", row)
	}
	e.mesh.set(func() { e.mesh.holds = true })
	whole := e.do(codex, "get_message", `{"messageId":"`+id+`"}`)
	if whole["body"] != "Please look." || fmt.Sprint(whole["durable_on"], whole["not_yet"]) != "[mac nas] []" || whole["status"] != "unread" {
		t.Errorf("reading marks, or tells another delivery: %v", whole)
	}
	if m := e.do(codex, "mark_read", `{"messageIds":["`+id+`","`+id+`"]}`); m["changed"] != 1.0 || m["unreadCount"] != 0.0 || m["count"] != 2.0 {
		t.Errorf("marked %v", m)
	}
	if m := e.do(codex, "mark_read", `{"messageId":"`+id+`"}`); m["changed"] != 0.0 || m["messages"].([]any)[0].(map[string]any)["status"] != "read" {
		t.Errorf("marked again %v", m)
	}
	reply := e.send(codex, `{"to":"mac:claude:tally","subject":"Re: Review","body":"Done.","inReplyTo":"`+id+`"}`)
	if m := e.do(claude, "list_messages", `{"box":"all","threadId":"`+id+`"}`); !slices.Equal(messageIDs(m), []string{reply, id}) {
		t.Errorf("thread %v", m)
	}
	if m := e.do(codex, "list_messages", `{"fromIdentity":"@me","box":"all"}`); !slices.Equal(messageIDs(m), []string{reply}) {
		t.Errorf("from me %v", m)
	}
	e.do(codex, "archive_message", `{"messageId":"`+id+`"}`)
	if m := e.do(codex, "list_messages", `{}`); m["count"] != 0.0 {
		t.Errorf("archived, and listed: %v", m)
	}
	if m := e.do(codex, "list_messages", `{"includeArchived":true}`); m["count"] != 1.0 {
		t.Errorf("archived, and gone: %v", m)
	}
}

// TestI8_Mail: reading is open to whoever has a name, marking to the
// recipient; @me resolves or fails; nobody says who they are.
func TestI8_Mail(t *testing.T) {
	for name, dial := range transports {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			calls := map[Session]caller{}
			as := func(s Session) caller {
				if calls[s] == nil {
					calls[s] = dial(t, e, s)
				}
				return calls[s]
			}
			e.speak(claude, codex, gemini)
			id := e.send(claude, `{"to":"mac:codex:tally","subject":"s","body":"b"}`)
			if m := as(gemini).ok(t, "list_messages", `{"to":" @mac:codex:tally "}`); m["count"] != 1.0 || m["owner"] != "mac:codex:tally" {
				t.Errorf("another's mailbox: %v", m)
			}
			as(gemini).ok(t, "get_message", `{"messageId":"`+id+`"}`)
			entries := e.entries()
			for _, c := range []struct {
				who  Session
				tool string
				args string
				code Code
			}{
				{gemini, "mark_read", `{"messageId":"` + id + `"}`, CodeIdentityMismatch},
				{claude, "mark_read", `{"messageId":"` + id + `"}`, CodeIdentityMismatch},
				{gemini, "archive_message", `{"messageId":"` + id + `"}`, CodeIdentityMismatch},
				{codex, "mark_read", `{"messageId":"evt_20260102T030405_0123456789ab"}`, CodeNotFound},
				{codex, "mark_read", `{"messageIds":[]}`, CodeInvalidArgument},
				{Session{}, "list_messages", `{}`, CodeIdentityUnbound},
				{Session{}, "list_messages", `{"to":"@me"}`, CodeIdentityUnbound},
				{Session{}, "get_message", `{"messageId":"` + id + `"}`, CodeIdentityUnbound},
				{Session{}, "add_message", `{"to":"mac:codex:tally","subject":"s","body":"b"}`, CodeIdentityUnbound},
				{gemini, "list_messages", `{"to":"*"}`, CodeInvalidArgument},
				{gemini, "list_messages", `{"fromIdentity":"*"}`, CodeInvalidArgument},
				{gemini, "list_messages", `{"to":"@@mac:codex:tally"}`, CodeInvalidArgument},
				{gemini, "list_messages", `{"thread":"a","threadId":"a"}`, CodeInvalidArgument},
				{gemini, "add_message", `{"to":"mac:codx:tally","subject":"s","body":"b"}`, CodeNotFound},
				{gemini, "add_message", `{"to":"AGENT:*","subject":"s","body":"b"}`, CodeNotFound},
				{gemini, "add_message", `{"to":"mac:codex:tally","subject":"s","body":"b","from":"mac:claude:tally"}`, CodeUnknownField},
				{gemini, "add_message", `{"to":"mac:codex:tally","subject":"s","body":"b","from_agent":"mac:claude:tally"}`, CodeIdentityMismatch},
				{gemini, "event_append", `{"type":"mail.message","stream":"mail","room":"mail","to_agent":"mac:codex:tally"}`, CodeInvalidArgument},
			} {
				if out, bad := as(c.who)(t, c.tool, c.args); bad == nil || bad.Code != c.code {
					t.Errorf("%s %s: %s %v", c.tool, c.args, out, bad)
				}
			}
			if e.entries() != entries {
				t.Error("something that was refused is stored")
			}
			if bad := as(gemini).err(t, "add_message", `{"to":"mac:codx:tally","subject":"s","body":"b"}`, CodeNotFound, "to"); !slices.Contains(bad.Allowed, "mac:codex:tally") {
				t.Errorf("no near names: %s", bad.JSON())
			}
			if m := as(gemini).ok(t, "list_messages", `{"to":"mac:codx:tally"}`); m["count"] != 0.0 || !strings.Contains(fmt.Sprint(m["note"]), "mac:codex:tally") {
				t.Errorf("an unknown mailbox: %v", m)
			}
		})
	}
}

// TestMailWakesAWait: a message is an event too.
func TestMailWakesAWait(t *testing.T) {
	e := newEnv(t)
	e.speak(claude, codex)
	id := e.send(claude, `{"to":"*","subject":"Freeze","body":"No pushes."}`)
	m := e.do(codex, "event_wait", `{"to_agent":"@me","type":["mail.message"],"timeout_ms":0}`)
	row := m["events"].([]any)[0].(map[string]any)
	if row["id"] != id || row["metadata"].(map[string]any)["subject"] != "Freeze" {
		t.Errorf("%v", m)
	}
}

// TestTaskCreate: one request, the same for the same key, and a handoff line.
func TestTaskCreate(t *testing.T) {
	e := newEnv(t)
	args := `{"project":"tally","to_agent":"*","goal":"Mend the parser","branch":"main","base_commit":"1f3c2d0","done":"go test passes","idempotency_key":"k"}`
	first := e.do(claude, "task_create", args)
	ev := first["event"].(map[string]any)
	if ev["type"] != "task.request" || ev["stream"] != "project/tally" || ev["status"] != "open" || first["task"] != ev["correlation_id"] ||
		!strings.Contains(first["handoff"].(string), ev["id"].(string)) || fmt.Sprint(first["not_yet"]) != "[nas]" {
		t.Errorf("%v", first)
	}
	if again := e.do(claude, "task_create", args); again["task"] != first["task"] || again["replayed"] != true {
		t.Errorf("a repeat: %v", again)
	}
	if other := e.do(codex, "task_create", args); other["task"] == first["task"] {
		t.Error("the key of another identity counts")
	}
	entries := e.entries()
	for _, field := range []string{"project", "to_agent", "goal", "branch", "base_commit", "done"} {
		var m map[string]any
		json.Unmarshal([]byte(args), &m)
		delete(m, field)
		missing, _ := json.Marshal(m)
		m[field] = " "
		blank, _ := json.Marshal(m)
		for _, a := range [][]byte{missing, blank} {
			if bad := e.refused(claude, "task_create", string(a)); bad.Code != CodeInvalidArgument || bad.Field != field {
				t.Errorf("%s: %s", a, bad.JSON())
			}
		}
	}
	for _, commit := range []string{"1f3c2d", "main~12", strings.Repeat("a", 65)} {
		bad := e.refused(claude, "task_create", strings.Replace(args, "1f3c2d0", commit, 1))
		if bad.Field != "base_commit" {
			t.Errorf("%s: %s", commit, bad.JSON())
		}
	}
	if e.entries() != entries {
		t.Error("something that was refused is stored")
	}
}

// TestTaskList: open tasks with who holds them, page by page.
func TestTaskList(t *testing.T) {
	e := newEnv(t)
	var ids []string
	for i := range 5 {
		m := e.do(claude, "task_create", fmt.Sprintf(`{"project":"tally","to_agent":"%s","goal":"goal %d","branch":"main","base_commit":"1f3c2d0","done":"d"}`,
			[]string{"*", "mac:codex:tally"}[i%2], i))
		ids = append(ids, m["event"].(map[string]any)["id"].(string))
	}
	e.ack(codex, ids[0], "claimed")
	e.ack(codex, ids[1], "applied")
	var seen []string
	cursor := ""
	for range 10 {
		args := `{"limit":1}`
		if cursor != "" {
			args = `{"limit":1,"cursor":"` + cursor + `"}`
		}
		m := e.do(claude, "task_list", args)
		for _, row := range m["tasks"].([]any) {
			seen = append(seen, row.(map[string]any)["event_id"].(string))
		}
		if m["has_more"] != true {
			break
		}
		cursor = m["next_cursor"].(string)
	}
	if want := []string{ids[0], ids[2], ids[3], ids[4]}; !slices.Equal(seen, want) {
		t.Errorf("open tasks %v, want %v", seen, want)
	}
	row := e.do(claude, "task_list", `{"limit":1}`)["tasks"].([]any)[0].(map[string]any)
	if row["state"] != "held" || row["holder"] != "mac:codex:tally" || row["grade"] == nil || row["title"] != "goal 0" {
		t.Errorf("%v", row)
	}
	if m := e.do(claude, "task_list", `{"free":true,"to_agent":"@me"}`); m["count"] != 2.0 { // those for all
		t.Errorf("free for me: %v", m)
	}
	if m := e.do(codex, "task_list", `{"to_agent":"@me","stream":"project/tally"}`); m["count"] != 4.0 {
		t.Errorf("for codex: %v", m)
	}
}

// TestClaimRace: eight racers, two hundred rounds, exactly one winner each.
func TestClaimRace(t *testing.T) {
	e := newEnv(t)
	racers := make([]Session, 8)
	for i := range racers {
		racers[i] = Session{Agent: fmt.Sprintf("racer%d", i), Project: "p", Bound: true}
	}
	for round := range 200 {
		id := e.request(fmt.Sprintf(`,"correlation_id":"round-%d"`, round))
		outcomes := make([]string, len(racers))
		start := make(chan struct{})
		var wg sync.WaitGroup
		for i, s := range racers {
			wg.Go(func() {
				<-start
				out, bad := e.svc.Call(t.Context(), s, "event_ack", json.RawMessage(`{"event_id":"`+id+`","status":"claimed"}`), "")
				if bad != nil {
					t.Error(bad)
					return
				}
				outcomes[i] = parse(t, out)["outcome"].(string)
			})
		}
		close(start)
		wg.Wait()
		won := slices.Index(outcomes, "won")
		slices.Sort(outcomes)
		if !slices.Equal(outcomes, []string{"held", "held", "held", "held", "held", "held", "held", "won"}) {
			t.Fatalf("round %d: %v", round, outcomes)
		}
		claims := e.do(codex, "claim_list", fmt.Sprintf(`{"correlation_id":"round-%d"}`, round))
		if holder := claims["claims"].([]any)[0].(map[string]any)["holder"]; claims["count"] != 1.0 || holder != fmt.Sprintf("mac:racer%d:p", won) {
			t.Fatalf("round %d: won by racer %d, %v", round, won, claims)
		}
		e.ack(racers[won], id, "applied")
	}
}
