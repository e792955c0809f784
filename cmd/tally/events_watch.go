package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"tallystick/server"
)

// watchFlags are the flags of watch besides the filter.
type watchFlags struct {
	exclude, state, command string
	count                   int
	idle                    time.Duration
}

func newEventsWatch(a *app) *cobra.Command {
	var f eventFilter
	var w watchFlags
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Print events as they arrive, until interrupted",
		Long: `Print events as they arrive here, the matching ones already here first when a
cursor or --since is given. With --json every batch is one line with events, count
and next_cursor; keep the cursor and go on with --cursor after a restart.

--agent AGENT watches the inbox of that agent and leaves out what it wrote itself.
--state FILE keeps the place: a watch that is started again goes on there. Without
the file it begins at the end of the log; with one that cannot be read it begins at
the first event, so that nothing is missed. --exec runs a command for every event,
which is its input as one line of JSON; the place is kept when the command has
succeeded.`,
		Example: `  tally events watch --agent claude --state ~/.claude-watch.json
  tally events watch --to @me --exclude-writer @me
  tally events watch --agent codex --state w.json --exec 'jq -r .body | wall'
  tally events watch --stream project/x --json | jq -c '.events[]'`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if typed(cmd, "agent") {
				if len(f.to) == 0 {
					f.to = []string{"@me"}
				}
				if w.exclude == "" {
					w.exclude = "@me"
				}
			}
			if w.idle < 0 {
				return usage("idle-timeout", "give a time like 30s or 5m", "--idle-timeout %v is negative", w.idle)
			}
			return a.watch(cmd.Context(), f, w)
		},
	}
	f.flags(cmd.Flags(), false)
	fs := cmd.Flags()
	fs.StringVar(&w.exclude, "exclude-writer", "", "leave out what this identity wrote; @me is you")
	fs.IntVar(&w.count, "count", 0, "end after so many events (default: never)")
	fs.StringVar(&w.state, "state", "", "file that keeps the place over restarts")
	fs.DurationVar(&w.idle, "idle-timeout", 0, "end when nothing came for so long; exit 5 when nothing came at all")
	fs.StringVar(&w.command, "exec", "", "run this for every event, which it reads from stdin, instead of printing it")
	return cmd
}

var (
	errEnough = errors.New("enough events")
	errIdle   = errors.New("nothing came in time")
)

// watching is one run of watch.
type watching struct {
	a      *app
	f      watchFlags
	state  watchState
	seen   int
	begun  bool   // the first batch has come
	placed bool   // the user said where to begin
	place  string // behind what was shown
	active func() // the idle time begins anew
	ctx    context.Context
}

