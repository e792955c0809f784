package query_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"tallystick/oplog"
	"tallystick/query"
	"tallystick/query/artifact"
	"tallystick/query/carried"
	"tallystick/query/checkpoint"
	"tallystick/query/claim"
	"tallystick/query/identity"
	"tallystick/query/imported"
	"tallystick/query/logstream"
	"tallystick/query/mailbox"
	"tallystick/query/memory"
	"tallystick/query/minted"
	"tallystick/query/rawmemory"
	"tallystick/query/summary"
)

var ownKinds = []string{"tally.birth", "tally.genesis", "tally.admit", "tally.label", "tally.rename", "tally.erase", "tally.erased"}

// next is the log of the same machine in another mesh, later.
func (r *replica) next(host string) *replica {
	r.t.Helper()
	n := &replica{t: r.t, wall: r.wall + time.Hour.Milliseconds(), name: host}
	views, _ := query.Default()
	log, err := oplog.Open(context.Background(), oplog.Config{
		InMemory: true, Signer: ed25519.NewKeyFromSeed(make([]byte, 32)),
		Wall: func() int64 { return n.wall }, Rand: rand.New(rand.NewSource(77)), Projections: views,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { log.Close() })
	n.log = log
	return n
}

// into is a log that entries are carried into; it can fail.
type into struct {
	*replica
	before, after int // appends to let pass; the next fails before, or after it is written
}

var errCrash = errors.New("crash")

func (i *into) Append(ctx context.Context, ops ...oplog.Op) ([]oplog.Appended, error) {
	if i.before--; i.before == -1 {
		return nil, errCrash
	}
	res, err := i.log.Append(ctx, ops...)
	if i.after--; i.after == -1 {
		return nil, errCrash
	}
	return res, err
}

func (i *into) View(fn func(oplog.Snapshot) error) error { return i.log.View(fn) }
func (i *into) HasBlob(h oplog.Hash) bool                { return i.log.HasBlob(h) }
func (i *into) PutBlob(ctx context.Context, r io.Reader, size int64) (oplog.Hash, int64, error) {
	return i.log.PutBlob(ctx, r, size)
}

func options(before, after string) carried.Options {
	views, _ := query.Default()
	return carried.Options{Kinds: query.Carried(), Own: ownKinds, Projections: views, Before: before, After: after}
}

func (r *replica) bring(old *replica) carried.Report {
	r.t.Helper()
	report, err := carried.Bring(context.Background(), &into{replica: r, before: 1 << 30, after: 1 << 30}, old.log, options(old.name, r.name))
	if err != nil {
		r.t.Fatal(err)
	}
	return report
}

// life writes something of every kind into a log, with everything that speaks
// of something else.
func (r *replica) life() {
	r.t.Helper()
	me, flat := r.name+":owner:x", r.name+"-helper"
	r.must(minted.NewOp(minted.Mint{Host: r.name, Agent: "owner", Project: "x", Repo: minted.Repo{Remote: "example.com/x"}}))
	r.must(minted.NewOp(minted.Mint{Host: r.name, Agent: "helper", Flat: true}))

	// Tasks: held, closed, released, over by time, expired after a claim, lost.
	held := r.request("held")
	r.mustAck(held, "worker", logstream.StatusClaimed)
	closed := r.request("closed")
	r.mustAck(closed, "worker", logstream.StatusClaimed)
	r.mustAck(closed, "worker", logstream.StatusApplied, func(in *claim.Input) { in.Body = "done" })
	released := r.request("released")
	r.mustAck(released, "worker", logstream.StatusClaimed)
	r.mustAck(released, "worker", logstream.StatusReleased)
	over := r.request("over")
	r.mustAck(over, "worker", logstream.StatusClaimed, func(in *claim.Input) { in.LeaseMS = claim.MinLease.Milliseconds() })
	r.wall += claim.MinLease.Milliseconds() + 1000
	r.mustAck(over, "second", logstream.StatusClaimed)
	gone := r.request("gone")
	r.mustAck(gone, "worker", logstream.StatusClaimed, func(in *claim.Input) { in.LeaseMS = claim.MinLease.Milliseconds() })
	short := r.must(logstream.NewOp(me, logstream.Event{Type: logstream.TypeRequest, Stream: "project/x", Room: "delegation", Status: "open", Body: "no correlation",
		ExpiresAt: r.wall + 60_000}))
	r.mustAck(short, "worker", logstream.StatusClaimed)
	lost := r.must(logstream.NewAckOp(r.name+":loser:x", logstream.Ack{
		Event: logstream.Event{Stream: "project/x", Room: "delegation", Correlation: "held", Status: logstream.StatusClaimed},
		Task:  claim.TaskKey("project/x", "held", imported.Key{}, oplog.Hash{}), Of: held.Ref,
	}))
	r.must(logstream.NewAckOp(r.name+":loser:x", logstream.Ack{
		Event: logstream.Event{Stream: "project/x", Room: "delegation", Correlation: "held", Status: logstream.StatusSuperseded,
			Metadata: json.RawMessage(`{"claim":"` + logstream.EventID(lost.Ref) + `"}`)},
		Task: claim.TaskKey("project/x", "held", imported.Key{}, oplog.Hash{}), Of: lost.Ref, Claim: lost.Ref, Automatic: true,
	}))
	r.wall += claim.MinLease.Milliseconds() + 1000

	content := bytes.Repeat([]byte("a patch\n"), 80_000) // three chunks
	hash, size, err := r.log.PutBlob(context.Background(), bytes.NewReader(content), int64(len(content)))
	if err != nil {
		r.t.Fatal(err)
	}
	art := r.must(artifact.NewOp(me, artifact.Artifact{Kind: "patch", Hash: hash, Size: size, Metadata: json.RawMessage(`{"of": "` + logstream.EventID(held.Ref) + `"}`)}))
	r.must(logstream.NewOp(me, logstream.Event{Type: "task.reply", Stream: "project/x", Room: "delegation", To: r.name + ":worker:x",
		Correlation: logstream.EventID(short.Ref), Body: "see " + logstream.EventID(held.Ref), ArtifactIDs: []string{artifact.ID(art.Ref, hash)},
		Metadata: json.RawMessage(`{"about":["` + logstream.EventID(closed.Ref) + `"],"note":"evt_nothing_such"}`)}))
	r.must(logstream.NewOp(me, logstream.Event{Type: "note", Stream: "s", Room: "r", Import: imported.Key{Source: "beads", ID: "bd-1", Part: "request"}}))
	r.must(logstream.NewOp(flat, logstream.Event{Type: "note", Stream: "s", Room: "r", To: "*", Body: "to all"}))

	letter := r.mail(me, mailbox.Draft{To: flat, Subject: "hello", Body: "you"})
	r.mail(flat, mailbox.Draft{To: me, Subject: "re", Body: "me", InReplyTo: logstream.EventID(letter.Ref)})
	r.mail(me, mailbox.Draft{To: mailbox.Everybody, Subject: "all", Body: "everybody"})
	r.mark(flat, mailbox.Read, letter)
	r.mark(flat, mailbox.Archived, letter)

	r.must(summary.NewOp(me, summary.Summary{Title: "did it", Text: "all of it"}))
	r.must(summary.NewOp(me, summary.Summary{Title: "imported", Text: "x", Identities: []string{"somebody", flat}, Timestamp: "2026-01-01T00:00:00Z",
		Import: imported.Key{Source: "beads", ID: "bd-1", Part: "summary"}}))
	r.must(rawmemory.NewOp(me, rawmemory.Turn{Prompt: "p", Thought: "t", Response: "r", Session: "s1"}))

	for _, f := range []memory.Fact{{Text: "one"}, {Text: "two"}, {Text: "three"}, {Text: "row", Import: imported.Key{Source: "f", ID: "1", Part: "fact"}, Author: "x", At: "then"}} {
		f.Namespace = me
		r.must(memory.NewAdd(me, f))
	}
	for _, ops := range [][]oplog.Op{
		r.ops(memory.NewUpdate(me, memory.Fact{Namespace: me, Text: "two, better"}, "two")),
		r.ops(memory.NewUpdate(me, memory.Fact{Namespace: me, Text: "two, best"}, "two, better")),
		r.one(memory.NewForget(me, me, "three")), r.one(memory.NewPin(me, me, "one")),
		r.one(memory.NewPin(me, me, "two, best")), r.one(memory.NewUnpin(me, me, "two, best")),
		r.one(memory.NewLink(me, memory.Shared, "Parser", "lexer")), r.one(memory.NewLink(me, memory.Shared, "Parser", "printer")),
		r.one(memory.NewAlias(me, me, "db", []string{"database"})),
	} {
		if _, err := r.append(ops...); err != nil {
			r.t.Fatal(err)
		}
	}
	var edge memory.Edge
	r.view(func(s oplog.Snapshot) error {
		from, _, err := memory.Links(s, memory.Shared, "printer", 10)
		_, to, err2 := memory.Links(s, memory.Shared, "printer", 10)
		edge = append(from, to...)[0]
		return errors.Join(err, err2)
	})
	r.view(func(s oplog.Snapshot) error {
		op, err := memory.NewRemove(s, me, edge.ID)
		r.must(op, err)
		return nil
	})
	r.must(checkpoint.NewOp(me, checkpoint.Checkpoint{Namespace: me, State: `{"step":1}`, Branch: "main"}))
	r.must(checkpoint.NewOp(me, checkpoint.Checkpoint{Namespace: me, State: `{"step":2}`}))
}

func (r *replica) ops(ops []oplog.Op, err error) []oplog.Op {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
	return ops
}

func (r *replica) one(op oplog.Op, err error) []oplog.Op { return r.ops([]oplog.Op{op}, err) }

func (r *replica) mustAck(of oplog.Appended, agent, status string, change ...func(*claim.Input)) {
	r.t.Helper()
	if _, err := r.ack(of.Ref, agent, status, change...); err != nil {
		r.t.Fatalf("%s of %s: %v", status, agent, err)
	}
}

func (r *replica) mail(from string, d mailbox.Draft) (sent oplog.Appended) {
	r.t.Helper()
	var op oplog.Op
	r.view(func(s oplog.Snapshot) (err error) {
		op, err = mailbox.NewMessageOp(s, from, d)
		return err
	})
	return r.must(op, nil)
}

func (r *replica) mark(who string, m mailbox.Mark, of oplog.Appended) {
	r.t.Helper()
	var ops []oplog.Op
	r.view(func(s oplog.Snapshot) (err error) {
		ops, err = mailbox.NewMarkOps(s, who, m, logstream.EventID(of.Ref))
		return err
	})
	if _, err := r.append(ops...); err != nil {
		r.t.Fatal(err)
	}
}

var (
	anyID   = regexp.MustCompile(`(evt_\d{8}T\d{6}_[0-9a-f]{12}|art_\d{8}T\d{6}_[0-9a-f]{12}|(sum|mem|chk)_[0-9a-f]{16})`)
	inText  = regexp.MustCompile(`"see evt_[0-9A-Za-z_]+"`)
	ofPlace = regexp.MustCompile(`"(seq|origin_id|origin_seq|hlc|fence|claim_hlc|winner_hlc|next_cursor)":"[^"]*",?`)
)

// reading is what every read shows, as text: with ids by the order in which
// they appear, and without places in the log. now is the time of the reader.
func (r *replica) reading(now int64) string {
	r.t.Helper()
	var out strings.Builder
	show := func(v any, err error) error {
		if err != nil {
			return err
		}
		b, err := json.Marshal(v)
		fmt.Fprintf(&out, "%s\n", b)
		return err
	}
	h := claim.Horizon{Now: time.UnixMilli(now), Self: r.log.Self().ID}
	me, flat := r.name+":owner:x", r.name+"-helper"
	r.view(func(s oplog.Snapshot) error {
		err := show(query.Events(s, logstream.Filter{Order: "asc", Limit: 500}, h))
		err = errors.Join(err, s.Arrived(0, false, func(_ uint64, e *oplog.Entry) (bool, error) {
			if e.Kind != logstream.KindEvent || !e.Present() {
				return true, nil
			}
			key, err := claim.TaskKeyOf(e)
			if err != nil {
				return false, err
			}
			return true, show(claim.Get(s, key, h, nil))
		}))
		for _, ns := range []string{me, memory.Shared} {
			err = errors.Join(err, show(memory.List(s, memory.Filter{Namespaces: []string{ns}, Retired: true})))
			err = errors.Join(err, show(memory.List(s, memory.Filter{Namespaces: []string{ns}})))
		}
		from, to, lerr := memory.Links(s, memory.Shared, "parser", 10)
		err = errors.Join(err, show([]any{from, to}, lerr), show(memory.Aliases(s, me, "db", 10)))
		err = errors.Join(err, show(checkpoint.List(s, checkpoint.Filter{Namespace: me})))
		err = errors.Join(err, show(checkpoint.Resume(s, checkpoint.ResumeQuery{Namespace: me})))
		err = errors.Join(err, show(artifact.List(s, 0, 0, r.log, nil)))
		err = errors.Join(err, show(summary.List(s, summary.Query{Filter: identity.Filter{All: true}})))
		err = errors.Join(err, show(summary.List(s, summary.Query{Filter: identity.Filter{Identity: flat}})))
		err = errors.Join(err, show(rawmemory.Recent(s, rawmemory.RecentQuery{Filter: identity.Filter{All: true}})))
		for _, who := range []string{me, flat} {
			page, merr := mailbox.List(s, mailbox.Query{Owner: who, Box: "all", Archived: true})
			err = errors.Join(err, show(page, merr))
			for _, m := range page.Messages {
				err = errors.Join(err, show(mailbox.Get(s, m.ID, who, nil)))
			}
		}
		for _, k := range []imported.Key{{Source: "beads", ID: "bd-1", Part: "request"}} {
			_, ok, ierr := logstream.Imported(s, k)
			err = errors.Join(err, show(ok, ierr))
		}
		known, kerr := minted.List(s, "")
		for i := range known {
			known[i].First, known[i].Last = oplog.Ref{}, oplog.Ref{}
		}
		return errors.Join(err, show(known, kerr))
	})
	text := ofPlace.ReplaceAllString(out.String(), "")
	text = inText.ReplaceAllString(text, `"see"`) // a body's text stays as it is
	names := map[string]string{}
	return anyID.ReplaceAllStringFunc(text, func(id string) string {
		if names[id] == "" {
			names[id] = fmt.Sprintf("%s_%d", id[:3], len(names))
		}
		return names[id]
	})
}

func sameReading(t *testing.T, old, now string) {
	t.Helper()
	a, b := strings.Split(old, "\n"), strings.Split(now, "\n")
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			x, y := at(a, i), at(b, i)
			n := 0
			for n < min(len(x), len(y)) && x[n] == y[n] {
				n++
			}
			n = max(0, n-200)
			t.Errorf("reading %d from %d:\n before %.600s\n after  %.600s", i, n, x[n:], y[n:])
		}
	}
}

