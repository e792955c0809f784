package server

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func listenSocket(t testing.TB, s *Service) (runDir string, u *SocketServer) {
	t.Helper()
	runDir = filepath.Join(t.TempDir(), "run")
	u, err := ListenSocket(runDir, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	return runDir, u
}

func dialSocket(t testing.TB, o ClientOptions) *Client {
	t.Helper()
	c, err := Dial(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestA2_SocketShared: several processes' clients share one replica; what one
// writes another reads.
func TestA2_SocketShared(t *testing.T) {
	e := newEnv(t)
	runDir, u := listenSocket(t, e.svc)
	if info, err := os.Stat(u.Path()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket mode %v, %v", info.Mode(), err)
	}
	a, b := dialSocket(t, ClientOptions{RunDir: runDir}), dialSocket(t, ClientOptions{RunDir: runDir})
	if h := a.Hello(); h.API != APIVersion || h.Replica != "mac" || h.PID != os.Getpid() || h.Version != "test" {
		t.Errorf("hello %+v", h)
	}
	if _, bad := a.Call(t.Context(), claude, "event_append", json.RawMessage(`{"type":"status","stream":"s","room":"r","body":"<hi> & \u00e9","to_agent":"mac:codex:tally"}`), NewOpID()); bad != nil {
		t.Fatal(bad)
	}
	out, bad := b.Call(t.Context(), codex, "event_list", json.RawMessage(`{"to_agent":"@me"}`), "")
	if bad != nil {
		t.Fatal(bad)
	}
	if !strings.Contains(string(out), `"body":"<hi> & é"`) || strings.Contains(string(out), `\u003c`) {
		t.Errorf("body did not come through as given: %s", out)
	}
	if _, bad := a.Call(t.Context(), claude, "event_append", json.RawMessage(`{"type":"x"`), ""); bad == nil || bad.Code != CodeInvalidArgument {
		t.Errorf("broken JSON: %v", bad)
	}
	if _, bad := a.Call(t.Context(), claude, "nonsense", nil, ""); bad == nil || bad.Code != CodeNotFound || len(bad.Allowed) == 0 {
		t.Errorf("unknown tool: %v", bad)
	}
	st, err := a.Status(t.Context(), Session{})
	if err != nil || !strings.Contains(string(st.Status), `"views":{`) {
		t.Errorf("status %+v, %v", st, err)
	}
}

// TestA2_SocketRepeat: a call whose answer was lost is repeated with the same
// op id and stored once.
func TestA2_SocketRepeat(t *testing.T) {
	e := newEnv(t)
	runDir := filepath.Join(t.TempDir(), "run")
	// An owner that answers the first two writes by hanging up, after the
	// first and before the second reached the log.
	var calls atomic.Int32
	api := e.svc.localAPI()
	if err := privateDir(runDir); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", SocketPath(runDir))
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/call" {
			switch calls.Add(1) {
			case 1:
				api.ServeHTTP(newRecorder(), r)
				panic(http.ErrAbortHandler)
			case 2:
				panic(http.ErrAbortHandler)
			}
		}
		api.ServeHTTP(w, r)
	})}
	go srv.Serve(ln)
	t.Cleanup(func() { srv.Close() })
	c := dialSocket(t, ClientOptions{RunDir: runDir})
	before := e.entries()
	out, bad := c.Call(t.Context(), claude, "event_append", json.RawMessage(`{"type":"status","stream":"s","room":"r"}`), "")
	if bad != nil {
		t.Fatal(bad)
	}
	if m := parse(t, out); m["replayed"] != true || calls.Load() != 3 {
		t.Errorf("after %d calls: %s", calls.Load(), out)
	}
	if n := e.entries() - before; n != 2 { // birth and event
		t.Errorf("%d entries written", n)
	}
}

// TestSocketCancel: a client that gives up ends its long poll in the owner.
func TestSocketCancel(t *testing.T) {
	e := newEnv(t)
	runDir, _ := listenSocket(t, e.svc)
	c := dialSocket(t, ClientOptions{RunDir: runDir})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan *Error)
	go func() {
		_, bad := c.Call(ctx, claude, "event_wait", json.RawMessage(`{"to_agent":"@me"}`), "")
		done <- bad
	}()
	e.untilWaiting(1)
	cancel()
	if bad := <-done; bad == nil || bad.Code != CodeTimedOut {
		t.Errorf("cancelled wait: %v", bad)
	}
	e.untilWaiting(0)
}

