package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tallystick/query/imported"
	"tallystick/query/logstream"
)

// toolCases is one success and one error for every tool. %s is the id of an
// open request, %a that of an artifact, %m that of a message to the caller, %u that of a copy that
// does not count.
var toolCases = []struct{ tool, good, bad string }{
	{"add_message", `{"to":"@me","subject":"a < b","body":"See & answer."}`, `{"to":"mac:nobody:x","subject":"s","body":"b"}`},
	{"add_memory", `{"prompt":"p","thought":"t","response":"r"}`, `{"prompt":"p","thought":"t"}`},
	{"checkpoint_save", `{"state":"{\"step\":3}","branch":"main"}`, `{"state":{"step":3}}`},
	{"checkpoint_resume", `{}`, `{"on_missing":"Empty"}`},
	{"memory_add", `{"text":"the <port> is 7717"}`, `{"text":" "}`},
	{"memory_alias", `{"term":"port","equivalents":["address"]}`, `{"term":"port","equivalents":[]}`},
	{"memory_reflect", `{"action":"pin","agent_id":"mac:claude:tally","target":"the <port> is 7717"}`, `{"action":"add","text":"x"}`},
	{"memory_search", `{"query":"port","explain":true}`, `{"query":"port","top_k":1000000000}`},
	{"memory_search_batch", `{"queries":["port","nothing"]}`, `{"queries":[]}`},
	{"query_raw_memories", `{"query":"p"}`, `{"query":"p","nResults":0}`},
	{"query_recent_turns", `{"limit":5}`, `{"limit":101}`},
	{"query_summaries", `{"query":"fixed"}`, `{"query":"x","agentIdentity":"a,b"}`},
	{"get_session_memories", `{"sessionId":"s"}`, `{}`},
	{"search", `{"query":"port"}`, `{"query":"port","kinds":["facts"]}`},
	{"add_summary", `{"title":"Fixed <it> & more","summary":"long","category":"bugfix"}`, `{"title":"t"}`},
	{"archive_message", `{"messageId":"%m"}`, `{"messageId":"%s"}`},
	{"artifact_get", `{"artifact_id":"%a"}`, `{"artifact_id":"art_x"}`},
	{"artifact_put", `{"kind":"note","content":"<a> & b\r\n"}`, `{"kind":"note","content":""}`},
	{"patch_submit", `{"stream":"s","content":"--- a\n"}`, `{"content":"--- a\n"}`},
	{"claim_list", `{"identity":"@me"}`, `{"identity":7}`},
	{"claim_why", `{"id":"%s"}`, `{"id":"evt_20260102T030405_0123456789ab"}`},
	{"event_ack", `{"event_id":"%s","status":"claimed"}`, `{"event_id":"%s","status":"done"}`},
	{"event_append", `{"type":"status","stream":"s","room":"r","body":"<b>&\u2028"}`, `{"type":"status"}`},
	{"event_list", `{"limit":5}`, `{"limit":5000}`},
	{"event_wait", `{"timeout_ms":0}`, `{"timeout_ms":-1}`},
	{"get_all_summaries", `{"agentIdentity":"@me","limit":5}`, `{"agentIdentity":"@@"}`},
	{"get_message", `{"messageId":"%m"}`, `{"messageId":"evt_x"}`},
	{"list_messages", `{"box":"all","includeArchived":true}`, `{"box":"trash"}`},
	{"mark_read", `{"messageId":"%m"}`, `{}`},
	{"merges_list", `{"limit":5}`, `{"kind":"x"}`},
	{"merges_undo", `{"id":"%u"}`, `{"id":"%s"}`},
	{"mesh_status", `{}`, `{"verbose":true}`},
	{"task_create", `{"project":"x","to_agent":"*","goal":"try <it>","branch":"main","base_commit":"1f3c2d0","done":"it works"}`, `{"project":"x"}`},
	{"task_list", `{"free":true}`, `{"cursor":"x"}`},
	{"whoami", `{}`, `{"me":1}`},
}

