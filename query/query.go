package query

import (
	"slices"
	"time"

	"tallystick/hlc"
	"tallystick/oplog"
	"tallystick/query/artifact"
	"tallystick/query/checkpoint"
	"tallystick/query/claim"
	"tallystick/query/logstream"
	"tallystick/query/mailbox"
	"tallystick/query/memory"
	"tallystick/query/minted"
	"tallystick/query/rawmemory"
	"tallystick/query/summary"
)

// Env is what a reactor may know besides the snapshot.
type Env struct {
	Self    oplog.Origin
	Label   string
	Now     time.Time
	Horizon claim.Horizon
}

// Reactor turns what the views show into ops that this replica owes. It is
// called after commits and on a slow tick; its ops carry op ids made of what
// they answer, so a repeat counts once. ask is the highest timestamp above
// which it waits for every member's floor; zero waits for nothing.
type Reactor interface {
	Name() string
	React(snap oplog.Snapshot, env Env) (ops []oplog.Op, ask hlc.Timestamp, err error)
}

// Default returns the folds of every domain, in the order in which they run,
// and the reactors. Membership, which is projection 0 of a replica, is not
// among them.
func Default() ([]oplog.Projection, []Reactor) {
	return []oplog.Projection{logstream.View{}, minted.View{}, minted.Speakers{}, claim.View{}, summary.View{}, mailbox.View{},
		memory.View{}, rawmemory.View{}, checkpoint.View{}, artifact.View{}}, []Reactor{superseded{}}
}

// superseded writes the one ack that tells a loser (K1).
type superseded struct{}

func (superseded) Name() string { return "superseded" }

func (superseded) React(snap oplog.Snapshot, env Env) ([]oplog.Op, hlc.Timestamp, error) {
	h := env.Horizon
	h.Self, h.Label = env.Self.ID, env.Label
	if h.Now.IsZero() {
		h.Now = env.Now
	}
	return claim.React(snap, h)
}

// Events lists events, and in an inbox also the losses that are not settled
// yet, as computed records in front. A loss appears on the first page, and on
// a page that continues when what caused it arrived since the cursor.
func Events(snap oplog.Snapshot, f logstream.Filter, h claim.Horizon) (logstream.Page, error) {
	page, err := logstream.List(snap, f)
	if err != nil || len(f.To) == 0 {
		return page, err
	}
	first := f.Cursor == "" && f.SinceEventID == "" && f.BeforeEventID == ""
	computed := []logstream.Record{}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(f.To))) {
		notices, err := claim.Notices(snap, name, h, f.Label)
		if err != nil {
			return logstream.Page{}, err
		}
		for _, n := range notices {
			if f.MatchRecord(&n.Record) && (first || page.Covers(n.Arrival)) {
				computed = append(computed, n.Record)
			}
		}
	}
	page.Events = append(computed, page.Events...)
	page.Count = len(page.Events)
	return page, nil
}
