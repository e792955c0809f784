package server

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tallystick/internal/hostile"
)

var errHostile = errors.New("refused")

// hostileError makes an error of an error object and nil of none.
func hostileError(bad *Error) error {
	if bad == nil {
		return nil
	}
	return bad
}

// hostileArgs are arguments that use every kind of parameter.
var hostileArgs = map[string]string{
	"event_append": `{"type":"status","stream":"s","room":"r","topic":"t","to_agent":"*","correlation_id":"c","status":"open","body":"b","metadata":{"a":[1]},` +
		`"artifact_ids":["art_20260101T000000_0123456789ab"],"expires_at":"2030-01-01T00:00:00Z","idempotency_key":"k"}`,
	"event_list":          `{"type":"a","to_agent":"x","limit":5,"order":"asc","preview":true,"cursor":"x","since_event_id":"evt_20260101T000000_0123456789ab"}`,
	"event_wait":          `{"timeout_ms":0}`,
	"memory_search":       `{"query":"q","top_k":3,"explain":true}`,
	"memory_search_batch": `{"queries":["q"]}`,
	"query_raw_memories":  `{"query":"q","nResults":3}`,
	"add_summary":         `{"title":"t","summary":"s","category":"bugfix","sourceAgentIdentities":["a"]}`,
	"artifact_put":        `{"kind":"note","content":"c","metadata":{"a":1}}`,
}

// TestA4_HostileArguments: arguments of tools are checked here, whatever a
// client has checked, and cost no memory beyond their size.
func TestA4_HostileArguments(t *testing.T) {
	for name, good := range hostileArgs {
		t.Run(name, func(t *testing.T) {
			tl := toolByName(name)
			decode := func(b []byte) error {
				_, bad := tl.decode(b)
				if bad != nil && (bad.Code == "" || bad.Hint == "" || len(bad.Message) > 500) {
					t.Errorf("%.100q: %s", b, bad.JSON())
				}
				return hostileError(bad)
			}
			if err := decode([]byte(good)); err != nil {
				t.Fatalf("the good one: %v", err)
			}
			cases := hostile.JSON([]byte(good))
			for i := range cases {
				if len(cases[i].In) == 0 {
					cases[i].Kind = hostile.Swap // no arguments are an empty object
				}
			}
			long := []byte(`{"body":"` + strings.Repeat("x", 10<<20) + `"}`)
			if !tl.big {
				cases = append(cases, hostile.Case{Kind: hostile.Length, Name: "10 MiB of text", In: long})
			}
			hostile.Check(t, cases, map[hostile.Kind]string{}, decode)
		})
	}
}

// TestA4_HostileRequests: what a client of the owner's socket sends. Both ends
// are this program and the same user; of a key given twice the last counts,
// and what an older version does not know it leaves out.
func TestA4_HostileRequests(t *testing.T) {
	good := `{"session":{"agent":"claude","project":"p","bound":true},"tool":"whoami","args":{"a":1},"op_id":"o"}`
	taken := map[hostile.Kind]string{hostile.Twice: "the last counts", hostile.Unknown: "left out", hostile.Text: "the tool looks at its arguments"}
	cases := hostile.JSON([]byte(good))
	for i := range cases {
		if c := &cases[i]; len(c.In) == 0 || bytes.Equal(c.In, []byte("null")) || strings.HasPrefix(c.Name, "args is ") {
			c.Kind = hostile.Swap // nothing is an empty object, and arguments are anybody's JSON
		}
	}
	hostile.Check(t, cases, taken, func(b []byte) error {
		r := httptest.NewRequest(http.MethodPost, "/call", bytes.NewReader(b))
		var q callRequest
		return hostileError(readRequest(httptest.NewRecorder(), r, &q))
	})
}

