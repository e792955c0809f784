package sim

import (
	"context"
	"crypto/ed25519"
	"io"
	"strings"
	"testing"
	"time"

	"tallystick/oplog"
	"tallystick/query/logstream"
	"tallystick/replica"
)

// The scenarios below are the counter-examples of the design that concern
// more than one replica, one by one. The musts they prove are in their names.

// scenario builds a mesh in which nothing goes wrong by itself.
func scenario(t *testing.T, cfg Config) *World {
	t.Helper()
	cfg.Quiet = true
	if *showFlag {
		cfg.Trace = t.Output()
	}
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	w.Play(5 * time.Second)
	return w
}

func settle(t *testing.T, w *World) {
	t.Helper()
	w.Heal()
	if err := w.Settle(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// act writes what a domain makes; a refusal fails the test.
func act(t *testing.T, n *Node, op *oplog.Op, err error) {
	t.Helper()
	if err != nil || op == nil {
		t.Fatalf("replica %d: %v", n.id, err)
	}
	before := n.w.res.Appended
	if n.append(*op); n.w.res.Appended == before {
		t.Fatalf("replica %d: refused", n.id)
	}
}

func claimAt(t *testing.T, n *Node, task int) {
	t.Helper()
	op, err := Real().Claim(n, task)
	act(t, n, op, err)
}

func noteAt(t *testing.T, n *Node, i int) {
	t.Helper()
	op, err := Real().Note(n, i)
	act(t, n, op, err)
}

// has reports whether replica n holds as much of p's own log as p does.
func (n *Node) has(p *Node) bool {
	self := p.log.Self()
	return n.log.Frontier().Seq(self.ID) == self.Tips[0].Seq
}

// TestK1_B5_RaceAcrossAPartition: both sides claim; after healing one has won
// everywhere and the other has one superseded ack. The mesh was idle, so the
// floors that settle it came by asking (L4), outside the digest (B5).
func TestK1_B5_RaceAcrossAPartition(t *testing.T) {
	w := scenario(t, Config{Replicas: 3})
	w.Partition(false, 0)
	claimAt(t, w.Node(0), 1)
	w.Play(time.Second)
	claimAt(t, w.Node(2), 1)
	w.Play(5 * time.Second)
	settle(t, w)
	if w.res.Losers != 1 || w.res.Claimed != 1 {
		t.Errorf("%d tasks claimed, %d claims lost", w.res.Claimed, w.res.Losers)
	}
}

// TestA7c_NoAckAtFirstSight: B's claim looks lost to A's, whose release has
// not arrived. Nobody may tell B so before A was heard; then B holds.
func TestA7c_NoAckAtFirstSight(t *testing.T) {
	w := scenario(t, Config{Replicas: 3})
	a, b, c := w.Node(0), w.Node(1), w.Node(2)
	w.Cut(0, 1, false)
	w.Cut(1, 2, false)
	claimAt(t, a, 1)
	w.Play(2 * time.Second) // C has A's claim, B has not
	w.Cut(0, 2, false)
	op, err := Real().Act(a, 1, 0) // released
	act(t, a, op, err)
	w.Play(time.Second)
	claimAt(t, b, 1)
	w.Mend(1, 2)
	w.Play(30 * time.Second)
	verdicts, err := Real().Verdicts(b)
	if err != nil {
		t.Fatal(err)
	}
	v := verdicts[string(taskName(1))]
	if len(v.Losers) != 1 || !b.has(c) {
		t.Fatalf("B should see its claim as lost for now: %+v", v)
	}
	for claim, acks := range v.Losers {
		if acks != 0 {
			t.Fatalf("claim %s was told it lost while A is unheard", claim)
		}
	}
	settle(t, w)
	if w.res.Losers != 0 || w.res.Claimed != 1 {
		t.Errorf("%d claims lost after A's release has arrived", w.res.Losers)
	}
}

// TestB6_SlowClockIsWaitedFor: a replica whose clock is two hours behind
// cannot promise a floor, so the loss stays provisional and nothing spins.
// Once its clock is right the loss settles.
func TestB6_SlowClockIsWaitedFor(t *testing.T) {
	w := scenario(t, Config{Replicas: 3})
	slow := w.Node(2)
	right := slow.skew
	w.Play(2 * time.Hour)
	slow.skew -= 2 * time.Hour
	w.Partition(false, 0)
	claimAt(t, w.Node(0), 1)
	claimAt(t, w.Node(1), 1)
	w.Heal()
	w.Play(30 * time.Second)
	before := w.res.Frames
	w.Play(time.Minute)
	if err := w.converged(); err == nil || slow.log.Held() == 0 {
		t.Fatalf("the slow replica holds back %d entries, converged: %v", slow.log.Held(), err)
	}
	for i := range 2 {
		if ops, ask, err := Real().React(w.Node(i)); err != nil || len(ops) > 0 || i == 1 && ask == 0 {
			t.Fatalf("replica %d reacts with %d ops, asks above %d, %v: the slow clock is not waited for", i, len(ops), ask, err)
		}
	}
	if n := w.res.Frames - before; n > 100 {
		t.Errorf("%d frames a minute while waiting for a slow clock", n)
	}
	slow.skew = right
	settle(t, w)
	if w.res.Losers != 1 {
		t.Errorf("%d claims lost", w.res.Losers)
	}
}

// TestL5_B2_OneFlippedBit: a relay damages every range of one origin. That
// costs this origin at this relay, not the connection and not other origins;
// another relay helps as soon as there is one.
func TestL5_B2_OneFlippedBit(t *testing.T) {
	w := scenario(t, Config{Replicas: 4})
	origin, bad, late := w.Node(0), w.Node(1), w.Node(3)
	w.Partition(false, 3)
	for i := range 10 {
		noteAt(t, origin, i)
		noteAt(t, w.Node(2), i)
	}
	w.Play(5 * time.Second)
	damaged := 0
	bad.corrupt = func(r *oplog.Range) {
		if r.Origin == origin.log.Self().ID && r.Count > 0 {
			r.Entries[len(r.Entries)-1] ^= 4
			damaged++
		}
	}
	w.Mend(1, 3) // the damaging relay is the only way
	w.Play(60 * time.Second)
	if late.has(origin) || damaged == 0 {
		t.Fatalf("damaged %d ranges, and they were taken in: %v", damaged, late.has(origin))
	}
	if damaged > 10 {
		t.Errorf("%d damaged ranges in a minute: no back-off", damaged)
	}
	if !late.has(w.Node(2)) {
		t.Error("one origin's damage blocked another")
	}
	if len(w.connsOf(1, 3)) != 1 {
		t.Error("the damage cost the connection")
	}
	w.Mend(2, 3) // a sound relay
	w.Play(20 * time.Second)
	if !late.has(origin) {
		t.Error("a sound relay did not help")
	}
	settle(t, w)
}

// TestA4_FullDisk: a replica that takes nothing in goes on serving, blames
// nobody, and catches up once there is room.
func TestA4_FullDisk(t *testing.T) {
	w := scenario(t, Config{Replicas: 3})
	full := w.Node(1)
	tries := 0
	full.refuse = func(*oplog.Range) error { tries++; return oplog.ErrNoSpace }
	for i := range 5 {
		noteAt(t, w.Node(0), i)
		noteAt(t, full, i)
	}
	w.Play(2 * time.Minute)
	if full.has(w.Node(0)) || !w.Node(0).has(full) {
		t.Fatalf("full disk: took in %v, served %v", full.has(w.Node(0)), w.Node(0).has(full))
	}
	if !full.core.Status(full.now()).Paused || tries > 20 {
		t.Errorf("paused %v, %d tries in two minutes", full.core.Status(full.now()).Paused, tries)
	}
	full.refuse = nil
	settle(t, w)
}

// TestA3_CatchUpDoesNotStallTheTail: over a slow stream one replica catches up
// on a long log; what another origin writes meanwhile arrives long before the
// catch-up ends.
func TestA3_CatchUpDoesNotStallTheTail(t *testing.T) {
	w := scenario(t, Config{Replicas: 3})
	w.Partition(false, 2)
	for i := range 1500 {
		noteAt(t, w.Node(0), i)
	}
	w.Play(5 * time.Second)
	w.rate = 20_000 // about 400 kB of log: 20 s
	late := w.Node(2)
	w.Mend(1, 2)
	w.Play(5 * time.Second)
	noteAt(t, w.Node(1), 1)
	w.Play(8 * time.Second)
	if late.has(w.Node(0)) {
		t.Fatal("the catch-up is too fast for this test")
	}
	if !late.has(w.Node(1)) {
		t.Error("the tail waits for the catch-up")
	}
	w.rate = 0
	settle(t, w)
}

// forge makes two branches of one origin, as a cloned disk would, of n
// entries each behind a common one.
func forge(t *testing.T, w *World, n int) (origin oplog.OriginID, branches [2]oplog.Range) {
	t.Helper()
	for i := range branches {
		seed := make([]byte, ed25519.SeedSize)
		if _, err := io.ReadFull(w.seeded(9, 'k'), seed); err != nil {
			t.Fatal(err)
		}
		projections, _ := Real().Folds()
		log, err := oplog.Open(context.Background(), oplog.Config{
			InMemory: true, Projections: projections, Signer: ed25519.NewKeyFromSeed(seed), Rand: w.seeded(9, 'r'),
			Wall: func() int64 { return epoch },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { log.Close() })
		op, err := logstream.NewOp("flat-agent", logstream.Event{Type: "note", Stream: simStream, Room: "general"})
		if err != nil {
			t.Fatal(err)
		}
		for j := range n {
			if j == 1 && i == 1 { // from here on the branches differ
				if op, err = logstream.NewOp("flat-agent", logstream.Event{Type: "note", Stream: simStream, Room: "other"}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := log.Append(context.Background(), op); err != nil {
				t.Fatal(err)
			}
		}
		origin = log.Self().ID
		if branches[i], err = log.ReadRange(origin, 0, 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	return origin, branches
}

// TestA1c_L7c_ForkIsNoLivelock: two replicas hold two branches of one origin. Both
// say so, everything else converges, nobody is cut off, and the mesh falls
// silent.
func TestA1c_L7c_ForkIsNoLivelock(t *testing.T) {
	for _, lengths := range [][2]int{{4, 4}, {4, 7}} {
		w := scenario(t, Config{Replicas: 3})
		w.Partition(false, 0)
		w.Partition(false, 1)
		w.Play(time.Second)
		w.forged = true
		origin, branches := forge(t, w, max(lengths[0], lengths[1]))
		_, shorter := forge(t, w, lengths[0])
		branches[0] = shorter[0]
		for i, r := range branches {
			n := w.Node(i)
			if _, err := n.log.Ingest(context.Background(), r); err != nil {
				t.Fatal(err)
			}
			n.crash() // so that the core learns what the log holds
			n.start()
			noteAt(t, n, 1)
		}
		w.Heal()
		w.Play(20 * time.Minute)
		before := w.res.Frames
		w.Play(time.Minute)
		if n := w.res.Frames - before; n > 80 {
			t.Errorf("lengths %v: %d frames a minute: the fork keeps the mesh busy", lengths, n)
		}
		for i := range 2 {
			n, p := w.Node(i), w.Node(1-i)
			if !n.has(p) {
				t.Errorf("lengths %v: the fork keeps %d from the log of %d", lengths, i, 1-i)
			}
			if len(w.connsOf(0, 1)) != 1 {
				t.Errorf("lengths %v: the fork costs the connection", lengths)
			}
		}
		for _, n := range w.nodes {
			f := n.log.Frontier()
			if len(f[origin]) != 2 || !f.Has(origin, branches[0].Head.Tip()) || !f.Has(origin, branches[1].Head.Tip()) {
				t.Errorf("lengths %v: replica %d has not both branches: %v", lengths, n.id, f[origin])
			}
			if f.Digest() != w.Node(0).log.Frontier().Digest() || n.core.Frontier().Digest() != f.Digest() {
				t.Errorf("lengths %v: replica %d does not agree", lengths, n.id)
			}
			if forks := n.core.Status(n.now()).Forks; len(forks) != 1 || forks[0].Origin != origin {
				t.Errorf("lengths %v: replica %d does not say that there is a fork: %v", lengths, n.id, forks)
			}
			if w.checkAlways(); w.err != nil {
				t.Error(w.err)
			}
		}
	}
}

// TestL7b_RestoredLogOpensANewIncarnation: a replica loses its log, or gets an
// old one back, and keeps its incarnation. The first peer shows it what it
// wrote; it fetches that, writes on in a new incarnation, and nothing that was
// acknowledged is lost.
func TestL7b_RestoredLogOpensANewIncarnation(t *testing.T) {
	w := scenario(t, Config{Replicas: 3})
	n := w.Node(1)
	noteAt(t, n, 1)
	w.Play(2 * time.Second)
	before := n.log.Self()
	n.crash()
	if err := n.log.Close(); err != nil {
		t.Fatal(err)
	}
	if err := n.openLog(); err != nil { // the same seed: the same incarnation, and no entries
		t.Fatal(err)
	}
	if n.log.Self().ID != before.ID || len(n.log.Self().Tips) > 0 {
		t.Fatalf("not the same incarnation at its start: %v, was %v", n.log.Self(), before)
	}
	w.forged = true
	n.start()
	w.Play(5 * time.Second)
	if n.log.Self().ID == before.ID {
		t.Fatal("it goes on writing in the old incarnation")
	}
	id := n.log.Self()
	if err := n.write(replica.KindLabel, n.label, id.Key[:], id.Incarnation[:]); err != nil {
		t.Fatal(err)
	}
	noteAt(t, n, 2)
	settle(t, w)
}

// TestChecksCanFail: the checks see a missing entry. A check that cannot
// fail proves nothing.
func TestChecksCanFail(t *testing.T) {
	w := scenario(t, Config{Replicas: 3, Settle: 20 * time.Second})
	w.Node(2).refuse = func(*oplog.Range) error { return oplog.ErrGap }
	noteAt(t, w.Node(0), 1)
	w.Heal()
	err := w.Settle(context.Background())
	if err == nil || !strings.Contains(err.Error(), "differs from that of 0") {
		t.Errorf("a replica that takes nothing in: %v", err)
	}

	w = scenario(t, Config{Replicas: 3})
	noteAt(t, w.Node(0), 1)
	w.acked[len(w.acked)-1].Ref[0] ^= 1 // an entry that nobody has
	w.Heal()
	if err := w.Settle(context.Background()); err == nil || !strings.Contains(err.Error(), "is not visible") {
		t.Errorf("an acknowledged entry that is nowhere: %v", err)
	}
}
