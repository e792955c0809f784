package server

import "testing"

// TestListsAreNeverNull: every read that finds nothing answers with empty
// lists, on an empty replica as on one whose content does not match.
func TestListsAreNeverNull(t *testing.T) {
	reads := []struct{ tool, args string }{
		{"checkpoint_resume", `{"branch":"none","on_missing":"empty"}`},
		{"claim_list", `{"identity":"mac:nobody:x"}`},
		{"claim_list", `{"stream":"none"}`},
		{"event_list", `{"type":"none"}`},
		{"event_list", `{"to_agent":"@me","type":"none"}`},
		{"event_list", `{"to_agent":"mac:nobody:x","type":"none","order":"asc"}`},
		{"event_wait", `{"to_agent":"@me","type":"none","timeout_ms":0}`},
		{"event_wait", `{"to_agent":["@me","mac:nobody:x"],"stream":"none","timeout_ms":1}`},
		{"get_all_summaries", `{"agentIdentity":"mac:nobody:x"}`},
		{"get_all_summaries", `{"category":"analysis","offset":7}`},
		{"get_session_memories", `{"sessionId":"none"}`},
		{"list_messages", `{"box":"outbox"}`},
		{"list_messages", `{"status":"read"}`},
		{"memory_search", `{"query":"zzz"}`},
		{"memory_search", `{"query":"zzz","explain":true}`},
		{"memory_search_batch", `{"queries":["zzz"]}`},
		{"merges_list", `{}`},
		{"mesh_status", `{}`},
		{"query_raw_memories", `{"query":"zzz"}`},
		{"query_recent_turns", `{}`},
		{"query_summaries", `{"query":"zzz"}`},
		{"search", `{"query":"zzz"}`},
		{"task_list", `{"stream":"none"}`},
		{"whoami", `{}`},
	}
	e := newEnv(t)
	look := func(when string) {
		for _, r := range reads {
			out, bad := e.svc.Call(t.Context(), claude, r.tool, []byte(r.args), "")
			if bad != nil {
				t.Errorf("%s, %s %s: %s", when, r.tool, r.args, bad.JSON())
				continue
			}
			if p := nullArray("", any(parse(t, out))); p != "" {
				t.Errorf("%s, %s %s: %s is null: %s", when, r.tool, r.args, p, out)
			}
		}
	}
	look("empty")
	id := e.do(codex, "event_append", `{"type":"task.request","stream":"s","room":"r","status":"open"}`)["event"].(map[string]any)["id"].(string)
	e.do(claude, "event_ack", `{"event_id":"`+id+`","status":"claimed"}`)
	e.do(codex, "add_summary", `{"title":"t","summary":"s","sourceAgentIdentities":[]}`)
	e.do(codex, "memory_add", `{"text":"the port is 7717"}`)
	e.do(codex, "add_message", `{"to":"@me","subject":"s","body":"b"}`)
	look("filled")
}
