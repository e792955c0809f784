package oplog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
)

// Finding is one defect that Verify found.
type Finding struct {
	Origin OriginID // zero when it is not about one origin
	Seq    uint64   // 0 when it is not about one entry
	View   string   // the view it is about, if any
	Reason string
}

func (f Finding) String() string {
	switch {
	case f.View != "":
		return "view " + f.View + ": " + f.Reason
	case f.Seq != 0:
		return fmt.Sprintf("origin %s seq %d: %s", f.Origin, f.Seq, f.Reason)
	case !f.Origin.IsZero():
		return fmt.Sprintf("origin %s: %s", f.Origin, f.Reason)
	}
	return f.Reason
}

// Verification is what Verify looked at and found.
type Verification struct {
	Entries  uint64 // entries read
	Payloads uint64 // of which their payload is here
	Heads    int
	Rows     uint64
	Findings []Finding // at most MaxFindings
	More     bool      // there were more findings than that

	suspects []place
}

// MaxFindings bounds what Verify reports.
const MaxFindings = 1000

func (v *Verification) add(f Finding) {
	if len(v.Findings) >= MaxFindings {
		v.More = true
		return
	}
	v.Findings = append(v.Findings, f)
}

// Verify reads the whole log and all views as they stand and checks them: form
// and hash of every entry, the chain of every branch, the signature of every
// head, the arrival order, and that each view's rows add up to its digest. It
// changes nothing. progress, if set, is told how many of how many entries are
// read; it must not block.
func (l *Log) Verify(ctx context.Context, progress func(done, total uint64)) (*Verification, error) {
	l.mu.RLock()
	lanes := l.lanes // may be a commit behind the snapshot
	l.mu.RUnlock()
	kv := l.db.snapshot()
	defer kv.release()
	v := &Verification{}
	var total uint64
	for _, ln := range lanes {
		total += ln.tip.Seq - ln.forkSeq
	}
	defer func() {
		for _, p := range v.suspects {
			l.suspectAt(p)
		}
	}()
	for _, ln := range lanes {
		if err := v.lane(ctx, kv, lanes, ln, func() {
			if progress != nil {
				progress(v.Entries, total)
			}
		}); err != nil {
			return nil, err
		}
	}
	if err := v.arrivals(ctx, kv); err != nil {
		return nil, err
	}
	for _, p := range l.cfg.Projections {
		rec, err := kv.get(infoKey(p.Name()))
		if err != nil {
			return nil, err
		}
		state, _, err := parseViewState(rec)
		if err != nil {
			v.add(Finding{View: p.Name(), Reason: err.Error()})
			continue
		}
		if err := v.view(ctx, kv, p.Name(), &state); err != nil {
			return nil, err
		}
	}
	return v, nil
}

func (v *Verification) lane(ctx context.Context, kv kvSnapshot, lanes []*lane, ln *lane, tick func()) error {
	seq, prev := ln.forkSeq, Hash{}
	if ln.branch() && ln.forkSeq > 0 {
		from := laneAtSeq(pathTo(lanes, lanes[ln.parent]), ln.forkSeq)
		e, _, err := getEntry(kv.get, place{from.idx, ln.forkSeq})
		if err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNotFound) {
			return err
		}
		prev = e.Hash
	}
	broken := false // the entry before does not parse, so its hash is not known
	err := kv.scan(laneKey(tabEntry, ln.idx), nil, false, func(key, value []byte) (bool, error) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if at := binary.BigEndian.Uint64(key[5:]); at != seq+1 {
			v.add(Finding{Origin: ln.id, Seq: seq + 1, Reason: fmt.Sprintf("missing, the next one here is %d", at)})
			for gone := seq + 1; gone < at && len(v.suspects) < maxSuspects; gone++ {
				v.suspectChain(ln.idx, gone)
			}
			seq, broken = at-1, true
		}
		seq++
		v.Entries++
		if v.Entries%4096 == 0 {
			tick()
		}
		e, err := parseStored(value)
		if err != nil {
			v.add(Finding{Origin: ln.id, Seq: seq, Reason: err.Error()})
			v.suspectChain(ln.idx, seq)
			broken = true
			return true, nil
		}
		if e.Present() {
			v.Payloads++
		}
		switch {
		case e.Origin != ln.id || e.Seq != seq:
			v.add(Finding{Origin: ln.id, Seq: seq, Reason: fmt.Sprintf("holds seq %d of %s", e.Seq, e.Origin)})
		case !broken && e.Prev != prev:
			v.add(Finding{Origin: ln.id, Seq: seq, Reason: "does not follow the entry before"})
			v.suspectChain(ln.idx, seq)
		}
		if p, err := findHash(kv.get, &e.Hash); err != nil || p != (place{ln.idx, seq}) {
			v.add(Finding{Origin: ln.id, Seq: seq, Reason: "is not found by its hash"})
			v.suspectChain(ln.idx, seq)
		}
		prev, broken = e.Hash, false
		return true, nil
	})
	if err != nil {
		return err
	}
	if seq < ln.tip.Seq {
		v.add(Finding{Origin: ln.id, Seq: ln.tip.Seq, Reason: fmt.Sprintf("the log ends at seq %d", seq)})
	}
	return v.heads(kv, ln)
}

