package oplog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"time"

	"tallystick/hlc"
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

// group is one transaction in the making. Lanes are copied before they are
// changed; everything can be taken back to a mark. It may stand on a group
// that is still being synced.
type group struct {
	l        *Log
	prev     *group // the group it stands on, nil when that has landed
	b        *batch
	txs      []*viewTx
	lanes    map[uint32]*lane
	byID     map[OriginID][]uint32 // lanes added by this group
	nlanes   uint32
	arrival  uint64
	infos    []viewState
	held     int
	maxSeen  hlc.Timestamp // highest stamp of visible entries not merged yet
	ceiling  hlc.Timestamp
	recheck  bool   // an entry was folded that may release held ones
	reborn   string // why the own incarnation was given up in this group
	swapped  bool   // a view changes its generation
	ownSeq   uint64 // a job wants a fresh own head at this seq
	erases   []Hash // named by erases of this group
	erasing  int    // named entries whose bytes are still here
	amending int    // named entries that wait for ApplyAmends
	blobs    []Hash // blobs whose record changed

	owed      int  // entries whose payload is owed
	owedMoved bool // some became owed, or ceased to be by an erase

	answers []answer
	payload int

	marked   groupMark   // the last mark: there is one job at a time
	wasInfos []viewState // before the entry that is being folded
}

type answer struct {
	j   job
	err error
}

// groupMark is the group before a job.
type groupMark struct {
	mark     batchMark
	lanes    []lane // of group.lanes
	byID     map[OriginID][]uint32
	nlanes   uint32
	arrival  uint64
	infos    []viewState
	held     int
	maxSeen  hlc.Timestamp
	ceiling  hlc.Timestamp
	recheck  bool
	erases   int
	erasing  int
	amending int
	blobs    int
}

// newGroup starts a group on top of prev, or on the store when prev is nil.
func (l *Log) newGroup(prev *group) *group {
	g := &group{l: l, prev: prev, lanes: map[uint32]*lane{}, byID: map[OriginID][]uint32{}}
	defer func() { l.w.spare = nil }()
	if prev != nil {
		g.b = newBatch(prev.b, l.w.spare)
		g.nlanes, g.arrival, g.held = prev.nlanes, prev.arrival, prev.held
		g.infos, g.erasing = append([]viewState(nil), prev.infos...), prev.erasing
		g.amending, g.owed = prev.amending, prev.owed
		return g
	}
	g.b = newBatch(l.db.snapshot(), l.w.spare)
	g.nlanes, g.arrival, g.held = uint32(len(l.lanes)), l.w.arrival, l.aside
	g.infos, g.erasing = append([]viewState(nil), l.infos...), l.erasing
	g.amending, g.owed = l.amending, l.owed
	return g
}

// mark notes the group as it is, over the mark before.
func (g *group) mark() {
	m := &g.marked
	*m = groupMark{
		mark: g.b.mark(), lanes: m.lanes[:0], nlanes: g.nlanes, arrival: g.arrival, infos: append(m.infos[:0], g.infos...),
		held: g.held, maxSeen: g.maxSeen, ceiling: g.ceiling, recheck: g.recheck, erases: len(g.erases), erasing: g.erasing,
		blobs: len(g.blobs), amending: g.amending,
	}
	for _, ln := range g.lanes {
		m.lanes = append(m.lanes, *ln)
	}
	if len(g.byID) > 0 {
		m.byID = maps.Clone(g.byID)
	}
}

// rollback takes the group back to its mark.
func (g *group) rollback() {
	m := &g.marked
	g.b.rollback(m.mark)
	clear(g.lanes)
	for _, ln := range m.lanes {
		g.lanes[ln.idx] = &ln
	}
	clear(g.byID)
	maps.Copy(g.byID, m.byID)
	copy(g.infos, m.infos)
	g.nlanes, g.arrival = m.nlanes, m.arrival
	g.held, g.maxSeen, g.ceiling, g.recheck = m.held, m.maxSeen, m.ceiling, m.recheck
	g.erases, g.erasing, g.amending = g.erases[:m.erases], m.erasing, m.amending
	g.blobs = g.blobs[:m.blobs]
}

// lane returns the group's own copy of an origin's first lane, nil if unknown.
func (g *group) lane(id OriginID) *lane {
	if all := g.lanesOf(id); len(all) > 0 {
		return g.laneAt(all[0])
	}
	return nil
}

