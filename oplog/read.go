package oplog

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// View runs fn over a consistent reading of the log and all views. The
// snapshot is gone when fn returns.
func (l *Log) View(fn func(Snapshot) error) error {
	select {
	case <-l.done:
		return ErrClosed
	default:
	}
	s := l.snapshot()
	defer s.kv.release()
	return fn(s)
}

// snapshot takes a reading of the store. What the log knows in memory of the
// views may be a commit older or newer than that, but their generations are
// the same when none was being switched meanwhile.
func (l *Log) snapshot() *snapshot {
	before := l.switches.Load()
	l.mu.RLock()
	infos := l.infos
	l.mu.RUnlock()
	s := &snapshot{l: l, kv: l.db.snapshot()}
	if before%2 == 0 && l.switches.Load() == before {
		s.infos = infos
	}
	return s
}

type snapshot struct {
	l     *Log
	kv    kvSnapshot
	infos []viewState     // whose generations are those of the snapshot; nil if that is not known
	gens  map[string]byte // generation of each view looked up in the snapshot

	// The entry read last: who lists asks for its arrival next.
	last        Ref
	lastArrival uint64
}

func (s *snapshot) View(name string) Reader {
	for i := range s.infos {
		if s.l.cfg.Projections[i].Name() == name {
			return readView{get: s.kv.get, scan: s.kv.scan, prefix: viewPrefix(name, s.infos[i].gen)}
		}
	}
	gen, ok := s.gens[name]
	if !ok {
		if v, err := s.kv.get(infoKey(name)); err == nil && len(v) == viewRecordLen {
			gen = v[viewRecordLen-1]
		}
		if s.gens == nil {
			s.gens = map[string]byte{}
		}
		s.gens[name] = gen
	}
	return readView{get: s.kv.get, scan: s.kv.scan, prefix: viewPrefix(name, gen)}
}

// getEntry reads an entry and its arrival number.
func getEntry(get func([]byte) ([]byte, error), p place) (e Entry, arrival uint64, err error) {
	v, err := get(seqKey(tabEntry, p.lane, p.seq))
	return storedAt(p, v, err)
}

// storedAt parses what was read at a place, or passes on why nothing was.
func storedAt(p place, v []byte, failed error) (e Entry, arrival uint64, err error) {
	if failed != nil {
		return Entry{}, 0, failed
	}
	if e, err = parseStored(v); err != nil {
		return Entry{}, 0, &damagedEntry{p, err}
	}
	return e, binary.BigEndian.Uint64(v[1:]), nil
}

// find reads the entry a Ref names. What the log knows in memory of origins
// may be a commit older than the snapshot, so it only serves as a short cut:
// when it does not lead to the entry, the snapshot's own table of hashes does.
func (s *snapshot) find(ref Ref) (Entry, uint64, error) {
	s.l.mu.RLock()
	lanes := s.l.byID[ref.Origin()]
	s.l.mu.RUnlock()
	if len(lanes) == 1 {
		e, arrival, err := getEntry(s.kv.get, place{lanes[0], ref.Seq()})
		if err == nil && e.goesBy(ref) {
			return e, arrival, nil
		}
		if err != nil && !errors.Is(err, ErrNotFound) {
			s.l.suspect(err)
			return Entry{}, 0, err
		}
	}
	tag := ref.Tag()
	v, err := s.kv.get(hashKey(tag[:]))
	if err != nil {
		return Entry{}, 0, err
	}
	p, err := placeOf(v)
	if err != nil {
		return Entry{}, 0, err
	}
	e, arrival, err := getEntry(s.kv.get, p)
	if err == nil && [8]byte(e.Hash[:8]) != tag {
		err = &damagedEntry{p, errors.New("another hash than it is known by")}
	}
	if err != nil {
		s.l.suspect(err)
		return Entry{}, 0, err
	}
	if !e.goesBy(ref) {
		return Entry{}, 0, ErrNotFound
	}
	return e, arrival, nil
}

func (s *snapshot) Entry(ref Ref) (Entry, error) {
	e, arrival, err := s.find(ref)
	if err == nil {
		s.last, s.lastArrival = ref, arrival
	}
	return e, err
}

func (s *snapshot) Arrival(ref Ref) (uint64, error) {
	if ref == s.last {
		return s.lastArrival, nil
	}
	_, arrival, err := s.find(ref)
	if errors.Is(err, ErrNotFound) {
		return 0, nil
	}
	return arrival, err
}

func (s *snapshot) ByHash(prefix []byte) (Entry, error) {
	if len(prefix) < 6 {
		return Entry{}, fmt.Errorf("oplog: hash prefix of %d bytes, want at least 6", len(prefix))
	}
	short := prefix
	if len(short) > hashKeyLen {
		short = short[:hashKeyLen]
	}
	var best Entry
	err := s.kv.scan(append([]byte{tabHash}, short...), nil, false, func(_, value []byte) (bool, error) {
		p, err := placeOf(value)
		if err != nil {
			return false, err
		}
		e, _, err := getEntry(s.kv.get, p)
		if err != nil {
			s.l.suspect(err)
			return false, err
		}
		if string(e.Hash[:min(len(prefix), len(e.Hash))]) == string(prefix) && (best.Seq == 0 || e.Ref().Compare(best.Ref()) < 0) {
			best = e
		}
		return true, nil
	})
	if err == nil && best.Seq == 0 {
		err = ErrNotFound
	}
	return best, err
}

