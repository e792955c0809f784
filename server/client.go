package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ClientOptions are the inputs of a Client.
type ClientOptions struct {
	// RunDir is the run directory of the replica.
	RunDir string
	// Start starts the owner process and returns when it has been started or
	// somebody else's is up. Nil means that an absent owner is an error.
	Start func(ctx context.Context) error
	// Version is the program's version, told to the owner.
	Version string
}

// Client is a Backend over the unix socket of the owner process. It repeats a
// call whose answer was lost with the same op id, so that a write happens
// once. It is safe for concurrent use.
type Client struct {
	o     ClientOptions
	hc    *http.Client
	api   int // of this side; tests pretend to be newer
	hello Hello
}

const (
	dialTimeout = 5 * time.Second
	attempts    = 6
)

// Dial connects to the owner process, starts it when absent, and exchanges
// versions: an owner that is older is asked to stop and replaced (A2).
func Dial(ctx context.Context, o ClientOptions) (*Client, error) {
	return dial(ctx, o, APIVersion)
}

func dial(ctx context.Context, o ClientOptions, api int) (*Client, error) {
	c := &Client{o: o, api: api}
	c.hc = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			d := net.Dialer{Timeout: dialTimeout}
			return d.DialContext(ctx, "unix", findSocket(o.RunDir))
		},
		MaxIdleConnsPerHost: 8,
		IdleConnTimeout:     time.Minute,
	}}
	if err := c.greet(ctx); err != nil {
		return nil, err
	}
	if (c.hello.API < api || newer(o.Version, c.hello.Version)) && o.Start != nil {
		if err := c.takeOver(ctx); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *Client) greet(ctx context.Context) error {
	b, err := c.do(ctx, http.MethodGet, "hello", nil)
	if err != nil {
		return err
	}
	var h Hello
	if json.Unmarshal(b, &h) != nil || h.API < 1 {
		return fail(CodeUnsupportedVersion, "", "stop it with its own `tally stop`", "the process on the socket is no replica this program knows")
	}
	c.hello = h
	return nil
}

// takeOver asks the older owner to stop, waits until its socket is gone and
// starts a new one.
func (c *Client) takeOver(ctx context.Context) error {
	old := c.hello
	if err := c.stop(ctx, StopRequest{HandOver: true}); err != nil {
		return err
	}
	if err := c.o.Start(ctx); err != nil {
		return AsError(err)
	}
	if err := c.greet(ctx); err != nil {
		return err
	}
	if c.hello.API < c.api {
		return fail(CodeUnsupportedVersion, "", "install one version of tally on this machine",
			"the replica speaks local API %d again after a restart (was pid %d), this program %d", c.hello.API, old.PID, c.api)
	}
	return nil
}

// newer reports whether version a is a later release than b. What is no
// release, such as a development build, is never newer and never older.
func newer(a, b string) bool {
	x, okA := release(a)
	y, okB := release(b)
	return okA && okB && slices.Compare(x[:], y[:]) > 0
}

func release(v string) (n [3]int, ok bool) {
	parts := strings.Split(strings.TrimPrefix(v, "v"), ".")
	if len(parts) != len(n) {
		return n, false
	}
	for i, p := range parts {
		u, err := strconv.ParseUint(p, 10, 31)
		if err != nil {
			return n, false
		}
		n[i] = int(u)
	}
	return n, true
}

// Hello is what the owner said of itself.
func (c *Client) Hello() Hello { return c.hello }

// Close gives up idle connections. Running calls end with their contexts.
func (c *Client) Close() error {
	c.hc.CloseIdleConnections()
	return nil
}

// Call implements Backend.
func (c *Client) Call(ctx context.Context, s Session, tool string, args json.RawMessage, opID string) (json.RawMessage, *Error) {
	if opID == "" {
		opID = NewOpID()
	}
	if len(bytes.TrimSpace(args)) > 0 && !json.Valid(args) {
		return nil, invalid("", "send one JSON object with the tool's fields", "the arguments are not JSON")
	}
	return c.ask(ctx, "call", callRequest{Session: s, Tool: tool, Args: args, OpID: opID})
}

// Status is mesh_status and what is known of the owner process.
func (c *Client) Status(ctx context.Context, s Session) (ProcessStatus, error) {
	return askFor[ProcessStatus](ctx, c, "status", callRequest{Session: s})
}

