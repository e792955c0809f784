package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"tallystick/oplog"
	"tallystick/query"
	"tallystick/query/carried"
	"tallystick/replica"
	"tallystick/server"
)

// bringInfo is what became of the entries of a former mesh.
type bringInfo struct {
	From string `json:"from"` // the mesh left
	carried.Report
	// Kept is the folder of the old store when something is in it only; else the
	// old store is gone.
	Kept string `json:"kept,omitempty"`
}

func (h home) broughtFile() string { return filepath.Join(h.State, "brought.json") }

// bringPatience is how long a verb waits for an owner that goes on with that:
// it serves when it is done, so that nobody reads half of it.
const bringPatience = 30 * time.Minute

// bringPends reports whether the next owner has entries to bring.
func bringPends(h home) bool {
	_, pending, err := replica.PendingFormer(replica.Config{Dir: h.Data, StateDir: h.State})
	return pending && err == nil
}

// bringLog is a replica as entries are carried into it.
type bringLog struct {
	*replica.Replica
	*oplog.Log
}

func (b bringLog) Append(ctx context.Context, ops ...oplog.Op) ([]oplog.Appended, error) {
	return b.Replica.Append(ctx, ops...)
}

func (b bringLog) View(fn func(oplog.Snapshot) error) error { return b.Replica.View(fn) }

// bringFormer carries the entries of the former mesh over, if any wait, and
// writes down what became of them. nil without an error: none waited.
func bringFormer(ctx context.Context, h home, rep *replica.Replica, show func(server.Progress)) (*bringInfo, error) {
	if _, ok, err := rep.Former(); err != nil || !ok {
		return nil, err
	}
	projections, _ := query.Default()
	var info bringInfo
	kept, err := rep.BringFormer(ctx, func(ctx context.Context, f replica.Former, old *oplog.Log) (bool, error) {
		report, err := carried.Bring(ctx, bringLog{rep, rep.Log()}, old, carried.Options{
			Kinds: query.Carried(), Own: replica.OwnKinds(), Projections: projections, Before: f.Label, After: rep.Label(),
			Progress: func(done, total int) { show(server.Progress{Done: uint64(done), Total: uint64(total)}) },
		})
		info = bringInfo{From: f.Mesh.String(), Report: report}
		return report.Complete(), err
	})
	if err != nil {
		return nil, err
	}
	info.Kept = kept
	b, err := json.Marshal(info)
	if err != nil {
		return nil, fmt.Errorf("encode what was brought: %w", err)
	}
	if err := os.WriteFile(h.broughtFile(), append(b, '\n'), 0o600); err != nil {
		return nil, fmt.Errorf("write down what was brought: %w", err)
	}
	return &info, nil
}

// lastBrought reads what the last join with --bring has brought; nil when there
// was none.
func lastBrought(h home) (*bringInfo, error) {
	b, err := server.ReadSmallFile(h.broughtFile(), maxOwnFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	info := new(bringInfo)
	return info, json.Unmarshal(b, info)
}

// bringNow opens the replica, which nobody else runs, and carries the entries
// of its former mesh over.
func (a *app) bringNow(ctx context.Context, h home, s settings, log *slog.Logger) (info *bringInfo, err error) {
	rep, err := replica.Open(ctx, replicaConfig(h, s, log))
	if err != nil {
		return nil, err
	}
	defer closing(&err, "close the replica", rep.Close)
	b := a.newBar("bring")
	defer b.end()
	return bringFormer(ctx, h, rep, b.show)
}

// bringAtStart goes on with what an earlier join has left. What stands against
// it is no reason not to serve: it is tried again at the next start.
func bringAtStart(ctx context.Context, h home, rep *replica.Replica, log *slog.Logger) error {
	info, err := bringFormer(ctx, h, rep, func(server.Progress) {})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		log.Warn("entries of the former mesh are not brought yet", "error", err)
	case info != nil:
		log.Info("brought the entries of the former mesh", "from", info.From, "entries", info.Total(), "kept", info.Kept)
	}
	return nil
}

// formerNote tells of entries that still wait.
func formerNote(f replica.Former) string {
	return fmt.Sprintf("entries of the former mesh %s wait in %s to be brought into this one; the next start tries again (tally stop, tally up)", f.Mesh, f.Dir)
}

func (a *app) printBrought(b *bringInfo) {
	for _, k := range slices.Sorted(maps.Keys(b.Brought)) {
		fmt.Fprintf(a.Stdout, "brought %d %s\n", b.Brought[k], k)
	}
	for _, l := range b.Left {
		fmt.Fprintf(a.Stdout, "not brought: %d %s: %s\n", l.Count, l.Kind, oneLine(l.Reason, 200))
	}
	if b.Renamed > 0 {
		a.say("%d of them under this machine's new label", b.Renamed)
	}
	if b.Kept != "" {
		a.say("the old store is kept in %s for what was not brought", b.Kept)
	}
}

// former looks for what a join with --bring has left.
func (d *doctor) former() {
	cfg := replica.Config{Dir: d.h.Data, StateDir: d.h.State}
	f, pending, err := replica.PendingFormer(cfg)
	if err != nil {
		d.add("bring", checkFail, "restore the file from a backup, or move its folder away", "%v", err)
		return
	}
	if pending {
		d.add("bring", checkWarn, "see "+d.h.logFile()+" for what stands against it", "%s", formerNote(f))
		return
	}
	kept, err := replica.KeptFormer(cfg)
	if err == nil && len(kept) > 0 {
		d.add("bring", checkWarn, "what was not brought is listed in "+d.h.broughtFile()+"; delete the folder when you do not miss it",
			"a former store is kept in %s", kept[len(kept)-1])
		return
	}
	if info, err := lastBrought(d.h); err == nil && info != nil {
		d.add("bring", checkOK, "", "%d entries of the former mesh %s were brought into this one", info.Total(), info.From)
	}
}
