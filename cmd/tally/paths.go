package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// appDir is the folder's name below the XDG directories.
const appDir = "tally"

// home is where a replica's files are. With TALLY_HOME they are all below one
// folder, so that several replicas run on one machine; without it they follow
// the XDG base directories.
type home struct {
	Data   string // the store, encrypted at rest
	State  string // key file, continuity copy, log, peers; never in Data (T3)
	Run    string // socket and http port
	Config string
	root   string // TALLY_HOME made absolute, or empty
}

// findHome works the layout out; it makes no directory. root is TALLY_HOME or
// --home.
func findHome(root string, getenv func(string) string) (home, error) {
	if root != "" {
		abs, err := filepath.Abs(root)
		if err != nil {
			return home{}, fmt.Errorf("find %s: %w", root, err)
		}
		return home{
			Data: filepath.Join(abs, "data"), State: filepath.Join(abs, "state"),
			Run: filepath.Join(abs, "run"), Config: filepath.Join(abs, "config"), root: abs,
		}, nil
	}
	var missing error
	xdg := func(name string, fallback ...string) string {
		// The XDG specification says to ignore relative paths.
		if dir := getenv(name); filepath.IsAbs(dir) {
			return filepath.Join(dir, appDir)
		}
		user, err := os.UserHomeDir()
		if err != nil {
			missing = noHome(err)
			return ""
		}
		return filepath.Join(append(append([]string{user}, fallback...), appDir)...)
	}
	h := home{
		Data:   xdg("XDG_DATA_HOME", ".local", "share"),
		State:  xdg("XDG_STATE_HOME", ".local", "state"),
		Config: xdg("XDG_CONFIG_HOME", ".config"),
	}
	if missing != nil {
		return home{}, missing
	}
	h.Run = filepath.Join(h.State, "run")
	if dir := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		h.Run = filepath.Join(dir, appDir)
	}
	return h, nil
}

// noHome is the mistake of an environment that says nowhere where files go.
func noHome(err error) error {
	return usage("HOME", "set HOME, or name a folder for the replica with --home or TALLY_HOME", "the home directory is not known: %v", err)
}

// make creates the folders, readable by the user alone.
func (h home) make() error {
	for _, dir := range []string{h.Data, h.State, h.Run, h.Config} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make %s: %w", dir, err)
		}
	}
	return nil
}

// exists reports whether a replica was ever made here.
func (h home) exists() bool {
	entries, err := os.ReadDir(h.Data)
	return err == nil && len(entries) > 0
}

func (h home) logFile() string      { return filepath.Join(h.State, "tally.log") }
func (h home) tokenFile() string    { return filepath.Join(h.State, "tokens.json") }
func (h home) settingsFile() string { return filepath.Join(h.Config, "up.json") }

// httpFile names the address of the HTTP endpoint while one is served.
func (h home) httpFile() string { return filepath.Join(h.Run, "http") }

// abs resolves a path that the user typed.
func (a *app) abs(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(a.Dir, path)
}

func (a *app) home() (home, error) {
	root := a.root
	if root != "" {
		root = a.abs(root)
	}
	return findHome(root, a.Getenv)
}