// untilWaiting returns when so many calls wait for events.
func (e *env) untilWaiting(n int) {
	e.t.Helper()
	for len(e.svc.waits) != n {
		select {
		case <-e.t.Context().Done():
			e.t.Fatal("no call waits")
		default:
		}
		yieldNow()
	}
}

// TestSocketCloseEndsWaits: closing the owner is not held up by long polls,
// and says so in a way that makes clients call again.
func TestSocketCloseEndsWaits(t *testing.T) {
	e := newEnv(t)
	runDir, u := listenSocket(t, e.svc)
	c := dialSocket(t, ClientOptions{RunDir: runDir})
	done := make(chan *Error)
	go func() {
		_, bad := c.Call(t.Context(), claude, "event_wait", nil, "")
		done <- bad
	}()
	e.untilWaiting(1)
	if err := u.Close(); err != nil {
		t.Fatal(err)
	}
	if bad := <-done; bad == nil || bad.Code != CodeUnreachable {
		t.Errorf("wait on an owner that ends: %v", bad)
	}
	if _, err := os.Stat(u.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
	if err := u.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

// TestA2_WaitOutlivesOwner: a long poll goes on with the next owner when the
// one it hangs on ends.
func TestA2_WaitOutlivesOwner(t *testing.T) {
	e := newEnv(t)
	runDir, u := listenSocket(t, e.svc)
	var next *SocketServer
	c := dialSocket(t, ClientOptions{RunDir: runDir, Start: func(context.Context) (err error) {
		next, err = ListenSocket(runDir, e.svc)
		return err
	}})
	done := make(chan json.RawMessage)
	go func() {
		out, bad := c.Call(t.Context(), claude, "event_wait", json.RawMessage(`{"to_agent":"@me"}`), "")
		if bad != nil {
			t.Error(bad)
		}
		done <- out
	}()
	e.untilWaiting(1)
	u.Close()
	e.untilWaiting(1)
	e.append(codex, "mac:claude:tally", "after")
	if out := <-done; next == nil || bodies(parse(t, out)) != "after" {
		t.Errorf("%s", out)
	}
	next.Close()
}

// TestA2_StopEndsWaits: a call that is open when its owner is stopped on
// purpose is told so and starts no other owner; the next call does.
func TestA2_StopEndsWaits(t *testing.T) {
	e := newEnv(t)
	runDir, u := listenSocket(t, e.svc)
	var starts atomic.Int32
	c := dialSocket(t, ClientOptions{RunDir: runDir, Start: func(context.Context) error {
		starts.Add(1)
		next, err := ListenSocket(runDir, e.svc)
		if err == nil {
			t.Cleanup(func() { next.Close() })
		}
		return err
	}})
	done := make(chan *Error)
	go func() {
		_, bad := c.Call(t.Context(), claude, "event_wait", nil, "")
		done <- bad
	}()
	e.untilWaiting(1)
	if err := errors.Join(u.Retire(), u.Close()); err != nil {
		t.Fatal(err)
	}
	if bad := <-done; bad == nil || bad.Code != CodeUnreachable || !strings.Contains(bad.Message, "was stopped") || starts.Load() != 0 {
		t.Errorf("wait on an owner that was stopped: %v, %d starts", bad, starts.Load())
	}
	if _, bad := c.Call(t.Context(), claude, "whoami", nil, ""); bad != nil || starts.Load() != 1 {
		t.Errorf("next call: %v, %d starts", bad, starts.Load())
	}
}

// TestA2_ClientStarts: an absent owner is started, by any number of callers.
func TestA2_ClientStarts(t *testing.T) {
	e := newEnv(t)
	runDir := filepath.Join(t.TempDir(), "run")
	if _, err := Dial(t.Context(), ClientOptions{RunDir: runDir}); AsError(err) == nil || AsError(err).Code != CodeUnreachable {
		t.Errorf("nobody there: %v", err)
	}
	var once sync.Once
	var u *SocketServer
	o := ClientOptions{RunDir: runDir, Start: func(context.Context) (err error) {
		once.Do(func() { u, err = ListenSocket(runDir, e.svc) })
		return err
	}}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			c, err := Dial(t.Context(), o)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			if _, bad := c.Call(t.Context(), Session{}, "whoami", nil, ""); bad != nil {
				t.Error(bad)
			}
		})
	}
	wg.Wait()
	u.Close()
	failing := ClientOptions{RunDir: runDir, Start: func(context.Context) error { return fail(CodeStoreDamaged, "", "look", "broken") }}
	if _, err := Dial(t.Context(), failing); AsError(err) == nil || AsError(err).Code != CodeStoreDamaged {
		t.Errorf("owner that cannot start: %v", err)
	}
}

