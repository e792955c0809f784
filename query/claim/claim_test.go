package claim_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"tallystick/hlc"
	"tallystick/oplog"
	"tallystick/query/claim"
	"tallystick/query/imported"
	"tallystick/query/internal/foldtest"
	"tallystick/query/logstream"
	"tallystick/query/refusal"
)

func TestK1_EarliestStampWins(t *testing.T) {
	m := newMesh(t)
	m.request(0, 0, owner, 0)
	b := m.ack(1, 20, bob, "claimed")
	a := m.ack(2, 10, alice, "claimed")
	task := m.wants(100, alice, true)
	if len(task.Losses) != 1 {
		t.Fatalf("losses %+v", task.Losses)
	}
	l := task.Losses[0]
	if l.Loser != bob || l.WonBy != alice || l.Rule != "earliest_claim_wins" || l.Claim != logstream.EventID(b.Ref()) ||
		l.Winner != logstream.EventID(a.Ref()) || l.WinnerHLC != a.Ref().Stamp().String() || l.Told {
		t.Fatalf("M3: the loss lacks a side: %+v", l)
	}
}

func TestK1_EqualStampsFallBackToOrigin(t *testing.T) {
	m := newMesh(t)
	m.request(0, 0, owner, 0)
	a, b := m.ack(1, 10, alice, "claimed"), m.ack(2, 10, bob, "claimed")
	want := alice
	if b.Ref().Compare(a.Ref()) < 0 {
		want = bob
	}
	m.wants(100, want, true)
}

func TestK1_ReleasedTaskIsFreeAgain(t *testing.T) {
	m := newMesh(t)
	m.request(0, 0, owner, 0)
	m.ack(1, 10, alice, "claimed")
	m.ack(1, 20, alice, "released")
	m.wants(25, "", true)
	m.ack(2, 30, bob, "claimed")
	if task := m.wants(100, bob, true); len(task.Losses) != 0 {
		t.Fatalf("nobody lost: %+v", task.Losses)
	}
}

// A7(a): the loser's own ack ends its claim, never the task.
func TestA7a_SupersededAckKeepsTheWinnersTask(t *testing.T) {
	m := newMesh(t)
	m.request(0, 0, owner, 0)
	m.ack(1, 10, alice, "claimed")
	b := m.ack(2, 20, bob, "claimed")
	m.ack(2, 30, bob, "superseded", losing(b.Ref()))
	task := m.wants(100, alice, true)
	if len(task.Losses) != 1 || !task.Losses[0].Told {
		t.Fatalf("losses %+v", task.Losses)
	}
}

// A7(b): the holder's lease ends; the loser does not revive.
func TestA7b_LostClaimDoesNotRevive(t *testing.T) {
	m := newMesh(t)
	m.request(0, 0, owner, 0)
	m.ack(1, 10, alice, "claimed", lease(hour))
	m.ack(2, 20, bob, "claimed", lease(10*hour))
	m.wants(30*minute, alice, true)
	m.wants(2*hour, "", true)
}

// A7(c): the holder's release arrives late; the claim that looked lost is the
// rightful one, and nobody is told otherwise before the loss is settled.
func TestA7c_LateReleaseMakesTheClaimRightful(t *testing.T) {
	m := newMesh(t)
	req := m.request(0, 0, owner, 0)
	a := m.ack(1, 10, alice, "claimed")
	rel := m.ack(1, 20, alice, "released")
	b := m.ack(2, 30, bob, "claimed")
	r := m.fold(req, a, b)
	h := m.horizon(100, floor(0, 100), claim.MemberFloor{Label: "b", Origin: foldtest.Origin(1), Floor: foldtest.At(11), Complete: true}, floor(2, 100))
	h.Self = foldtest.Origin(2)
	if ops, _, err := claim.React(r, h); err != nil || len(ops) != 0 {
		t.Fatalf("an ack before the loss is settled: %v %v", ops, err)
	}
	if n, err := claim.Notices(r, bob, h, nil); err != nil || len(n) != 1 || n[0].Grade != claim.Provisional {
		t.Fatalf("K1: bob is not told at once with the grade: %+v %v", n, err)
	}
	if err := r.Apply(rel); err != nil {
		t.Fatal(err)
	}
	if n, _ := claim.Notices(r, bob, h, nil); len(n) != 0 {
		t.Fatalf("bob holds the task and is still told of a loss: %+v", n)
	}
	m.wants(100, bob, true)
}

