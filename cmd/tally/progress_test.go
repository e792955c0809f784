package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
)

// A person at a terminal sees how far a long call is, with a count; elsewhere
// nothing is drawn, nor with --quiet or --json.
func TestProgressOnATerminalOnly(t *testing.T) {
	work := t.TempDir()
	t.Cleanup(func() { stopAll(t, work) })
	env := scriptEnv(work)
	path := func(name string) string { return filepath.Join(work, name) }
	if err := os.WriteFile(path("work.jsonl"), generateBeads(60), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path("notes.md"), []byte("- one fact\n- another fact\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path("key"), []byte(key.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	start := exec.Command("tally", "status")
	start.Dir = work
	start.Env = plainEnv()
	for name, value := range env {
		start.Env = append(start.Env, name+"="+value)
	}
	if out, err := start.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	tally := func(terminal bool, args ...string) string {
		t.Helper()
		var errs bytes.Buffer
		a := &app{
			Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: &errs, Dir: work,
			Getenv:     func(name string) string { return env[name] },
			isTerminal: func(w io.Writer) bool { return terminal && w == io.Writer(&errs) },
		}
		if code := run(context.Background(), args, a); code != exitOK && code != exitPartial {
			t.Fatalf("%v: exit code %d: %s", args, code, errs.String())
		}
		return errs.String()
	}
	for i, c := range []struct{ line, shows string }{
		{"import beads work.jsonl", "importing"},
		{"import markdown notes.md", "importing"},
		{"export --out out%.jsonl", "exporting"},
		{"export --format markdown --out out%.md", "exporting"},
		{"log export %.pack", "exporting"},
		{"log import %.pack", "importing"},
		{"backup %.age --with-key --recipient " + key.Recipient().String(), "backing up"},
		{"rebuild", "rebuild"},
		{"restore 6yes.age --with-key --identity key --home restored%", "restoring"},
	} {
		for _, mode := range []string{"yes", "no", "quiet", "json"} {
			args := strings.Fields(c.line)
			for k, w := range args {
				w = strings.ReplaceAll(w, "out%", "out"+mode)
				w = strings.ReplaceAll(w, "restored%", "restored"+mode)
				if args[0] == "log" {
					w = strings.ReplaceAll(w, "%", "log"+mode)
				}
				args[k] = strings.ReplaceAll(w, "%", "6"+mode)
			}
			switch mode {
			case "quiet":
				args = append(args, "--quiet")
			case "json":
				args = append(args, "--json")
			}
			got := tally(mode != "no", args...)
			drawn := strings.Contains(got, "\r")
			if drawn != (mode == "yes") {
				t.Errorf("%d %v, %s: drawn %v: %q", i, args, mode, drawn, got)
			}
			if mode == "yes" && !strings.Contains(got, c.shows) {
				t.Errorf("%v shows %q", args, got)
			}
		}
	}
}