func (s *snapshot) ByOp(author, opID string) (Entry, error) {
	e, _, err := getOp(s.kv.get, author, opID)
	return e, err
}

func (s *snapshot) LastArrival() uint64 {
	v, err := s.kv.get(metaKey("state"))
	if err != nil || len(v) != 16 {
		return 0
	}
	return binary.BigEndian.Uint64(v)
}

func (s *snapshot) Arrived(after uint64, reverse bool, fn func(arrival uint64, e *Entry) (bool, error)) error {
	var start []byte
	switch {
	case !reverse:
		start = arrKey(after + 1)
	case after != 0:
		start = arrKey(after)
	}
	runs := runReader{kv: s.kv}
	defer runs.close()
	return s.kv.scan([]byte{tabArr}, start, reverse, func(key, value []byte) (bool, error) {
		p, err := placeOf(value)
		if err != nil {
			return false, err
		}
		stored, err := runs.entry(p)
		e, arrival, err := storedAt(p, stored, err)
		if errors.Is(err, ErrDamaged) || errors.Is(err, ErrNotFound) {
			s.l.suspectAt(p) // fetched again; it must not hide those behind it
			return true, nil
		}
		if err != nil {
			return false, err
		}
		if e.beyond {
			return true, nil
		}
		return fn(arrival, &e)
	})
}

// Frontier is what this replica durably holds: the only one to tell others.
func (l *Log) Frontier() Frontier {
	l.mu.RLock()
	defer l.mu.RUnlock()
	f := make(Frontier, len(l.lanes))
	for _, ln := range l.lanes {
		f[ln.id] = append(f[ln.id], ln.tip)
	}
	return f
}

// Origins lists what is known of every origin, in order of first sight here.
func (l *Log) Origins() []Origin {
	l.mu.RLock()
	defer l.mu.RUnlock()
	out := make([]Origin, 0, len(l.byID))
	for _, ln := range l.lanes {
		if !ln.branch() {
			out = append(out, l.originLocked(ln.id))
		}
	}
	return out
}

func (l *Log) originLocked(id OriginID) Origin {
	var lanes []*lane
	for _, idx := range l.byID[id] {
		lanes = append(lanes, l.lanes[idx])
	}
	return originOf(lanes, id == l.self.ID)
}

// Self is the own incarnation. Before its birth it has no tips and no head.
func (l *Log) Self() Origin {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if len(l.byID[l.self.ID]) == 0 {
		return l.self
	}
	return l.originLocked(l.self.ID)
}

// Heads lists the latest signed head of every branch of every origin.
func (l *Log) Heads() []Head {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var out []Head
	for _, ln := range l.lanes {
		if !ln.head.IsZero() {
			out = append(out, ln.head)
		}
	}
	return out
}

// Held is the number of entries that wait out of all views.
func (l *Log) Held() int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.aside
}

// Aside lists entries that are stored and relayed but in no view, at most
// limit of them.
func (l *Log) Aside(limit int) ([]Aside, error) {
	out, _, err := l.asides(limit, false, func(byte) bool { return true })
	return out, err
}

// Waiting lists entries that are held, at most limit of them. Held counts all.
func (l *Log) Waiting(limit int) ([]Aside, error) {
	if l.Held() == 0 {
		return nil, nil
	}
	out, _, err := l.asides(limit, false, func(state byte) bool { return state == stateHeld })
	return out, err
}

// Quarantined lists entries that cannot be folded, at most limit of them, and
// counts all.
func (l *Log) Quarantined(limit int) (list []Aside, total int, err error) {
	return l.asides(limit, true, func(state byte) bool { return state == stateQuarantined })
}

// asides lists entries in a state that is wanted, and with count goes on to
// count those that it does not list.
func (l *Log) asides(limit int, count bool, want func(state byte) bool) (out []Aside, total int, err error) {
	kv := l.db.snapshot()
	defer kv.release()
	err = kv.scan([]byte{tabAside}, nil, false, func(key, value []byte) (bool, error) {
		if !want(value[0]) {
			return true, nil
		}
		if len(out) >= limit {
			total++
			return count, nil
		}
		p := place{binary.BigEndian.Uint32(key[1:]), binary.BigEndian.Uint64(key[5:])}
		e, _, err := getEntry(kv.get, p)
		if errors.Is(err, ErrDamaged) || errors.Is(err, ErrNotFound) {
			l.suspectAt(p) // it is listed as owed
			return true, nil
		}
		if err != nil {
			return false, err
		}
		total++
		out = append(out, Aside{Ref: e.Ref(), Kind: e.Kind, Author: e.Author, Reason: string(value[1:]), Held: value[0] == stateHeld, Owed: value[0] == stateOwed, Beyond: value[0] == stateBeyond})
		return true, nil
	})
	return out, total, err
}

// Views describes every view as committed.
func (l *Log) Views() []ViewInfo {
	l.mu.RLock()
	defer l.mu.RUnlock()
	out := make([]ViewInfo, len(l.infos))
	for i := range l.infos {
		out[i] = ViewInfo{Name: l.cfg.Projections[i].Name(), Digest: l.infos[i].digest(), Rows: l.infos[i].rows}
	}
	return out
}
