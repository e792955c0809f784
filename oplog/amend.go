package oplog

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"tallystick/hlc"
)

// An amend sets stamps right that a wrong clock has put into the future (C3).
// It names an origin and the last entry it speaks for, and no stamp of its
// own: that entry and all before it on its line that are stamped above the
// amend's header count as stamped with the header's timestamp. Of several the
// lowest counts, and none raises a stamp. It acts on receipt, also when it
// comes before the entries it names, and on every line on which the named entry
// lies. Headers, and so the chain, stay as they are: what is amended is kept
// beside the stored entry.
//
// The table of amends is a minimum per named entry, and what an entry counts
// as is the minimum over the amends whose named entry has it on its line, so
// neither depends on the order of arrival (M1). Held entries are folded as
// amended; when entries were folded before, views are rebuilt.

const (
	kindAmend    = "tally.amend"
	amendVersion = 0

	amendedFlag = 0x10 // in a stored entry's state: 8 bytes behind the entry are what it counts as

	amendWalk  = 1 // the entries it speaks for are here and not all marked
	amendStale = 2 // views have rows of entries from before they were marked
)

// KindAmend is the kind of an amend.
const KindAmend = kindAmend

// Amendment is the payload of an amend: every entry up to Last, which lies on
// one line of Origin.
type Amendment struct {
	Origin OriginID
	Last   Tip
}

func (a *Amendment) body() []byte {
	b := appendArrayLen(nil, 3)
	b = appendBin(b, a.Origin[:])
	b = appendUint(b, a.Last.Seq)
	return appendBin(b, a.Last.Hash[:])
}

// Op is the op that writes the amend, for who appends by himself. Log.Amend is
// the usual way.
func (a *Amendment) Op(author, opID string) Op {
	return Op{Kind: kindAmend, Author: author, Version: amendVersion, OpID: opID, Body: a.body()}
}

func parseAmendment(body []byte) (a Amendment, err error) {
	r := reader{b: body}
	r.array(3)
	r.fixed(a.Origin[:])
	a.Last.Seq = r.uint()
	r.fixed(a.Last.Hash[:])
	r.end()
	if r.err == nil && (a.Last.Seq == 0 || a.Last.Hash.IsZero() || a.Origin.IsZero()) {
		r.fail("nothing named before the end")
	}
	return a, r.err
}

// AmendmentOf reads an amend; false for every other entry.
func AmendmentOf(e *Entry) (Amendment, bool) {
	if e.Kind != kindAmend || !e.Present() || e.Version != amendVersion {
		return Amendment{}, false
	}
	a, err := parseAmendment(e.Body)
	return a, err == nil
}

// FutureLine is a line of an origin whose newest entry is stamped further ahead
// of the wall clock than the bound and not amended.
type FutureLine struct {
	Origin OriginID
	Key    DeviceKey
	Last   Tip           // the newest entry, up to which an amend would speak
	Stamp  hlc.Timestamp // its stamp
	Held   uint64        // first seq that is held; 0 when all was folded here
}

// FutureLines lists what a wrong clock has stamped, in order of first sight.
func (l *Log) FutureLines() []FutureLine {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var out []FutureLine
	for _, ln := range l.lanes {
		if _, far := l.clock.Ahead(ln.last); far && !ln.amended {
			out = append(out, FutureLine{ln.id, ln.key, ln.tip, ln.last, ln.heldFrom})
		}
	}
	return out
}

// amendRecord is what the table keeps of a named entry.
type amendRecord struct {
	stamp hlc.Timestamp // lowest header timestamp of the amends that name it
	state byte
}

const amendRecordLen = 9

func (r amendRecord) bytes() []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(r.stamp)), r.state)
}

func amendOf(b []byte) (amendRecord, error) {
	if len(b) != amendRecordLen {
		return amendRecord{}, fmt.Errorf("%w: amend record", ErrDamaged)
	}
	return amendRecord{hlc.Timestamp(binary.BigEndian.Uint64(b)), b[8]}, nil
}

// Amend writes an amend of the entries of origin up to last, and returns when
// the views here show it. The entry must be held here. guard, if set, is that
// of Op.
func (l *Log) Amend(ctx context.Context, author, opID string, a Amendment, guard func(Views, hlc.Timestamp) error) (Appended, error) {
	held, err := l.Holds(a.Origin, a.Last)
	if err != nil {
		return Appended{}, err
	}
	if !held {
		return Appended{}, fmt.Errorf("%w: seq %d of %s", ErrNotFound, a.Last.Seq, a.Origin)
	}
	op := a.Op(author, opID)
	op.Guard = guard
	res, err := l.Append(ctx, op)
	if err != nil {
		return Appended{}, err
	}
	return res[0], l.ApplyAmends(ctx)
}

