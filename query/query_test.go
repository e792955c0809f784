package query_test

import (
	"context"
	"encoding/json"
	"fmt"
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
	// claim [event ack tally.birth tally.revoke tally.leave]
	// summary [summary]
	// mailbox [event mail.mark]
	// memory [fact fact.mark fact.link fact.alias]
	// rawmemory [rawmem]
	// checkpoint [checkpoint]
	// artifact [artifact]
	// superseded
}
