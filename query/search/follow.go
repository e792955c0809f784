package search

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tallystick/oplog"
)

// follow keeps the index close to the log until ctx ends.
func (x *Index) follow(ctx context.Context) {
	const least, most = 100 * time.Millisecond, time.Minute
	wait := least
	for ctx.Err() == nil {
		changed := x.cfg.Log.Changed()
		err := x.CatchUp(ctx)
		switch {
		case ctx.Err() != nil || errors.Is(err, oplog.ErrClosed):
			return
		case err != nil:
			x.log.Warn("search index cannot follow", "error", err)
			changed = nil
		default:
			wait = least
		}
		timer := time.NewTimer(idleKeep)
		if err != nil {
			timer.Reset(wait)
			wait = min(2*wait, most)
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
			x.stepping.Lock()
			if err := x.tidy(true); err != nil {
				x.log.Warn("search index cannot be kept", "error", err)
			}
			x.stepping.Unlock()
		}
		timer.Stop()
	}
}

// CatchUp folds until nothing newer is in the log.
func (x *Index) CatchUp(ctx context.Context) error {
	for {
		more, err := x.step(ctx)
		if err != nil || !more {
			return err
		}
	}
}

// freshen lets a search see what was acknowledged before it, when that takes
// no more than a moment, and gives the log's newest arrival number.
func (x *Index) freshen(ctx context.Context) (last uint64, err error) {
	if x.cfg.Log == nil {
		return 0, nil
	}
	x.mu.RLock()
	caught, pos := x.caught, x.pos.arrival
	x.mu.RUnlock()
	if caught != nil {
		select {
		case <-caught:
		default: // whoever was told of a commit was told after it closed the channel
			return pos, nil
		}
	}
	err = x.cfg.Log.View(func(s oplog.Snapshot) error {
		last = s.LastArrival()
		return nil
	})
	if err != nil {
		return 0, err
	}
	// One step is taken even when nothing newer came: entries that are in the
	// index may count no longer, and whoever folds them anew just now has to be
	// waited for.
	for first := true; ; first = false {
		x.mu.RLock()
		pos := x.pos.arrival
		x.mu.RUnlock()
		if pos >= last && !first || pos < last && last-pos > inline {
			return last, nil
		}
		more, err := x.step(ctx)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, oplog.ErrClosed) {
				return 0, err
			}
			return last, nil // Behind and the fault tell it
		}
		if !more {
			return last, nil
		}
	}
}

// step folds the next entries and reports whether there are more.
func (x *Index) step(ctx context.Context) (more bool, err error) {
	x.stepping.Lock()
	defer x.stepping.Unlock()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	from, caught, current := x.pos.arrival, x.cfg.Log.Changed(), x.ahead == nil
	got, err := x.read(ctx)
	var again *refoldError
	if errors.As(err, &again) {
		return true, x.refold(again.reason)
	}
	if err == nil && got.last-got.next.arrival > stepEntries {
		// Far behind: the next entries are read while these are folded. Only
		// then, so that whoever waits for a write never gets an older reading.
		x.readAhead(ctx, got.next)
	}
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, oplog.ErrClosed) {
			x.mu.Lock()
			x.fault, x.caught = err.Error(), nil
			x.mu.Unlock()
		}
		return false, err
	}
	if got.next.arrival != x.pos.arrival {
		x.apply(got.docs, &got.next, got.erased)
	}
	if current && got.next.arrival == got.last && x.caught != caught {
		x.mu.Lock()
		x.caught = caught
		x.mu.Unlock()
	}
	if got.next.arrival == from {
		return false, nil
	}
	if err := x.tidy(false); err != nil {
		// What is not kept is folded again at the next start.
		x.log.Warn("search index cannot be kept", "error", err)
	}
	return got.next.arrival < got.last, nil
}

// refoldError says why everything must be folded anew.
type refoldError struct{ reason string }

func (e *refoldError) Error() string { return "search: " + e.reason }

// batch is what some entries come to.
type batch struct {
	docs   []Document
	erased []oplog.Ref // entries that were erased, whatever was made of them
	next   mark
	last   uint64 // newest of the log
}

