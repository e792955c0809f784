package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// upInfo is the first line of an owner that serves.
type upInfo struct {
	Label  string `json:"label"`
	ID     string `json:"id"`
	Mesh   string `json:"mesh"`
	New    bool   `json:"new"` // this start made the mesh
	Listen string `json:"listen"`
	HTTP   string `json:"http,omitempty"`
	Socket string `json:"socket"`
	Data   string `json:"data"`
	PID    int    `json:"pid"`
	// Taken is the mesh address that another program had.
	Taken string `json:"listen_taken,omitempty"`
	Keys  string `json:"keys,omitempty"` // where they are, in words, when they were made just now
}

func newUp(a *app) *cobra.Command {
	var s settings
	var detached, verbose bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run the replica of this machine in the foreground",
		Long: `Run the replica of this machine until it is interrupted or stopped. With nothing
set up it makes a mesh of one and says what to do next. The flags are remembered
for owners that other verbs start in the background; the label is fixed by the
first start or by the join.`,
		Example: `  tally up
  tally up --label desk --listen 0.0.0.0:7717 --http 127.0.0.1:7718
  TALLY_HOME=/tmp/b tally up --label b --listen 127.0.0.1:0 --static --peer 127.0.0.1:7717`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := a.home()
			if err != nil {
				return err
			}
			err = s.load(cmd, h)
			s.labelTyped = typed(cmd, "label")
			if detached {
				return a.upDetached(cmd.Context(), h, s, err)
			}
			if err != nil {
				return err
			}
			level := slog.LevelWarn
			if verbose {
				level = slog.LevelInfo
			}
			log := slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: level}))
			err = a.serve(cmd.Context(), h, s, log, func(i upInfo) error { return a.announce(i) })
			if err == nil || cmd.Context().Err() != nil {
				a.say("stopped")
			}
			return err
		},
	}
	s.flags(cmd)
	cmd.Flags().BoolVar(&verbose, "verbose", false, "log what the replica does on stderr")
	cmd.Flags().BoolVar(&detached, "detached", false, "")
	cmd.Flags().MarkHidden("detached")
	return cmd
}

// upDetached is the owner that a verb started: its log goes to a file, its
// first line on stdout says that it serves or why not, and then stdout is
// closed so that nobody waits for it. Settings that did not load are such a
// reason.
func (a *app) upDetached(ctx context.Context, h home, s settings, loaded error) error {
	tell := func(line []byte) {
		a.Stdout.Write(append(line, '\n'))
		if c, ok := a.Stdout.(io.Closer); ok {
			c.Close()
		}
	}
	err := func() error {
		out, err := openLogFile(h.logFile(), maxLog)
		if err != nil {
			return err
		}
		defer out.Close()
		log := slog.New(slog.NewTextHandler(out, nil))
		if err = loaded; err == nil {
			err = a.serve(ctx, h, s, log, func(i upInfo) error {
				line, err := json.Marshal(i)
				if err != nil {
					return fmt.Errorf("encode the first line: %w", err)
				}
				tell(line)
				return nil
			})
		}
		if err != nil {
			log.Error("ended", "error", err)
		}
		return err
	}()
	if err != nil && ctx.Err() == nil {
		tell(asError(err).JSON())
	}
	return err
}

// announce tells a person what runs and what to do next.
func (a *app) announce(i upInfo) error {
	if a.json {
		return a.printJSON(i)
	}
	made := ""
	if i.New {
		made = ", made just now"
	}
	a.say("replica %s is up in mesh %s%s", i.Label, i.Mesh, made)
	a.say("  data      %s", i.Data)
	if i.New {
		a.say("  keys      %s", i.Keys)
	}
	a.say("  mesh      %s", i.Listen)
	if i.Taken != "" {
		a.say("            %s is taken by another program; --listen HOST:PORT pins one", i.Taken)
	}
	if i.HTTP != "" {
		a.say("  MCP http  %s", i.HTTP)
	}
	me, lasting := selfCommand()
	client := me
	a.say("what next")
	if !lasting {
		client = "tally"
		a.say("  install it             go install ./cmd/tally")
	}
	a.say("  wire a client          claude mcp add --scope user tally -- %s mcp --agent claude", client)
	a.say("  add another machine    %s invite, and there: tally join TOKEN", me)
	a.say("  see how far they are   %s status", me)
	a.say("  stop                   Ctrl-C, or %s stop", me)
	return nil
}

// selfCommand is how a person calls this program: by its name when that is in
// the path, else by its place. A build of go run does not last: it is gone
// when it ends.
func selfCommand() (command string, lasting bool) {
	exe, err := os.Executable()
	if err != nil {
		return "tally", true
	}
	if strings.Contains(exe, string(filepath.Separator)+"go-build") {
		return "go run ./cmd/tally", false
	}
	if found, err := exec.LookPath("tally"); err == nil && sameFile(found, exe) {
		return "tally", true
	}
	return exe, true
}

// writeHTTPFile tells local programs where the HTTP endpoint is.
func writeHTTPFile(h home, addr string) error {
	if err := os.WriteFile(h.httpFile(), []byte(addr+"\n"), 0o600); err != nil {
		return fmt.Errorf("write the http address: %w", err)
	}
	return nil
}

func sameFile(a, b string) bool {
	ia, errA := os.Stat(a)
	ib, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(ia, ib)
}
