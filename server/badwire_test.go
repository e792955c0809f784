package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tallystick/oplog"
	"tallystick/query/logstream"
)

// wire is one way to call tools.
type wire struct {
	t    *testing.T
	call func(ctx context.Context, tool, args string) (text string, isError bool, err error)
}

func (w *wire) ok(tool, args string) map[string]any {
	w.t.Helper()
	text, isError, err := w.call(w.t.Context(), tool, args)
	if err != nil || isError {
		w.t.Fatalf("%s %.200s: %s, %v", tool, args, text, err)
	}
	return parse(w.t, []byte(text))
}

func (w *wire) bad(tool, args string, code Code, field string) {
	w.t.Helper()
	text, isError, err := w.call(w.t.Context(), tool, args)
	if e, ok := ParseError([]byte(text)); err != nil || !isError || !ok || e.Code != code || e.Field != field || e.Hint == "" {
		w.t.Errorf("%s %.200s: %.300s, %v; want %s of %s", tool, args, text, err, code, field)
	}
}

// eachWire runs a test through the service, MCP over stdio by way of the
// socket, and MCP over HTTP, each with a replica of its own.
func eachWire(t *testing.T, fn func(t *testing.T, e *env, w *wire)) {
	overMCP := func(t *testing.T, cs *mcp.ClientSession) *wire {
		return &wire{t, func(ctx context.Context, tool, args string) (string, bool, error) {
			res, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(args)})
			if err != nil {
				return "", false, err
			}
			return contentText(res), res.IsError, nil
		}}
	}
	for name, dial := range map[string]func(*testing.T, *env) *wire{
		"service": func(t *testing.T, e *env) *wire {
			return &wire{t, func(ctx context.Context, tool, args string) (string, bool, error) {
				out, bad := e.svc.Call(ctx, claude, tool, json.RawMessage(args), "")
				if bad != nil {
					return string(bad.JSON()), true, ctx.Err()
				}
				return string(out), false, nil
			}}
		},
		"stdio": func(t *testing.T, e *env) *wire {
			runDir, _ := listenSocket(t, e.svc)
			return overMCP(t, connectStdio(t, dialSocket(t, ClientOptions{RunDir: runDir}), claude))
		},
		"http": func(t *testing.T, e *env) *wire {
			s, tokens := newHTTP(t, e.svc, HTTPOptions{Toolsets: Toolsets{all: true}})
			hc := &http.Client{Transport: withToken{mustToken(t, tokens, claude)}}
			cs := connect(t, &mcp.StreamableClientTransport{Endpoint: s.URL(), HTTPClient: hc}, "")
			t.Cleanup(func() { cs.Close() })
			return overMCP(t, cs)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			fn(t, e, dial(t, e))
		})
	}
}

// TestBadInput_Bodies: NUL, lone surrogates and what is no UTF-8 are refused
// and nothing is stored; what cannot be seen is stored as given and marked.
func TestBadInput_Bodies(t *testing.T) {
	eachWire(t, func(t *testing.T, e *env, w *wire) {
		e.speak(claude)
		before := e.entries()
		for _, body := range []string{`a\u0000b`, `\ud800`, `x\udc00\ud800`, `\ud83d`} {
			w.bad("event_append", `{"type":"note","stream":"s","room":"r","body":"`+body+`"}`, CodeInvalidArgument, "body")
			w.bad("add_message", `{"to":"@me","subject":"s","body":"`+body+`"}`, CodeInvalidArgument, "body")
			w.bad("artifact_put", `{"kind":"note","content":"`+body+`"}`, CodeInvalidArgument, "content")
		}
		if e.entries() != before {
			t.Error("something that was refused is stored")
		}
		for _, body := range []string{"a\u200bb", "\u202eright to left", "tag \U000E0041", "\u2066isolate\u2069"} {
			raw, _ := json.Marshal(body)
			ev := w.ok("event_append", `{"type":"note","stream":"s","room":"r","body":`+string(raw)+`}`)["event"].(map[string]any)
			if ev["body"] != body || ev["invisible"] != true {
				t.Errorf("%+q: %+v", body, ev)
			}
			id := w.ok("add_message", `{"to":"@me","subject":"s","body":`+string(raw)+`}`)["messageId"].(string)
			if m := w.ok("get_message", `{"messageId":"`+id+`"}`); m["body"] != body || m["invisible"] != true {
				t.Errorf("%+q: %v", body, m)
			}
		}
		for _, body := range []string{"plain", "caf\u00e9 \U0001F600", "heart \u2764\ufe0f"} {
			raw, _ := json.Marshal(body)
			if ev := w.ok("event_append", `{"type":"note","stream":"s","room":"r","body":`+string(raw)+`}`)["event"].(map[string]any); ev["body"] != body || ev["invisible"] == true {
				t.Errorf("%+q: %v", body, ev)
			}
		}
	})
}

