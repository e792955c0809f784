package oplog

import (
	"errors"
	"fmt"
)

// An origin's entries form a tree by previous hash, nearly always a single
// line. A path is the line from its birth to one tip: for each lane on the
// way, up to which seq the path follows it.

type stretch struct {
	ln   *lane
	last uint64 // seq of the last entry of the path in this lane
}

// pathTo lists the stretches from the birth to a lane's tip, in order.
func pathTo(lanes []*lane, ln *lane) []stretch {
	path := []stretch{{ln, ln.tip.Seq}}
	for ln.branch() {
		fork := ln.forkSeq
		ln = lanes[ln.parent]
		if fork > 0 {
			path = append(path, stretch{ln, fork})
		}
	}
	for i, j := 0, len(path)-1; i < j; i, j = i+1, j-1 {
		path[i], path[j] = path[j], path[i]
	}
	// A child may fork off a stretch that its parent itself took from its
	// parent; then the stretch in between is empty.
	out := path[:0]
	var before uint64
	for i, s := range path {
		for _, later := range path[i+1:] {
			s.last = min(s.last, later.ln.forkSeq)
		}
		if s.last > before || i == len(path)-1 {
			out = append(out, s)
			before = s.last
		}
	}
	return out
}

// laneAtSeq is the lane in which the path has entry seq, nil beyond its end.
func laneAtSeq(path []stretch, seq uint64) *lane {
	for _, s := range path {
		if seq <= s.last {
			return s.ln
		}
	}
	return nil
}

// paths copies what reading needs of an origin.
func (l *Log) paths(origin OriginID) (lanes []*lane, idx []uint32, err error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	idx = l.byID[origin]
	if len(idx) == 0 {
		return nil, nil, fmt.Errorf("%w: %s", ErrUnknownOrigin, origin)
	}
	return l.lanes, idx, nil
}

// Holds reports whether the entry a tip names is held, at its end or below it.
func (l *Log) Holds(origin OriginID, tip Tip) (bool, error) {
	lanes, idx, err := l.paths(origin)
	if errors.Is(err, ErrUnknownOrigin) {
		return false, nil
	}
	if laneWithTip(lanes, idx, tip) != nil {
		return true, nil
	}
	kv := l.db.snapshot()
	defer kv.release()
	p, err := findHash(kv.get, &tip.Hash)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil && p.seq == tip.Seq && lanes[p.lane].id == origin, err
}

// maxSamples bounds what Samples gives.
const maxSamples = 40

// Samples lists entries of the line that ends in tip, at distances that
// double: tip, the one before, 2, 4, 8... before, and the birth. A peer that
// holds another branch finds the last common entry, or one near it, among
// them; what it sends twice costs nothing (L5).
func (l *Log) Samples(origin OriginID, tip Tip) ([]Tip, error) {
	lanes, idx, err := l.paths(origin)
	if err != nil {
		return nil, err
	}
	ln := laneWithTip(lanes, idx, tip)
	if ln == nil {
		return nil, fmt.Errorf("%w: no branch of %s ends at seq %d", ErrNotFound, origin, tip.Seq)
	}
	path := pathTo(lanes, ln)
	kv := l.db.snapshot()
	defer kv.release()
	out := []Tip{tip}
	for step := uint64(1); len(out) < maxSamples; step *= 2 {
		seq := uint64(1)
		if tip.Seq > step {
			seq = tip.Seq - step
		}
		if seq >= out[len(out)-1].Seq {
			break
		}
		e, _, err := getEntry(kv.get, place{laneAtSeq(path, seq).idx, seq})
		if err != nil {
			return nil, err
		}
		out = append(out, Tip{Seq: seq, Hash: e.Hash})
	}
	return out, nil
}

// ReadRange reads entries of an origin's first branch after the given seq, up
// to a signed head. It ends at the last such place within maxBytes of entries,
// or at the first one if that lies further. Count is 0 when there is nothing
// to read.
func (l *Log) ReadRange(origin OriginID, after uint64, maxBytes int) (Range, error) {
	lanes, idx, err := l.paths(origin)
	if err != nil {
		return Range{}, err
	}
	kv := l.db.snapshot()
	defer kv.release()
	return l.read(kv, pathTo(lanes, lanes[idx[0]]), after, maxBytes)
}

