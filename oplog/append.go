package oplog

import (
	"context"
	"errors"
	"fmt"
	"io"

	"tallystick/hlc"
)

// MaxAppend bounds the payload bytes of one Append call, all ops together.
const MaxAppend = MaxPayload

// MaxAppendOps bounds the ops of one Append call.
const MaxAppendOps = 1024

// Append writes ops as one unit: all of them are durable when it returns, or
// none is written (L1). The answer of an op whose client op id is known from
// the same author is the first result (A2). The first append of an
// incarnation is preceded by its birth.
//
// Errors: a Guard's error as it is, *LimitError, *QuarantineError for an op
// that no projection here would fold, ErrNoBlob, ErrNoSpace, ErrClosed, ctx.Err(). After
// ctx.Err() the ops may or may not have been written; repeat with the same
// op ids to learn.
func (l *Log) Append(ctx context.Context, ops ...Op) ([]Appended, error) {
	if len(ops) == 0 {
		return nil, nil
	}
	if len(ops) > MaxAppendOps {
		return nil, &LimitError{Field: "ops in one append", Size: len(ops), Limit: MaxAppendOps}
	}
	j := &appendJob{waiter: newWaiter(), ops: ops}
	for i := range ops {
		if err := checkOp(&ops[i]); err != nil {
			return nil, err
		}
		j.bytes += len(ops[i].Body) + 16
	}
	if j.bytes > MaxAppend {
		return nil, &LimitError{Field: "append", Size: j.bytes, Limit: MaxAppend}
	}
	if err := l.submit(ctx, j); err != nil {
		return nil, err
	}
	if err := l.wait(ctx, j.waiter); err != nil {
		return nil, err
	}
	return j.results, nil
}

func checkOp(op *Op) error {
	switch {
	case op.Kind == "":
		return errors.New("oplog: op without kind")
	case len(op.Kind) > MaxKind:
		return &LimitError{Field: "kind", Size: len(op.Kind), Limit: MaxKind}
	case len(op.Author) > MaxAuthor:
		return &LimitError{Field: "author", Size: len(op.Author), Limit: MaxAuthor}
	case len(op.OpID) > MaxOpID:
		return &LimitError{Field: "op id", Size: len(op.OpID), Limit: MaxOpID}
	case len(op.Body)+len(op.OpID)+16 > MaxPayload:
		return &LimitError{Field: "payload", Size: len(op.Body), Limit: MaxPayload - len(op.OpID) - 16}
	}
	return nil
}

type appendJob struct {
	waiter
	ops     []Op
	bytes   int
	results []Appended
}

func (j *appendJob) size() int { return j.bytes }
func (j *appendJob) accept()   {}

func (j *appendJob) apply(g *group) (bool, error) {
	j.results = j.results[:0]
	for i := range j.ops {
		res, err := g.appendOp(&j.ops[i])
		if err != nil {
			return false, err
		}
		j.results = append(j.results, res)
	}
	return false, nil
}

func (g *group) appendOp(op *Op) (Appended, error) {
	if op.OpID != "" {
		switch e, arrival, err := getOp(g.b.get, op.Author, op.OpID); {
		case err == nil:
			return Appended{Ref: e.Ref(), Hash: e.Hash, Arrival: arrival, Replayed: true}, nil
		case !errors.Is(err, ErrNotFound):
			return Appended{}, fatal(err)
		}
	}
	if end, ended := g.endings[g.l.key]; ended {
		return Appended{}, fmt.Errorf("%w: %s", ErrEnded, end.Reason)
	}
	ln, err := g.ownLane()
	if err != nil {
		return Appended{}, err
	}
	stamp := g.l.clock.Now()
	if op.Guard != nil {
		if err := op.Guard(g, stamp); err != nil {
			return Appended{}, err
		}
	}
	body := op.Body
	if op.Make != nil {
		if body, err = op.Make(g, stamp); err != nil {
			return Appended{}, err
		}
		if len(body)+len(op.OpID)+16 > MaxPayload {
			return Appended{}, &LimitError{Field: "payload", Size: len(body), Limit: MaxPayload - len(op.OpID) - 16}
		}
	}
	return g.appendEntry(ln, stamp, op.Kind, op.Author, EncodePayload(op.Version, op.OpID, body))
}

// ownLane is the own incarnation's lane; it is born when there is none.
func (g *group) ownLane() (*lane, error) {
	l := g.l
	if ln := g.lane(l.w.id); ln != nil {
		return ln, nil
	}
	ln := g.addLane(l.w.id, l.key, l.w.birth.Incarnation)
	_, err := g.appendEntry(ln, l.clock.Now(), kindBirth, "", EncodePayload(birthVersion, "", l.w.birth.body()))
	return ln, err
}

