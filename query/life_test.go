package query_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"regexp"
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

var (
	anyID   = regexp.MustCompile(`(evt_\d{8}T\d{6}_[0-9a-f]{12}|art_\d{8}T\d{6}_[0-9a-f]{12}|(sum|mem|chk)_[0-9a-f]{16})`)
	inText  = regexp.MustCompile(`"see evt_[0-9A-Za-z_]+"`)
	ofPlace = regexp.MustCompile(`"(seq|origin_id|origin_seq|hlc|fence|claim_hlc|winner_hlc|next_cursor)":"[^"]*",?`)
)

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
