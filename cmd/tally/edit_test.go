package main

import (
	"slices"
	"strings"
	"testing"
)

var someServer = mcpServer{Command: "tally", Args: []string{"mcp"}}

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
