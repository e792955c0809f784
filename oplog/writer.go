package oplog

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"
)

// Bounds of one commit group.
const (
	maxGroupJobs    = 256
	maxGroupPayload = 1 << 20 // bytes of payload after which no further job joins
)

// job is one request to the single writer. apply runs again when its writes
// did not fit beside those of others.
type job interface {
	// apply puts the job's writes into the group. An error takes the job's
	// writes back and fails it alone. more asks for another apply in the next
	// group, after accept.
	apply(g *group) (more bool, err error)
	// accept tells that the writes of the last apply stay in their group.
	accept()
	// finish answers the caller, once, when the group is durable.
	finish(err error)
	// size is the payload in bytes, for bounding the group.
	size() int
}

// writer is the state that only the writer goroutine touches.
type writer struct {
	store       string            // the store's random id, in hex
	token       []byte            // continuity token
	id          OriginID          // own origin
	birth       Birth             // of the own incarnation
	arrival     uint64            // last number given
	spare       *batch            // of a group that has landed, for its memory
	pendingHead *Head             // own head, signed while its group was syncing; stored with the next
	salts       []byte            // random bytes not used yet
	erased      map[Hash]bool     // entries named by an erase
	amended     map[OriginID]bool // origins that an amend names

	expect      int       // jobs that likely share the next group
	gatherUntil time.Time // until when it is worth waiting for them
}

// flight is a group on its way to the disk.
type flight struct {
	g    *group
	own  *lane // own lane whose head was signed meanwhile, nil if none
	head Head
	err  error
	took time.Duration
	done chan struct{}
}

// write is the single writer. It collects waiting jobs into one group while
// the group before is being synced, so that concurrent appends share one sync
// and one signed head, and folding overlaps with the disk.
func (l *Log) write() {
	defer close(l.done)
	var (
		cur   *group  // being filled
		fly   *flight // being synced
		carry job     // did not fit into cur any more
	)
	fail := func(err error) {
		l.failed = err
		l.cfg.Logger.Error("the log stops", "error", err)
		err = fmt.Errorf("%w: %w", ErrClosed, err)
		if fly != nil {
			<-fly.done
			fly.g.answer(err)
			fly.g.b.release()
		}
		if cur != nil {
			cur.answer(err)
			if cur.prev == nil {
				cur.b.release()
			}
		}
		if carry != nil {
			carry.finish(err)
		}
		// Whoever comes later finds the log done, and so does the owner, who
		// waits for that to close it.
		for {
			select {
			case j := <-l.jobs:
				j.finish(err)
			default:
				return
			}
		}
	}
	for {
		if _, alone := carry.(exclusive); carry != nil && cur == nil && !alone {
			j := carry
			carry = nil
			if cur = l.open(fly, j); cur == nil {
				continue
			}
			var err error
			if carry, err = cur.take(j); err != nil {
				fail(err)
				return
			}
			continue
		}
		if ex, ok := carry.(exclusive); ok && cur == nil && fly == nil {
			carry = nil
			if err := l.Room(); err != nil {
				ex.finish(err)
				continue
			}
			err := ex.run(l)
			ex.finish(err)
			if err != nil {
				fail(err)
				return
			}
			continue
		}
		jobs := l.jobs
		if carry != nil || cur != nil && cur.closed() {
			jobs = nil
		}
		if cur != nil && fly == nil {
			// Nothing is on its way: whoever is waiting comes along, then go.
			if j := l.next(jobs, cur); j != nil {
				if ex, ok := j.(exclusive); ok {
					carry = ex
					continue
				}
				var err error
				if carry, err = cur.take(j); err != nil {
					fail(err)
					return
				}
				continue
			}
			f, err := l.launch(cur)
			if err != nil {
				fail(err)
				return
			}
			fly, cur = f, nil
			continue
		}
		var landed chan struct{}
		if fly != nil {
			landed = fly.done
		}
		quit := l.quit
		if fly != nil || cur != nil || carry != nil {
			quit = nil // finish what is begun; new jobs are refused below
		}
		select {
		case <-quit:
			l.stop()
			return
		case <-landed:
			f := fly
			fly = nil
			if f.err != nil {
				f.g.answer(fmt.Errorf("oplog: commit: %w", f.err))
				f.g.b.release()
				fail(f.err)
				return
			}
			l.land(f, cur)
		case j := <-jobs:
			if l.isQuitting() {
				j.finish(ErrClosed)
				continue
			}
			if ex, ok := j.(exclusive); ok {
				carry = ex
				continue
			}
			if cur == nil {
				if cur = l.open(fly, j); cur == nil {
					continue
				}
			}
			var err error
			if carry, err = cur.take(j); err != nil {
				fail(err)
				return
			}
		}
	}
}