// ahead is a reading that was begun before its turn.
type ahead struct {
	from    mark
	covered uint64
	done    chan struct{}
	got     batch
	err     error
}

// readAhead begins to read what follows a mark. The caller holds stepping.
func (x *Index) readAhead(ctx context.Context, from mark) {
	a := &ahead{from: from, covered: x.covered, done: make(chan struct{})}
	x.ahead = a
	go func() {
		defer close(a.done)
		a.got, a.err = readFrom(ctx, x.cfg.Log, x.cfg.Sources, from, &a.covered)
	}()
}

// read collects the documents of the next entries. The caller holds stepping.
func (x *Index) read(ctx context.Context) (batch, error) {
	if a := x.ahead; a != nil {
		x.ahead = nil
		<-a.done
		if a.err == nil && a.from == x.pos {
			return a.got, nil
		}
	}
	return readFrom(ctx, x.cfg.Log, x.cfg.Sources, x.pos, &x.covered)
}

// readFrom gives the documents of some entries after a mark. Covered is the
// arrival number up to which a wish to fold anew is granted already: the
// newest of the snapshot from which a fold began.
func readFrom(ctx context.Context, log Log, sources []Source, from mark, covered *uint64) (out batch, err error) {
	out.next = from
	err = log.View(func(s oplog.Snapshot) error {
		out.last = s.LastArrival()
		if out.last < from.arrival {
			return &refoldError{fmt.Sprintf("the log ends at arrival %d, the index at %d", out.last, from.arrival)}
		}
		revision, err := revisionOf(s)
		if err != nil {
			return err
		}
		if from.arrival == 0 {
			*covered = out.last
		} else if out.last == from.arrival && revision.IsZero() {
			return nil
		}
		entries, bytes, known := 0, 0, from.arrival == 0
		// The entry of the mark is seen again, to know the log by.
		return s.Arrived(max(from.arrival, 1)-1, false, func(arrival uint64, e *oplog.Entry) (bool, error) {
			if !known {
				if markAt(arrival, e, revision) != from {
					if arrival == from.arrival && !revision.IsZero() {
						return false, &refoldError{"stamps were amended, or what counts of a device that is gone"}
					}
					return false, &refoldError{fmt.Sprintf("arrival %d is another entry than the one that was indexed", from.arrival)}
				}
				known = true
				return true, nil
			}
			for _, src := range sources {
				if !wants(src, e.Kind) {
					continue
				}
				found, err := src.Documents(s, e)
				switch {
				case errors.Is(err, ErrRefold) && arrival <= *covered:
				case errors.Is(err, ErrRefold):
					return false, &refoldError{fmt.Sprintf("%s asked for it at arrival %d", src.Name(), arrival)}
				case err != nil:
					return false, fmt.Errorf("search: %s at arrival %d: %w", src.Name(), arrival, err)
				}
				out.docs = append(out.docs, found...)
			}
			for _, h := range oplog.ErasedBy(e) {
				switch gone, err := s.ByHash(h[:]); {
				case err == nil:
					out.erased = append(out.erased, gone.Ref())
				case !errors.Is(err, oplog.ErrNotFound):
					return false, err
				}
			}
			out.next = markAt(arrival, e, revision)
			entries++
			bytes += e.Size()
			return entries < stepEntries && bytes < stepBytes, ctx.Err()
		})
	})
	return out, err
}

// revisionOf sums up what was changed of entries after they came; see oplog.
func revisionOf(s oplog.Snapshot) (oplog.Hash, error) {
	if a, ok := s.(interface{ Revision() (oplog.Hash, error) }); ok {
		return a.Revision()
	}
	return oplog.Hash{}, nil
}

// markAt is the place behind an entry. With a revision it is another one:
// documents carry stamps, and entries of a device that was revoked may count no
// longer, so that makes all of what was indexed another log's.
func markAt(arrival uint64, e *oplog.Entry, revision oplog.Hash) mark {
	m := mark{arrival, e.Hash}
	for i, b := range revision {
		m.hash[i] ^= b
	}
	return m
}

func wants(s Source, kind string) bool {
	kinds := s.Kinds()
	return slices.Contains(kinds, kind) || slices.Contains(kinds, "*")
}
