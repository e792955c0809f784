package server

import (
	"fmt"
	"strings"
	"testing"
)

const note = `{"type":"note","stream":"s","room":"r"}`

func inRepo(agent, project, root string) Session {
	return Session{Agent: agent, Project: project, Bound: true, InRepo: true, Root: strings.Repeat(root, 40)}
}

func (e *env) name(s Session) string {
	e.t.Helper()
	return e.do(s, "whoami", `{}`)["identity"].(string)
}

func (e *env) wantName(s Session, want string) {
	e.t.Helper()
	if got := e.name(s); got != want {
		e.t.Errorf("identity is %s, want %s", got, want)
	}
}

// I6, I7: the name of a call is decided by what is on the log, and written
// there once, by the first write.
func TestI6_NamesAreMintedInTheLog(t *testing.T) {
	e := newEnv(t)
	flat, x, y := Session{Agent: "claude", Bound: true}, inRepo("claude", "x", "a"), inRepo("claude", "y", "b")
	e.wantName(x, "mac:claude:x")
	e.do(flat, "event_append", note)
	before := e.entries()
	e.wantName(x, "mac-claude")
	e.refused(x, "event_append", `{"type":"note"}`)
	if e.entries() != before {
		t.Error("a read, or a write that was refused, minted a name")
	}
	for range 2 {
		e.do(x, "event_append", note)
	}
	if got := e.entries() - before; got != 3 {
		t.Errorf("%d entries, want two events and one name", got)
	}
	held := x
	held.Form = FormFlat
	e.do(y, "event_append", note)
	e.wantName(y, "mac:claude:y")
	e.wantName(x, "mac:claude:x")
	e.wantName(flat, "mac-claude")
	e.wantName(held, "mac-claude") // while its session runs

	// A clone in another folder is the same actor.
	clone := x
	clone.Project = "x-copy"
	e.wantName(clone, "mac:claude:x")
	if r := e.do(clone, "whoami", `{}`); r["project"] != "x" {
		t.Errorf("project is %v", r["project"])
	}
}

// I2: the second repository of a name is told, whatever it does, and goes on
// once it has a name.
func TestI2_SecondRepositoryIsTold(t *testing.T) {
	e := newEnv(t)
	first, second := inRepo("claude", "x", "a"), inRepo("codex", "x", "b")
	e.do(first, "event_append", note)
	before := e.entries()
	for tool, args := range map[string]string{
		"event_append": note, "event_list": `{"to_agent":"@me"}`, "get_all_summaries": `{"agentIdentity":"@me"}`, "claim_list": `{"identity":"@me"}`,
	} {
		bad := e.refused(second, tool, args)
		if bad.Code != CodeConflict || !strings.Contains(bad.Hint, "tally init --project") || !strings.Contains(bad.Message, strings.Repeat("a", 12)) {
			t.Errorf("%s: %s", tool, bad.JSON())
		}
	}
	if e.entries() != before {
		t.Error("something was stored")
	}
	e.do(second, "event_list", `{"stream":"s"}`) // team-wide reading goes on
	if r := e.do(second, "whoami", `{}`); r["bound"] != false || !strings.Contains(fmt.Sprint(r["note"]), "another repository") {
		t.Errorf("whoami: %v", r)
	}
	a, bad := e.svc.Identity(t.Context(), IdentityRequest{Session: second, Project: "z", Mint: true})
	if bad != nil || a.Identity != "mac:codex:z" || !a.New {
		t.Fatalf("%+v, %v", a, bad)
	}
	e.wantName(second, "mac:codex:z")
	e.do(second, "event_append", note)
	if _, bad := e.svc.Identity(t.Context(), IdentityRequest{Session: second, Project: "x"}); bad == nil || bad.Code != CodeConflict {
		t.Errorf("a taken name is given: %v", bad)
	}
	if a, bad := e.svc.Identity(t.Context(), IdentityRequest{Session: second, Project: "x", SameProject: true, Mint: true}); bad != nil || a.Identity != "mac:codex:x" {
		t.Errorf("%+v, %v", a, bad)
	}
	e.wantName(second, "mac:codex:x")
}

