package oplog

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"tallystick/hlc"
)

// Erasing removes an entry's payload and salt on every replica and keeps the
// chain, which covers hashes only (T5, L3). An erase is an entry itself. It
// acts on receipt and in whatever order it comes: an entry that arrives after
// its erase is stored without its bytes. Views are rebuilt without the erased
// entries in a second generation while the first is read; the bytes go in the
// transaction that switches over, so that no view ever refers to what is gone.

const (
	kindErase    = "tally.erase"
	eraseVersion = 0
	// MaxEraseHashes bounds what one erase names.
	MaxEraseHashes = 256
	maxReason      = 1024

	erasePending = 1 // named; bytes may still be here
	eraseDone    = 2 // no bytes in the store's live keys
)

// ErrStructural means that an entry is not content: membership, claims, closes
// and the like are kept, for the verdicts that hang on them.
var ErrStructural = errors.New("oplog: this kind of entry cannot be erased")

// Erasure is the payload of an erase.
type Erasure struct {
	Hashes []Hash
	Reason string
}

func (x *Erasure) body() []byte {
	b := appendArrayLen(nil, 2)
	b = appendArrayLen(b, len(x.Hashes))
	for i := range x.Hashes {
		b = appendBin(b, x.Hashes[i][:])
	}
	return appendStr(b, x.Reason)
}

func parseErasure(body []byte) (x Erasure, err error) {
	r := reader{b: body}
	r.array(2)
	n := r.arrayLen()
	if r.err == nil && (n == 0 || n > MaxEraseHashes) {
		r.fail(fmt.Sprintf("%d hashes, limit %d", n, MaxEraseHashes))
	}
	for range n {
		var h Hash
		copy(h[:], r.binN(len(h)))
		if r.err != nil {
			break
		}
		x.Hashes = append(x.Hashes, h)
	}
	x.Reason = string(r.str(maxReason))
	r.end()
	return x, r.err
}

// Erase writes an erase of the named entries and returns when this replica
// has taken their bytes out of the log and all views. Purge takes the old
// versions off the disk. An entry that is held here and is not content is
// ErrStructural, and nothing is written.
func (l *Log) Erase(ctx context.Context, author, opID, reason string, hashes ...Hash) (Appended, error) {
	if len(hashes) == 0 || len(hashes) > MaxEraseHashes {
		return Appended{}, &LimitError{Field: "hashes of one erase", Size: len(hashes), Limit: MaxEraseHashes}
	}
	if len(reason) > maxReason {
		return Appended{}, &LimitError{Field: "reason", Size: len(reason), Limit: maxReason}
	}
	err := l.View(func(s Snapshot) error {
		for _, h := range hashes {
			e, err := s.ByHash(h[:])
			if errors.Is(err, ErrNotFound) {
				continue // it may come later
			}
			if err != nil {
				return err
			}
			if !l.content[e.Kind] {
				return fmt.Errorf("%w: %s is %q", ErrStructural, h, e.Kind)
			}
		}
		return nil
	})
	if err != nil {
		return Appended{}, err
	}
	x := Erasure{Hashes: hashes, Reason: reason}
	res, err := l.Append(ctx, Op{Kind: kindErase, Author: author, Version: eraseVersion, OpID: opID, Body: x.body()})
	if err != nil {
		return Appended{}, err
	}
	return res[0], l.ApplyErasures(ctx)
}

// ErasePending is the number of named entries whose bytes are still here.
func (l *Log) ErasePending() int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.erasing
}

// ApplyErasures carries out what erases ask for: entries that came from peers
// included. It does nothing when nothing is pending.
func (l *Log) ApplyErasures(ctx context.Context) error {
	if l.ErasePending() == 0 {
		return nil
	}
	return l.rebuild(ctx, nil, nil)
}

// Rebuild folds every view anew from the log, while the present one is read,
// and switches over at once. progress, if set, is told how many of how many
// entries are folded; it must not block.
func (l *Log) Rebuild(ctx context.Context, progress func(done, total uint64)) error {
	all := make([]int, len(l.cfg.Projections))
	for i := range all {
		all[i] = i
	}
	return l.rebuild(ctx, all, progress)
}