// TestA4_HostileHTTP: bodies of the HTTP endpoint, with a good token. Each is
// answered, none with success but what is a call, and the endpoint goes on.
func TestA4_HostileHTTP(t *testing.T) {
	tokens, err := OpenTokens(filepath.Join(t.TempDir(), "tokens"))
	if err != nil {
		t.Fatal(err)
	}
	token := mustToken(t, tokens, Session{Agent: "claude", Project: "p", Bound: true})
	var logged bytes.Buffer
	h, err := newHTTPHandler(echoBackend{}, HTTPOptions{Tokens: tokens, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	if err != nil {
		t.Fatal(err)
	}
	post := func(b []byte) error {
		r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/mcp", bytes.NewReader(b))
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		r.Header.Set("Mcp-Protocol-Version", firstStateless)
		r.Header.Set("Mcp-Method", "tools/call")
		r.Header.Set("Mcp-Name", "whoami")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code >= 500 {
			t.Errorf("%.100q: status %d: %.200s", b, w.Code, w.Body)
		}
		if w.Code != http.StatusOK || strings.Contains(w.Body.String(), `"error"`) || strings.Contains(w.Body.String(), `"isError":true`) {
			return errHostile
		}
		return nil
	}
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + firstStateless + `","io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
	good := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"whoami","arguments":{},` + meta + `}}`
	if err := post([]byte(good)); err != nil {
		t.Fatal("the good one is refused")
	}
	const sdk = "the SDK's reading of JSON-RPC"
	hostile.Check(t, hostile.JSON([]byte(good)), map[hostile.Kind]string{hostile.Twice: sdk, hostile.Unknown: sdk, hostile.Type: sdk, hostile.Text: sdk, hostile.Memory: sdk}, post)
	if err := post([]byte(good)); err != nil {
		t.Error("it does not go on")
	}
	if strings.Contains(logged.String(), "panic") {
		t.Errorf("log: %s", &logged)
	}
}

// TestA4_HostileStdio: lines of an MCP client on stdio. A bad one is answered
// by an error, and what the SDK gets to see is a message.
func TestA4_HostileStdio(t *testing.T) {
	good := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"whoami","arguments":{}}}`
	const sdk = "a JSON-RPC message; the tool judges its arguments"
	hostile.Check(t, hostile.JSON([]byte(good)), map[hostile.Kind]string{hostile.Unknown: sdk, hostile.Text: sdk, hostile.Twice: sdk, hostile.Type: sdk}, func(b []byte) error {
		line, id, err := mcpReadLine(bufio.NewReaderSize(bytes.NewReader(b), 64))
		if line = bytes.TrimSpace(line); len(line) == 0 && !id.over {
			return err
		}
		if _, answer := checkMessage(line, &id); answer != nil {
			if !json.Valid(answer) {
				t.Errorf("answer %.200q", answer)
			}
			return errHostile
		}
		return nil
	})
}

// TestA4_HostileFiles: the file of tokens and a beads file. A bad line of
// beads is reported and the others go in.
func TestA4_HostileFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "tokens")
	row := `{"token":"` + strings.Repeat("t", 43) + `","agent":"claude","project":"p"}`
	hostile.Check(t, fileCases(row), map[hostile.Kind]string{hostile.Twice: "the last counts", hostile.Text: "an agent of that name does not exist"}, func(b []byte) error {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := OpenTokens(path)
		return err
	})

	line := `{"id":"bd-1","title":"t","description":"d","status":"closed","issue_type":"bug","assignee":"mac-claude","created_by":"nas-codex",` +
		`"created_at":"2026-01-02T03:04:05Z","closed_at":"2026-01-02T03:04:05Z","close_reason":"r","labels":["l"],"dependencies":[{"a":1}],` +
		`"comments":[{"id":1,"author":"a","text":"x","created_at":"2026-01-02T03:04:05Z"}]}`
	const said = "the row goes in and says what is left out"
	hostile.Check(t, hostile.JSON([]byte(line)), map[hostile.Kind]string{hostile.Unknown: "beads has fields of its own", hostile.Twice: "the last counts", hostile.Type: said}, func(b []byte) error {
		f, err := ParseBeads(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Errors) > 0 || len(f.Rows) == 0 {
			return errHostile
		}
		return nil
	})
}

// answering is a replica that gives one answer to everything.
type answering []byte

func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(a)), Header: http.Header{}}, nil
}

// TestA4_HostileHello: what a program asks first of whoever listens on the
// socket of the owner. Another version may say more; what has no API is none.
func TestA4_HostileHello(t *testing.T) {
	good, taken := []byte(`{"api":1,"version":"v0.1.0","pid":7,"replica":"rep_0"}`), map[hostile.Kind]string{
		hostile.Unknown: "left out", hostile.Twice: "the last counts", hostile.Text: "replaced, and of no use then",
	}
	hostile.Check(t, hostile.JSON(good), taken, func(in []byte) error {
		c := &Client{hc: &http.Client{Transport: answering(in)}}
		err := c.greet(t.Context())
		if err == nil && c.hello.API < 1 {
			t.Errorf("%.200q is taken as %+v", in, c.hello)
		}
		return err
	})
}

// TestA4_SmallFilesAreBounded: the tokens, the mark of a stop and what git says
// of a working tree are read as far as they can be long, and no device is.
func TestA4_SmallFilesAreBounded(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		good string
		most int
		read func() bool
	}{
		"tokens": {`[{"token":"` + strings.Repeat("t", 43) + `","agent":"claude","project":"p"}]`, maxTokenFile, func() bool {
			_, err := OpenTokens(filepath.Join(dir, "tokens"))
			if err != nil && AsError(err).Code != CodeKeyDamaged {
				t.Errorf("tokens: %v", err)
			}
			return err == nil
		}},
		stopMark:      {"7 8\n", maxNoteFile, func() bool { return lastStop(dir) != "" }},
		socketPointer: {"/run/elsewhere", maxNoteFile, func() bool { return findSocket(dir) == "/run/elsewhere" }},
		".git":        {"gitdir: /src/app/.git/modules/sub", maxNoteFile, func() bool { _, _, found := mainTree(dir); return found }},
	} {
		path := filepath.Join(dir, name)
		for more, want := range map[int]bool{0: true, c.most - len(c.good): true, c.most - len(c.good) + 1: false} {
			if err := os.WriteFile(path, []byte(c.good+strings.Repeat("\n", more)), 0o600); err != nil {
				t.Fatal(err)
			}
			if c.read() != want {
				t.Fatalf("%s of %d bytes: taken %v", name, len(c.good)+more, !want)
			}
		}
		if _, err := os.Stat("/dev/zero"); err != nil {
			continue
		}
		if err := errors.Join(os.Remove(path), os.Symlink("/dev/zero", path)); err != nil {
			t.Fatal(err)
		}
		if c.read() {
			t.Errorf("%s: a device is taken", name)
		}
	}
}

// fileCases are those of JSON, in a list.
func fileCases(object string) []hostile.Case {
	cases := hostile.JSON([]byte(object))
	for i := range cases {
		cases[i].In = append(append([]byte("["), cases[i].In...), ']')
		if string(cases[i].In) == "[]" || cases[i].Name == "itself" {
			cases[i].Kind = hostile.Swap
		}
	}
	return cases
}

// TestA4_HostileAnswers: what an owner of another version may answer its
// clients, and query strings of the event stream.
func TestA4_HostileAnswers(t *testing.T) {
	good := fail(CodeBusy, "f", "h", "m").JSON()
	cases := hostile.JSON(good)
	hostile.Check(t, cases, map[hostile.Kind]string{hostile.Twice: "the last counts", hostile.Unknown: "left out", hostile.Text: "shown as it is", hostile.Type: "then it is not this program's error"}, func(b []byte) error {
		if _, ok := ParseError(b); !ok {
			return errHostile
		}
		return nil
	})
	query := "type=a&type=b&to_agent=x&since_event_id=e&exclude_writer=w"
	hostile.Check(t, hostile.Bytes([]byte(query)), map[hostile.Kind]string{hostile.Cut: "another filter", hostile.Behind: "another filter"}, func(b []byte) error {
		r := httptest.NewRequest(http.MethodGet, "/events", nil)
		r.URL.RawQuery = string(b[:min(len(b), httpHeader)]) // no longer ones come through
		q, bad := sseRequest(r)
		if bad == nil && !json.Valid(q.Args) {
			t.Errorf("%.100q: arguments %.200q", b, q.Args)
		}
		return hostileError(bad)
	})
}

// TestA4_BeadsLimits: a file of nothing but errors, an issue with thousands of
// comments and one with as many bad ones say where their limit is.
func TestA4_BeadsLimits(t *testing.T) {
	read := func(text string) *BeadsFile {
		f, err := ParseBeads(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	const row = `{"id":"bd-1","title":"t","status":"open"`
	f := read(row + "}\n" + strings.Repeat("x\n", maxBeadsSaid+100))
	if n := len(f.Errors); len(f.Rows) != 1 || n != maxBeadsSaid+1 || !strings.Contains(f.Errors[n-1].Reason, "not listed") {
		t.Errorf("%d rows, %d errors, the last %+v", len(f.Rows), n, f.Errors[n-1])
	}
	list := func(n int, item string) string {
		return row + `,"comments":[` + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]}\n"
	}
	if f = read(list(maxComments+1, "1")); len(f.Rows) != 0 || len(f.Errors) != 1 || !strings.Contains(f.Errors[0].Reason, "at most 10000") {
		t.Errorf("%d rows, errors %+v", len(f.Rows), f.Errors)
	}
	f = read(list(maxLeftOut+50, "1"))
	if n := len(f.Errors); len(f.Rows) != 1 || n != maxLeftOut+1 || f.Errors[n-1].Reason != "50 more comments are left out" {
		t.Errorf("%d rows, %d errors, the last %+v", len(f.Rows), n, f.Errors[n-1])
	}
	if f = read(row + `,"labels":["a","b"],"dependencies":[{},{}, {}]}`); f.NotImported != (NotImported{Dependencies: 3, Labels: 2}) {
		t.Errorf("%+v", f.NotImported)
	}
	if f = read(row + `,"labels":"a"}`); len(f.Rows) != 0 || len(f.Errors) != 1 || !strings.Contains(f.Errors[0].Reason, "labels has the wrong type (string)") {
		t.Errorf("%+v", f.Errors)
	}
}

// FuzzMessages: a line of MCP is a message or an answer, however it comes in,
// and what is looked at on the way agrees with encoding/json.
func FuzzMessages(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"whoami","arguments":{}}}`))
	f.Add([]byte(`{"id":[{"a":"\"]"}],"method":"x"} x`))
	f.Fuzz(func(t *testing.T, b []byte) {
		line, id, _ := mcpReadLine(bufio.NewReaderSize(bytes.NewReader(b), 64))
		if line = bytes.TrimSpace(line); len(line) == 0 {
			return
		}
		msg, answer := checkMessage(line, &id)
		if (msg == nil) == (answer == nil) || answer != nil && !json.Valid(answer) {
			t.Fatalf("%q: message %v, answer %q", line, msg, answer)
		}
		if json.Valid(line) && (line[0] == '{' || line[0] == '[') && (id.behind || !id.ended) {
			t.Fatalf("%q is whole: behind %v, ended %v", line, id.behind, id.ended)
		}
		body := &checkedBody{ReadCloser: io.NopCloser(bytes.NewReader(line))}
		if got, err := io.ReadAll(body); err == nil && !bytes.Equal(got, line) {
			t.Fatalf("%q came through as %q", line, got)
		}
	})
}