// TestBadInput_LongCorrelation: ten thousand events of one correlation are
// walked page by page, each once and in order, and waited for.
func TestBadInput_LongCorrelation(t *testing.T) {
	const n = 10_000
	eachWire(t, func(t *testing.T, e *env, w *wire) {
		for done := 0; done < n; done += 500 {
			ops := make([]oplog.Op, 500)
			for i := range ops {
				op, err := logstream.NewOp("mac:codex:tally", logstream.Event{Type: "note", Stream: "s", Room: "r", Correlation: "busy", Body: fmt.Sprint(done + i)})
				if err != nil {
					t.Fatal(err)
				}
				ops[i] = op
			}
			if _, err := e.log.Append(t.Context(), ops...); err != nil {
				t.Fatal(err)
			}
		}
		at, cursor := 0, `"order":"asc"`
		for {
			m := w.ok("event_list", `{"correlation_id":"busy","limit":500,`+cursor+`}`)
			for _, row := range m["events"].([]any) {
				if got := row.(map[string]any)["body"]; got != fmt.Sprint(at) {
					t.Fatalf("event %v, want %d", got, at)
				}
				at++
			}
			cursor = fmt.Sprintf(`"cursor":%q`, m["next_cursor"])
			if m["has_more"] != true {
				break
			}
		}
		if at != n {
			t.Fatalf("walked %d events", at)
		}
		if m := w.ok("event_wait", `{"correlation_id":"busy","timeout_ms":0,`+cursor+`}`); m["timed_out"] != true {
			t.Errorf("behind the last: %v", m)
		}
		w.ok("event_append", `{"type":"note","stream":"s","room":"r","correlation_id":"busy","body":"more"}`)
		if m := w.ok("event_wait", `{"correlation_id":"busy","timeout_ms":60000,`+cursor+`}`); bodies(m) != "more" {
			t.Errorf("behind the last: %v", m)
		}
	})
}

// TestBadInput_AcksAndReplies: acks of acks and replies that go round in a
// circle are events like others: each is stored once, all stay in the
// correlation of the first, and nobody is answered by the machine.
func TestBadInput_AcksAndReplies(t *testing.T) {
	eachWire(t, func(t *testing.T, e *env, w *wire) {
		root := e.request(``)
		e.speak(claude)
		before, last := e.entries(), root
		for range 20 {
			mine := w.ok("event_ack", `{"event_id":"`+last+`","body":"seen"}`)["event"].(map[string]any)
			theirs := e.do(codex, "event_ack", `{"event_id":"`+mine["id"].(string)+`","body":"seen"}`)["event"].(map[string]any)
			if theirs["to_agent"] != "mac:claude:tally" || theirs["correlation_id"] != root || theirs["metadata"].(map[string]any)["ack_of"] != mine["id"] {
				t.Fatalf("%v", theirs)
			}
			last = theirs["id"].(string)
		}
		if n := e.entries() - before; n != 40 {
			t.Errorf("%d entries of 40 acks", n)
		}
		if m := w.ok("event_ack", `{"event_id":"`+last+`","status":"claimed"}`); m["outcome"] != "won" {
			t.Errorf("the task behind forty acks: %v", m)
		}
		if m := e.ack(codex, root, "claimed"); m["outcome"] != "held" {
			t.Errorf("the same task by its request: %v", m)
		}
		// Replies: each thread is named after the other's.
		a := w.ok("add_message", `{"to":"mac:codex:tally","subject":"a","body":"a","threadId":"b"}`)["messageId"].(string)
		b := e.do(codex, "add_message", `{"to":"mac:claude:tally","subject":"b","body":"b","threadId":"`+a+`"}`)["messageId"].(string)
		c := w.ok("add_message", `{"to":"mac:codex:tally","subject":"c","body":"c","inReplyTo":"`+b+`"}`)["messageId"].(string)
		d := e.do(codex, "add_message", `{"to":"mac:claude:tally","subject":"d","body":"d","inReplyTo":"`+a+`"}`)["messageId"].(string)
		for thread, want := range map[string][]string{a: {c, b}, "b": {d, a}} {
			m := w.ok("list_messages", `{"box":"all","threadId":"`+thread+`"}`)
			if got := messageIDs(m); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("thread %s: %v, want %v", thread, got, want)
			}
		}
		w.bad("add_message", `{"to":"@me","subject":"s","body":"b","inReplyTo":"evt_20260101T000000_0123456789ab"}`, CodeNotFound, "inReplyTo")
		w.bad("event_ack", `{"event_id":"evt_20260101T000000_0123456789ab"}`, CodeNotFound, "event_id")
	})
}