// lanesOf lists the lanes of an origin as this group sees them.
func (g *group) lanesOf(id OriginID) []uint32 {
	all := g.l.byID[id]
	if g.prev != nil {
		all = append(all[:len(all):len(all)], g.prev.byID[id]...)
	}
	return append(all[:len(all):len(all)], g.byID[id]...)
}

func (g *group) laneAt(idx uint32) *lane {
	ln := g.peek(idx)
	if _, ok := g.lanes[idx]; !ok {
		c := *ln
		ln = &c
		g.lanes[idx] = ln
	}
	return ln
}

// peek is a lane as this group sees it, not to be changed.
func (g *group) peek(idx uint32) *lane {
	for p := g; p != nil; p = p.prev {
		if ln, ok := p.lanes[idx]; ok {
			return ln
		}
	}
	return g.l.lanes[idx]
}

func (g *group) addLane(id OriginID, key DeviceKey, inc Incarnation) *lane {
	ln := &lane{idx: g.nlanes, id: id, key: key, inc: inc, parent: g.nlanes, forceCheck: true}
	g.putLane(ln)
	return ln
}

// addBranch starts a lane after entry seq of another lane of the same origin.
func (g *group) addBranch(parent *lane, seq uint64) *lane {
	ln := &lane{
		idx: g.nlanes, id: parent.id, key: parent.key, inc: parent.inc,
		parent: parent.idx, forkSeq: seq, forceCheck: true,
	}
	g.putLane(ln)
	return ln
}

func (g *group) putLane(ln *lane) {
	g.nlanes++
	g.lanes[ln.idx] = ln
	g.byID[ln.id] = append(g.byID[ln.id][:len(g.byID[ln.id]):len(g.byID[ln.id])], ln.idx)
	g.b.set(laneKey(tabLane, ln.idx), ln.record())
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

// closed reports whether no further job should join.
func (g *group) closed() bool {
	return len(g.answers) >= maxGroupJobs || g.payload >= maxGroupPayload || g.b.full()
}

// take applies a job to the group. A job that does not fit beside the others,
// or has more to write, comes back as carry for the next group. A returned
// error is the store's.
func (g *group) take(j job) (carry job, err error) {
	g.mark()
	more, err := j.apply(g)
	if err != nil {
		g.rollback()
		var broken *storeError
		if errors.As(err, &broken) {
			j.finish(fmt.Errorf("oplog: %w", broken.err))
			return nil, broken.err
		}
		if errors.Is(err, errNextGroup) {
			return j, nil
		}
	} else if g.b.over() {
		g.rollback()
		if len(g.answers) > 0 {
			return j, nil
		}
		err = &LimitError{Field: "transaction", Size: maxBatchBytes + 1, Limit: maxBatchBytes}
	}
	if err != nil {
		// Even a refusal is told after the sync: it may rest on what is in this
		// group.
		g.answers = append(g.answers, answer{j, err})
		return nil, nil
	}
	j.accept()
	g.payload += j.size()
	if g.maxSeen != 0 {
		if err := g.l.clock.Merge(g.maxSeen); err != nil {
			g.l.cfg.Logger.Warn("clock not moved", "error", err)
		}
		g.maxSeen = 0
	}
	if more {
		g.payload = maxGroupPayload
		return j, nil
	}
	g.answers = append(g.answers, answer{j, nil})
	return nil, nil
}

// answer tells every job of the group; a nil err gives each its own.
func (g *group) answer(err error) {
	for _, a := range g.answers {
		if err != nil {
			a.j.finish(err)
		} else {
			a.j.finish(a.err)
		}
	}
}

// storePending puts the own head that was signed beside the last sync into
// this group.
func (g *group) storePending() {
	h := g.l.w.pendingHead
	if h == nil {
		return
	}
	g.l.w.pendingHead = nil
	g.storeHead(g.lane(h.Origin), h)
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

// errNextGroup is returned by apply for a job that must not share its group
// with what is already in it.
var errNextGroup = errors.New("oplog: next group")

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
	l.erasing, l.amending, l.owed = g.erasing, g.amending, g.owed
	if g.owedMoved {
		l.owedEpoch++
	}
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
