package identity_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tallystick/query/identity"
	"tallystick/query/refusal"
)

func TestI1_Parse(t *testing.T) {
	for _, c := range []struct {
		in   string
		want identity.Identity
	}{
		{"mac:claude:tally", identity.Identity{Host: "mac", Agent: "claude", Project: "tally"}},
		{" mac : claude : tally ", identity.Identity{Host: "mac", Agent: "claude", Project: "tally"}},
		{"mac.local:gpt_5-x:0a", identity.Identity{Host: "mac.local", Agent: "gpt_5-x", Project: "0a"}},
		{"mac-claude", identity.Identity{Host: "mac", Agent: "claude", Flat: true}},
		{"mac-claude-2", identity.Identity{Host: "mac", Agent: "claude-2", Flat: true}},
		{"Hermes", identity.Identity{Agent: "Hermes", Flat: true}}, // I7
	} {
		got, err := identity.Parse(c.in)
		if err != nil || got != c.want {
			t.Errorf("%q: %+v %v", c.in, got, err)
		}
	}
	for _, bad := range []string{
		"", " ", "me", "ME", "All", "*", "a:b", "a:b:c:d", "a::c", "A:b:c", "a:-b:c", "a:b:c d", "a b", "a/b", "ä-b",
		"a:<b>:c", strings.Repeat("x", 257),
	} {
		if id, err := identity.Parse(bad); err == nil {
			t.Errorf("%q passes as %+v", bad, id)
		} else if e, ok := refusal.As(err); !ok || e.Hint == "" {
			t.Errorf("%q: %#v says not what to do", bad, err)
		}
	}
}

func TestStringIsParsedBack(t *testing.T) {
	part := rapid.StringMatching(`[a-z0-9][a-z0-9._-]{0,8}`)
	rapid.Check(t, func(t *rapid.T) {
		id := identity.Identity{Host: part.Draw(t, "host"), Agent: part.Draw(t, "agent"), Project: part.Draw(t, "project")}
		got, err := identity.Parse(id.String())
		if err != nil || got != id {
			t.Fatalf("%+v gives %+v %v", id, got, err)
		}
	})
}

func TestI8_ParseFilter(t *testing.T) {
	const me = "mac:claude:x"
	for _, c := range []struct {
		name, value, bound string
		given              bool
		want               identity.Filter
		code               refusal.Code
	}{
		{"absent", "", "", false, identity.Filter{All: true}, ""},
		{"all", "all", "", true, identity.Filter{All: true}, ""},
		{"@me bound", "@me", me, true, identity.Filter{Identity: me}, ""},
		{"@me unbound never widens", "@me", "", true, identity.Filter{}, refusal.IdentityUnbound},
		{"one", "nas:codex:x", "", true, identity.Filter{Identity: "nas:codex:x"}, ""},
		{"one @ off", "@nas:codex:x", "", true, identity.Filter{Identity: "nas:codex:x"}, ""},
		{"case kept", "Mayor", "", true, identity.Filter{Identity: "Mayor"}, ""},
		{"path", "beads/crew/emma", "", true, identity.Filter{Identity: "beads/crew/emma"}, ""},
		{"inner space", "Ada L", "", true, identity.Filter{Identity: "Ada L"}, ""},
		{"blank", "", me, true, identity.Filter{}, refusal.InvalidArgument},
		{"spaces", "  ", me, true, identity.Filter{}, refusal.InvalidArgument},
		{"padded", " @me", me, true, identity.Filter{}, refusal.InvalidArgument},
		{"padded behind @", "@ a", me, true, identity.Filter{}, refusal.InvalidArgument},
		{"only @", "@", me, true, identity.Filter{}, refusal.InvalidArgument},
		{"two @", "@@me", me, true, identity.Filter{}, refusal.InvalidArgument},
		{"case of me", "@ME", me, true, identity.Filter{}, refusal.InvalidArgument},
		{"me", "me", me, true, identity.Filter{}, refusal.InvalidArgument},
		{"case of all", "ALL", me, true, identity.Filter{}, refusal.InvalidArgument},
		{"@all", "@all", me, true, identity.Filter{}, refusal.InvalidArgument},
		{"comma", "a,b", me, true, identity.Filter{}, refusal.InvalidArgument},
		{"control", "a\x00b", me, true, identity.Filter{}, refusal.InvalidArgument},
		{"not UTF-8", "a\xff", me, true, identity.Filter{}, refusal.InvalidArgument},
		{"long", strings.Repeat("x", 257), me, true, identity.Filter{}, refusal.TooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := identity.ParseFilter("agentIdentity", c.value, c.given, c.bound)
			if refusal.CodeOf(err) != c.code || got != c.want {
				t.Fatalf("%+v %v, want %+v %s", got, err, c.want, c.code)
			}
			if e, ok := refusal.As(err); ok && e.Field != "agentIdentity" {
				t.Errorf("names field %q", e.Field)
			}
		})
	}
}

func ExampleParse() {
	id, err := identity.Parse("mac:claude:tallystick")
	fmt.Println(id.Host, id.Agent, id.Project, err)
	// Output: mac claude tallystick <nil>
}

func ExampleParseFilter() {
	_, err := identity.ParseFilter("agentIdentity", "@me", true, "")
	fmt.Println(refusal.CodeOf(err))
	// Output: identity_unbound
}
