//go:build linux

package oplog

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// countingLog counts how often the engine says that it is about to write a
// compaction's table.
type countingLog struct {
	badgerLog
	said *atomic.Int64
}

func (l countingLog) Debugf(format string, _ ...any) {
	if strings.HasPrefix(format, aboutToWrite) {
		l.said.Add(1)
	}
}

// TestL1_EngineSaysWhenItCompacts: the gate rests on a line of the engine's
// debug log. An engine that no longer writes it must not go unnoticed.
func TestL1_EngineSaysWhenItCompacts(t *testing.T) {
	said := new(atomic.Int64)
	l := openTest(t, "a", onDisk(t), func(c *Config) {
		c.change = func(o *badger.Options) { o.Logger = countingLog{badgerLog{c.Logger}, said} }
	})
	db := l.db.(*badgerStore).db
	compacted := func() bool { // a table below the first level comes of a compaction only
		for _, tab := range db.Tables() {
			if tab.Level > 0 {
				return true
			}
		}
		return false
	}
	for range 8 { // more tables than the engine leaves in its first level
		mustAppend(t, l, note("something to write out"))
		if err := l.Purge(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	deadline := time.After(time.Minute)
	for !compacted() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatalf("the engine does not compact: %v", db.Tables())
		}
	}
	if said.Load() == 0 {
		t.Errorf("the engine has compacted and not logged %q before", aboutToWrite)
	}
}

// TestL1_CompactionWaitsForRoom: a compaction that comes upon a full disk waits
// where the engine would have written a table, and goes on when there is room.
// Reads go on meanwhile, and closing does not wait for it.
func TestL1_CompactionWaitsForRoom(t *testing.T) {
	disk := smallDisk(t, "300")
	l := openTest(t, "a", func(c *Config) {
		c.InMemory, c.Dir, c.MinFree = false, filepath.Join(disk, "store"), 0
	})
	first := mustAppend(t, l, note("before"))[0]
	gate := l.db.(*badgerStore).gate
	filler := filepath.Join(disk, "filler")
	fill(t, filler, 250)
	passed := make(chan struct{})
	go func() {
		gate.Debugf(aboutToWrite + " %d keys")
		close(passed)
	}()
	if _, err := l.Append(context.Background(), note("refused")); !errors.Is(err, ErrNoSpace) {
		t.Fatalf("append on a full disk: %v", err)
	}
	if err := l.View(func(s Snapshot) error { _, err := s.Entry(first.Ref); return err }); err != nil {
		t.Errorf("reading on a full disk: %v", err)
	}
	select {
	case <-passed:
		t.Error("a table is written on a full disk")
	default:
	}
	if err := l.Close(); err != nil { // leaves the engine as it is
		t.Fatal(err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	<-passed
	l2, err := Open(context.Background(), l.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l2.Close()
	if err := l2.View(func(s Snapshot) error { _, err := s.Entry(first.Ref); return err }); err != nil {
		t.Errorf("what was acknowledged is not there: %v", err)
	}
	mustAppend(t, &testLog{Log: l2}, note("after"))
}