// TestA2_OlderOwnerHandsOver: a newer client asks an older owner to stop and
// starts its own; without a way to start one it is told what to do.
func TestA2_OlderOwnerHandsOver(t *testing.T) {
	e := newEnv(t)
	runDir := filepath.Join(t.TempDir(), "run")
	u, err := ListenSocket(runDir, e.svc)
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	stop := sync.OnceFunc(func() {
		close(stopped)
		go u.Close()
	})
	e.svc.d.Stop = func(StopRequest) { stop() }
	c, err := dial(t.Context(), ClientOptions{RunDir: runDir}, APIVersion+1)
	if err != nil {
		t.Fatal(err)
	}
	if _, bad := c.Call(t.Context(), Session{}, "whoami", nil, ""); bad == nil || bad.Code != CodeUnsupportedVersion {
		t.Errorf("older owner, newer client: %v", bad)
	}
	started := 0
	_, err = dial(t.Context(), ClientOptions{RunDir: runDir, Start: func(context.Context) error {
		started++
		u2, err := ListenSocket(runDir, e.svc)
		if err == nil {
			t.Cleanup(func() { u2.Close() })
		}
		return err
	}}, APIVersion+1)
	<-stopped
	if started != 1 || AsError(err) == nil || AsError(err).Code != CodeUnsupportedVersion {
		t.Errorf("started %d times, %v", started, err) // the one started is no newer
	}
}

// TestA2_NewerProgramTakesOver: a later release replaces the owner it finds;
// an equal one, an earlier one and a development build do not.
func TestA2_NewerProgramTakesOver(t *testing.T) {
	for _, c := range []struct {
		client, owner string
		want          bool
	}{
		{"v1.2.3", "v1.2.2", true}, {"1.10.0", "v1.9.9", true}, {"v2.0.0", "v1.9.9", true},
		{"v1.2.3", "v1.2.3", false}, {"v1.2.2", "v1.2.3", false}, {"devel", "v1.2.3", false}, {"v1.2.3", "devel", false},
		{"v1.2.3-0.2026", "v1.2.2", false}, {"", "", false}, {"v1.2", "v1.1", false}, {"v1.2.99999999999", "v1.2.0", false},
	} {
		if got := newer(c.client, c.owner); got != c.want {
			t.Errorf("%q over %q: %v", c.client, c.owner, got)
		}
	}
	e := newEnv(t)
	e.svc.d.Version = "v1.0.0"
	runDir := filepath.Join(t.TempDir(), "run")
	u, err := ListenSocket(runDir, e.svc)
	if err != nil {
		t.Fatal(err)
	}
	e.svc.d.Stop = func(StopRequest) { go u.Close() }
	next := newEnv(t)
	next.svc.d.Version = "v1.1.0"
	c := dialSocket(t, ClientOptions{RunDir: runDir, Version: "v1.1.0", Start: func(context.Context) error {
		u2, err := ListenSocket(runDir, next.svc)
		if err == nil {
			t.Cleanup(func() { u2.Close() })
		}
		return err
	}})
	if h := c.Hello(); h.Version != "v1.1.0" {
		t.Errorf("talks to %+v", h)
	}
}

func TestSocketPath(t *testing.T) {
	short := filepath.Join(t.TempDir(), "run")
	if got := SocketPath(short); len(short) < 90 && got != filepath.Join(short, "tally.sock") {
		t.Errorf("short path became %s", got)
	}
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	long := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	path := SocketPath(long)
	if len(path) > maxSocketPath || path != SocketPath(long) || path == SocketPath(long+"x") {
		t.Errorf("long path became %s", path)
	}
	e := newEnv(t)
	u, err := ListenSocket(long, e.svc)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	if b, err := os.ReadFile(filepath.Join(long, "socket")); err != nil || strings.TrimSpace(string(b)) != path {
		t.Errorf("run/socket says %q, %v", b, err)
	}
	t.Setenv("XDG_RUNTIME_DIR", "/nonexistent")
	dialSocket(t, ClientOptions{RunDir: long}) // finds it by run/socket
}