// ReadToward reads entries on the line to one of the origin's tips, after the
// highest of the given entries that lies on that line; after none of them,
// from the birth. It ends like ReadRange. A tip that is not one of the
// origin's is ErrNotFound.
func (l *Log) ReadToward(origin OriginID, after []Tip, toward Tip, maxBytes int) (Range, error) {
	lanes, idx, err := l.paths(origin)
	if err != nil {
		return Range{}, err
	}
	ln := laneWithTip(lanes, idx, toward)
	if ln == nil {
		return Range{}, fmt.Errorf("%w: no branch of %s ends at seq %d", ErrNotFound, origin, toward.Seq)
	}
	path := pathTo(lanes, ln)
	kv := l.db.snapshot()
	defer kv.release()
	var from uint64
	for _, t := range after {
		on := laneAtSeq(path, t.Seq)
		if t.Seq <= from || on == nil {
			continue
		}
		e, _, err := getEntry(kv.get, place{on.idx, t.Seq})
		if err != nil {
			return Range{}, err
		}
		if e.Hash == t.Hash {
			from = t.Seq
		}
	}
	return l.read(kv, path, from, maxBytes)
}

// read is readPath; a damaged entry is remembered, and what comes before it
// given.
func (l *Log) read(kv kvSnapshot, path []stretch, after uint64, maxBytes int) (Range, error) {
	rg, err := readPath(kv, path, after, maxBytes)
	if errors.Is(err, ErrDamaged) {
		l.suspectChain(err)
		if rg.Count > 0 {
			err = nil
		}
	}
	return rg, err
}

func readPath(kv kvSnapshot, path []stretch, after uint64, maxBytes int) (Range, error) {
	end := path[len(path)-1].ln
	rg := Range{Origin: end.id, First: after + 1}
	if end.head.Seq <= after {
		return rg, nil
	}
	ends, err := rangeEnds(kv, path, after)
	if err != nil {
		return Range{}, err
	}
	buf := make([]byte, 0, 4096)
	cut, n := 0, 0
	var prev Hash
	for _, s := range path {
		first := after + uint64(n) + 1
		if s.last < first {
			continue
		}
		err = kv.scan(laneKey(tabEntry, s.ln.idx), seqKey(tabEntry, s.ln.idx, first), false, func(_, value []byte) (bool, error) {
			exact, err := given(value, end.id, place{s.ln.idx, after + uint64(n) + 1}, prev)
			if err != nil {
				return false, err
			}
			if rg.Count > 0 && len(buf)+len(value) > maxBytes {
				ends = nil
				return false, nil
			}
			buf = append(buf, exact.bytes...)
			n++
			prev = exact.hash
			seq := after + uint64(n)
			if ends[0].Seq == seq {
				if ends[0].Hash != prev {
					return false, &damagedEntry{place{s.ln.idx, seq}, errors.New("it is not the one that its head names")}
				}
				rg.Head, cut, rg.Count = ends[0], len(buf), n
				ends = ends[1:]
			}
			return len(ends) > 0 && seq < s.last, nil
		})
		if seq := after + uint64(n); err == nil && len(ends) > 0 && seq < min(s.last, ends[0].Seq) {
			err = &damagedEntry{place{s.ln.idx, seq + 1}, errors.New("it is missing")}
		}
		if err != nil && rg.Count == 0 {
			return Range{}, err
		}
		if err != nil || len(ends) == 0 {
			break // what comes before a damaged entry is given
		}
	}
	rg.Entries = buf[:cut]
	return rg, err
}

type givenEntry struct {
	bytes []byte
	hash  Hash
}

// given looks at an entry before it is given to a peer: that its hashes are
// right, and that it follows the one before.
func given(value []byte, id OriginID, p place, prev Hash) (g givenEntry, err error) {
	var e Entry
	var rest []byte
	if g.bytes, _, err = exactOf(value); err == nil {
		e, rest, err = ParseEntry(g.bytes)
	}
	switch {
	case err != nil:
	case len(rest) > 0:
		err = errors.New("bytes behind it")
	case e.Origin != id || e.Seq != p.seq:
		err = fmt.Errorf("it says seq %d of %s", e.Seq, e.Origin)
	case !prev.IsZero() && e.Prev != prev:
		err = errors.New("it does not follow the one before")
	}
	if err != nil {
		return g, &damagedEntry{p, err}
	}
	g.hash = e.Hash
	return g, nil
}

// rangeEnds lists heads after a seq where a range on the path can end, in
// order; the last is the head at the path's end.
func rangeEnds(kv kvSnapshot, path []stretch, after uint64) ([]Head, error) {
	var ends []Head
	last := path[len(path)-1].ln.head
	for _, s := range path {
		if s.last <= after || last.Seq-after <= 16 {
			continue
		}
		from := seqKey(tabCheck, s.ln.idx, after+1)
		err := kv.scan(laneKey(tabCheck, s.ln.idx), from, false, func(_, value []byte) (bool, error) {
			h, _, err := ParseHead(value)
			if err != nil {
				return false, fmt.Errorf("%w: kept head: %w", ErrDamaged, err)
			}
			if h.Seq > s.last || h.Seq >= last.Seq {
				return false, nil
			}
			ends = append(ends, h)
			return len(ends) < 32, nil
		})
		if err != nil {
			return nil, err
		}
	}
	return append(ends, last), nil
}
