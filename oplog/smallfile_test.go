package oplog

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tallystick/internal/hostile"
)

// TestA4_HostileContinuity: the copy of the continuity token, cut, turned and
// swapped. What is taken says the same as the good one, for all of it is summed.
func TestA4_HostileContinuity(t *testing.T) {
	path := filepath.Join(t.TempDir(), "continuity-x.json")
	good := continuity{Store: "x", Token: "00ff", Machine: "m", Place: "1:2"}
	if err := good.write(path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if good, err = readContinuity(path); err != nil {
		t.Fatal(err)
	}
	taken := map[hostile.Kind]string{hostile.Twice: "both say the same", hostile.Unknown: "left out", hostile.Text: "in a key, which is unknown then"}
	hostile.Check(t, hostile.JSON(b), taken, func(in []byte) error {
		if err := os.WriteFile(path, in, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := readContinuity(path)
		if err == nil && c != good {
			t.Errorf("%.200q is taken as %+v", in, c)
		}
		return err
	})
}

// TestA4_SmallFilesAreBounded: a file beside the store that is longer than any
// the log writes, or never ends, is not read; the store opens, in doubt.
func TestA4_SmallFilesAreBounded(t *testing.T) {
	place := withState(t)
	l := openTest(t, "a", place)
	mustAppend(t, l, note("one"))
	copies, err := filepath.Glob(filepath.Join(l.cfg.StateDir, "continuity-*"))
	if err != nil || len(copies) != 1 {
		t.Fatalf("copies %q, %v", copies, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(copies[0])
	if err != nil {
		t.Fatal(err)
	}
	full := string(good) + strings.Repeat("\n", maxSmallFile-len(good))
	for text, ok := range map[string]bool{full: true, full + "\n": false} {
		if err := os.WriteFile(copies[0], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readContinuity(copies[0]); (err == nil) != ok || !ok && !errors.Is(err, errNoSmallFile) {
			t.Fatalf("%d bytes: %v", len(text), err)
		}
	}
	if _, err := os.Stat("/dev/zero"); err == nil {
		if err := errors.Join(os.Remove(copies[0]), os.Symlink("/dev/zero", copies[0])); err != nil {
			t.Fatal(err)
		}
	}
	l = l.reopen(t)
	if !strings.Contains(l.Doubt(), errNoSmallFile.Error()) {
		t.Errorf("doubt %q", l.Doubt())
	}
	mustAppend(t, l, note("two"))
	l = l.reopen(t)
	if l.Doubt() != "" {
		t.Errorf("in doubt after a new copy: %q", l.Doubt())
	}
}
