package server

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// brokenBackend panics: for tests that never call a tool, or that want to
// see what a panic does.
type brokenBackend struct{}

func (*brokenBackend) Call(context.Context, Session, string, json.RawMessage, string) (json.RawMessage, *Error) {
	panic("broken backend")
}

// connectMemory connects the official client to srv, at an old protocol
// revision if one is named.
func connectMemory(t *testing.T, srv *mcp.Server, revision string) *mcp.ClientSession {
	t.Helper()
	a, b := mcp.NewInMemoryTransports()
	ss, err := srv.Connect(t.Context(), a, nil)
	if err != nil {
		t.Fatal(err)
	}
	cs := connect(t, b, revision)
	t.Cleanup(func() { cs.Close(); ss.Wait() })
	return cs
}

func connect(t testing.TB, tr mcp.Transport, revision string) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	cs, err := client.Connect(t.Context(), tr, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatal(err)
	}
	return cs
}

// listRaw is the tools of tools/list as JSON.
func listRaw(t *testing.T, cs *mcp.ClientSession) []byte {
	t.Helper()
	res, err := cs.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(res.Tools); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSpace(b.Bytes())
}
