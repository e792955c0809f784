package server

import (
	"bufio"
	"encoding/json"
	"io"
	"slices"
	"testing"
)

// TestBadInput_CancelledWaitHasNoAnswer: on stdio a request that its client has
// cancelled gets no answer, whether its id is a number or a text, and a
// cancellation of what is not pending costs nobody an answer.
func TestBadInput_CancelledWaitHasNoAnswer(t *testing.T) {
	e := newEnv(t)
	toServer, in := io.Pipe()
	out, fromServer := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- ServeStdio(t.Context(), toServer, fromServer, e.svc, MCPOptions{Session: claude})
		fromServer.Close()
	}()
	answered := make(chan []string, 1)
	cancelled := make(chan struct{})
	go func() {
		var ids []string
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var m struct {
				ID     json.RawMessage `json:"id"`
				Method string          `json:"method"`
			}
			if json.Unmarshal(lines.Bytes(), &m) == nil && m.Method == "" {
				if ids = append(ids, string(m.ID)); string(m.ID) == "3" {
					close(cancelled)
				}
			}
		}
		answered <- ids
	}()
	send := func(line string) {
		t.Helper()
		if _, err := io.WriteString(in, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	wait := func(id string, ms string) {
		send(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"event_wait","arguments":{"to_agent":"@me","timeout_ms":` + ms + `}}}`)
	}
	cancel := func(id string) {
		send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
	}
	send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`)
	send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	cancel("3") // comes before there is such a call
	wait("1", "300000")
	wait(`"two"`, "300000")
	e.untilWaiting(2)
	cancel("1")
	cancel(`"two"`)
	e.untilWaiting(0)
	wait("3", "1")
	<-cancelled
	cancel("3") // has its answer
	for _, odd := range []string{`null`, `{}`, `[1]`, `"unknown"`, `1.5`} {
		cancel(odd)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	ids := <-answered
	<-ended
	slices.Sort(ids)
	if slices.Contains(ids, "1") || slices.Contains(ids, `"two"`) || !slices.Contains(ids, "3") || !slices.Contains(ids, "0") {
		t.Errorf("answered: %v", ids)
	}
}
