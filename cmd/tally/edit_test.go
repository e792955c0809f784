package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var someServer = mcpServer{Command: "tally", Args: []string{"mcp"}}

// A server is added where it belongs and nothing else moves.
func TestAddJSON(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"OK empty":          {"", "{\n  \"s\": {\n    \"tally\": 1\n  }\n}\n"},
		"OK empty object":   {"{}", "{\n  \"s\": {\n    \"tally\": 1\n  }\n}"},
		"OK others":         {"{\n    \"a\": [1, {}],\n    \"s\": {\n        \"x\": {}\n    }\n}\n", "{\n    \"a\": [1, {}],\n    \"s\": {\n        \"x\": {},\n        \"tally\": 1\n    }\n}\n"},
		"OK one line":       {`{"s": {"x": 1}, "b": "}"}`, `{"s": {"x": 1, "tally": 1}, "b": "}"}`},
		"OK trailing comma": {"{\n\t\"s\": {\n\t\t\"x\": 1, // why\n\t},\n}", "{\n\t\"s\": {\n\t\t\"x\": 1, // why\n\t\t\"tally\": 1\n\t},\n}"},
		"OK comment":        {"{\n  \"a\": 1 // not , here\n}", "{\n  \"a\": 1, // not , here\n  \"s\": {\n    \"tally\": 1\n  }\n}"},
		"OK line ends":      {"{\r\n  \"s\": {}\r\n}\r\n", "{\r\n  \"s\": {\r\n    \"tally\": 1\r\n  }\r\n}\r\n"},
		"OK twice":          {`{"s": 1, "s": {"x": 1}}`, `{"s": 1, "s": {"x": 1, "tally": 1}}`},
		"OK big number":     {`{"s": {"x": 9007199254740993}}`, `{"s": {"x": 9007199254740993, "tally": 1}}`},
		"BAD list":          {`[]`, ""},
		"BAD no object":     {`{"s": []}`, ""},
		"BAD text":          {`{"s": {}`, ""},
		"BAD two values":    {`{} {}`, ""},
		"BAD word":          {`{"a": nope}`, ""},
		"BAD string":        {`{"a": "x`, ""},
		"BAD comment":       {`{} /* x`, ""},
		"BAD commas":        {`{"a": 1 "b": 2}`, ""},
		"BAD depth":         {strings.Repeat("[", 10_000), ""},
	} {
		t.Run(name, func(t *testing.T) {
			out, there, err := addJSON([]byte(c.in), []string{"s", "tally"}, 1)
			if (err != nil) != strings.HasPrefix(name, "BAD") {
				t.Fatalf("error: %v", err)
			}
			if err == nil && (string(out) != c.want || there != nil) {
				t.Errorf("got\n%s\nwant\n%s", out, c.want)
			}
		})
	}
	out, there, err := addJSON([]byte(`{"s": {"tally": {"mine": true}}}`), []string{"s", "tally"}, 1)
	if err != nil || !reflect.DeepEqual(there, map[string]any{"mine": true}) || string(out) != `{"s": {"tally": {"mine": true}}}` {
		t.Errorf("one that is there: %s, %v, %v", out, there, err)
	}
}

