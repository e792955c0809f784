package oplog

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"tallystick/hlc"
)

// An entry whose payload a relay left out, and that no erase names, counts as
// held and is owed: it is listed, folded as absent and given no arrival number
// until its payload comes, from whoever has it, or an erase of it (T5). An
// entry is asked for by its hash, and what comes is believed by its hashes
// alone: the header's is the entry's, the payload's stands in the header.

// ErrNotOwed means that nothing of an entry is missing here, or that the entry
// is not here at all.
var ErrNotOwed = errors.New("oplog: nothing is owed of this entry")

// reasonOwed is why an owed entry is in no view.
const reasonOwed = "its payload was left out by the replica it came from, and is asked of others"

// States of an owed entry.
const (
	owedWithheld = 1 // stored as it came, without its payload
)

// Classes of owed entries, in the order in which they are asked for: what a
// verdict may hang on comes before content.
const (
	owedAct     = 0
	owedContent = 1
)

// owedRow is what the table of owed entries keeps.
type owedRow struct {
	state byte
	hash  Hash
	since int64 // unix ms, by this machine's clock
}

const owedRowLen = 1 + 32 + 8

func (r *owedRow) bytes() []byte {
	b := append(make([]byte, 0, owedRowLen), r.state)
	b = append(b, r.hash[:]...)
	return binary.BigEndian.AppendUint64(b, uint64(r.since))
}

func parseOwed(key, value []byte) (p place, r owedRow, err error) {
	if len(key) != owedKeyLen || len(value) != owedRowLen {
		return p, r, fmt.Errorf("%w: owed record", ErrDamaged)
	}
	p = place{binary.BigEndian.Uint32(key[2:]), binary.BigEndian.Uint64(key[6:])}
	return p, owedRow{state: value[0], hash: Hash(value[1:33]), since: int64(binary.BigEndian.Uint64(value[33:]))}, nil
}

// OwedEntry is an entry that is held without its payload, or damaged.
type OwedEntry struct {
	Hash   Hash
	Origin OriginID
	Seq    uint64
	Ref    Ref
	Kind   string
	Author string
	Since  time.Time // when that was found here
	// Damaged says that it was whole here once: what is stored does not verify.
	// Then Ref may be without a stamp, and Kind and Author empty.
	Damaged bool
}

// OwedTotal is the number of owed entries.
func (l *Log) OwedTotal() int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.owed
}

// OwedEpoch is a number that changes when an entry becomes owed, or ceases to
// be otherwise than by PutOwed.
func (l *Log) OwedEpoch() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.owedEpoch
}

// Owed lists owed entries, at most limit of them, after the place where the
// last call ended; an empty place is the beginning, and next is empty when
// there are no more.
func (l *Log) Owed(after string, limit int) (list []OwedEntry, next string, err error) {
	if l.OwedTotal() == 0 {
		return nil, "", nil
	}
	l.mu.RLock()
	lanes := l.lanes
	l.mu.RUnlock()
	var start []byte
	if after != "" {
		start = append([]byte(after), 0)
	}
	kv := l.db.snapshot()
	defer kv.release()
	last := ""
	err = kv.scan([]byte{tabOwed}, start, false, func(key, value []byte) (bool, error) {
		if len(list) == limit {
			next = last
			return false, nil
		}
		p, row, err := parseOwed(key, value)
		if err != nil {
			return false, err
		}
		if int(p.lane) >= len(lanes) { // the snapshot is a commit newer
			return true, nil
		}
		o := OwedEntry{Hash: row.hash, Origin: lanes[p.lane].id, Seq: p.seq, Since: time.UnixMilli(row.since).UTC()}
		if row.state == owedMended {
			return true, nil
		}
		o.Damaged = row.state != owedWithheld
		e, _, err := getEntry(kv.get, p)
		switch {
		case err == nil:
			o.Ref, o.Kind, o.Author = e.Ref(), e.Kind, e.Author
		case errors.Is(err, ErrDamaged) || errors.Is(err, ErrNotFound):
			o.Ref = MakeRef(0, o.Origin, o.Seq, o.Hash)
		default:
			return false, err
		}
		list = append(list, o)
		last = string(key)
		return true, nil
	})
	return list, next, err
}

