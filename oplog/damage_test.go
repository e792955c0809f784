package oplog

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A store whose files do not read is damaged, by name; a directory that may
// not be read is not. Without the check before opening, a table with a garbled
// end makes badger end the process.
func TestOpenTellsDamageFromTheSystem(t *testing.T) {
	for _, c := range []struct {
		name string
		hurt func(t *testing.T, dir string)
		want error
	}{
		{"empty manifest", func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "MANIFEST"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, ErrDamaged},
		{"lost table", func(t *testing.T, dir string) {
			tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
			if err != nil || len(tables) == 0 {
				t.Fatalf("no table: %v", err)
			}
			if err := os.Remove(tables[0]); err != nil {
				t.Fatal(err)
			}
		}, ErrDamaged},
		{"garbled table end", func(t *testing.T, dir string) {
			tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
			if err != nil || len(tables) == 0 {
				t.Fatalf("no table: %v", err)
			}
			b, err := os.ReadFile(tables[0])
			if err != nil {
				t.Fatal(err)
			}
			for at := len(b) - 24; at < len(b); at++ {
				hurt := bytes.Clone(b)
				hurt[at] ^= 0x5a
				if err := os.WriteFile(tables[0], hurt, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := checkTable(tables[0]); err == nil {
					t.Errorf("byte %d of %d garbled, and not seen", at, len(b))
				}
			}
		}, ErrDamaged},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := openTest(t, "a", onDisk(t))
			write(t, l, "x", 5)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			c.hurt(t, l.cfg.Dir)
			n, err := Open(context.Background(), l.cfg)
			if !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if err == nil {
				n.Close()
			}
		})
	}
}