// A7(d): two copies of the superseded ack, as a restored home may write, count once.
func TestA7d_TwoSupersededAcksCountOnce(t *testing.T) {
	m := newMesh(t)
	m.request(0, 0, owner, 0)
	m.ack(1, 10, alice, "claimed")
	b := m.ack(2, 20, bob, "claimed")
	m.ack(2, 30, bob, "superseded", losing(b.Ref()))
	m.ack(2, 40, bob, "superseded", losing(b.Ref()))
	m.wants(100, alice, true)
	r := m.fold(m.all...)
	page, err := logstream.List(r, logstream.Filter{Status: "superseded"})
	if err != nil || page.Count != 1 {
		t.Fatalf("%d superseded acks listed, want 1 (%v)", page.Count, err)
	}
}

// A7(f): a loser's failed does not close the winner's task.
func TestA7f_LosersFailedDoesNotClose(t *testing.T) {
	m := newMesh(t)
	m.request(0, 0, owner, 0)
	m.ack(1, 10, alice, "claimed")
	m.ack(2, 20, bob, "claimed")
	for _, status := range []string{"failed", "blocked", "ready", "released"} {
		m.ack(2, 30, bob, status)
	}
	m.wants(100, alice, true)
	m.ack(1, 40, alice, "failed")
	m.wants(100, "", false)
}

func TestK2_SameIdentitySameDeviceJoins(t *testing.T) {
	m := newMesh(t)
	m.request(0, 0, owner, 0)
	m.ack(1, 10, alice, "claimed", lease(hour))
	m.ack(1, 30*minute, alice, "claimed", lease(hour))
	task := m.wants(80*minute, alice, true)
	if len(task.Losses) != 0 || task.Claim.Since != logstream.FormatTime(foldtest.At(10).Time()) {
		t.Fatalf("a second window double-claimed: %+v", task)
	}
}

// B3(d): two devices with one name do not join each other's claim.
func TestK2_SameNameOnAnotherDeviceLoses(t *testing.T) {
	m := newMesh(t)
	m.request(0, 0, owner, 0)
	m.ack(1, 10, "mac-claude", "claimed")
	m.ack(2, 20, "mac-claude", "claimed")
	if task := m.wants(100, "mac-claude", true); len(task.Losses) != 1 {
		t.Fatalf("losses %+v", task.Losses)
	}
}

// K2 and L7: the same device in another incarnation is the same home.
func TestK2_NewIncarnationOfTheDeviceIsTheSameHome(t *testing.T) {
	m := newMesh(t)
	key := foldtest.Key(9)
	// device 1 is the incarnation before, device 2 the one after
	origins := map[byte]oplog.OriginID{}
	for device := byte(1); device <= 2; device++ {
		inc := oplog.Incarnation{device}
		origins[device] = oplog.OriginOf(key, inc)
		body := append([]byte{0x93, 0xc4, 32}, key[:]...)
		body = append(append(append(body, 0xc4, 16), inc[:]...), 0xc0)
		m.entry(device, 0, "tally.birth", "", body)
	}
	m.request(0, 0, owner, 0)
	m.ack(1, 10, alice, "claimed")
	m.ack(2, 20, alice, "released")
	for i := range m.all {
		for device, origin := range origins {
			if m.all[i].Origin == foldtest.Origin(device) {
				m.all[i].Origin = origin
			}
		}
	}
	r := m.fold(m.all...)
	if r.LastArrival() != uint64(len(m.all)) {
		t.Fatal("a birth was not folded")
	}
	task, err := claim.Get(r, m.task, m.horizon(100), nil)
	if err != nil || task.Claim != nil {
		t.Fatalf("the device could not release its own claim: %+v %v", task, err)
	}
}