func (a *app) watch(ctx context.Context, f eventFilter, w watchFlags) error {
	if w.command != "" {
		f.limit = 1 // the place is kept after each event
	}
	in, err := f.args(true)
	if err != nil {
		return err
	}
	s, err := a.session("cli")
	if err != nil {
		return err
	}
	explicit := f.cursor != "" || f.since != "" || f.sinceTime != ""
	run := &watching{a: a, f: w, placed: explicit, active: func() {}}
	q := server.WatchRequest{Session: s, ExcludeWriter: w.exclude, Progress: w.state != "" || w.idle > 0}
	stored := false
	if w.state != "" {
		run.f.state = a.abs(w.state)
		if err := probeState(run.f.state); err != nil {
			return err
		}
		if stored, err = run.resume(&q, in, explicit); err != nil {
			return err
		}
	}
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { c.Close() }()
	if w.state != "" {
		// Where another repository has the name there is no identity; reading
		// team-wide goes on all the same.
		if id, err := c.Identity(ctx, server.IdentityRequest{Session: s}); err == nil {
			if err := sameWatcher(run.f.state, run.state.Agent, id); err != nil {
				return err
			}
			run.state.Agent = id.Identity
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if w.idle > 0 {
		var timer *time.Timer
		run.active = func() {
			if timer == nil {
				timer = time.AfterFunc(w.idle, func() { cancel(errIdle) })
				return
			}
			timer.Reset(w.idle)
		}
	}
	run.ctx = ctx
	h, err := a.home()
	if err != nil {
		return err
	}
	for {
		mark := server.StopMark(h.Run)
		if q.Args, err = in.encode(); err != nil {
			return err
		}
		err = c.Watch(ctx, q, run.batch)
		var e *server.Error
		if stored && errors.As(err, &e) && (e.Code == server.CodeUnknownCursor || e.Code == server.CodeForeignCursor) {
			a.say("the place kept in %s is not in this log; beginning with the first event", w.state)
			delete(in, "cursor")
			q.FromStart, stored = true, false
			continue
		}
		if ctx.Err() == nil && errors.As(err, &e) && e.Code == server.CodeUnreachable {
			next, lost := a.reconnect(ctx, h, mark)
			if lost != nil {
				err = lost
				break
			}
			c.Close()
			c = next
			run.goOn(in)
			continue
		}
		break
	}
	switch {
	case errors.Is(err, errEnough):
		return nil
	case err != nil && context.Cause(ctx) == errIdle:
		if run.seen > 0 {
			return nil
		}
		return &server.Error{Code: server.CodeTimedOut, Message: fmt.Sprintf("nothing came in %v", w.idle)}
	}
	return err
}

// patienceForNext is how often a watch looks for the next replica before it
// starts one itself: a newer version that takes over comes first.
const patienceForNext = 30

// reconnect waits for the replica to be back. One that was stopped on purpose
// is not started: it is for a person to do that.
func (a *app) reconnect(ctx context.Context, h home, mark string) (*server.Client, error) {
	told := false
	wait := 50 * time.Millisecond
	for try := 0; ; try++ {
		c, err := connectOnly(ctx, h)
		stopped := server.StopMark(h.Run) != mark
		if c == nil && err == nil && !stopped && try >= patienceForNext {
			c, err = a.connect(ctx)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		if c != nil {
			if told {
				a.say("the replica is back; the watch goes on")
			}
			return c, nil
		}
		if stopped && !told {
			a.say("the replica was stopped; the watch goes on when it is back")
			told = true
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if stopped {
			wait = min(2*wait, time.Second)
		}
	}
}

// goOn sets the place of a watch behind what was shown.
func (run *watching) goOn(in args) {
	if run.place == "" {
		return // nothing came yet: it begins as it did
	}
	delete(in, "since_event_id")
	in["cursor"] = run.place
}

// resume sets the place of a watch from its state file and reports whether it
// comes from there. A place that the user names wins.
func (run *watching) resume(q *server.WatchRequest, in args, explicit bool) (stored bool, err error) {
	state, found, why := readWatchState(run.f.state)
	if found == stateGood || found == stateEmpty {
		run.state.Agent = state.Agent
	}
	switch {
	case explicit:
		return false, nil
	case found == stateAbsent:
		run.a.say("%s is not there yet; beginning with what arrives from now on", run.f.state)
	case found == stateGood:
		in["cursor"] = *state.Cursor
		return true, nil
	case found == stateEmpty:
		q.FromStart = true
	default:
		run.a.say("cannot read %s (%v); beginning with the first event", run.f.state, why)
		q.FromStart = true
	}
	return false, nil
}

// batch shows one batch and keeps the place behind it.
func (run *watching) batch(raw json.RawMessage) error {
	var page struct {
		Events     []json.RawMessage `json:"events"`
		NextCursor string            `json:"next_cursor"`
	}
	if err := json.Unmarshal(raw, &page); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if len(page.Events) > 0 || !run.begun {
		run.active()
	}
	if err := run.show(raw, page.Events); err != nil {
		return err
	}
	run.begun = true
	if page.NextCursor != "" {
		run.place = page.NextCursor
	}
	if run.f.state != "" && page.NextCursor != "" {
		run.state.Cursor = &page.NextCursor
		if err := run.state.write(run.f.state); err != nil {
			return err
		}
	}
	if run.seen += len(page.Events); run.f.count > 0 && run.seen >= run.f.count {
		return errEnough
	}
	return nil
}

func (run *watching) show(raw json.RawMessage, events []json.RawMessage) error {
	switch {
	case run.f.command != "":
		for _, e := range events {
			if err := run.exec(e); err != nil {
				return err
			}
		}
		return nil
	case run.a.json:
		if len(events) == 0 && (run.begun || run.placed || run.f.state != "") {
			return nil // only the place has moved
		}
		return run.a.printJSON(raw)
	}
	for _, one := range events {
		var e event
		if err := json.Unmarshal(one, &e); err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
		run.a.printEvent(e)
	}
	return nil
}

// exec runs the user's command for an event. What others wrote reaches it as
// input, never as words of a command line.
func (run *watching) exec(e json.RawMessage) error {
	name, flag := "sh", "-c"
	if runtime.GOOS == "windows" {
		name, flag = "cmd", "/C"
	}
	var head struct {
		ID   string `json:"id"`
		Type string `json:"type"`
	}
	if err := json.Unmarshal(e, &head); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	cmd := exec.CommandContext(run.ctx, name, flag, run.f.command)
	cmd.Dir = run.a.Dir
	cmd.Stdin = bytes.NewReader(append(bytes.Clone(e), '\n'))
	cmd.Stdout, cmd.Stderr = run.a.Stdout, run.a.Stderr
	cmd.Env = append(os.Environ(), envPrefix+"EVENT_ID="+head.ID, envPrefix+"EVENT_TYPE="+head.Type)
	if err := cmd.Run(); err != nil {
		if run.ctx.Err() != nil {
			return run.ctx.Err()
		}
		hint := "the event is not lost: tally events list shows it"
		if run.f.state != "" {
			hint = "the event comes again when the watch is started again"
		}
		return &server.Error{Code: server.CodeBusy, Field: "exec", Hint: hint, Message: fmt.Sprintf("the command for %s failed: %v", head.ID, err)}
	}
	return nil
}