// TestEveryTool calls every tool, well and badly, with the official client,
// over each transport and protocol revision.
func TestEveryTool(t *testing.T) {
	if len(toolCases) != len(tools) {
		t.Fatalf("%d cases for %d tools", len(toolCases), len(tools))
	}
	connectors := map[string]func(*testing.T, *env) *mcp.ClientSession{
		"stdio": func(t *testing.T, e *env) *mcp.ClientSession { return connectStdio(t, e.svc, claude) },
		"stdio over socket": func(t *testing.T, e *env) *mcp.ClientSession {
			runDir, _ := listenSocket(t, e.svc)
			return connectStdio(t, dialSocket(t, ClientOptions{RunDir: runDir}), claude)
		},
	}
	for _, revision := range append(mcp.SupportedProtocolVersions(), "") {
		connectors["memory "+revision] = func(t *testing.T, e *env) *mcp.ClientSession {
			return connectMemory(t, newMCP(e.svc, MCPOptions{Session: claude, Toolsets: Toolsets{all: true}}), revision)
		}
		connectors["http "+revision] = func(t *testing.T, e *env) *mcp.ClientSession {
			s, tokens := newHTTP(t, e.svc, HTTPOptions{Toolsets: Toolsets{all: true}})
			hc := &http.Client{Transport: withToken{mustToken(t, tokens, claude)}}
			return connect(t, &mcp.StreamableClientTransport{Endpoint: s.URL(), HTTPClient: hc}, revision)
		}
	}
	for name, dial := range connectors {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			e := newEnv(t)
			id := e.do(codex, "event_append", `{"type":"task.request","stream":"s","room":"r","status":"open"}`)["event"].(map[string]any)["id"].(string)
			e.do(claude, "event_append", `{"type":"status","stream":"s","room":"r"}`) // so that it is known
			mail := e.do(codex, "add_message", `{"to":"mac:claude:tally","subject":"s","body":"b"}`)["messageId"].(string)
			art := e.do(codex, "artifact_put", `{"kind":"note","content":"<text>"}`)["artifact"].(map[string]any)["id"].(string)
			fill := strings.NewReplacer("%s", id, "%a", art, "%m", mail, "%u", copied(e))
			cs := dial(t, e)
			defer cs.Close()
			for _, c := range toolCases {
				checkGood(t, cs, c.tool, fill.Replace(c.good))
				checkBad(t, cs, c.tool, fill.Replace(c.bad))
			}
			if _, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "no_such_tool"}); err == nil {
				t.Error("an unknown tool is no protocol error")
			}
		})
	}
}

// copied appends one imported row twice, with two texts, and gives the id of
// the later.
func copied(e *env) (id string) {
	for _, body := range []string{"one text", "another text"} {
		op, err := logstream.NewOp("mac:claude:tally", logstream.Event{
			Type: "task.reply", Stream: "s", Room: "r", Body: body, Import: imported.Key{Source: "beads", ID: "bd-1", Part: "reply"},
		})
		if err != nil {
			e.t.Fatal(err)
		}
		done, err := e.log.Append(e.t.Context(), op)
		if err != nil {
			e.t.Fatal(err)
		}
		id = logstream.EventID(done[0].Ref)
	}
	return id
}

func checkGood(t *testing.T, cs *mcp.ClientSession, tool, args string) {
	t.Helper()
	res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(args)})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	if res.IsError || len(res.Content) != 1 {
		t.Errorf("%s: %s", tool, contentText(res))
		return
	}
	var fromText any
	if err := json.Unmarshal([]byte(contentText(res)), &fromText); err != nil {
		t.Errorf("%s: text is no JSON: %v", tool, err)
	}
	if _, ok := fromText.(map[string]any); !ok || !reflect.DeepEqual(fromText, res.StructuredContent) {
		t.Errorf("%s: text and structured content differ:\n%v\n%v", tool, fromText, res.StructuredContent)
	}
	if path := nullArray("", fromText); path != "" {
		t.Errorf("%s: %s is null", tool, path)
	}
	if strings.Contains(contentText(res), `\u003c`) {
		t.Errorf("%s: HTML escapes in the text: %s", tool, contentText(res))
	}
}

