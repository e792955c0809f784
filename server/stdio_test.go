package server

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
)

// rawStdio is a stdio server that the test speaks to by the line.
type rawStdio struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Reader
}

func startRawStdio(t *testing.T, b Backend) *rawStdio {
	t.Helper()
	toServer, in := io.Pipe()
	out, fromServer := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- ServeStdio(t.Context(), toServer, fromServer, b, MCPOptions{Session: claude})
		fromServer.Close()
	}()
	t.Cleanup(func() {
		in.Close()
		out.Close()
		<-ended
	})
	r := &rawStdio{t, in, bufio.NewReader(out)}
	r.send(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`)
	if m := r.read(); m["id"] != "init" || m["error"] != nil {
		t.Fatalf("initialize: %v", m)
	}
	r.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return r
}

func (r *rawStdio) send(line string) {
	r.t.Helper()
	if _, err := io.WriteString(r.in, line+"\n"); err != nil {
		r.t.Fatalf("the server has ended: %v", err)
	}
}

func (r *rawStdio) read() (m map[string]any) {
	r.t.Helper()
	line, err := r.out.ReadBytes('\n')
	if err != nil {
		r.t.Fatalf("the server has ended: %v", err)
	}
	if err := json.Unmarshal(line, &m); err != nil {
		r.t.Fatalf("%v: %s", err, line)
	}
	return m
}

// TestStdioBadLines: a line that is no message is answered and costs nothing
// else; a call in flight gets its answer.
func TestStdioBadLines(t *testing.T) {
	r := startRawStdio(t, newEnv(t).svc)
	r.send(`{"jsonrpc":"2.0","id":"waits","method":"tools/call","params":{"name":"event_wait","arguments":{"type":"x","timeout_ms":60000}}}`)
	deep := strings.Repeat("[", 2000) + strings.Repeat("]", 2000)
	deepest := strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000)
	for _, c := range []struct {
		name, line string
		id         any
		code       float64 // 0: the result of a tool that failed
		says       string
	}{
		{"no JSON", "not json", nil, -32700, "no JSON"},
		{"half", `{"jsonrpc":"2.0","id":4,"method":`, nil, -32700, "no JSON"},
		{"empty object", `{}`, nil, -32600, "JSON-RPC 2.0"},
		{"batch", `[{"jsonrpc":"2.0","id":5,"method":"ping"}]`, nil, -32600, "batches"},
		{"number", `17`, nil, -32600, "object"},
		{"two messages", `{"jsonrpc":"2.0","id":5,"method":"ping"}{}`, nil, -32700, "no JSON"},
		{"old version", `{"jsonrpc":"1.0","id":6,"method":"ping"}`, 6.0, -32600, "JSON-RPC 2.0"},
		{"id of a wrong type", `{"jsonrpc":"2.0","id":[7],"method":"ping"}`, nil, -32600, "JSON-RPC 2.0"},
		{"method of a wrong type", `{"jsonrpc":"2.0","id":"8","method":8}`, "8", -32600, "JSON-RPC 2.0"},
		{"deep call", `{"method":"tools/call","params":{"name":"event_append","arguments":{"id":"no","metadata":{"a":` + deep + `}}},"jsonrpc":"2.0","id":9}`, 9.0, 0, "1000 levels"},
		{"deeper call", `{"jsonrpc":"2.0","id":10,"method":"tools/call","params":{"name":"whoami","arguments":` + deepest + `}}`, 10.0, 0, "1000 levels"},
		{"deep other", `{"jsonrpc":"2.0","id":11,"method":"ping","params":{"a":` + deep + `}}`, 11.0, -32600, "1000 levels"},
		{"long", `{"params":{"name":"whoami","arguments":{"a":"` + strings.Repeat(`\"x`, mcpLine/3) + `"}},"jsonrpc":"2.0","id":"l\"","method":"tools/call"}`, `l"`, -32600, "longer than 16777216 bytes"},
	} {
		r.send(c.line)
		m := r.read()
		got := string(encode(m))
		if m["id"] != c.id || !strings.Contains(got, c.says) {
			t.Errorf("%s: %s", c.name, clip(got))
		}
		if e, _ := m["error"].(map[string]any); c.code != 0 && e["code"] != c.code {
			t.Errorf("%s: %s", c.name, clip(got))
		}
		if res, _ := m["result"].(map[string]any); c.code == 0 && res["isError"] != true {
			t.Errorf("%s: %s", c.name, clip(got))
		}
	}
	r.send(" \r")
	r.send(`{"jsonrpc":"2.0","id":12,"method":"tools/call","params":{"name":"event_append","arguments":{"type":"x","stream":"s","room":"r"}}}` + "\r")
	answered := map[any]bool{}
	for range 2 {
		m := r.read()
		answered[m["id"]] = m["error"] == nil
	}
	if !answered[12.0] || !answered["waits"] {
		t.Errorf("answered: %v", answered)
	}
}

// TestStdioEnds: the server ends with its input.
func TestStdioEnds(t *testing.T) {
	err := ServeStdio(context.Background(), io.NopCloser(strings.NewReader("x\n{")), discardCloser{io.Discard}, &brokenBackend{}, MCPOptions{})
	if err != nil && err != io.EOF {
		t.Error(err)
	}
}

type discardCloser struct{ io.Writer }

func (discardCloser) Close() error { return nil }