func (l *Log) rebuild(ctx context.Context, views []int, progress func(done, total uint64)) error {
	j := &rebuildJob{waiter: newWaiter(), views: views, progress: progress}
	if err := l.submit(ctx, j); err != nil {
		return err
	}
	if err := l.wait(ctx, j.waiter); err != nil {
		return err
	}
	if err := l.sweep(ctx); err != nil {
		return err
	}
	if len(j.old) == 0 {
		return nil
	}
	l.tidying.Lock()
	defer l.tidying.Unlock()
	return l.wipe(ctx, j.old...)
}

// wipe drops the keys with the prefixes; the caller holds tidying. Once the
// writer has the job it is waited for, whatever ctx says: letting go of tidying
// while it runs would let the next one begin.
func (l *Log) wipe(ctx context.Context, prefixes ...[]byte) error {
	w := &wipeJob{waiter: newWaiter(), prefixes: prefixes}
	if err := l.submit(ctx, w); err != nil {
		return err
	}
	return l.wait(context.WithoutCancel(ctx), w.waiter)
}

// loadErased reads which entries are named by an erase.
func (l *Log) loadErased(kv kvSnapshot) error {
	l.w.erased = map[Hash]bool{}
	return kv.scan([]byte{tabErase}, nil, false, func(key, value []byte) (bool, error) {
		if len(key) != 1+len(Hash{}) || len(value) != RefSize+1 {
			return false, fmt.Errorf("%w: erase record", ErrDamaged)
		}
		done := value[RefSize] == eraseDone
		l.w.erased[Hash(key[1:])] = done
		if !done {
			l.erasing++
		}
		return true, nil
	})
}

// foldErase notes what an erase names. Bytes that are here go with the next
// rebuild.
func (g *group) foldErase(e *Entry) error {
	if e.Version != eraseVersion {
		return Quarantine("erase of version %d, this program knows %d", e.Version, eraseVersion)
	}
	x, err := parseErasure(e.Body)
	if err != nil {
		return Quarantine("erase: %v", err)
	}
	ref := e.Ref()
	for i := range x.Hashes {
		h := &x.Hashes[i]
		if _, named := g.l.w.erased[*h]; named {
			continue
		}
		state := byte(eraseDone) // nothing here to erase yet; strip sees to what comes
		absent := func() error { return nil }
		switch p, err := g.find(h); {
		case err == nil:
			have, _, err := getEntry(g.b.get, p)
			if errors.Is(err, ErrDamaged) {
				pending, err := g.eraseDamaged(p, h)
				if err != nil {
					return err
				}
				if pending {
					state = erasePending
				}
				break
			}
			if err != nil {
				return err
			}
			if !g.l.content[have.Kind] && (have.Present() || g.l.known[have.Kind]) {
				continue // refused: structural kinds stay
			}
			if have.Present() {
				state = erasePending
			} else {
				absent = func() error { return g.forgive(p, &have) }
			}
		case !errors.Is(err, ErrNotFound):
			return err
		}
		g.b.set(eraseKey(h), append(ref[:len(ref):len(ref)], state))
		g.erases = append(g.erases, *h)
		if err := absent(); err != nil {
			return err
		}
		if state == erasePending {
			g.erasing++
		}
	}
	return nil
}

// strip takes the payload off an arriving entry that an erase names.
func (g *group) strip(e *Entry) {
	if len(g.l.w.erased) == 0 && len(g.erases) == 0 || !g.l.content[e.Kind] {
		return
	}
	if _, named := g.l.w.erased[e.Hash]; named || g.names(e.Hash) {
		e.Salt, e.Payload, e.Body, e.OpID, e.Version = nil, nil, nil, "", 0
	}
}

func (g *group) names(h Hash) bool {
	for p := g; p != nil; p = p.prev {
		for i := range p.erases {
			if p.erases[i] == h {
				return true
			}
		}
	}
	return false
}

// rebuildJob folds views into their next generation, a portion of the log a
// group, so that other jobs go on in between; what they add is folded too,
// since it arrives after. It ends in one transaction that switches over and
// takes the erased bytes out.
type rebuildJob struct {
	waiter
	views    []int // to rebuild; those that erasing touches are added
	progress func(done, total uint64)

	started bool
	erase   []Hash                   // pending when it began
	amends  map[string]hlc.Timestamp // not shown by the views when it began
	shadow  map[int]*viewState
	cursor  uint64   // arrival folded so far
	passed  []place  // entries that did not read
	mends   [][]byte // entries that were mended before it began
	next    *rebuildJob
	old     [][]byte // prefixes of the generations left behind
}

func (j *rebuildJob) size() int { return 0 }

