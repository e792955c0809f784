package server

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tallystick/oplog"
	"tallystick/query/rawmemory"
	"tallystick/query/summary"
)

// TestB1_TurnsAndSummaries: what the tools of summaries and raw memories take
// and give (table B1), over every transport.
func TestB1_TurnsAndSummaries(t *testing.T) {
	overAll(t, func(t *testing.T, e *env, call caller) {
		has := func(what string, row map[string]any, keys string) {
			t.Helper()
			for _, k := range strings.Fields(keys) {
				if _, ok := row[k]; !ok {
					t.Errorf("%s: no %s in %v", what, k, row)
				}
			}
		}
		list := func(r map[string]any, name string) (rows []map[string]any) {
			t.Helper()
			for _, row := range r[name].([]any) {
				rows = append(rows, row.(map[string]any))
			}
			return rows
		}
		if r := call.ok(t, "get_all_summaries", `{}`); r["count"] != 0.0 || r["total"] != 0.0 || len(list(r, "summaries")) != 0 || r["malformedTimestamps"] != nil {
			t.Errorf("an empty ledger: %v", r)
		}
		if r := call.ok(t, "get_session_memories", `{"sessionId":"none"}`); r["total"] != 0.0 || len(list(r, "memories")) != 0 {
			t.Errorf("a session that is not there: %v", r)
		}
		call.err(t, "get_session_memories", `{}`, CodeInvalidArgument, "sessionId")
		for _, missing := range []string{"prompt", "thought", "response"} {
			args := strings.Replace(`{"prompt":"p","thought":"t","response":"r"}`, `"`+missing+`"`, `"model"`, 1)
			call.err(t, "add_memory", args, CodeInvalidArgument, missing)
		}
		e.speak(claude, codex)
		e.send(codex, `{"to":"mac:claude:tally","subject":"hello","body":"b"}`)
		for i := range 3 {
			r := call.ok(t, "add_memory", fmt.Sprintf(`{"sessionId":"s","prompt":"walrus %d","thought":"t","response":"r","agent":"a","model":"m","amountToolCalls":2,"toolsUsed":["x"]}`, i))
			has("add_memory", r, "id sessionId timestamp message mailbox")
			if box := r["mailbox"].(map[string]any); box["unreadCount"] != 1.0 || box["latestPreview"].(map[string]any)["subject"] != "hello" {
				t.Errorf("mailbox: %v", box)
			}
		}
		if r := call.ok(t, "add_memory", `{"prompt":"p","thought":"","response":""}`); !strings.Contains(fmt.Sprint(r["sessionId"]), "claude") {
			t.Errorf("a session of its own: %v", r)
		}
		var order []string
		for _, offset := range []string{"0", "2"} {
			r := call.ok(t, "get_session_memories", `{"sessionId":"s","limit":2,"offset":`+offset+`}`)
			if r["total"] != 3.0 || r["sessionId"] != "s" {
				t.Errorf("%v", r)
			}
			for _, row := range list(r, "memories") {
				has("get_session_memories", row, "id sessionId timestamp prompt thought response agent model sourceAgentIdentities")
				order = append(order, row["prompt"].(string))
			}
		}
		if !slices.Equal(order, []string{"walrus 0", "walrus 1", "walrus 2"}) {
			t.Errorf("a session is told as %q", order)
		}
		if r := call.ok(t, "query_raw_memories", `{"query":"walrus","nResults":2}`); len(list(r, "results")) != 2 {
			t.Errorf("%v", r)
		} else {
			has("query_raw_memories", list(r, "results")[0], "id sessionId prompt distance relevanceScore")
		}
		for _, n := range []string{"0", "-1", "101", "1e9", "1.5", "null", `"2"`} {
			call.err(t, "query_raw_memories", `{"query":"walrus","nResults":`+n+`}`, CodeInvalidArgument, "nResults")
			call.err(t, "query_summaries", `{"query":"walrus","nResults":`+n+`}`, CodeInvalidArgument, "nResults")
		}
		call.ok(t, "add_summary", `{"title":"walrus","summary":"x","category":"bugfix","sessionId":"s"}`)
		for _, c := range [][3]string{{"get_all_summaries", `{"category":"bugfix"}`, "summaries"}, {"query_summaries", `{"query":"walrus","category":"bugfix"}`, "results"}} {
			rows := list(call.ok(t, c[0], c[1]), c[2])
			if len(rows) != 1 {
				t.Fatalf("%s: %v", c[0], rows)
			}
			has(c[0], rows[0], "id sessionId timestamp title summary category sourceAgentIdentities author origin")
			call.err(t, c[0], strings.Replace(c[1], "bugfix", "Bugfix", 1), CodeInvalidArgument, "category")
		}
	})
}