func checkBad(t *testing.T, cs *mcp.ClientSession, tool, args string) {
	t.Helper()
	res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(args)})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	e, ok := ParseError([]byte(contentText(res)))
	if !res.IsError || res.StructuredContent != nil || !ok || e.Hint == "" || len(contentText(res)) > 1000 {
		t.Errorf("%s: error %v, structured %v, text %s", tool, res.IsError, res.StructuredContent, contentText(res))
	}
}

func contentText(res *mcp.CallToolResult) string {
	if len(res.Content) == 0 {
		return ""
	}
	text, ok := res.Content[0].(*mcp.TextContent)
	if !ok {
		return fmt.Sprintf("%T", res.Content[0])
	}
	return text.Text
}

// nullArray finds a null where the contract has a list or an object; only
// times and the end of pages may be null.
func nullArray(path string, v any) string {
	switch v := v.(type) {
	case nil:
		if !strings.HasSuffix(path, ".last_seen") && !strings.HasSuffix(path, ".timestamp") && !strings.HasSuffix(path, ".nextOffset") {
			return path
		}
	case map[string]any:
		for k, sub := range v {
			if p := nullArray(path+"."+k, sub); p != "" {
				return p
			}
		}
	case []any:
		for _, sub := range v {
			if p := nullArray(path+"[]", sub); p != "" {
				return p
			}
		}
	}
	return ""
}

// connectStdio runs ServeStdio on pipes, as a client that starts the program
// would.
func connectStdio(t testing.TB, b Backend, s Session) *mcp.ClientSession {
	t.Helper()
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	ended := make(chan error, 1)
	ctx := context.WithoutCancel(t.Context())
	go func() {
		ended <- ServeStdio(ctx, toServer, fromServer, b, MCPOptions{Session: s, Toolsets: Toolsets{all: true}})
	}()
	cs := connect(t, &mcp.IOTransport{Reader: toClient, Writer: fromClient}, "")
	t.Cleanup(func() {
		cs.Close()
		fromClient.Close()
		if err := <-ended; err != nil {
			t.Errorf("stdio server ended with %v", err)
		}
	})
	return cs
}

// TestPanicIsAnAnswer: a panic in a tool is an answer, not the end.
func TestPanicIsAnAnswer(t *testing.T) {
	cs := connectMemory(t, newMCP(&brokenBackend{}, MCPOptions{}), "")
	for range 2 {
		res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "whoami"})
		if err != nil || !res.IsError || !strings.Contains(contentText(res), string(CodeBusy)) {
			t.Fatalf("%v, %v", res, err)
		}
	}
	e := newEnv(t)
	e.svc.d.Mesh = nil // every call panics inside
	if bad := e.refused(claude, "whoami", `{}`); bad.Code != CodeBusy || strings.Contains(bad.Message, "nil") {
		t.Errorf("%s", bad.JSON())
	}
}

// TestNumbersAsGiven: whole numbers never pass through a float, and 64-bit
// ones leave as strings.
func TestNumbersAsGiven(t *testing.T) {
	e := newEnv(t)
	cs := connectMemory(t, newMCP(e.svc, MCPOptions{Session: claude}), "")
	res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "get_all_summaries", Arguments: json.RawMessage(`{"offset":9007199254740993}`)})
	if err != nil || !strings.Contains(contentText(res), "not 9007199254740993") {
		t.Errorf("%s, %v", contentText(res), err)
	}
	ev := e.do(claude, "event_append", `{"type":"status","stream":"s","room":"r","metadata":{"n":9007199254740993,"z":1,"a":2}}`)["event"].(map[string]any)
	for _, field := range []string{"seq", "origin_seq", "hlc"} {
		if _, ok := ev[field].(string); !ok {
			t.Errorf("%s is %T", field, ev[field])
		}
	}
	out, bad := e.svc.Call(t.Context(), claude, "event_list", nil, "")
	if bad != nil || !strings.Contains(string(out), `"metadata":{"n":9007199254740993,"z":1,"a":2}`) {
		t.Errorf("metadata did not come through as given: %s %v", out, bad)
	}
	for _, limit := range []string{"5", "5.0", "5e0"} {
		e.do(claude, "event_list", `{"limit":`+limit+`}`)
	}
}

