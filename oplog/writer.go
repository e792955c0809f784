package oplog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"tallystick/hlc"
)

// Bounds of one commit group.
const (
	maxGroupJobs    = 256
	maxGroupPayload = 1 << 20 // bytes of payload after which no further job joins
)

// job is one request to the single writer. apply may run more than once: a
// group that is too big for one transaction is split and applied again.
type job interface {
	// apply puts the job's writes into the group. An error takes the job's
	// writes back and fails it alone. more asks for a commit now and another
	// apply afterwards.
	apply(g *group) (more bool, err error)
	// committed tells that the writes are durable, before finish and before
	// anything of the group is published.
	committed()
	// finish answers the caller, once.
	finish(err error)
	// size is the payload in bytes, for bounding the group.
	size() int
}

// writer is the state that only the writer goroutine touches.
type writer struct {
	id          OriginID // own origin
	inc         Incarnation
	arrival     uint64 // last number given
	pendingHead *Head  // own head, signed while its group was syncing; stored with the next
	salts       []byte // random bytes not used yet
}

// group is one transaction in the making. Lanes are copied before they are
// changed; everything can be taken back to a mark.
type group struct {
	l       *Log
	b       *batch
	lanes   map[uint32]*lane
	byID    map[OriginID]uint32
	nlanes  uint32
	arrival uint64
	infos   []viewState
	held    int
	maxSeen hlc.Timestamp // highest stamp of visible entries, merged after commit
	ceiling hlc.Timestamp
	recheck bool // an entry was folded that may release held ones
	ownSeq  uint64
}

type groupMark struct {
	mark    int
	lanes   map[uint32]*lane
	byID    map[OriginID]uint32
	nlanes  uint32
	arrival uint64
	infos   []viewState
	held    int
	maxSeen hlc.Timestamp
	ceiling hlc.Timestamp
	recheck bool
}

func (l *Log) newGroup() *group {
	g := &group{
		l: l, b: newBatch(l.db.snapshot()),
		lanes: map[uint32]*lane{}, byID: map[OriginID]uint32{},
		nlanes: uint32(len(l.lanes)), arrival: l.w.arrival,
		infos: append([]viewState(nil), l.infos...), held: l.aside,
	}
	return g
}

func (g *group) mark() groupMark {
	m := groupMark{
		mark: g.b.mark(), lanes: make(map[uint32]*lane, len(g.lanes)), byID: make(map[OriginID]uint32, len(g.byID)),
		nlanes: g.nlanes, arrival: g.arrival, infos: append([]viewState(nil), g.infos...), held: g.held,
		maxSeen: g.maxSeen, ceiling: g.ceiling, recheck: g.recheck,
	}
	for k, v := range g.lanes {
		c := *v
		m.lanes[k] = &c
	}
	for k, v := range g.byID {
		m.byID[k] = v
	}
	return m
}

func (g *group) rollback(m groupMark) {
	g.b.rollback(m.mark)
	g.lanes, g.byID, g.nlanes, g.arrival = m.lanes, m.byID, m.nlanes, m.arrival
	g.infos, g.held, g.maxSeen, g.ceiling, g.recheck = m.infos, m.held, m.maxSeen, m.ceiling, m.recheck
}

// lane returns the group's own copy of an origin's lane, nil if unknown.
func (g *group) lane(id OriginID) *lane {
	idx, ok := g.byID[id]
	if !ok {
		if idx, ok = g.l.byID[id]; !ok {
			return nil
		}
	}
	return g.laneAt(idx)
}

func (g *group) laneAt(idx uint32) *lane {
	if ln, ok := g.lanes[idx]; ok {
		return ln
	}
	c := *g.l.lanes[idx]
	g.lanes[idx] = &c
	return &c
}

func (g *group) addLane(id OriginID, key DeviceKey, inc Incarnation) *lane {
	ln := &lane{idx: g.nlanes, id: id, key: key, inc: inc, forceCheck: true}
	g.nlanes++
	g.lanes[ln.idx] = ln
	g.byID[id] = ln.idx
	g.b.set(laneKey(tabLane, ln.idx), ln.record())
	return ln
}

// write is the single writer: it drains waiting jobs into one transaction,
// syncs it, then tells everybody. Concurrent appends share one sync and one
// signed head.
func (l *Log) write() {
	defer close(l.done)
	for {
		var first job
		select {
		case <-l.quit:
			l.stop()
			return
		case first = <-l.jobs:
		}
		jobs, bytes := []job{first}, first.size()
	drain:
		for len(jobs) < maxGroupJobs && bytes < maxGroupPayload {
			select {
			case j := <-l.jobs:
				jobs = append(jobs, j)
				bytes += j.size()
			default:
				break drain
			}
		}
		if err := l.run(jobs); err != nil {
			l.failed = err
			l.cfg.Logger.Error("the log stops", "error", err)
			for {
				select {
				case j := <-l.jobs:
					j.finish(fmt.Errorf("%w: %w", ErrClosed, err))
				case <-l.quit:
					return
				}
			}
		}
	}
}

