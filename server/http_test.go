package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// echoBackend answers with what it was asked.
type echoBackend struct{}

func (echoBackend) Call(_ context.Context, s Session, tool string, args json.RawMessage, opID string) (json.RawMessage, *Error) {
	return encode(map[string]any{"session": s, "tool": tool, "args": string(args), "op": opID != ""}), nil
}

type withToken struct{ token string }

func (w withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+w.token)
	return http.DefaultTransport.RoundTrip(r)
}

func newHTTP(t testing.TB, b Backend, o HTTPOptions) (*HTTPServer, *Tokens) {
	t.Helper()
	tokens, err := OpenTokens(filepath.Join(t.TempDir(), "state", "tokens"))
	if err != nil {
		t.Fatal(err)
	}
	o.Addr, o.Tokens = "127.0.0.1:0", tokens
	s, err := ListenHTTP(b, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, tokens
}

func mustToken(t testing.TB, tokens *Tokens, s Session) string {
	t.Helper()
	tok, err := tokens.Token(s, false)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestHTTPRevisions: every protocol revision is served at one address, and
// the session is that of the token.
func TestHTTPRevisions(t *testing.T) {
	s, tokens := newHTTP(t, echoBackend{}, HTTPOptions{})
	hc := &http.Client{Transport: withToken{mustToken(t, tokens, Session{Agent: "claude", Project: "p", Bound: true})}}
	for _, revision := range append(mcp.SupportedProtocolVersions(), "") {
		t.Run("OK "+revision, func(t *testing.T) {
			cs := connect(t, &mcp.StreamableClientTransport{Endpoint: s.URL(), HTTPClient: hc}, revision)
			defer cs.Close()
			if got := cs.InitializeResult().ProtocolVersion; got != revision && revision != "" {
				t.Errorf("speaks revision %s", got)
			}
			res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "whoami", Arguments: map[string]any{}})
			if err != nil {
				t.Fatal(err)
			}
			text := res.Content[0].(*mcp.TextContent).Text
			if !strings.Contains(text, `"agent":"claude","project":"p","bound":true`) {
				t.Errorf("called as %s", text)
			}
		})
	}
}

// TestT4_HTTPRefuses: no token, a wrong one, another Host or Origin, another
// path or method: refused before a tool runs, with a readable reason.
func TestT4_HTTPRefuses(t *testing.T) {
	s, tokens := newHTTP(t, &brokenBackend{}, HTTPOptions{Origins: []string{"http://localhost:3000"}})
	good := "Bearer " + mustToken(t, tokens, Session{})
	body := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	tests := []struct {
		name, path string
		header     map[string]string
		status     int
		code       Code
	}{
		{"OK", "/mcp", nil, 200, ""},
		{"OK localhost", "/mcp", map[string]string{"Host": "localhost:1"}, 200, ""},
		{"OK v6", "/mcp", map[string]string{"Host": "[::1]:1"}, 200, ""},
		{"OK allowed origin", "/mcp", map[string]string{"Origin": "http://localhost:3000"}, 200, ""},
		{"ErrNoToken", "/mcp", map[string]string{"Authorization": ""}, 401, CodePeerRefused},
		{"ErrWrongToken", "/mcp", map[string]string{"Authorization": good + "x"}, 401, CodePeerRefused},
		{"ErrEmptyToken", "/mcp", map[string]string{"Authorization": "Bearer "}, 401, CodePeerRefused},
		{"ErrScheme", "/mcp", map[string]string{"Authorization": strings.Replace(good, "Bearer", "Basic", 1)}, 401, CodePeerRefused},
		{"ErrHost", "/mcp", map[string]string{"Host": "evil.example"}, 403, CodePeerRefused},
		{"ErrHostRebinding", "/mcp", map[string]string{"Host": "127.0.0.1.nip.io:7"}, 403, CodePeerRefused},
		{"ErrHostAny", "/mcp", map[string]string{"Host": "0.0.0.0"}, 403, CodePeerRefused},
		{"ErrOrigin", "/mcp", map[string]string{"Origin": "http://evil.example"}, 403, CodePeerRefused},
		{"ErrOriginNull", "/mcp", map[string]string{"Origin": "null"}, 403, CodePeerRefused},
		{"ErrOriginOtherPort", "/mcp", map[string]string{"Origin": "http://localhost:3001"}, 403, CodePeerRefused},
		{"ErrCrossSite", "/mcp", map[string]string{"Sec-Fetch-Site": "cross-site"}, 403, CodePeerRefused},
		{"ErrOriginGet", "/mcp", map[string]string{"Origin": "http://evil.example", "method": "GET"}, 403, CodePeerRefused},
		{"ErrPath", "/", nil, 404, CodeNotFound},
		{"ErrText", "/mcp", map[string]string{"Content-Type": "text/plain"}, 415, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			method := http.MethodPost
			if m := tt.header["method"]; m != "" {
				method = m
			}
			r, err := http.NewRequest(method, "http://"+s.Addr()+tt.path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", good)
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", "application/json, text/event-stream")
			for k, v := range tt.header {
				switch k {
				case "method":
				case "Host":
					r.Host = v
				default:
					r.Header.Set(k, v)
				}
			}
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			b, _ := io.ReadAll(res.Body)
			if res.StatusCode != tt.status {
				t.Fatalf("status %d, want %d: %s", res.StatusCode, tt.status, b)
			}
			if e, _ := ParseError(b); tt.code != "" && (e == nil || e.Code != tt.code || e.Hint == "") {
				t.Errorf("body %s, want code %s and a hint", b, tt.code)
			}
			if h := res.Header.Get("WWW-Authenticate"); h != "" {
				t.Errorf("WWW-Authenticate %q pushes clients into OAuth", h)
			}
			if h := res.Header.Get("Access-Control-Allow-Origin"); h != "" {
				t.Errorf("CORS header %q", h)
			}
		})
	}
}

