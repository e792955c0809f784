package oplog

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"tallystick/hlc"
)

// byKind is a projection that counts entries a kind and lists them by Ref.
type byKind struct{ version uint32 }

func (byKind) Name() string      { return "bykind" }
func (p byKind) Version() uint32 { return p.version }
func (byKind) Kinds() []string   { return []string{"note"} }
func (byKind) Apply(tx Tx, e *Entry) error {
	if string(e.Body) == "\xa3bad" {
		return Quarantine("bad body")
	}
	ref := e.Ref()
	if err := tx.Insert(append([]byte("r"), ref[:]...), e.Body); err != nil {
		return err
	}
	n := uint64(0)
	if v, err := tx.Get([]byte("n")); err == nil {
		r := reader{b: v}
		n = r.uint()
	} else if !errors.Is(err, ErrNotFound) {
		return err
	}
	return tx.Set([]byte("n"), appendUint(nil, n+1))
}

func deviceKey(name string) ed25519.PrivateKey {
	seed := sha256.Sum256([]byte(name))
	return ed25519.NewKeyFromSeed(seed[:])
}

type seededReader struct{ *rand.ChaCha8 }

func seeded(name string) io.Reader { return seededReader{rand.NewChaCha8(sha256.Sum256([]byte(name)))} }

type testLog struct {
	*Log
	cfg Config
}

