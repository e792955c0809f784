package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"

	"tallystick/query/logstream"
)

// The tail of events over HTTP, as server-sent events: GET /events, with the
// filters of event_wait as parameters.

const (
	ssePath    = "/events"
	ssePing    = 15 * time.Second
	sseStreams = 256
	// sseRetry is when a refused or broken client should come again, in
	// seconds.
	sseRetry = 5
)

// watcher is a backend whose events can be followed.
type watcher interface {
	watch(ctx context.Context, q WatchRequest, fn func(*logstream.Page) error, ready func()) *Error
}

// sseParams are the parameters of the tail; those that may be repeated are
// true.
var sseParams = map[string]bool{
	"stream": false, "room": false, "topic": false, "type": true, "to_agent": true, "writer": false, "exclude_writer": false, "from_agent": false,
	"correlation_id": false, "status": false, "since_event_id": false, "cursor": false, "since_created_at": false,
}

// sse serves the tail. ended is the life of the server.
func sse(w watcher, ended context.Context, streams int, ping time.Duration) http.Handler {
	if streams <= 0 {
		streams = sseStreams
	}
	slots := make(chan struct{}, streams)
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			out.Header().Set("Allow", http.MethodGet)
			writeError(out, http.StatusMethodNotAllowed, invalid("", "use GET", "the tail of events is read with GET"))
			return
		}
		q, bad := sseRequest(r)
		if bad != nil {
			writeError(out, bad.HTTPStatus(), bad)
			return
		}
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			out.Header().Set("Retry-After", fmt.Sprint(sseRetry))
			writeError(out, http.StatusServiceUnavailable, fail(CodeBusy, "", fmt.Sprintf("come again in %d seconds, or use event_wait", sseRetry), "%d clients follow the events already", streams))
			return
		}
		ctx, cancel := context.WithCancelCause(r.Context())
		var pings sync.WaitGroup
		defer pings.Wait() // nothing may be written once this has returned
		defer cancel(nil)
		defer context.AfterFunc(ended, func() { cancel(context.Cause(ended)) })()
		s := &sseStream{out: out, rc: http.NewResponseController(out)}
		bad = w.watch(ctx, q, s.page, func() {
			s.start()
			pings.Go(func() { s.keepAlive(ctx, cancel, ping) })
		})
		if bad == nil {
			return
		}
		if !s.begun() {
			writeError(out, bad.HTTPStatus(), bad)
			return
		}
		s.write("event: error\ndata: " + string(bad.JSON()) + "\n\n")
	})
}

// sseRequest reads the filters. What a client saw last wins over where its URL
// says to begin: a browser repeats both.
func sseRequest(r *http.Request) (WatchRequest, *Error) {
	var q WatchRequest
	if info := auth.TokenInfoFromContext(r.Context()); info != nil {
		q.Session, _ = info.Extra[tokenSession].(Session)
	}
	q.Session.Client = "events"
	a := map[string]any{}
	for name, values := range r.URL.Query() {
		list, known := sseParams[name]
		switch {
		case !known:
			e := fail(CodeUnknownField, name, "use the filters of event_wait", "there is no parameter %s", quote(name))
			for p := range sseParams {
				e.Allowed = append(e.Allowed, p)
			}
			slices.Sort(e.Allowed)
			return q, e
		case len(values) == 1:
			a[name] = values[0]
		case list:
			a[name] = values
		default:
			return q, invalid(name, "give it once", "%s is given %d times", name, len(values))
		}
	}
	if w, ok := a["exclude_writer"].(string); ok {
		q.ExcludeWriter = w
		delete(a, "exclude_writer")
	}
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		delete(a, "cursor")
		delete(a, "since_created_at")
		a["since_event_id"] = last
	}
	var err error
	if q.Args, err = json.Marshal(a); err != nil {
		return q, AsError(err)
	}
	return q, nil
}

// sseStream writes one client's stream. Events and pings do not mix.
type sseStream struct {
	out http.ResponseWriter
	rc  *http.ResponseController

	mu      sync.Mutex
	started bool
}

func (s *sseStream) start() {
	s.mu.Lock()
	h := s.out.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	s.out.WriteHeader(http.StatusOK)
	s.started = true
	s.mu.Unlock()
	s.write(fmt.Sprintf("retry: %d\n\n", sseRetry*1000))
}

func (s *sseStream) begun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.started
}

func (s *sseStream) write(text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.out.Write([]byte(text)); err != nil {
		return err
	}
	return s.rc.Flush()
}

// page writes events. A computed one is not in the log, so a client cannot
// come back to it by id.
func (s *sseStream) page(p *logstream.Page) error {
	var b strings.Builder
	for i := range p.Events {
		if e := &p.Events[i]; !e.Computed {
			b.WriteString("id: " + e.ID + "\n")
		}
		b.WriteString("data: ")
		b.Write(encode(&p.Events[i]))
		b.WriteString("\n\n")
	}
	if b.Len() == 0 {
		return nil
	}
	return s.write(b.String())
}

// keepAlive lets proxies and both ends know that the other is there.
func (s *sseStream) keepAlive(ctx context.Context, cancel context.CancelCauseFunc, every time.Duration) {
	if every <= 0 {
		every = ssePing
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if err := s.write(": ping\n\n"); err != nil {
				cancel(err)
				return
			}
		case <-ctx.Done():
			return
		}
	}
}
