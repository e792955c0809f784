package replica

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tallystick/hlc"
	"tallystick/oplog"
)

// TestMain looks for goroutines left behind when all replicas are closed.
// Memberlist's need about two seconds to notice.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if left := leaked(); left != "" {
			fmt.Fprintln(os.Stderr, "goroutines left behind:\n"+left)
			code = 1
		}
	}
	os.Exit(code)
}

func leaked() string {
	left := ""
	for range 100 {
		buf := make([]byte, 1<<20)
		left = ""
		for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(g, "tallystick/replica.") && !strings.Contains(g, "replica.leaked") || strings.Contains(g, "hashicorp/memberlist.") {
				left += g + "\n\n"
			}
		}
		if left == "" {
			return ""
		}
		time.Sleep(100 * time.Millisecond) // a drain, not a synchronisation
	}
	return left
}

func peerOf(t testing.TB, r *Replica, label string) PeerState {
	t.Helper()
	st, err := r.Status()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range st.Peers {
		if p.Label == label {
			return p
		}
	}
	return PeerState{}
}

// TestT1_ThirdMemberShowsItsAdmission: C joins by way of B while A is away.
// When B is away and A is back, A lets C in by the proof in its certificate,
// and C lets A in, of whom it has heard only in its proof.
func TestT1_ThirdMemberShowsItsAdmission(t *testing.T) {
	cfgA, cfgB, cfgC := testConfig(t, "a"), testConfig(t, "b"), testConfig(t, "c")
	a := mustOpen(t, cfgA)
	cfgA.Listen = a.ListenAddr()
	b := mustJoin(t, a, cfgB)
	note(t, a, "from a")
	converged(t, a, b)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	inv := mustInvite(t, b)
	if _, err := Join(testContext(t), cfgC, inv.Token); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil { // before C has synced anything
		t.Fatal(err)
	}
	a = mustOpen(t, cfgA)
	c := mustOpen(t, cfgC)
	eventually(t, "a and c to meet", func() bool { return peerOf(t, c, "a").Reachable && peerOf(t, a, "c").Reachable })
	note(t, c, "from c") // c writes under its label although no log here tells of its admission
	eventually(t, "c's entry at a", func() bool { return a.Log().Frontier().Seq(c.Self().ID) == c.Self().Tips[0].Seq })
	b = mustOpen(t, cfgB)
	converged(t, a, b, c)
	if n := len(a.Members()); n != 3 {
		t.Errorf("%d members, want 3", n)
	}
}

// TestStatic_EntriesPassThroughTheMiddle: C knows B alone, and A's entries
// reach it all the same.
func TestStatic_EntriesPassThroughTheMiddle(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	b := mustJoin(t, a, testConfig(t, "b"))
	c := mustJoin(t, b, testConfig(t, "c"))
	for i := range 10 {
		note(t, a, fmt.Sprint("a", i))
		note(t, b, fmt.Sprint("b", i))
		note(t, c, fmt.Sprint("c", i))
	}
	converged(t, a, b, c)
}

