package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"tallystick/server"
)

// startPatience is how long a verb waits for an owner that holds the store but
// does not answer yet: one that is opening a large store, or closing.
const startPatience = 60 * time.Second

// connect reaches the owner process of this replica and starts one when there
// is none (A2).
func (a *app) connect(ctx context.Context) (*server.Client, error) {
	h, err := a.home()
	if err != nil {
		return nil, err
	}
	return server.Dial(ctx, server.ClientOptions{
		RunDir: h.Run, Version: programVersion().Version,
		Start: func(ctx context.Context) error {
			if err := a.startOwner(ctx, h); err != nil {
				return asError(err)
			}
			return nil
		},
	})
}

// connectOnly reaches the owner process and starts none: nil without error
// means that there is none.
func connectOnly(ctx context.Context, h home) (*server.Client, error) {
	c, err := server.Dial(ctx, server.ClientOptions{RunDir: h.Run, Version: programVersion().Version})
	var e *server.Error
	if errors.As(err, &e) && e.Code == server.CodeUnreachable {
		return nil, nil
	}
	return c, err
}

func ownerAnswers(ctx context.Context, h home) bool {
	c, err := connectOnly(ctx, h)
	if c != nil {
		c.Close()
	}
	return c != nil || err != nil // an owner that complains answers too
}

// startOwner starts a detached owner and returns when it answers. When several
// processes start one at the same time, the store's lock lets one through and
// the others wait for that one.
func (a *app) startOwner(ctx context.Context, h home) error {
	patience := startPatience
	if bringPends(h) {
		a.say("the replica first brings in what its former mesh holds; waiting")
		patience = bringPatience
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	told := false
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		if ownerAnswers(ctx, h) {
			return nil
		}
		err := a.spawnOwner(ctx, h)
		if err == nil {
			return nil
		}
		var e *server.Error
		if !errors.As(err, &e) || e.Code != server.CodeStoreLocked {
			return err
		}
		if !told && wait > 500*time.Millisecond {
			a.say("another process owns the store in %s and does not answer yet; waiting", h.Data)
			told = true
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			if context.Cause(ctx) == context.DeadlineExceeded {
				return e
			}
			return ctx.Err()
		}
	}
}

// notForOwner are variables that speak of one call, not of the replica.
var notForOwner = []string{"TALLY_JSON", "TALLY_QUIET", "TALLY_AGENT", "TALLY_HOME"}

// spawnOwner runs `tally up --detached` in a session of its own and reads its
// first line: that it serves, or why not.
func (a *app) spawnOwner(ctx context.Context, h home) error {
	if err := h.make(); err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil || !isFile(exe) { // replaced while this process ran
		if exe, err = exec.LookPath(os.Args[0]); err != nil {
			return fmt.Errorf("find this program to start the replica: %w", err)
		}
	}
	log, err := os.OpenFile(h.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer log.Close()
	ready, child, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start the replica: %w", err)
	}
	defer ready.Close()

	cmd := exec.Command(exe, "up", "--detached")
	cmd.Args[0] = os.Args[0]
	cmd.Dir = h.State
	cmd.Stdout, cmd.Stderr = child, log
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(notForOwner, name)
	})
	if h.root != "" {
		cmd.Env = append(cmd.Env, "TALLY_HOME="+h.root)
	}
	detach(cmd)
	err = cmd.Start()
	child.Close()
	if err != nil {
		return fmt.Errorf("start the replica: %w", err)
	}
	go cmd.Wait() // the owner outlives us; this only collects one that ends first

	stop := context.AfterFunc(ctx, func() { ready.Close() })
	defer stop()
	line, err := bufio.NewReader(io.LimitReader(ready, maxOwnFile)).ReadBytes('\n')
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return &server.Error{Code: server.CodeUnreachable, Field: h.logFile(), Message: "the replica ended before it served",
			Hint: "its last words are in " + h.logFile()}
	}
	if e, ok := server.ParseError(line); ok {
		return e
	}
	var up upInfo
	if err := json.Unmarshal(line, &up); err != nil {
		return fmt.Errorf("read the replica's first line: %w", err)
	}
	a.say("started the replica %s in the background; its log is %s", up.Label, h.logFile())
	if up.New {
		a.say("its keys are new: %s", up.Keys)
	}
	return nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// stopOwner ends the owner of this home, if there is one, and returns when it
// has let go of the store. Somebody else may have started the next one by then.
func stopOwner(ctx context.Context, h home) (stopped bool, err error) {
	c, err := connectOnly(ctx, h)
	if c == nil || err != nil {
		return false, err
	}
	defer c.Close()
	pid := c.Hello().PID
	if err := c.Stop(ctx); err != nil {
		return false, err
	}
	return true, waitReleased(ctx, h, pid)
}
