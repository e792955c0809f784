package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"tallystick/oplog"
)

// Amend writes amends (C3): everything of each named line up to its last entry
// that is stamped above the amend counts as stamped by it. A replica that finds
// its own clock to be the wrong one refuses with CodeConflict.
func (r *Replica) Amend(ctx context.Context, author, opID string, lines ...oplog.Amendment) error {
	if c := r.clockState(r.peerStates(r.coreStatus())); c.Outlier {
		return &Error{Code: CodeConflict, Field: "clock",
			Message: fmt.Sprintf("this machine's own clock is the one that is wrong: it differs from most others by %v", c.Offset.Abs()),
			Hint:    "set this machine's clock; amend at one whose clock is right"}
	}
	if err := r.settleLabel(ctx); err != nil {
		return err
	}
	for i, a := range lines {
		id := opID
		if i > 0 && opID != "" {
			id = fmt.Sprintf("%s:%d", opID, i)
		}
		if _, err := r.log.Amend(ctx, author, id, a, nil); err != nil {
			return storeError(r.cfg.Dir, err)
		}
	}
	return nil
}

// amend lets amends of peers act, in the background.
func (r *Replica) amend() {
	if err := r.log.ApplyAmends(r.ctx); err != nil && r.ctx.Err() == nil && !errors.Is(err, oplog.ErrClosed) {
		r.logger.Warn("amended stamps are not shown", slog.Any("error", err))
	}
}

// Clocks says whose clock is wrong and what came of it.
type Clocks struct {
	ClockState
	Lines []ClockLine
}

// ClockLine is a line of an origin that a clock too far ahead has stamped.
type ClockLine struct {
	oplog.FutureLine
	Label string        // of its replica, empty when that is not known
	Self  bool          // this replica's own
	Lead  time.Duration // of its newest stamp ahead of this machine's clock
	// Release is when this machine's clock lets the last of it pass, unless it
	// is amended.
	Release time.Time
	// Offset is that machine's clock minus this one, as last heard; Heard says
	// that it was, since the start.
	Offset time.Duration
	Heard  bool
}

// Clocks reports this replica's clock and every line stamped too far ahead of
// it.
func (r *Replica) Clocks() Clocks {
	peers := r.peerStates(r.coreStatus())
	c := Clocks{ClockState: r.clockState(peers)}
	for _, f := range r.log.FutureLines() {
		line := ClockLine{FutureLine: f, Label: r.LabelOf(f.Origin), Self: f.Key == r.key,
			Lead: f.Stamp.Time().Sub(c.Wall), Release: f.Stamp.Time().Add(-c.Bound).UTC()}
		for _, p := range peers {
			if p.Key == f.Key && p.Known {
				line.Offset, line.Heard = p.ClockOffset, true
			}
		}
		c.Lines = append(c.Lines, line)
	}
	return c
}

// Amendment is the amend that speaks for the line.
func (l *ClockLine) Amendment() oplog.Amendment {
	return oplog.Amendment{Origin: l.Origin, Last: l.Last}
}
