package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tallystick/query/identity"
	"tallystick/server"
)

// watchState is the file in which a watch keeps how far it has got.
type watchState struct {
	Cursor    *string `json:"cursor"` // null: nothing was there yet; everything is to be shown
	UpdatedAt string  `json:"updated_at"`
	Agent     string  `json:"agent"` // identity that watches
}

// stateFound says what a state file was like.
type stateFound int

const (
	stateAbsent stateFound = iota // begin at the end of the log
	stateGood                     // go on
	stateEmpty                    // a null cursor: from the start
	stateBroken                   // cannot be read: from the start, for nothing may be missed
)

// readWatchState reads a state file. Only a file that is surely not there is
// absent: one that cannot be looked at may hold a place, and starting at the
// end would skip what came since.
func readWatchState(path string) (s watchState, found stateFound, why error) {
	b, err := server.ReadSmallFile(path, maxOwnFile)
	if errors.Is(err, fs.ErrNotExist) {
		return s, stateAbsent, nil
	}
	if err != nil {
		return s, stateBroken, err
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return watchState{}, stateBroken, fmt.Errorf("it is no JSON: %w", err)
	}
	if s.Cursor == nil {
		return s, stateEmpty, nil
	}
	if *s.Cursor == "" {
		return s, stateBroken, errors.New("its cursor is blank")
	}
	return s, stateGood, nil
}

// write replaces the file in one step, so that a reader finds the old place or
// the new one.
func (s watchState) write(path string) error {
	s.UpdatedAt = time.Now().UTC().Format(time.RFC3339)
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".watch-*")
	if err != nil {
		return stateError(path, err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(append(b, '\n'))
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return stateError(path, err)
	}
	return nil
}

func stateError(path string, err error) error {
	return usage("state", "choose a file in a folder that may be written", "cannot keep the state in %s: %v", path, err)
}

// probeState finds out before anything is shown whether the file could be
// written.
func probeState(path string) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".watch-*")
	if err != nil {
		return stateError(path, err)
	}
	if err := errors.Join(tmp.Close(), os.Remove(tmp.Name())); err != nil {
		return stateError(path, err)
	}
	return nil
}

// sameWatcher refuses the state of somebody else: what that one was not shown
// would be skipped. An agent whose name has turned into a tuple is the same, and
// so is one whose machine was renamed since.
func sameWatcher(path, before string, now server.IdentityAnswer) error {
	name := now.Identity
	if before == "" || name == "" || before == name {
		return nil
	}
	for _, host := range append([]string{now.Host}, now.FormerHosts...) {
		then := host + strings.TrimPrefix(name, now.Host)
		a, errA := identity.Parse(before)
		b, errB := identity.Parse(then)
		if before == then || errA == nil && errB == nil && a.Host == b.Host && a.Agent == b.Agent && (a.Flat != b.Flat || a.Project == b.Project) {
			return nil
		}
	}
	return &server.Error{Code: server.CodeConflict, Field: "state", Hint: "give every watcher a state file of its own",
		Message: fmt.Sprintf("%s is the state of %s, and this is %s", path, before, name)}
}