// stop stores what is pending and answers whoever still waits.
func (l *Log) stop() {
	if l.w.pendingHead != nil {
		g := l.newGroup()
		if err := l.finishGroup(g); err != nil {
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

// run applies jobs in as few transactions as fit. A returned error means that
// the store failed and nothing further may be written.
func (l *Log) run(jobs []job) error {
	if !l.cfg.InMemory {
		if err := checkSpace(l.cfg.Dir, l.cfg.MinFree); err != nil {
			for _, j := range jobs {
				j.finish(err)
			}
			return nil
		}
	}
	for len(jobs) > 0 {
		n, err := l.runGroup(jobs)
		if errors.Is(err, errTooBig) && n > 1 {
			// Fewer jobs a transaction, same order.
			if _, err = l.runGroup(jobs[:1]); err == nil {
				jobs = jobs[1:]
				continue
			}
		}
		if errors.Is(err, errTooBig) {
			jobs[0].finish(&LimitError{Field: "transaction", Size: maxBatchBytes + 1, Limit: maxBatchBytes})
			jobs = jobs[1:]
			continue
		}
		if err != nil {
			for _, j := range jobs {
				j.finish(fmt.Errorf("oplog: commit: %w", err))
			}
			return err
		}
		jobs = jobs[n:]
	}
	return nil
}

// runGroup commits the longest prefix of jobs that fits one transaction and
// returns how many are finished with.
func (l *Log) runGroup(jobs []job) (n int, err error) {
	g := l.newGroup()
	defer g.b.release()
	errs := make([]error, 0, len(jobs))
	more := false
	for _, j := range jobs {
		m := g.mark()
		again, jerr := j.apply(g)
		if jerr != nil {
			g.rollback(m)
		}
		errs = append(errs, jerr)
		if more = again && jerr == nil; more || g.b.full() {
			break
		}
	}
	var fatal *storeError
	for _, e := range errs {
		if errors.As(e, &fatal) {
			return len(errs), fatal
		}
	}
	if g.recheck && g.held > 0 {
		if err := g.release(); err != nil {
			return len(errs), err
		}
	}
	if err := l.finishGroup(g); err != nil {
		return len(errs), err
	}
	done := len(errs)
	if more {
		done--
	}
	for i, e := range errs {
		if e == nil {
			jobs[i].committed()
		}
		if i < done {
			jobs[i].finish(e)
		}
	}
	l.cfg.at(pointAnswered)
	return done, nil
}

// storeError marks an error of the store inside apply: it stops the log,
// where other errors only fail their job.
type storeError struct{ err error }

func (e *storeError) Error() string { return e.err.Error() }
func (e *storeError) Unwrap() error { return e.err }

func fatal(err error) error {
	if err == nil {
		return nil
	}
	return &storeError{err}
}

// finishGroup commits the group, signs the own head while the disk syncs, and
// publishes both. A group without writes commits nothing.
func (l *Log) finishGroup(g *group) error {
	if l.w.pendingHead != nil && (g.b.items.Len() > 0 || l.isQuitting()) {
		g.storeHead(g.laneAt(l.self), l.w.pendingHead)
	}
	if g.b.items.Len() == 0 {
		return nil
	}
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
	var own *lane
	var head Head
	signed := make(chan struct{})
	if idx, ok := g.selfLane(); ok {
		if ln := g.lanes[idx]; ln != nil && (ln.head.Seq != ln.tip.Seq || g.floorAsked(ln)) {
			own = ln
			head = Head{Origin: ln.id, Seq: ln.tip.Seq, Hash: ln.tip.Hash, Floor: g.ceiling.Next()}
		}
	}
	go func() {
		defer close(signed)
		if own != nil {
			head.sign(l.cfg.Signer)
		}
	}()
	l.cfg.at(pointApplied)
	err := l.db.commit(g.b)
	<-signed
	if err != nil {
		return err
	}
	l.cfg.at(pointCommitted)
	l.w.pendingHead = nil
	if own != nil {
		own.head = head
		l.w.pendingHead = &head
	}
	l.publish(g)
	l.cfg.at(pointPublished)
	if g.maxSeen != 0 {
		if err := l.clock.Merge(g.maxSeen); err != nil {
			l.cfg.Logger.Warn("clock not moved", "error", err)
		}
	}
	return nil
}

func (l *Log) isQuitting() bool {
	select {
	case <-l.quit:
		return true
	default:
		return false
	}
}

// selfLane is the own lane's index, in this group or before.
func (g *group) selfLane() (uint32, bool) {
	if idx, ok := g.byID[g.l.w.id]; ok {
		return idx, true
	}
	return g.l.self, g.l.hasSelf
}

// floorAsked reports whether a job of this group wants a fresh own head
// though no entry was added.
func (g *group) floorAsked(ln *lane) bool { return g.ownSeq != 0 && g.ownSeq == ln.tip.Seq }

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
	for id, idx := range g.byID {
		l.byID[id] = idx
		if id == l.w.id {
			l.self, l.hasSelf = idx, true
		}
	}
	l.infos = g.infos
	l.aside = g.held
	l.w.arrival = g.arrival
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