func at(list []string, i int) string {
	if i < len(list) {
		return list[i]
	}
	return "nothing"
}

// TestBring_EveryReadShowsTheSame: what is carried into another log reads there
// as it did, ids, threads, lineages, leases and times included.
func TestBring_EveryReadShowsTheSame(t *testing.T) {
	old := open(t, 0)
	old.life()
	kinds := map[string]int{}
	var entries int
	old.view(func(s oplog.Snapshot) error {
		return s.Arrived(0, false, func(_ uint64, e *oplog.Entry) (bool, error) {
			if entries++; e.Kind != "tally.birth" {
				kinds[e.Kind]++
			}
			return true, nil
		})
	})
	for _, k := range query.Carried() {
		if kinds[k.Name] == 0 {
			t.Errorf("the fixture has no entry of kind %s", k.Name)
		}
	}
	now := old.next("a")
	report := now.bring(old)
	if !maps.Equal(report.Brought, kinds) || report.Own != 1 || len(report.Left) > 0 || !report.Complete() || report.Entries != entries || report.Blobs != 1 || report.Renamed != 0 {
		t.Errorf("report %+v, want %v of %d", report, kinds, entries)
	}
	sameReading(t, old.reading(now.wall), now.reading(now.wall))
	digests := now.log.Views()
	again := now.bring(old)
	if again.Again != again.Total() || again.Total() != report.Total() {
		t.Errorf("again: %+v", again)
	}
	if !slices.Equal(digests, now.log.Views()) {
		t.Error("a second time has changed the views")
	}
	// Nothing is owed for what was lost and told before.
	now.view(func(s oplog.Snapshot) error {
		ops, _, err := claim.React(s, claim.Horizon{Now: time.UnixMilli(now.wall), Self: now.log.Self().ID})
		if len(ops) > 0 {
			t.Errorf("%d superseded acks are owed again", len(ops))
		}
		return err
	})
}

