package main

import (
	"path/filepath"
	"testing"

	"tallystick/server"
)

// Only a file that is surely not there lets a watch begin at the end: a folder
// that cannot be looked into may hold a place.
func TestWatchStateThatCannotBeLookedAt(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), "x")
	for path, want := range map[string]stateFound{
		filepath.Join(dir, "none.json"):         stateAbsent,
		filepath.Join(dir, "file", "w.json"):    stateBroken,
		filepath.Join(dir, "none", "none.json"): stateAbsent,
		dir:                                     stateBroken,
		filepath.Join(dir, "file"):              stateBroken,
	} {
		if _, found, _ := readWatchState(path); found != want {
			t.Errorf("%s: %d, want %d", path, found, want)
		}
	}
	for path, ok := range map[string]bool{filepath.Join(dir, "w.json"): true, filepath.Join(dir, "file", "w.json"): false, filepath.Join(dir, "none", "w.json"): false} {
		if err := probeState(path); (err == nil) != ok {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// I2: the state of an agent stays its own when its name turns into a tuple;
// that of another is refused.
func TestI2_StateIsTheWatchersOwn(t *testing.T) {
	for _, c := range []struct {
		before, now string
		ok          bool
	}{
		{"", "mac-claude", true}, {"mac-claude", "mac-claude", true}, {"mac-claude", "mac:claude:x", true}, {"mac:claude:x", "", true},
		{"mac-claude", "mac-codex", false}, {"mac:claude:x", "mac:claude:y", false}, {"lap:claude:x", "mac:claude:x", false},
		{"old:claude:x", "mac:claude:x", true}, {"old-claude", "mac-claude", true}, {"old-claude", "mac:claude:x", true}, {"older:claude:x", "mac:claude:x", true},
		{"old:codex:x", "mac:claude:x", false}, {"old:claude:y", "mac:claude:x", false}, {"old-codex", "mac-claude", false}, {"old2:claude:x", "mac:claude:x", false},
	} {
		now := server.IdentityAnswer{Identity: c.now, Host: "mac", FormerHosts: []string{"older", "old"}}
		if err := sameWatcher("w", c.before, now); (err == nil) != c.ok {
			t.Errorf("%s, then %s: %v", c.before, c.now, err)
		}
	}
}
