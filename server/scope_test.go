package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// caller calls tools as one session, over some transport.
type caller func(t *testing.T, tool, args string) (out string, bad *Error)

// transports are the ways in which a client reaches the tools.
var transports = map[string]func(*testing.T, *env, Session) caller{
	"in process": func(_ *testing.T, e *env, s Session) caller {
		return func(t *testing.T, tool, args string) (string, *Error) {
			out, bad := e.svc.Call(t.Context(), s, tool, json.RawMessage(args), "")
			return string(out), bad
		}
	},
	"stdio": func(t *testing.T, e *env, s Session) caller { return overMCP(connectStdio(t, e.svc, s)) },
	"http": func(t *testing.T, e *env, s Session) caller {
		srv, tokens := newHTTP(t, e.svc, HTTPOptions{Toolsets: Toolsets{all: true}})
		hc := &http.Client{Transport: withToken{mustToken(t, tokens, s)}}
		cs := connect(t, &mcp.StreamableClientTransport{Endpoint: srv.URL(), HTTPClient: hc}, "")
		t.Cleanup(func() { cs.Close() })
		return overMCP(cs)
	},
}

func overMCP(cs *mcp.ClientSession) caller {
	return func(t *testing.T, tool, args string) (string, *Error) {
		t.Helper()
		res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(args)})
		if err != nil {
			t.Fatalf("%s %s: %v", tool, args, err)
		}
		text := contentText(res)
		if !res.IsError {
			return text, nil
		}
		bad, ok := ParseError([]byte(text))
		if !ok || res.StructuredContent != nil {
			t.Fatalf("%s %s: error of another shape: %s", tool, args, text)
		}
		return "", bad
	}
}

// scoped are the seven tools of the scope matrix: their arguments besides the
// scope, and what an absent scope means.
var scoped = []struct {
	tool, args string
	facts      bool   // agentIdentity chooses namespaces, agent_id names one
	absent     string // markers seen without any scope
}{
	{"get_all_summaries", ``, false, "claude codex both"},
	{"query_summaries", `"query":"zebra"`, false, "claude codex both"},
	{"query_raw_memories", `"query":"zebra"`, false, "claude codex both"},
	{"get_session_memories", `"sessionId":"s"`, false, "claude codex both"},
	{"query_recent_turns", ``, false, "claude both"},
	{"memory_search", `"query":"zebra"`, true, "claude shared"},
	{"memory_search_batch", `"queries":["zebra","zebra stripes"]`, true, "claude shared"},
}

// seeScoped fills a log with records of two identities, marked by words.
func seedScoped(e *env) {
	for s, who := range map[*Session]string{&claude: "claude", &codex: "codex"} {
		e.do(*s, "add_summary", `{"title":"zebra mark-`+who+`","summary":"x"}`)
		e.do(*s, "add_memory", `{"sessionId":"s","prompt":"zebra mark-`+who+`","thought":"secret thought of `+who+`","response":"r"}`)
		e.do(*s, "memory_add", `{"text":"zebra mark-`+who+`"}`)
	}
	both := `"sourceAgentIdentities":["@mac:claude:tally","mac:codex:tally"]`
	e.do(claude, "add_summary", `{"title":"zebra mark-both","summary":"x",`+both+`}`)
	e.do(claude, "add_memory", `{"sessionId":"s","prompt":"zebra mark-both","thought":"t","response":"r",`+both+`}`)
	e.do(claude, "memory_add", `{"agent_id":"__shared__","text":"zebra mark-shared"}`)
	e.do(claude, "memory_add", `{"agent_id":" mac:claude:tally","text":"zebra mark-padded"}`)
}

func marks(out string) string {
	var found []string
	for _, m := range []string{"claude", "codex", "both", "shared", "padded"} {
		if strings.Contains(out, "mark-"+m) {
			found = append(found, m)
		}
	}
	return strings.Join(found, " ")
}

