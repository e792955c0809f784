package oplog

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
)

// viewState is a view's digest and row count, kept up to date row by row.
// The digest is the sum of a 128-bit hash of each row, so it does not depend
// on the order in which rows came. It finds divergence, not malice.
type viewState struct {
	hi, lo uint64
	rows   uint64
	gen    byte // generation of the rows that are read
	dirty  bool
}

func rowHash(buf, key, value []byte) (hi, lo uint64, out []byte) {
	buf = binary.BigEndian.AppendUint32(buf[:0], uint32(len(key)))
	buf = append(buf, key...)
	buf = append(buf, value...)
	lo = xxhash.Sum64(buf)
	buf = append(buf, 0xa5)
	hi = xxhash.Sum64(buf)
	return hi, lo, buf
}

func (v *viewState) add(hi, lo uint64) {
	v.lo += lo
	v.hi += hi
	v.rows++
	v.dirty = true
}

func (v *viewState) sub(hi, lo uint64) {
	v.lo -= lo
	v.hi -= hi
	v.rows--
	v.dirty = true
}

func (v *viewState) digest() string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], v.hi)
	binary.BigEndian.PutUint64(b[8:], v.lo)
	return hex.EncodeToString(b[:])
}

func (v *viewState) record(version uint32) []byte {
	b := binary.BigEndian.AppendUint32(nil, version)
	b = binary.BigEndian.AppendUint64(b, v.hi)
	b = binary.BigEndian.AppendUint64(b, v.lo)
	return append(binary.BigEndian.AppendUint64(b, v.rows), v.gen)
}

const viewRecordLen = 4 + 16 + 8 + 1

func parseViewState(b []byte) (v viewState, version uint32, err error) {
	if len(b) != viewRecordLen {
		return v, 0, fmt.Errorf("%w: view record of %d bytes", ErrDamaged, len(b))
	}
	return viewState{
		hi: binary.BigEndian.Uint64(b[4:]), lo: binary.BigEndian.Uint64(b[12:]),
		rows: binary.BigEndian.Uint64(b[20:]), gen: b[28],
	}, binary.BigEndian.Uint32(b), nil
}

// saveViews puts the state of each view that changed into the group.
func (g *group) saveViews() {
	for i := range g.infos {
		if g.infos[i].dirty {
			g.infos[i].dirty = false
			p := g.l.cfg.Projections[i]
			g.b.set(infoKey(p.Name()), g.infos[i].record(p.Version()))
		}
	}
}

// viewTx is a projection's hand on its view inside a group.
type viewTx struct {
	g      *group
	index  int
	shadow *viewState // the generation in the making; nil for the one being read
	prefix string
	key    []byte // the prefix and the last key asked for
	buf    []byte
}

// full is the key with the view's prefix, until the next call.
func (t *viewTx) full(key []byte) []byte {
	t.key = append(append(t.key[:0], t.prefix...), key...)
	return t.key
}

func (t *viewTx) state() *viewState {
	if t.shadow != nil {
		return t.shadow
	}
	return &t.g.infos[t.index]
}

func (g *group) tx(index int) *viewTx {
	if g.txs == nil {
		g.txs = make([]*viewTx, len(g.infos))
	}
	if g.txs[index] == nil {
		g.txs[index] = &viewTx{g: g, index: index, prefix: string(viewPrefix(g.l.cfg.Projections[index].Name(), g.infos[index].gen))}
	}
	return g.txs[index]
}

func (t *viewTx) Get(key []byte) ([]byte, error) { return t.g.b.get(t.full(key)) }

func (t *viewTx) Scan(prefix, start []byte, reverse bool, fn func(key, value []byte) (bool, error)) error {
	return scanView(t.g.b.scan, []byte(t.prefix), prefix, start, reverse, fn)
}

func (t *viewTx) Insert(key, value []byte) error {
	t.put(t.full(key), key, value)
	return nil
}

func (t *viewTx) put(full, key, value []byte) {
	hi, lo, buf := rowHash(t.buf, key, value)
	t.buf = buf
	t.state().add(hi, lo)
	t.g.b.put(full, item{value: t.g.b.holdValue(value)})
}

func (t *viewTx) Set(key, value []byte) error {
	full := t.full(key)
	if _, err := t.remove(full, key); err != nil {
		return err
	}
	t.put(full, key, value)
	return nil
}

func (t *viewTx) Delete(key []byte) error {
	full := t.full(key)
	existed, err := t.remove(full, key)
	if existed {
		t.g.b.put(full, item{deleted: true})
	}
	return err
}

