package oplog

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"tallystick/hlc"
)

// A device that was revoked or has left has an ending: cuts, up to which its
// log counts (T2). An entry that does not lie at or before a cut on its line is
// void: it is stored, listed as beyond the cut and in no view, and a device
// whose own log has ended appends nothing. Which endings there are the gate says
// (Cutter), from the views alone; so when a revoke comes late, or one that
// reaches further, entries change sides. ApplyEndings brings what is stored in
// line and rebuilds the views when they showed what is void now.

// Cut is the last entry that counts of one line of an origin.
type Cut struct {
	Origin OriginID
	Tip    Tip
	Head   Head // signed by the device for just that entry; zero if there is none
}

// Ending says up to where the log of a device counts.
type Ending struct {
	At     hlc.Timestamp // from which on the device is no member
	Cuts   []Cut         // none: nothing of it counts
	Reason string        // for people: why the rest does not count
}

func (e *Ending) equal(f *Ending) bool {
	return e.At == f.At && e.Reason == f.Reason && slices.Equal(e.Cuts, f.Cuts)
}

// Cutter is implemented by a Gate that knows which devices' logs have ended.
type Cutter interface {
	// Acts are the kinds by which endings come about. Entries of these kinds are
	// folded wherever they lie: the gate's own view judges which count.
	Acts() []string
	// Endings reads the endings from the views. It is asked at open and after
	// every entry of one of Acts.
	Endings(views Views) (map[DeviceKey]Ending, error)
}

// ErrEnded means that the log of this device has ended: it was revoked or has
// left, and nothing that it appended now would count anywhere.
var ErrEnded = errors.New("oplog: the log of this device has ended")

// EndingsOf gives the endings as they stand in the transaction of a fold. A
// projection that needs them must fold the gate's acts, after the gate's own
// view.
func EndingsOf(tx Tx) (map[DeviceKey]Ending, error) {
	t, ok := tx.(*viewTx)
	if !ok || t.g.l.cutter == nil {
		return nil, nil
	}
	return t.g.l.cutter.Endings(t.g)
}

// Lines is what the log knows of how entries hang together, for a fold that
// judges cuts.
type Lines interface {
	// DeviceOf is the device whose incarnation an origin is.
	DeviceOf(o OriginID) (key DeviceKey, ok bool)
	// Within reports whether an entry lies at or before a cut on its line. While
	// the cut's own entry is not here, everything of its origin with a lower seq
	// passes.
	Within(ref Ref, cut *Cut) (bool, error)
}

// LinesOf gives the lines as they stand in the transaction of a fold; nil when
// the Tx is not the log's.
func LinesOf(tx Tx) Lines {
	if t, ok := tx.(*viewTx); ok {
		return groupLines{t.g}
	}
	return nil
}

type groupLines struct{ g *group }

func (l groupLines) DeviceOf(o OriginID) (DeviceKey, bool) {
	all := l.g.lanesOf(o)
	if len(all) == 0 {
		return DeviceKey{}, false
	}
	return l.g.peek(all[0]).key, true
}

func (l groupLines) Within(ref Ref, cut *Cut) (bool, error) {
	tag := ref.Tag()
	v, err := l.g.b.get(hashKey(tag[:]))
	if errors.Is(err, ErrNotFound) {
		return ref.Origin() == cut.Origin && ref.Seq() <= cut.Tip.Seq, nil
	}
	if err != nil {
		return false, err
	}
	p, err := placeOf(v)
	if err != nil {
		return false, err
	}
	return l.g.within(l.g.peek(p.lane), ref.Seq(), tag[:], cut)
}

