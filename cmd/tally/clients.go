package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"tallystick/internal/jsonc"
	"tallystick/server"
)

// mcpServer is how a client starts a server.
type mcpServer struct {
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env,omitempty"`
}

// serverName is the server's name in every client. Some refuse underscores.
const serverName = "tally"

// place is what the files of clients are relative to.
type place struct {
	top  string // top of the working tree; empty: the user's own files
	user string // home directory
	env  func(string) string
	list []string // clients of this run
}

func (p place) exists(path ...string) bool {
	_, err := os.Stat(filepath.Join(path...))
	return err == nil
}

// dir is a client's own folder, which a variable may move.
func (p place) dir(variable string, fallback ...string) string {
	if d := p.env(variable); filepath.IsAbs(d) {
		return d
	}
	return filepath.Join(append([]string{p.user}, fallback...)...)
}

// client is a program that agents run in: how to know that it is used, which
// file its instructions are read from and where its servers are listed.
type client struct {
	name  string
	title string
	bins  []string
	home  []string // in the home directory
	repo  []string // in a repository
	// rules is the instruction file, empty if there is none to write; more are
	// files that it reads besides.
	rules func(p place) string
	more  func(p place) []string
	// config is the file of servers, and add puts one in. A client without
	// config is told by hand.
	config func(p place) string
	add    func(src []byte, s mcpServer) (out []byte, there bool, err error)
	byHand func(s mcpServer) string
	// hooks is the file of settings that a command to run at the start of a
	// session is put into. Clients that have none of these hooks have no file.
	hooks func(p place) string
	// servers are files that list its servers besides config, and key is the path
	// of names in them that the list is at.
	servers func(p place) []string
	key     []string
}

func addTo(path ...string) func(src []byte, s mcpServer) ([]byte, bool, error) {
	return func(src []byte, s mcpServer) ([]byte, bool, error) {
		out, there, err := jsonc.Add(src, append(slices.Clone(path), serverName), s)
		return out, there != nil, err
	}
}