// cpuPerKey is about what a commit costs a key when the disk costs nothing.
const cpuPerKey = 5 * time.Microsecond

// maxGather bounds the wait for further jobs.
const maxGather = 5 * time.Millisecond

// gather notes, as a group lands, how many jobs may share the next one, and
// how long to wait for them. Callers that write one thing after the other
// otherwise split into two halves that take turns at the disk: while one half
// is being synced, the other is being answered. When the disk is what takes
// the time, a part of a sync spent on waiting is won back twice; when folding
// is, it overlaps with the sync and nobody waits. A lone writer never does.
func (w *writer) gather(f *flight, cur *group) {
	w.expect = 0
	if f.took < 2*cpuPerKey*time.Duration(f.g.b.items.Len()) {
		return
	}
	w.expect = len(f.g.answers)
	if cur != nil {
		w.expect += len(cur.answers)
	}
	w.gatherUntil = time.Now().Add(min(f.took/4, maxGather))
}

// next is a job for the group that is about to go: one that waits, or one that
// comes while it is worth waiting. Nil means go.
func (l *Log) next(jobs <-chan job, g *group) job {
	select {
	case j := <-jobs:
		return j
	default:
	}
	if jobs == nil || len(g.answers) >= l.w.expect {
		return nil
	}
	left := time.Until(l.w.gatherUntil)
	if left <= 0 {
		return nil
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case j := <-jobs:
		return j
	case <-timer.C:
		return nil
	}
}

// open starts a group for a first job, unless the disk is too full, which the
// job is told.
func (l *Log) open(fly *flight, j job) *group {
	if err := l.Room(); err != nil {
		j.finish(err)
		return nil
	}
	if fly != nil {
		return l.newGroup(fly.g)
	}
	return l.newGroup(nil)
}

// Room is ErrNoSpace while the disk is too full for appends and ranges, nil
// when they would be taken. It asks the system, every time.
func (l *Log) Room() error {
	if l.cfg.InMemory {
		return nil
	}
	return checkSpace(l.cfg.Dir, l.cfg.MinFree)
}

// stop stores the own head that is pending and answers whoever still waits.
func (l *Log) stop() {
	if l.w.pendingHead != nil && l.Room() == nil {
		g := l.newGroup(nil)
		g.storePending()
		f, err := l.launch(g)
		if err == nil {
			<-f.done
			err = f.err
		}
		if err != nil {
			l.cfg.Logger.Warn("head not stored at close", "error", err)
		}
		g.b.release()
	}
	for {
		select {
		case j := <-l.jobs:
			j.finish(ErrClosed)
		default:
			return
		}
	}
}