// within reports whether the entry at seq of a lane, whose hash begins with
// tag, lies at or before a cut on its line.
func (g *group) within(ln *lane, seq uint64, tag []byte, cut *Cut) (bool, error) {
	switch {
	case ln.id != cut.Origin || seq > cut.Tip.Seq:
		return false, nil
	case seq == cut.Tip.Seq:
		return string(tag) == string(cut.Tip.Hash[:len(tag)]), nil
	case len(g.lanesOf(ln.id)) == 1:
		return true, nil
	}
	p, err := g.find(&cut.Tip.Hash)
	if errors.Is(err, ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	on := g.peek(p.lane)
	for on.branch() && seq <= on.forkSeq {
		on = g.peek(on.parent)
	}
	return on.idx == ln.idx, nil
}

// beyond reports whether an entry is void, and why.
func (g *group) beyond(ln *lane, kind string, seq uint64, hash *Hash) (reason string, void bool, err error) {
	end, ended := g.endings[ln.key]
	if !ended || g.l.acts[kind] {
		return "", false, nil
	}
	for i := range end.Cuts {
		if in, err := g.within(ln, seq, hash[:8], &end.Cuts[i]); in || err != nil {
			return "", false, err
		}
	}
	return "beyond cut: " + end.Reason, true, nil
}

// recut says whether stored entries have to be brought in line with the endings.
type recut struct {
	n       uint64 // counts what made it so
	pending bool
	stale   bool // views show what is void now, or not what counts again
}

const recutLen = 9

func (g *group) saveRecut() {
	b := binary.BigEndian.AppendUint64(nil, g.recut.n)
	if g.recut.stale {
		g.b.set(metaKey("recut"), append(b, 1))
		return
	}
	g.b.set(metaKey("recut"), append(b, 0))
}

func (g *group) needRecut() {
	g.recut.n++
	g.recut.pending = true
	g.saveRecut()
}

// refreshEndings asks for the endings anew after an act was folded.
func (g *group) refreshEndings(kind string) error {
	if g.l.cutter == nil || !g.l.acts[kind] {
		return nil
	}
	return g.askEndings()
}

func (g *group) askEndings() error {
	now, err := g.l.cutter.Endings(g)
	if err != nil {
		return err
	}
	if maps.EqualFunc(now, g.endings, func(a, b Ending) bool { return a.equal(&b) }) {
		return nil
	}
	g.endings = now
	g.needRecut()
	return nil
}

// branched looks whether an entry that has just been stored may show which
// line a cut lies on.
func (g *group) branched(ln *lane) {
	if _, ended := g.endings[ln.key]; ended && len(g.lanesOf(ln.id)) > 1 {
		g.needRecut()
	}
}

// loadEndings reads the endings, and whether some wait to be applied.
func (l *Log) loadEndings() (err error) {
	if l.cutter == nil {
		return nil
	}
	s := l.snapshot()
	defer s.kv.release()
	if l.endings, err = l.cutter.Endings(s); err != nil {
		return err
	}
	switch v, err := s.kv.get(metaKey("recut")); {
	case errors.Is(err, ErrNotFound):
	case err != nil:
		return err
	case len(v) != recutLen:
		return fmt.Errorf("%w: recut record", ErrDamaged)
	default:
		l.recut = recut{n: binary.BigEndian.Uint64(v), pending: true, stale: v[8] == 1}
	}
	return nil
}

// Endings says which devices' logs have ended, and where. The map is not to be
// changed.
func (l *Log) Endings() map[DeviceKey]Ending {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.endings
}

// ended reports whether any device's log has ended.
func (l *Log) ended() bool { return len(l.Endings()) > 0 }

// sumEndings writes down the endings of a snapshot, and whether what is stored
// is in line with them.
func (s *snapshot) sumEndings(w io.Writer) error {
	endings, err := s.l.cutter.Endings(s)
	if err != nil {
		return err
	}
	for _, key := range slices.SortedFunc(maps.Keys(endings), func(a, b DeviceKey) int { return bytes.Compare(a[:], b[:]) }) {
		e := endings[key]
		fmt.Fprintf(w, "%x %d\n", key, e.At)
		for _, c := range e.Cuts {
			fmt.Fprintf(w, "%x %d %x\n", c.Origin, c.Tip.Seq, c.Tip.Hash)
		}
	}
	switch v, err := s.kv.get(metaKey("recut")); {
	case err == nil:
		fmt.Fprintf(w, "recut %x\n", v)
	case !errors.Is(err, ErrNotFound):
		return err
	}
	return nil
}

// EndingsPending reports whether ApplyEndings has something to do.
func (l *Log) EndingsPending() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.recut.pending
}

// ApplyEndings brings what is stored in line with the endings: what lies beyond
// a cut is set aside, what does not any more is folded. It rebuilds the views
// when they have folded such entries before. It does nothing when nothing is
// pending.
func (l *Log) ApplyEndings(ctx context.Context) error {
	for l.EndingsPending() {
		j := &recutJob{waiter: newWaiter()}
		if err := l.submit(ctx, j); err != nil {
			return err
		}
		if err := l.wait(ctx, j.waiter); err != nil {
			return err
		}
		if j.stale {
			if err := l.Rebuild(ctx, nil); err != nil {
				return err
			}
		}
		d := &recutDone{waiter: newWaiter(), n: j.n}
		if err := l.submit(ctx, d); err != nil {
			return err
		}
		if err := l.wait(ctx, d.waiter); err != nil {
			return err
		}
	}
	return nil
}

// recutJob marks entries, as many as fit a transaction at a time.
type recutJob struct {
	waiter
	n        uint64
	stale    bool
	at, next place // how far the lanes are looked through
}

func (j *recutJob) size() int { return 0 }
func (j *recutJob) accept()   { j.at = j.next }

func (j *recutJob) apply(g *group) (more bool, err error) {
	j.next = j.at
	if j.at == (place{}) {
		j.n = g.recut.n
	}
	for ; j.next.lane < g.nlanes; j.next = (place{j.next.lane + 1, 0}) {
		more, err := j.lane(g)
		if err != nil {
			return false, fatal(err)
		}
		if more {
			return true, nil
		}
	}
	if more, err = j.restore(g); err != nil || more {
		return more, err
	}
	j.stale = g.recut.stale
	return false, g.release()
}