// TestBring_Label: under another label the machine's agents keep what is
// theirs under their new names.
func TestBring_Label(t *testing.T) {
	old := open(t, 0)
	old.life()
	now := old.next("laptop")
	report := now.bring(old)
	if !report.Complete() || report.Renamed != report.Total() {
		t.Errorf("report %+v", report)
	}
	before := regexp.MustCompile(`"a(:|-helper)`).ReplaceAllString(old.reading(now.wall), `"laptop$1`)
	before = strings.ReplaceAll(before, `"Host":"a"`, `"Host":"laptop"`)
	sameReading(t, before, now.reading(now.wall))
	now.view(func(s oplog.Snapshot) error {
		former, err := minted.Former(s, "laptop", "helper")
		if !slices.Equal(former, []string{"a-helper"}) {
			t.Errorf("former names %v", former)
		}
		return err
	})
}

// TestBring_Audience: the names of a broadcast's audience are in order again
// after some have changed, or the message would be in no mailbox.
func TestBring_Audience(t *testing.T) {
	old := open(t, 0)
	for _, who := range []string{"a:owner:x", "a-helper", "b-tool"} {
		old.must(logstream.NewOp(who, logstream.Event{Type: "note", Stream: "s", Room: "r"}))
	}
	old.mail("a:owner:x", mailbox.Draft{To: mailbox.Everybody, Subject: "all", Body: "everybody"})
	now := old.next("laptop")
	if report := now.bring(old); !report.Complete() {
		t.Errorf("%+v", report)
	}
	now.view(func(s oplog.Snapshot) error {
		for _, who := range []string{"laptop-helper", "b-tool"} {
			page, err := mailbox.List(s, mailbox.Query{Owner: who})
			if err != nil || page.Count != 1 {
				t.Errorf("%s: %d messages, %v", who, page.Count, err)
			}
		}
		return nil
	})
}

