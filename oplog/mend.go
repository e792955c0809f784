package oplog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// Damage in place. Every reading of an entry looks at its hashes, so one whose
// bytes have changed on the disk is found when it is read, given to nobody, and
// then owed: a peer that holds it gives it again by its hash, and it is put back
// where it was. What its hash must be is known from the entry after it, or from
// the tip. Its views were folded when it was whole and stay as they are, until a
// rebuild passes over it; then they are rebuilt once more when it is back.

// States of a damaged entry in the table of owed ones.
const (
	owedDamaged = 2 // its bytes do not verify; views have it
	owedDoubt   = 3 // a rebuild has passed over it: views may lack it
	owedMended  = 4 // it is back, and views are to be rebuilt: nothing is owed
)

// maxSuspects bounds the places that are remembered to be looked at.
const maxSuspects = 4096

// damagedEntry says where stored bytes do not verify.
type damagedEntry struct {
	p   place
	err error
}

func (e *damagedEntry) Error() string   { return fmt.Sprintf("%v: entry: %v", ErrDamaged, e.err) }
func (e *damagedEntry) Unwrap() []error { return []error{ErrDamaged, e.err} }

// Damage counts the entries whose stored bytes did not verify, since the store
// was made.
type Damage struct {
	Found  uint64 // ever
	Mended uint64 // of these: fetched again, or gone by an erase
	// Waiting is how many are still to be fetched; InViews says that views show
	// some of them, so that reading these fails until they are fetched or
	// Rebuild passes over them.
	Waiting int
	InViews int
	Oldest  time.Time // when the oldest of InViews was found
	Stale   int       // fetched, and missing in the views until Rebuild
}

// Damage says what is known of damaged entries.
func (l *Log) Damage() (d Damage, err error) {
	l.mu.RLock()
	rows := l.owed + l.mended
	l.mu.RUnlock()
	kv := l.db.snapshot()
	defer kv.release()
	if d.Found, d.Mended, err = damageCounts(kv.get); err != nil || rows == 0 || d.Found == 0 {
		return d, err
	}
	err = kv.scan([]byte{tabOwed}, nil, false, func(key, value []byte) (bool, error) {
		_, row, err := parseOwed(key, value)
		switch row.state {
		case owedDamaged:
			if at := time.UnixMilli(row.since); d.InViews == 0 || at.Before(d.Oldest) {
				d.Oldest = at
			}
			d.InViews++
			d.Waiting++
		case owedDoubt:
			d.Waiting++
		case owedMended:
			d.Stale++
		}
		return true, err
	})
	return d, err
}

func damageCounts(get func([]byte) ([]byte, error)) (found, mended uint64, err error) {
	v, err := get(metaKey("damage"))
	switch {
	case errors.Is(err, ErrNotFound):
		return 0, 0, nil
	case err == nil && len(v) != 16:
		return 0, 0, fmt.Errorf("%w: damage record", ErrDamaged)
	case err != nil:
		return 0, 0, err
	}
	return binary.BigEndian.Uint64(v), binary.BigEndian.Uint64(v[8:]), nil
}

func (g *group) countDamage(found, mended uint64) error {
	f, m, err := damageCounts(g.b.get)
	if err != nil {
		return fatal(err)
	}
	b := binary.BigEndian.AppendUint64(nil, f+found)
	g.b.set(metaKey("damage"), binary.BigEndian.AppendUint64(b, m+mended))
	return nil
}

// suspect remembers the place of an entry that did not verify when it was read.
func (l *Log) suspect(err error) {
	var d *damagedEntry
	if errors.As(err, &d) {
		l.suspectAt(d.p)
	}
}

// suspectChain is suspect, and the one before: when two do not fit each other,
// either may be the damaged one.
func (l *Log) suspectChain(err error) {
	var d *damagedEntry
	if errors.As(err, &d) {
		l.suspectAt(d.p)
		if d.p.seq > 1 {
			l.suspectAt(place{d.p.lane, d.p.seq - 1})
		}
	}
}