// AmendPending is how many named entries wait for ApplyAmends.
func (l *Log) AmendPending() int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.amending
}

// ApplyAmends lets amends act whose entries are here: those of peers included.
// It releases what is held and then in time, and rebuilds the views when they
// have folded such entries before. It does nothing when nothing is pending.
func (l *Log) ApplyAmends(ctx context.Context) error {
	if l.AmendPending() == 0 {
		return nil
	}
	j := &amendJob{waiter: newWaiter()}
	if err := l.submit(ctx, j); err != nil {
		return err
	}
	if err := l.wait(ctx, j.waiter); err != nil {
		return err
	}
	if l.AmendPending() == 0 {
		return nil
	}
	return l.Rebuild(ctx, nil)
}

// loadAmends reads which origins amends name, and how many are pending.
func (l *Log) loadAmends(kv kvSnapshot) error {
	l.w.amended = map[OriginID]bool{}
	return kv.scan([]byte{tabAmend}, nil, false, func(key, value []byte) (bool, error) {
		r, err := amendOf(value)
		if err != nil || len(key) != amendKeyLen {
			return false, fmt.Errorf("%w: amend record", ErrDamaged)
		}
		l.w.amended[OriginID(key[1:])] = true
		if r.state != 0 {
			l.amending++
		}
		return true, nil
	})
}

// foldAmend notes what an amend names.
func (g *group) foldAmend(e *Entry) error {
	if e.Version != amendVersion {
		return Quarantine("amend of version %d, this program knows %d", e.Version, amendVersion)
	}
	a, err := parseAmendment(e.Body)
	if err != nil {
		return Quarantine("amend: %v", err)
	}
	key := amendKey(a.Origin, a.Last)
	rec := amendRecord{stamp: e.Stamped()}
	switch old, err := g.b.get(key); {
	case err == nil:
		was, err := amendOf(old)
		if err != nil {
			return err
		}
		if was.stamp <= rec.stamp {
			return nil
		}
		rec.state = was.state
	case !errors.Is(err, ErrNotFound):
		return err
	}
	here, err := g.holdsTip(a.Origin, a.Last)
	if err != nil {
		return err
	}
	g.noteAmend(key, rec, here)
	g.l.w.amended[a.Origin] = true // stays when the group is taken back: it only says where to look
	return nil
}

// noteAmend stores a record; walk says that its entries are here and have to
// be marked.
func (g *group) noteAmend(key []byte, rec amendRecord, walk bool) {
	if walk {
		if rec.state == 0 {
			g.amending++
		}
		rec.state |= amendWalk
	}
	g.b.set(key, rec.bytes())
}

// holdsTip reports whether the named entry is here and of that origin.
func (g *group) holdsTip(o OriginID, t Tip) (bool, error) {
	p, err := g.find(&t.Hash)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil && p.seq == t.Seq && g.peek(p.lane).id == o, err
}

// arrivedForAmend looks whether an entry that has just been stored is one that
// an amend has named before.
func (g *group) arrivedForAmend(e *Entry) error {
	if !g.l.w.amended[e.Origin] {
		return nil
	}
	key := amendKey(e.Origin, Tip{Seq: e.Seq, Hash: e.Hash})
	v, err := g.b.get(key)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return fatal(err)
	}
	rec, err := amendOf(v)
	if err != nil {
		return fatal(err)
	}
	g.noteAmend(key, rec, true)
	return nil
}

// amendJob marks the entries that pending amends speak for, as many as fit a
// transaction at a time, and then releases what was held for being in the
// future.
type amendJob struct {
	waiter
	at, next amendPlace
}

// amendPlace is how far a walk has come: down the line of the entry in key.
type amendPlace struct {
	key string
	p   place
}

func (j *amendJob) size() int { return 0 }
func (j *amendJob) accept()   { j.at = j.next }

func (j *amendJob) apply(g *group) (more bool, err error) {
	j.next = j.at
	pending := map[string]amendRecord{}
	var keys []string
	err = g.b.scan([]byte{tabAmend}, nil, false, func(key, value []byte) (bool, error) {
		rec, err := amendOf(value)
		if err == nil && rec.state&amendWalk != 0 {
			keys = append(keys, string(key))
			pending[string(key)] = rec
		}
		return true, err
	})
	if err != nil {
		return false, fatal(err)
	}
	for _, key := range keys {
		done, err := j.walk(g, key, pending[key])
		if err != nil {
			return false, fatal(err)
		}
		if !done {
			return true, nil
		}
	}
	return false, g.release()
}