// TestB3_TimestampsAndTies: a row with a timestamp that is none survives with
// null and is counted; equal timestamps have one order; rows without one come
// last (table B3), over every transport.
func TestB3_TimestampsAndTies(t *testing.T) {
	overAll(t, func(t *testing.T, e *env, call caller) {
		add := func(op oplog.Op) {
			t.Helper()
			if _, err := e.log.Append(t.Context(), op); err != nil {
				t.Fatal(err)
			}
		}
		id := []string{"mac:claude:tally"}
		const good = "2001-01-01T00:00:00Z"
		for i, at := range []string{"yesterday, at noon..", "2026-01-01T00:00:02Z", "2026-01-01T00:00:01Z", "2026-01-01T00:00:01Z", "2026-13-01T00:00:00Z"} {
			s, err := summary.NewOp(id[0], summary.Summary{Title: fmt.Sprint(i), Text: "x", Category: "other", Identities: id, Timestamp: good})
			turn, bad := rawmemory.NewOp(id[0], rawmemory.Turn{Session: "s", Prompt: fmt.Sprint(i), Identities: id, Timestamp: good, ToolCalls: -1})
			if err != nil || bad != nil {
				t.Fatal(err, bad)
			}
			for _, op := range []oplog.Op{s, turn} { // as a peer may have written it
				op.Body = bytes.Replace(op.Body, []byte(good), []byte(at), 1)
				add(op)
			}
		}
		for tool, name := range map[string]string{"get_all_summaries": "summaries", "get_session_memories": "memories", "query_recent_turns": "turns"} {
			args := `{}`
			if tool == "get_session_memories" {
				args = `{"sessionId":"s"}`
			}
			r := call.ok(t, tool, args)
			var rows []string
			null := 0
			for _, row := range r[name].([]any) {
				row := row.(map[string]any)
				if row["timestamp"] == nil {
					null++
				}
				rows = append(rows, fmt.Sprint(row["title"], row["prompt"]))
			}
			if len(rows) != 5 || null != 2 || r["malformedTimestamps"] != 2.0 {
				t.Errorf("%s: %v", tool, r)
			}
			again := call.ok(t, tool, args)
			if fmt.Sprint(again[name]) != fmt.Sprint(r[name]) {
				t.Errorf("%s: another order the second time", tool)
			}
			if tool == "get_all_summaries" && !strings.HasPrefix(rows[0], "1") {
				t.Errorf("the newest is %s", rows[0])
			}
		}
		before := e.entries()
		for _, at := range []string{`"yesterday"`, `""`, `null`, `7`, `"2026-13-01T00:00:00Z"`, `"2026-01-01"`} {
			call.err(t, "add_summary", `{"title":"t","summary":"s","timestamp":`+at+`}`, CodeInvalidArgument, "timestamp")
			call.err(t, "add_memory", `{"prompt":"p","thought":"","response":"","timestamp":`+at+`}`, CodeInvalidArgument, "timestamp")
		}
		if e.entries() != before {
			t.Error("what was refused is stored")
		}
	})
}
