package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// APIVersion is the version of the local API. It grows when a call changes
// shape; an owner older than a client hands over to it (A2).
const APIVersion = 2

// maxSocketPath is the longest path used as it is: kernels refuse a little
// over 100 bytes.
const maxSocketPath = 100

const (
	socketFile    = "tally.sock"
	socketPointer = "socket" // holds the socket's path, beside it
	stopMark      = "stopped"
	localBody     = 64 << 20
	localInFlight = maxWaits + 1024
	apiHeader     = "Tally-Api"
)

// SocketPath is where the owner of the replica with this run directory
// listens. A path over 100 bytes is replaced by a short hashed one in the
// user's runtime directory.
func SocketPath(runDir string) string {
	path := filepath.Join(runDir, socketFile)
	if len(path) <= maxSocketPath {
		return path
	}
	sum := sha256.Sum256([]byte(path))
	name := "tally-" + hex.EncodeToString(sum[:8]) + ".sock"
	base := os.Getenv("XDG_RUNTIME_DIR")
	if base == "" || len(base)+len(name)+1 > maxSocketPath {
		base = filepath.Join("/tmp", "tally-"+strconv.Itoa(os.Getuid()))
	}
	return filepath.Join(base, name)
}

// findSocket reads the path the owner wrote down, else computes it.
func findSocket(runDir string) string {
	if b, err := ReadSmallFile(filepath.Join(runDir, socketPointer), maxNoteFile); err == nil {
		if p := strings.TrimSpace(string(b)); filepath.IsAbs(p) {
			return p
		}
	}
	return SocketPath(runDir)
}

// SocketServer is the running local API.
type SocketServer struct {
	path, pointer string
	mark          string
	srv           *http.Server
	ln            net.Listener
	end           context.CancelCauseFunc
	done          chan struct{}
	once          sync.Once
}

// ListenSocket serves the local API on a unix socket that only its owner may
// open. The caller must own the store: a socket left by a dead owner is
// replaced without asking.
func ListenSocket(runDir string, s *Service) (*SocketServer, error) {
	path := SocketPath(runDir)
	for _, dir := range []string{runDir, filepath.Dir(path)} {
		if err := privateDir(dir); err != nil {
			return nil, err
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("server: remove old socket: %w", err)
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("server: listen on socket: %w", err)
	}
	// Closing must not unlink the path: a next owner may listen there by then.
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	pointer := filepath.Join(runDir, socketPointer)
	err = os.Chmod(path, 0o600) // listening obeys the umask
	if err == nil {
		err = os.WriteFile(pointer, []byte(path+"\n"), 0o600)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("server: socket: %w", err), ln.Close())
	}
	ctx, end := context.WithCancelCause(context.Background())
	u := &SocketServer{path: path, pointer: pointer, mark: filepath.Join(runDir, stopMark), ln: ln, end: end, done: make(chan struct{})}
	u.srv = &http.Server{
		Handler:           recoverHTTP(limitInFlight(s.localAPI(), localInFlight), s.log),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    httpHeader,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(warnings{s.log.Handler()}, slog.LevelWarn),
	}
	go func() {
		defer close(u.done)
		u.srv.Serve(ln)
	}()
	return u, nil
}

// privateDir makes a directory and checks that others cannot put a socket in
// it under our feet.
func privateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("server: run directory: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("server: run directory: %w", err)
	}
	if openTo(info, 0o022) {
		return invalid("", "run `chmod 700` on it", "the run directory %s may be written by others (mode %04o)", dir, info.Mode().Perm())
	}
	return nil
}

var shuttingDown = fail(CodeUnreachable, "", "call again: the next call starts it", "the replica is shutting down")

// Path is where the socket is.
func (u *SocketServer) Path() string { return u.path }

// Retire tells the clients whose calls are open that the end is on purpose:
// they give up when it closes and start no other owner. Call it before Close,
// and not when a next owner takes over.
func (u *SocketServer) Retire() error {
	if err := os.WriteFile(u.mark, fmt.Appendf(nil, "%d %d\n", os.Getpid(), time.Now().UnixNano()), 0o600); err != nil {
		return fmt.Errorf("server: mark the stop: %w", err)
	}
	return nil
}

// lastStop is the mark that the last owner to retire has left.
func lastStop(runDir string) string {
	b, err := ReadSmallFile(filepath.Join(runDir, stopMark), maxNoteFile)
	if err != nil {
		return ""
	}
	return string(b)
}

// Close removes the socket, ends long polls at once, lets other running calls
// finish for a short grace, and waits. It is idempotent.
func (u *SocketServer) Close() error {
	u.once.Do(func() {
		os.Remove(u.path)
		os.Remove(u.pointer)
		u.end(shuttingDown)
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if u.srv.Shutdown(ctx) != nil {
			u.srv.Close()
		}
	})
	<-u.done
	return nil
}

