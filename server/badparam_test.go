package server

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

// goodArgs are arguments of every memory tool that are accepted.
var goodArgs = map[string]string{
	"add_summary": `{"title":"t","summary":"s"}`, "get_all_summaries": `{}`, "query_summaries": `{"query":"x"}`,
	"add_memory": `{"prompt":"p","thought":"t","response":"r"}`, "get_session_memories": `{"sessionId":"s"}`, "query_raw_memories": `{"query":"x"}`,
	"query_recent_turns": `{}`, "memory_add": `{"text":"x"}`, "memory_search": `{"query":"x"}`, "memory_search_batch": `{"queries":["x"]}`,
	"memory_alias": `{"term":"t","equivalents":["e"]}`, "memory_reflect": `{"action":"add","agent_id":"n","text":"x"}`,
	"checkpoint_save": `{"state":"{}"}`, "checkpoint_resume": `{"on_missing":"empty"}`, "search": `{"query":"x"}`,
}

// badValues are what a parameter of a kind must refuse.
func badValues(p *param) (out []string) {
	out = []string{`null`}
	wrong := map[string]string{"string": `"x"`, "number": `7`, "bool": `true`, "list": `["x"]`, "object": `{"a":1}`}
	switch p.kind {
	case kindToken, kindText:
		delete(wrong, "string")
		out = append(out, `"a\u0000b"`, `"\ud800"`)
		if part := p.name == "prompt" || p.name == "thought" || p.name == "response"; !part && p.required || p.kind == kindToken || p.filled {
			// Of a turn one part may be empty, never all.
			out = append(out, `""`, `" \t\n"`, `"\u00a0"`)
		}
		if len(p.enum) > 0 {
			out = append(out, `"`+strings.ToUpper(p.enum[0])+`"`, `"`+strings.ToUpper(p.enum[0][:1])+p.enum[0][1:]+`"`, `"nonsense"`)
			if p.kind == kindText {
				out = append(out, `" `+p.enum[0]+`"`)
			}
		}
	case kindTexts, kindStrings, kindTokens:
		delete(wrong, "list")
		if p.kind == kindTokens {
			delete(wrong, "string")
		}
		out = append(out, `[null]`, `[7]`, `[["x"]]`, `[{}]`, `["\u0000"]`)
	case kindInt:
		delete(wrong, "number")
		out = append(out, `1.5`, `1e30`, `99999999999999999999`)
		if p.name == "limit" || p.name == "top_k" || p.name == "nResults" {
			out = append(out, `1000000000`, `1e9`)
		}
		if p.min >= 0 {
			out = append(out, `-1`, `-1000000000`)
		}
	case kindNumber:
		delete(wrong, "number")
		out = append(out, `1e30`, `-1`)
	case kindBool:
		delete(wrong, "bool")
		out = append(out, `"true"`, `0`)
	case kindObject:
		delete(wrong, "object")
	}
	for _, kind := range slices.Sorted(maps.Keys(wrong)) {
		out = append(out, wrong[kind])
	}
	return out
}

// TestBadInput_EveryParam: for every parameter of every memory tool, what its
// schema rules out is refused when it runs: null, other types, empty and blank,
// other cases of enums, numbers far out; so is a key that is not there, in any
// case of one that is. The error names the field, and nothing is stored.
func TestBadInput_EveryParam(t *testing.T) {
	for _, tl := range tools {
		if (tl.set == "memory" || tl.set == "summaries") && goodArgs[tl.name] == "" {
			t.Errorf("%s is not among the tools of this test", tl.name)
		}
	}
	for name, dial := range transports {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			e := newEnv(t)
			call := dial(t, e, claude)
			for tool, args := range goodArgs {
				call.ok(t, tool, args)
			}
			before, n := e.entries(), 0
			for tool, args := range goodArgs {
				var good map[string]json.RawMessage
				if err := json.Unmarshal([]byte(args), &good); err != nil {
					t.Fatal(err)
				}
				with := func(key, value string) string {
					m := maps.Clone(good)
					m[key] = json.RawMessage(value)
					b := []byte("{")
					for k, v := range m { // by hand: some values are no valid JSON text for a client's encoder
						b = append(append(append(append(b, encode(k)...), ':'), v...), ',')
					}
					return string(append(b[:len(b)-1], '}'))
				}
				params := toolByName(tool).params
				for i := range params {
					p := &params[i]
					for _, v := range badValues(p) {
						n++
						out, bad := call(t, tool, with(p.name, v))
						switch {
						case bad == nil:
							t.Errorf("%s %s=%s: answered %.200s", tool, p.name, v, out)
						case bad.Field != p.name || bad.Hint == "" || bad.Code != CodeInvalidArgument && bad.Code != CodeTooLarge:
							t.Errorf("%s %s=%s: %s", tool, p.name, v, bad.JSON())
						}
					}
					if p.required {
						m := maps.Clone(good)
						delete(m, p.name)
						call.err(t, tool, string(encode(m)), CodeInvalidArgument, p.name)
					}
					for _, key := range []string{strings.ToUpper(p.name), " " + p.name, p.name + "s "} {
						call.err(t, tool, with(key, `"x"`), CodeUnknownField, key)
					}
				}
				for _, v := range []string{`[]`, `null`, `"x"`, `7`} {
					if name == "in process" && v != `null` {
						call.err(t, tool, v, CodeInvalidArgument, "")
					}
				}
			}
			if got := e.entries(); got != before {
				t.Errorf("%d entries were stored by refused calls", got-before)
			}
			t.Logf("%d bad values refused", n)
		})
	}
}
