package oplog

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestL1_KilledWhileALogIsMade: a kill right after the engine has made its next
// write-ahead log, before that has a byte, costs nothing: the store opens with
// all that was acknowledged.
func TestL1_KilledWhileALogIsMade(t *testing.T) {
	l := openTest(t, "a", onDisk(t))
	mustAppend(t, l, note("one"))
	first := l.Self()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(l.cfg.Dir, "99999.mem"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l = l.reopen(t)
	if got := l.Frontier().Seq(first.ID); got != first.Tips[0].Seq {
		t.Errorf("%d entries, want %d", got, first.Tips[0].Seq)
	}
	mustAppend(t, l, note("two"))
}

// TestL1_KilledWhileALogIsRemoved: the engine cuts a write-ahead log whose writes
// are in tables to nothing before it removes it. A kill between the two leaves one
// without a byte before newer ones: the store opens with all that was
// acknowledged. Where the writes before those of the next log are in no table it
// does not open, for then somebody else has cut it.
func TestL1_KilledWhileALogIsRemoved(t *testing.T) {
	const hollow = "00000.mem"
	l := openTest(t, "crash", onDisk(t), func(c *Config) { c.change = smallFiles })
	running := func() disk {
		d, err := readDisk(l.cfg.Dir)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	write(t, l, "one", 10)
	early := running()
	l = l.reopen(t) // what was in its log is in a table now
	write(t, l, "two", 5)
	late, seq, cfg := running(), l.Self().Tips[0].Seq, l.cfg
	late[hollow] = nil
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	opensWith(t, "cut after a flush", late, cfg, seq, seq)

	var newer []string
	for name := range early {
		if filepath.Ext(name) == ".mem" {
			newer = append(newer, name)
			early[name] = late[name]
		}
	}
	if len(newer) != 1 || len(late[newer[0]]) == 0 {
		t.Fatalf("logs %v: the test needs one of the same name in both", newer)
	}
	early[hollow] = nil
	cfg.Dir = early.writeTo(t)
	if _, err := Open(t.Context(), cfg); !errors.Is(err, ErrDamaged) {
		t.Errorf("a log that was cut before its flush: %v", err)
	}
	if _, err := os.Stat(filepath.Join(cfg.Dir, hollow)); err != nil {
		t.Errorf("the file that tells of it is gone: %v", err)
	}
}