// suspectChain remembers an entry to be fetched again, and the one before.
func (v *Verification) suspectChain(lane uint32, seq uint64) {
	for _, s := range []uint64{seq, seq - 1} {
		if s > 0 && len(v.suspects) < maxSuspects {
			v.suspects = append(v.suspects, place{lane, s})
		}
	}
}

func (v *Verification) heads(kv kvSnapshot, ln *lane) error {
	check := func(_, value []byte) (bool, error) {
		v.Heads++
		h, _, err := ParseHead(value)
		switch {
		case err != nil:
			v.add(Finding{Origin: ln.id, Reason: "head: " + err.Error()})
		case !h.Verify(ln.key):
			v.add(Finding{Origin: ln.id, Seq: h.Seq, Reason: "head is not signed by the device"})
		case h.Seq <= ln.tip.Seq:
			e, _, err := getEntry(kv.get, place{ln.idx, h.Seq})
			if err == nil && e.Hash != h.Hash {
				v.add(Finding{Origin: ln.id, Seq: h.Seq, Reason: "head is of another entry"})
			}
		}
		return true, nil
	}
	if err := kv.scan(laneKey(tabHead, ln.idx), nil, false, check); err != nil {
		return err
	}
	return kv.scan(laneKey(tabCheck, ln.idx), nil, false, check)
}

func (v *Verification) arrivals(ctx context.Context, kv kvSnapshot) error {
	var last uint64
	err := kv.scan([]byte{tabArr}, nil, false, func(key, value []byte) (bool, error) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		n := binary.BigEndian.Uint64(key[1:])
		p, err := placeOf(value)
		if err != nil {
			v.add(Finding{Reason: fmt.Sprintf("arrival %d: record is damaged", n)})
			return true, nil
		}
		if n != last+1 {
			v.add(Finding{Reason: fmt.Sprintf("arrival %d is missing", last+1)})
		}
		last = n
		stored, err := kv.get(seqKey(tabEntry, p.lane, p.seq))
		if err != nil || len(stored) < entryPrefixLen || stored[0]&^amendedFlag != stateVisible && stored[0]&^amendedFlag != stateBeyond || binary.BigEndian.Uint64(stored[1:]) != n {
			v.add(Finding{Seq: p.seq, Reason: fmt.Sprintf("arrival %d names an entry that does not name it", n)})
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	state, err := kv.get(metaKey("state"))
	switch {
	case errors.Is(err, ErrNotFound) && last == 0:
		return nil
	case err != nil && !errors.Is(err, ErrNotFound):
		return err
	case len(state) != 16 || binary.BigEndian.Uint64(state) != last:
		v.add(Finding{Reason: fmt.Sprintf("arrivals end at %d, which is not the last one recorded", last)})
	}
	return nil
}

func (v *Verification) view(ctx context.Context, kv kvSnapshot, name string, want *viewState) error {
	prefix := viewPrefix(name, want.gen)
	var got viewState
	var buf []byte
	err := kv.scan(prefix, nil, false, func(key, value []byte) (bool, error) {
		hi, lo, b := rowHash(buf, key[len(prefix):], value)
		buf = b
		got.add(hi, lo)
		v.Rows++
		return true, ctx.Err()
	})
	if err != nil {
		return err
	}
	if got.hi != want.hi || got.lo != want.lo || got.rows != want.rows {
		v.add(Finding{View: name, Reason: fmt.Sprintf("%d rows with digest %s, recorded are %d with %s; a rebuild mends it", got.rows, got.digest(), want.rows, want.digest())})
	}
	return nil
}