// Invite opens the join port for one device.
func (c *Client) Invite(ctx context.Context, q InviteRequest) (Invite, error) {
	return askFor[Invite](ctx, c, "invite", q)
}

// Token gives the HTTP bearer token of an identity.
func (c *Client) Token(ctx context.Context, q TokenRequest) (TokenAnswer, error) {
	return askFor[TokenAnswer](ctx, c, "token", q)
}

// SessionStart tells an agent what it should know when it begins.
func (c *Client) SessionStart(ctx context.Context, s Session) (SessionStart, error) {
	return askFor[SessionStart](ctx, c, "session-start", s)
}

// Label is the replica's.
func (c *Client) Label() string { return c.hello.Replica }

// Identity asks which name an agent goes by.
func (c *Client) Identity(ctx context.Context, q IdentityRequest) (IdentityAnswer, error) {
	return askFor[IdentityAnswer](ctx, c, "identity", q)
}

// ImportBeads sends one chunk of rows; a repeat adds nothing.
func (c *Client) ImportBeads(ctx context.Context, q ImportRequest) (ImportCounts, error) {
	return askFor[ImportCounts](ctx, c, "import", q)
}

// ImportMemory sends one chunk of rows; a repeat adds nothing.
func (c *Client) ImportMemory(ctx context.Context, q MemoryImport) (MemoryCounts, error) {
	return askFor[MemoryCounts](ctx, c, "import-memory", q)
}

// ExportMemory gives one part of everything that is remembered here.
func (c *Client) ExportMemory(ctx context.Context, q MemoryExport) (MemoryPart, error) {
	return askFor[MemoryPart](ctx, c, "export-memory", q)
}

// CheckLeave refuses to leave the mesh for another one when something would be
// lost.
func (c *Client) CheckLeave(ctx context.Context) error {
	var free json.RawMessage
	return c.askInto(ctx, "check-leave", struct{}{}, &free)
}

// Stop asks the owner to end and returns when it no longer answers. Calls that
// are open end with it.
func (c *Client) Stop(ctx context.Context) error { return c.stop(ctx, StopRequest{}) }

func (c *Client) stop(ctx context.Context, q StopRequest) error {
	if _, err := c.once(ctx, http.MethodPost, "stop", encode(q)); err != nil {
		return err
	}
	c.hc.CloseIdleConnections()
	for {
		b, err := c.once(ctx, http.MethodGet, "hello", nil)
		if ctx.Err() != nil {
			return AsError(ctx.Err())
		}
		var now Hello
		if err != nil || json.Unmarshal(b, &now) == nil && now.PID != c.hello.PID { // somebody has started the next one
			return nil
		}
		if !pause(ctx, 20*time.Millisecond) {
			return AsError(ctx.Err())
		}
	}
}

// Watch calls fn for each batch of events until ctx ends or fn fails. The
// batch is an object {events, count, next_cursor}.
func (c *Client) Watch(ctx context.Context, q WatchRequest, fn func(batch json.RawMessage) error) error {
	res, err := c.open(ctx, "watch", encode(q))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(make([]byte, 64<<10), localBody)
	lines.Split(wholeLines)
	for lines.Scan() {
		if e, ok := ParseError(lines.Bytes()); ok {
			return e
		}
		if err := fn(bytes.Clone(lines.Bytes())); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := lines.Err(); err != nil {
		return unreachable(err)
	}
	return unreachable(io.ErrUnexpectedEOF)
}

// wholeLines is bufio.ScanLines without a last line that was cut off.
func wholeLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF {
		return len(data), nil, nil
	}
	return 0, nil, nil
}

// StopMark is a mark that changes whenever an owner of runDir is stopped on
// purpose. One that ended by itself, or handed over to a newer version, leaves
// it as it was.
func StopMark(runDir string) string { return lastStop(runDir) }

// askFor asks the owner and reads its answer.
func askFor[T any](ctx context.Context, c *Client, verb string, q any) (answer T, err error) {
	err = c.askInto(ctx, verb, q, &answer)
	return answer, err
}