func (j *rebuildJob) accept() {
	if j.next != nil {
		n := j.next
		j.started, j.erase, j.shadow, j.cursor, j.views, j.old = true, n.erase, n.shadow, n.cursor, n.views, n.old
		j.amends, j.passed, j.mends = n.amends, n.passed, n.mends
		j.next = nil
	}
}

func (j *rebuildJob) apply(g *group) (more bool, err error) {
	n := &rebuildJob{views: j.views, erase: j.erase, amends: j.amends, cursor: j.cursor, shadow: map[int]*viewState{}, mends: j.mends,
		passed: j.passed[:len(j.passed):len(j.passed)]}
	if !j.started {
		if err := n.begin(g, j.views); err != nil {
			return false, err
		}
	}
	for i, v := range j.shadow {
		c := *v
		n.shadow[i] = &c
	}
	j.next = n
	done, err := n.portion(g)
	if err != nil {
		return false, err
	}
	if j.progress != nil {
		j.progress(n.cursor, g.arrival)
	}
	if !done {
		return true, nil
	}
	return false, n.switchOver(g)
}

// begin finds what is to be erased and which views it touches.
func (j *rebuildJob) begin(g *group, views []int) error {
	touched := map[int]bool{}
	for _, i := range views {
		touched[i] = true
	}
	err := g.b.scan([]byte{tabErase}, nil, false, func(key, value []byte) (bool, error) {
		if value[RefSize] != erasePending {
			return true, nil
		}
		h := Hash(key[1:])
		j.erase = append(j.erase, h)
		p, err := g.find(&h)
		if err != nil {
			return false, err
		}
		e, _, err := getEntry(g.b.get, p)
		if errors.Is(err, ErrDamaged) {
			for i := range g.infos { // nobody knows what it was
				touched[i] = true
			}
			return true, nil
		}
		if err != nil {
			return false, err
		}
		for _, i := range g.l.folds[e.Kind] {
			touched[i] = true
		}
		for _, i := range g.l.all {
			touched[i] = true
		}
		return true, nil
	})
	if err == nil && len(views) == len(g.infos) {
		if j.amends, err = g.staleAmends(); err == nil {
			j.mends, err = g.staleMends()
		}
	}
	j.views = nil
	for i := range g.infos {
		if touched[i] {
			j.views = append(j.views, i)
			j.shadow[i] = &viewState{gen: g.infos[i].gen + 1}
		}
	}
	return fatal(err)
}

// portion folds arrivals until the group is full; done when there are no more.
func (j *rebuildJob) portion(g *group) (done bool, err error) {
	if len(j.views) == 0 {
		return true, nil
	}
	gone := map[Hash]bool{}
	for _, h := range j.erase {
		gone[h] = true
	}
	txs := map[int]*viewTx{}
	for _, i := range j.views {
		p := g.l.cfg.Projections[i]
		txs[i] = &viewTx{g: g, index: i, shadow: j.shadow[i], prefix: string(viewPrefix(p.Name(), j.shadow[i].gen))}
	}
	sees := map[string][]int{}
	err = g.b.scan([]byte{tabArr}, arrKey(j.cursor+1), false, func(key, value []byte) (bool, error) {
		p, err := placeOf(value)
		if err != nil {
			return false, err
		}
		e, good, err := g.goodAt(p)
		if err != nil {
			return false, err
		}
		j.cursor = binary.BigEndian.Uint64(key[1:])
		if !good {
			j.passed = append(j.passed, p)
			return !g.b.full(), nil
		}
		if e.Present() && !e.beyond && !gone[e.Hash] {
			which, ok := sees[e.Kind]
			if !ok {
				which = j.seeing(g, e.Kind)
				sees[e.Kind] = which
			}
			for _, i := range which {
				mark, was := g.b.mark(), *j.shadow[i]
				var q *QuarantineError
				if err := g.l.cfg.Projections[i].Apply(txs[i], &e); errors.As(err, &q) {
					g.b.rollback(mark)
					*j.shadow[i] = was
				} else if err != nil {
					return false, err
				}
			}
		}
		return !g.b.full(), nil
	})
	if err != nil {
		return false, fatal(err)
	}
	if j.cursor != g.arrival && !g.b.full() {
		// A block of the table of arrivals does not read: what it named would be
		// missing in the views.
		return false, fatal(fmt.Errorf("%w: arrivals after %d of %d do not read", ErrDamaged, j.cursor, g.arrival))
	}
	return j.cursor == g.arrival, nil
}