func TestT4_SocketDirectory(t *testing.T) {
	e := newEnv(t)
	dir := filepath.Join(t.TempDir(), "run")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if u, err := ListenSocket(dir, e.svc); err == nil {
		u.Close()
		t.Error("listens in a directory that others may write")
	} else if !strings.Contains(err.Error(), "chmod 700") {
		t.Errorf("%v", err)
	}
}

// TestSocketControls: the calls that only local processes have.
func TestSocketControls(t *testing.T) {
	e := newEnv(t)
	runDir, _ := listenSocket(t, e.svc)
	c := dialSocket(t, ClientOptions{RunDir: runDir})
	for name, call := range map[string]func() error{
		"invite": func() error { _, err := c.Invite(t.Context(), InviteRequest{}); return err },
		"token":  func() error { _, err := c.Token(t.Context(), TokenRequest{Session: claude}); return err },
		"stop":   func() error { return c.Stop(t.Context()) },
	} {
		if e := AsError(call()); e == nil || e.Code != CodeInvalidArgument {
			t.Errorf("%s without what it needs: %v", name, e)
		}
	}
	e.svc.d.Invite = func(_ context.Context, q InviteRequest) (Invite, error) {
		return Invite{Token: "tally1.x", ExpiresAt: "2026-01-01T00:00:00.000Z"}, nil
	}
	inv, err := c.Invite(t.Context(), InviteRequest{TTLMillis: 1000})
	if err != nil || inv.Token != "tally1.x" || inv.Addresses == nil {
		t.Errorf("invite %+v, %v", inv, err)
	}
	if _, err := c.Invite(t.Context(), InviteRequest{TTLMillis: -1}); AsError(err) == nil || AsError(err).Field != "ttl" {
		t.Errorf("bad ttl: %v", err)
	}
	tokens, err := OpenTokens(filepath.Join(t.TempDir(), "tokens"))
	if err != nil {
		t.Fatal(err)
	}
	e.svc.d.Tokens, e.svc.d.HTTPURL = tokens, func() string { return "http://127.0.0.1:1/mcp" }
	tok, err := c.Token(t.Context(), TokenRequest{Session: claude})
	if err != nil || tok.Identity != "mac:claude:tally" || tok.URL == "" || len(tok.Token) < 40 {
		t.Errorf("token %+v, %v", tok, err)
	}
}

// TestSocketWatch: one line of JSON for each batch; own events are left out.
func TestSocketWatch(t *testing.T) {
	e := newEnv(t)
	runDir, _ := listenSocket(t, e.svc)
	c := dialSocket(t, ClientOptions{RunDir: runDir})
	stop := errors.New("enough")
	var bodies []string
	first := true
	err := c.Watch(t.Context(), WatchRequest{Session: claude, Args: json.RawMessage(`{"stream":"s"}`), ExcludeWriter: "@me"}, func(batch json.RawMessage) error {
		if first { // it listens now
			first = false
			e.do(claude, "event_append", `{"type":"status","stream":"s","room":"r","body":"own"}`)
			e.do(codex, "event_append", `{"type":"status","stream":"other","room":"r","body":"elsewhere"}`)
			e.do(codex, "event_append", `{"type":"status","stream":"s","room":"r","body":"one"}`)
			return nil
		}
		m := parse(t, batch)
		for _, ev := range m["events"].([]any) {
			bodies = append(bodies, ev.(map[string]any)["body"].(string))
		}
		if len(bodies) == 1 {
			e.do(codex, "event_append", `{"type":"status","stream":"s","room":"r","body":"two"}`)
			return nil
		}
		return stop
	})
	if !errors.Is(err, stop) || strings.Join(bodies, " ") != "one two" {
		t.Errorf("watched %v, %v", bodies, err)
	}
	if err := c.Watch(t.Context(), WatchRequest{Args: json.RawMessage(`{"to_agent":"@me"}`)}, nil); AsError(err) == nil || AsError(err).Code != CodeIdentityUnbound {
		t.Errorf("unbound @me: %v", err)
	}
}
