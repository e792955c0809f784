package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestReadmeTour types the README's tour into a shell and compares every line
// of output, ids, times, keys and ports aside.
func TestReadmeTour(t *testing.T) { typeTour(t, filepath.Join("..", "..", "README.md"), nil) }

// TestGuideCoordination types the delegation walk between two hosts, a race of
// claims and its undo.
func TestGuideCoordination(t *testing.T) {
	// Replicas that stop and start find each other at the ports they had.
	typed := map[string]string{}
	var held []net.Listener // until all are chosen
	for _, label := range []string{"desk", "lap"} {
		l := listenLow(t)
		old := "TALLY_LABEL=" + label + " "
		typed[old] = old + "TALLY_LISTEN=" + l.Addr().String() + " "
		held = append(held, l)
	}
	for _, l := range held {
		l.Close()
	}
	if _, err := exec.LookPath("sha256sum"); err != nil {
		typed["sha256sum"] = "shasum -a 256" // its name on macOS
	}
	typeTour(t, filepath.Join("..", "..", "docs", "guide-coordination.md"), typed)
}

// listenLow takes a free port below those that the system gives to whoever
// asks for any, so that nobody else is given it while it is let go of.
func listenLow(t *testing.T) net.Listener {
	t.Helper()
	for range 1000 {
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000))); err == nil {
			return l
		}
	}
	t.Fatal("no free port from 20000 to 31999")
	return nil
}

// typeTour types the first console block of a page; replace changes what is
// typed.
func typeTour(t *testing.T, path string, replace map[string]string) {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	steps := tourSteps(t, string(page))
	work := t.TempDir()
	t.Cleanup(func() { stopAll(t, work) })
	var script strings.Builder
	for i, s := range steps {
		command := strings.ReplaceAll(s.command, "/tmp/", work+"/")
		for old, by := range replace {
			command = strings.ReplaceAll(command, old, by)
		}
		fmt.Fprintf(&script, "echo '@@ %d'\n%s\n", i, command)
	}
	cmd := exec.Command("sh", "-c", "exec 2>&1\n"+script.String())
	cmd.Dir = work
	cmd.Env = append(plainEnv(), "TALLY_LISTEN=127.0.0.1:0", "TALLY_AGENT=you", "HOME="+work, "TZ=UTC")
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
			t.Errorf("$ %s\ngot:\n%s\nthe page has:\n%s", s.command, got, want)
		}
	}
}

type tourStep struct{ command, output string }

// tourSteps reads the first console block: "$ " begins a command, "> " goes
// on with it, everything else is its output.
func tourSteps(t *testing.T, page string) []tourStep {
	t.Helper()
	_, rest, ok := strings.Cut(page, "```console\n")
	block, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatal("the page has no console block")
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
	{regexp.MustCompile(`art_\d{8}T\d{6}_`), "art_TIME_"},
	{regexp.MustCompile(`sum_[0-9a-f]{16}`), "SUMMARY"},
	{regexp.MustCompile(`(mesh|rep)_[0-9a-f]{32}`), "$1"},
	{regexp.MustCompile(`(task_[a-z_]+_)[0-9a-f]{8}`), "$1"},
	{regexp.MustCompile(`\d{13}-[0-9a-f]{4}-[0-9a-f]{12}`), "HLC"},
	{regexp.MustCompile(`\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}(\.\d{3}Z| UTC)?`), "TIME"},
	// Whether a peer has answered already is a matter of a moment.
	{regexp.MustCompile(`on disk on (desk|lap)(; not yet on (desk|lap)|, (desk|lap))`), "on disk on $1"},
	{regexp.MustCompile(`(held by lap-you), (?:provisional|settled), until TIME(?:; waits for .*)?`), "$1, GRADE, until TIME"},
	{regexp.MustCompile(`, (?:provisional; waits for .*|provisional|settled)(?m:$)`), ", GRADE"},
	{regexp.MustCompile(`(held by desk-you), (?:provisional|settled) `), "$1, GRADE "},
	{regexp.MustCompile(`[ \t]+`), " "},
	// A loss is told at once by a computed row, and by an event once it is settled.
	{regexp.MustCompile(`TIME (?:EVENT|\(notice\)) (desk-you -> desk-you)`), "TIME $1"},
	{regexp.MustCompile(`(is lost to EVENT) \((?:provisional|settled)\)`), "$1"},
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
