package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// addServerTOML appends the table of a server to a file in TOML, unless the
// file has one. Tables may stand anywhere, so nothing else moves.
func addServerTOML(src []byte, name string, s mcpServer) (out []byte, there bool, err error) {
	var table []string
	for _, l := range tomlLines(string(src)) {
		if l.header {
			table = l.key
			if l.array && len(table) > 0 && table[0] == "mcp_servers" {
				return nil, false, fmt.Errorf("mcp_servers is an array of tables")
			}
			if len(table) >= 2 && table[0] == "mcp_servers" && table[1] == name {
				return src, true, nil
			}
			continue
		}
		full := append(append([]string{}, table...), l.key...)
		if len(full) > 0 && full[0] == "mcp_servers" {
			if len(full) == 1 {
				return nil, false, fmt.Errorf("mcp_servers is written in one line, which cannot be added to")
			}
			if full[1] == name {
				return src, true, nil
			}
		}
	}
	nl := "\n"
	if bytes.Contains(src, []byte("\r\n")) {
		nl = "\r\n"
	}
	quoted := make([]string, len(s.Args))
	for i, a := range s.Args {
		quoted[i] = strconv.Quote(a)
	}
	lines := []string{"[mcp_servers." + name + "]", "command = " + strconv.Quote(s.Command), "args = [" + strings.Join(quoted, ", ") + "]"}
	if len(s.Env) > 0 {
		lines = append(lines, "", "[mcp_servers."+name+".env]")
		for _, k := range sortedKeys(s.Env) {
			lines = append(lines, k+" = "+strconv.Quote(s.Env[k]))
		}
	}
	out = bytes.Clone(src)
	if len(bytes.TrimSpace(out)) > 0 {
		if !bytes.HasSuffix(out, []byte("\n")) {
			out = append(out, nl...)
		}
		out = append(out, nl...)
	}
	return append(out, strings.Join(lines, nl)+nl...), false, nil
}

// tomlLine is a table's header or the key of a value.
type tomlLine struct {
	header, array bool
	key           []string
}

// tomlLines finds the headers and keys of a file. Text in strings and in values
// of several lines is not taken for either.
func tomlLines(src string) (list []tomlLine) {
	open, depth := "", 0 // the string or brackets that a value has not closed yet
	for _, line := range strings.Split(src, "\n") {
		line = strings.TrimRight(line, "\r")
		text := strings.TrimSpace(line)
		fresh := open == "" && depth == 0
		if fresh && strings.HasPrefix(text, "[") {
			l := tomlLine{header: true, array: strings.HasPrefix(text, "[[")}
			l.key, _ = tomlKey(strings.TrimLeft(text, "["))
			list = append(list, l)
			continue
		}
		value := line
		if fresh {
			key, rest := tomlKey(text)
			if len(key) == 0 {
				continue
			}
			list = append(list, tomlLine{key: key})
			value = strings.TrimPrefix(strings.TrimSpace(rest), "=")
		}
		open, depth = tomlValue(value, open, depth)
	}
	return list
}

// tomlKey reads a dotted key and gives what is behind it.
func tomlKey(s string) (key []string, rest string) {
	for {
		s = strings.TrimLeft(s, " \t")
		var part string
		switch {
		case s == "" || s[0] == '#' || s[0] == '=' || s[0] == ']':
			return key, s
		case s[0] == '"' || s[0] == '\'':
			i := strings.IndexByte(s[1:], s[0])
			if i < 0 {
				return key, ""
			}
			part, s = s[1:1+i], s[2+i:]
		default:
			i := strings.IndexAny(s, " \t.=]#")
			if i < 0 {
				i = len(s)
			}
			part, s = s[:i], s[i:]
		}
		if part != "" {
			key = append(key, part)
		}
		s = strings.TrimLeft(s, " \t")
		if !strings.HasPrefix(s, ".") {
			return key, s
		}
		s = s[1:]
	}
}

// tomlValue follows a value to the end of its line.
func tomlValue(s, open string, depth int) (string, int) {
	for s != "" {
		if open != "" {
			if strings.HasPrefix(open, `"`) && s[0] == '\\' {
				s = s[min(2, len(s)):]
				continue
			}
			if strings.HasPrefix(s, open) {
				s, open = s[len(open):], ""
				continue
			}
			s = s[1:]
			continue
		}
		switch {
		case strings.HasPrefix(s, `"""`), strings.HasPrefix(s, `'''`):
			open, s = s[:3], s[3:]
			continue
		case s[0] == '"' || s[0] == '\'':
			open = s[:1]
		case s[0] == '#':
			return "", depth
		case s[0] == '[' || s[0] == '{':
			depth++
		case s[0] == ']' || s[0] == '}':
			depth = max(0, depth-1)
		}
		s = s[1:]
	}
	if len(open) == 1 {
		open = "" // a plain string ends with its line
	}
	return open, depth
}
