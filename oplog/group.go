package oplog

import (
	"errors"
	"fmt"
	"maps"

	"tallystick/hlc"
)

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

	owed      int  // entries that are owed
	owedMoved bool // some became owed, or ceased to be by an erase
	mended    int  // entries that are back and that the views lack

	endings map[DeviceKey]Ending // never changed in place
	recut   recut

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
	endings map[DeviceKey]Ending
	recut   recut

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

	owed, mended int
	owedMoved    bool

	blobs int
}

// newGroup starts a group on top of prev, or on the store when prev is nil.
func (l *Log) newGroup(prev *group) *group {
	g := &group{l: l, prev: prev, lanes: map[uint32]*lane{}, byID: map[OriginID][]uint32{}}
	defer func() { l.w.spare = nil }()
	g.endings, g.recut = l.endings, l.recut
	if prev != nil {
		g.endings, g.recut = prev.endings, prev.recut
		g.b = newBatch(prev.b, l.w.spare)
		g.nlanes, g.arrival, g.held = prev.nlanes, prev.arrival, prev.held
		g.infos, g.erasing = append([]viewState(nil), prev.infos...), prev.erasing
		g.amending, g.owed, g.mended = prev.amending, prev.owed, prev.mended
		return g
	}
	g.b = newBatch(l.db.snapshot(), l.w.spare)
	g.nlanes, g.arrival, g.held = uint32(len(l.lanes)), l.w.arrival, l.aside
	g.infos, g.erasing = append([]viewState(nil), l.infos...), l.erasing
	g.amending, g.owed, g.mended = l.amending, l.owed, l.mended
	return g
}

// mark notes the group as it is, over the mark before.
func (g *group) mark() {
	m := &g.marked
	*m = groupMark{
		mark: g.b.mark(), lanes: m.lanes[:0], nlanes: g.nlanes, arrival: g.arrival, infos: append(m.infos[:0], g.infos...),
		held: g.held, maxSeen: g.maxSeen, ceiling: g.ceiling, recheck: g.recheck, erases: len(g.erases), erasing: g.erasing,
		blobs: len(g.blobs), amending: g.amending, owed: g.owed, owedMoved: g.owedMoved, mended: g.mended,
	}
	m.endings, m.recut = g.endings, g.recut
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
	g.endings, g.recut = m.endings, m.recut
	g.nlanes, g.arrival = m.nlanes, m.arrival
	g.held, g.maxSeen, g.ceiling, g.recheck = m.held, m.maxSeen, m.ceiling, m.recheck
	g.erases, g.erasing, g.amending = g.erases[:m.erases], m.erasing, m.amending
	g.owed, g.owedMoved, g.mended = m.owed, m.owedMoved, m.mended
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
