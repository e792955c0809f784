package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tallystick/server"
)

// L8: the opening of a backup is whole or refused, wherever it is cut or a bit
// is turned; its bytes do not change by accident.
func TestL8_BackupOpening(t *testing.T) {
	head := backupHead{Label: "desk", Mesh: "mesh_00", Created: "2026-01-02T03:04:05.000Z"}
	b, err := head.append(nil)
	if err != nil {
		t.Fatal(err)
	}
	const golden = "tallybak\x00\x00\x00\x00\x46" + `{"label":"desk","mesh":"mesh_00","created":"2026-01-02T03:04:05.000Z"}` + "\x1b\xf1\x05\xc7"
	if string(b) != golden {
		t.Fatalf("an opening is %q, want %q", b, golden)
	}
	if got, err := readBackupHead(bytes.NewReader(b)); err != nil || got.Label != head.Label || got.Mesh != head.Mesh {
		t.Fatalf("read back as %+v, %v", got, err)
	}
	for i := range b {
		if _, err := readBackupHead(bytes.NewReader(b[:i])); !errors.Is(err, errNoBackup) {
			t.Fatalf("cut at %d: %v", i, err)
		}
		for bit := range 8 {
			c := bytes.Clone(b)
			c[i] ^= 1 << bit
			if _, err := readBackupHead(bytes.NewReader(c)); !errors.Is(err, errNoBackup) {
				t.Fatalf("bit %d of byte %d turned: %v", bit, i, err)
			}
		}
	}
}

// FuzzBackupOpening: no input makes the reader panic, every refusal has one name.
func FuzzBackupOpening(f *testing.F) {
	b, err := (&backupHead{Label: "desk"}).append(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:len(b)/2])
	f.Add([]byte("tallybak\x00\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := readBackupHead(bytes.NewReader(b)); err != nil && !errors.Is(err, errNoBackup) {
			t.Fatalf("unnamed error %v", err)
		}
	})
}

// The ballast has blocks of its own, is made once, is not made on a disk
// without plenty of room, and gives its bytes back.
func TestBallast(t *testing.T) {
	h := home{State: t.TempDir()}
	const size = 3 << 20
	if err := makeBallast(h.ballastFile(), size); err != nil {
		t.Fatal(err)
	}
	first, err := os.Stat(h.ballastFile())
	if err != nil || first.Size() != size || first.Mode().Perm() != 0o600 {
		t.Fatalf("%+v, %v", first, err)
	}
	if err := makeBallast(h.ballastFile(), size); err != nil {
		t.Fatal(err)
	}
	if again, err := os.Stat(h.ballastFile()); err != nil || !again.ModTime().Equal(first.ModTime()) {
		t.Errorf("made twice: %v", err)
	}
	if n, err := dropBallast(h); n != size || err != nil {
		t.Errorf("dropped %d, %v", n, err)
	}
	if n, err := dropBallast(h); n != 0 || err != nil {
		t.Errorf("dropped again %d, %v", n, err)
	}
	if _, known := freeDisk(h.State); known {
		if err := makeBallast(h.ballastFile(), 1<<60/8); !errors.Is(err, errLittleRoom) {
			t.Errorf("a ballast larger than the disk: %v", err)
		}
		if _, err := os.Stat(h.ballastFile()); err == nil {
			t.Error("and it is there")
		}
	}
	f, err := os.Create(filepath.Join(h.State, "written"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := fillBlocks(f, size+5); err != nil {
		t.Fatal(err)
	}
	if info, err := f.Stat(); err != nil || info.Size() != size+5 {
		t.Errorf("%v, %v", info.Size(), err)
	}
}

// The bar never goes over its ends, and nothing of it is on what is no
// terminal.
func TestBar(t *testing.T) {
	var err bytes.Buffer
	b := (&app{Stderr: &err}).newBar("verify")
	for _, p := range []server.Progress{{}, {Done: 5, Total: 10}, {Done: 20, Total: 10}} {
		line := b.line(p)
		if n := strings.Count(line, "#") + strings.Count(line, "."); n != barWidth {
			t.Errorf("%d wide: %s", n, line)
		}
		b.show(p)
	}
	b.end()
	if err.Len() > 0 {
		t.Errorf("%q on no terminal", err.String())
	}
	// A call that is over before its first report has been seen too.
	quick := (&app{Stderr: &err, isTerminal: func(io.Writer) bool { return true }}).newBar("verify")
	quick.end()
	if !strings.Contains(err.String(), "verify [") {
		t.Errorf("a quick call shows %q", err.String())
	}
}

func TestSinceTime(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for in, want := range map[string]time.Time{
		"90m": now.Add(-90 * time.Minute), "3d": now.Add(-72 * time.Hour), "2026-03-01T00:00:00Z": time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC),
	} {
		if got, err := sinceTime(in, now); err != nil || !got.Equal(want) {
			t.Errorf("%s is %v, %v", in, got, err)
		}
	}
	for _, bad := range []string{"", "yesterday", "-2h", "d", "99999999d"} {
		if got, err := sinceTime(bad, now); err == nil {
			t.Errorf("%q is %v", bad, got)
		}
	}
}

// Exit codes of the doctor: what fails counts before what was not looked at.
func TestDoctorExit(t *testing.T) {
	for _, c := range []struct {
		states string
		want   int
	}{
		{"ok warn", exitOK}, {"ok fixed", exitOK}, {"fail", exitFailure}, {"fail skip", exitFailure}, {"ok skip", exitPartial}, {"fail fixed", exitPartial},
	} {
		d := &doctor{}
		for _, s := range strings.Fields(c.states) {
			d.add("x", s, "", "y")
		}
		if got := d.exit(); got != c.want {
			t.Errorf("%s: %d, want %d", c.states, got, c.want)
		}
	}
}