// walk goes down the line from the named entry as long as headers are stamped
// above the amend; done when it is through.
func (j *amendJob) walk(g *group, key string, rec amendRecord) (done bool, err error) {
	p := j.next.p
	if j.next.key != key {
		h := Hash([]byte(key[amendKeyLen-len(Hash{}):]))
		if p, err = g.find(&h); err != nil {
			return false, err
		}
	}
	for ; p.seq > 0; p.seq-- {
		ln := g.peek(p.lane)
		for ln.branch() && p.seq <= ln.forkSeq {
			ln = g.peek(ln.parent)
		}
		p.lane = ln.idx
		if g.b.full() {
			j.next = amendPlace{key, p}
			g.b.set([]byte(key), rec.bytes())
			return false, nil
		}
		v, err := g.b.get(seqKey(tabEntry, p.lane, p.seq))
		if err != nil {
			return false, err
		}
		e, err := parseStored(v)
		if err != nil {
			return false, err
		}
		if e.Stamped() <= rec.stamp {
			break
		}
		if e.Time <= rec.stamp {
			continue // a lower one got here first
		}
		stale, err := g.amendEntry(ln, &e, v, rec.stamp)
		if err != nil {
			return false, err
		}
		if stale {
			rec.state |= amendStale
		}
	}
	j.next = amendPlace{}
	if rec.state &^= amendWalk; rec.state == 0 {
		g.amending--
	}
	g.b.set([]byte(key), rec.bytes())
	return true, nil
}

// amendEntry stores what an entry counts as from now on; stale says that it is
// in some view already.
func (g *group) amendEntry(ln *lane, e *Entry, stored []byte, stamp hlc.Timestamp) (stale bool, err error) {
	was := e.Ref()
	if e.stamped == 0 {
		e.stamped = e.Time
	}
	e.Time = stamp
	if e.Seq == ln.tip.Seq {
		g.laneAt(ln.idx).amended = true
	}
	state := stored[0] &^ amendedFlag
	g.b.set(seqKey(tabEntry, ln.idx, e.Seq), storedEntry(state, binary.BigEndian.Uint64(stored[1:]), e))
	if e.OpID != "" {
		if err := g.indexOp(ln, e); err != nil {
			return false, err
		}
	}
	if state == stateVisible && e.Present() {
		for _, p := range g.l.namers[e.Kind] {
			for _, n := range p.Blobs(e) {
				g.b.del(nameKey(&n.Hash, was))
				g.b.set(nameKey(&n.Hash, e.Ref()), nil)
			}
		}
	}
	return state == stateVisible && len(g.l.folds[e.Kind])+len(g.l.all) > 0, nil
}

// Revision sums up what was changed of entries after they came: by the amends
// that the views of this snapshot show, and by the endings of devices. It is
// zero when nothing was: who keeps something made of entries beside the log
// knows by it that stamps have changed, or what counts.
func (s *snapshot) Revision() (sum Hash, err error) {
	h := sha256.New()
	n := 0
	err = s.kv.scan([]byte{tabAmend}, nil, false, func(key, value []byte) (bool, error) {
		rec, err := amendOf(value)
		if err == nil && rec.state == 0 {
			h.Write(key)
			h.Write(value)
			n++
		}
		return true, err
	})
	if err == nil && s.l.ended() {
		n++
		err = s.sumEndings(h)
	}
	if err == nil && n > 0 {
		h.Sum(sum[:0])
	}
	return sum, err
}

// staleAmends lists the amends that the views do not show yet.
func (g *group) staleAmends() (stale map[string]hlc.Timestamp, err error) {
	if len(g.l.w.amended) == 0 {
		return nil, nil
	}
	stale = map[string]hlc.Timestamp{}
	err = g.b.scan([]byte{tabAmend}, nil, false, func(key, value []byte) (bool, error) {
		rec, err := amendOf(value)
		if err == nil && rec.state&amendStale != 0 {
			stale[string(key)] = rec.stamp
		}
		return true, err
	})
	return stale, err
}

// settleAmends notes that the views show what was stale when their rebuild
// began.
func (g *group) settleAmends(stale map[string]hlc.Timestamp) error {
	for key, stamp := range stale {
		v, err := g.b.get([]byte(key))
		if err != nil {
			return err
		}
		rec, err := amendOf(v)
		if err != nil {
			return err
		}
		if rec.stamp != stamp || rec.state != amendStale {
			continue // lowered since; another rebuild follows
		}
		rec.state = 0
		g.amending--
		g.b.set([]byte(key), rec.bytes())
	}
	return nil
}
