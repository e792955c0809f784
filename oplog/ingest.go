package oplog

import (
	"context"
	"errors"
	"fmt"
)

// Places where ranges can end are kept at least this often.
const (
	checkEvery      = 256       // entries
	checkEveryBytes = 512 << 10 // bytes
)

// MaxRange bounds the entries of a range in bytes. A range that ReadRange
// gives is shorter.
const MaxRange = 6 << 20

// IngestResult says what a range brought.
type IngestResult struct {
	Tip        Tip // the origin's tip afterwards
	Added      int
	Duplicates int
}

// Ingest takes a range of another replica's entries, whoever relayed it. It
// verifies form, chain and the head's signature on the caller's goroutine,
// then commits entries, views and head in one or more transactions. Entries
// already held cost nothing (L5). The range's bytes must not change until
// Ingest returns.
//
// Errors: ErrBadRange when the range does not verify; ErrGap, ErrFork and
// ErrUnknownOrigin when it does not fit what is held; ErrNoSpace; ErrClosed.
// Entries that cannot be folded are no error: they are kept aside (L6).
func (l *Log) Ingest(ctx context.Context, rg Range) (IngestResult, error) {
	v, err := l.verify(rg)
	if err != nil {
		return IngestResult{}, err
	}
	j := &ingestJob{waiter: newWaiter(), v: v}
	if err := l.submit(ctx, j); err != nil {
		return IngestResult{}, err
	}
	if err := l.wait(ctx, j.waiter); err != nil {
		return IngestResult{}, err
	}
	return j.result, nil
}

// verified is a range whose chain leads to a head signed by its origin.
type verified struct {
	entries []Entry
	head    Head
	key     DeviceKey
	inc     Incarnation
	bytes   int
}

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrBadRange}, args...)...)
}

func (l *Log) verify(rg Range) (*verified, error) {
	if len(rg.Entries) > MaxRange {
		return nil, bad("%d bytes, limit %d", len(rg.Entries), MaxRange)
	}
	if rg.Count <= 0 || rg.Count > len(rg.Entries)/64 {
		return nil, bad("%d entries in %d bytes", rg.Count, len(rg.Entries))
	}
	v := &verified{entries: make([]Entry, 0, rg.Count), head: rg.Head, bytes: len(rg.Entries)}
	rest := rg.Entries
	for len(rest) > 0 {
		e, left, err := ParseEntry(rest)
		if err != nil {
			return nil, fmt.Errorf("%w: entry %d: %w", ErrBadRange, len(v.entries), err)
		}
		rest = left
		if n := len(v.entries); n == 0 {
			if e.Seq != rg.First || e.Origin != rg.Origin {
				return nil, bad("starts at seq %d of %s, said %d of %s", e.Seq, e.Origin, rg.First, rg.Origin)
			}
		} else if p := &v.entries[n-1]; e.Origin != p.Origin || e.Seq != p.Seq+1 || e.Prev != p.Hash || e.Time <= p.Time {
			return nil, bad("seq %d does not follow seq %d", e.Seq, p.Seq)
		}
		v.entries = append(v.entries, e)
	}
	if len(v.entries) != rg.Count {
		return nil, bad("%d entries, said %d", len(v.entries), rg.Count)
	}
	last := &v.entries[len(v.entries)-1]
	if rg.Head.Origin != rg.Origin || rg.Head.Seq != last.Seq || rg.Head.Hash != last.Hash {
		return nil, bad("does not end at its head")
	}
	if rg.First == 1 {
		b, err := BirthOf(&v.entries[0])
		if err != nil {
			return nil, err
		}
		v.key, v.inc = b.Key, b.Incarnation
	} else {
		l.mu.RLock()
		idx, ok := l.byID[rg.Origin]
		if ok {
			v.key, v.inc = l.lanes[idx].key, l.lanes[idx].inc
		}
		l.mu.RUnlock()
		if !ok {
			return nil, fmt.Errorf("%w: %s", ErrUnknownOrigin, rg.Origin)
		}
	}
	if !rg.Head.Verify(v.key) {
		return nil, bad("head of %s at seq %d is not signed by its device", rg.Origin, rg.Head.Seq)
	}
	return v, nil
}

