//go:build linux

package e2e

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

var diskRounds = flag.Int("diskrounds", 2, "rounds of TestL1_FullDisk: a disk fills up under a running replica and gets room again")

// smallDisk mounts a file system of its own for one host. Where that is not
// allowed the test has nothing to run on.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("mounting a small filesystem needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fillUp writes until the disk has no byte left.
func fillUp(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 1<<20); ; {
		_, err := f.Write(block)
		switch {
		case err == nil:
		case errors.Is(err, syscall.ENOSPC) && len(block) > 1<<12:
			block = block[:len(block)/2]
		case errors.Is(err, syscall.ENOSPC):
			return
		default:
			t.Fatal(err)
		}
	}
}

// errorOf is the error object that a command with --json left on stderr.
func errorOf(t *testing.T, r result) (code, message, hint string) {
	t.Helper()
	for line := range strings.Lines(string(r.stderr)) {
		var e struct {
			Error struct{ Code, Message, Hint string }
		}
		var flat struct{ Code, Message, Hint string }
		if json.Unmarshal([]byte(line), &e) == nil && e.Error.Code != "" {
			return e.Error.Code, e.Error.Message, e.Error.Hint
		}
		if json.Unmarshal([]byte(line), &flat) == nil && flat.Code != "" {
			return flat.Code, flat.Message, flat.Hint
		}
	}
	t.Fatalf("no error object: exit %d\n%s%s", r.code, r.stdout, r.stderr)
	return "", "", ""
}

// say appends a line and returns what became of it.
func (h *host) say(body string) result {
	h.t.Helper()
	return h.try("events", "append", "--json", "--type", "status.update", "--stream", "project/disk", "--room", "status", "--to", "*", "--body", body)
}

// shows reports whether a host lists an event with that body.
func (h *host) shows(body string) bool {
	h.t.Helper()
	return strings.Contains(string(h.run("events", "list", "--json", "--stream", "project/disk", "--limit", "20")), `"`+body+`"`)
}

// errorAbout is what a host's status says of a peer.
func (h *host) errorAbout(label string) string {
	h.t.Helper()
	st := get[struct {
		Peers []struct {
			Label     string `json:"label"`
			Reachable bool   `json:"reachable"`
			Error     string `json:"error"`
		} `json:"peers"`
	}](h, "status")
	for _, p := range st.Peers {
		if p.Label == label {
			if !p.Reachable {
				return "unreachable: " + p.Error
			}
			return p.Error
		}
	}
	return "not a peer"
}

// TestL1_FullDisk: the disk of a running replica fills up to the last byte, and
// gets room again, round after round. Its process lives through all of them.
// While it is full, appends are refused with a clear error, reads go on, and
// the peer whose entries are not taken says in its status why. With room again
// both go on by themselves. In every third round the replica is stopped and
// started on the full disk: the start is refused with a hint, and the ballast
// gives the room to recover.
func TestL1_FullDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes")
	}
	disk := smallDisk(t, "700m")
	net := &loopback{addr: map[string]string{}}
	a, b := newHost(t, net, "a"), newHost(t, net, "b")
	b.log.Close()
	b.home = filepath.Join(disk, "b")
	if err := os.Mkdir(b.home, 0o700); err != nil {
		t.Fatal(err)
	}
	var err error
	if b.log, err = os.Create(filepath.Join(t.TempDir(), "b.log")); err != nil { // what it says finds room elsewhere
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if said, err := os.ReadFile(b.log.Name()); err == nil && t.Failed() {
			t.Logf("b said:\n%s", tail(said, 4000))
		}
	})
	a.start()
	b.join(a)
	ballast := filepath.Join(b.home, "state", "ballast")
	b.start()
	converged(t, time.Minute, a, b)
	for i := range *diskRounds {
		fullDiskRound(t, i, a, b, filepath.Join(disk, "filler"), ballast)
	}
	converged(t, time.Minute, a, b)
}

func fullDiskRound(t *testing.T, i int, a, b *host, filler, ballast string) {
	t.Helper()
	name := func(what string) string { return what + " " + strings.Repeat("i", i+1) }
	alive := func() {
		t.Helper()
		select {
		case err := <-b.ended:
			b.up = nil
			t.Fatalf("round %d: the replica died: %v", i, err)
		default:
		}
	}
	restart := i%3 == 1
	if restart {
		if err := os.WriteFile(ballast, make([]byte, 200<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if r := b.say(name("before")); r.code != 0 {
		t.Fatalf("round %d: append with room: exit %d\n%s", i, r.code, r.stderr)
	}
	fillUp(t, filler)
	r := b.say(name("refused"))
	if code, message, hint := errorOf(t, r); r.code != 1 || code != "no_space" || message == "" || hint == "" {
		t.Errorf("round %d: append on a full disk: exit %d, %s: %s (%s)", i, r.code, code, message, hint)
	}
	if !b.shows(name("before")) || b.shows(name("refused")) {
		t.Errorf("round %d: a full disk is not read as it was", i)
	}
	if r := a.say(name("from a")); r.code != 0 {
		t.Fatalf("round %d: the peer's append: exit %d\n%s", i, r.code, r.stderr)
	}
	eventually(t, "the peer says why", time.Minute, func() (bool, string) {
		alive()
		e := a.errorAbout("b")
		return strings.Contains(e, "busy, no space"), e
	})
	if b.shows(name("from a")) {
		t.Errorf("round %d: an entry was taken on a full disk", i)
	}
	if restart {
		b.stop()
		r := b.try("events", "list", "--json")
		if code, _, hint := errorOf(t, r); r.code != 1 || code != "no_space" || hint == "" {
			t.Errorf("round %d: a start on a full disk: exit %d, %s (%s)", i, r.code, code, hint)
		}
		if r := b.try("doctor"); r.code != 1 || !strings.Contains(string(r.stdout), "doctor --fix, which drops the ballast") {
			t.Errorf("round %d: doctor on a full disk: exit %d\n%s", i, r.code, r.stdout)
		}
		if r := b.try("doctor", "--fix"); !strings.Contains(string(r.stdout), "200 MiB are free again") {
			t.Errorf("round %d: doctor --fix: exit %d\n%s%s", i, r.code, r.stdout, r.stderr)
		}
		if r := b.say(name("beside the filler")); r.code != 0 { // the replica that the doctor started
			t.Errorf("round %d: append in the room of the ballast: exit %d\n%s", i, r.code, r.stderr)
		}
		b.run("stop")
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if restart {
		b.start()
	}
	if r := b.say(name("again")); r.code != 0 {
		t.Errorf("round %d: append with room again: exit %d\n%s", i, r.code, r.stderr)
	}
	eventually(t, "both go on", time.Minute, func() (bool, string) {
		alive()
		e := a.errorAbout("b")
		return e == "" && b.shows(name("from a")) && a.shows(name("again")), e
	})
}