// remove takes the row that stands at key out of the digest.
func (t *viewTx) remove(full, key []byte) (existed bool, err error) {
	old, err := t.g.b.get(full)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	hi, lo, buf := rowHash(t.buf, key, old)
	t.buf = buf
	t.state().sub(hi, lo)
	return true, nil
}

type scanFunc func(prefix, start []byte, reverse bool, fn func(key, value []byte) (bool, error)) error

// scanView scans a view's keys with the view's own prefix taken off.
func scanView(scan scanFunc, view, prefix, start []byte, reverse bool, fn func(key, value []byte) (bool, error)) error {
	full := append(append(make([]byte, 0, len(view)+len(prefix)), view...), prefix...)
	var from []byte
	if start != nil {
		from = append(append(make([]byte, 0, len(view)+len(start)), view...), start...)
	}
	return scan(full, from, reverse, func(key, value []byte) (bool, error) {
		return fn(key[len(view):], value)
	})
}

// readView is a view read through anything that gets and scans.
type readView struct {
	get    func(key []byte) ([]byte, error)
	scan   scanFunc
	prefix []byte
}

func (r readView) Get(key []byte) ([]byte, error) {
	return r.get(append(append(make([]byte, 0, len(r.prefix)+len(key)), r.prefix...), key...))
}

func (r readView) Scan(prefix, start []byte, reverse bool, fn func(key, value []byte) (bool, error)) error {
	return scanView(r.scan, r.prefix, prefix, start, reverse, fn)
}

// View makes a group readable for gates and guards.
func (g *group) View(name string) Reader {
	var gen byte
	for i, p := range g.l.cfg.Projections {
		if p.Name() == name {
			gen = g.infos[i].gen
		}
	}
	return readView{get: g.b.get, scan: g.b.scan, prefix: viewPrefix(name, gen)}
}

// deliver folds an entry, sets it aside or holds it, and stores it.
func (g *group) deliver(ln *lane, e *Entry) error {
	state, reason, err := g.judge(ln, e)
	if err != nil {
		return err
	}
	return g.place(ln, e, state, reason)
}

// judge decides whether an entry may be folded now.
func (g *group) judge(ln *lane, e *Entry) (state byte, reason string, err error) {
	if e.Present() && e.Body == nil {
		if err := e.parsePayload(); err != nil {
			return stateQuarantined, "payload: " + err.Error(), nil
		}
	}
	if why, void, err := g.beyond(ln, e.Kind, e.Seq, &e.Hash); err != nil {
		return 0, "", fatal(err)
	} else if void {
		return stateBeyond, why, nil
	}
	structural := isStructural(e.Kind)
	if g.l.cfg.Gate != nil {
		o := originOf([]*lane{ln}, ln.id == g.l.w.id)
		d, err := g.l.cfg.Gate.Decide(g, &o, e)
		if err != nil {
			return 0, "", fatal(err)
		}
		switch {
		case d.Quarantine:
			// What it lies behind may be the word that it is to be judged by (I9).
			if seq := g.heldBefore(ln, e.Seq); seq != 0 {
				return stateHeld, waitsBehind(seq), nil
			}
			return stateQuarantined, d.Reason, nil
		case d.Hold:
			return stateHeld, d.Reason, nil
		}
	}
	if structural {
		return stateVisible, "", nil
	}
	if seq := g.heldBefore(ln, e.Seq); seq != 0 {
		return stateHeld, waitsBehind(seq), nil
	}
	// Own entries are never held here: a clock that was wrong and is mended
	// must not shut its owner out. Others hold them, and say whose clock it is.
	if lead, beyond := g.l.clock.Ahead(e.Time); beyond && ln.id != g.l.w.id {
		return stateHeld, fmt.Sprintf("stamped %s ahead of this machine's clock", lead.Round(time.Second)), nil
	}
	return stateVisible, "", nil
}

func waitsBehind(seq uint64) string { return fmt.Sprintf("waits behind seq %d of its origin", seq) }

// heldBefore is the seq of a held entry that lies before seq on the same
// branch, 0 if there is none: what is held of a branch is a suffix (C3).
func (g *group) heldBefore(ln *lane, seq uint64) uint64 {
	for {
		if ln.heldFrom != 0 && ln.heldFrom < seq {
			return ln.heldFrom
		}
		if !ln.branch() {
			return 0
		}
		seq, ln = min(seq, ln.forkSeq+1), g.peek(ln.parent)
	}
}

// isStructural reports whether a kind acts on receipt, whatever its stamp (C3).
func isStructural(kind string) bool { return len(kind) > 6 && kind[:6] == "tally." }

