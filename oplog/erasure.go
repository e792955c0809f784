package oplog

import "time"

// KindErase is the kind of an erase, for projections that follow erases. They
// must take every erase: the log itself refuses the malformed ones.
const KindErase = kindErase

// ErasureOf reads an erase; false for every other entry.
func ErasureOf(e *Entry) (Erasure, bool) {
	if e.Kind != kindErase || !e.Present() {
		return Erasure{}, false
	}
	x, err := parseErasure(e.Body)
	return x, err == nil
}

// Erasable reports whether entries of a kind are content, which may be erased
// (T5); the others are structural.
func (l *Log) Erasable(kind string) bool { return l.content[kind] }

// LeadOf is how far a stamp lies ahead of the wall clock in milliseconds, and
// whether that is further than the bound (C3).
func (l *Log) LeadOf(ref Ref) (millis int64, beyond bool) {
	lead, far := l.clock.Ahead(ref.Time())
	return lead.Milliseconds(), far
}

// Bound is the clock bound of this log (C3).
func (l *Log) Bound() time.Duration { return l.cfg.Bound }
