package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// HTTPOptions are the inputs of the HTTP endpoint.
type HTTPOptions struct {
	// Addr is a loopback address, e.g. 127.0.0.1:0.
	Addr string
	// Listener is one on Addr that is open already. Nil: one is opened.
	Listener net.Listener
	// Tokens say who may call. Required: there is no access without a token.
	Tokens *Tokens
	// Origins are the exact web origins that may call besides none. Default
	// empty.
	Origins []string
	// Version, Toolsets and Logger are as in MCPOptions.
	Version  string
	Toolsets Toolsets
	Logger   *slog.Logger
	// MaxInFlight bounds requests answered at one time. Zero means 128.
	MaxInFlight int
	// MaxStreams bounds clients that follow events at one time. Zero means 256.
	MaxStreams int

	ping time.Duration // of a stream; zero: 15 s
}

const (
	httpBody     = 16 << 20
	httpHeader   = 64 << 10
	httpInFlight = 128
	httpSession  = time.Hour
	// firstStateless is the protocol revision from which clients no longer
	// open sessions. Older ones need a handler that keeps state.
	firstStateless = "2026-07-28"
)

// HTTPServer is a running HTTP endpoint.
type HTTPServer struct {
	srv  *http.Server
	ln   net.Listener
	end  context.CancelCauseFunc
	done chan struct{}
	once sync.Once
}

// ending is a backend whose calls end with ctx too: sessions of the SDK
// outlive the requests that opened them.
type ending struct {
	Backend
	ctx context.Context
}

func (e ending) Call(ctx context.Context, s Session, tool string, args json.RawMessage, opID string) (json.RawMessage, *Error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(e.ctx, func() { cancel(context.Cause(e.ctx)) })()
	return e.Backend.Call(ctx, s, tool, args, opID)
}

// ListenHTTP serves MCP at /mcp on a loopback address and returns once it
// listens.
func ListenHTTP(b Backend, o HTTPOptions) (*HTTPServer, error) {
	if o.Tokens == nil {
		return nil, errors.New("server: HTTPOptions.Tokens is nil")
	}
	if err := CheckHTTPAddr(o.Addr); err != nil {
		return nil, err
	}
	ctx, end := context.WithCancelCause(context.Background())
	h, err := newHTTPHandler(ending{b, ctx}, o)
	if err != nil {
		end(err)
		return nil, err
	}
	ln := o.Listener
	if ln == nil {
		if ln, err = net.Listen("tcp", o.Addr); err != nil {
			end(err)
			return nil, fmt.Errorf("server: listen on %s: %w", o.Addr, err)
		}
	}
	s := &HTTPServer{ln: ln, end: end, done: make(chan struct{}), srv: &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    httpHeader,
		// No WriteTimeout: answers may be streams.
		ErrorLog: slog.NewLogLogger(warnings{logger(o.Logger).Handler()}, slog.LevelWarn),
	}}
	go func() {
		defer close(s.done)
		s.srv.Serve(ln)
	}()
	return s, nil
}

func logger(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l
}

// Addr is the address the endpoint listens on.
func (s *HTTPServer) Addr() string { return s.ln.Addr().String() }

// URL is where clients find the endpoint.
func (s *HTTPServer) URL() string { return "http://" + s.Addr() + "/mcp" }

// Close ends long polls at once and other requests after a short grace, and
// waits. It is idempotent.
func (s *HTTPServer) Close() error {
	s.once.Do(func() {
		s.end(shuttingDown)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if s.srv.Shutdown(ctx) != nil {
			s.srv.Close()
		}
	})
	<-s.done
	return nil
}

// CheckHTTPAddr refuses an address that HTTP may not be served on.
func CheckHTTPAddr(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return invalid("http", "give HOST:PORT, e.g. 127.0.0.1:0", "%s is no address to listen on", quote(addr))
	}
	if host == "localhost" {
		return nil
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || !ip.IsLoopback() {
		return invalid("http", "use 127.0.0.1:PORT; reach other machines through their own replica", "%s is not a loopback address, and nothing but the mesh port listens beyond this machine", quote(addr))
	}
	return nil
}

