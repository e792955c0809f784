package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"tallystick/internal/hostile"
)

// ownFiles are the files that the program keeps for itself, or that git keeps,
// each with a good one and what reads it. read returns an error when nothing
// was taken from the file.
func ownFiles(t *testing.T) []struct {
	name, good string
	most       int
	path       string
	read       func(path string) error
} {
	dir := t.TempDir()
	h, err := findHome(filepath.Join(dir, "home"), os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.make(); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TALLY_HOME", filepath.Join(dir, "home"))
	git := mkdir(t, filepath.Join(dir, "git"))
	nothing := errors.New("nothing was taken")
	return []struct {
		name, good string
		most       int
		path       string
		read       func(path string) error
	}{
		{"settings", `{"label":"desk","listen":"127.0.0.1:7717","static":true,"peers":["nas:7717"]}`, maxOwnFile, h.settingsFile(), func(string) error {
			cmd := &cobra.Command{}
			var s settings
			s.flags(cmd)
			return s.load(cmd, h)
		}},
		{"place of a watch", `{"cursor":"c1","updated_at":"2026-01-02T03:04:05Z","agent":"desk-claude"}`, maxOwnFile, filepath.Join(dir, "watch.json"), func(path string) error {
			s, found, why := readWatchState(path)
			if found == stateGood && *s.Cursor == "" || found == stateBroken && why == nil || found == stateAbsent {
				t.Errorf("found %d, %+v, %v", found, s, why)
			}
			if found == stateBroken {
				return why
			}
			return nil
		}},
		{"first commits", `{"` + git + `":{"born":"","root":"0123456789abcdef0123456789abcdef01234567"}}`, maxRootsFile, rootsFile(), func(string) error {
			if rootOf(git, 0) == "" {
				return nothing
			}
			return nil
		}},
		{"what was brought", `{"from":"mesh_00","report":{},"kept":"x"}`, maxOwnFile, h.broughtFile(), func(string) error {
			_, err := lastBrought(h)
			return err
		}},
		{"configuration of git", "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = git@example.org:you/app\n", maxOwnFile, filepath.Join(git, "config"), func(string) error {
			if remoteOf(git) == "" {
				return nothing
			}
			return nil
		}},
	}
}

// TestA4_HostileOwnFiles: what the program keeps for itself may be cut, turned,
// swapped or written by another version. It is forgotten or said, never more.
func TestA4_HostileOwnFiles(t *testing.T) {
	const older = "what another version has written is left out"
	for _, f := range ownFiles(t) {
		t.Run(strings.ReplaceAll(f.name, " ", "_"), func(t *testing.T) {
			write(t, f.path, f.good)
			if err := f.read(f.path); err != nil {
				t.Fatalf("a good one: %v", err)
			}
			var cases []hostile.Case
			taken := map[hostile.Kind]string{
				hostile.Unknown: older, hostile.Twice: "the last counts", hostile.Text: "replaced, and of no use then", hostile.Type: "no row of it is used",
			}
			if f.name == "settings" {
				taken[hostile.Memory] = "peers are a list without a limit of its own"
			}
			if f.good[0] == '{' {
				cases = hostile.JSON([]byte(f.good))
			} else {
				cases = hostile.Bytes([]byte(f.good))
				taken[hostile.Cut], taken[hostile.Behind] = "a line is whole or is none", "a line"
			}
			for i := range cases {
				if bytes.Equal(cases[i].In, []byte("null")) {
					cases[i].Kind = hostile.Swap // as an empty object
				}
			}
			hostile.Check(t, cases, taken, func(in []byte) error {
				if err := os.WriteFile(f.path, in, 0o600); err != nil {
					t.Fatal(err)
				}
				return f.read(f.path)
			})
		})
	}
}

// TestA4_OwnFilesAreBounded: a file that is longer than any the program writes,
// or that never ends, is not read.
func TestA4_OwnFilesAreBounded(t *testing.T) {
	for _, f := range ownFiles(t) {
		t.Run(strings.ReplaceAll(f.name, " ", "_"), func(t *testing.T) {
			pad := func(n int) string { return f.good + strings.Repeat("\n", n-len(f.good)) }
			write(t, f.path, pad(f.most))
			if err := f.read(f.path); err != nil {
				t.Errorf("of %d bytes: %v", f.most, err)
			}
			write(t, f.path, pad(f.most+1))
			if err := f.read(f.path); err == nil {
				t.Fatal("one byte more is taken")
			}
			if _, err := os.Stat("/dev/zero"); err != nil {
				t.Log("there is no file without an end here")
				return
			}
			if err := errors.Join(os.Remove(f.path), os.Symlink("/dev/zero", f.path)); err != nil {
				t.Fatal(err)
			}
			if err := f.read(f.path); err == nil {
				t.Errorf("a device is taken")
			}
		})
	}
}
