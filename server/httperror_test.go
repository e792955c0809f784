package server

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestHTTPErrorsAreObjects: a request that the SDK refuses gets the error
// object too, with the right status.
func TestHTTPErrorsAreObjects(t *testing.T) {
	s, tokens := newHTTP(t, echoBackend{}, HTTPOptions{})
	mine, other := mustToken(t, tokens, claude), mustToken(t, tokens, codex)
	do := func(method, token, session string, body io.Reader) (*http.Response, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, s.URL(), body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			r.Header.Set("Mcp-Session-Id", session)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res, string(b)
	}
	const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	const ping = `{"jsonrpc":"2.0","id":2,"method":"ping"}`
	res, text := do("POST", mine, "", strings.NewReader(initialize))
	session := res.Header.Get("Mcp-Session-Id")
	if res.StatusCode != 200 || session == "" {
		t.Fatalf("initialize: %d %s", res.StatusCode, text)
	}
	for _, c := range []struct {
		name, method, token, session string
		body                         io.Reader
		status                       int
		code                         Code
	}{
		{"DELETE without session", "DELETE", mine, "", nil, 400, CodeInvalidArgument},
		{"PUT", "PUT", mine, "", nil, 405, CodeInvalidArgument},
		{"session of another user", "POST", other, session, strings.NewReader(ping), 403, CodePeerRefused},
		{"unknown session", "POST", mine, "nope", strings.NewReader(ping), 404, CodeNotFound},
		{"unknown session, GET", "GET", mine, "nope", nil, 404, CodeNotFound},
		{"long body", "POST", mine, session, bytes.NewReader(make([]byte, 17<<20)), 413, CodeTooLarge},
		{"long body, chunked", "POST", mine, session, io.MultiReader(strings.NewReader(`{"a":"`), bytes.NewReader(bytes.Repeat([]byte("x"), 17<<20))), 413, CodeTooLarge},
		{"no JSON", "POST", mine, session, strings.NewReader("not json"), 400, CodeInvalidArgument},
	} {
		res, text := do(c.method, c.token, c.session, c.body)
		e, ok := ParseError([]byte(text))
		if res.StatusCode != c.status || !ok || e.Code != c.code || e.Message == "" || e.Hint == "" || res.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s %s", c.name, res.StatusCode, res.Header.Get("Content-Type"), clip(text))
		}
	}
	if res, text := do("POST", mine, session, strings.NewReader(ping)); res.StatusCode != 200 {
		t.Errorf("the session has ended: %d %s", res.StatusCode, text)
	}
}
