package main

import (
	"context"
	"slices"
	"strings"
	"testing"

	"tallystick/server"
)

// The shell completes what a flag is limited to: every field with a list of
// values that a command can give, and the flags of the command line's own.
func TestCompletionOffersValues(t *testing.T) {
	completed := func(words ...string) []string {
		t.Helper()
		var out, errs strings.Builder
		a := &app{Stdout: &out, Stderr: &errs, Stdin: strings.NewReader(""), Getenv: func(string) string { return "" }, Dir: "/"}
		if code := run(context.Background(), append([]string{"__complete"}, words...), a); code != exitOK {
			t.Fatalf("%v: exit code %d, %s", words, code, errs.String())
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		return lines[:len(lines)-1] // the last one is for the shell
	}
	asked := 0
	for path, tool := range toolOf {
		cmd, rest, err := testRoot().Find(strings.Fields(path))
		if err != nil || len(rest) > 0 {
			t.Fatalf("there is no command %s", path)
		}
		if !slices.Contains(server.ToolNames(), tool) {
			t.Errorf("%s: there is no tool %s", path, tool)
		}
		for field, values := range server.FieldValues(tool) {
			flag, ok := strings.CutPrefix(typedAs(cmd, field), "--")
			if !ok || cmd.Flags().Lookup(flag).Value.Type() == "bool" {
				continue
			}
			asked++
			if got := completed(append(strings.Fields(path), "--"+flag, "")...); !slices.Equal(got, values) {
				t.Errorf("%s --%s completes to %q, want %q", path, flag, got, values)
			}
		}
	}
	if asked < 8 {
		t.Errorf("%d flags of tools have values", asked)
	}
	for name, values := range ownValues() {
		path, flag, _ := strings.Cut(name, " --")
		if got := completed(append(strings.Fields(path), "--"+flag, "")...); !slices.Equal(got, values) {
			t.Errorf("%s completes to %q, want %q", name, got, values)
		}
	}
	if got := completed("init", "--client", "claude,co"); !slices.Equal(got, []string{"claude,codex"}) {
		t.Errorf("a list goes on with %q", got)
	}
	if got := completed("mcp", "--agent", "c"); !slices.Equal(got, []string{"claude", "codex", "cursor"}) {
		t.Errorf("agents: %q", got)
	}
}
