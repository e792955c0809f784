package server

import (
	"strings"
	"testing"
)

// TestI8_CallerFields: every tool takes from_agent and created_by that say who
// the caller is, and refuses any other name.
func TestI8_CallerFields(t *testing.T) {
	overAll(t, func(t *testing.T, _ *env, call caller) {
		for _, c := range toolCases {
			for _, field := range []string{"from_agent", "created_by"} {
				with := func(name string) (string, *Error) {
					args := strings.Replace(c.good, "{", `{"`+field+`":"`+name+`",`, 1)
					args = strings.Replace(args, ",}", "}", 1)
					return call(t, c.tool, args)
				}
				for _, name := range []string{"mac:claude:tally", "@mac:claude:tally"} {
					if _, bad := with(name); bad != nil && (bad.Code == CodeUnknownField || bad.Code == CodeIdentityMismatch || bad.Field == field) {
						t.Errorf("%s %s %s: %s", c.tool, field, name, bad.JSON())
					}
				}
				if out, bad := with("mac:codex:tally"); bad == nil || bad.Code != CodeIdentityMismatch || bad.Field != field {
					t.Errorf("%s %s of another: %v %s", c.tool, field, bad, out)
				}
			}
		}
		call.err(t, "memory_add", `{"text":"x","from_agent":"mac:claude:tally","from_agent":"mac:codex:tally"}`, CodeInvalidArgument, "from_agent")
		call.err(t, "whoami", `{"from_agent":null}`, CodeInvalidArgument, "from_agent")
	})
}

// TestBadTextNamesField: text that would be changed in silence is refused with
// the field that holds it.
func TestBadTextNamesField(t *testing.T) {
	e := newEnv(t)
	for _, c := range []struct{ tool, args, field string }{
		{"event_append", `{"type":"x","stream":"s","room":"r","body":"a\u0000"}`, "body"},
		{"event_append", `{"type":"x","stream":"s","room":"r","metadata":{"k":["\ud800"]}}`, "metadata"},
		{"event_append", `{"type":"x","stream":"` + "\xff" + `","room":"r"}`, "stream"},
		{"memory_add", `{"text":"half \udc00"}`, "text"},
		{"add_summary", `{"title":"t","summary":"\u0000"}`, "summary"},
		{"event_list", `{"bad\u0000name":1}`, ""},
	} {
		if bad := e.refused(claude, c.tool, c.args); bad.Code != CodeInvalidArgument || bad.Field != c.field || !strings.HasPrefix(bad.Message, c.field) {
			t.Errorf("%s %s: %s", c.tool, c.args, bad.JSON())
		}
	}
	if n := e.entries(); n != 0 {
		t.Errorf("%d entries stored", n)
	}
}