func TestK3_AppliedByAnyoneClosesForGood(t *testing.T) {
	m := newMesh(t)
	m.request(0, 0, owner, 0)
	m.ack(1, 10, alice, "claimed")
	m.ack(2, 20, bob, "applied")
	m.ack(3, 30, carol, "claimed")
	task := m.wants(100, "", false)
	if task.ClosedBy != bob || len(task.Losses) != 1 || task.Losses[0].Rule != "task_closed" || task.Losses[0].Loser != carol {
		t.Fatalf("task %+v", task)
	}
}

func TestK3_WithdrawalOnlyByTheRequester(t *testing.T) {
	m := newMesh(t)
	m.request(0, 0, owner, 0)
	m.ack(1, 10, alice, "claimed")
	m.ack(2, 20, bob, "superseded")
	m.wants(100, alice, true)
	m.ack(0, 30, owner, "superseded")
	m.wants(100, "", false)
}

func TestK5_LateEarlierClaimTellsTheFormerHolder(t *testing.T) {
	m := newMesh(t)
	req := m.request(0, 0, owner, 0)
	b := m.ack(2, 20, bob, "claimed")
	a := m.ack(1, 10, alice, "claimed")
	r := m.fold(req, b)
	h := m.horizon(100)
	if n, _ := claim.Notices(r, bob, h, nil); len(n) != 0 {
		t.Fatalf("bob holds: %+v", n)
	}
	if err := r.Apply(a); err != nil {
		t.Fatal(err)
	}
	n, err := claim.Notices(r, bob, h, nil)
	if err != nil || len(n) != 1 {
		t.Fatalf("bob is not told: %v", err)
	}
	for _, want := range []string{logstream.EventID(a.Ref()), logstream.EventID(b.Ref()), a.Ref().Stamp().String(), `"automatic":true`} {
		if !strings.Contains(string(n[0].Metadata), want) {
			t.Errorf("notice %s lacks %s", n[0].Metadata, want)
		}
	}
	if !n[0].Computed || n[0].FromAgent != bob || n[0].ToAgent != bob || n[0].Status != "superseded" || n[0].Arrival != 3 {
		t.Errorf("notice %+v", n[0])
	}
}

func TestK1_ReactorTellsEachLoserOnce(t *testing.T) {
	m := newMesh(t)
	m.request(0, 0, owner, 0)
	m.ack(1, 10, alice, "claimed")
	b := m.ack(2, 20, bob, "claimed")
	c := m.ack(3, 30, carol, "claimed")
	r := m.fold(m.all...)
	h := m.horizon(100)
	h.Self = foldtest.Origin(2)
	ops, _, err := claim.React(r, h)
	if err != nil || len(ops) != 1 {
		t.Fatalf("%d ops (%v), want one for the own loser", len(ops), err)
	}
	again, _, _ := claim.React(r, h)
	op := ops[0]
	if op.Author != bob || op.OpID != "superseded-"+b.Hash.String() || again[0].OpID != op.OpID {
		t.Fatalf("op %+v", op)
	}
	if err := r.Apply(m.entry(2, 40, op.Kind, op.Author, op.Body)); err != nil {
		t.Fatal(err)
	}
	if ops, _, _ := claim.React(r, h); len(ops) != 0 {
		t.Fatalf("told twice: %+v", ops)
	}
	if n, _ := claim.Notices(r, bob, h, nil); len(n) != 0 {
		t.Fatalf("the computed row stays beside the ack: %+v", n)
	}
	page, err := logstream.List(r, logstream.Filter{To: []string{bob}, ExcludeWriter: bob})
	if err != nil || page.Count != 1 {
		t.Fatalf("excluding own posts hides the automatic notice: %+v %v", page, err)
	}
	rec := page.Events[0]
	if rec.FromAgent != bob || rec.ToAgent != bob || rec.Status != "superseded" || !strings.Contains(string(rec.Metadata), logstream.EventID(b.Ref())) {
		t.Fatalf("notice %+v", rec)
	}
	h.Self = foldtest.Origin(3)
	if ops, _, _ := claim.React(r, h); len(ops) != 1 || ops[0].OpID != "superseded-"+c.Hash.String() {
		t.Fatalf("carol's home owes its own: %+v", ops)
	}
}

