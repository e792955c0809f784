package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"tallystick/oplog"
	"tallystick/query/logstream"
)

func (e *env) waiters(n int64) {
	e.t.Helper()
	for int64(len(e.svc.waits)) != n || e.svc.looks.Load() < n {
		if e.t.Context().Err() != nil {
			e.t.Fatal("they do not wait")
		}
		yieldNow()
	}
}

// noHub waits until no goroutine reads for waiters.
func noHub(t *testing.T) {
	t.Helper()
	buf := make([]byte, 4<<20)
	for strings.Contains(string(buf[:runtime.Stack(buf, true)]), "(*hub).run") {
		if t.Context().Err() != nil {
			t.Fatal("the hub goes on without waiters")
		}
		yieldNow()
	}
}

// A waiter costs nothing: of a thousand, a commit wakes only those for whom
// it is, whatever it is that they wait by.
func TestThousandWaitersSleep(t *testing.T) {
	e := newEnv(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const n = 1000
	var all sync.WaitGroup
	wait := func(args string) chan string {
		out := make(chan string, 1)
		all.Go(func() {
			raw, bad := e.svc.Call(ctx, claude, "event_wait", json.RawMessage(args), "")
			if bad != nil {
				out <- string(bad.Code)
				return
			}
			out <- string(raw)
		})
		return out
	}
	mine := wait(`{"to_agent":["mac:codex:tally","mac:gemini:x"],"timeout_ms":300000}`)
	task := wait(`{"correlation_id":"t7","type":["task.reply","note"],"timeout_ms":300000}`)
	for i := 2; i < n; i++ {
		switch i % 4 {
		case 0:
			wait(fmt.Sprintf(`{"to_agent":"nobody:%d","timeout_ms":300000}`, i))
		case 1:
			wait(fmt.Sprintf(`{"correlation_id":"c%d","timeout_ms":300000}`, i))
		case 2:
			wait(`{"stream":"elsewhere","timeout_ms":300000}`)
		case 3:
			wait(fmt.Sprintf(`{"to_agent":"mac:codex:tally","type":"type%d","timeout_ms":300000}`, i))
		}
	}
	e.waiters(n)
	looks := e.svc.looks.Load()
	for i := range 50 {
		e.do(claude, "event_append", fmt.Sprintf(`{"type":"status","stream":"s","room":"r","to_agent":"somebody","correlation_id":"t%d"}`, i))
	}
	e.do(claude, "event_append", `{"type":"note","stream":"s","room":"r","to_agent":"mac:codex:tally"}`)
	if got := <-mine; !strings.Contains(got, `"count":1`) {
		t.Errorf("the one it was for: %s", got)
	}
	if w, l := e.svc.hub.wakes.Load(), e.svc.looks.Load()-looks; w != 1 || l != 1 {
		t.Errorf("%d waiters were woken, %d looked; want 1 and 1", w, l)
	}
	e.do(claude, "event_append", `{"type":"note","stream":"s","room":"r","correlation_id":"t7"}`)
	if got := <-task; !strings.Contains(got, `"count":1`) {
		t.Errorf("the task's: %s", got)
	}
	if w := e.svc.hub.wakes.Load(); w != 2 {
		t.Errorf("%d waiters were woken, want 2", w)
	}
	cancel()
	all.Wait()
	noHub(t)
	if len(e.svc.hub.buckets) != 0 {
		t.Errorf("%d buckets are left", len(e.svc.hub.buckets))
	}
}

// No match is missed or told twice between one call and the next, however
// they fall together with the appends.
func TestWaitMissesNothing(t *testing.T) {
	e := newEnv(t)
	const n = 300
	go func() {
		for i := range n {
			args := fmt.Sprintf(`{"type":"note","stream":"s","room":"r","to_agent":"mac:codex:tally","body":"%d"}`, i)
			if i%3 == 0 {
				args = strings.Replace(args, "mac:codex:tally", "other", 1)
			}
			if _, bad := e.svc.Call(context.Background(), claude, "event_append", json.RawMessage(args), ""); bad != nil {
				t.Error(bad)
			}
			if i%7 == 0 {
				yieldNow()
			}
		}
	}()
	seen := map[string]bool{}
	cursor := ""
	for len(seen) < n-n/3 {
		args := `{"to_agent":"@me","timeout_ms":300000,"limit":7}`
		if cursor != "" {
			args = fmt.Sprintf(`{"to_agent":"@me","timeout_ms":300000,"limit":7,"cursor":%q}`, cursor)
		}
		m := e.do(codex, "event_wait", args)
		for _, ev := range m["events"].([]any) {
			body := ev.(map[string]any)["body"].(string)
			if seen[body] {
				t.Fatalf("%s came twice", body)
			}
			seen[body] = true
		}
		cursor = m["next_cursor"].(string)
	}
	noHub(t)
}

// Own posts are left out on request, automatic ones never (K1).
func TestWaitWithoutOwnPosts(t *testing.T) {
	e := newEnv(t)
	start := e.do(claude, "event_wait", `{"timeout_ms":0}`)["next_cursor"].(string)
	e.do(claude, "event_append", `{"type":"note","stream":"s","room":"r","to_agent":"*","body":"mine"}`)
	e.do(codex, "event_append", `{"type":"note","stream":"s","room":"r","to_agent":"*","body":"theirs"}`)
	for filter, want := range map[string]string{`"exclude_writer":"@me"`: "theirs", `"exclude_writer":"mac:codex:tally"`: "mine", `"stream":"s"`: "mine theirs"} {
		if got := bodies(e.do(claude, "event_wait", fmt.Sprintf(`{%s,"timeout_ms":0,"cursor":%q}`, filter, start))); got != want {
			t.Errorf("%s: %q, want %q", filter, got, want)
		}
	}
	if bad := e.refused(Session{}, "event_wait", `{"exclude_writer":"@me","timeout_ms":0}`); bad.Code != CodeIdentityUnbound {
		t.Errorf("%s", bad.JSON())
	}
}

// flakyLog fails to read when told to.
type flakyLog struct {
	Log
	mu   sync.Mutex
	fail int
}

func (l *flakyLog) View(fn func(oplog.Snapshot) error) error {
	l.mu.Lock()
	bad := l.fail > 0
	if bad {
		l.fail--
	}
	l.mu.Unlock()
	if bad {
		return errors.New("not now")
	}
	return l.Log.View(fn)
}

// A reading that fails once wakes everybody, and nobody is forgotten after it.
func TestHubGoesOnAfterAFailure(t *testing.T) {
	e := newEnv(t)
	log := &flakyLog{Log: e.log}
	h := &hub{log: log}
	w, err := h.join(filterTo("x"), false)
	if err != nil {
		t.Fatal(err)
	}
	defer h.leave(w)
	log.mu.Lock()
	log.fail = 1
	log.mu.Unlock()
	e.do(claude, "event_append", `{"type":"note","stream":"s","room":"r","to_agent":"y"}`)
	<-w.wake // for nothing: to look for itself
	h.ensure()
	e.do(claude, "event_append", `{"type":"note","stream":"s","room":"r","to_agent":"x"}`)
	<-w.wake
}

func filterTo(name string) (f logstream.Filter) {
	f.To = []string{name}
	return f
}
