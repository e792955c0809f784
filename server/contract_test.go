package server

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The rows of docs/memory-contract.md that no other test names, in process and
// over MCP by stdio and HTTP.

// TestA1_EveryTool: what each of the seven memory tools requires, takes and
// promises, as tools/list tells it, and the keys of its answer.
func TestA1_EveryTool(t *testing.T) {
	rows := []struct {
		tool               string
		required, optional string
		readOnly, idem     bool
		args               string
		keys               string // that an answer always has
	}{
		{"memory_search", "query", "agent_id top_k explain min_confidence confidence_weight", true, true, `{"query":"x"}`, "agent_id query count facts retrieval index scope namespaces"},
		{"memory_search_batch", "queries", "agent_id top_k min_confidence confidence_weight", true, true, `{"queries":["x"]}`, "agent_id count merged per_query retrieval index scope namespaces"},
		{"memory_add", "text", "agent_id confidence", false, false, `{"text":"x"}`, "agent_id stored fact_id confidence near_duplicates"},
		{"memory_alias", "term equivalents", "agent_id", false, false, `{"term":"t","equivalents":["e"]}`, "agent_id term equivalents stored"},
		{"checkpoint_save", "", "agent_id state", false, false, `{"state":"{}"}`, "agent_id checkpoint_id created_at"},
		{"checkpoint_resume", "", "agent_id on_missing", true, true, `{"on_missing":"empty"}`, "found agent_id"},
		{"memory_reflect", "action", "agent_id agent text target confidence", false, false, `{"action":"add","agent_id":"n","text":"x"}`, "action agent ok fact_id confidence"},
	}
	type listed struct {
		Name        string
		Description string
		InputSchema struct {
			Type       string
			Properties map[string]struct{ Description string }
			Required   []string
			More       *bool `json:"additionalProperties"`
		}
		OutputSchema any
		Annotations  map[string]any
	}
	check := func(t *testing.T, tools []listed) {
		for _, row := range rows {
			i := slices.IndexFunc(tools, func(l listed) bool { return l.Name == row.tool })
			if i < 0 {
				t.Errorf("%s is not listed", row.tool)
				continue
			}
			l := tools[i]
			want := strings.Fields(row.required)
			slices.Sort(want)
			slices.Sort(l.InputSchema.Required)
			if l.InputSchema.Type != "object" || !slices.Equal(l.InputSchema.Required, want) || l.InputSchema.More == nil || *l.InputSchema.More || l.OutputSchema != nil {
				t.Errorf("%s: %+v", row.tool, l.InputSchema)
			}
			for _, p := range strings.Fields(row.required + " " + row.optional) {
				if l.InputSchema.Properties[p].Description == "" {
					t.Errorf("%s: %s is missing or not described", row.tool, p)
				}
			}
			a := l.Annotations
			if a["readOnlyHint"] == true != row.readOnly || a["idempotentHint"] == true != row.idem || a["destructiveHint"] == true || a["openWorldHint"] != false {
				t.Errorf("%s: annotations %v", row.tool, a)
			}
			if n := len([]rune(l.Description)); n == 0 || n > 800 {
				t.Errorf("%s: description of %d characters", row.tool, n)
			}
		}
	}
	e := newEnv(t)
	for name, dial := range map[string]func() *mcp.ClientSession{
		"stdio": func() *mcp.ClientSession { return connectStdio(t, e.svc, claude) },
	} {
		t.Run("list_over_"+name, func(t *testing.T) {
			var tools struct{ Tools []listed }
			if err := json.Unmarshal(listRaw(t, dial()), &tools); err != nil {
				if err := json.Unmarshal(listRaw(t, dial()), &tools.Tools); err != nil {
					t.Fatal(err)
				}
			}
			check(t, tools.Tools)
		})
	}
	overAll(t, func(t *testing.T, _ *env, call caller) {
		for _, row := range rows {
			r := call.ok(t, row.tool, row.args)
			for _, k := range strings.Fields(row.keys) {
				if _, ok := r[k]; !ok {
					t.Errorf("%s: no %s in %v", row.tool, k, r)
				}
			}
		}
	})
}