// An ack that names its claim as that was stamped before an amend ends it and
// tells it all the same: that a claim is lost, or that it is given up, in the
// task's one row and when it has many.
func TestC3_AcksNameClaimsAsTheyWereStamped(t *testing.T) {
	before := func(e oplog.Entry) ackOption {
		return losing(oplog.MakeRef(foldtest.At(300*day), e.Origin, e.Seq, e.Hash))
	}
	for _, many := range []int{0, 20} {
		m := newMesh(t)
		m.request(0, 0, owner, 0)
		for n := range many {
			m.ack(3, int64(1+n), carol, "blocked")
		}
		a, b := m.ack(1, 100, alice, "claimed"), m.ack(2, 200, bob, "claimed")
		m.ack(2, 300, bob, "superseded", before(b))
		if task := m.wants(1000, alice, true); len(task.Losses) != 1 || !task.Losses[0].Told {
			t.Errorf("%d more: bob was told, and it says %+v", many, task.Losses)
		}
		if n, err := claim.Notices(m.fold(m.all...), bob, m.horizon(1000), nil); err != nil || len(n) != 0 {
			t.Errorf("%d more: told again: %+v %v", many, n, err)
		}
		m.ack(1, 400, alice, "superseded", before(a))
		m.wants(1000, "", true)
	}
}

// Two copies of a device tell of one lost claim, one before an amend of its
// stamp and one after: the notice is listed once, whichever came first.
func TestK1_NoticesOfCopiesCountOnceAcrossAnAmend(t *testing.T) {
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		m := newMesh(t)
		m.request(0, 0, owner, 0)
		m.ack(1, 100, alice, "claimed")
		b := m.ack(2, 200, bob, "claimed")
		amended := oplog.MakeRef(foldtest.At(150), b.Origin, b.Seq, b.Hash)
		told := []oplog.Entry{m.ack(2, 300, bob, "superseded", losing(b.Ref())), m.ack(4, 301, bob, "superseded", losing(amended))}
		r := m.fold(append(m.all[:len(m.all)-2:len(m.all)-2], told[order[0]], told[order[1]])...)
		page, err := logstream.List(r, logstream.Filter{Status: "superseded"})
		if err != nil || page.Count != 1 || page.Events[0].ID != logstream.EventID(told[0].Ref()) {
			t.Errorf("order %v: %d notices (%v): %+v", order, page.Count, err, page.Events)
		}
		copies, _, err := logstream.CopyPage(r, nil, 10)
		if err != nil || len(copies) != 1 || copies[0].Copy != told[1].Ref() {
			t.Errorf("order %v: copies %+v, %v", order, copies, err)
		}
	}
}

func TestListShowsLiveClaims(t *testing.T) {
	m := newMesh(t)
	m.request(0, 0, owner, 0)
	m.ack(1, 10, alice, "claimed", lease(hour))
	r := m.fold(m.all...)
	for _, c := range []struct {
		name string
		f    claim.Filter
		ms   int64
		want int
	}{
		{"all", claim.Filter{}, 20, 1},
		{"identity", claim.Filter{Identity: alice}, 20, 1},
		{"other identity", claim.Filter{Identity: bob}, 20, 0},
		{"correlation", claim.Filter{Correlation: "task_1"}, 20, 1},
		{"other stream", claim.Filter{Stream: "project/y"}, 20, 0},
		{"over", claim.Filter{}, 2 * hour, 0},
	} {
		page, err := claim.List(r, c.f, m.horizon(c.ms), nil)
		if err != nil || page.Count != c.want {
			t.Errorf("%s: %d claims (%v), want %d", c.name, page.Count, err, c.want)
		}
	}
	if _, err := claim.List(r, claim.Filter{Limit: 5000}, m.horizon(20), nil); err == nil {
		t.Error("a limit over the maximum passes")
	}
}

