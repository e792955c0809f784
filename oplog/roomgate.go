package oplog

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// roomGate keeps the engine's compactions off a full disk. They run whenever
// the engine likes, and write tables through memory maps, where a full disk is
// the end of the process (SIGBUS). The engine says in its debug log when it is
// about to write one, and waits until it has been logged: there the gate holds
// it until there is room.
type roomGate struct {
	badgerLog
	dir     string
	min     int64
	closing atomic.Bool
}

// aboutToWrite begins what the engine logs right before a compaction's table.
const aboutToWrite = "[%d] LOG Compact. Added"

const roomLook = 50 * time.Millisecond // between two looks at a disk without room

func newRoomGate(cfg *Config) *roomGate {
	return &roomGate{badgerLog: badgerLog{cfg.Logger}, dir: cfg.Dir, min: cfg.MinFree}
}

// options makes the gate the engine's log.
func (g *roomGate) options(o *badger.Options) { o.Logger = g }

// Debugf is called by the engine, on the goroutine that compacts.
func (g *roomGate) Debugf(format string, _ ...any) {
	if !strings.HasPrefix(format, aboutToWrite) {
		return
	}
	for checkSpace(g.dir, g.room()) != nil {
		time.Sleep(roomLook)
	}
}

// room is what must be free for a table. Closing waits for compactions, and has
// seen to it that there is room for them.
func (g *roomGate) room() int64 {
	if g.closing.Load() {
		return min(g.min, closeRoom/2)
	}
	return g.min
}