// TestI8_ScopeMatrix: every tool that reads by identity, with every kind of
// scope, bound and unbound, over every transport.
func TestI8_ScopeMatrix(t *testing.T) {
	for name, dial := range transports {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			e := newEnv(t)
			seedScoped(e)
			bound, unbound := dial(t, e, claude), dial(t, e, Session{})
			for _, row := range scoped {
				t.Run(row.tool, func(t *testing.T) { scopeRow(t, row.tool, row.args, row.facts, row.absent, bound, unbound) })
			}
		})
	}
}

func scopeRow(t *testing.T, tool, rest string, facts bool, absent string, bound, unbound caller) {
	args := func(scope string) string {
		return "{" + strings.Trim(rest+","+scope, ",") + "}"
	}
	see := func(call caller, scope, want string) string {
		t.Helper()
		out, bad := call(t, tool, args(scope))
		if bad != nil {
			t.Errorf("%s: %s", scope, bad.JSON())
			return ""
		}
		if got := marks(out); got != want {
			t.Errorf("%s: sees %q, want %q", scope, got, want)
		}
		return out
	}
	refuse := func(call caller, scope string, code Code, field string) {
		t.Helper()
		out, bad := call(t, tool, args(scope))
		if bad == nil {
			t.Errorf("%s: answered, sees %q", scope, marks(out))
			return
		}
		if bad.Code != code || bad.Field != field || bad.Hint == "" {
			t.Errorf("%s: %s, want code %s, field %s", scope, bad.JSON(), code, field)
		}
	}
	own, other, all := "claude both", "codex both", "claude codex both"
	if facts {
		own, other, all = "claude shared", "codex shared", "claude codex shared padded"
	}
	see(bound, ``, absent)
	see(bound, `"agentIdentity":"@me"`, own)
	see(bound, `"agentIdentity":"@mac:claude:tally"`, own)
	see(bound, `"agentIdentity":"mac:codex:tally"`, other)
	see(bound, `"agentIdentity":"@mac:codex:tally"`, other)
	see(bound, `"agentIdentity":"all"`, all)
	see(unbound, `"agentIdentity":"all"`, all)
	see(unbound, `"agentIdentity":"@mac:codex:tally"`, other)
	for _, part := range []string{"mac:codex", "codex", "mac:codex:tall", "MAC:codex:tally", "mac:codex:tally2"} { // whole tokens, in their case
		want := ""
		if facts {
			want = "shared"
		}
		out := see(bound, `"agentIdentity":"`+part+`"`, want)
		if !facts && !strings.Contains(out, `"count":0`) || !strings.Contains(out, `"note":`) || strings.HasPrefix(part, "mac:codex") && !strings.Contains(out, "Near names") {
			t.Errorf("unknown %s: %.300s", part, out)
		}
	}
	refuse(unbound, `"agentIdentity":"@me"`, CodeIdentityUnbound, "agentIdentity")
	for _, bad := range []string{`""`, `" "`, `" @me"`, `"@me "`, `"@"`, `"@ x"`, `"@@x"`, `"a,b"`, `"All"`, `"ALL"`, `"@all"`, `"@ME"`, `"me"`, `"*"`, `"a\tb"`, `null`, `7`, `true`, `[]`, `["@me"]`, `{}`} {
		refuse(bound, `"agentIdentity":`+bad, CodeInvalidArgument, "agentIdentity")
	}
	refuse(bound, `"agentIdentity":"`+strings.Repeat("x", 300)+`"`, CodeTooLarge, "agentIdentity")
	refuse(bound, `"from":"@me"`, CodeUnknownField, "from")
	refuse(bound, `"userId":"x"`, CodeUnknownField, "userId")
	switch tool {
	case "query_recent_turns":
		refuse(unbound, ``, CodeIdentityUnbound, "agentIdentity")
	case "memory_search", "memory_search_batch":
		refuse(unbound, ``, CodeIdentityUnbound, "agent_id")
		namespaceRow(t, see, refuse, bound, unbound)
	default:
		see(unbound, ``, all)
		refuse(bound, `"agent_id":"x"`, CodeUnknownField, "agent_id")
	}
}