// I7: mail to a name that is no longer rendered is shown, with what the agent
// is called now.
func TestI7_MailToOldNamesIsShown(t *testing.T) {
	e := newEnv(t)
	flat, x := Session{Agent: "claude", Bound: true}, inRepo("claude", "x", "a")
	e.do(flat, "event_append", note)
	if _, bad := e.svc.Identity(t.Context(), IdentityRequest{Session: x, Spoken: []string{"windows-claude", "mac-claude", "mac-claude"}, Mint: true}); bad != nil {
		t.Fatal(bad)
	}
	to := func(who string) {
		e.do(codex, "event_append", fmt.Sprintf(`{"type":"note","stream":"s","room":"r","to_agent":%q}`, who))
	}
	old := func() string { return fmt.Sprint(e.do(codex, "mesh_status", `{}`)["old_names"]) }
	to("mac-claude")
	if got := old(); got != "<nil>" {
		t.Errorf("while it is still rendered: %s", got)
	}
	e.do(inRepo("claude", "y", "b"), "event_append", note)
	if got := old(); got != "<nil>" {
		t.Errorf("before anybody wrote to it: %s", got)
	}
	for _, who := range []string{"mac-claude", "windows-claude", "windows-claude", "*", "mac:claude:x", "nobody"} {
		to(who)
	}
	const want = "[map[events:2 name:windows-claude now:mac:claude:* unread:0] map[events:1 name:mac-claude now:mac:claude:* unread:0]]"
	if got := old(); got != want {
		t.Errorf("old names: %s, want %s", got, want)
	}
}

// I3: nothing of a session's process gets into a name.
func TestI3_SessionIsNotIdentity(t *testing.T) {
	e := newEnv(t)
	a, b := inRepo("claude", "x", "a"), inRepo("claude", "x", "a")
	a.Client, b.Client = "window 1", "window 2"
	e.do(a, "event_append", note)
	if e.name(a) != e.name(b) {
		t.Errorf("%s and %s", e.name(a), e.name(b))
	}
	bad := a
	bad.Form = "window"
	e.refused(bad, "whoami", `{}`)
}

// I5: a name routes as one opaque text: exactly, or "*"; colons mean nothing
// to the matcher, and what is addressed to nobody is in no inbox.
func TestI5_ExactOrStar(t *testing.T) {
	e := newEnv(t)
	for _, to := range []string{"mac:claude:tally", "mac:claude:*", "mac:claude", "*:*:tally", "Mac:Claude:Tally", "mac:claude:tally2", "mac-claude", "*", ""} {
		args := `{"type":"note","stream":"s","room":"r","body":"to ` + to + `"`
		if to != "" {
			args += fmt.Sprintf(`,"to_agent":%q`, to)
		}
		e.do(codex, "event_append", args+"}")
	}
	for _, to := range []string{"mac:claude:", ":claude:tally", "mac::tally", "a b", "", "@"} { // they can name nobody
		if bad := e.refused(codex, "event_append", fmt.Sprintf(`{"type":"note","stream":"s","room":"r","to_agent":%q}`, to)); bad.Code != CodeInvalidArgument || bad.Field != "to_agent" {
			t.Errorf("to %q: %v", to, bad)
		}
	}
	bodies := func(s Session, to string) (list []string) {
		for _, ev := range e.do(s, "event_list", fmt.Sprintf(`{"to_agent":%q,"order":"asc"}`, to))["events"].([]any) {
			list = append(list, ev.(map[string]any)["body"].(string))
		}
		return list
	}
	for _, c := range []struct{ to, want string }{
		{"@me", "[to mac:claude:tally to *]"},
		{"mac:claude:tally", "[to mac:claude:tally to *]"},
		{"@mac:claude:tally", "[to mac:claude:tally to *]"},
		{"mac:claude:*", "[to mac:claude:* to *]"},
		{"mac:claude", "[to mac:claude to *]"},
		{"*:*:tally", "[to *:*:tally to *]"},
		{"mac-claude", "[to mac-claude to *]"},
		{"*", "[to *]"},
		{"nobody", "[to *]"},
	} {
		if got := fmt.Sprint(bodies(claude, c.to)); got != c.want {
			t.Errorf("inbox of %s: %s, want %s", c.to, got, c.want)
		}
	}
	if n := len(e.do(claude, "event_list", `{"stream":"s"}`)["events"].([]any)); n != 9 {
		t.Errorf("%d events in the stream, want 9", n)
	}
}