func openTest(t testing.TB, name string, change ...func(*Config)) *testLog {
	t.Helper()
	cfg := Config{
		InMemory: true, Signer: deviceKey(name), Rand: seeded(name), MinFree: -1,
		Projections: []Projection{byKind{1}},
	}
	for _, f := range change {
		f(&cfg)
	}
	l, err := Open(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return &testLog{l, cfg}
}

func (l *testLog) reopen(t testing.TB, change ...func(*Config)) *testLog {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(&l.cfg)
	}
	n, err := Open(context.Background(), l.cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return &testLog{n, l.cfg}
}

func note(text string) Op { return Op{Kind: "note", Author: "a:b:c", Body: appendStr(nil, text)} }

func mustAppend(t testing.TB, l *testLog, ops ...Op) []Appended {
	t.Helper()
	res, err := l.Append(context.Background(), ops...)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// pull copies everything that from holds and to lacks.
func pull(t testing.TB, to, from *testLog, maxBytes int) (added int) {
	t.Helper()
	for again := true; again; {
		again = false
		for _, o := range from.Origins() {
			rg, err := from.ReadRange(o.ID, to.Frontier().Seq(o.ID), maxBytes)
			if err != nil {
				t.Fatal(err)
			}
			if rg.Count == 0 {
				continue
			}
			res, err := to.Ingest(context.Background(), rg)
			if err != nil {
				t.Fatal(err)
			}
			added += res.Added
			again = true
		}
	}
	return added
}

func onDisk(t testing.TB) func(*Config) {
	dir := t.TempDir()
	return func(c *Config) { c.InMemory, c.Dir, c.EncryptionKey = false, dir, make([]byte, 32) }
}

func TestL1_AppendIsDurableAndReadable(t *testing.T) {
	l := openTest(t, "a", onDisk(t))
	res := mustAppend(t, l, note("one"), note("two"))
	if len(res) != 2 || res[1].Arrival != res[0].Arrival+1 {
		t.Fatalf("results %+v", res)
	}
	digest := l.Views()[0]
	l = l.reopen(t)
	if got := l.Views()[0]; got != digest {
		t.Fatalf("view after reopen %+v, before %+v", got, digest)
	}
	err := l.View(func(s Snapshot) error {
		e, err := s.Entry(res[1].Ref)
		if err != nil {
			return err
		}
		if string(e.Body) != string(appendStr(nil, "two")) || e.Seq != 3 {
			t.Errorf("entry %+v", e)
		}
		byHash, err := s.ByHash(res[1].Hash[:6])
		if err != nil || byHash.Hash != res[1].Hash {
			t.Errorf("by hash: %v %v", byHash.Hash, err)
		}
		if s.LastArrival() != 3 {
			t.Errorf("last arrival %d", s.LastArrival())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if h := l.Self().Head; h.Seq != 3 || !h.Verify(l.Self().Key) {
		t.Errorf("head after reopen: %+v", h)
	}
}

func TestL2_SeqIsDenseAndChained(t *testing.T) {
	l := openTest(t, "a")
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 25 {
				if _, err := l.Append(context.Background(), note(fmt.Sprint(w, i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	var prev Entry
	err := l.View(func(s Snapshot) error {
		return s.Arrived(0, false, func(n uint64, e *Entry) (bool, error) {
			if e.Seq != prev.Seq+1 || e.Prev != prev.Hash || e.Time <= prev.Time || n != e.Seq {
				t.Fatalf("entry %d: %+v after %+v", n, e.Header, prev.Header)
			}
			prev = *e
			return true, nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if prev.Seq != 201 {
		t.Errorf("%d entries", prev.Seq)
	}
}

func TestM1_AnySplitSameViews(t *testing.T) {
	a, b := openTest(t, "a"), openTest(t, "b")
	for i := range 700 {
		mustAppend(t, a, note(fmt.Sprint("a", i)))
		if i%3 == 0 {
			mustAppend(t, b, note(fmt.Sprint("b", i)))
		}
	}
	mustAppend(t, a, Op{Kind: "strange", Body: []byte{0xc0}}.must(t, a)...)
	for _, size := range []int{1, 5000, 1 << 20} {
		c := openTest(t, fmt.Sprint("c", size))
		pull(t, c, a, size)
		pull(t, c, b, size)
		d := openTest(t, fmt.Sprint("d", size))
		pull(t, d, b, size)
		pull(t, d, c, size)
		if got, want := c.Views()[0], d.Views()[0]; got != want {
			t.Errorf("size %d: %+v != %+v", size, got, want)
		}
		if c.Views()[0].Rows != 700+234+1 {
			t.Errorf("%d rows", c.Views()[0].Rows)
		}
		if c.Frontier().Digest() != d.Frontier().Digest() {
			t.Error("frontiers differ")
		}
	}
}

// must drops an op that this log would refuse as unknown, which is what it
// is there to check.
func (op Op) must(t *testing.T, l *testLog) []Op {
	var q *QuarantineError
	if _, err := l.Append(context.Background(), op); !errors.As(err, &q) {
		t.Fatalf("unknown kind appended: %v", err)
	}
	return nil
}

func TestL5_IngestTwiceCostsNothing(t *testing.T) {
	a, b := openTest(t, "a"), openTest(t, "b")
	for i := range 20 {
		mustAppend(t, a, note(fmt.Sprint(i)))
	}
	rg, err := a.ReadRange(a.Self().ID, 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []IngestResult{{Added: 21}, {Duplicates: 21}} {
		res, err := b.Ingest(context.Background(), rg)
		if err != nil || res.Added != want.Added || res.Duplicates != want.Duplicates {
			t.Errorf("round %d: %+v, %v", i, res, err)
		}
	}
}

func TestL6_OneBadEntryBlocksNoOther(t *testing.T) {
	permissive := func(c *Config) { c.Projections = nil }
	a := openTest(t, "a", permissive, func(c *Config) { c.Projections = []Projection{anyKind{}} })
	mustAppend(t, a, note("one"), Op{Kind: "future", Body: []byte{0xc0}}, note("bad"), note("two"))
	b := openTest(t, "b")
	pull(t, b, a, 1<<20)
	aside, err := b.Aside(10)
	if err != nil || len(aside) != 2 {
		t.Fatalf("aside %+v, %v", aside, err)
	}
	if b.Views()[0].Rows != 3 {
		t.Errorf("rows %d, want two notes and the counter", b.Views()[0].Rows)
	}
	c := openTest(t, "c")
	pull(t, c, b, 1<<20)
	if c.Views()[0] != b.Views()[0] {
		t.Error("a relay with quarantined entries passed on another log")
	}
}

type anyKind struct{}

func (anyKind) Name() string           { return "any" }
func (anyKind) Version() uint32        { return 1 }
func (anyKind) Kinds() []string        { return []string{"note", "future"} }
func (anyKind) Apply(Tx, *Entry) error { return nil }

func TestL8_RebuildGivesTheSameView(t *testing.T) {
	l := openTest(t, "a", onDisk(t))
	for i := range 300 {
		mustAppend(t, l, note(fmt.Sprint(i)))
	}
	before := l.Views()[0]
	l = l.reopen(t, func(c *Config) { c.Projections = []Projection{byKind{2}} })
	if got := l.Views()[0]; got != before {
		t.Errorf("rebuilt %+v, was %+v", got, before)
	}
}

func TestIngestRefusals(t *testing.T) {
	a, b := openTest(t, "a"), openTest(t, "b")
	for i := range 5 {
		mustAppend(t, a, note(fmt.Sprint(i)))
	}
	whole, err := a.ReadRange(a.Self().ID, 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	tail, err := a.ReadRange(a.Self().ID, 3, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	flip := whole
	flip.Entries = append([]byte{}, whole.Entries...)
	flip.Entries[len(flip.Entries)-2] ^= 1
	forged := whole
	forged.Head.Sig[3] ^= 1
	short := whole
	short.Count--
	fork := openTest(t, "a")
	mustAppend(t, fork, note("another past"))
	other, err := fork.ReadRange(fork.Self().ID, 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		rg   Range
		want error
	}{
		{"unknown origin", tail, ErrUnknownOrigin},
		{"flipped bit", flip, ErrBadRange},
		{"forged head", forged, ErrBadRange},
		{"wrong count", short, ErrBadRange},
		{"empty", Range{}, ErrBadRange},
	} {
		if _, err := b.Ingest(context.Background(), c.rg); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if n := len(b.Frontier()); n != 0 {
		t.Errorf("refused ranges left %d origins", n)
	}
	if _, err := b.Ingest(context.Background(), whole); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Ingest(context.Background(), other); err != nil || len(b.Frontier()[a.Self().ID]) != 2 {
		t.Errorf("a second past of one origin: %v, tips %v", err, b.Frontier()[a.Self().ID])
	}
}

func TestA2_OpIDGivesFirstResult(t *testing.T) {
	l := openTest(t, "a", onDisk(t))
	op := note("once")
	op.OpID = "k1"
	first := mustAppend(t, l, op)[0]
	again := mustAppend(t, l, op)[0]
	if !again.Replayed || again.Hash != first.Hash || again.Arrival != first.Arrival {
		t.Errorf("again %+v, first %+v", again, first)
	}
	l = l.reopen(t)
	if again = mustAppend(t, l, op)[0]; !again.Replayed || again.Hash != first.Hash {
		t.Errorf("after reopen %+v", again)
	}
	other := op
	other.Author = "x:y:z"
	if res := mustAppend(t, l, other)[0]; res.Replayed {
		t.Error("op ids of another author collide")
	}
}

func TestGuardRefusesTheWholeAppend(t *testing.T) {
	l := openTest(t, "a")
	refuse := errors.New("no")
	op := note("two")
	op.Guard = func(v Views, stamp hlc.Timestamp) error {
		if _, err := v.View("bykind").Get([]byte("n")); err != nil {
			t.Errorf("the guard does not see the op before it: %v", err)
		}
		return refuse
	}
	if _, err := l.Append(context.Background(), note("one"), op); !errors.Is(err, refuse) {
		t.Fatal(err)
	}
	if l.Views()[0].Rows != 0 || len(l.Frontier()) != 0 {
		t.Errorf("a refused append left %+v", l.Views()[0])
	}
	mustAppend(t, l, note("three"))
	if s := l.Self(); s.Tips[0].Seq != 2 {
		t.Errorf("tip %+v", s.Tips)
	}
}

func TestC3_FarStampIsHeldAndReleased(t *testing.T) {
	now := int64(1_800_000_000_000)
	ahead := openTest(t, "fast", func(c *Config) { c.Wall = func() int64 { return now + 3_600_000 } })
	mustAppend(t, ahead, note("early"), note("bird"))
	wall := now
	l := openTest(t, "a", func(c *Config) { c.Wall = func() int64 { return wall } })
	pull(t, l, ahead, 1<<20)
	if l.Held() != 2 || l.Views()[0].Rows != 0 {
		t.Fatalf("held %d, rows %d", l.Held(), l.Views()[0].Rows)
	}
	if got := l.Clock().Last(); got.Millis() > now {
		t.Errorf("the local clock moved to %v", got.Time())
	}
	relay := openTest(t, "b", func(c *Config) { c.Wall = func() int64 { return now + 3_600_000 } })
	pull(t, relay, l, 1<<20)
	if relay.Views()[0] != ahead.Views()[0] {
		t.Error("held entries were not relayed")
	}
	wall = now + 3_600_000
	if err := l.ReleaseHeld(context.Background()); err != nil {
		t.Fatal(err)
	}
	if l.Held() != 0 || l.Views()[0] != ahead.Views()[0] {
		t.Errorf("after release: held %d, view %+v", l.Held(), l.Views()[0])
	}
}

func TestL4_FloorRisesAndHoldsAcrossRestart(t *testing.T) {
	now := int64(1_800_000_000_000)
	l := openTest(t, "a", onDisk(t), func(c *Config) { c.Wall = func() int64 { return now } })
	h, err := l.RaiseFloor(context.Background(), hlc.New(now+60_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	if h.Floor <= hlc.New(now+60_000, 0) || !h.Verify(l.Self().Key) || h.Seq != 1 {
		t.Fatalf("head %+v", h)
	}
	now -= 3_600_000 // the wall steps back while we are down
	l = l.reopen(t)
	res := mustAppend(t, l, note("later"))
	if res[0].Ref.Time() < h.Floor {
		t.Errorf("stamp %v below the promised floor %v", res[0].Ref.Time(), h.Floor)
	}
	b := openTest(t, "b", func(c *Config) { c.Wall = func() int64 { return now } })
	pull(t, b, l, 1<<20)
	h2, err := l.RaiseFloor(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if changed, err := b.PutHead(context.Background(), h2); err != nil || !changed {
		t.Errorf("PutHead: %v %v", changed, err)
	}
	if changed, err := b.PutHead(context.Background(), h2); err != nil || changed {
		t.Errorf("the same head again: %v %v", changed, err)
	}
	h2.Floor++
	if _, err := b.PutHead(context.Background(), h2); !errors.Is(err, ErrBadRange) {
		t.Errorf("forged floor: %v", err)
	}
}

// TestM2_SnapshotIsWholeBeforeItIsPublished: a reader whose snapshot falls
// between the commit of a new origin's first entries and the moment the log
// tells of them finds every entry that the snapshot shows.
func TestM2_SnapshotIsWholeBeforeItIsPublished(t *testing.T) {
	var l *testLog
	looked := 0
	look := func(point string) {
		if point != pointCommitted {
			return
		}
		err := l.View(func(s Snapshot) error {
			return s.Arrived(0, false, func(n uint64, e *Entry) (bool, error) {
				looked++
				got, err := s.Entry(e.Ref())
				if err != nil || got.Hash != e.Hash {
					t.Errorf("arrival %d is shown and not found: %v", n, err)
				}
				return true, nil
			})
		})
		if err != nil {
			t.Error(err)
		}
	}
	ready := make(chan struct{})
	l = openTest(t, "a", func(c *Config) {
		c.hook = func(point string) {
			<-ready
			look(point)
		}
	})
	close(ready)
	mustAppend(t, l, note("first"))
	if looked == 0 {
		t.Error("nobody looked")
	}
}
