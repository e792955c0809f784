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
	Tip        Tip   // where the branch that the range is on ends afterwards
	Tips       []Tip // all tips of a forked origin afterwards; nil when Tip is the only one
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
	wait, err := l.StartIngest(ctx, rg)
	if err != nil {
		return IngestResult{}, err
	}
	return wait()
}

// StartIngest is Ingest in two steps, so that the next range is verified while
// this one is written: it verifies on the caller's goroutine and hands the
// range to the writer, which takes ranges in the order they are handed in;
// wait, to be called once, waits for the commit. A range that follows the
// first one of a new origin is ErrUnknownOrigin until that one has committed.
func (l *Log) StartIngest(ctx context.Context, rg Range) (wait func() (IngestResult, error), err error) {
	v, err := l.verify(rg)
	if err != nil {
		return nil, err
	}
	j := &ingestJob{waiter: newWaiter(), v: v}
	if err := l.submit(ctx, j); err != nil {
		return nil, err
	}
	return func() (IngestResult, error) {
		if err := l.wait(ctx, j.waiter); err != nil {
			return IngestResult{}, err
		}
		return j.result, nil
	}, nil
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
		all := l.byID[rg.Origin]
		if len(all) > 0 {
			v.key, v.inc = l.lanes[all[0]].key, l.lanes[all[0]].inc
		}
		l.mu.RUnlock()
		if len(all) == 0 {
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
	ln, err := g.resume(j.v, j.applied)
	if err != nil {
		return false, err
	}
	for ; j.applied < len(j.v.entries); j.applied++ {
		e := &j.v.entries[j.applied]
		if ln == nil || e.Prev != ln.tip.Hash || e.Seq != ln.tip.Seq+1 {
			next, held, err := g.locate(e, j.v)
			if err != nil {
				return false, err
			}
			ln = next
			if held {
				if e.Present() && g.owed > 0 {
					if g.b.full() {
						return true, nil
					}
					paid, err := g.pay(place{ln.idx, e.Seq}, e)
					if err != nil {
						return false, err
					}
					g.owedMoved = g.owedMoved || paid
				}
				j.pending.Duplicates++
				continue
			}
		}
		if g.b.full() {
			return true, nil
		}
		if ln.id == g.l.w.id {
			if err := g.giveUp(ln); err != nil {
				return false, err
			}
		}
		g.keepsPromise(ln, e.Seq, e.Time)
		if err := g.admit(ln, e); err != nil {
			return false, err
		}
		j.pending.Added++
	}
	if h := &j.v.head; ln.tip == h.Tip() && h.Newer(&ln.head) {
		g.keepsPromise(ln, h.Seq, h.Floor)
		g.storeHead(ln, h)
	}
	j.pending.Tip, j.pending.Tips = ln.tip, nil
	if all := g.lanesOf(ln.id); len(all) > 1 {
		for _, idx := range all {
			j.pending.Tips = append(j.pending.Tips, g.peek(idx).tip)
		}
	}
	return false, nil
}

// resume finds the lane a partly taken range goes on in; nil at its start.
func (g *group) resume(v *verified, next int) (*lane, error) {
	if next == 0 {
		return nil, nil
	}
	p, err := g.find(&v.entries[next-1].Hash)
	if err != nil {
		return nil, fatal(err)
	}
	return g.laneAt(p.lane), nil
}

// find is where the entry with a hash is held, or ErrNotFound.
func (g *group) find(h *Hash) (place, error) { return findHash(g.b.get, h) }

func findHash(get func([]byte) ([]byte, error), h *Hash) (place, error) {
	v, err := get(hashKey(h[:]))
	if err != nil {
		return place{}, err
	}
	p, err := placeOf(v)
	if err != nil {
		return place{}, err
	}
	e, _, err := getEntry(get, p)
	if errors.Is(err, ErrDamaged) {
		return p, nil // 8 bytes of the hash say so, and nothing against it
	}
	if err != nil {
		return place{}, err
	}
	if e.Hash != *h {
		return place{}, ErrNotFound
	}
	return p, nil
}

// locate finds where an entry belongs: the lane that holds it already, the
// lane it continues, or a new branch after the entry before it (L7c).
func (g *group) locate(e *Entry, v *verified) (ln *lane, held bool, err error) {
	all := g.lanesOf(e.Origin)
	if len(all) > 0 {
		switch p, err := g.find(&e.Hash); {
		case err == nil:
			return g.laneAt(p.lane), true, nil
		case !errors.Is(err, ErrNotFound):
			return nil, false, fatal(err)
		}
	}
	if e.Seq == 1 {
		if len(all) > 0 {
			return g.addBranch(g.laneAt(all[0]), 0), false, nil
		}
		return g.addLane(e.Origin, v.key, v.inc), false, nil
	}
	switch p, err := g.find(&e.Prev); {
	case errors.Is(err, ErrNotFound):
		return nil, false, fmt.Errorf("%w: entry before seq %d of %s is not here", ErrGap, e.Seq, e.Origin)
	case err != nil:
		return nil, false, fatal(err)
	case g.peek(p.lane).id != e.Origin || p.seq+1 != e.Seq:
		return nil, false, bad("seq %d of %s follows another origin's entry", e.Seq, e.Origin)
	default:
		ln := g.laneAt(p.lane)
		if ln.tip.Seq > p.seq {
			if len(all) >= MaxTips {
				return nil, false, fmt.Errorf("%w: %s has %d branches, limit %d", ErrFork, e.Origin, len(all), MaxTips)
			}
			ln = g.addBranch(ln, p.seq)
		}
		return ln, false, nil
	}
}

// giveUp leaves the own incarnation for a new one: entries signed by it that
// this log did not write prove that a copy of it writes, or that this store
// is an older one (L7b). What the old one holds stays and is fetched like any
// other origin's.
func (g *group) giveUp(ln *lane) error {
	if len(g.answers) > 0 {
		return errNextGroup // the last own entries get their head first
	}
	birth, err := g.l.drawBirth(g.b, Predecessor{Origin: ln.id, Tip: g.peek(g.lanesOf(ln.id)[0]).tip})
	if err != nil {
		return err
	}
	g.l.w.birth, g.l.w.id = birth, OriginOf(g.l.key, birth.Incarnation)
	g.reborn = "a peer holds entries of this device that this store did not write: it was restored from a copy, or a copy of it runs"
	g.l.cfg.Logger.Warn("opening a new incarnation", "reason", g.reborn)
	return nil
}

// admit stores a verified foreign entry at the end of its lane.
func (g *group) admit(ln *lane, e *Entry) error {
	g.b.set(hashKey(e.Hash[:]), place{ln.idx, e.Seq}.bytes())
	g.strip(e)
	if err := g.deliver(ln, e); err != nil {
		return err
	}
	if e.OpID != "" {
		if err := g.indexOp(ln, e); err != nil {
			return err
		}
	}
	ln.tip = Tip{Seq: e.Seq, Hash: e.Hash}
	ln.last, ln.amended = e.Time, false
	ln.sinceCheck += e.Size()
	g.branched(ln)
	return g.arrivedForAmend(e)
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
	ln := laneWithTip(l.lanes, l.byID[h.Origin], h.Tip())
	own := h.Origin == l.self.ID
	l.mu.RUnlock()
	if ln == nil || own || !h.Newer(&ln.head) {
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

// laneWithTip is the lane among idx that ends in tip, nil if none does.
func laneWithTip(lanes []*lane, idx []uint32, tip Tip) *lane {
	for _, i := range idx {
		if lanes[i].tip == tip {
			return lanes[i]
		}
	}
	return nil
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
	for _, idx := range g.lanesOf(j.h.Origin) {
		if ln := g.peek(idx); ln.tip == j.h.Tip() && j.h.Newer(&ln.head) {
			g.storeHead(g.laneAt(idx), &j.h)
			j.changed = true
		}
	}
	return false, nil
}

// IsRangeError reports whether an error of Ingest is about the range itself,
// so that it costs the range and not the log.
func IsRangeError(err error) bool {
	return errors.Is(err, ErrBadRange) || errors.Is(err, ErrGap) || errors.Is(err, ErrFork) || errors.Is(err, ErrUnknownOrigin)
}