// place stores an entry in the given state; a visible one is folded and gets
// its arrival number. Folding may turn visible into quarantined.
func (g *group) place(ln *lane, e *Entry, state byte, reason string) error {
	if g.owes(e) {
		if err := g.owe(ln, e); err != nil {
			return err
		}
		if state == stateVisible {
			state, reason = stateOwed, reasonOwed
		}
	}
	if state == stateVisible {
		var q *QuarantineError
		switch err := g.fold(e); {
		case errors.As(err, &q):
			state, reason = stateQuarantined, q.Reason
		case err != nil:
			return fatal(err)
		}
	}
	var arrival uint64
	p := place{ln.idx, e.Seq}
	switch state {
	case stateVisible:
		g.arrival++
		arrival = g.arrival
		g.b.set(arrKey(arrival), p.bytes())
		if _, beyond := g.l.clock.Ahead(e.Time); !beyond && e.Time > g.maxSeen {
			g.maxSeen = e.Time
		}
	default:
		g.b.set(seqKey(tabAside, ln.idx, e.Seq), append([]byte{state}, clip(reason, 512)...))
		if state == stateHeld {
			g.held++
			if ln.heldFrom == 0 || e.Seq < ln.heldFrom {
				ln.heldFrom = e.Seq
			}
		}
	}
	g.b.set(seqKey(tabEntry, ln.idx, e.Seq), storedEntry(state, arrival, e))
	return nil
}

func clip(s string, n int) string {
	if len(s) > n {
		return strings.ToValidUTF8(s[:n], "")
	}
	return s
}

// fold runs the projections over a visible entry. On an error nothing of it
// remains in any view.
func (g *group) fold(e *Entry) error {
	if !e.Present() {
		return nil // erased: folds as absent
	}
	if e.Kind == kindErase {
		// The rows of projections that see erases come on top; none refuses what
		// this takes.
		if err := g.foldErase(e); err != nil {
			return err
		}
	}
	if e.Kind == kindAmend {
		if err := g.foldAmend(e); err != nil {
			return err
		}
	}
	if !g.l.known[e.Kind] {
		return Quarantine("unknown kind %q", e.Kind)
	}
	mark := g.b.mark()
	g.wasInfos = append(g.wasInfos[:0], g.infos...)
	for _, set := range [2][]int{g.l.folds[e.Kind], g.l.all} {
		for _, i := range set {
			if err := g.l.cfg.Projections[i].Apply(g.tx(i), e); err != nil {
				g.b.rollback(mark)
				copy(g.infos, g.wasInfos)
				return err
			}
		}
	}
	if err := g.nameBlobs(e); err != nil {
		return err
	}
	if err := g.refreshEndings(e.Kind); err != nil {
		return err
	}
	if g.l.cfg.Gate != nil && !g.recheck {
		for _, k := range g.l.cfg.Gate.RecheckKinds() {
			if k == e.Kind {
				g.recheck = true
			}
		}
	}
	return nil
}

// release asks again for every held entry, lane by lane, until one must wait.
func (g *group) release() error {
	for changed := true; changed && g.held > 0; {
		changed = false
		for idx := uint32(0); idx < g.nlanes; idx++ {
			if g.peek(idx).heldFrom == 0 {
				continue
			}
			n, err := g.releaseLane(g.laneAt(idx))
			if err != nil {
				return err
			}
			changed = changed || n > 0
		}
	}
	return nil
}

func (g *group) releaseLane(ln *lane) (released int, err error) {
	var seqs []uint64
	err = g.b.scan(laneKey(tabAside, ln.idx), nil, false, func(key, value []byte) (bool, error) {
		if value[0] == stateHeld {
			seqs = append(seqs, binary.BigEndian.Uint64(key[5:]))
		}
		return true, nil
	})
	if err != nil {
		return 0, fatal(err)
	}
	for _, seq := range seqs {
		ln.heldFrom = seq
		if g.b.full() {
			return released, nil // the next call goes on
		}
		stored, err := g.b.get(seqKey(tabEntry, ln.idx, seq))
		if err != nil {
			return released, fatal(err)
		}
		e, err := parseStored(stored)
		if err != nil {
			return released, fatal(fmt.Errorf("%w: held entry: %v", ErrDamaged, err))
		}
		state, reason, err := g.judge(ln, &e)
		if err != nil {
			return released, err
		}
		if state == stateHeld {
			return released, nil
		}
		g.b.del(seqKey(tabAside, ln.idx, seq))
		g.held--
		ln.heldFrom = 0
		if err := g.place(ln, &e, state, reason); err != nil {
			return released, err
		}
		released++
	}
	return released, nil
}
