package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tallystick/server"
)

// ownerLock is the right to own a replica's store. The store has a lock of its
// own against any other program; this one is taken before anything is opened,
// names its holder, and is let go of when the store is closed, so that one can
// wait for that.
type ownerLock struct{ f *os.File }

func (h home) lockFile() string { return filepath.Join(h.State, "owner.lock") }

// lockOwner takes the lock or says who has it.
func lockOwner(h home) (*ownerLock, error) {
	f, err := os.OpenFile(h.lockFile(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the owner's lock: %w", err)
	}
	ok, err := tryLock(f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", h.lockFile(), err)
	}
	if !ok {
		defer f.Close()
		return nil, lockedError(h, f)
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("write %s: %w", h.lockFile(), err)
	}
	return &ownerLock{f}, nil
}

func lockedError(h home, f *os.File) *server.Error {
	who := "another process"
	var b [20]byte
	if n, _ := f.ReadAt(b[:], 0); n > 0 {
		who += " (pid " + strings.TrimSpace(string(b[:n])) + ")"
	}
	return &server.Error{Code: server.CodeStoreLocked, Field: h.Data, Message: who + " owns the store in " + h.Data,
		Hint: "every other verb goes through that process; end it with tally stop, or give this one another TALLY_HOME"}
}

func (l *ownerLock) release() { l.f.Close() }

// waitReleased returns when no process owns the store.
func waitReleased(ctx context.Context, h home) error {
	for {
		l, err := lockOwner(h)
		if err == nil {
			l.release()
			return nil
		}
		if e, ok := err.(*server.Error); !ok || e.Code != server.CodeStoreLocked {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}