func (j *rebuildJob) seeing(g *group, kind string) (out []int) {
	for _, set := range [2][]int{g.l.folds[kind], g.l.all} {
		for _, i := range set {
			if j.shadow[i] != nil {
				out = append(out, i)
			}
		}
	}
	return out
}

func (j *rebuildJob) switchOver(g *group) error {
	for _, i := range j.views {
		name := g.l.cfg.Projections[i].Name()
		j.old = append(j.old, viewPrefix(name, g.infos[i].gen))
		g.infos[i] = *j.shadow[i]
		g.infos[i].dirty = true
		g.swapped = true
	}
	g.txs = nil
	if g.l.cutter != nil && len(j.views) > 0 {
		if err := g.askEndings(); err != nil { // lines may have come that say more of a cut
			return fatal(err)
		}
	}
	if err := g.settleAmends(j.amends); err != nil {
		return fatal(err)
	}
	for _, key := range j.mends {
		if v, err := g.b.get(key); err == nil && len(v) > 0 && v[0] == owedMended {
			g.b.del(key)
			g.mended--
		}
	}
	if err := g.passOver(j.passed); err != nil {
		return err
	}
	for i := range j.erase {
		h := &j.erase[i]
		p, err := g.find(h)
		if err != nil {
			return fatal(err)
		}
		e, arrival, err := getEntry(g.b.get, p)
		if errors.Is(err, ErrDamaged) {
			// Its header does not read, or its bytes would be gone: they go as they
			// are, and what a peer gives again is stripped.
			g.b.del(seqKey(tabEntry, p.lane, p.seq))
			g.l.suspectAt(p)
			rec, err := g.b.get(eraseKey(h))
			if err != nil {
				return fatal(err)
			}
			g.b.set(eraseKey(h), append(rec[:RefSize:RefSize], eraseDone))
			g.erasing--
			continue
		}
		if err != nil {
			return fatal(err)
		}
		v, err := g.b.get(seqKey(tabEntry, p.lane, p.seq))
		if err != nil {
			return fatal(err)
		}
		if err := g.unnameBlobs(&e); err != nil {
			return fatal(err)
		}
		e.Salt, e.Payload = nil, nil
		g.b.set(seqKey(tabEntry, p.lane, p.seq), storedEntry(v[0]&^amendedFlag, arrival, &e))
		rec, err := g.b.get(eraseKey(h))
		if err != nil {
			return fatal(err)
		}
		g.b.set(eraseKey(h), append(rec[:RefSize:RefSize], eraseDone))
		g.erasing--
	}
	return nil
}

// exclusive is a job that needs the store to itself: no group is being filled
// or synced while it runs.
type exclusive interface {
	job
	run(l *Log) error
}

// wipeJob drops what a rebuild left behind. Dropping also writes out what is
// in memory, which Purge relies on.
type wipeJob struct {
	waiter
	prefixes [][]byte
}

func (j *wipeJob) size() int { return 0 }
func (j *wipeJob) accept()   {}
func (j *wipeJob) apply(*group) (bool, error) {
	return false, errors.New("oplog: not a job for a group")
}

// writeOut is the prefix of no table. The engine writes out what is in memory
// only when it finds something to drop, so a key is put there before.
var writeOut = []byte{0xff}

func (j *wipeJob) run(l *Log) error {
	for _, p := range j.prefixes {
		if bytes.Equal(p, writeOut) {
			g := l.newGroup(nil)
			g.b.set(writeOut, nil)
			err := l.db.commit(g.b)
			g.b.release()
			if err != nil {
				return fmt.Errorf("oplog: write out: %w", err)
			}
		}
		if err := l.db.wipe(p); err != nil {
			return fmt.Errorf("oplog: drop old rows: %w", err)
		}
	}
	return nil
}

// Purge takes old versions of overwritten and deleted keys off the disk, so
// that erased bytes are gone from every file. It may take long on a large
// store; reads and writes go on.
func (l *Log) Purge(ctx context.Context) error {
	l.tidying.Lock()
	defer l.tidying.Unlock()
	if err := l.wipe(ctx, writeOut); err != nil {
		return err
	}
	if f, ok := l.db.(interface{ flatten() error }); ok {
		if err := l.Room(); err != nil {
			return err
		}
		return f.flatten()
	}
	return nil
}
