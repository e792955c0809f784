package replica

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
