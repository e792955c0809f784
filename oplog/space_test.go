//go:build linux

package oplog

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// smallDisk mounts a small tmpfs. Where that is not allowed the test has
// nothing to run on.
func smallDisk(t *testing.T, mib string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+mib+"m"); err != nil {
		t.Skipf("mounting a small filesystem needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func fill(t *testing.T, path string, mib int) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	chunk := make([]byte, 1<<20)
	for range mib {
		if _, err := f.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
}

func TestA4_FullDiskRefusesAndResumes(t *testing.T) {
	disk := smallDisk(t, "300")
	l := openTest(t, "a", func(c *Config) {
		c.InMemory, c.Dir, c.MinFree, c.EncryptionKey = false, filepath.Join(disk, "store"), 0, make([]byte, 32)
	})
	first := mustAppend(t, l, note("before"))[0]
	filler := filepath.Join(disk, "filler")
	fill(t, filler, 170)
	peer := openTest(t, "peer")
	mustAppend(t, peer, note("from a peer"))
	rg, err := peer.ReadRange(peer.Self().ID, 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if _, err := l.Append(context.Background(), note(strings.Repeat("x", 1<<16))); !errors.Is(err, ErrNoSpace) {
			t.Fatalf("append on a full disk: %v", err)
		}
		if _, err := l.Ingest(context.Background(), rg); !errors.Is(err, ErrNoSpace) {
			t.Fatalf("ingest on a full disk: %v", err)
		}
	}
	err = l.View(func(s Snapshot) error {
		_, err := s.Entry(first.Ref)
		return err
	})
	if err != nil {
		t.Errorf("reading on a full disk: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(context.Background(), l.cfg); !errors.Is(err, ErrNoSpace) {
		t.Fatalf("opening on a full disk: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	l2, err := Open(context.Background(), l.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l2.Close()
	fill(t, filler, 170)
	if _, err := l2.Append(context.Background(), note("full again")); !errors.Is(err, ErrNoSpace) {
		t.Fatalf("append on a full disk: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if _, err := l2.Append(context.Background(), note("resumed")); err != nil {
		t.Errorf("append after space came back: %v", err)
	}
}
