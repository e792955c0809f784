package main

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tallystick/server"
)

// everyCommand visits the commands that people see.
func everyCommand(root *cobra.Command, fn func(*cobra.Command)) {
	fn(root)
	for _, c := range root.Commands() {
		if !c.Hidden {
			everyCommand(c, fn)
		}
	}
}

func testRoot() *cobra.Command { return newRoot(&app{Getenv: func(string) string { return "" }}) }

// Every field that a command fills in is one that an error can name as it was
// typed.
func TestErrorsNameWhatWasTyped_EveryField(t *testing.T) {
	fields := map[string]string{}
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	note := func(e ast.Expr, where string) {
		if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if s, err := strconv.Unquote(lit.Value); err == nil {
				fields[s] = where
			}
		}
	}
	set := token.NewFileSet()
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, f.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr: // in.text("to_agent", f.to)
				if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "text" && len(n.Args) == 2 {
					note(n.Args[0], f.Name())
				}
			case *ast.IndexExpr: // in["limit"]
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "in" {
					note(n.Index, f.Name())
				}
			case *ast.CompositeLit: // args{"id": id}
				if x, ok := n.Type.(*ast.Ident); ok && x.Name == "args" {
					for _, e := range n.Elts {
						note(e.(*ast.KeyValueExpr).Key, f.Name())
					}
				}
			}
			return true
		})
	}
	if len(fields) < 40 {
		t.Fatalf("found %d fields only", len(fields))
	}
	for field, where := range fields {
		known := false
		everyCommand(testRoot(), func(c *cobra.Command) { known = known || typedAs(c, field) != "" })
		if !known {
			t.Errorf("%s: no command knows what is typed for %q; add it to fieldFlags", where, field)
		}
	}
}

func TestErrorsNameWhatWasTyped(t *testing.T) {
	for _, c := range []struct {
		command     []string
		in          server.Error
		message     string
		hint        string
		flags, vars []string
	}{
		{command: []string{"events", "append"}, in: server.Error{Field: "to_agent", Message: `to_agent is "x_y to_agent"`, Hint: "leave to_agent out"},
			message: `--to is "x_y to_agent"`, hint: "leave --to out"},
		{command: []string{"events", "append"}, in: server.Error{Field: "type", Message: "type is missing", Hint: "give type: a type of event"},
			message: "--type is missing", hint: "give --type: a type of event"},
		{command: []string{"events", "ack"}, in: server.Error{Field: "lease_ms", Message: "a lease of 1ms is outside 1m0s to 168h0m0s", Hint: "use 60000 to 604800000"},
			message: "a lease of 1ms is outside 1m0s to 168h0m0s (--lease)", hint: "use 1m to 168h"},
		{command: []string{"events", "ack"}, in: server.Error{Field: "event_id", Message: "event_id is blank"}, message: "EVENT_ID is blank"},
		{command: []string{"inbox", "send"}, flags: []string{"--body-file", "x"}, in: server.Error{Field: "body", Message: "body is too large"},
			message: "--body-file is too large"},
		{command: []string{"events", "list"}, vars: []string{"TALLY_STATUS=odd"}, in: server.Error{Field: "status", Message: "status is odd"},
			message: "TALLY_STATUS is odd"},
		{command: []string{"events", "append"}, in: server.Error{Field: "artifact_ids[2]", Message: "no artifact art_1 here"},
			message: "no artifact art_1 here (--artifact)"},
		{command: []string{"status"}, in: server.Error{Field: "to_agent", Message: "to_agent is odd"}, message: "to_agent is odd"},
		{command: []string{"memory", "add"}, in: server.Error{Field: "text", Message: "text is blank"}, message: "TEXT is blank"},
	} {
		cmd, _, err := testRoot().Find(c.command)
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.ParseFlags(c.flags); err != nil {
			t.Fatal(err)
		}
		getenv := func(name string) string {
			for _, v := range c.vars {
				if value, ok := strings.CutPrefix(v, name+"="); ok {
					return value
				}
			}
			return ""
		}
		if err := applyEnv(cmd, getenv); err != nil {
			t.Fatal(err)
		}
		got := asTyped(cmd, &c.in)
		if got.Message != c.message || got.Hint != c.hint || got.Field != c.in.Field {
			t.Errorf("%v: %q, %q, field %s; want %q, %q", c.command, got.Message, got.Hint, got.Field, c.message, c.hint)
		}
	}
}