// lane sets aside what is void on a lane.
func (j *recutJob) lane(g *group) (more bool, err error) {
	ln := g.peek(j.next.lane)
	if _, ended := g.endings[ln.key]; !ended {
		return false, nil
	}
	type row struct {
		seq   uint64
		value []byte
	}
	var rows []row
	start := seqKey(tabEntry, ln.idx, j.next.seq)
	err = g.b.scan(laneKey(tabEntry, ln.idx), start, false, func(key, value []byte) (bool, error) {
		if len(value) == 0 || value[0]&^amendedFlag != stateBeyond {
			rows = append(rows, row{binary.BigEndian.Uint64(key[5:]), slices.Clone(value)})
		}
		return len(rows) < recutRows, nil
	})
	if err != nil {
		return false, err
	}
	for _, r := range rows {
		j.next.seq = r.seq
		if g.b.full() {
			return true, nil
		}
		e, good, err := g.goodAt(place{ln.idx, r.seq})
		if err == nil && !good {
			err = j.passOver(g, place{ln.idx, r.seq}, r.value)
		}
		if err != nil {
			return false, err
		}
		if !good {
			continue
		}
		reason, void, err := g.beyond(ln, e.Kind, e.Seq, &e.Hash)
		if err != nil {
			return false, err
		}
		switch {
		case void:
			j.setAside(g, ln.idx, &e, r.value, reason)
		case r.value[0]&^amendedFlag == stateHeld:
			if own := g.laneAt(ln.idx); own.heldFrom == 0 {
				own.heldFrom = e.Seq // an act behind what is void
			}
		}
	}
	j.next.seq++
	return len(rows) == recutRows, nil
}

// passOver leaves a damaged entry where it is: what it was nobody can say before
// it is back, and then it is looked at again (mend). Until then views do without.
func (j *recutJob) passOver(g *group, p place, stored []byte) error {
	g.l.suspectAt(p)
	state, _, err := g.standing(p, stored)
	if err == nil && state == stateVisible {
		g.markStale()
	}
	return err
}

// recutRows is how many entries are looked at in one transaction.
const recutRows = 4096

func (j *recutJob) setAside(g *group, idx uint32, e *Entry, value []byte, reason string) {
	switch value[0] &^ amendedFlag {
	case stateVisible:
		if e.Present() && len(g.l.folds[e.Kind])+len(g.l.all) > 0 {
			g.markStale()
		}
	case stateHeld:
		g.held--
		if ln := g.laneAt(idx); ln.heldFrom == e.Seq {
			ln.heldFrom = 0 // what follows on the lane is void as well
		}
	}
	value[0] = value[0]&amendedFlag | stateBeyond
	g.b.set(seqKey(tabEntry, idx, e.Seq), value)
	g.b.set(seqKey(tabAside, idx, e.Seq), append([]byte{stateBeyond}, clip(reason, 512)...))
}

func (g *group) markStale() {
	if !g.recut.stale {
		g.recut.stale = true
		g.saveRecut()
	}
}

// restore takes back what is void no more.
func (j *recutJob) restore(g *group) (more bool, err error) {
	var list []place
	err = g.b.scan([]byte{tabAside}, nil, false, func(key, value []byte) (bool, error) {
		if len(value) > 0 && value[0] == stateBeyond {
			list = append(list, place{binary.BigEndian.Uint32(key[1:]), binary.BigEndian.Uint64(key[5:])})
		}
		return true, nil
	})
	if err != nil {
		return false, fatal(err)
	}
	for _, p := range list {
		if g.b.full() {
			return true, nil
		}
		e, good, err := g.goodAt(p)
		if err != nil {
			return false, fatal(err)
		}
		if !good {
			g.l.suspectAt(p) // looked at again when it is back
			continue
		}
		_, arrival, err := getEntry(g.b.get, p)
		if err != nil {
			return false, fatal(err)
		}
		ln := g.laneAt(p.lane)
		if _, void, err := g.beyond(ln, e.Kind, e.Seq, &e.Hash); err != nil {
			return false, fatal(err)
		} else if void {
			continue
		}
		g.b.del(seqKey(tabAside, p.lane, p.seq))
		if arrival == 0 {
			err = g.deliver(ln, &e)
		} else { // it has its arrival number; the rebuild folds it
			e.beyond = false
			g.b.set(seqKey(tabEntry, p.lane, p.seq), storedEntry(stateVisible, arrival, &e))
			g.markStale()
		}
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

// recutDone notes that everything is in line, unless the endings have moved on.
type recutDone struct {
	waiter
	n uint64
}

func (j *recutDone) size() int { return 0 }
func (j *recutDone) accept()   {}

func (j *recutDone) apply(g *group) (bool, error) {
	if g.recut.n == j.n {
		g.recut = recut{n: j.n}
		g.b.del(metaKey("recut"))
	}
	return false, nil
}
