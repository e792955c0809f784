package query_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"testing"
	"time"

	"tallystick/hlc"
	"tallystick/oplog"
	"tallystick/query"
	"tallystick/query/claim"
	"tallystick/query/identity"
	"tallystick/query/imported"
	"tallystick/query/logstream"
	"tallystick/query/refusal"
	"tallystick/query/summary"
)

const start = 1_767_225_600_000

// replica is a log in memory with the default folds and a clock of its own.
type replica struct {
	t    testing.TB
	log  *oplog.Log
	wall int64
	name string
}

func open(t testing.TB, seed byte) *replica {
	t.Helper()
	r := &replica{t: t, wall: start, name: string(rune('a' + seed))}
	views, _ := query.Default()
	log, err := oplog.Open(context.Background(), oplog.Config{
		InMemory: true, Signer: ed25519.NewKeyFromSeed(append(make([]byte, 31), seed)),
		Wall: func() int64 { return r.wall }, Rand: rand.New(rand.NewSource(int64(seed))), Projections: views,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	r.log = log
	return r
}

func (r *replica) append(ops ...oplog.Op) ([]oplog.Appended, error) {
	r.wall++
	return r.log.Append(context.Background(), ops...)
}

func (r *replica) must(op oplog.Op, err error) oplog.Appended {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
	got, err := r.append(op)
	if err != nil {
		r.t.Fatal(err)
	}
	return got[0]
}

func (r *replica) view(fn func(oplog.Snapshot) error) {
	r.t.Helper()
	if err := r.log.View(fn); err != nil {
		r.t.Fatal(err)
	}
}

func (r *replica) request(correlation string) oplog.Appended {
	r.t.Helper()
	return r.must(logstream.NewOp(r.name+":owner:x", logstream.Event{
		Type: logstream.TypeRequest, Stream: "project/x", Room: "delegation", Status: "open", Correlation: correlation,
	}))
}

// ack calls event_ack as the server does.
func (r *replica) ack(of oplog.Ref, agent, status string, change ...func(*claim.Input)) (oplog.Appended, error) {
	r.t.Helper()
	in := claim.Input{EventID: logstream.EventID(of), Status: status}
	for _, c := range change {
		c(&in)
	}
	var op oplog.Op
	r.view(func(s oplog.Snapshot) (err error) {
		op, _, err = claim.NewOp(s, r.log.Self(), r.name+":"+agent+":x", in)
		return err
	})
	got, err := r.append(op)
	if err != nil {
		return oplog.Appended{}, err
	}
	return got[0], nil
}

// pull brings everything of the others here.
func (r *replica) pull(others ...*replica) {
	r.t.Helper()
	for _, o := range others {
		for origin := range o.log.Frontier() {
			for {
				rg, err := o.log.ReadRange(origin, r.log.Frontier().Seq(origin), 1<<20)
				if err != nil {
					r.t.Fatal(err)
				}
				if rg.Count == 0 {
					break
				}
				if _, err := r.log.Ingest(context.Background(), rg); err != nil {
					r.t.Fatal(err)
				}
			}
		}
		r.wall = max(r.wall, o.wall)
	}
}

func (r *replica) horizon(floor hlc.Timestamp, all ...*replica) claim.Horizon {
	h := claim.Horizon{Now: time.UnixMilli(r.wall), Self: r.log.Self().ID}
	for _, o := range all {
		h.Members = append(h.Members, claim.MemberFloor{Label: o.name, Origin: o.log.Self().ID, Floor: floor, Complete: true, Self: o == r})
	}
	return h
}

func outcome(err error) string {
	var n *claim.NotTaken
	if errors.As(err, &n) {
		return n.Outcome
	}
	return fmt.Sprint(err)
}

func (r *replica) length() (n uint64) {
	r.view(func(s oplog.Snapshot) error {
		n = s.LastArrival()
		return nil
	})
	return n
}

func TestClaimOutcomes(t *testing.T) {
	r := open(t, 1)
	task := r.request("task_1")
	if _, err := r.ack(task.Ref, "one", "claimed"); err != nil {
		t.Fatal(err)
	}
	before := r.length()
	if _, err := r.ack(task.Ref, "one", "claimed"); outcome(err) != claim.Joined {
		t.Errorf("K2: the same identity again: %v", err)
	}
	if _, err := r.ack(task.Ref, "two", "claimed"); outcome(err) != claim.Held || refusal.Code((err.(*claim.NotTaken)).ErrorCode()) != refusal.ClaimHeld {
		t.Errorf("another identity: %v", err)
	}
	for _, status := range []string{"released", "ready"} {
		lease := func(in *claim.Input) {
			if in.Status == "ready" {
				in.LeaseMS = 3_600_000
			}
		}
		if _, err := r.ack(task.Ref, "two", status, lease); refusal.CodeOf(err) != refusal.Conflict {
			t.Errorf("%s by who holds nothing: %v", status, err)
		}
	}
	if r.length() != before {
		t.Error("a refused claim was stored")
	}
	if _, err := r.ack(task.Ref, "one", "released"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.ack(task.Ref, "two", "claimed", func(in *claim.Input) { in.LeaseMS = 3_600_000 }); err != nil {
		t.Errorf("K1: a released task: %v", err)
	}
	r.wall += 3_600_000
	if _, err := r.ack(task.Ref, "one", "claimed"); err != nil {
		t.Errorf("K3: after the lease: %v", err)
	}
	if _, err := r.ack(task.Ref, "two", "applied"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.ack(task.Ref, "two", "claimed"); outcome(err) != claim.Closed {
		t.Errorf("K3: a closed task: %v", err)
	}
}

// TestC3_AcksOutliveAnAmend: an amend changes the stamps and so the ids of
// requests, claims and what was said of them. Each ack still finds its own,
// under the old id and the new.
func TestC3_AcksOutliveAnAmend(t *testing.T) {
	fast, other := open(t, 1), open(t, 2)
	fast.wall += 300 * 24 * 3_600_000
	kept, given, closed := fast.request("kept"), fast.request(""), fast.request("closed")
	for _, req := range []oplog.Appended{kept, given, closed} {
		if _, err := fast.ack(req.Ref, "one", "claimed"); err != nil {
			t.Fatal(err)
		}
	}
	for _, ack := range []struct {
		of     oplog.Appended
		status string
	}{{given, "superseded"}, {closed, "applied"}, {kept, "ready"}} {
		if _, err := fast.ack(ack.of.Ref, "one", ack.status); err != nil {
			t.Fatal(err)
		}
	}
	check := func(r *replica, what string) {
		t.Helper()
		r.view(func(s oplog.Snapshot) error {
			for _, want := range []struct {
				req    oplog.Appended
				holder string
				open   bool
			}{{kept, "b:one:x", true}, {given, "", true}, {closed, "", false}} {
				e, err := logstream.Find(s, "id", logstream.EventID(want.req.Ref))
				if err != nil {
					return err
				}
				now, err := logstream.Find(s, "id", logstream.EventID(e.Ref()))
				if err != nil || now.Hash != want.req.Hash {
					t.Errorf("%s: the id of now finds %v, %v", what, now.Hash, err)
				}
				key, err := claim.TaskKeyOf(&e)
				if err != nil {
					return err
				}
				task, err := claim.Get(s, key, claim.Horizon{Now: e.Time.Time().Add(time.Minute)}, nil)
				if err != nil {
					return err
				}
				holder := ""
				if task.Claim != nil {
					holder = task.Claim.Holder
				}
				if holder != want.holder || task.Open != want.open {
					t.Errorf("%s: held by %q, open %v, want %q, %v", what, holder, task.Open, want.holder, want.open)
				}
				if why, err := claim.Explain(s, logstream.EventID(want.req.Ref), claim.Horizon{}, nil); err != nil || len(why.Verdicts) != 1 || why.Verdicts[0].Outcome != claim.Won {
					t.Errorf("%s: %+v, %v", what, why, err)
				}
			}
			page, err := logstream.List(s, logstream.Filter{Types: []string{logstream.TypeAck}})
			if err != nil || page.Count != 6 {
				t.Fatalf("%s: %d acks, %v", what, page.Count, err)
			}
			for i := range page.Events {
				var of struct {
					AckOf string `json:"ack_of"`
				}
				if err := json.Unmarshal(page.Events[i].Metadata, &of); err != nil {
					return err
				}
				if _, err := logstream.Find(s, "ack_of", of.AckOf); err != nil {
					t.Errorf("%s: %s: %v", what, of.AckOf, err)
				}
			}
			return nil
		})
	}
	check(fast, "before")
	other.pull(fast)
	other.wall = start // pull makes clocks agree
	line := other.log.FutureLines()[0]
	if _, err := other.log.Amend(context.Background(), other.name+":owner:x", "", oplog.Amendment{Origin: line.Origin, Last: line.Last}, nil); err != nil {
		t.Fatal(err)
	}
	check(other, "amended")
	// One of them may be claimed anew, and of the others it is known why not.
	for _, ack := range []struct {
		of   oplog.Appended
		want string
	}{{kept, claim.Held}, {given, ""}, {closed, claim.Closed}} {
		if _, err := other.ack(ack.of.Ref, "two", "claimed"); ack.want == "" && err != nil || ack.want != "" && outcome(err) != ack.want {
			t.Errorf("%v, want %q", err, ack.want)
		}
	}
	fast.pull(other)
	if err := fast.log.ApplyAmends(context.Background()); err != nil {
		t.Fatal(err)
	}
	if a, b := fast.log.Views(), other.log.Views(); fmt.Sprint(a) != fmt.Sprint(b) {
		t.Errorf("the views differ:\n%v\n%v", a, b)
	}
}

func TestClaimOnExpiredTaskIsRefused(t *testing.T) {
	r := open(t, 1)
	task := r.must(logstream.NewOp("a:owner:x", logstream.Event{Type: logstream.TypeRequest, Stream: "s", Room: "r", ExpiresAt: start + 1000}))
	r.wall += 1000
	if _, err := r.ack(task.Ref, "one", "claimed"); outcome(err) != claim.Expired {
		t.Errorf("%v", err)
	}
}

func TestAckErrors(t *testing.T) {
	r := open(t, 1)
	task := r.request("")
	for _, c := range []struct {
		name   string
		change func(*claim.Input)
		field  string
		code   refusal.Code
	}{
		{"unknown event", func(in *claim.Input) { in.EventID = "evt_20260101T000000_000000000000" }, "event_id", refusal.NotFound},
		{"no event", func(in *claim.Input) { in.EventID = "" }, "event_id", refusal.InvalidArgument},
		{"status", func(in *claim.Input) { in.Status = "open" }, "status", refusal.InvalidArgument},
		{"short lease", func(in *claim.Input) { in.LeaseMS = 1000 }, "lease_ms", refusal.InvalidArgument},
		{"long lease", func(in *claim.Input) { in.LeaseMS = 1 << 40 }, "lease_ms", refusal.InvalidArgument},
		{"lease with applied", func(in *claim.Input) { in.Status, in.LeaseMS = "applied", 3_600_000 }, "lease_ms", refusal.InvalidArgument},
		{"body", func(in *claim.Input) { in.Body = "\x00" }, "body", refusal.InvalidArgument},
		{"topic", func(in *claim.Input) { in.Topic = "a\nb" }, "topic", refusal.InvalidArgument},
	} {
		in := claim.Input{EventID: logstream.EventID(task.Ref), Status: "claimed"}
		c.change(&in)
		r.view(func(s oplog.Snapshot) error {
			_, _, err := claim.NewOp(s, r.log.Self(), "a:b:c", in)
			if e, ok := refusal.As(err); !ok || e.Field != c.field || e.Code != c.code {
				t.Errorf("%s: %v", c.name, err)
			}
			return nil
		})
	}
	if _, err := r.ack(task.Ref, "one", "claimed", func(in *claim.Input) { in.Outlier = true }); refusal.CodeOf(err) != refusal.Conflict {
		t.Errorf("C3: a replica whose clock is off claims: %v", err)
	}
}

func TestAckFollowsItsTarget(t *testing.T) {
	r := open(t, 1)
	task := r.must(logstream.NewOp("b:owner:x", logstream.Event{Type: logstream.TypeRequest, Stream: "s", Room: "r", Topic: "lane"}))
	got, err := r.ack(task.Ref, "one", "claimed")
	if err != nil {
		t.Fatal(err)
	}
	r.view(func(s oplog.Snapshot) error {
		rec, err := logstream.Get(s, logstream.EventID(got.Ref), nil)
		if err != nil {
			return err
		}
		id := logstream.EventID(task.Ref)
		if rec.Type != "event.ack" || rec.Stream != "s" || rec.Room != "r" || rec.Topic != "lane" || rec.ToAgent != "b:owner:x" ||
			rec.Correlation != id || string(rec.Metadata) != `{"ack_of":"`+id+`"}` {
			t.Errorf("%+v", rec)
		}
		return nil
	})
}

// TestPartitionHeals is the life of a race: two sides claim the same tasks,
// both hold until they meet, then every replica names the same winner, each
// loser hears at once and its home writes one ack.
func TestPartitionHeals(t *testing.T) {
	a, b, c := open(t, 1), open(t, 2), open(t, 3)
	var tasks []oplog.Appended
	for i := 0; i < 10; i++ {
		tasks = append(tasks, a.request(fmt.Sprintf("task_%d", i)))
	}
	b.pull(a)
	c.pull(a)
	for i, task := range tasks { // A and C, in turn the first
		first, second := a, c
		if i%2 == 1 {
			first, second = c, a
		}
		second.wall = max(first.wall, second.wall) + 5
		first.wall = second.wall - 3
		for _, r := range []*replica{first, second} {
			if _, err := r.ack(task.Ref, "worker", "claimed"); err != nil {
				t.Fatal(err)
			}
		}
	}
	all := []*replica{a, b, c}
	for _, r := range all {
		r.pull(all...)
	}
	winners := map[string]string{}
	for _, r := range all {
		r.view(func(s oplog.Snapshot) error {
			page, err := claim.List(s, claim.Filter{}, r.horizon(0, all...), nil)
			if err != nil || page.Count != len(tasks) {
				t.Fatalf("%s shows %d claims: %v", r.name, page.Count, err)
			}
			for _, cl := range page.Claims {
				if w, ok := winners[cl.Task]; ok && w != cl.Holder {
					t.Fatalf("task %s: %s and %s", cl.Task, w, cl.Holder)
				}
				winners[cl.Task] = cl.Holder
				if cl.Grade != claim.Provisional || len(cl.Unheard) == 0 || cl.FenceFinal {
					t.Fatalf("K4: graded %s before the floors are heard: %+v", cl.Grade, cl)
				}
			}
			inbox, err := query.Events(s, logstream.Filter{To: []string{"b:worker:x", "d:worker:x"}}, r.horizon(0, all...))
			if err != nil {
				return err
			}
			told := 0
			for _, e := range inbox.Events {
				if e.Computed && e.Grade == claim.Provisional && e.Status == "superseded" {
					told++
				}
			}
			if told != len(tasks) {
				t.Fatalf("K1: %d of %d losses in the inbox at once", told, len(tasks))
			}
			return nil
		})
		r.react(0, all...) // nothing is settled, so nothing is written
	}
	floor := hlc.New(a.wall+1, 0)
	for _, r := range all {
		r.wall = a.wall + 1
		r.react(floor, all...)
		r.react(floor, all...) // a repeat adds nothing
	}
	for _, r := range all {
		r.pull(all...)
	}
	digest := ""
	for _, r := range all {
		r.view(func(s oplog.Snapshot) error {
			page, err := logstream.List(s, logstream.Filter{Status: "superseded", Limit: 500})
			if err != nil || page.Count != len(tasks) {
				t.Fatalf("%d superseded acks, want %d: %v", page.Count, len(tasks), err)
			}
			per := map[string]int{}
			for _, e := range page.Events {
				per[e.Correlation]++
				if e.FromAgent != e.ToAgent || e.FromAgent == winners[e.Correlation] {
					t.Fatalf("the wrong one is told: %+v", e)
				}
			}
			if len(per) != len(tasks) {
				t.Fatalf("acks for %d tasks", len(per))
			}
			return nil
		})
		views := fmt.Sprint(r.log.Views())
		if digest == "" {
			digest = views
		}
		if views != digest {
			t.Fatalf("M1: views differ:\n%s\n%s", views, digest)
		}
	}
}

// react runs the reactors as a replica does.
func (r *replica) react(floor hlc.Timestamp, all ...*replica) {
	r.t.Helper()
	_, reactors := query.Default()
	before := r.length()
	for _, re := range reactors {
		var ops []oplog.Op
		r.view(func(s oplog.Snapshot) (err error) {
			env := query.Env{Self: r.log.Self(), Label: r.name, Now: time.UnixMilli(r.wall), Horizon: r.horizon(floor, all...)}
			ops, _, err = re.React(s, env)
			return err
		})
		if len(ops) > 0 {
			if _, err := r.append(ops...); err != nil {
				r.t.Fatalf("%s: %v", re.Name(), err)
			}
		}
	}
	if floor == 0 && r.length() != before {
		r.t.Fatal("K1: an ack before the loss is settled")
	}
}

// A waiting loser is woken by the entry that makes it lose, once.
func TestComputedNoticeComesOnceWithACursor(t *testing.T) {
	a, b := open(t, 1), open(t, 2)
	task := a.request("task_1")
	b.pull(a)
	if _, err := a.ack(task.Ref, "worker", "claimed"); err != nil {
		t.Fatal(err)
	}
	b.wall = a.wall + 10
	if _, err := b.ack(task.Ref, "worker", "claimed"); err != nil {
		t.Fatal(err)
	}
	f := logstream.Filter{To: []string{"c:worker:x"}, Replica: b.log.Self().ID}
	read := func() (p logstream.Page) {
		b.view(func(s oplog.Snapshot) (err error) {
			p, err = query.Events(s, f, b.horizon(0, a, b))
			return err
		})
		f.Cursor = p.NextCursor
		return p
	}
	if p := read(); p.Count != 0 {
		t.Fatalf("lost before it met the other: %+v", p)
	}
	b.pull(a)
	if p := read(); p.Count != 1 || !p.Events[0].Computed {
		t.Fatalf("not told: %+v", p)
	}
	if p := read(); p.Count != 0 {
		t.Fatalf("told again: %+v", p)
	}
}

func TestImportedTwiceIsOneTask(t *testing.T) {
	a, b := open(t, 1), open(t, 2)
	key := func(part string) imported.Key { return imported.Key{Source: "beads", ID: "bd-1", Part: part} }
	for _, r := range []*replica{a, b} {
		req := r.must(logstream.NewOp(r.name+":owner:x", logstream.Event{
			Type: logstream.TypeRequest, Stream: "project/" + r.name, Room: "delegation", Status: "open", Import: key("request"),
		}))
		if r == a {
			if _, err := r.ack(req.Ref, "owner", "applied", func(in *claim.Input) { in.Import = key("ack") }); err != nil {
				t.Fatal(err)
			}
		}
		r.must(summary.NewOp(r.name+":owner:x", summary.Summary{Title: "t", Text: "x", Identities: []string{"emma"}, Import: key("summary")}))
	}
	a.pull(b)
	b.pull(a)
	for _, r := range []*replica{a, b} {
		r.view(func(s oplog.Snapshot) error {
			page, err := logstream.List(s, logstream.Filter{Types: []string{logstream.TypeRequest}})
			if err != nil || page.Count != 1 {
				t.Errorf("%d requests: %v", page.Count, err)
			}
			sums, err := summary.List(s, summary.Query{Filter: identity.Filter{Identity: "emma"}})
			if err != nil || sums.Total != 1 || sums.Count != 1 {
				t.Errorf("%d summaries: %v", sums.Total, err)
			}
			if n, err := claim.CountOpen(s); err != nil || n != 0 {
				t.Errorf("%d open: the close of one import does not close the other's task: %v", n, err)
			}
			return nil
		})
	}
	if x, y := fmt.Sprint(a.log.Views()), fmt.Sprint(b.log.Views()); x != y {
		t.Errorf("views differ: %s %s", x, y)
	}
}

// Cursors against the real log: pages on one replica, the rest on another.
func TestCursorOverTheRealLog(t *testing.T) {
	a, b := open(t, 1), open(t, 2)
	for i := 0; i < 6; i++ {
		for _, r := range []*replica{a, b} {
			r.must(logstream.NewOp("x-y", logstream.Event{Type: "status", Stream: "s", Room: "r", Body: fmt.Sprint(r.name, i)}))
		}
	}
	a.pull(b)
	seen := map[string]bool{}
	var f logstream.Filter
	read := func(r *replica, limit int) {
		f.Limit, f.Replica = limit, r.log.Self().ID
		r.view(func(s oplog.Snapshot) error {
			p, err := logstream.List(s, f)
			if err != nil {
				return err
			}
			for _, e := range p.Events {
				if seen[e.ID] {
					t.Fatalf("%s repeats", e.Body)
				}
				seen[e.ID] = true
			}
			f.Cursor = p.NextCursor
			return nil
		})
	}
	a.view(func(s oplog.Snapshot) error {
		p, err := logstream.List(s, logstream.Filter{Limit: 1, Order: "asc"})
		f.SinceEventID = p.Events[0].ID
		seen[p.Events[0].ID] = true
		return err
	})
	read(a, 4)
	f.SinceEventID = ""
	b.pull(a)
	read(b, 3)
	a.must(logstream.NewOp("x-y", logstream.Event{Type: "status", Stream: "s", Room: "r", Body: "late"}))
	read(a, 2)
	b.pull(a)
	read(b, 100)
	if len(seen) != 13 {
		t.Errorf("%d of 13 delivered", len(seen))
	}
}

// L7(c): two clones write one incarnation. A reader sees every entry of both
// branches once, whichever arrived first, and its cursor never takes a seq of
// one branch for the other's.
func TestL7c_CursorSeesBothBranches(t *testing.T) {
	a, clone, reader := open(t, 1), open(t, 1), open(t, 2)
	say := func(r *replica, text string) {
		r.must(logstream.NewOp("x-y", logstream.Event{Type: "status", Stream: "s", Room: "r", Body: text}))
	}
	say(a, "common")
	say(clone, "common")
	for i := 0; i < 3; i++ {
		say(a, fmt.Sprint("a", i))
	}
	say(clone, "b0")
	say(clone, "b1")
	origin := a.log.Self().ID
	if clone.log.Self().ID != origin {
		t.Fatal("the clone is another incarnation")
	}
	toward := func(from *replica) {
		tip := from.log.Frontier()[origin][0]
		for {
			rg, err := from.log.ReadToward(origin, reader.log.Frontier()[origin], tip, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if rg.Count == 0 {
				break
			}
			if _, err := reader.log.Ingest(context.Background(), rg); err != nil {
				t.Fatal(err)
			}
		}
		reader.wall = max(reader.wall, from.wall)
	}
	seen := map[string]int{}
	f := logstream.Filter{Limit: 1, Replica: reader.log.Self().ID}
	read := func() (more bool) {
		reader.view(func(s oplog.Snapshot) error {
			p, err := logstream.List(s, f)
			if err != nil {
				return err
			}
			for _, e := range p.Events {
				seen[e.ID]++
			}
			f.Cursor, more = p.NextCursor, p.HasMore
			return nil
		})
		return more
	}
	toward(a)
	read()
	toward(clone) // the fork is found in the middle of the listing
	for read() {
	}
	for read() {
	}
	say(a, "a3")
	say(clone, "b2")
	toward(a) // the higher seq comes first
	toward(clone)
	for read() {
	}
	if len(seen) != 8 {
		t.Errorf("%d of 8 entries seen: %v", len(seen), seen)
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s was given %d times", id, n)
		}
	}
}

func ExampleDefault() {
	views, reactors := query.Default()
	for _, v := range views {
		fmt.Println(v.Name(), v.Kinds())
	}
	fmt.Println(reactors[0].Name())
	// Output:
	// logstream [event ack]
	// identity [identity]
	// speaker [*]
	// claim [event ack tally.birth]
	// summary [summary]
	// mailbox [event mail.mark]
	// memory [fact fact.mark fact.link fact.alias]
	// rawmemory [rawmem]
	// checkpoint [checkpoint]
	// artifact [artifact]
	// superseded
}