var clients = []client{
	{
		name: "claude", title: "Claude Code", bins: []string{"claude"}, home: []string{".claude", ".claude.json"},
		repo: []string{"CLAUDE.md", ".claude", ".mcp.json"},
		rules: func(p place) string {
			if p.top == "" {
				return filepath.Join(p.dir("CLAUDE_CONFIG_DIR", ".claude"), "CLAUDE.md")
			}
			if !p.exists(p.top, "CLAUDE.md") && p.exists(p.top, ".claude", "CLAUDE.md") {
				return filepath.Join(p.top, ".claude", "CLAUDE.md")
			}
			return filepath.Join(p.top, "CLAUDE.md")
		},
		more: func(p place) []string {
			return []string{filepath.Join(p.dir("CLAUDE_CONFIG_DIR", ".claude"), "CLAUDE.md"), filepath.Join(p.top, "CLAUDE.local.md")}
		},
		config: func(p place) string {
			if p.top == "" {
				return "" // ~/.claude.json is the client's own; it is asked to write it
			}
			return filepath.Join(p.top, ".mcp.json")
		},
		add: addTo("mcpServers"), key: []string{"mcpServers"},
		servers: func(p place) []string {
			if dir := p.env("CLAUDE_CONFIG_DIR"); filepath.IsAbs(dir) {
				return []string{filepath.Join(dir, ".claude.json")}
			}
			return []string{filepath.Join(p.user, ".claude.json")}
		},
		hooks: func(p place) string {
			if p.top == "" {
				return filepath.Join(p.dir("CLAUDE_CONFIG_DIR", ".claude"), "settings.json")
			}
			return filepath.Join(p.top, ".claude", "settings.json")
		},
		byHand: func(s mcpServer) string {
			env := ""
			for _, k := range sortedKeys(s.Env) {
				env += " --env " + k + "=" + s.Env[k]
			}
			return "claude mcp add --scope user" + env + " " + serverName + " -- " + strings.Join(append([]string{s.Command}, s.Args...), " ")
		},
	},
	{
		name: "codex", title: "Codex", bins: []string{"codex"}, home: []string{".codex"}, repo: []string{".codex"},
		rules: func(p place) string {
			if p.top == "" {
				return filepath.Join(p.dir("CODEX_HOME", ".codex"), "AGENTS.md")
			}
			if p.exists(p.top, "AGENTS.override.md") { // it is read instead
				return filepath.Join(p.top, "AGENTS.override.md")
			}
			return filepath.Join(p.top, "AGENTS.md")
		},
		more:   func(p place) []string { return []string{filepath.Join(p.dir("CODEX_HOME", ".codex"), "AGENTS.md")} },
		config: func(p place) string { return filepath.Join(p.dir("CODEX_HOME", ".codex"), "config.toml") },
		add:    func(src []byte, s mcpServer) ([]byte, bool, error) { return addServerTOML(src, serverName, s) },
	},
	{
		name: "gemini", title: "Gemini CLI", bins: []string{"gemini"}, home: []string{".gemini"}, repo: []string{"GEMINI.md", ".gemini"},
		rules: func(p place) string {
			dir, settings := p.top, filepath.Join(p.top, ".gemini", "settings.json")
			if p.top == "" {
				dir = filepath.Join(p.user, ".gemini")
				settings = filepath.Join(dir, "settings.json")
			}
			return filepath.Join(dir, geminiContext(settings, filepath.Join(p.user, ".gemini", "settings.json")))
		},
		more: func(p place) []string { return []string{filepath.Join(p.user, ".gemini", "GEMINI.md")} },
		config: func(p place) string {
			if p.top == "" {
				return filepath.Join(p.user, ".gemini", "settings.json")
			}
			return filepath.Join(p.top, ".gemini", "settings.json")
		},
		add: addTo("mcpServers"), key: []string{"mcpServers"},
		servers: func(p place) []string { return []string{filepath.Join(p.user, ".gemini", "settings.json")} },
	},
	{
		name: "cursor", title: "Cursor", bins: []string{"cursor", "cursor-agent"}, home: []string{".cursor"}, repo: []string{".cursor", ".cursorrules"},
		rules: func(p place) string {
			if p.top == "" {
				return "" // the user's rules are in its settings, not in a file
			}
			return filepath.Join(p.top, ".cursor", "rules", "tally.mdc")
		},
		more: func(p place) []string {
			return []string{filepath.Join(p.top, "AGENTS.md"), filepath.Join(p.top, ".cursorrules")}
		},
		config: func(p place) string {
			if p.top == "" {
				return filepath.Join(p.user, ".cursor", "mcp.json")
			}
			return filepath.Join(p.top, ".cursor", "mcp.json")
		},
		add: addTo("mcpServers"), key: []string{"mcpServers"},
		servers: func(p place) []string { return []string{filepath.Join(p.user, ".cursor", "mcp.json")} },
	},
	{
		name: "opencode", title: "OpenCode", bins: []string{"opencode"}, home: []string{".config/opencode"}, repo: []string{"opencode.json", "opencode.jsonc", ".opencode"},
		rules: func(p place) string {
			if p.top == "" {
				return filepath.Join(p.dir("XDG_CONFIG_HOME", ".config"), "opencode", "AGENTS.md")
			}
			// It reads CLAUDE.md where there is no AGENTS.md; a new AGENTS.md would
			// hide it.
			if !p.exists(p.top, "AGENTS.md") && p.exists(p.top, "CLAUDE.md") && !slices.Contains(p.list, "codex") {
				return filepath.Join(p.top, "CLAUDE.md")
			}
			return filepath.Join(p.top, "AGENTS.md")
		},
		more: func(p place) []string {
			return []string{filepath.Join(p.dir("XDG_CONFIG_HOME", ".config"), "opencode", "AGENTS.md")}
		},
		config: func(p place) string {
			dir := p.top
			if dir == "" {
				dir = filepath.Join(p.dir("XDG_CONFIG_HOME", ".config"), "opencode")
			}
			if p.exists(dir, "opencode.jsonc") && !p.exists(dir, "opencode.json") {
				return filepath.Join(dir, "opencode.jsonc")
			}
			return filepath.Join(dir, "opencode.json")
		},
		add: func(src []byte, s mcpServer) ([]byte, bool, error) {
			v := map[string]any{"type": "local", "command": append([]string{s.Command}, s.Args...), "enabled": true}
			if len(s.Env) > 0 {
				v["environment"] = s.Env
			}
			out, there, err := jsonc.Add(src, []string{"mcp", serverName}, v)
			return out, there != nil, err
		},
		key: []string{"mcp"},
		servers: func(p place) []string {
			dir := filepath.Join(p.dir("XDG_CONFIG_HOME", ".config"), "opencode")
			return []string{filepath.Join(dir, "opencode.json"), filepath.Join(dir, "opencode.jsonc")}
		},
	},
	{
		// A folder .vscode says that the editor is used, not that an agent works in
		// it; what only agents read there does.
		name: "vscode", title: "VS Code", repo: []string{".vscode/mcp.json", ".github/copilot-instructions.md"},
		rules: func(p place) string {
			if p.top == "" {
				return "" // the user's instructions belong to a profile
			}
			if !p.exists(p.top, ".github", "copilot-instructions.md") && (p.exists(p.top, "AGENTS.md") || slices.Contains(p.list, "codex")) {
				return filepath.Join(p.top, "AGENTS.md")
			}
			return filepath.Join(p.top, ".github", "copilot-instructions.md")
		},
		more: func(p place) []string { return []string{filepath.Join(p.top, "AGENTS.md")} },
		config: func(p place) string {
			if p.top == "" {
				return "" // it is in the folder of a profile
			}
			return filepath.Join(p.top, ".vscode", "mcp.json")
		},
		add: func(src []byte, s mcpServer) ([]byte, bool, error) {
			out, there, err := jsonc.Add(src, []string{"servers", serverName}, struct {
				Type string `json:"type"`
				mcpServer
			}{"stdio", s})
			return out, there != nil, err
		},
		byHand: func(s mcpServer) string {
			v := jsonc.Encode(struct {
				Name string `json:"name"`
				mcpServer
			}{serverName, s})
			return "code --add-mcp '" + string(v) + "'"
		},
		key: []string{"servers"},
	},
}