// newHTTPHandler builds the whole stack: limits, Host, Origin, token, then
// one of two MCP handlers by the protocol revision of the client.
func newHTTPHandler(b Backend, o HTTPOptions) (http.Handler, error) {
	log := logger(o.Logger)
	srv := newMCP(b, MCPOptions{Version: o.Version, Toolsets: o.Toolsets, Logger: log})
	get := func(*http.Request) *mcp.Server { return srv }
	quiet := slog.New(warnings{log.Handler()})
	stateless := mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Stateless: true, Logger: quiet, MaxRequestBodyBytes: httpBody})
	stateful := mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Logger: quiet, MaxRequestBodyBytes: httpBody, SessionTimeout: httpSession})
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Protocol-Version") >= firstStateless {
			stateless.ServeHTTP(w, r)
			return
		}
		stateful.ServeHTTP(w, r)
	})
	origin := http.NewCrossOriginProtection()
	for _, a := range o.Origins {
		if err := origin.AddTrustedOrigin(a); err != nil {
			return nil, fmt.Errorf("server: allowed origin: %w", err)
		}
	}
	guard := func(inner http.Handler) http.Handler {
		next := requireToken(inner, o.Tokens)
		return requireLoopbackHost(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// GET and HEAD pass the library's check; a page of another origin has
			// no business with them either.
			if err := origin.Check(r); err != nil || !originAllowed(r, o.Origins) {
				writeError(w, http.StatusForbidden, fail(CodePeerRefused, "", "call without an Origin header; web pages may not call", "the Origin of the request is not allowed"))
				return
			}
			next.ServeHTTP(w, r)
		}))
	}
	h = guard(jsonErrors(h))
	mux := http.NewServeMux()
	mux.Handle("/mcp", limitInFlight(h, o.MaxInFlight))
	if e, ok := b.(ending); ok {
		if w, ok := e.Backend.(watcher); ok {
			mux.Handle(ssePath, guard(sse(w, e.ctx, o.MaxStreams, o.ping)))
		}
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, fail(CodeNotFound, "", "MCP is served at /mcp, the tail of events at /events", "nothing is served at this path"))
	})
	return recoverHTTP(mux, log), nil
}

func originAllowed(r *http.Request, allowed []string) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	for _, a := range allowed {
		if origin == a {
			return true
		}
	}
	return false
}

func writeError(w http.ResponseWriter, status int, e *Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(e.JSON(), '\n'))
}

// requireLoopbackHost refuses requests that reached us under another name,
// as after DNS rebinding.
func requireLoopbackHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
		if host != "localhost" && (err != nil || !ip.IsLoopback()) {
			writeError(w, http.StatusForbidden, fail(CodePeerRefused, "", "call it as 127.0.0.1, [::1] or localhost", "the Host of the request is not this machine's loopback"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// requireToken binds the session of the bearer token to the request.
func requireToken(next http.Handler, tokens *Tokens) http.Handler {
	verify := func(ctx context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		s, ok := tokens.lookup(token)
		if !ok {
			return nil, auth.ErrInvalidToken
		}
		return &auth.TokenInfo{UserID: s.Agent + ":" + s.Project, Extra: map[string]any{tokenSession: s, tokenRequest: ctx}}, nil
	}
	inner := auth.RequireBearerToken(verify, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if _, ok := tokens.lookup(strings.TrimSpace(token)); !ok || !strings.EqualFold(scheme, "bearer") {
			// No WWW-Authenticate: it would push clients into OAuth discovery.
			writeError(w, http.StatusUnauthorized, fail(CodePeerRefused, "", "send `Authorization: Bearer TOKEN`; `tally token --agent NAME` prints one", "the request has no valid token"))
			return
		}
		inner.ServeHTTP(w, r)
	})
}

func limitInFlight(next http.Handler, n int) http.Handler {
	if n <= 0 {
		n = httpInFlight
	}
	slots := make(chan struct{}, n)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			next.ServeHTTP(w, r)
		default:
			w.Header().Set("Retry-After", "1")
			writeError(w, http.StatusServiceUnavailable, fail(CodeBusy, "", "try again in a second", "%d requests are being answered already", n))
		}
	})
}

func recoverHTTP(next http.Handler, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil || p == http.ErrAbortHandler {
				return
			}
			log.Error("panic in a request", "path", r.URL.Path, "panic", fmt.Sprint(p))
			writeError(w, http.StatusInternalServerError, internalError())
		}()
		next.ServeHTTP(w, r)
	})
}
