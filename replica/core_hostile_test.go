package replica_test

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"tallystick/oplog"
	"tallystick/replica"
)

// TestL5_HostilePeersAreContained feeds cores with whatever parses, in any
// order, and answers their effects as badly: no panic, no broken promise of
// the core's state, no answer out of proportion.
func TestL5_HostilePeersAreContained(t *testing.T) {
	for seed := range uint64(300) {
		h := &hostile{rng: rand.New(rand.NewPCG(seed, 5)), now: replica.Now{Wall: 1_800_000_000_000}}
		h.core = replica.NewCore(replica.CoreConfig{
			Key: scriptKey("a"), Self: scriptOrigin("a0"), Window: 4096, MaxRange: 1024,
			Origins: []oplog.Origin{{ID: scriptOrigin("a0"), Key: scriptKey("a"), Tips: []oplog.Tip{h.tip("a0", 3)}, Head: headOf("a0:3/1")}},
		})
		for range 400 {
			out := h.input()
			if n := len(out.Send) + len(out.Reads) + len(out.Ingests) + len(out.Heads); n > 200 {
				t.Fatalf("seed %d: %d answers to one input", seed, n)
			}
			h.effects = append(h.effects, out)
			if err := h.core.CheckInvariants(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	}
}

type hostile struct {
	rng      *rand.Rand
	core     *replica.Core
	now      replica.Now
	sessions replica.SessionID
	effects  []replica.Output
}

var hostileOrigins = []string{"a0", "a1", "b0", "c0", "d0"}

func (h *hostile) name() string { return hostileOrigins[h.rng.IntN(len(hostileOrigins))] }
func (h *hostile) tip(o string, n uint64) oplog.Tip {
	if n == 0 {
		n = h.rng.Uint64N(9) + 1
	}
	seq := binary.BigEndian.AppendUint64([]byte(o), n)
	return oplog.Tip{Seq: n, Hash: sha256.Sum256(append(seq, byte(h.rng.IntN(2))))}
}

func (h *hostile) frontier() oplog.Frontier {
	f := oplog.Frontier{}
	for range h.rng.IntN(4) {
		o := h.name()
		f[scriptOrigin(o)] = append(f[scriptOrigin(o)], h.tip(o, 0))
	}
	return f
}

func (h *hostile) head() oplog.Head {
	o := h.name()
	t := h.tip(o, 0)
	return oplog.Head{Origin: scriptOrigin(o), Seq: t.Seq, Hash: t.Hash, Floor: floorOf(int64(h.rng.IntN(50)))}
}

func (h *hostile) rng64(n uint64) uint64 { return h.rng.Uint64N(n) }

func (h *hostile) ranged(o oplog.OriginID, first uint64) oplog.Range {
	head := h.head()
	if h.rng.IntN(8) > 0 {
		head.Origin = o
	}
	r := oplog.Range{Origin: head.Origin, First: first, Count: h.rng.IntN(4), Head: head}
	r.Entries = make([]byte, h.rng.IntN(2000))
	return r
}

func (h *hostile) message() replica.Message {
	o := h.name()
	switch h.rng.IntN(14) {
	case 0, 1:
		return &replica.MsgHello{VersionMin: 1, VersionMax: 1, Key: scriptKey("bcd"[h.rng.IntN(3):]), Origin: scriptOrigin(o), Digest: h.frontier().Digest()}
	case 2, 3:
		return &replica.MsgFrontier{Full: h.rng.IntN(2) == 0, Tips: h.frontier()}
	case 4, 5:
		m := &replica.MsgWant{Sub: h.rng64(6), Origin: scriptOrigin(o), Probe: h.rng.IntN(3) == 0}
		for range h.rng.IntN(3) {
			m.After = append(m.After, h.tip(o, 0))
		}
		return m
	case 6:
		return &replica.MsgUnwant{Sub: h.rng64(6)}
	case 7, 8:
		return &replica.MsgRange{Sub: h.rng64(6), Range: h.ranged(scriptOrigin(o), h.rng64(5))}
	case 9:
		return &replica.MsgCredit{Total: h.rng.Uint64() >> h.rng.IntN(64)}
	case 10:
		return &replica.MsgHeads{Heads: []oplog.Head{h.head(), h.head()}}
	case 11:
		return &replica.MsgFloorAsk{Above: floorOf(int64(h.rng.IntN(100)))}
	case 12:
		return &replica.MsgError{Code: replica.WireCode(h.rng.IntN(12)), Sub: h.rng64(6), RetryMillis: h.rng.Uint32()}
	}
	return &replica.MsgPong{Echo: h.now.Wall - int64(h.rng.IntN(99)), Millis: h.rng.Int64()}
}

func (h *hostile) input() replica.Output {
	h.now.Mono += time.Duration(h.rng.IntN(400)) * time.Millisecond
	h.now.Wall += int64(h.rng.IntN(400))
	some := replica.SessionID(h.rng.IntN(int(h.sessions) + 1))
	switch h.rng.IntN(12) {
	case 0:
		h.sessions++
		return h.core.PeerUp(h.now, h.sessions, scriptKey("bcd"[h.rng.IntN(3):]), h.rng.IntN(2) == 0)
	case 1:
		if h.rng.IntN(4) == 0 {
			return h.core.PeerDown(h.now, some)
		}
		return h.core.Heard(h.now, some)
	case 2:
		return h.core.Tick(h.now)
	case 3:
		return h.core.LocalCommit(h.now, headOf("a0:4/9"))
	case 4, 5, 6:
		return h.answer()
	}
	// A recent session is likelier to be alive.
	if h.sessions > 2 && h.rng.IntN(4) > 0 {
		some = h.sessions - replica.SessionID(h.rng.IntN(3))
	}
	return h.core.Step(h.now, some, h.message())
}

var hostileErrors = []error{nil, nil, nil, oplog.ErrBadRange, oplog.ErrGap, oplog.ErrFork, oplog.ErrUnknownOrigin, oplog.ErrNotFound, oplog.ErrNoSpace, oplog.ErrClosed}

// answer hands back the results of one earlier output, once, out of order.
func (h *hostile) answer() (out replica.Output) {
	if len(h.effects) == 0 {
		return h.core.Tick(h.now)
	}
	i := h.rng.IntN(len(h.effects))
	e := h.effects[i]
	h.effects[i] = h.effects[len(h.effects)-1]
	h.effects = h.effects[:len(h.effects)-1]
	fail := func() error { return hostileErrors[h.rng.IntN(len(hostileErrors))] }
	for _, r := range e.Reads {
		merge(&out, h.core.RangeRead(h.now, r, h.ranged(r.Origin, r.After+1), fail()))
	}
	for _, s := range e.Samples {
		merge(&out, h.core.Sampled(h.now, s, s.Tips, fail()))
	}
	for _, g := range e.Ingests {
		res := oplog.IngestResult{Tip: g.Range.Head.Tip(), Added: g.Range.Count}
		if h.rng.IntN(3) == 0 {
			res.Tips = []oplog.Tip{res.Tip, h.tip("b0", 0)}
		}
		merge(&out, h.core.Ingested(h.now, g, res, fail()))
	}
	for _, p := range e.Heads {
		merge(&out, h.core.HeadStored(h.now, p, h.rng.IntN(2) == 0, fail()))
	}
	for _, f := range e.Floors {
		merge(&out, h.core.FloorRaised(h.now, f, headOf("a0:4/60"), fail()))
	}
	return out
}

// TestA4_FrontierIsBounded: a peer cannot make a replica remember origins
// without end.
func TestA4_FrontierIsBounded(t *testing.T) {
	core := replica.NewCore(replica.CoreConfig{Key: scriptKey("a"), Self: scriptOrigin("a0")})
	now := replica.Now{Wall: 1_800_000_000_000}
	core.PeerUp(now, 1, scriptKey("b"), false)
	core.Step(now, 1, &replica.MsgHello{VersionMin: 1, VersionMax: 1, Key: scriptKey("b"), Digest: oplog.Hash{1}})
	for n := range 10 {
		f := oplog.Frontier{}
		for i := range 8192 {
			var o oplog.OriginID
			binary.BigEndian.PutUint32(o[:], uint32(n*8192+i+1))
			f[o] = []oplog.Tip{{Seq: 1, Hash: oplog.Hash{1}}}
		}
		out := core.Step(now, 1, &replica.MsgFrontier{Full: n == 0, Tips: f})
		if len(out.Disconnects) > 0 {
			if n < 7 {
				t.Errorf("refused after %d origins", (n+1)*8192)
			}
			return
		}
	}
	t.Error("81920 origins were taken in")
}