// OwedSince gives, for each origin with owed entries a verdict may hang on, the
// stamp of the first: what is claimed after it is not settled (K4).
func (l *Log) OwedSince() (map[OriginID]hlc.Timestamp, error) {
	if l.OwedTotal() == 0 {
		return nil, nil
	}
	out := map[OriginID]hlc.Timestamp{}
	l.mu.RLock()
	lanes := l.lanes
	l.mu.RUnlock()
	kv := l.db.snapshot()
	defer kv.release()
	for _, ln := range lanes {
		prefix := owedKey(owedAct, place{lane: ln.idx})[:6]
		err := kv.scan(prefix, nil, false, func(key, value []byte) (bool, error) {
			p, _, err := parseOwed(key, value)
			if err != nil {
				return false, err
			}
			e, _, err := getEntry(kv.get, p)
			if err != nil {
				return false, err
			}
			if t, ok := out[ln.id]; !ok || e.Time < t {
				out[ln.id] = e.Time
			}
			return false, nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// WholeEntry gives the exact bytes of an entry that is here with its payload,
// as docs/format-disk.md has them, after a look at its hashes: ErrNotFound when
// it is not here, or without its payload.
func (l *Log) WholeEntry(h Hash) (exact []byte, err error) {
	err = l.View(func(s Snapshot) error {
		get := s.(*snapshot).kv.get
		v, err := get(hashKey(h[:]))
		if err != nil {
			return err
		}
		p, err := placeOf(v)
		if err != nil {
			return err
		}
		if v, err = get(seqKey(tabEntry, p.lane, p.seq)); err != nil {
			return err
		}
		if exact, _, err = exactOf(v); err != nil {
			return &damagedEntry{p, err}
		}
		e, rest, err := ParseEntry(exact)
		switch {
		case err != nil:
			return &damagedEntry{p, err}
		case len(rest) > 0 || e.Hash != h || !e.Present():
			return ErrNotFound
		}
		return nil
	})
	if err != nil {
		l.suspect(err)
		return nil, err
	}
	return exact, nil
}

// PutOwed takes in an owed entry as WholeEntry of another replica gives it. It
// is stored, folded and given its arrival number in one transaction.
//
// Errors: ErrBadRange when the bytes are not that entry with its payload;
// ErrNotOwed when it is not owed (any more): it came otherwise, or was erased;
// ErrNoSpace; ErrClosed.
func (l *Log) PutOwed(ctx context.Context, h Hash, exact []byte) error {
	e, rest, err := ParseEntry(exact)
	switch {
	case err != nil:
		return fmt.Errorf("%w: owed entry: %w", ErrBadRange, err)
	case len(rest) > 0 || e.Hash != h:
		return bad("owed entry %s: another entry came", h)
	case !e.Present():
		return bad("owed entry %s: it came without its payload", h)
	}
	j := &owedJob{waiter: newWaiter(), e: &e}
	if err := l.submit(ctx, j); err != nil {
		return err
	}
	if err := l.wait(ctx, j.waiter); err != nil {
		return err
	}
	l.suspects.Lock()
	defer l.suspects.Unlock()
	delete(l.suspects.known, j.at)
	return nil
}

type owedJob struct {
	waiter
	e  *Entry
	at place // where it was put
}

func (j *owedJob) size() int { return j.e.Size() }
func (j *owedJob) accept()   {}

func (j *owedJob) apply(g *group) (bool, error) {
	p, err := g.find(&j.e.Hash)
	if errors.Is(err, ErrNotFound) {
		p, err = g.owedPlace(&j.e.Hash) // its header may be another's now
	}
	if errors.Is(err, ErrNotFound) {
		return false, ErrNotOwed
	}
	if err != nil {
		return false, fatal(err)
	}
	j.at = p
	paid, err := g.pay(p, j.e)
	if err == nil && !paid {
		err = ErrNotOwed
	}
	return false, err
}

// owedAt is the record of an owed entry and its key; a nil key when the entry
// is not owed.
func (g *group) owedAt(p place) (key []byte, row owedRow, err error) {
	if g.owed+g.mended == 0 {
		return nil, row, nil
	}
	for _, class := range []byte{owedAct, owedContent} {
		key = owedKey(class, p)
		switch v, err := g.b.get(key); {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return nil, row, fatal(err)
		default:
			if _, row, err = parseOwed(key, v); err != nil {
				return nil, row, fatal(err)
			}
			return key, row, nil
		}
	}
	return nil, row, nil
}

// owedPlace looks for a hash among what is owed.
func (g *group) owedPlace(h *Hash) (p place, err error) {
	if g.owed == 0 {
		return p, ErrNotFound
	}
	found := false
	err = g.b.scan([]byte{tabOwed}, nil, false, func(key, value []byte) (bool, error) {
		at, row, err := parseOwed(key, value)
		if err == nil && row.hash == *h {
			p, found = at, true
		}
		return !found, err
	})
	if err == nil && !found {
		err = ErrNotFound
	}
	return p, err
}

// owes reports whether an entry without its payload is owed and not erased.
// What an erase names of kinds that this program does not know is taken for
// content, since nobody would give it.
func (g *group) owes(e *Entry) bool {
	if e.Present() {
		return false
	}
	if _, named := g.l.w.erased[e.Hash]; !named && !g.names(e.Hash) {
		return true
	}
	return !g.l.content[e.Kind] && g.l.known[e.Kind]
}

// owe notes that an entry is owed.
func (g *group) owe(ln *lane, e *Entry) error {
	p := place{ln.idx, e.Seq}
	if key, _, err := g.owedAt(p); err != nil || key != nil {
		return err
	}
	class := byte(owedAct)
	if g.l.content[e.Kind] {
		class = owedContent
	}
	row := owedRow{state: owedWithheld, hash: e.Hash, since: g.l.wall()}
	g.b.set(owedKey(class, p), row.bytes())
	g.owed++
	g.owedMoved = true
	return nil
}

// pay puts the payload of an entry that is owed in its place; false when
// nothing is owed there.
func (g *group) pay(p place, whole *Entry) (paid bool, err error) {
	key, row, err := g.owedAt(p)
	if err != nil || key == nil || row.state == owedMended || row.hash != whole.Hash {
		return false, err
	}
	if row.state != owedWithheld {
		e := whole.Clone()
		return true, g.mend(p, key, row, &e)
	}
	v, err := g.b.get(seqKey(tabEntry, p.lane, p.seq))
	if err != nil {
		return false, fatal(err)
	}
	e, err := parseStored(v)
	if err != nil {
		return false, fatal(fmt.Errorf("%w: owed entry: %w", ErrDamaged, err))
	}
	e.Salt, e.Payload = bytes.Clone(whole.Salt), bytes.Clone(whole.Payload)
	_ = e.parsePayload() // folding reports it
	g.b.del(key)
	g.owed--
	ln := g.laneAt(p.lane)
	if v[0]&^amendedFlag != stateOwed {
		// Held, or in quarantine for what its header says.
		g.b.set(seqKey(tabEntry, p.lane, p.seq), storedEntry(v[0]&^amendedFlag, binary.BigEndian.Uint64(v[1:]), &e))
	} else {
		g.b.del(seqKey(tabAside, p.lane, p.seq))
		if err := g.deliver(ln, &e); err != nil {
			return false, err
		}
	}
	if e.OpID != "" {
		return true, g.indexOp(ln, &e)
	}
	return true, nil
}

// forgive lets an entry that an erase names be owed no longer: it is visible
// and absent, like every erased one.
func (g *group) forgive(p place, e *Entry) error {
	key, _, err := g.owedAt(p)
	if err != nil || key == nil {
		return err
	}
	g.b.del(key)
	g.owed--
	g.owedMoved = true
	v, err := g.b.get(seqKey(tabEntry, p.lane, p.seq))
	if err != nil || v[0]&^amendedFlag != stateOwed {
		return err
	}
	g.b.del(seqKey(tabAside, p.lane, p.seq))
	return g.place(g.laneAt(p.lane), e, stateVisible, "")
}

// loadOwed counts what is owed.
func (l *Log) loadOwed(kv kvSnapshot) error {
	return kv.scan([]byte{tabOwed}, nil, false, func(key, value []byte) (bool, error) {
		_, row, err := parseOwed(key, value)
		if row.state == owedMended {
			l.mended++
		} else {
			l.owed++
		}
		return true, err
	})
}

// wall is the wall clock in unix milliseconds.
func (l *Log) wall() int64 {
	if l.cfg.Wall != nil {
		return l.cfg.Wall()
	}
	return time.Now().UnixMilli()
}