// TestA1_OrderAndRepeats: the order of facts is total and the same with
// explain, equal texts are shown once, a batch is best first without repeats.
func TestA1_OrderAndRepeats(t *testing.T) {
	overAll(t, func(t *testing.T, _ *env, call caller) {
		for i := range 6 {
			call.ok(t, "memory_add", fmt.Sprintf(`{"text":"zebra crossing %d"}`, i%3))
		}
		order := func(list any, key func(map[string]any) string) (out []string) {
			for _, x := range list.([]any) {
				out = append(out, key(x.(map[string]any)))
			}
			return out
		}
		plain := call.ok(t, "memory_search", `{"query":"zebra crossing"}`)
		ids := order(plain["facts"], func(m map[string]any) string { return m["id"].(string) })
		if len(ids) != 3 || plain["count"] != 3.0 {
			t.Errorf("equal texts are shown more than once: %v", plain)
		}
		explained := call.ok(t, "memory_search", `{"query":"zebra crossing","explain":true}`)
		if got := order(explained["explained"], func(m map[string]any) string { return m["provenance"].(map[string]any)["fact_id"].(string) }); !slices.Equal(got, ids) || explained["count"] != 3.0 {
			t.Errorf("explain shows %v, without it %v", got, ids)
		}
		if again := order(call.ok(t, "memory_search", `{"query":"zebra crossing"}`)["facts"], func(m map[string]any) string { return m["id"].(string) }); !slices.Equal(again, ids) {
			t.Errorf("asked again %v, before %v", again, ids)
		}
		batch := call.ok(t, "memory_search_batch", `{"queries":["zebra","crossing","zebra crossing"]}`)
		merged := order(batch["merged"], func(m map[string]any) string { return m["text"].(string) })
		slices.Sort(merged)
		if len(slices.Compact(merged)) != 3 || batch["count"] != 3.0 || len(batch["per_query"].([]any)) != 3 {
			t.Errorf("%v", batch)
		}
	})
}

// TestA3_ConfidenceByTool: labels rank and filter, a tool that takes none
// refuses them, and a bad one has no effect.
func TestA3_ConfidenceByTool(t *testing.T) {
	overAll(t, func(t *testing.T, e *env, call caller) {
		for _, c := range []string{"verified", "inferred", "unverified"} {
			if r := call.ok(t, "memory_add", `{"text":"zebra `+c+`","confidence":"`+c+`"}`); r["confidence"] != c {
				t.Errorf("%v", r)
			}
		}
		before := e.entries()
		for tool, args := range map[string]string{
			"memory_alias": `{"term":"t","equivalents":["e"],"confidence":"verified"}`, "checkpoint_save": `{"confidence":"verified"}`,
			"memory_search": `{"query":"x","confidence":"verified"}`, "memory_search_batch": `{"queries":["x"],"confidence":"verified"}`,
			"query_summaries": `{"query":"x","min_confidence":"verified"}`, "search": `{"query":"x","confidence_weight":0.1}`,
		} {
			out, bad := call(t, tool, args)
			if bad == nil || bad.Code != CodeUnknownField {
				t.Errorf("%s %s: %s %v", tool, args, out, bad)
			}
		}
		if e.entries() != before {
			t.Error("a refused call has stored something")
		}
		for weight, first := range map[string]string{"0.5": "zebra verified"} {
			r := call.ok(t, "memory_search", `{"query":"zebra","confidence_weight":`+weight+`}`)
			if f := r["facts"].([]any)[0].(map[string]any); f["text"] != first {
				t.Errorf("weight %s: %v first", weight, f["text"])
			}
		}
		if r := call.ok(t, "memory_reflect", `{"action":"update","agent_id":"mac:claude:tally","target":"zebra unverified","text":"zebra now"}`); r["confidence"] != "unverified" {
			t.Errorf("an update without a label: %v", r)
		}
	})
}

// TestA4_SharedIsANamespace: a search of one namespace never includes the
// shared one, a search without a namespace has both, writing there is said.
func TestA4_SharedIsANamespace(t *testing.T) {
	overAll(t, func(t *testing.T, _ *env, call caller) {
		call.ok(t, "memory_add", `{"agent_id":"a","text":"zebra of a"}`)
		if r := call.ok(t, "memory_add", `{"agent_id":"__shared__","text":"zebra of all"}`); r["agent_id"] != "__shared__" {
			t.Errorf("%v", r)
		}
		call.ok(t, "memory_add", `{"text":"zebra of mine"}`)
		call.finds(t, "a", "zebra", "zebra of a")
		call.finds(t, "__shared__", "zebra", "zebra of all")
		call.finds(t, "__SHARED__", "zebra")
		if r := call.ok(t, "memory_search", `{"query":"zebra"}`); r["count"] != 2.0 || r["scope"] != "own" {
			t.Errorf("%v", r)
		}
	})
}