// TestBring_Crash: whenever it is cut off, before an append or after it, the
// next run leaves each entry once.
func TestBring_Crash(t *testing.T) {
	old := open(t, 0)
	old.life()
	for i := range 12 { // several batches
		old.must(logstream.NewOp("a:owner:x", logstream.Event{Type: "note", Stream: "s", Room: "r", Body: strings.Repeat(fmt.Sprint(i), 60_000)}))
	}
	whole := old.next("a")
	report := whole.bring(old)
	want := whole.reading(whole.wall)
	cuts := 0
	for n := 0; ; n++ {
		now := old.next("a")
		to := &into{replica: now, before: 1 << 30, after: 1 << 30}
		if n%2 == 0 {
			to.before = n / 2
		} else {
			to.after = n / 2
		}
		_, err := carried.Bring(context.Background(), to, old.log, options("a", "a"))
		if err == nil {
			break
		}
		if !errors.Is(err, errCrash) {
			t.Fatal(err)
		}
		cuts++
		if got := now.bring(old); !reflect.DeepEqual(got.Brought, report.Brought) || !got.Complete() {
			t.Errorf("cut %d: %+v", n, got)
		}
		if now.log.Frontier().Total() != whole.log.Frontier().Total() {
			t.Errorf("cut %d: %d entries, want %d", n, now.log.Frontier().Total(), whole.log.Frontier().Total())
		}
		sameReading(t, want, now.reading(whole.wall))
	}
	if cuts < 4 {
		t.Errorf("only %d cuts", cuts)
	}
}

