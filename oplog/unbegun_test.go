package oplog

import (
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
