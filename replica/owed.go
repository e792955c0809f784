package replica

import (
	"errors"
	"log/slog"
	"time"

	"tallystick/oplog"
)

// mendPatience is how long peers are asked for a damaged entry before views are
// rebuilt without it, so that what lies beside it can be read again.
const mendPatience = time.Minute

// mend looks after entries that did not verify when they were read: they are
// noted as owed, which the core asks of peers, and the views are rebuilt when
// one is back that they lack.
func (r *Replica) mend() {
	err := r.mendOnce(mendPatience)
	if err != nil && r.ctx.Err() == nil && !errors.Is(err, oplog.ErrClosed) {
		r.logger.Warn("damaged entries not looked at", slog.Any("error", err))
	}
}

func (r *Replica) mendOnce(patience time.Duration) error {
	if r.log.Suspects() > 0 {
		if _, err := r.log.SettleDamage(r.ctx); err != nil {
			return err
		}
	}
	d, err := r.log.Damage()
	if err != nil {
		return err
	}
	age := time.Duration(r.cfg.Wall()-d.Oldest.UnixMilli()) * time.Millisecond
	if d.Stale > 0 || d.InViews > 0 && (age >= patience || age < 0) {
		return r.log.Rebuild(r.ctx, nil)
	}
	return nil
}

// tellOwed tells the core that what the log owes has changed. It reports false
// once the replica closes.
func (r *Replica) tellOwed(told *uint64) bool {
	epoch := r.log.OwedEpoch()
	if *told == epoch+1 {
		return true
	}
	*told = epoch + 1
	return r.post(r.core.OwedChanged)
}

func (r *Replica) readEntry(e ReadEntry) {
	select {
	case r.reads <- struct{}{}:
		defer func() { <-r.reads }()
	case <-r.ctx.Done():
		return
	}
	exact, err := r.log.WholeEntry(e.Hash)
	r.post(func(now Now) Output { return r.core.EntryRead(now, e, exact, err) })
}
