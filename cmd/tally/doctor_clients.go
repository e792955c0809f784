package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"tallystick/internal/jsonc"
)

// clients looks at each client that is in use here: whether it lists the
// server, and whether what it would start is there and is this program.
func (d *doctor) clients() {
	p, err := d.a.place()
	if err != nil {
		d.add("clients", checkSkip, "", "the clients here could not be looked at: %s", messageOf(err))
		return
	}
	found := 0
	for i := range clients {
		c := &clients[i]
		if c.used(p) {
			found++
			d.client(p, c)
		}
	}
	if found == 0 {
		d.add("clients", checkOK, "", "none of %s is in use here", strings.Join(clientNames(), ", "))
	}
}

func (d *doctor) client(p place, c *client) {
	var files []string
	if path := c.config(p); path != "" {
		files = append(files, path)
	}
	if c.servers != nil {
		files = append(files, c.servers(p)...)
	}
	for _, path := range files {
		text, exists, err := readOptional(path)
		if err == nil && exists {
			var s mcpServer
			var listed bool
			if s, listed, err = c.listed(text); err == nil && listed {
				d.wiring(p, c, path, s)
				return
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			d.add("clients", checkWarn, "mend the file by hand; tally init leaves it as it is", "%s: %s cannot be read: %v", c.title, shownPath(p, path), err)
			return
		}
	}
	if len(files) == 0 {
		d.add("clients", checkOK, "", "%s keeps its servers to itself here", c.title)
		return
	}
	d.add("clients", checkWarn, "tally init --client "+c.name, "%s is in use and does not list the server %s", c.title, serverName)
}

// wiring judges how a client would start the server.
func (d *doctor) wiring(p place, c *client, path string, s mcpServer) {
	where := shownPath(p, path)
	hint := "change it in " + where + ", or take it out there and run tally init --client " + c.name
	if s.Command == "" {
		d.add("clients", checkOK, "", "%s lists the server (%s)", c.title, where)
		return
	}
	if home := s.Env[envPrefix+"HOME"]; home != d.h.root {
		mine, theirs := d.h.root, home
		if theirs == "" {
			theirs = "the default folders"
		}
		if mine == "" {
			mine = "the default folders"
		}
		d.add("clients", checkWarn, hint, "%s works with another replica than this: %s, not %s (%s)", c.title, theirs, mine, where)
		return
	}
	target, err := exec.LookPath(s.Command)
	switch own, _ := os.Executable(); {
	case err != nil && filepath.IsAbs(s.Command):
		d.add("clients", checkWarn, hint, "%s starts %s, which is not there or no program (%s)", c.title, s.Command, where)
	case err != nil:
		d.add("clients", checkWarn, "put it into a folder of the PATH, or name it with its whole path in "+where, "%s starts %s, which is not in the PATH (%s)", c.title, s.Command, where)
	case own != "" && !sameFile(target, own):
		d.add("clients", checkWarn, hint, "%s starts %s, and this is %s (%s)", c.title, target, own, where)
	default:
		d.add("clients", checkOK, "", "%s starts %s (%s)", c.title, strings.Join(append([]string{s.Command}, s.Args...), " "), where)
	}
}

// listed finds the server in a client's file.
func (c *client) listed(text []byte) (s mcpServer, ok bool, err error) {
	if len(c.key) == 0 {
		return listedTOML(text, serverName)
	}
	if len(strings.TrimSpace(string(text))) == 0 {
		return s, false, nil
	}
	n, err := jsonc.Parse(text)
	if err != nil {
		return s, false, err
	}
	at := n.At(append(slices.Clone(c.key), serverName)...)
	if at == nil {
		return s, false, nil
	}
	if m := at.Member("command"); m != nil {
		switch v := m.Value.(type) {
		case string:
			s.Command = v
		case []any: // with its arguments
			for _, one := range v {
				if word, ok := one.(string); ok {
					s.Args = append(s.Args, word)
				}
			}
			if len(s.Args) > 0 {
				s.Command, s.Args = s.Args[0], s.Args[1:]
			}
		}
	}
	if m := at.Member("args"); m != nil {
		list, _ := m.Value.([]any)
		for _, one := range list {
			if word, ok := one.(string); ok {
				s.Args = append(s.Args, word)
			}
		}
	}
	for _, name := range []string{"env", "environment"} {
		if m := at.Member(name); m != nil {
			env, _ := m.Value.(map[string]any)
			for k, v := range env {
				if text, ok := v.(string); ok {
					if s.Env == nil {
						s.Env = map[string]string{}
					}
					s.Env[k] = text
				}
			}
		}
	}
	return s, true, nil
}

// listedTOML finds the table of a server, and what it says in the plain form
// that tally and people write; of other forms only that it is there.
func listedTOML(text []byte, name string) (s mcpServer, ok bool, err error) {
	_, ok, err = addServerTOML(text, name, mcpServer{})
	if err != nil || !ok {
		return s, false, err
	}
	var table []string
	for _, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			table, _ = tomlKey(strings.TrimLeft(line, "["))
			continue
		}
		key, rest := tomlKey(line)
		if len(table) < 2 || table[0] != "mcp_servers" || table[1] != name || len(key) != 1 {
			continue
		}
		value := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(rest), "="))
		word, err := strconv.Unquote(value)
		if err != nil {
			continue
		}
		switch {
		case len(table) == 2 && key[0] == "command":
			s.Command = word
		case len(table) == 3 && table[2] == "env":
			if s.Env == nil {
				s.Env = map[string]string{}
			}
			s.Env[key[0]] = word
		}
	}
	return s, true, nil
}