// TestBadInput_Unknown: an artifact that is not known here yet, and a cursor
// of another mesh, are refused by name; once the artifact has arrived it does.
func TestBadInput_Unknown(t *testing.T) {
	eachWire(t, func(t *testing.T, e *env, w *wire) {
		other := newEnvOf(t, 9)
		art := artifactOf(t, other.do(claude, "artifact_put", `{"kind":"note","content":"theirs"}`))["id"].(string)
		cursor := other.do(claude, "event_list", `{}`)["next_cursor"].(string)
		named := `{"type":"note","stream":"s","room":"r","artifact_ids":["` + art + `"]}`
		e.speak(claude)
		before := e.entries()
		w.bad("event_append", named, CodeNotFound, "artifact_ids")
		w.bad("artifact_get", `{"artifact_id":"`+art+`"}`, CodeNotFound, "artifact_id")
		for _, tool := range []string{"event_list", "event_wait"} {
			w.bad(tool, `{"cursor":"`+cursor+`"}`, CodeForeignCursor, "cursor")
			w.bad(tool, `{"cursor":"`+cursor[:len(cursor)-4]+`"}`, CodeUnknownCursor, "cursor")
		}
		if e.entries() != before {
			t.Error("something that was refused is stored")
		}
		carry(t, other.log, e.log)
		if m := w.ok("event_append", named); fmt.Sprint(m["event"].(map[string]any)["artifact_ids"]) != "["+art+"]" {
			t.Errorf("%v", m)
		}
		if m := w.ok("artifact_get", `{"artifact_id":"`+art+`"}`); m["artifact"].(map[string]any)["content_here"] != false || m["content"] != nil {
			t.Errorf("its content is not here: %v", m)
		}
	})
}

// TestBadInput_CancelledWait: a client that gives up, or goes, leaves no
// waiting call behind, and what it waited for is there for the next.
func TestBadInput_CancelledWait(t *testing.T) {
	eachWire(t, func(t *testing.T, e *env, w *wire) {
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				_, _, err := w.call(ctx, "event_wait", `{"to_agent":"@me","timeout_ms":300000}`)
				done <- err
			}()
			e.untilWaiting(1)
			cancel()
			if err := <-done; err == nil {
				t.Error("a cancelled wait has an answer")
			}
			e.untilWaiting(0)
		}
		noHub(t)
		e.append(codex, "mac:claude:tally", "still here")
		if m := w.ok("event_wait", `{"to_agent":"@me"}`); bodies(m) != "still here" {
			t.Errorf("%v", m)
		}
	})
	e := newEnv(t)
	s, tokens := newHTTP(t, e.svc, HTTPOptions{})
	for _, revision := range mcp.SupportedProtocolVersions() {
		hc := &http.Client{Transport: withToken{mustToken(t, tokens, claude)}}
		cs := connect(t, &mcp.StreamableClientTransport{Endpoint: s.URL(), HTTPClient: hc}, revision)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "event_wait", Arguments: json.RawMessage(`{"timeout_ms":300000}`)})
			done <- err
		}()
		e.untilWaiting(1)
		cancel()
		if err := <-done; err == nil {
			t.Errorf("%s: a cancelled wait has an answer", revision)
		}
		e.untilWaiting(0)
		cs.Close()
	}
	// A client that goes altogether.
	r := follow(t, s.URL(), mustToken(t, tokens, claude), "to_agent=@me", nil)
	e.untilWaiting(1)
	r.close()
	e.untilWaiting(0)
	raw := startRawStdio(t, e.svc)
	raw.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"event_wait","arguments":{"to_agent":"@me","timeout_ms":300000}}}`)
	e.untilWaiting(1)
	raw.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	e.untilWaiting(0)
}

// TestA2_IdempotencyOnAnotherReplica: a key is known wherever its first result
// has arrived, for appends, acks, artifacts and patches of the same identity.
func TestA2_IdempotencyOnAnotherReplica(t *testing.T) {
	e := newEnv(t)
	p := newPeer(t, e.wall.Load)
	nas := e.nas(p)
	nas.mesh.label = "mac" // as after the machine's store was put on another disk: one identity, two logs
	nas.svc.d.Blobs = p.log
	root := e.request(``)
	e.do(claude, "artifact_put", `{"kind":"note","content":"seen"}`)
	carry(t, e.log, p.log)
	calls := []struct{ tool, args string }{
		{"event_append", `{"type":"note","stream":"s","room":"r","idempotency_key":"k"}`},
		{"event_ack", `{"event_id":"` + root + `","status":"blocked","idempotency_key":"k"}`},
		{"artifact_put", `{"kind":"note","content":"text","idempotency_key":"k"}`},
		{"patch_submit", `{"stream":"s","content":"--- a\n","idempotency_key":"k"}`},
		{"add_message", `{"to":"@me","subject":"s","body":"b","idempotency_key":"k"}`},
	}
	name := func(m map[string]any) string {
		for _, field := range []string{"event", "artifact"} {
			if v, ok := m[field].(map[string]any); ok {
				return v["id"].(string)
			}
		}
		return fmt.Sprint(m["messageId"])
	}
	first := make([]string, len(calls))
	for i, c := range calls {
		first[i] = name(e.do(claude, c.tool, c.args))
	}
	carry(t, e.log, p.log)
	before := nas.entries()
	for i, c := range calls {
		m := nas.do(claude, c.tool, strings.Replace(c.args, `"content":"text"`, `"content":"other"`, 1))
		if m["replayed"] != true || name(m) != first[i] {
			t.Errorf("%s on the other replica: %v, want %s", c.tool, m, first[i])
		}
	}
	if nas.entries() != before {
		t.Errorf("%d entries more", nas.entries()-before)
	}
}
