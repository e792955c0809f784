package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestReadmeTour types the README's tour into a shell and compares every line
// of output, ids, times, keys and ports aside.
func TestReadmeTour(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	steps := tourSteps(t, string(readme))
	work := t.TempDir()
	t.Cleanup(func() { stopAll(t, work) })
	var script strings.Builder
	for i, s := range steps {
		fmt.Fprintf(&script, "echo '@@ %d'\n%s\n", i, strings.ReplaceAll(s.command, "/tmp/", work+"/"))
	}
	cmd := exec.Command("sh", "-c", "exec 2>&1\n"+script.String())
	cmd.Dir = work
	cmd.Env = append(os.Environ(), "TALLY_LISTEN=127.0.0.1:0", "TALLY_AGENT=you", "HOME="+work, "TZ=UTC")
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		t.Logf("the last command ended with: %v", err)
	}
	parts := regexp.MustCompile(`(?m)^@@ \d+\n`).Split(out.String(), -1)
	if len(parts) != len(steps)+1 {
		t.Fatalf("%d outputs of %d commands:\n%s", len(parts)-1, len(steps), out.String())
	}
	for i, s := range steps {
		got := normal(strings.ReplaceAll(parts[i+1], work+"/", "/tmp/"))
		if want := normal(s.output); got != want {
			t.Errorf("$ %s\ngot:\n%s\nREADME has:\n%s", s.command, got, want)
		}
	}
}

type tourStep struct{ command, output string }

// tourSteps reads the first console block: "$ " begins a command, "> " goes
// on with it, everything else is its output.
func tourSteps(t *testing.T, readme string) []tourStep {
	t.Helper()
	_, rest, ok := strings.Cut(readme, "```console\n")
	block, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatal("README.md has no console block")
	}
	var steps []tourStep
	for _, line := range strings.SplitAfter(block, "\n") {
		switch {
		case strings.HasPrefix(line, "$ "):
			steps = append(steps, tourStep{command: strings.TrimSuffix(line[2:], "\n")})
		case line == "" || len(steps) == 0:
		case strings.HasPrefix(line, "> "):
			steps[len(steps)-1].command += "\n" + strings.TrimSuffix(line[2:], "\n")
		default:
			steps[len(steps)-1].output += line
		}
	}
	if len(steps) < 5 {
		t.Fatalf("the tour has %d commands", len(steps))
	}
	return steps
}

// volatile is what differs from run to run.
var volatile = []struct {
	re *regexp.Regexp
	by string
}{
	{regexp.MustCompile(`evt_\d{8}T\d{6}_[0-9a-f]{12}`), "EVENT"},
	{regexp.MustCompile(`sum_[0-9a-f]{16}`), "SUMMARY"},
	{regexp.MustCompile(`(mesh|rep)_[0-9a-f]{32}`), "$1"},
	{regexp.MustCompile(`\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}`), "TIME"},
	// Whether a peer has answered already is a matter of a moment.
	{regexp.MustCompile(`on disk on desk(; not yet on lap|, lap)`), "on disk on desk"},
	{regexp.MustCompile(`(held by lap-you), (?:provisional|settled), until TIME(?:; waits for .*)?`), "$1, GRADE, until TIME"},
	{regexp.MustCompile(`[ \t]+`), " "},
	{regexp.MustCompile(`(?m) $`), ""},
}

func normal(s string) string {
	for _, v := range volatile {
		s = v.re.ReplaceAllString(s, v.by)
	}
	return s
}

// TestA2_StopIsIdempotent: stopping what does not run is no error.
func TestA2_StopIsIdempotent(t *testing.T) {
	h, err := findHome(t.TempDir(), os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	if stopped, err := stopOwner(context.Background(), h); stopped || err != nil {
		t.Errorf("stopOwner = %v, %v", stopped, err)
	}
}