// launch sends a group to the disk and signs the own head beside the sync.
// The group must stand on the store itself and is not changed afterwards. One
// without writes lands at once.
func (l *Log) launch(g *group) (*flight, error) {
	f := &flight{g: g, done: make(chan struct{})}
	if g.recheck && g.held > 0 {
		if err := g.release(); err != nil {
			return nil, err
		}
	}
	if g.b.items.Len() == 0 {
		close(f.done)
		return f, nil
	}
	g.storePending()
	g.saveViews()
	if last := l.clock.Last(); g.ceiling < last {
		g.ceiling = last
	}
	state := binary.BigEndian.AppendUint64(nil, g.arrival)
	g.b.set(metaKey("state"), binary.BigEndian.AppendUint64(state, uint64(g.ceiling)))

	// The head of this group's own entries is signed beside the sync and kept
	// only if the sync succeeds. It is stored with the next group; after a
	// crash it is signed again, for its entries are durable and its floor lies
	// below the ceiling that this transaction stores.
	if all := g.lanesOf(l.w.id); len(all) > 0 {
		if ln := g.lanes[all[0]]; ln != nil && (ln.head.Seq != ln.tip.Seq || g.ownSeq == ln.tip.Seq) {
			f.own = ln
			f.head = Head{Origin: ln.id, Seq: ln.tip.Seq, Hash: ln.tip.Hash, Floor: g.ceiling.Next()}
		}
	}
	if g.swapped {
		l.switches.Add(1)
	}
	signed := make(chan struct{})
	go func() {
		defer close(signed)
		if f.own != nil {
			f.head.sign(l.cfg.Signer)
		}
	}()
	go func() {
		defer close(f.done)
		l.cfg.at(pointApplied)
		start := time.Now()
		f.err = l.db.commit(g.b)
		f.took = time.Since(start)
		<-signed
		l.cfg.at(pointCommitted)
	}()
	return f, nil
}

// land publishes a group that is durable, answers its jobs, and puts the
// group being filled, if any, on the store as it is now.
func (l *Log) land(f *flight, cur *group) {
	if f.g.b.items.Len() > 0 {
		if f.own != nil {
			// cur may have copied the lane; it gets the head when it is launched.
			ln := *f.own
			ln.head = f.head
			f.g.lanes[ln.idx] = &ln
			l.w.pendingHead = &f.head
		}
		l.publish(f.g)
		l.cfg.at(pointPublished)
	}
	if cur != nil {
		cur.prev = nil
		cur.b.base = l.db.snapshot()
	}
	f.g.b.release()
	l.w.spare = f.g.b
	l.w.gather(f, cur)
	f.g.answer(nil)
	l.cfg.at(pointAnswered)
}

func (l *Log) isQuitting() bool {
	select {
	case <-l.quit:
		return true
	default:
		return false
	}
}

// publish makes the committed group what readers see and wakes the waiting.
func (l *Log) publish(g *group) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lanes := make([]*lane, g.nlanes)
	copy(lanes, l.lanes)
	for idx, ln := range g.lanes {
		lanes[idx] = ln
	}
	l.lanes = lanes
	for id, added := range g.byID {
		all := l.byID[id]
		l.byID[id] = append(all[:len(all):len(all)], added...)
	}
	if g.reborn != "" {
		l.reason = g.reborn
	}
	l.self = Origin{ID: l.w.id, Key: l.key, Incarnation: l.w.birth.Incarnation, Self: true}
	l.infos = g.infos
	l.erasing, l.amending, l.owed, l.mended = g.erasing, g.amending, g.owed, g.mended
	if g.owedMoved {
		l.owedEpoch++
	}
	l.endings, l.recut = g.endings, g.recut
	for _, h := range g.erases {
		l.w.erased[h] = true
	}
	l.publishBlobs(g)
	l.aside = g.held
	l.w.arrival = g.arrival
	if g.swapped {
		l.switches.Add(1)
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// submit hands a job to the writer.
func (l *Log) submit(ctx context.Context, j job) error {
	select {
	case <-l.done:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	default:
	}
	select {
	case l.jobs <- j:
		return nil
	case <-l.done:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// waiter is the answering half of a job.
type waiter struct{ ch chan error }

func newWaiter() waiter { return waiter{make(chan error, 1)} }

func (w waiter) finish(err error) { w.ch <- err }

// wait waits for the answer. A job once taken is carried out whatever becomes
// of the caller; a cancelled caller does not learn its fate.
func (l *Log) wait(ctx context.Context, w waiter) error {
	select {
	case err := <-w.ch:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-l.done:
		select {
		case err := <-w.ch:
			return err
		default:
			return ErrClosed
		}
	}
}
