package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Backend answers tool calls. [Service] does so in the owner process,
// [Client] in every other, through the owner's socket. Implementations are
// safe for concurrent use, return when ctx ends, and give the same first
// result for a repeated opID of the same identity.
type Backend interface {
	Call(ctx context.Context, s Session, tool string, args json.RawMessage, opID string) (json.RawMessage, *Error)
}

// MCPOptions are the inputs of an MCP server.
type MCPOptions struct {
	// Session is on whose behalf calls are made when the transport does not
	// say (stdio). The zero value is unbound.
	Session Session
	// Version is the program's version, for the handshake.
	Version string
	// Toolsets are the tools to show; the zero value is the default.
	Toolsets Toolsets
	// Logger takes warnings and panics. Nil means silence.
	Logger *slog.Logger

	ready *readyAnswers // of stdio
}

// newMCP builds the SDK's server over a backend. Tools are added through the
// low-level call: schemas go to the wire as they are written here, arguments
// reach the backend as the client sent them, and the result is one JSON
// object, the same bytes as text and as structured content.
func newMCP(b Backend, o MCPOptions) *mcp.Server {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Version == "" {
		o.Version = "devel"
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "tallystick", Title: "Tallystick", Version: o.Version}, &mcp.ServerOptions{
		Instructions: instructions,
		Logger:       slog.New(warnings{o.Logger.Handler()}),
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
	})
	s.AddReceivingMiddleware(recoverer(o.Logger))
	for i := range tools {
		t := &tools[i]
		if !o.Toolsets.shows(t) {
			continue
		}
		no := false
		s.AddTool(&mcp.Tool{
			Name:        t.name,
			Description: t.desc,
			InputSchema: json.RawMessage(t.schemaJSON()),
			Annotations: &mcp.ToolAnnotations{
				ReadOnlyHint:    t.readOnly,
				DestructiveHint: &t.destructive,
				IdempotentHint:  t.idempotent,
				OpenWorldHint:   &no,
			},
		}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			session := o.Session
			if r.Extra != nil && r.Extra.TokenInfo != nil {
				bound, ok := r.Extra.TokenInfo.Extra[tokenSession].(Session)
				if !ok {
					bound = Session{}
				}
				session = bound
				// The SDK lets a call go on when its client has gone; nobody would get
				// the answer.
				if request, ok := r.Extra.TokenInfo.Extra[tokenRequest].(context.Context); ok {
					var cancel context.CancelCauseFunc
					ctx, cancel = context.WithCancelCause(ctx)
					defer cancel(nil)
					defer context.AfterFunc(request, func() { cancel(context.Cause(request)) })()
				}
			}
			if info := r.ClientInfo(); info != nil {
				session.Client = clip(info.Name)
			}
			out, err := b.Call(ctx, session, t.name, r.Params.Arguments, NewOpID())
			return o.ready.result(out, err), nil
		})
	}
	return s
}

// toolResult is the answer of a call: the same bytes twice, or the text of
// the error alone, because some clients show structured content instead of an
// error.
func toolResult(out json.RawMessage, err *Error) *mcp.CallToolResult {
	if err != nil {
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: string(err.JSON())}}}
	}
	return &mcp.CallToolResult{
		Content:           []mcp.Content{&mcp.TextContent{Text: string(out)}},
		StructuredContent: out,
	}
}

// recoverer turns a panic into an answer: the SDK would let it end the
// process, and with it every agent's access.
func recoverer(log *slog.Logger) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (res mcp.Result, err error) {
			defer func() {
				if p := recover(); p != nil {
					log.Error("panic in a tool call", "method", method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
					if method == "tools/call" {
						res, err = toolResult(nil, internalError()), nil
						return
					}
					res, err = nil, fmt.Errorf("internal failure in %s", method)
				}
			}()
			return next(ctx, method, r)
		}
	}
}

func internalError() *Error {
	return fail(CodeBusy, "", "try again; if it stays, look at the replica's log", "internal failure")
}

// warnings drops what is below a warning: the SDK writes several lines per
// request otherwise.
type warnings struct{ slog.Handler }

func (w warnings) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && w.Handler.Enabled(ctx, l)
}

func (w warnings) WithAttrs(a []slog.Attr) slog.Handler { return warnings{w.Handler.WithAttrs(a)} }
func (w warnings) WithGroup(name string) slog.Handler   { return warnings{w.Handler.WithGroup(name)} }

// ServeStdio speaks MCP on in and out until in ends or ctx does. out is
// reserved for the protocol. A line that is no message is answered with an
// error, and the next one is read.
func ServeStdio(ctx context.Context, in io.ReadCloser, out io.WriteCloser, b Backend, o MCPOptions) error {
	o.ready = newReadyAnswers()
	err := newMCP(b, o).Run(ctx, &lines{in: in, out: out, ready: o.ready})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// NewOpID makes a random op id for one write. Keep it for repeats of the same
// write: the replica then answers with the first result (A2).
func NewOpID() string { return rand.Text() }