// TestC10_AuthorsOfSummaries: cases 10 to 13: whole tokens, newest first, the
// filtered total, commas refused, category and identity compose.
func TestC10_AuthorsOfSummaries(t *testing.T) {
	overAll(t, func(t *testing.T, _ *env, call caller) {
		add := func(title, who, at, category string) {
			call.ok(t, "add_summary", `{"title":"`+title+`","summary":"zebra","sourceAgentIdentities":[`+who+`],"timestamp":"2026-01-01T00:0`+at+`:00Z","category":"`+category+`"}`)
		}
		me, b := `"@mac:claude:tally"`, `"b"`
		add("100", me, "1", "bugfix")
		add("200", b, "2", "bugfix")
		add("300", me, "3", "feature")
		add("400", me+","+b, "4", "bugfix")
		titles := func(args string) (out []string) {
			r := call.ok(t, "get_all_summaries", args)
			for _, x := range r["summaries"].([]any) {
				out = append(out, x.(map[string]any)["title"].(string))
			}
			return append(out, fmt.Sprint("total ", r["total"]))
		}
		for args, want := range map[string]string{
			`{"agentIdentity":"@me","limit":10}`:                  "400 300 100 total 3",
			`{"agentIdentity":"@me","limit":1}`:                   "400 total 3",
			`{"agentIdentity":"@me","limit":5,"offset":9}`:        "total 3",
			`{"agentIdentity":"@b"}`:                              "400 200 total 2",
			`{"agentIdentity":"b","category":"bugfix","limit":1}`: "400 total 2",
			`{"agentIdentity":"@me","category":"bugfix"}`:         "400 100 total 2",
			`{"agentIdentity":"@me","category":"documentation"}`:  "total 0",
			`{}`: "400 300 200 100 total 4",
			`{"agentIdentity":"all","category":"bugfix","offset":1}`: "200 100 total 3",
		} {
			if got := strings.Join(titles(args), " "); got != want {
				t.Errorf("%s: %s, want %s", args, got, want)
			}
		}
		call.err(t, "add_summary", `{"title":"t","summary":"s","sourceAgentIdentities":["@a,@b"]}`, CodeInvalidArgument, "sourceAgentIdentities")
		call.err(t, "add_summary", `{"title":"t","summary":"s","timestamp":"soon"}`, CodeInvalidArgument, "timestamp")
	})
}

// TestC14_MemorySharing: a policy narrows one call and is another thing than
// agentIdentity; what is no policy is clamped and said; summaries and raw
// memories show the same.
func TestC14_MemorySharing(t *testing.T) {
	for name, dial := range transports {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			e := newEnv(t)
			call, unbound := dial(t, e, claude), dial(t, e, Session{})
			for who, list := range map[string]string{
				"claude": `["mac:claude:tally"]`, "codex": `["mac:codex:tally"]`, "both": `["mac:claude:tally","mac:codex:tally"]`, "shared": `[]`,
			} { // "shared" stands for nobody's here
				call.ok(t, "add_summary", `{"title":"zebra mark-`+who+`","summary":"x","category":"bugfix","sourceAgentIdentities":`+list+`}`)
				call.ok(t, "add_memory", `{"sessionId":"s","prompt":"zebra mark-`+who+`","thought":"t","response":"r","sourceAgentIdentities":`+list+`}`)
			}
			for _, tool := range []string{"query_summaries", "query_raw_memories"} {
				for _, c := range []struct{ policy, more, want, applied, says string }{
					{`"team"`, ``, "claude codex both shared", "team", ""},
					{`"private"`, ``, "claude both", "private", ""},
					{`"legacy"`, ``, "claude both shared", "legacy", ""},
					{`"private"`, `,"agentIdentity":"@mac:codex:tally"`, "both", "private", ""},
					{`"legacy"`, `,"agentIdentity":"mac:codex:tally"`, "both", "legacy", ""},
					{`"team"`, `,"agentIdentity":"@me"`, "claude both", "team", ""},
					{`"Private"`, ``, "claude codex both shared", "team", "clamped to team"},
					{`"everything"`, ``, "claude codex both shared", "team", "clamped to team"},
					{`""`, ``, "claude codex both shared", "team", "clamped to team"},
				} {
					out, bad := call(t, tool, `{"query":"zebra","memorySharing":`+c.policy+c.more+`}`)
					if bad != nil {
						t.Errorf("%s %s: %s", tool, c.policy, bad.JSON())
						continue
					}
					if got := marks(out); got != c.want || !strings.Contains(out, `"memorySharing":"`+c.applied+`"`) || strings.Contains(out, "clamped") != (c.says != "") {
						t.Errorf("%s %s%s: sees %q, want %q: %.300s", tool, c.policy, c.more, got, c.want, out)
					}
				}
				unbound.err(t, tool, `{"query":"zebra","memorySharing":"private"}`, CodeIdentityUnbound, "memorySharing")
				unbound.err(t, tool, `{"query":"zebra","memorySharing":"legacy"}`, CodeIdentityUnbound, "memorySharing")
			}
			if out, bad := call(t, "query_summaries", `{"query":"zebra","memorySharing":"private","category":"feature"}`); bad != nil || marks(out) != "" {
				t.Errorf("category does not compose: %s %v", out, bad)
			}
		})
	}
}