func (c *Client) askInto(ctx context.Context, verb string, q, into any) error {
	b, e := c.ask(ctx, verb, q)
	if e != nil {
		return e
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fail(CodeUnsupportedVersion, "", "use the same version of tally on both sides", "the replica's answer is not the JSON expected here: %v", err)
	}
	return nil
}

func (c *Client) ask(ctx context.Context, verb string, q any) (json.RawMessage, *Error) {
	b, err := c.do(ctx, http.MethodPost, verb, encode(q))
	if err != nil {
		return nil, AsError(err)
	}
	return bytes.TrimSpace(b), nil
}

// do sends a request until it is answered: what gets no answer is repeated,
// the owner started if nobody listens. A call that was open when the owner was
// stopped on purpose ends there; only the next one starts it again.
func (c *Client) do(ctx context.Context, method, verb string, body []byte) ([]byte, error) {
	wait := 20 * time.Millisecond
	stopped := lastStop(c.o.RunDir)
	for try := 1; ; try++ {
		b, err := c.once(ctx, method, verb, body)
		var lost *lostError
		if !errors.As(err, &lost) {
			return b, err
		}
		if ctx.Err() != nil {
			return nil, AsError(ctx.Err())
		}
		if verb != "hello" && lastStop(c.o.RunDir) != stopped {
			return nil, errStopped
		}
		if try == attempts {
			return nil, unreachable(lost.err)
		}
		if lost.dial {
			if c.o.Start == nil {
				return nil, unreachable(lost.err)
			}
			if err := c.o.Start(ctx); err != nil {
				return nil, AsError(err)
			}
		}
		if try > 1 && !pause(ctx, wait) {
			return nil, AsError(ctx.Err())
		}
		wait *= 2
	}
}

var errStopped = fail(CodeUnreachable, "", "the next call starts it again", "the replica was stopped")

// lostError is a request that got no answer.
type lostError struct {
	err  error
	dial bool // nobody listened: it was never sent
}

func (e *lostError) Error() string { return e.err.Error() }

func (c *Client) send(ctx context.Context, method, verb string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://tally/v1/"+verb, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	return c.dispatch(r)
}

// open sends a request whose answer is read as it comes. It is not repeated.
func (c *Client) open(ctx context.Context, verb string, body []byte) (*http.Response, error) {
	res, err := c.send(ctx, http.MethodPost, verb, body)
	if err != nil {
		return nil, unreachable(err)
	}
	if res.StatusCode != http.StatusOK {
		defer res.Body.Close()
		b, _ := io.ReadAll(io.LimitReader(res.Body, maxArgs))
		return nil, answerError(res.StatusCode, b)
	}
	return res, nil
}

// stream sends a request whose body is not kept in memory.
func (c *Client) stream(ctx context.Context, verb string, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://tally/v1/"+verb, body)
	if err != nil {
		return nil, err
	}
	return c.dispatch(r)
}

func (c *Client) dispatch(r *http.Request) (*http.Response, error) {
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(apiHeader, strconv.Itoa(c.api))
	r.Header.Set("User-Agent", "tally/"+c.o.Version)
	return c.hc.Do(r)
}

func (c *Client) once(ctx context.Context, method, verb string, body []byte) ([]byte, error) {
	return answered(c.send(ctx, method, verb, body))
}

// answered reads an answer whole. One that did not come is a *lostError.
func answered(res *http.Response, err error) ([]byte, error) {
	if err != nil {
		var op *net.OpError
		return nil, &lostError{err: err, dial: errors.As(err, &op) && op.Op == "dial"}
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, localBody))
	if err != nil {
		return nil, &lostError{err: err}
	}
	if res.StatusCode != http.StatusOK {
		err := answerError(res.StatusCode, b)
		if res.StatusCode == http.StatusBadGateway { // it is shutting down
			return nil, &lostError{err: err}
		}
		return nil, err
	}
	return b, nil
}

func answerError(status int, body []byte) error {
	if e, ok := ParseError(body); ok {
		return e
	}
	return fail(CodeUnsupportedVersion, "", "use the same version of tally on both sides", "the replica answered with status %d and no reason", status)
}

func unreachable(err error) *Error {
	return fail(CodeUnreachable, "", "start the replica with `tally up`, and look at its log if it does not stay up", "the replica on this machine does not answer: %v", err)
}

// pause waits and reports whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

var _ Backend = (*Client)(nil)