// TestResultShapes pins the keys of every result against the contract.
func TestResultShapes(t *testing.T) {
	e := newEnv(t)
	keys := func(v any) string {
		var k []string
		for name := range v.(map[string]any) {
			k = append(k, name)
		}
		slices.Sort(k)
		return strings.Join(k, " ")
	}
	check := func(what string, v any, want string) {
		t.Helper()
		if got := keys(v); got != want {
			t.Errorf("%s has\n%s, want\n%s", what, got, want)
		}
	}
	check("whoami", e.do(claude, "whoami", ``), "agent bound host identity mesh project replica version")
	app := e.do(claude, "event_append", `{"type":"task.request","stream":"s","room":"r","topic":"t","to_agent":"@mac:codex:tally","correlation_id":"c","branch":"b","base_commit":"abc","status":"open","body":"x","metadata":{"k":1},"expires_at":"2027-01-01T00:00:00+01:00"}`)
	check("event_append", app, "durable_on event not_yet note replayed") // note: the recipient is not known here
	check("event", app["event"], "artifact_ids base_commit body branch correlation_id created_at expires_at from_agent hlc id metadata origin origin_id origin_seq room seq status stream to_agent topic type")
	ev := app["event"].(map[string]any)
	if ev["to_agent"] != "mac:codex:tally" || ev["expires_at"] != "2026-12-31T23:00:00.000Z" || ev["origin"] != "mac" || ev["from_agent"] != "mac:claude:tally" {
		t.Errorf("%v", ev)
	}
	check("event_list", e.do(claude, "event_list", `{}`), "count events has_more next_cursor")
	check("event_wait", e.do(claude, "event_wait", `{"timeout_ms":0}`), "count events has_more next_cursor timed_out")
	ack := e.do(codex, "event_ack", `{"event_id":"`+ev["id"].(string)+`","status":"claimed"}`)
	check("event_ack", ack, "claim durable_on event not_yet outcome")
	for _, field := range []string{"holder", "since", "lease_ends", "fence", "fence_final", "grade", "unheard"} {
		if _, ok := ack["claim"].(map[string]any)[field]; !ok {
			t.Errorf("claim without %s: %v", field, ack["claim"])
		}
	}
	list := e.do(claude, "claim_list", `{}`)
	check("claim_list", list, "claims count has_more")
	if row := list["claims"].([]any)[0].(map[string]any); row["task"] != "c" || row["holder"] != "mac:codex:tally" {
		t.Errorf("claim row %v", row)
	}
	check("add_summary", e.do(claude, "add_summary", `{"title":"t","summary":"s","sessionId":"x"}`), "id sourceAgentIdentities timestamp")
	sums := e.do(claude, "get_all_summaries", `{}`)
	check("get_all_summaries", sums, "count limit offset summaries total")
	check("summary", sums["summaries"].([]any)[0], "author category id origin sessionId sourceAgentIdentities summary timestamp title")
	st := e.do(Session{}, "mesh_status", ``)
	check("mesh_status", st, "aside clock held label mesh peers quarantined replica search views")
	check("peer", st["peers"].([]any)[0], "address clock_offset_ms entries_ahead entries_behind id label last_seen reachable")
	check("view", st["views"].(map[string]any)["logstream"], "digest rows")
}

// TestCancelReachesTools: a cancelled MCP call ends the wait behind it.
func TestCancelReachesTools(t *testing.T) {
	e := newEnv(t)
	cs := connectMemory(t, newMCP(e.svc, MCPOptions{Session: claude}), "")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "event_wait", Arguments: map[string]any{}})
		done <- err
	}()
	e.untilWaiting(1)
	cancel()
	if err := <-done; err == nil {
		t.Error("a cancelled call has an answer")
	}
	e.untilWaiting(0)
}
