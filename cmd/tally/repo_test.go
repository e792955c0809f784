package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tallystick/server"
)

// gitIn runs git and returns what it prints. A machine without git is told.
func gitIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(plainEnv(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// I2: worktrees and clones say the same of themselves, other repositories do
// not, and a repository made anew in the place of another is another.
func TestI2_RepositoryIsKnownByItsHistory(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Log("git is not installed; without it a repository is known by its remote alone")
		return
	}
	root := t.TempDir()
	t.Setenv("HOME", mkdir(t, filepath.Join(root, "home")))
	t.Setenv("TALLY_HOME", filepath.Join(root, "tally"))
	mkdir(t, filepath.Join(root, "tally", "state"))
	look := func(dir string) server.Session {
		t.Helper()
		s, err := sessionWithin("claude", dir, "", rootPatient) // git on a busy machine takes its time
		if err != nil {
			t.Fatal(err)
		}
		return s
	}

	main := mkdir(t, filepath.Join(root, "src", "app"))
	gitIn(t, main, "init", "-q")
	if s := look(main); s.Root != "" || !s.InRepo || s.Project != "app" {
		t.Errorf("without commits: %+v", s)
	}
	gitIn(t, main, "commit", "-q", "--allow-empty", "-m", "first")
	first := gitIn(t, main, "rev-parse", "HEAD")
	gitIn(t, main, "commit", "-q", "--allow-empty", "-m", "second")
	gitIn(t, main, "remote", "add", "fork", "git@example.org:you/app")
	gitIn(t, main, "remote", "add", "origin", "https://me:secret@example.org/me/app.git")
	want := server.Session{Root: first, Remote: "example.org/me/app"}

	tree, clone := filepath.Join(root, "tree"), filepath.Join(root, "clone")
	gitIn(t, main, "worktree", "add", "-q", tree)
	gitIn(t, root, "clone", "-q", main, clone)
	gitIn(t, root, "clone", "-q", "--depth", "1", "file://"+main, filepath.Join(root, "shallow"))
	for range 2 { // the second time from what was kept
		if s := look(main); s.Root != want.Root || s.Remote != want.Remote {
			t.Errorf("main tree: %+v", s)
		}
		if s := look(tree); s.Root != want.Root || s.Remote != want.Remote || s.Project != "app" {
			t.Errorf("worktree: %+v", s)
		}
		if s := look(clone); s.Root != want.Root || s.Remote != "" || s.Project != "clone" {
			t.Errorf("clone: %+v", s)
		}
		if s := look(filepath.Join(root, "shallow")); s.Root != "" {
			t.Errorf("shallow clone: %+v", s)
		}
	}
	if b, err := os.ReadFile(rootsFile()); err != nil || !strings.Contains(string(b), first) {
		t.Errorf("nothing was kept: %s, %v", b, err)
	}

	if err := os.RemoveAll(clone); err != nil {
		t.Fatal(err)
	}
	mkdir(t, clone)
	gitIn(t, clone, "init", "-q")
	gitIn(t, clone, "commit", "-q", "--allow-empty", "-m", "another first")
	if s := look(clone); s.Root == first || s.Root == "" {
		t.Errorf("another repository in the same place: %+v", s)
	}

	// With no time to look, only what is known counts.
	fresh := mkdir(t, filepath.Join(root, "fresh"))
	gitIn(t, fresh, "init", "-q")
	gitIn(t, fresh, "commit", "-q", "--allow-empty", "-m", "first")
	s, err := sessionWithin("claude", fresh, "", 0)
	if err != nil || s.Root != "" || s.Project != "fresh" {
		t.Errorf("without time: %+v, %v", s, err)
	}
}
