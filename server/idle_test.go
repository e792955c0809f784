package server

import (
	"fmt"
	"strings"
	"testing"
)

// TestAckThatDoesNothingSaysSo: an ack that neither closes the task nor
// touches the claim has a note; one that does has none.
func TestAckThatDoesNothingSaysSo(t *testing.T) {
	e := newEnv(t)
	ask := func() string {
		return e.do(codex, "event_append", `{"type":"task.request","stream":"s","room":"r","status":"open"}`)["event"].(map[string]any)["id"].(string)
	}
	other := Session{Agent: "gemini", Project: "tally", Bound: true}
	id := ask()
	check := func(s Session, status, want string) {
		t.Helper()
		m := e.ack(s, id, status)
		note, _ := m["note"].(string)
		if m["outcome"] != "recorded" || (want == "") != (note == "") || !strings.Contains(note, want) {
			t.Errorf("%s of %s: %v, note %q", status, s.Agent, m["outcome"], note)
		}
	}
	check(other, "failed", "nobody holds the task")
	e.ack(claude, id, "claimed")
	for _, status := range []string{"failed", "superseded", "blocked", "ready"} {
		check(other, status, "mac:claude:tally holds it until")
	}
	check(claude, "blocked", "")
	check(claude, "superseded", "")
	e.ack(claude, id, "claimed")
	check(claude, "failed", "")
	check(other, "failed", "closed already")
	id = ask()
	check(codex, "superseded", "")
}

// TestBlankAndEmpty: a blank enum means none, as the contract of events has
// it; an empty list names nothing and is refused; order is read in any case.
func TestBlankAndEmpty(t *testing.T) {
	e := newEnv(t)
	for _, args := range []string{`{"status":""}`, `{"order":"DESC"}`, `{"order":"ASC"}`} {
		e.do(claude, "event_list", args)
	}
	// The memory tools' contract has no blank values.
	if bad := e.refused(claude, "get_all_summaries", `{"category":""}`); bad.Field != "category" || len(bad.Allowed) != 7 {
		t.Errorf("%s", bad.JSON())
	}
	for _, field := range []string{"type", "to_agent"} {
		if bad := e.refused(claude, "event_wait", fmt.Sprintf(`{%q:[],"timeout_ms":0}`, field)); bad.Code != CodeInvalidArgument || bad.Field != field {
			t.Errorf("%s: %s", field, bad.JSON())
		}
	}
}
