package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
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
	if pid := lockHolder(f); pid > 0 {
		who += fmt.Sprintf(" (pid %d)", pid)
	}
	return &server.Error{Code: server.CodeStoreLocked, Field: h.Data, Message: who + " owns the store in " + h.Data,
		Hint: "every other verb goes through that process; end it with tally stop, or give this one another TALLY_HOME"}
}

// lockHolder is the process that the lock names, or 0.
func lockHolder(f *os.File) int {
	var b [20]byte
	n, _ := f.ReadAt(b[:], 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil {
		return 0
	}
	return pid
}

func (l *ownerLock) release() { l.f.Close() }

// stopPatience is how long an owner may take to close the store.
const stopPatience = 60 * time.Second

// waitReleased returns when the process no longer owns the store, whether
// another one does or none.
func waitReleased(ctx context.Context, h home, pid int) error {
	ctx, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	for {
		l, err := lockOwner(h)
		if err == nil {
			l.release()
			return nil
		}
		if e, ok := err.(*server.Error); !ok || e.Code != server.CodeStoreLocked {
			return err
		}
		if now := h.owner(); now > 0 && now != pid {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return &server.Error{Code: server.CodeTimedOut, Field: h.Data, Message: fmt.Sprintf("pid %d was asked to stop and still owns the store in %s", pid, h.Data),
				Hint: "its last words are in " + h.logFile()}
		}
	}
}

// owner is the process that the lock's file names, or 0.
func (h home) owner() int {
	f, err := os.Open(h.lockFile())
	if err != nil {
		return 0
	}
	defer f.Close()
	return lockHolder(f)
}
