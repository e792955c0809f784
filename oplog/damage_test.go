package oplog

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"
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
		{"data keys cut short", func(t *testing.T, dir string) {
			name := filepath.Join(dir, "KEYREGISTRY")
			b, err := os.ReadFile(name)
			if err != nil || len(b) < 60 {
				t.Fatalf("%d bytes of data keys: %v", len(b), err)
			}
			// Without a data key, and with the header of one only, it is one that
			// badger reads.
			whole := map[int]bool{28: true, 36: true}
			for n := range b {
				if err := os.WriteFile(name, b[:n], 0o600); err != nil {
					t.Fatal(err)
				}
				if err := checkKeys(badger.DefaultOptions(dir)); errors.Is(err, ErrDamaged) == whole[n] {
					t.Errorf("cut to %d of %d bytes: %v", n, len(b), err)
				}
			}
			for at := 28; at < len(b); at++ {
				hurt := bytes.Clone(b)
				hurt[at] ^= 0x5a
				if err := os.WriteFile(name, hurt, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := checkKeys(badger.DefaultOptions(dir)); !errors.Is(err, ErrDamaged) {
					t.Errorf("byte %d of %d garbled: %v", at, len(b), err)
				}
			}
			if err := os.WriteFile(name, b[:30], 0o600); err != nil {
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
				if _, err := checkTable(tables[0], nil, 1); err == nil {
					t.Errorf("byte %d of %d garbled, and not seen", at, len(b))
				}
				if _, err := checkIndex(tables[0], nil); err == nil {
					t.Errorf("byte %d of %d garbled, and not seen at its end", at, len(b))
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

// What the system refuses names the directory, also where badger passes only
// the text on: a store that may not be written is no damage, and no failure
// that a second try mends.
func TestOpenNamesWhatTheSystemRefuses(t *testing.T) {
	for text, want := range map[string]error{
		`Cannot write pid file "/s/LOCK" err: open /s/LOCK: permission denied`:     fs.ErrPermission,
		`Cannot write pid file "/s/LOCK" err: open /s/LOCK: read-only file system`: syscall.EROFS,
		`open /s/000001.sst: too many open files`:                                  syscall.EMFILE,
	} {
		err := errors.New(text)
		if !isSystem(err) {
			t.Errorf("%s: not taken for the system's", text)
		}
		err = systemError("/s", err)
		var file *fs.PathError
		if !errors.As(err, &file) || file.Path != "/s" || !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: became %v", text, err)
		}
	}
	kept := &fs.PathError{Op: "open", Path: "/s/MANIFEST", Err: fs.ErrPermission}
	if err := systemError("/s", fmt.Errorf("manifest: %w", kept)); !errors.Is(err, kept) {
		t.Errorf("lost the file: %v", err)
	}
}

// TestL8_TableEndsAfterAClose: after a Close the lengths at a table's end are
// looked at before badger opens it, and badger does the rest: garbled anywhere
// in its end or its index, the store is damaged, and the process lives.
func TestL8_TableEndsAfterAClose(t *testing.T) {
	for name, key := range map[string][]byte{"plain": nil, "encrypted": make([]byte, 32)} {
		t.Run(name, func(t *testing.T) {
			l := openTest(t, "a", onDisk(t), func(c *Config) { c.EncryptionKey = key })
			write(t, l, "x", 5)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			dir := l.cfg.Dir
			tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
			if err != nil || len(tables) == 0 {
				t.Fatalf("no table: %v", err)
			}
			b, err := os.ReadFile(tables[0])
			if err != nil {
				t.Fatal(err)
			}
			for at := len(b) - 60; at < len(b); at++ {
				hurt := bytes.Clone(b)
				hurt[at] ^= 0x5a
				if err := os.WriteFile(tables[0], hurt, 0o600); err != nil {
					t.Fatal(err)
				}
				putChecked(dir, time.Now())
				if s, err := openBadger(dir, key, slog.New(slog.DiscardHandler)); !errors.Is(err, ErrDamaged) {
					t.Errorf("byte %d of %d garbled: %v", at, len(b), err)
					if err == nil {
						s.close()
					}
				}
			}
		})
	}
}

// TestL8_TablesAreReadThrough: a block that does not read is found at opening
// when the tables were not read through for a day, or the last run did not end
// by Close; right after a Close only the tables' ends are looked at.
func TestL8_TablesAreReadThrough(t *testing.T) {
	l := openTest(t, "a", onDisk(t))
	write(t, l, "x", 5)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	dir := l.cfg.Dir
	note, err := os.ReadFile(filepath.Join(dir, checkedFile))
	if err != nil {
		t.Fatal(err)
	}
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("no table: %v", err)
	}
	b, err := os.ReadFile(tables[0])
	if err != nil {
		t.Fatal(err)
	}
	b[20] ^= 0x5a
	if err := os.WriteFile(tables[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	at := time.UnixMilli(int64(binary.BigEndian.Uint64(note[len(checkedMagic):])))
	for name, c := range map[string]struct {
		note  []byte
		now   time.Time
		fresh bool
	}{
		"after a Close":          {note, at.Add(time.Hour), true},
		"a day later":            {note, at.Add(checkedFor), false},
		"the clock set back":     {note, at.Add(-time.Hour), false},
		"after a crash":          {nil, at, false},
		"half a note":            {note[:9], at, false},
		"a note that is garbled": {append([]byte{'x'}, note[1:]...), at, false},
		"another time in it":     {append(append([]byte{}, note[:12]...), append([]byte{0x7f}, note[13:]...)...), at, false},
	} {
		if err := os.RemoveAll(filepath.Join(dir, checkedFile)); err != nil {
			t.Fatal(err)
		}
		if c.note != nil {
			if err := os.WriteFile(filepath.Join(dir, checkedFile), c.note, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, fresh := takeChecked(dir, c.now); fresh != c.fresh {
			t.Errorf("%s: fresh %v, want %v", name, fresh, c.fresh)
		}
		if _, err := os.Stat(filepath.Join(dir, checkedFile)); c.fresh && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the note is still there: %v", name, err)
		}
		if err := checkFiles(badger.DefaultOptions(dir).WithEncryptionKey(l.cfg.EncryptionKey), !c.fresh, l.cfg.Logger); errors.Is(err, ErrDamaged) == c.fresh {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(context.Background(), l.cfg); !errors.Is(err, ErrDamaged) {
		t.Errorf("opened: %v", err)
	}
}