func clientNames() []string {
	names := make([]string, len(clients))
	for i := range clients {
		names[i] = clients[i].name
	}
	return names
}

func clientByName(name string) (*client, error) {
	for i := range clients {
		if clients[i].name == name {
			return &clients[i], nil
		}
	}
	e := usage("client", "name one of them, or several with commas", "there is no client %q", name)
	e.Allowed = clientNames()
	return nil, e
}

// used reports whether a client is on this machine or in this repository.
func (c *client) used(p place) bool {
	for _, b := range c.bins {
		if _, err := exec.LookPath(b); err == nil {
			return true
		}
	}
	for _, h := range c.home {
		if p.exists(p.user, h) {
			return true
		}
	}
	return p.top != "" && slices.ContainsFunc(c.repo, func(f string) bool { return p.exists(p.top, filepath.FromSlash(f)) })
}

// geminiContext is the name of the file that Gemini CLI reads, which its
// settings may change.
func geminiContext(settings ...string) string {
	for _, path := range settings {
		b, err := server.ReadSmallFile(path, maxSettingsFile)
		if err != nil {
			continue
		}
		root, err := jsonc.Parse(b)
		if err != nil {
			continue
		}
		name := root.Member("contextFileName")
		if name == nil {
			name = root.At("context", "fileName")
		}
		if name == nil {
			continue
		}
		switch v := name.Value.(type) {
		case string:
			if plainName(v) {
				return v
			}
		case []any:
			for _, one := range v {
				if s, ok := one.(string); ok && plainName(s) {
					return s
				}
			}
		}
	}
	return "GEMINI.md"
}

func plainName(s string) bool { return s != "" && s != "." && s != ".." && filepath.Base(s) == s }

// readOptional reads a file that need not exist. One that is too large for
// what it is, or no regular file, is an error.
func readOptional(path string) (text []byte, exists bool, err error) {
	_, err = os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(path); err == nil {
			return nil, false, fmt.Errorf("%s is a link to a file that is not there", path)
		}
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	text, err = server.ReadSmallFile(path, maxSettingsFile)
	return text, true, err
}

// replaceFile writes a file in one step, through a link, keeping its mode.
func replaceFile(path string, text []byte) error {
	mode := fs.FileMode(0o644)
	if strings.HasSuffix(path, ".toml") {
		mode = 0o600
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
		if mode&0o200 == 0 {
			return fmt.Errorf("%s may not be written (mode %04o)", path, mode)
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".tally-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(text)
	if err = errors.Join(err, tmp.Chmod(mode), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