// suspectAt remembers a place and wakes who waits for changes.
func (l *Log) suspectAt(p place) {
	if l.noteSuspect(p) == 1 {
		l.mu.Lock()
		defer l.mu.Unlock()
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

func (l *Log) noteSuspect(p place) (n int) {
	l.suspects.Lock()
	defer l.suspects.Unlock()
	if l.suspects.at == nil {
		l.suspects.at = map[place]bool{}
	}
	if l.suspects.known[p] || l.suspects.at[p] || len(l.suspects.at) >= maxSuspects {
		return 0
	}
	l.suspects.at[p] = true
	return len(l.suspects.at)
}

// Suspects is the number of entries that did not verify and that SettleDamage
// has not looked at.
func (l *Log) Suspects() int {
	l.suspects.Lock()
	defer l.suspects.Unlock()
	return len(l.suspects.at)
}

// SettleDamage looks at what did not verify when it was read, and notes it as
// owed, so that it is asked of peers. It gives how many there are. Call it now
// and then; without suspects it does nothing.
func (l *Log) SettleDamage(ctx context.Context) (marked int, err error) {
	l.suspects.Lock()
	var list []place
	for p := range l.suspects.at {
		list = append(list, p)
	}
	l.suspects.at = nil
	l.suspects.Unlock()
	if len(list) == 0 {
		return 0, nil
	}
	j := &markJob{waiter: newWaiter(), list: list}
	if err := l.submit(ctx, j); err != nil {
		return 0, err
	}
	if err := l.wait(ctx, j.waiter); err != nil {
		return 0, err
	}
	l.suspects.Lock()
	if l.suspects.known == nil || len(l.suspects.known) > maxSuspects {
		l.suspects.known = map[place]bool{}
	}
	for _, p := range j.known {
		l.suspects.known[p] = true
	}
	l.suspects.Unlock()
	for _, p := range j.unknown {
		l.noteSuspect(p) // once the one after it is back its hash is known
	}
	return j.marked, nil
}

type markJob struct {
	waiter
	list    []place
	known   []place // noted as damaged, now or before
	unknown []place
	marked  int
}

func (j *markJob) size() int { return 0 }
func (j *markJob) accept()   {}

func (j *markJob) apply(g *group) (bool, error) {
	j.known, j.unknown, j.marked = nil, nil, 0
	for _, p := range j.list {
		if p.lane >= g.nlanes || p.seq > g.peek(p.lane).tip.Seq {
			continue
		}
		if _, good, err := g.goodAt(p); err != nil || good {
			if err != nil {
				return false, fatal(err)
			}
			continue
		}
		switch known, marked, err := g.markDamaged(p, owedDamaged); {
		case err != nil:
			return false, err
		case !known:
			j.unknown = append(j.unknown, p)
			continue
		case marked:
			j.marked++
		}
		j.known = append(j.known, p)
	}
	return false, nil
}

// goodAt reads an entry and reports whether it is the one that belongs there.
func (g *group) goodAt(p place) (e Entry, good bool, err error) {
	return g.goodIn(g.b.get, p)
}

func (g *group) goodIn(get func([]byte) ([]byte, error), p place) (e Entry, good bool, err error) {
	if p.lane >= g.nlanes {
		return e, false, nil
	}
	return goodEntry(get, g.peek(p.lane).id, p)
}

func goodEntry(get func([]byte) ([]byte, error), id OriginID, p place) (e Entry, good bool, err error) {
	e, _, err = getEntry(get, p)
	switch {
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrDamaged):
		return e, false, nil
	case err != nil:
		return e, false, err
	}
	if e.Origin != id || e.Seq != p.seq {
		return e, false, nil
	}
	v, err := get(hashKey(e.Hash[:]))
	if errors.Is(err, ErrNotFound) {
		return e, false, nil
	}
	if err != nil {
		return e, false, err
	}
	at, err := placeOf(v)
	return e, err == nil && at == p, nil
}

// markDamaged notes that an entry is damaged; known is false when nobody can
// say yet what belongs there.
func (g *group) markDamaged(p place, state byte) (known, marked bool, err error) {
	key, row, err := g.owedAt(p)
	if err != nil {
		return false, false, err
	}
	if key != nil && row.state != owedMended {
		if row.state == owedDamaged && state == owedDoubt {
			row.state = state
			g.b.set(key, row.bytes())
		}
		return true, false, nil
	}
	if key != nil {
		g.b.del(key)
		g.mended--
	}
	ln := g.peek(p.lane)
	row = owedRow{state: state, since: g.l.wall()}
	if p.seq == ln.tip.Seq {
		row.hash = ln.tip.Hash
	} else {
		next, good, err := g.goodAt(place{p.lane, p.seq + 1})
		if err != nil {
			return false, false, fatal(err)
		}
		if !good {
			// It may be damaged itself and back to be: then its record knows.
			return false, false, nil
		}
		row.hash = next.Prev
	}
	g.b.set(owedKey(owedContent, p), row.bytes())
	g.owed++
	g.owedMoved = true
	g.l.cfg.Logger.Error("a stored entry is damaged and asked of peers", "origin", ln.id.String(), "seq", p.seq, "hash", row.hash.String())
	return true, true, g.countDamage(1, 0)
}

// mend puts a damaged entry back where it was.
func (g *group) mend(p place, key []byte, row owedRow, e *Entry) error {
	v, err := g.b.get(seqKey(tabEntry, p.lane, p.seq))
	if err != nil && !errors.Is(err, ErrNotFound) {
		return fatal(err)
	}
	state, arrival, err := g.standing(p, v)
	if err != nil {
		return fatal(err)
	}
	_ = e.parsePayload() // folding reports it
	if g.l.w.amended[e.Origin] {
		if _, stamp, err := exactOf(v); err == nil && stamp != 0 && stamp < e.Time {
			e.stamped, e.Time = e.Time, stamp
		}
		if err := g.renameAmends(e.Origin); err != nil {
			return err
		}
	}
	stripped := g.l.content[e.Kind] && g.isNamed(e.Hash)
	if stripped {
		e.Salt, e.Payload = nil, nil
	}
	g.b.set(seqKey(tabEntry, p.lane, p.seq), storedEntry(state, arrival, e))
	g.b.set(hashKey(e.Hash[:]), p.bytes())
	if state == stateVisible {
		g.b.set(arrKey(arrival), p.bytes())
	}
	if _, ended := g.endings[g.peek(p.lane).key]; ended {
		g.needRecut() // which side of a cut it is on could not be told
	}
	g.b.del(key)
	g.owed--
	if state == stateVisible && (row.state == owedDoubt && e.Present() || row.state == owedDamaged && stripped) {
		row.state = owedMended
		g.b.set(key, row.bytes())
		g.mended++
	}
	return g.countDamage(0, 1)
}

func (g *group) isNamed(h Hash) bool {
	_, named := g.l.w.erased[h]
	return named || g.names(h)
}

// eraseDamaged is what an erase does to a damaged entry that it names; pending
// says that views may still show it. Of one whose header does not read nobody
// can say whether it is content: it goes when it is back.
func (g *group) eraseDamaged(p place, h *Hash) (pending bool, err error) {
	v, err := g.b.get(seqKey(tabEntry, p.lane, p.seq))
	if err != nil {
		return false, fatal(err)
	}
	e, ok := bare(v, h)
	if !ok || !g.l.content[e.Kind] {
		g.l.suspectAt(p)
		return false, nil
	}
	state, arrival, err := g.standing(p, v)
	if err != nil {
		return false, fatal(err)
	}
	g.b.set(seqKey(tabEntry, p.lane, p.seq), storedEntry(state, arrival, &e))
	key, row, err := g.owedAt(p)
	if err != nil || key == nil {
		return true, err
	}
	g.b.del(key)
	if row.state == owedMended {
		g.mended--
		return true, nil
	}
	g.owed--
	g.owedMoved = true
	return true, g.countDamage(0, 1)
}

// standing is what an entry was before it was damaged: its state and arrival
// number, from what else the store says of it.
func (g *group) standing(p place, stored []byte) (state byte, arrival uint64, err error) {
	switch v, err := g.b.get(seqKey(tabAside, p.lane, p.seq)); {
	case err == nil && len(v) > 0 && v[0] == stateBeyond:
		// It may have arrived before the cut came, and keeps its number.
		arrival, err = g.arrivalOf(p, stored)
		return stateBeyond, arrival, err
	case err == nil && len(v) > 0:
		return v[0], 0, nil
	case err != nil && !errors.Is(err, ErrNotFound):
		return 0, 0, err
	}
	arrival, err = g.arrivalOf(p, stored)
	if err == nil && arrival == 0 {
		g.arrival++
		arrival = g.arrival
	}
	return stateVisible, arrival, err
}

// arrivalOf finds the arrival number of an entry that does not read; 0 if it has
// none.
func (g *group) arrivalOf(p place, stored []byte) (arrival uint64, err error) {
	if len(stored) >= entryPrefixLen {
		n := binary.BigEndian.Uint64(stored[1:])
		if v, err := g.b.get(arrKey(n)); err == nil && bytes.Equal(v, p.bytes()) {
			return n, nil
		}
	}
	err = g.b.scan([]byte{tabArr}, nil, false, func(key, value []byte) (bool, error) {
		if bytes.Equal(value, p.bytes()) {
			arrival = binary.BigEndian.Uint64(key[1:])
		}
		return arrival == 0, nil
	})
	return arrival, err
}

// renameAmends lets the amends of an origin act once more: on an entry that is
// back and does not show them.
func (g *group) renameAmends(o OriginID) error {
	var keys [][]byte
	var recs []amendRecord
	err := g.b.scan(append([]byte{tabAmend}, o[:]...), nil, false, func(key, value []byte) (bool, error) {
		rec, err := amendOf(value)
		keys, recs = append(keys, key), append(recs, rec)
		return true, err
	})
	if err != nil {
		return fatal(err)
	}
	for i, key := range keys {
		h := Hash(key[amendKeyLen-len(Hash{}):])
		if _, err := g.find(&h); err == nil {
			g.noteAmend(key, recs[i], true)
		} else if !errors.Is(err, ErrNotFound) {
			return fatal(err)
		}
	}
	return nil
}

// bare is a stored entry without its payload, when its header is whole: what a
// rebuild leaves of a damaged one, so that it can be read as absent.
func bare(stored []byte, want *Hash) (e Entry, ok bool) {
	exact, amended, err := exactOf(stored)
	if err != nil {
		return e, false
	}
	r := reader{b: exact}
	r.array(3)
	raw := r.bin(maxHeader)
	if r.err != nil || sha256.Sum256(raw) != *want || e.Header.decode(raw) != nil {
		return e, false
	}
	e.RawHeader, e.Hash = raw, *want
	if amended != 0 && amended < e.Time {
		e.stamped, e.Time = e.Time, amended
	}
	return e, true
}

// passOver is what the end of a rebuild does with entries that it could not
// read: views do not refer to them any more.
func (g *group) passOver(list []place) error {
	for _, p := range list {
		if p.lane >= g.nlanes {
			continue
		}
		e, good, err := g.goodAt(p)
		if err != nil {
			return fatal(err)
		}
		if good {
			if key, _, err := g.owedAt(p); err != nil || key != nil {
				return err
			}
			// Mended while the rebuild went on, which had passed it.
			row := owedRow{state: owedMended, hash: e.Hash, since: g.l.wall()}
			g.b.set(owedKey(owedContent, p), row.bytes())
			g.mended++
			continue
		}
		known, _, err := g.markDamaged(p, owedDoubt)
		if err != nil {
			return err
		}
		if !known {
			g.l.suspectAt(p)
			continue
		}
		_, row, err := g.owedAt(p)
		if err != nil {
			return err
		}
		v, err := g.b.get(seqKey(tabEntry, p.lane, p.seq))
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return fatal(err)
		}
		if e, ok := bare(v, &row.hash); ok {
			state, arrival, err := g.standing(p, v)
			if err != nil {
				return fatal(err)
			}
			g.b.set(seqKey(tabEntry, p.lane, p.seq), storedEntry(state, arrival, &e))
		}
	}
	return nil
}

// staleMends lists the rows of entries that are back and that the views lack.
func (g *group) staleMends() (keys [][]byte, err error) {
	if g.mended == 0 {
		return nil, nil
	}
	err = g.b.scan([]byte{tabOwed}, nil, false, func(key, value []byte) (bool, error) {
		_, row, err := parseOwed(key, value)
		if row.state == owedMended {
			keys = append(keys, bytes.Clone(key))
		}
		return true, err
	})
	return keys, err
}