// TestBring_Accounts: what is erased, and what the new log does not take, is
// counted with the reason; the rest goes in.
func TestBring_Accounts(t *testing.T) {
	old := open(t, 0)
	fact := old.must(memory.NewAdd("a:owner:x", memory.Fact{Namespace: "n", Text: "secret"}))
	old.must(logstream.NewOp("a:owner:x", logstream.Event{Type: "note", Stream: "s", Room: "r", Body: "first"}))
	old.must(summary.NewOp("a:owner:x", summary.Summary{Title: "t", Text: "x"}))
	if _, err := old.log.Erase(context.Background(), "a:owner:x", "", "why", fact.Hash); err != nil {
		t.Fatal(err)
	}
	old.must(logstream.NewOp("a:owner:x", logstream.Event{Type: "note", Stream: "s", Room: "r", Body: "second"}))

	opt := options("a", "a")
	for i := range opt.Kinds {
		if k := &opt.Kinds[i]; k.Name == summary.Kind {
			k.Body = func(*oplog.Entry, *carried.Map) ([]byte, error) { return nil, oplog.Quarantine("not this one") }
		}
	}
	now := old.next("a")
	report, err := carried.Bring(context.Background(), &into{replica: now, before: 1 << 30, after: 1 << 30}, old.log, opt)
	if err != nil {
		t.Fatal(err)
	}
	want := []carried.Left{{Kind: "fact", Reason: "erased", Count: 1}, {Kind: "summary", Reason: "refused: not this one", Count: 1, Lost: true}}
	if !slices.Equal(report.Left, want) || report.Brought["event"] != 2 || report.Complete() || report.Total()+report.Own+2 != report.Entries {
		t.Errorf("%+v", report)
	}
	if report := old.next("a").bring(old); !report.Complete() || report.Brought["summary"] != 1 {
		t.Errorf("%+v: erased entries are not missed", report)
	}
	// A kind that nothing knows how to carry is never left in silence.
	opt.Kinds = opt.Kinds[1:]
	report, err = carried.Bring(context.Background(), &into{replica: old.next("a"), before: 1 << 30, after: 1 << 30}, old.log, opt)
	if err != nil || report.Complete() || report.Brought["event"] != 0 {
		t.Errorf("%+v, %v", report, err)
	}
}