// Whatever a file looks like, it holds the same and one thing more, or is
// refused.
func TestAddJSONKeepsTheRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ws := rapid.SampledFrom([]string{"", " ", "\n", "\n\t", " // c, }\n", "/* { */", "\r\n  "})
		var value func(depth int) string
		value = func(depth int) string {
			kind := rapid.IntRange(0, 4).Draw(t, "kind")
			if depth > 3 {
				kind = 0
			}
			switch kind {
			case 1, 2:
				var b strings.Builder
				b.WriteString("{" + ws.Draw(t, "ws"))
				n := rapid.IntRange(0, 3).Draw(t, "n")
				for i := range n {
					b.WriteString(fmt.Sprintf("%q%s:%s%s%s", rapid.SampledFrom([]string{"s", "t", "a\"", "//"}).Draw(t, "key"), ws.Draw(t, "ws"), ws.Draw(t, "ws"), value(depth+1), ws.Draw(t, "ws")))
					if i < n-1 || rapid.Bool().Draw(t, "comma") {
						b.WriteString("," + ws.Draw(t, "ws"))
					}
				}
				return b.String() + "}"
			case 3:
				return "[" + value(depth+1) + ws.Draw(t, "ws") + "]"
			}
			return rapid.SampledFrom([]string{"1", `"x"`, `"}"`, "null", "true"}).Draw(t, "scalar")
		}
		src := value(0)
		before, err := parseJSONC([]byte(src))
		if err != nil {
			t.Fatalf("%q: %v", src, err)
		}
		out, there, err := addJSON([]byte(src), []string{"s", "new"}, "v")
		if err != nil || there != nil {
			root, ok := before.value.(map[string]any)
			if inner, isObject := root["s"].(map[string]any); ok && (root["s"] == nil || isObject && inner["new"] == nil) && !strings.Contains(src, `"s"`) {
				t.Fatalf("%q: refused: %v", src, err)
			}
			return
		}
		again, there, err := addJSON(out, []string{"s", "new"}, "v")
		if err != nil || there != "v" || string(again) != string(out) {
			t.Fatalf("%q became %q, and then %q: %v", src, out, again, err)
		}
	})
}

// A table is appended; a server that is listed in any way TOML allows is
// left alone.
func TestAddServerTOML(t *testing.T) {
	const table = "[mcp_servers.tally]\ncommand = \"tally\"\nargs = [\"mcp\"]\n"
	for name, c := range map[string]struct{ in, want string }{
		"OK empty":        {"", table},
		"OK others":       {"a = 1\n[mcp_servers.x]\ncommand = \"y\"", "a = 1\n[mcp_servers.x]\ncommand = \"y\"\n\n" + table},
		"OK in a string":  {"a = \"\"\"\n[mcp_servers.tally]\n\"\"\"\n", "a = \"\"\"\n[mcp_servers.tally]\n\"\"\"\n\n" + table},
		"OK literal":      {"a = '''\nmcp_servers.tally = 1'''\n", "a = '''\nmcp_servers.tally = 1'''\n\n" + table},
		"OK in a list":    {"a = [ # [\n[1],\n  [\"mcp_servers\"],\n]\n", "a = [ # [\n[1],\n  [\"mcp_servers\"],\n]\n\n" + table},
		"OK in a comment": {"# [mcp_servers.tally]\n", "# [mcp_servers.tally]\n\n" + table},
		"OK line ends":    {"a = 1\r\n", "a = 1\r\n\r\n" + strings.ReplaceAll(table, "\n", "\r\n")},
		"OK other table":  {"[profiles.mcp_servers]\ntally = 1\n", "[profiles.mcp_servers]\ntally = 1\n\n" + table},
		"THERE header":    {"[ mcp_servers . \"tally\" ]\ncommand = \"x\"\n", ""},
		"THERE below":     {"[mcp_servers.tally.env]\nA = \"b\"\n", ""},
		"THERE dotted":    {"mcp_servers.tally.command = \"x\"\n", ""},
		"THERE in table":  {"[mcp_servers]\nx = { command = \"]\" }\ntally = { command = \"x\" }\n", ""},
		"THERE after":     {"a = [\n 1, ']', \"\\\"]\",\n]\nb = \"\"\"\\\"\"\"\"\n[mcp_servers.tally]\n", ""},
		"THERE comment":   {"a = 1 # [\n[mcp_servers.tally]\n", ""},
		"BAD one line":    {"mcp_servers = { x = { command = \"y\" } }\n", ""},
		"BAD array":       {"[[mcp_servers]]\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			out, there, err := addServerTOML([]byte(c.in), "tally", someServer)
			if (err != nil) != strings.HasPrefix(name, "BAD") || there != strings.HasPrefix(name, "THERE") {
				t.Fatalf("there %v, error %v", there, err)
			}
			if err == nil && !there && string(out) != c.want {
				t.Errorf("got\n%s\nwant\n%s", out, c.want)
			}
		})
	}
}