func TestOpenTasks(t *testing.T) {
	m := newMesh(t)
	m.request(0, 0, owner, 0)
	ev := logstream.Event{Type: logstream.TypeRequest, Stream: "project/x", Room: "delegation", Status: "open", Import: imported.Key{Source: "beads", ID: "bd-1", Part: "request"}}
	second := m.entry(0, 5, logstream.KindEvent, owner, ev.Append(nil))
	m.ack(1, 10, alice, "claimed")
	r := m.fold(m.all...)
	var got []claim.OpenTask
	err := claim.OpenTasks(r, oplog.Ref{}, foldtest.At(20).Time(), func(o claim.OpenTask) (bool, error) {
		got = append(got, o)
		return true, nil
	})
	if err != nil || len(got) != 2 || !got[0].Held || got[1].Held || got[1].Task != logstream.EventID(second.Ref()) || got[1].Key != "i\x00beads\x00bd-1" {
		t.Fatalf("open tasks %+v (%v)", got, err)
	}
	if err := r.Apply(m.ack(1, 20, alice, "applied")); err != nil {
		t.Fatal(err)
	}
	if n, err := claim.CountOpen(r); err != nil || n != 1 {
		t.Fatalf("%d open (%v), want 1", n, err)
	}
}

func TestK4_Grades(t *testing.T) {
	now := foldtest.At(30 * day)
	stamp := foldtest.At(30*day - hour)
	member := func(f hlc.Timestamp, change ...func(*claim.MemberFloor)) claim.MemberFloor {
		m := claim.MemberFloor{Label: "nas", Origin: foldtest.Origin(2), Floor: f, Complete: true}
		for _, c := range change {
			c(&m)
		}
		return m
	}
	incomplete := func(m *claim.MemberFloor) { m.Complete = false }
	heard := func(offset time.Duration) func(*claim.MemberFloor) {
		return func(m *claim.MemberFloor) { m.LastHeard, m.Offset = now.Time(), offset }
	}
	sealed := func(m *claim.MemberFloor) { m.Sealed = true }
	self := claim.MemberFloor{Label: "mac", Origin: foldtest.Origin(1), Self: true}
	for _, c := range []struct {
		name    string
		members []claim.MemberFloor
		outlier bool
		want    string
		reason  string
	}{
		{"alone", nil, false, claim.Settled, ""},
		{"above and complete", []claim.MemberFloor{member(now)}, false, claim.Settled, ""},
		{"equal floor proves nothing", []claim.MemberFloor{member(stamp)}, false, claim.Provisional, "not heard since"},
		{"one above is enough", []claim.MemberFloor{member(stamp + 1)}, false, claim.Settled, ""},
		{"entries missing", []claim.MemberFloor{member(now, incomplete)}, false, claim.Provisional, "have arrived"},
		{"below, recent", []claim.MemberFloor{member(foldtest.At(29 * day))}, false, claim.Provisional, "not heard since"},
		{"idle and heard of", []claim.MemberFloor{member(foldtest.At(29*day), heard(0))}, false, claim.Provisional, "^its promise is on the way$"},
		{"idle, clock a little off", []claim.MemberFloor{member(foldtest.At(29*day), heard(-time.Second))}, false, claim.Provisional, "^its promise is on the way$"},
		{"idle, clock ahead", []claim.MemberFloor{member(foldtest.At(29*day), heard(time.Minute))}, false, claim.Provisional, "^its promise is on the way$"},
		{"clock behind", []claim.MemberFloor{member(foldtest.At(29*day), heard(-90*time.Second))}, false, claim.Provisional, "^clock 2m0s behind; its promise is on the way$"},
		{"below, silent for longer than W", []claim.MemberFloor{member(foldtest.At(22 * day))}, false, claim.Presumed, "not heard since"},
		{"one silent, one below", []claim.MemberFloor{member(foldtest.At(22 * day)), member(foldtest.At(29 * day))}, false, claim.Provisional, ""},
		{"never heard", []claim.MemberFloor{member(0)}, false, claim.Provisional, "never heard"},
		{"too far ahead does not count", []claim.MemberFloor{member(foldtest.At(40 * day))}, false, claim.Provisional, "ahead"},
		{"sealed and complete", []claim.MemberFloor{member(0, sealed)}, false, claim.Settled, ""},
		{"sealed, tail missing", []claim.MemberFloor{member(0, sealed, incomplete)}, false, claim.Provisional, "closed its log"},
		{"own clock off", []claim.MemberFloor{member(now)}, true, claim.Provisional, "own clock"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := claim.Horizon{Now: now.Time(), Self: self.Origin, Members: append([]claim.MemberFloor{self}, c.members...), Outlier: c.outlier}
			grade, unheard := h.Grade(stamp)
			if grade != c.want {
				t.Fatalf("grade %s %v, want %s", grade, unheard, c.want)
			}
			if (grade == claim.Settled) != (len(unheard) == 0) {
				t.Errorf("unheard %v beside %s", unheard, grade)
			}
			if c.reason != "" && !regexp.MustCompile(c.reason).MatchString(unheard[0].Reason) {
				t.Errorf("reason %q, want %q in it", unheard[0].Reason, c.reason)
			}
		})
	}
	if grade, _ := (&claim.Horizon{Now: time.Now()}).Grade(stamp); grade != claim.Provisional {
		t.Errorf("unknown members give %s", grade)
	}
}