// lax is a fold that takes any fact.
type lax struct{}

func (lax) Name() string                       { return "lax" }
func (lax) Version() uint32                    { return 1 }
func (lax) Kinds() []string                    { return []string{"fact"} }
func (lax) Apply(oplog.Tx, *oplog.Entry) error { return nil }

// TestBring_QuarantinedIsNotLostInSilence: an entry that no view takes is
// counted with its reason, and the old store is still wanted.
func TestBring_QuarantinedIsNotLostInSilence(t *testing.T) {
	odd, err := oplog.Open(context.Background(), oplog.Config{
		InMemory: true, Signer: ed25519.NewKeyFromSeed(append(make([]byte, 31), 9)), Wall: func() int64 { return start },
		Rand: rand.New(rand.NewSource(9)), Projections: []oplog.Projection{lax{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { odd.Close() })
	if _, err := odd.Append(context.Background(), oplog.Op{Kind: "fact", Author: "a:owner:x", Body: []byte{0x01}}); err != nil {
		t.Fatal(err)
	}
	old := open(t, 0)
	old.pull(&replica{t: t, log: odd})
	old.must(logstream.NewOp("a:owner:x", logstream.Event{Type: "note", Stream: "s", Room: "r"}))
	report := old.next("a").bring(old)
	if len(report.Left) != 1 || report.Left[0].Kind != "fact" || !strings.HasPrefix(report.Left[0].Reason, "in quarantine: ") || report.Left[0].Count != 1 ||
		report.Complete() || report.Brought["event"] != 1 {
		t.Errorf("%+v", report)
	}
}

// TestBring_ImportedRowsCountOnce: a row that both logs have imported counts
// once, whoever brings it.
func TestBring_ImportedRowsCountOnce(t *testing.T) {
	key := imported.Key{Source: "beads", ID: "bd-9", Part: "summary"}
	old := open(t, 0)
	old.must(summary.NewOp("a:owner:x", summary.Summary{Title: "t", Text: "x", Import: key}))
	now := old.next("a")
	now.must(summary.NewOp("b:owner:x", summary.Summary{Title: "t", Text: "x", Import: key}))
	now.bring(old)
	now.view(func(s oplog.Snapshot) error {
		page, err := summary.List(s, summary.Query{Filter: identity.Filter{All: true}})
		if page.Total != 1 {
			t.Errorf("%d summaries", page.Total)
		}
		return err
	})
}