func (g *group) appendEntry(ln *lane, stamp hlc.Timestamp, kind, author string, payload []byte) (Appended, error) {
	salt, err := g.l.salt()
	if err != nil {
		return Appended{}, err
	}
	e := Entry{
		Header: Header{Origin: ln.id, Seq: ln.tip.Seq + 1, Time: stamp, Prev: ln.tip.Hash, Kind: kind, Author: author},
		Salt:   salt, Payload: payload,
	}
	if err := e.parsePayload(); err != nil {
		return Appended{}, fmt.Errorf("oplog: body: %w", err)
	}
	e.seal()
	state, reason, err := g.judge(ln, &e)
	if err != nil {
		return Appended{}, err
	}
	if state == stateHeld && !isStructural(kind) {
		return Appended{}, fmt.Errorf("oplog: own entry would be held: %s", reason)
	}
	before := g.arrival
	g.b.set(hashKey(e.Hash[:]), place{ln.idx, e.Seq}.bytes())
	if e.OpID != "" {
		if err := g.indexOp(ln, &e); err != nil {
			return Appended{}, err
		}
	}
	if err := g.place(ln, &e, state, reason); err != nil {
		return Appended{}, err
	}
	if g.arrival == before && state == stateVisible {
		// Folding refused it: an op that this program itself cannot fold is a
		// mistake of the caller, not something to keep.
		v, _ := g.b.get(seqKey(tabAside, ln.idx, e.Seq))
		return Appended{}, Quarantine("%s", v[1:])
	}
	if state == stateQuarantined {
		return Appended{}, Quarantine("%s", reason)
	}
	if err := g.holdsBlobs(&e); err != nil {
		return Appended{}, err
	}
	ln.tip = Tip{Seq: e.Seq, Hash: e.Hash}
	ln.last, ln.amended = e.Time, false
	ln.sinceCheck += e.Size()
	return Appended{Ref: e.Ref(), Hash: e.Hash, Arrival: g.arrival}, nil
}

// indexOp records which entry is the first result of its op id: the earliest
// in C2 order, so that every replica answers alike.
func (g *group) indexOp(ln *lane, e *Entry) error {
	key := opKey(e.Author, e.OpID)
	switch first, _, err := getOp(g.b.get, e.Author, e.OpID); {
	case err == nil:
		if first.Ref().Compare(e.Ref()) <= 0 {
			return nil
		}
	case !errors.Is(err, ErrNotFound):
		return fatal(err)
	}
	g.b.set(key, place{ln.idx, e.Seq}.bytes())
	return nil
}

// ByOp is that of Snapshot, as the log stands in this group: what an earlier op
// of the same Append has become is found, too.
func (g *group) ByOp(author, opID string) (Entry, error) {
	e, _, err := getOp(g.b.get, author, opID)
	return e, err
}

func getOp(get func([]byte) ([]byte, error), author, opID string) (e Entry, arrival uint64, err error) {
	v, err := get(opKey(author, opID))
	if err != nil {
		return Entry{}, 0, err
	}
	p, err := placeOf(v)
	if err != nil {
		return Entry{}, 0, err
	}
	return getEntry(get, p)
}

// salt gives 16 random bytes, drawn in larger portions.
func (l *Log) salt() ([]byte, error) {
	if len(l.w.salts) < SaltSize {
		b := make([]byte, 256*SaltSize)
		if _, err := io.ReadFull(l.cfg.Rand, b); err != nil {
			return nil, fmt.Errorf("oplog: random salt: %w", err)
		}
		l.w.salts = b
	}
	s := l.w.salts[:SaltSize:SaltSize]
	l.w.salts = l.w.salts[SaltSize:]
	return s, nil
}

// RaiseFloor signs a fresh own head whose floor lies above the given
// timestamp and above everything stamped so far, after the ceiling it needs is
// durable (L4). Peers ask for it when somebody has a provisional claim. It
// gives the incarnation its birth if it has none. A timestamp further ahead
// than the clock bound is refused with *hlc.AheadError.
func (l *Log) RaiseFloor(ctx context.Context, above hlc.Timestamp) (Head, error) {
	j := &floorJob{waiter: newWaiter(), above: above}
	if err := l.submit(ctx, j); err != nil {
		return Head{}, err
	}
	if err := l.wait(ctx, j.waiter); err != nil {
		return Head{}, err
	}
	return l.Self().Head, nil
}

type floorJob struct {
	waiter
	above hlc.Timestamp
}

func (j *floorJob) size() int { return 0 }
func (j *floorJob) accept()   {}

func (j *floorJob) apply(g *group) (bool, error) {
	if err := g.l.clock.Merge(j.above); err != nil {
		return false, err
	}
	ln, err := g.ownLane()
	if err != nil {
		return false, err
	}
	if c := g.l.clock.Now(); c > g.ceiling {
		g.ceiling = c
	}
	g.ownSeq = ln.tip.Seq
	// The state record is written with every group that writes; make this one.
	g.b.set(metaKey("floor"), []byte{1})
	return false, nil
}

// ReleaseHeld folds held entries whose time has come or whose device has been
// admitted. Call it now and then while entries are held.
func (l *Log) ReleaseHeld(ctx context.Context) error {
	l.mu.RLock()
	n := l.aside
	l.mu.RUnlock()
	if n == 0 {
		return nil
	}
	j := &releaseJob{newWaiter()}
	if err := l.submit(ctx, j); err != nil {
		return err
	}
	return l.wait(ctx, j.waiter)
}

type releaseJob struct{ waiter }

func (j *releaseJob) size() int                    { return 0 }
func (j *releaseJob) accept()                      {}
func (j *releaseJob) apply(g *group) (bool, error) { return false, g.release() }

// TurnToken draws a new continuity token, so that a copy of the store made
// before cannot pass for this one (L7). Call it hourly and around backups.
func (l *Log) TurnToken(ctx context.Context) error {
	l.turning.Lock()
	defer l.turning.Unlock()
	return l.turn(l.w.token, func(token []byte) error {
		j := &tokenJob{newWaiter(), token}
		if err := l.submit(ctx, j); err != nil {
			return err
		}
		return l.wait(ctx, j.waiter)
	})
}

type tokenJob struct {
	waiter
	token []byte
}

func (j *tokenJob) size() int { return 0 }
func (j *tokenJob) accept()   {}

func (j *tokenJob) apply(g *group) (bool, error) {
	g.b.set(metaKey("token"), j.token)
	g.l.w.token = j.token
	return false, nil
}