// Hello is what the two sides of the socket tell each other.
type Hello struct {
	API     int    `json:"api"`
	Version string `json:"version"`
	PID     int    `json:"pid"`
	Replica string `json:"replica"`
}

type callRequest struct {
	Session Session         `json:"session"`
	Tool    string          `json:"tool"`
	Args    json.RawMessage `json:"args,omitempty"`
	OpID    string          `json:"op_id,omitempty"`
}

// InviteRequest asks for an invite. Zero values mean defaults.
type InviteRequest struct {
	TTLMillis int64    `json:"ttl_ms,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
}

// Invite is a one-time word by which another device may join.
type Invite struct {
	Token     string   `json:"token"`
	ExpiresAt string   `json:"expires_at"`
	Addresses []string `json:"addresses"`
}

// TokenRequest asks for a bearer token of the HTTP endpoint.
type TokenRequest struct {
	Session Session `json:"session"`
	Rotate  bool    `json:"rotate,omitempty"`
}

// TokenAnswer is a bearer token and where it is of use.
type TokenAnswer struct {
	Token    string `json:"token"`
	Identity string `json:"identity,omitempty"`
	URL      string `json:"url,omitempty"`
}

// StopRequest asks the owner process to end.
type StopRequest struct {
	// HandOver says that a next owner is started at once: open calls go on there.
	HandOver bool `json:"hand_over,omitempty"`
}

// ProcessStatus is mesh_status and what is known of the owner process.
type ProcessStatus struct {
	Hello
	HTTP    string          `json:"http,omitempty"`
	Waiting int             `json:"waiting"` // calls that wait for events
	Status  json.RawMessage `json:"status"`
}

// WatchRequest asks for a stream of events: the arguments of event_wait, and
// whose own events to leave out (never automatic ones).
type WatchRequest struct {
	Session       Session         `json:"session"`
	Args          json.RawMessage `json:"args,omitempty"`
	ExcludeWriter string          `json:"exclude_writer,omitempty"`
	// FromStart begins with the first event there is; else, without a cursor,
	// the stream begins with what arrives from now on.
	FromStart bool `json:"from_start,omitempty"`
	// Progress asks for a batch without events, too: once at the start, and when
	// what was looked through had none. Its cursor is worth keeping.
	Progress bool `json:"progress,omitempty"`
}

// localAPI is the handler of the unix socket.
func (s *Service) localAPI() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/hello", func(w http.ResponseWriter, r *http.Request) { writeJSON(w, encode(s.hello())) })
	mux.HandleFunc("POST /v1/call", local(func(ctx context.Context, q callRequest) (any, *Error) {
		if q.OpID == "" {
			q.OpID = NewOpID()
		}
		return rawOrError(s.Call(ctx, q.Session, q.Tool, q.Args, q.OpID))
	}))
	mux.HandleFunc("POST /v1/status", local(func(ctx context.Context, q callRequest) (any, *Error) {
		st, err := s.Call(ctx, q.Session, "mesh_status", nil, "")
		if err != nil {
			return nil, err
		}
		return ProcessStatus{Hello: s.hello(), HTTP: s.httpURL(), Waiting: len(s.waits), Status: st}, nil
	}))
	mux.HandleFunc("POST /v1/invite", local(s.invite))
	mux.HandleFunc("POST /v1/token", local(s.token))
	mux.HandleFunc("POST /v1/identity", local(s.Identity))
	mux.HandleFunc("POST /v1/session-start", local(s.SessionStart))
	mux.HandleFunc("POST /v1/import", local(s.ImportBeads))
	mux.HandleFunc("POST /v1/artifact/put", s.servePutArtifact)
	mux.HandleFunc("POST /v1/artifact/get", s.serveGetArtifact)
	mux.HandleFunc("POST /v1/artifact/list", local(s.artifactList))
	mux.HandleFunc("POST /v1/import-memory", local(s.ImportMemory))
	mux.HandleFunc("POST /v1/export-memory", local(s.ExportMemory))
	mux.HandleFunc("POST /v1/stop", local(func(_ context.Context, q StopRequest) (any, *Error) {
		if s.d.Stop == nil {
			return nil, fail(CodeInvalidArgument, "", "end the process that embeds the replica", "this replica cannot be stopped from outside")
		}
		s.d.Stop(q)
		return map[string]bool{"stopping": true}, nil
	}))
	mux.HandleFunc("POST /v1/check-leave", local(func(ctx context.Context, _ struct{}) (any, *Error) {
		if s.d.CheckLeave != nil {
			if err := s.d.CheckLeave(); err != nil {
				return nil, s.asError(ctx, err)
			}
		}
		return map[string]bool{"free": true}, nil
	}))
	mux.HandleFunc("POST /v1/watch", s.serveWatch)
	s.ops(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, fail(CodeUnsupportedVersion, "", "use the same version of tally on both sides; `tally stop` lets a newer one take over",
			"the running replica knows no call %s", quote(r.Method+" "+r.URL.Path)))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(apiHeader, strconv.Itoa(APIVersion))
		if v, err := strconv.Atoi(r.Header.Get(apiHeader)); err == nil && v > APIVersion && r.URL.Path != "/v1/hello" && r.URL.Path != "/v1/stop" {
			writeError(w, http.StatusUpgradeRequired, fail(CodeUnsupportedVersion, "", "stop the running replica with `tally stop`; the newer one then starts by itself",
				"the running replica speaks local API %d, this program %d", APIVersion, v))
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func rawOrError(out json.RawMessage, err *Error) (any, *Error) { return out, err }

func writeJSON(w http.ResponseWriter, b []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Write(append(b, '\n'))
}

// local makes a handler of a function from one JSON object to another.
func local[Q any, A any](fn func(context.Context, Q) (A, *Error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var q Q
		if err := readRequest(w, r, &q); err != nil {
			writeError(w, err.HTTPStatus(), err)
			return
		}
		a, err := fn(r.Context(), q)
		if err != nil {
			writeError(w, err.HTTPStatus(), err)
			return
		}
		if raw, ok := any(a).(json.RawMessage); ok {
			writeJSON(w, raw)
			return
		}
		writeJSON(w, encode(a))
	}
}

func readRequest(w http.ResponseWriter, r *http.Request, q any) *Error {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, localBody))
	var big *http.MaxBytesError
	if errors.As(err, &big) {
		return fail(CodeTooLarge, "", "send less in one call", "the request is larger than %d bytes", big.Limit)
	}
	if err != nil {
		return AsError(err)
	}
	if len(b) == 0 {
		b = []byte("{}")
	}
	if err := json.Unmarshal(b, q); err != nil {
		return invalid("", "use the same version of tally on both sides", "the request is not the JSON expected here: %v", err)
	}
	return nil
}

func (s *Service) hello() Hello {
	return Hello{API: APIVersion, Version: s.d.Version, PID: os.Getpid(), Replica: s.d.Mesh.Self().Label}
}

func (s *Service) invite(ctx context.Context, q InviteRequest) (any, *Error) {
	if s.d.Invite == nil {
		return nil, fail(CodeInvalidArgument, "", "start the replica with `tally up`", "this replica gives no invites")
	}
	if q.TTLMillis < 0 || q.TTLMillis > int64(24*time.Hour/time.Millisecond) {
		return nil, invalid("ttl", "the default is 10m", "an invite lives for at most 24h")
	}
	inv, err := s.d.Invite(ctx, q)
	if err != nil {
		return nil, AsError(err)
	}
	if inv.Addresses == nil {
		inv.Addresses = []string{}
	}
	return inv, nil
}

func (s *Service) token(ctx context.Context, q TokenRequest) (any, *Error) {
	if s.d.Tokens == nil {
		return nil, fail(CodeInvalidArgument, "", "start it with --http 127.0.0.1:0", "this replica serves no HTTP")
	}
	id, bad := s.bind(q.Session)
	if bad != nil {
		return nil, bad
	}
	t, err := s.d.Tokens.Token(q.Session, q.Rotate)
	if err != nil {
		return nil, AsError(err)
	}
	return TokenAnswer{Token: t, Identity: id.Name, URL: s.httpURL()}, nil
}

func (s *Service) httpURL() string {
	if s.d.HTTPURL == nil {
		return ""
	}
	return s.d.HTTPURL()
}

// serveWatch writes one line of JSON for each batch of events until the
// client goes away.
func (s *Service) serveWatch(w http.ResponseWriter, r *http.Request) {
	var q WatchRequest
	if err := readRequest(w, r, &q); err != nil {
		writeError(w, err.HTTPStatus(), err)
		return
	}
	started := false
	rc := http.NewResponseController(w)
	err := s.Watch(r.Context(), q, func(batch json.RawMessage) error {
		if !started {
			w.Header().Set("Content-Type", "application/x-ndjson")
			started = true
		}
		if _, err := w.Write(append(batch, '\n')); err != nil {
			return err
		}
		return rc.Flush()
	})
	switch {
	case err == nil:
	case !started:
		writeError(w, err.HTTPStatus(), err)
	default:
		w.Write(append(err.JSON(), '\n'))
	}
}
