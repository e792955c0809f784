package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The binary is built once for all tests.
var binary struct {
	once sync.Once
	path string
	err  error
}

func tally(t *testing.T) string {
	t.Helper()
	binary.once.Do(func() {
		dir, err := os.MkdirTemp("", "tally-e2e")
		if err != nil {
			binary.err = err
			return
		}
		binary.path = filepath.Join(dir, "tally")
		cmd := exec.Command("go", "build", "-o", binary.path, "tallystick/cmd/tally")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			binary.err = fmt.Errorf("build: %w\n%s", err, out)
		}
	})
	if binary.err != nil {
		t.Fatal(binary.err)
	}
	return binary.path
}

func TestMain(m *testing.M) {
	// The settings of whoever runs this are not those of a host.
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "TALLY_") && !strings.HasPrefix(name, "TALLY_E2E_") && name != inspectorEnv {
			os.Unsetenv(name)
		}
	}
	// No test leaves a secret in the keyring of whoever runs it.
	os.Setenv("TALLY_KEYRING", "file")
	code := m.Run()
	if binary.path != "" {
		os.RemoveAll(filepath.Dir(binary.path))
	}
	os.Exit(code)
}

// host is one machine of the mesh: a home, an address and a process.
type host struct {
	t     *testing.T
	net   network
	label string
	home  string
	up    *exec.Cmd
	log   *os.File
	ended chan error
	peers []string // --peer of the next start
}

func newHost(t *testing.T, n network, label string) *host {
	h := &host{t: t, net: n, label: label, home: filepath.Join(t.TempDir(), label)}
	if err := os.MkdirAll(h.home, 0o700); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(h.home, "up.log"))
	if err != nil {
		t.Fatal(err)
	}
	h.log = log
	t.Cleanup(func() {
		h.kill()
		h.try("stop") // a verb that ran after a kill may have started an owner
		if t.Failed() {
			if b, err := os.ReadFile(log.Name()); err == nil && len(b) > 0 {
				t.Logf("%s said:\n%s", label, tail(b, 4000))
			}
		}
		log.Close()
	})
	return h
}

func tail(b []byte, n int) []byte {
	if len(b) > n {
		return b[len(b)-n:]
	}
	return b
}

// command is tally with this host's home, run where the host's network is.
func (h *host) command(args ...string) *exec.Cmd {
	words := append(h.net.wrap(h.label), tally(h.t))
	words = append(words, args...)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir = h.home
	cmd.Env = append(os.Environ(), "TALLY_HOME="+h.home, "TALLY_AGENT=tester", "HOME="+h.home)
	return cmd
}

// start runs the replica in the foreground of its host and waits until it
// serves.
func (h *host) start() {
	h.t.Helper()
	args := append([]string{"up", "--json", "--label", h.label, "--listen", h.net.listen(h.label)}, h.net.flags()...)
	for _, p := range h.peers {
		args = append(args, "--peer", p)
	}
	cmd := h.command(args...)
	cmd.Stderr = h.log
	out, err := cmd.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.up, h.ended = cmd, make(chan error, 1)
	var first struct {
		Listen string `json:"listen"`
	}
	if err := json.NewDecoder(out).Decode(&first); err != nil {
		h.up = nil // nobody waits for its end
		cmd.Process.Kill()
		cmd.Wait()
		h.t.Fatalf("%s does not come up: %v", h.label, err)
	}
	h.net.listening(h.label, first.Listen)
	go func() {
		io.Copy(io.Discard, out)
		h.ended <- cmd.Wait()
	}()
}

// kill ends the replica with SIGKILL, as a power cut would.
func (h *host) kill() {
	if h.up == nil {
		return
	}
	h.up.Process.Signal(syscall.SIGKILL)
	<-h.ended
	h.up = nil
}

// stop ends it as a user would.
func (h *host) stop() {
	h.t.Helper()
	h.run("stop")
	if err := <-h.ended; err != nil {
		h.t.Errorf("%s: up ended with %v", h.label, err)
	}
	h.up = nil
}

// result is what a command left.
type result struct {
	code   int
	stdout []byte
	stderr []byte
}

func (h *host) try(args ...string) result {
	h.t.Helper()
	cmd := h.command(args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		h.t.Fatalf("%s: tally %s: %v", h.label, strings.Join(args, " "), err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.Bytes(), stderr.Bytes()}
}

func (h *host) run(args ...string) []byte {
	h.t.Helper()
	r := h.try(args...)
	if r.code != 0 {
		h.t.Fatalf("%s: tally %s: exit %d\n%s%s", h.label, strings.Join(args, " "), r.code, tail(r.stdout, 2000), tail(r.stderr, 2000))
	}
	return r.stdout
}

// get runs a command with --json and decodes its answer.
func get[T any](h *host, args ...string) (v T) {
	h.t.Helper()
	out := h.run(append(args, "--json")...)
	if err := json.Unmarshal(out, &v); err != nil {
		h.t.Fatalf("%s: tally %s: %v in\n%s", h.label, strings.Join(args, " "), err, tail(out, 2000))
	}
	return v
}

type view struct {
	Digest string `json:"digest"`
	Rows   uint64 `json:"rows"`
}

type status struct {
	Views map[string]view `json:"views"`
	Peers []struct {
		Label         string `json:"label"`
		Reachable     bool   `json:"reachable"`
		EntriesBehind uint64 `json:"entries_behind"`
		EntriesAhead  uint64 `json:"entries_ahead"`
	} `json:"peers"`
	Held        uint64 `json:"held"`
	Quarantined uint64 `json:"quarantined"`
}

func (h *host) status() status { return get[status](h, "status") }

// rows is the number of rows over all views: a measure of how far a catch-up is.
func (s status) rows() (n uint64) {
	for _, v := range s.Views {
		n += v.Rows
	}
	return n
}

// eventually asks until the answer is yes. Convergence over a real network
// has no event to wait for that covers every host.
func eventually(t *testing.T, what string, limit time.Duration, ask func() (bool, string)) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		ok, state := ask()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %s", what, limit, state)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// converged waits until all hosts show the same views and owe each other nothing.
func converged(t *testing.T, limit time.Duration, hosts ...*host) {
	t.Helper()
	eventually(t, "convergence", limit, func() (bool, string) {
		first := hosts[0].status()
		for _, h := range hosts {
			s := h.status()
			if fmt.Sprint(s.Views) != fmt.Sprint(first.Views) {
				return false, fmt.Sprintf("%s has %v, %s has %v", hosts[0].label, first.Views, h.label, s.Views)
			}
		}
		return true, ""
	})
}