// TestT4_HTTPLoopbackOnly: nothing but loopback is listened on.
func TestT4_HTTPLoopbackOnly(t *testing.T) {
	tokens, err := OpenTokens(filepath.Join(t.TempDir(), "tokens"))
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "example.org:0", "7717"} {
		if s, err := ListenHTTP(echoBackend{}, HTTPOptions{Addr: addr, Tokens: tokens}); err == nil {
			s.Close()
			t.Errorf("listens on %s", addr)
		} else if e := AsError(err); e.Code != CodeInvalidArgument || e.Field != "http" {
			t.Errorf("%s: %+v", addr, e)
		}
	}
	if _, err := ListenHTTP(echoBackend{}, HTTPOptions{Addr: "127.0.0.1:0"}); err == nil {
		t.Error("listens without tokens")
	}
}

// TestHTTPBusy: over the limit of running requests the answer is busy.
func TestHTTPBusy(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	h := limitInFlight(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-release
	}), 1)
	go func() {
		r, _ := http.NewRequest("GET", "/", nil)
		h.ServeHTTP(newRecorder(), r)
	}()
	<-entered
	r, _ := http.NewRequest("GET", "/", nil)
	w := newRecorder()
	h.ServeHTTP(w, r)
	close(release)
	if e, _ := ParseError(w.body); w.status != 503 || e == nil || e.Code != CodeBusy || w.Header().Get("Retry-After") == "" {
		t.Errorf("status %d, body %s", w.status, w.body)
	}
}

// TestHTTPCloseEndsWaits: closing is not held up by long polls, in sessions of
// either kind.
func TestHTTPCloseEndsWaits(t *testing.T) {
	for _, revision := range []string{"2025-06-18", ""} {
		e := newEnv(t)
		s, tokens := newHTTP(t, e.svc, HTTPOptions{})
		hc := &http.Client{Transport: withToken{mustToken(t, tokens, claude)}}
		cs := connect(t, &mcp.StreamableClientTransport{Endpoint: s.URL(), HTTPClient: hc, MaxRetries: -1}, revision)
		done := make(chan struct{})
		go func() {
			defer close(done)
			cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "event_wait", Arguments: map[string]any{}})
		}()
		e.untilWaiting(1)
		s.Close()
		e.untilWaiting(0)
		<-done
		cs.Close()
	}
}

type recorder struct {
	header http.Header
	status int
	body   []byte
}

func newRecorder() *recorder               { return &recorder{header: http.Header{}} }
func (r *recorder) Header() http.Header    { return r.header }
func (r *recorder) WriteHeader(status int) { r.status = status }
func (r *recorder) Write(b []byte) (n int, err error) {
	r.body = append(r.body, b...)
	return len(b), nil
}

func TestTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "tokens")
	tokens, err := OpenTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	claude := Session{Agent: "claude", Project: "p", Bound: true}
	tok := mustToken(t, tokens, claude)
	if again := mustToken(t, tokens, claude); again != tok {
		t.Error("a second call gives another token")
	}
	readOnly := mustToken(t, tokens, Session{})
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	reopened, err := OpenTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	if s, ok := reopened.lookup(tok); !ok || s != claude {
		t.Errorf("after reopening: %+v %v", s, ok)
	}
	if s, ok := reopened.lookup(readOnly); !ok || s.Bound {
		t.Errorf("read-only token: %+v %v", s, ok)
	}
	fresh, err := tokens.Token(claude, true)
	if err != nil || fresh == tok {
		t.Fatalf("rotate: %v", err)
	}
	if _, ok := tokens.lookup(tok); ok {
		t.Error("the old token works after rotation")
	}
	for name, s := range map[string]Session{"colon": {Agent: "a:b", Bound: true}, "upper": {Agent: "Claude", Bound: true}} {
		if _, err := tokens.Token(s, false); err == nil {
			t.Errorf("%s: made a token", name)
		}
	}
	for name, content := range map[string]string{"ErrJSON": "[{", "ErrField": `[{"token":"` + tok + `","x":1}]`, "ErrShort": `[{"token":"abc"}]`} {
		os.WriteFile(path, []byte(content), 0o600)
		if _, err := OpenTokens(path); err == nil || AsError(err).Code != CodeKeyDamaged || !strings.Contains(fmt.Sprint(err), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
	os.WriteFile(path, []byte("[]"), 0o600)
	os.Chmod(path, 0o640)
	if _, err := OpenTokens(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file others may read: %v", err)
	}
}