// TestReconnect_AfterCutAndAfterSilence: a cut link is dialled again; a link
// that swallows everything is noticed and given up.
func TestReconnect_AfterCutAndAfterSilence(t *testing.T) {
	cfgA, cfgB := testConfig(t, "a"), testConfig(t, "b")
	cfgA.Timing.Idle, cfgB.Timing.Idle = 900*time.Millisecond, 900*time.Millisecond
	cfgA.Advertise = []string{"127.0.0.1:1"} // only the relay leads to A
	cfgB.Advertise = []string{"127.0.0.1:1"}
	a := mustOpen(t, cfgA)
	p := newRelay(t, a.ListenAddr())
	inv, err := a.Invite(testContext(t), InviteOptions{Addrs: []string{p.addr()}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Join(testContext(t), cfgB, inv.Token); err != nil {
		t.Fatal(err)
	}
	b := mustOpen(t, cfgB)
	converged(t, a, b)

	p.cut()
	note(t, a, "after the cut")
	converged(t, a, b)

	p.swallow.Store(true)
	note(t, a, "into the void")
	note(t, b, "into the void")
	eventually(t, "both to notice", func() bool { return !peerOf(t, a, "b").Reachable && !peerOf(t, b, "a").Reachable })
	if e := peerOf(t, b, "a"); e.LastSeen.IsZero() {
		t.Error("never seen, says the status")
	}
	p.cut()
	converged(t, a, b)
}

// TestStatus_TellsDriftAndError while the peer is away, and receipts.
func TestStatus_TellsDriftAndError(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	cfgB := testConfig(t, "b")
	b := mustJoin(t, a, cfgB)
	cfgB.Listen = b.ListenAddr()
	converged(t, a, b)
	res := note(t, a, "one")
	eventually(t, "the receipt", func() bool {
		on, notYet := a.DurableOn(res.Ref.Origin(), res.Ref.Seq())
		return slices.Equal(on, []string{"b"}) && len(notYet) == 0
	})
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "b to be gone", func() bool { return !peerOf(t, a, "b").Reachable })
	res = note(t, a, "two")
	eventually(t, "drift of one and the dial's error", func() bool {
		p := peerOf(t, a, "b")
		return p.Known && p.EntriesBehind == 1 && p.EntriesAhead == 0 && p.Error != "" && p.Address != "" && !p.LastSeen.IsZero()
	})
	if on, notYet := a.DurableOn(res.Ref.Origin(), res.Ref.Seq()); len(on) != 0 || !slices.Equal(notYet, []string{"b"}) {
		t.Errorf("durable on %v, not yet %v", on, notYet)
	}
	st, err := a.Status()
	if err != nil || st.Label != "a" || st.Mesh != a.Mesh() || len(st.Views) != 3 || st.Views[1].Rows != 2 || st.Clock.Timestamp == 0 {
		t.Errorf("status %+v, %v", st, err)
	}
	b = mustOpen(t, cfgB)
	converged(t, a, b)
}

// TestK4_HorizonHasAFloorOfEveryMember, of one that never wrote as well.
func TestK4_HorizonHasAFloorOfEveryMember(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	b := mustJoin(t, a, testConfig(t, "b"))
	converged(t, a, b)
	res := note(t, a, "claim")
	a.AskFloor(res.Ref.Time())
	eventually(t, "floors above the entry", func() bool {
		h := a.Horizon()
		if len(h.Members) != 2 {
			return false
		}
		for _, m := range h.Members {
			if len(m.Origins) != 1 || !m.Origins[0].Complete || m.Origins[0].Floor <= res.Ref.Time() || !m.Reachable || m.HeardMillis == 0 {
				return false
			}
		}
		return true
	})
}

// reactor answers each note that is not its own, once.
type reactor struct{ calls atomic.Int64 }

func (*reactor) Name() string { return "answer" }

func (re *reactor) React(snap oplog.Snapshot, env Env) (ops []oplog.Op, ask hlc.Timestamp, err error) {
	re.calls.Add(1)
	err = snap.Arrived(0, false, func(_ uint64, e *oplog.Entry) (bool, error) {
		if e.Kind == "note" && !strings.HasPrefix(e.OpID, "answer:") {
			ops = append(ops, oplog.Op{Kind: "note", Author: env.Label + ":answerer:repo", Version: 1,
				OpID: "answer:" + env.Label + e.Hash.String(), Body: []byte{0xa1, 'y'}})
		}
		return true, nil
	})
	return ops, 0, err
}

// waiting is a reactor that waits for floors above its stamp.
type waiting hlc.Timestamp

func (waiting) Name() string { return "waiting" }
func (w waiting) React(oplog.Snapshot, Env) ([]oplog.Op, hlc.Timestamp, error) {
	return nil, hlc.Timestamp(w), nil
}

// TestK4_AReactorThatWaitsIsAskedFor: what a reactor waits for is asked of the
// mesh whenever it looks, so that a restart in between forgets no wait.
func TestK4_AReactorThatWaitsIsAskedFor(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	cfg := testConfig(t, "b")
	above := hlc.New(time.Now().Add(time.Minute).UnixMilli(), 0)
	cfg.Reactors = []Reactor{waiting(above)}
	b := mustJoin(t, a, cfg)
	eventually(t, "a floor of a above what b waits for", func() bool {
		for _, h := range b.Log().Heads() {
			if h.Origin == a.Log().Self().ID && h.Floor > above {
				return true
			}
		}
		return false
	})
}

func TestReactors_RunAfterCommitsAndCountOnce(t *testing.T) {
	cfg := testConfig(t, "a")
	re := new(reactor)
	cfg.Reactors = []Reactor{re}
	a := mustOpen(t, cfg)
	for i := range 5 {
		note(t, a, fmt.Sprint(i))
	}
	rows := func() uint64 { return a.Log().Views()[1].Rows }
	eventually(t, "five answers", func() bool { return rows() == 10 })
	before := re.calls.Load()
	eventually(t, "slow ticks", func() bool { return re.calls.Load() > before+2 })
	if got := rows(); got != 10 {
		t.Errorf("%d notes, want 10: repeats must count once", got)
	}
}

// TestL1_NothingIsSentBeforeItIsWritten: whenever a peer hears of an entry, a
// copy of the store taken at that moment has it.
func TestL1_NothingIsSentBeforeItIsWritten(t *testing.T) {
	cfg := testConfig(t, "a")
	a := mustOpen(t, cfg)
	b := mustJoin(t, a, testConfig(t, "b"))
	converged(t, a, b)
	priv, shown, label := b.keys.device, b.state.Proof, b.Label()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	conn, _, err := dialerOf(t, priv, shown).dial(testContext(t), a.ListenAddr(), alpnSync, a.key)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	mesh := a.Mesh()
	send := func(m Message) {
		b, err := AppendFrame(nil, m)
		if err == nil {
			_, err = conn.Write(b)
		}
		if err != nil {
			t.Error(err)
		}
	}
	send(&MsgHello{VersionMin: 1, VersionMax: 1, Mesh: mesh, Key: b.key, Label: label, WallMillis: time.Now().UnixMilli()})
	send(&MsgFrontier{Full: true, Tips: oplog.Frontier{}})
	self := a.Self().ID
	send(&MsgWant{Sub: 1, Origin: self})
	send(&MsgCredit{Total: 4 << 20})

	const appends = 4
	go func() {
		for i := range appends {
			body := []byte{0xa2, 'n', byte('a' + i)}
			if _, err := a.Append(context.Background(), oplog.Op{Kind: "note", Version: 1, Body: body}); err != nil {
				t.Error(err)
			}
		}
	}()
	in := bufio.NewReader(conn)
	base := a.Self().Tips[0].Seq
	for top := uint64(0); top < base+appends-1; {
		if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		m, err := ReadFrame(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		told := uint64(0)
		switch m := m.(type) {
		case *MsgRange:
			told = m.Range.First + uint64(m.Range.Count) - 1
		case *MsgFrontier:
			told = m.Tips.Seq(self)
		case *MsgHeads:
			for _, h := range m.Heads {
				if h.Origin == self {
					told = max(told, h.Seq)
				}
			}
		}
		if told <= top {
			continue
		}
		top = told
		if held := storedSeq(t, cfg, a); held < told {
			t.Fatalf("the peer was told of seq %d, the files hold %d", told, held)
		}
	}
}

// storedSeq copies the files of a running store as a crash would leave them
// and says how much of its own log they hold.
func storedSeq(t *testing.T, cfg Config, r *Replica) uint64 {
	t.Helper()
	src, dst := filepath.Join(cfg.Dir, "store"), filepath.Join(t.TempDir(), "store")
	if err := os.CopyFS(dst, os.DirFS(src)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"LOCK"} {
		if err := os.Remove(filepath.Join(dst, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	m := NewMembership(r.Mesh())
	log, err := oplog.Open(testContext(t), oplog.Config{Dir: dst, EncryptionKey: r.keys.store, Signer: r.keys.device, MinFree: -1,
		Projections: []oplog.Projection{m, notes{}}, Gate: m})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	return log.Frontier().Seq(r.Self().ID)
}

func TestA4_AFullDiskRefusesWritesAndServesOn(t *testing.T) {
	cfg := testConfig(t, "a")
	a := mustOpen(t, cfg)
	note(t, a, "one")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.MinFree = 1 << 60
	r, err := Open(testContext(t), cfg)
	if CodeOf(err) == CodeNoSpace {
		return // refused at once: nothing written, and it says so
	}
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, err = r.Append(testContext(t), oplog.Op{Kind: "note", Version: 1, Body: []byte{0xc0}})
	if CodeOf(err) != CodeNoSpace || r.Log().Views()[1].Rows != 1 {
		t.Errorf("got %v, want no_space and one row", err)
	}
}

func TestClose_IsIdempotentAndEndsEverything(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	b := mustJoin(t, a, testConfig(t, "b"))
	converged(t, a, b)
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		}()
	}
	wg.Wait()
	<-a.Done()
	if _, err := a.Append(testContext(t), oplog.Op{Kind: "note", Version: 1, Body: []byte{0xc0}}); !errors.Is(err, oplog.ErrClosed) {
		t.Errorf("append after close: %v", err)
	}
	if _, err := net.Dial("tcp", a.ListenAddr()); err == nil {
		t.Error("the port still answers")
	}
	a.Horizon()
	a.AskFloor(1)
	if on, _ := a.DurableOn(a.Self().ID, 1); len(on) != 0 {
		t.Errorf("receipts after close: %v", on)
	}
	note(t, b, "b goes on")
}

func TestOpen_FailedStartLeavesNothing(t *testing.T) {
	cfg := testConfig(t, "a")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	taken := cfg
	taken.Listen = ln.Addr().String()
	if _, err := Open(testContext(t), taken); CodeOf(err) != CodeInvalidArgument {
		t.Fatalf("got %v, want invalid_argument", err)
	}
	mustOpen(t, cfg) // the store is not locked
}

// TestPeers_AddressBookSurvives: what was learnt is dialled after a restart of
// either side, and a damaged book costs the addresses only.
func TestPeers_AddressBookSurvives(t *testing.T) {
	cfgA, cfgB := testConfig(t, "a"), testConfig(t, "b")
	a := mustOpen(t, cfgA)
	cfgA.Listen = a.ListenAddr()
	b := mustJoin(t, a, cfgB)
	cfgB.Listen = b.ListenAddr()
	converged(t, a, b)
	for _, r := range []*Replica{a, b} {
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(cfgB.StateDir, peersFile), []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	b = mustOpen(t, cfgB) // knows nobody, and waits
	a = mustOpen(t, cfgA) // knows b
	note(t, a, "one")
	converged(t, a, b)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if list := loadPeers(&b.cfg, b.logger); len(list) != 1 || list[0].Label != "a" {
		t.Errorf("address book %+v", list)
	}
}

func TestStream_FullQueueIsRefused(t *testing.T) {
	s := &stream{wake: make(chan struct{}, 1), gone: make(chan struct{})}
	big := &MsgRange{Range: oplog.Range{Entries: make([]byte, maxQueueBytes/2)}}
	if !s.queue(big) || s.queue(&MsgPing{}) == false || s.queue(big) {
		t.Error("the queue's bound does not hold")
	}
}