// namespaceRow is agent_id: a namespace, to the byte.
func namespaceRow(t *testing.T, see func(caller, string, string) string, refuse func(caller, string, Code, string), bound, unbound caller) {
	see(bound, `"agent_id":"mac:codex:tally"`, "codex")
	see(unbound, `"agent_id":"mac:codex:tally"`, "codex")
	see(bound, `"agent_id":"__shared__"`, "shared")
	see(bound, `"agent_id":" mac:claude:tally"`, "padded")
	see(bound, `"agent_id":"MAC:CLAUDE:TALLY"`, "")
	for _, name := range []string{"@me", "all"} {
		out := see(bound, `"agent_id":"`+name+`"`, "")
		if !strings.Contains(out, "literally named") || !strings.Contains(out, `"namespaces":["`+name+`"]`) {
			t.Errorf("agent_id %s: %.400s", name, out)
		}
	}
	out := see(bound, ``, "claude shared")
	if !strings.Contains(out, `"scope":"own","namespaces":["mac:claude:tally","__shared__"]`) {
		t.Errorf("the namespaces searched are not said: %.400s", out)
	}
	for _, bad := range []string{`""`, `" \t\n"`, `null`, `7`, `true`, `[]`, `{}`} {
		refuse(bound, `"agent_id":`+bad, CodeInvalidArgument, "agent_id")
		refuse(bound, `"agentIdentity":"all","agent_id":`+bad, CodeInvalidArgument, "agent_id")
	}
	refuse(bound, `"agent_id":"x","agentIdentity":"all"`, CodeInvalidArgument, "agentIdentity")
	refuse(bound, `"agent_id":"`+strings.Repeat("x", 513)+`"`, CodeTooLarge, "agent_id")
}

// TestI8_ThoughtsStayWithTheirOwner: only the own turns show a thought, and in
// query_recent_turns only when it is asked for.
func TestI8_ThoughtsStayWithTheirOwner(t *testing.T) {
	overAll(t, func(t *testing.T, e *env, call caller) {
		seedScoped(e)
		for _, c := range []struct {
			tool, args string
			want       []string
		}{
			{"get_session_memories", `{"sessionId":"s"}`, []string{"claude"}},
			{"query_raw_memories", `{"query":"zebra"}`, []string{"claude"}},
			{"query_recent_turns", `{"agentIdentity":"all"}`, nil},
			{"query_recent_turns", `{"agentIdentity":"all","detail":"full"}`, nil},
			{"query_recent_turns", `{"agentIdentity":"all","projection":"private"}`, nil},
			{"query_recent_turns", `{"agentIdentity":"all","detail":"full","projection":"private"}`, []string{"claude"}},
			{"query_raw_memories", `{"query":"thought"}`, nil},
			{"search", `{"query":"thought secret"}`, nil},
		} {
			out, bad := call(t, c.tool, c.args)
			if bad != nil {
				t.Fatal(bad)
			}
			var got []string
			for _, who := range []string{"claude", "codex"} {
				if strings.Contains(out, "secret thought of "+who) {
					got = append(got, who)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s %s shows thoughts of %v, want %v", c.tool, c.args, got, c.want)
			}
		}
	})
}

// TestRecentTurnsPages: next_before neither repeats nor skips.
func TestRecentTurnsPages(t *testing.T) {
	overAll(t, func(t *testing.T, _ *env, call caller) {
		for i := range 25 {
			call.ok(t, "add_memory", fmt.Sprintf(`{"sessionId":"s","prompt":"p%02d","thought":"t","response":"r","timestamp":"2026-01-01T00:00:%02dZ"}`, i, i/3))
		}
		seen, before := map[string]bool{}, ""
		for pages := 0; ; pages++ {
			page := call.ok(t, "query_recent_turns", `{"limit":4`+before+`}`)
			for _, row := range page["turns"].([]any) {
				p := row.(map[string]any)["prompt"].(string)
				if seen[p] {
					t.Errorf("%s twice", p)
				}
				seen[p] = true
			}
			next, ok := page["next_before"]
			if !ok {
				break
			}
			before = `,"before":` + string(encode(next))
			if pages > 10 {
				t.Fatal("no end")
			}
		}
		if len(seen) != 25 {
			t.Errorf("%d turns on the pages", len(seen))
		}
	})
}