type ingestJob struct {
	waiter
	v       *verified
	next    int // entries before it are in a group for good
	applied int // entries before it are in the group being made
	pending IngestResult
	result  IngestResult
}

func (j *ingestJob) size() int { return j.v.bytes }

func (j *ingestJob) accept() {
	j.next = j.applied
	j.result = j.pending
}

func (j *ingestJob) apply(g *group) (more bool, err error) {
	j.applied, j.pending = j.next, j.result
	ln := g.lane(j.v.head.Origin)
	if ln == nil {
		if j.v.entries[0].Seq != 1 {
			return false, ErrGap
		}
		ln = g.addLane(j.v.head.Origin, j.v.key, j.v.inc)
	}
	for ; j.applied < len(j.v.entries); j.applied++ {
		e := &j.v.entries[j.applied]
		switch {
		case e.Seq <= ln.tip.Seq:
			j.pending.Duplicates++
			if e.Seq == ln.tip.Seq && e.Hash != ln.tip.Hash {
				return false, fmt.Errorf("%w: %s at seq %d", ErrFork, ln.id, e.Seq)
			}
			continue
		case e.Seq != ln.tip.Seq+1:
			return false, fmt.Errorf("%w: %s holds %d, range has %d", ErrGap, ln.id, ln.tip.Seq, e.Seq)
		case e.Prev != ln.tip.Hash:
			return false, fmt.Errorf("%w: %s after seq %d", ErrFork, ln.id, ln.tip.Seq)
		}
		if g.b.full() {
			return true, nil
		}
		if err := g.admit(ln, e); err != nil {
			return false, err
		}
		j.pending.Added++
	}
	if h := &j.v.head; h.Seq < ln.tip.Seq {
		// All of it was held already; make sure it is the same branch.
		if err := g.sameBranch(ln, h); err != nil {
			return false, err
		}
	} else if h.Newer(&ln.head) {
		g.storeHead(ln, h)
	}
	j.pending.Tip = ln.tip
	return false, nil
}

// sameBranch checks that the held entry at the head's seq is the head's.
func (g *group) sameBranch(ln *lane, h *Head) error {
	e, _, err := getEntry(g.b.get, place{ln.idx, h.Seq})
	if err != nil {
		return fatal(err)
	}
	if e.Hash != h.Hash {
		return fmt.Errorf("%w: %s at seq %d", ErrFork, ln.id, h.Seq)
	}
	return nil
}

// admit stores a verified foreign entry at the end of its lane.
func (g *group) admit(ln *lane, e *Entry) error {
	g.b.set(hashKey(e.Hash[:]), place{ln.idx, e.Seq}.bytes())
	if err := g.deliver(ln, e); err != nil {
		return err
	}
	if e.OpID != "" {
		if err := g.indexOp(ln, e); err != nil {
			return err
		}
	}
	ln.tip = Tip{Seq: e.Seq, Hash: e.Hash}
	ln.last = e.Time
	ln.sinceCheck += e.Size()
	return nil
}

// storeHead makes h the lane's head, and keeps it for good as a place where
// ranges can end when enough lies behind the last such place.
func (g *group) storeHead(ln *lane, h *Head) {
	enc := h.Append(nil)
	g.b.set(laneKey(tabHead, ln.idx), enc)
	if h.Seq > ln.lastCheck && (ln.forceCheck || h.Seq-ln.lastCheck >= checkEvery || ln.sinceCheck >= checkEveryBytes) {
		g.b.set(seqKey(tabCheck, ln.idx, h.Seq), enc)
		ln.lastCheck, ln.sinceCheck, ln.forceCheck = h.Seq, 0, false
	}
	if h.Newer(&ln.head) {
		ln.head = *h
	}
}

