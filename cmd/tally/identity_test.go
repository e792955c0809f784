package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"tallystick/server"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func mkdir(t *testing.T, path string) string {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// I1, I2: the project is the repository, whatever folder, worktree or window.
func TestI1_ProjectIsTheMainWorkingTree(t *testing.T) {
	root := t.TempDir()
	homeDir := mkdir(t, filepath.Join(root, "home"))
	t.Setenv("HOME", homeDir)

	main := filepath.Join(root, "Mesh Guard!")
	mkdir(t, filepath.Join(main, ".git", "worktrees", "fix"))
	write(t, filepath.Join(main, ".git", "HEAD"), "ref: refs/heads/main\n")
	deep := mkdir(t, filepath.Join(main, "a", "b"))
	write(t, filepath.Join(main, ".git", "worktrees", "fix", "commondir"), "../..\n")
	linked := filepath.Join(root, "fix-branch")
	write(t, filepath.Join(linked, ".git"), "gitdir: "+filepath.Join(main, ".git", "worktrees", "fix")+"\n")

	sub := filepath.Join(main, "vendored")
	mkdir(t, filepath.Join(main, ".git", "modules", "vendored"))
	write(t, filepath.Join(sub, ".git"), "gitdir: ../.git/modules/vendored\n")

	bare := filepath.Join(root, "depot.git")
	for _, d := range []string{"objects", "refs", "worktrees/w"} {
		mkdir(t, filepath.Join(bare, d))
	}
	write(t, filepath.Join(bare, "HEAD"), "ref: refs/heads/main\n")
	write(t, filepath.Join(bare, "worktrees", "w", "commondir"), "../..\n")
	bareTree := filepath.Join(root, "w")
	write(t, filepath.Join(bareTree, ".git"), "gitdir: "+filepath.Join(bare, "worktrees", "w")+"\n")

	hidden := filepath.Join(root, "app", ".bare")
	mkdir(t, filepath.Join(hidden, "worktrees", "main"))
	write(t, filepath.Join(hidden, "worktrees", "main", "commondir"), "../..\n")
	hiddenTree := filepath.Join(root, "app", "main")
	write(t, filepath.Join(hiddenTree, ".git"), "gitdir: "+filepath.Join(hidden, "worktrees", "main")+"\n")

	write(t, filepath.Join(homeDir, ".git", "HEAD"), "ref: refs/heads/main\n")
	inHome := mkdir(t, filepath.Join(homeDir, "notes"))

	for name, c := range map[string]struct{ dir, want string }{
		"OK top level":       {main, "mesh-guard-"},
		"OK below":           {deep, "mesh-guard-"},
		"OK linked worktree": {linked, "mesh-guard-"},
		"OK submodule":       {sub, "vendored"},
		"OK bare worktree":   {bareTree, "depot"},
		"OK hidden bare":     {hiddenTree, "app"},
		"OK home is none":    {inHome, ""},
		"OK outside":         {mkdir(t, filepath.Join(root, "plain")), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := server.ProjectOf(c.dir); got != c.want {
				t.Errorf("projectOf(%s) = %q, want %q", c.dir, got, c.want)
			}
		})
	}
}

// What git itself makes reads the same as the files written by hand above.
func TestProjectOfRealGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Log("git is not installed; the layouts written by hand are tested above")
		return
	}
	root := t.TempDir()
	repo := mkdir(t, filepath.Join(root, "Origin_1.x"))
	tree := filepath.Join(root, "elsewhere")
	for _, args := range [][]string{
		{"init", "-q"},
		{"-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "--allow-empty", "-m", "first"},
		{"worktree", "add", "-q", tree},
	} {
		cmd := exec.Command("git", args...)
		cmd.Dir = repo
		cmd.Env = append(plainEnv(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	for _, dir := range []string{repo, tree} {
		if got := server.ProjectOf(dir); got != "origin_1.x" {
			t.Errorf("projectOf(%s) = %q", dir, got)
		}
	}
}
