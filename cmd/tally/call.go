package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"tallystick/server"
)

// args are the arguments of a tool call: only what was given, so that the
// server's defaults and its checks count.
type args map[string]any

// text sets a field when it is not empty.
func (m args) text(name, value string) args {
	if value != "" {
		m[name] = value
	}
	return m
}

// encode writes the arguments as JSON. What is not UTF-8 is refused here: the
// encoder would put U+FFFD in place of such bytes, and what is stored would
// not be what was given.
func (m args) encode() (json.RawMessage, error) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		valid := true
		switch v := m[name].(type) {
		case string:
			valid = utf8.ValidString(v)
		case []string:
			valid = !slices.ContainsFunc(v, func(s string) bool { return !utf8.ValidString(s) })
		case json.RawMessage:
			valid = utf8.Valid(v)
		}
		if !valid {
			return nil, usage(name, "send text in UTF-8; other bytes can go in a file, with tally artifact put", "%s contains bytes that are not UTF-8", name)
		}
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode arguments: %w", err)
	}
	return raw, nil
}

// call runs one tool as the person or agent at the command line and returns
// the result as it came.
func (a *app) call(ctx context.Context, tool string, in args) (json.RawMessage, error) {
	s, err := a.session("cli")
	if err != nil {
		return nil, err
	}
	raw, err := in.encode()
	if err != nil {
		return nil, err
	}
	out, err := ask(ctx, a, func(ctx context.Context, c *server.Client) (json.RawMessage, error) {
		out, fail := c.Call(ctx, s, tool, raw, server.NewOpID())
		if fail != nil {
			return nil, fail
		}
		return out, nil
	})
	if err == nil {
		a.warnSecrets(out)
	}
	return out, err
}

// warnSecrets says when what was written likely holds a secret.
func (a *app) warnSecrets(out json.RawMessage) {
	var r struct {
		Secrets []struct {
			Field string `json:"field"`
			Kind  string `json:"kind"`
			Shown string `json:"shown"`
		} `json:"secrets"`
		Warning string `json:"warning"`
	}
	if a.json || json.Unmarshal(out, &r) != nil || len(r.Secrets) == 0 {
		return
	}
	for _, f := range r.Secrets {
		a.say("warning: %s: %s, %s", oneLine(f.Field, 60), oneLine(f.Kind, 60), oneLine(f.Shown, 20))
	}
	a.say("%s", oneLine(r.Warning, 300))
}

// show prints the result of a tool: as it came with --json, else through human.
func show[T any](a *app, raw json.RawMessage, human func(T) error) error {
	if a.json {
		return a.printJSON(raw)
	}
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	return human(v)
}

// exitIf ends with a code when the printed result says so.
func exitIf[T any](raw json.RawMessage, is func(T) bool, code int) error {
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if is(v) {
		return quiet{code}
	}
	return nil
}