// PutHead takes a signed head for a tip that is held already: a higher floor.
// It reports whether the head said something new. A head beyond what is held
// is ignored, for its entries will bring their own.
func (l *Log) PutHead(ctx context.Context, h Head) (changed bool, err error) {
	l.mu.RLock()
	idx, ok := l.byID[h.Origin]
	var ln *lane
	if ok {
		ln = l.lanes[idx]
	}
	l.mu.RUnlock()
	if !ok || h.Tip() != ln.tip || !h.Newer(&ln.head) || h.Origin == l.w.id {
		return false, nil
	}
	if !h.Verify(ln.key) {
		return false, bad("head of %s at seq %d is not signed by its device", h.Origin, h.Seq)
	}
	j := &headJob{waiter: newWaiter(), h: h}
	if err := l.submit(ctx, j); err != nil {
		return false, err
	}
	err = l.wait(ctx, j.waiter)
	return j.changed && err == nil, err
}

type headJob struct {
	waiter
	h       Head
	changed bool
}

func (j *headJob) size() int { return 0 }
func (j *headJob) accept()   {}

func (j *headJob) apply(g *group) (bool, error) {
	j.changed = false
	ln := g.lane(j.h.Origin)
	if ln == nil {
		return false, ErrUnknownOrigin
	}
	if j.h.Tip() == ln.tip && j.h.Newer(&ln.head) {
		g.storeHead(ln, &j.h)
		j.changed = true
	}
	return false, nil
}

// ReadRange reads entries of an origin after the given seq, up to a signed
// head. It ends at the last such place within maxBytes of entries, or at the
// first one if that lies further. Count is 0 when there is nothing to read.
func (l *Log) ReadRange(origin OriginID, after uint64, maxBytes int) (Range, error) {
	l.mu.RLock()
	idx, ok := l.byID[origin]
	var ln *lane
	if ok {
		ln = l.lanes[idx]
	}
	l.mu.RUnlock()
	if !ok {
		return Range{}, fmt.Errorf("%w: %s", ErrUnknownOrigin, origin)
	}
	rg := Range{Origin: origin, First: after + 1}
	if ln.head.Seq <= after {
		return rg, nil
	}
	snap := l.db.snapshot()
	defer snap.release()
	ends, err := rangeEnds(snap, ln, after)
	if err != nil {
		return Range{}, err
	}
	buf := make([]byte, 0, 4096)
	cut, count, n := 0, 0, 0
	err = snap.scan(laneKey(tabEntry, ln.idx), seqKey(tabEntry, ln.idx, after+1), false, func(key, value []byte) (bool, error) {
		if len(value) < entryPrefixLen {
			return false, fmt.Errorf("%w: stored entry", ErrDamaged)
		}
		if n > 0 && count > 0 && len(buf)+len(value) > maxBytes {
			return false, nil
		}
		buf = append(buf, value[entryPrefixLen:]...)
		n++
		if seq := after + uint64(n); len(ends) > 0 && ends[0].Seq == seq {
			rg.Head, cut, count = ends[0], len(buf), n
			ends = ends[1:]
		}
		return len(ends) > 0, nil
	})
	if err != nil {
		return Range{}, err
	}
	rg.Entries, rg.Count = buf[:cut], count
	return rg, nil
}

// rangeEnds lists heads after a seq where a range can end, in order.
func rangeEnds(snap kvSnapshot, ln *lane, after uint64) ([]Head, error) {
	var ends []Head
	if ln.head.Seq-after > 16 {
		err := snap.scan(laneKey(tabCheck, ln.idx), seqKey(tabCheck, ln.idx, after+1), false, func(_, value []byte) (bool, error) {
			h, _, err := ParseHead(value)
			if err != nil {
				return false, fmt.Errorf("%w: kept head: %w", ErrDamaged, err)
			}
			if h.Seq < ln.head.Seq {
				ends = append(ends, h)
			}
			return len(ends) < 32, nil
		})
		if err != nil {
			return nil, err
		}
	}
	return append(ends, ln.head), nil
}

// IsRangeError reports whether an error of Ingest is about the range itself,
// so that it costs the range and not the log.
func IsRangeError(err error) bool {
	return errors.Is(err, ErrBadRange) || errors.Is(err, ErrGap) || errors.Is(err, ErrFork) || errors.Is(err, ErrUnknownOrigin)
}