func TestK4_FenceIsFinalOnlyWhenSettled(t *testing.T) {
	m := newMesh(t)
	m.request(0, 0, owner, 0)
	m.ack(1, 10, alice, "claimed")
	r := m.fold(m.all...)
	for _, f := range []struct {
		floor int64
		final bool
	}{{5, false}, {11, true}} {
		task, err := claim.Get(r, m.task, m.horizon(100, floor(0, 100), floor(1, 100), floor(2, f.floor)), nil)
		if err != nil || task.Claim.FenceFinal != f.final {
			t.Errorf("floor %d: fence_final %v, want %v (%v)", f.floor, task.Claim.FenceFinal, f.final, err)
		}
	}
}

// TestM3_ExplainsATaskOfAThousandEvents: a correlation names its task however
// many events have it and wherever the request stands among them; one that is a
// task in two streams is refused with an event of each, one of notes is no task.
func TestM3_ExplainsATaskOfAThousandEvents(t *testing.T) {
	m := newMesh(t)
	note := func(stream, correlation string, at int64) {
		ev := logstream.Event{Type: "note", Stream: stream, Room: "r", Correlation: correlation, Body: strings.Repeat("x", 200)}
		m.entry(0, at, logstream.KindEvent, owner, ev.Append(nil))
	}
	for n := range int64(1000) {
		note("project/x", "task_1", n)
		note("elsewhere", "task_1", n) // the same correlation, and no task
	}
	note("project/x", "talk", 5)
	m.request(0, 2000, owner, 0)
	a := m.ack(1, 2010, alice, "claimed")
	m.ack(2, 2020, bob, "claimed")
	r := m.fold(m.all...)
	h := m.horizon(3000)
	why, err := claim.Explain(r, "task_1", h, nil)
	if err != nil || len(why.Verdicts) != 2 || why.Verdicts[0].Event != logstream.EventID(a.Ref()) || why.Stream != "project/x" || why.Task != "task_1" {
		t.Fatalf("%+v, %v", why, err)
	}
	if _, err := claim.Explain(r, "talk", h, nil); refusal.CodeOf(err) != refusal.NotFound {
		t.Errorf("a correlation without a task: %v", err)
	}
	ev := logstream.Event{Type: logstream.TypeRequest, Stream: "elsewhere", Room: "r", Correlation: "task_1"}
	if err := r.Apply(m.entry(3, 2030, logstream.KindEvent, owner, ev.Append(nil))); err != nil {
		t.Fatal(err)
	}
	var refused *refusal.Error
	if _, err := claim.Explain(r, "task_1", h, nil); !errors.As(err, &refused) || refused.Code != refusal.InvalidArgument || len(refused.Allowed) != 2 {
		t.Errorf("a correlation that is two tasks: %v", err)
	}
}