// Every flag has a variable: what the variable says arrives in the flag, and
// one that cannot be is named. Every command has an example, and --json.
func TestEveryFlagHasItsVariable(t *testing.T) {
	odd := regexp.MustCompile(`^TALLY_[A-Z0-9_]+$`)
	var names []string
	everyCommand(testRoot(), func(c *cobra.Command) { names = append(names, c.CommandPath()) })
	if len(names) < 50 {
		t.Fatalf("%d commands", len(names))
	}
	for _, path := range names {
		words := strings.Fields(path)[1:]
		flags := func() (*cobra.Command, []string) {
			cmd, _, err := testRoot().Find(words)
			if err != nil {
				t.Fatal(err)
			}
			cmd.InheritedFlags() // joins them to the command's own
			var all []string
			cmd.Flags().VisitAll(func(f *pflag.Flag) {
				if f.Name != "help" && f.Name != "version" && !f.Hidden {
					all = append(all, f.Name)
				}
			})
			return cmd, all
		}
		cmd, all := flags()
		if cmd.Example == "" {
			t.Errorf("%s has no example", path)
		}
		if cmd.Flags().Lookup("json") == nil {
			t.Errorf("%s has no --json", path)
		}
		for _, name := range all {
			cmd, _ := flags()
			f := cmd.Flags().Lookup(name)
			value := map[string]string{"bool": "true", "int": "7", "duration": "7s", "float64": "0.5", "uint64": "7"}[f.Value.Type()]
			if value == "" {
				value = "seven"
			}
			if f.DefValue == value {
				value = "false"
			}
			asked := ""
			getenv := func(n string) string {
				if n == envName(name) {
					asked = n
					return value
				}
				return ""
			}
			if err := applyEnv(cmd, getenv); err != nil {
				t.Errorf("%s --%s: %v", path, name, err)
				continue
			}
			if !f.Changed || !odd.MatchString(asked) || strings.Trim(f.Value.String(), "[]") != value {
				t.Errorf("%s --%s: %q set it to %q (changed: %v), want %q", path, name, asked, f.Value.String(), f.Changed, value)
			}
		}
	}
}

func TestAsksJSON(t *testing.T) {
	for line, want := range map[string]bool{
		"status": false, "status --json": true, "--json events lst": true, "status --json=false": false,
		"events append --body -- --json": false, "status --json --json=0": false,
	} {
		if got := asksJSON(strings.Fields(line), func(string) string { return "" }); got != want {
			t.Errorf("%s: %v", line, got)
		}
	}
	if !asksJSON(nil, func(name string) string { return map[string]string{"TALLY_JSON": "1"}[name] }) {
		t.Error("TALLY_JSON=1 does not count")
	}
}

// Mistakes that are found before the flags are read are error objects, too.
func TestMistakesAreObjectsWithJSON(t *testing.T) {
	for _, line := range []string{"--json --nope", "events list --nope --json", "events ack --json", "--json frobnicate", "status extra --json", "up --json --http"} {
		var out, errs strings.Builder
		a := &app{Stdout: &out, Stderr: &errs, Stdin: strings.NewReader(""), Getenv: func(string) string { return "" }, Dir: "/"}
		if code := run(context.Background(), strings.Fields(line), a); code != exitUsage {
			t.Errorf("%s: exit code %d", line, code)
		}
		lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
		if e, ok := server.ParseError([]byte(lines[len(lines)-1])); !ok || e.Code != server.CodeInvalidArgument {
			t.Errorf("%s: the last line is %q", line, lines[len(lines)-1])
		}
	}
}
