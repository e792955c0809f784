package server

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// tail is one client that follows events.
type tail struct {
	t    *testing.T
	res  *http.Response
	body *bufio.Reader
	stop context.CancelFunc
}

func follow(t *testing.T, base, token, query string, header map[string]string) *tail {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base, "/mcp")+"/events?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for k, v := range header {
		r.Header.Set(k, v)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	s := &tail{t, res, bufio.NewReader(res.Body), stop}
	t.Cleanup(s.close)
	return s
}

func (s *tail) close() {
	s.stop()
	s.res.Body.Close()
}

// next reads up to the next event and gives its id and body; comments are
// passed over.
func (s *tail) next() (id, body string) {
	s.t.Helper()
	for {
		line, err := s.body.ReadString('\n')
		if err != nil {
			s.t.Fatalf("the stream ended: %v", err)
		}
		line = strings.TrimSuffix(line, "\n")
		if rest, ok := strings.CutPrefix(line, "id: "); ok {
			id = rest
		}
		if rest, ok := strings.CutPrefix(line, "data: "); ok {
			var e struct{ Body string }
			if err := json.Unmarshal([]byte(rest), &e); err != nil {
				s.t.Fatalf("%q: %v", rest, err)
			}
			return id, e.Body
		}
	}
}

func (s *tail) want(body string) (id string) {
	s.t.Helper()
	id, got := s.next()
	if got != body {
		s.t.Errorf("event %q, want %q", got, body)
	}
	return id
}

func (e *env) post(s Session, to, body string) {
	e.t.Helper()
	args := map[string]string{"type": "note", "stream": "s", "room": "r", "body": body}
	if to != "" {
		args["to_agent"] = to
	}
	e.do(s, "event_append", string(encode(args)))
}

// The tail gives what arrives, goes on where it was cut off, and filters as a
// wait does.
func TestEventsTail(t *testing.T) {
	e := newEnv(t)
	s, tokens := newHTTP(t, e.svc, HTTPOptions{})
	token := mustToken(t, tokens, claude)
	e.post(codex, "mac:claude:tally", "before")

	a := follow(t, s.URL(), token, "to_agent=@me&exclude_writer=@me&type=note&type=status", nil)
	if a.res.StatusCode != http.StatusOK || a.res.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s, %s", a.res.Status, a.res.Header.Get("Content-Type"))
	}
	e.post(claude, "*", "mine")
	e.post(codex, "mac:codex:tally", "for another")
	e.post(codex, "", "for nobody")
	e.post(codex, "mac:claude:tally", "one")
	last := a.want("one")
	e.post(codex, "*", "two\nlines")
	a.want("two\nlines")
	a.close()
	e.post(codex, "*", "three")

	// Cut off after "one": the header wins over the URL.
	b := follow(t, s.URL(), token, "to_agent=@me&cursor=nonsense", map[string]string{"Last-Event-ID": last})
	b.want("two\nlines")
	b.want("three")
	c := follow(t, s.URL(), token, "stream=s&since_event_id="+url.QueryEscape(last), nil)
	c.want("two\nlines")
	c.want("three")
	e.post(codex, "mac:claude:tally", "four")
	b.want("four")
	c.want("four")

	// A token without identity reads, team-wide only.
	unbound := mustToken(t, tokens, Session{})
	d := follow(t, s.URL(), unbound, "writer=mac:codex:tally&since_event_id="+last, nil)
	d.want("two\nlines")
}

// What is wrong is said before the stream begins.
func TestEventsTailRefuses(t *testing.T) {
	e := newEnv(t)
	s, tokens := newHTTP(t, e.svc, HTTPOptions{MaxStreams: 1})
	token, unbound := mustToken(t, tokens, claude), mustToken(t, tokens, Session{})
	for name, c := range map[string]struct {
		token, query string
		header       map[string]string
		status       int
		code         Code
	}{
		"no token":        {"", "", nil, 401, CodePeerRefused},
		"origin":          {token, "", map[string]string{"Origin": "https://example.org"}, 403, CodePeerRefused},
		"unknown field":   {token, "to=x", nil, 400, CodeUnknownField},
		"order":           {token, "order=asc", nil, 400, CodeUnknownField},
		"bad status":      {token, "status=done", nil, 400, CodeInvalidArgument},
		"bad type":        {token, "type=No", nil, 400, CodeInvalidArgument},
		"bad time":        {token, "since_created_at=yesterday", nil, 400, CodeInvalidArgument},
		"twice":           {token, "stream=a&stream=b", nil, 400, CodeInvalidArgument},
		"control":         {token, "stream=a%0Ab", nil, 400, CodeInvalidArgument},
		"unknown cursor":  {token, "since_event_id=evt_20260101T000000_000000000000", nil, 400, CodeUnknownCursor},
		"unknown last":    {token, "", map[string]string{"Last-Event-ID": "evt_20260101T000000_000000000000"}, 400, CodeUnknownCursor},
		"no cursor":       {token, "cursor=x", nil, 400, CodeUnknownCursor},
		"me without name": {unbound, "to_agent=@me", nil, 403, CodeIdentityUnbound},
	} {
		t.Run(name, func(t *testing.T) {
			r := follow(t, s.URL(), c.token, c.query, c.header)
			body, err := io.ReadAll(r.body)
			if err != nil {
				t.Fatal(err)
			}
			bad, ok := ParseError(body)
			if !ok || r.res.StatusCode != c.status || bad.Code != c.code {
				t.Errorf("%s: %s", r.res.Status, body)
			}
		})
	}
	first := follow(t, s.URL(), token, "", nil)
	full := follow(t, s.URL(), token, "", nil)
	if full.res.StatusCode != 503 || full.res.Header.Get("Retry-After") != "5" {
		t.Errorf("with all slots taken: %s, Retry-After %q", full.res.Status, full.res.Header.Get("Retry-After"))
	}
	e.post(codex, "", "for the first")
	first.want("for the first")
}

// Both ends hear that the other is there, and the stream ends with the server.
func TestEventsTailPingsAndEnds(t *testing.T) {
	e := newEnv(t)
	s, tokens := newHTTP(t, e.svc, HTTPOptions{ping: time.Millisecond})
	a := follow(t, s.URL(), mustToken(t, tokens, claude), "", nil)
	for line := ""; line != ": ping\n"; {
		var err error
		if line, err = a.body.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(a.body)
	if err != nil || !strings.Contains(string(rest), "event: error\ndata: {\"error\":{\"code\":\"unreachable\"") {
		t.Errorf("it ended with %q, %v", rest, err)
	}
	noHub(t)
}
