package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"tallystick/server"
)

func newMCP(a *app) *cobra.Command {
	var toolsets string
	cmd := &cobra.Command{
		Use:   "mcp [--agent AGENT]",
		Short: "Serve MCP on stdin and stdout, for a client that starts it",
		Long: `Serve MCP on stdin and stdout. Clients start this; it goes through the replica of
this machine and starts it when absent. --agent binds the identity that every call
acts under: host:agent:project, the host from the replica, the project from the
Git repository of the working directory. Without --agent it only reads.`,
		Example: `  claude mcp add --scope user tally -- tally mcp --agent claude
  codex mcp add tally -- tally mcp --agent codex`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := server.Session{Client: "mcp"}
			if cmd.Flags().Changed("agent") && strings.TrimSpace(a.agent) == "" {
				return usage("agent", "name it, e.g. --agent claude, or leave the flag out to only read", "--agent is empty")
			}
			if a.agent != "" {
				var err error
				if s, err = a.session("mcp"); err != nil {
					return err
				}
			}
			sets, err := server.ParseToolsets(toolsets)
			if err != nil {
				return err
			}
			level := slog.LevelWarn
			if a.quiet {
				level = slog.LevelError
			}
			in, out := stdio(a.Stdin, a.Stdout)
			err = server.ServeStdio(cmd.Context(), in, out, &lazyBackend{app: a}, server.MCPOptions{
				Session: s, Version: programVersion().Version, Toolsets: sets,
				Logger: slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: level})),
			})
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		},
	}
	cmd.Flags().StringVar(&toolsets, "toolsets", "", toolsetsUsage)
	return cmd
}

const toolsetsUsage = "tools to show: default, all, or a list such as default,merges"

// lazyBackend connects at the first call and again after a failure, so that a
// client that starts many servers at once is answered at once and a replica
// that cannot start is an error of a tool, which a model can read, and not of
// the whole server.
type lazyBackend struct {
	app *app
	mu  struct {
		sync.Mutex
		client *server.Client
		held   map[server.Session]server.Session
	}
}

func (b *lazyBackend) connect(ctx context.Context) (*server.Client, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.client == nil {
		c, err := b.app.connect(ctx)
		if err != nil {
			return nil, err
		}
		b.mu.client = c
	}
	return b.mu.client, nil
}

// Call is server.Backend.
func (b *lazyBackend) Call(ctx context.Context, s server.Session, tool string, in json.RawMessage, opID string) (json.RawMessage, *server.Error) {
	c, err := b.connect(ctx)
	if err != nil {
		return nil, asError(err)
	}
	return c.Call(ctx, b.hold(ctx, c, s), tool, in, opID)
}

// hold keeps the name that a session had at its first call, so that it does
// not change under an agent that holds claims. Where there is no name yet, as
// when another repository has it, every call asks again.
func (b *lazyBackend) hold(ctx context.Context, c *server.Client, s server.Session) server.Session {
	if !s.Bound {
		return s
	}
	b.mu.Lock()
	held, ok := b.mu.held[s]
	b.mu.Unlock()
	if ok {
		return held
	}
	a, err := c.Identity(ctx, server.IdentityRequest{Session: s})
	if err != nil {
		return s
	}
	held = s
	held.Project, held.Form = a.Project, a.Form
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.held == nil {
		b.mu.held = map[server.Session]server.Session{}
	}
	b.mu.held[s] = held
	return held
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

func stdio(in io.Reader, out io.Writer) (io.ReadCloser, io.WriteCloser) {
	r, ok := in.(io.ReadCloser)
	if !ok {
		r = io.NopCloser(in)
	}
	return r, nopCloser{out}
}
