package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tallystick/query/minted"
	"tallystick/server"
)

// How long the search for a repository's first commit may take, which walks
// the whole history once. What it found is kept.
const (
	rootQuick   = 2 * time.Second
	rootPatient = time.Minute
)

// fillRepo says in a session which repository the directory belongs to. With
// no time to look, only what is known already counts.
func fillRepo(s *server.Session, dir string, patience time.Duration) {
	w, ok := server.WorkingTreeOf(dir)
	if !ok {
		return
	}
	s.InRepo, s.Project, s.Remote = true, w.Project, remoteOf(w.GitDir)
	s.Root = rootOf(w.GitDir, patience)
}

// remoteOf reads the address of the remote from a repository's configuration:
// origin, else upstream, else the first there is.
func remoteOf(gitDir string) string {
	config, err := server.ReadSmallFile(filepath.Join(gitDir, "config"), maxOwnFile)
	if err != nil {
		return ""
	}
	urls := map[string]string{}
	var section, first string
	for line := range strings.Lines(string(config)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			section = ""
			if name, ok := strings.CutPrefix(line, `[remote "`); ok {
				section, _, _ = strings.Cut(name, `"]`)
			}
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if section == "" || !ok || len(line) > maxRemote || !strings.EqualFold(strings.TrimSpace(key), "url") || urls[section] != "" {
			continue
		}
		urls[section] = minted.CleanRemote(strings.Trim(strings.TrimSpace(value), `"`))
		if first == "" {
			first = urls[section]
		}
	}
	for _, name := range []string{"origin", "upstream"} {
		if urls[name] != "" {
			return urls[name]
		}
	}
	return first
}

// knownRoot is a row of the file of first commits. Root is empty when there
// was no time to find it.
type knownRoot struct {
	Born string `json:"born"` // tells a repository from one made later in its place
	Root string `json:"root"`
}

const (
	maxRoots  = 1000
	maxRemote = 4096 // bytes of a line with an address
)

// rootOf is the first commit of a repository, empty when it has none, is
// shallow, or git cannot tell in time.
func rootOf(gitDir string, patience time.Duration) string {
	born := bornAt(gitDir)
	cache := rootsFile()
	known := map[string]knownRoot{}
	if b, err := server.ReadSmallFile(cache, maxRootsFile); err == nil && json.Unmarshal(b, &known) != nil {
		known = map[string]knownRoot{}
	}
	if k, ok := known[gitDir]; ok && k.Born == born && (k.Root != "" || patience <= rootQuick) {
		return k.Root
	}
	if _, err := os.Stat(filepath.Join(gitDir, "shallow")); err == nil || patience <= 0 {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", "--git-dir="+gitDir, "rev-list", "--max-parents=0", "HEAD")
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "GIT_") }), "GIT_OPTIONAL_LOCKS=0", "LC_ALL=C")
	out, err := cmd.Output()
	roots := strings.Fields(string(out))
	root := ""
	switch {
	case err == nil && len(roots) > 0:
		root = roots[len(roots)-1] // the oldest
	case ctx.Err() == nil:
		return "" // no commits yet, or no git
	}
	if len(known) >= maxRoots {
		known = map[string]knownRoot{}
	}
	known[gitDir] = knownRoot{Born: born, Root: root}
	saveRoots(cache, known)
	return root
}

// bornAt is a time that does not change while a repository lives.
func bornAt(gitDir string) string {
	for _, name := range []string{"description", "info/exclude", "config"} {
		if info, err := os.Stat(filepath.Join(gitDir, name)); err == nil {
			return info.ModTime().UTC().Format(time.RFC3339Nano)
		}
	}
	return ""
}

func rootsFile() string {
	h, err := findHome(os.Getenv(envPrefix+"HOME"), os.Getenv)
	if err != nil {
		return ""
	}
	return filepath.Join(h.State, "repositories.json")
}

// saveRoots keeps what was found. It is only a cache: where there is no
// replica yet there is no folder for it either, and a failure costs time later.
func saveRoots(path string, known map[string]knownRoot) {
	b, err := json.Marshal(known)
	if err != nil || path == "" {
		return
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".repositories-*")
	if err != nil {
		return
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(b)
	if errors.Join(err, tmp.Close()) == nil {
		os.Rename(tmp.Name(), path)
	}
}