// I6: the block is the only thing that changes, once and for all.
func TestI6_BlockReplacesOnlyItself(t *testing.T) {
	names := []string{"mac:claude:x"}
	block := renderBlock(names)
	crlf := strings.ReplaceAll(block, "\n", "\r\n")
	for name, c := range map[string]struct{ in, want string }{
		"OK new file":    {"", block},
		"OK appended":    {"# Mine\n", "# Mine\n\n" + block},
		"OK no line end": {"# Mine", "# Mine\n\n" + block},
		"OK replaced":    {"a\n" + blockStart + " old -->\nx\n" + blockEnd + "\nb", "a\n" + block + "b"},
		"OK at the end":  {"a\n" + blockStart + "-->\n" + blockEnd, "a\n" + strings.TrimSuffix(block, "\n")},
		"OK line ends":   {"a\r\n" + blockStart + " -->\r\n" + blockEnd + "\r\nb\r\n", "a\r\n" + crlf + "b\r\n"},
		"OK mark":        {"\uFEFF" + blockStart + " -->\n" + blockEnd + "\n", "\uFEFF" + block},
		"OK quoted":      {"Text with `" + blockStart + "` in it\n", "Text with `" + blockStart + "` in it\n\n" + block},
		"OK same":        {block, block},
		"BAD two":        {block + block, ""},
		"BAD no end":     {blockStart + " -->\n", ""},
		"BAD no start":   {blockEnd + "\n", ""},
		"BAD turned":     {blockEnd + "\n" + blockStart + " -->\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := putBlock([]byte(c.in), names)
			if (err != nil) != strings.HasPrefix(name, "BAD") {
				t.Fatalf("error: %v", err)
			}
			if err != nil {
				return
			}
			if string(out) != c.want {
				t.Errorf("got\n%q\nwant\n%q", out, c.want)
			}
			if again, err := putBlock(out, names); err != nil || string(again) != string(out) {
				t.Errorf("the second time: %q, %v", again, err)
			}
		})
	}
}

// I7: names in blocks that are there already are found, MemPalace's too.
func TestI7_NamesInOldBlocks(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want []string
	}{
		"OK palace":      {palaceStart + " -->\nYour agent identity is\nwindows-claude — use it\n" + palaceEnd + " -->\n", []string{"windows-claude"}},
		"OK tuple":       {palaceStart + " -->\nidentity is `win:claude:app`.\n" + palaceEnd, []string{"win:claude:app"}},
		"OK ours":        {renderBlock([]string{"mac-claude", "lap-claude"}), []string{"mac-claude"}},
		"OK ours, tuple": {renderBlock([]string{"mac:claude:x"}), nil},
		"OK other agent": {palaceStart + " -->\nidentity is mac-codex.\n" + palaceEnd, nil},
		"OK outside":     {"Your identity is mac-claude.\n", nil},
		"OK no end":      {palaceStart + " -->\nidentity is mac-claude\n", nil},
		"OK any":         {renderBlock(nil), nil},
		"OK line ends":   {palaceStart + " -->\r\nidentity is\r\nmac-claude\r\n" + palaceEnd, []string{"mac-claude"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := spokenIn(c.in, "mac", "claude"); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// What is shown is what git would apply.
func TestDiffApplies(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Log("git is not installed; the script tests look at diffs, too")
		return
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.Custom(func(t *rapid.T) string {
			lines := rapid.SliceOfN(rapid.SampledFrom([]string{"a\n", "b\n", "\n", "c\n"}), 0, 30).Draw(t, "lines")
			end := rapid.SampledFrom([]string{"", "end"}).Draw(t, "end")
			return strings.Join(lines, "") + end
		})
		a, b := text.Draw(t, "before"), text.Draw(t, "after")
		d := unified("f", []byte(a), []byte(b), false)
		if a == b {
			if d != "" {
				t.Fatalf("a difference of equal texts:\n%s", d)
			}
			return
		}
		dir, err := os.MkdirTemp("", "diff")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		if err := os.WriteFile(filepath.Join(dir, "f"), []byte(a), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("git", "apply", "--unidiff-zero", "-p0", "-")
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(d)
		cmd.Env = append(plainEnv(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s\n%s", err, out, d)
		}
		got, err := os.ReadFile(filepath.Join(dir, "f"))
		if err != nil || string(got) != b {
			t.Fatalf("%q, want %q, by\n%s", got, b, d)
		}
	})
}
