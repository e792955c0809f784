package merges_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"tallystick/oplog"
	"tallystick/query"
	"tallystick/query/claim"
	"tallystick/query/identity"
	"tallystick/query/imported"
	"tallystick/query/internal/viewtest"
	"tallystick/query/logstream"
	"tallystick/query/memory"
	"tallystick/query/merges"
	"tallystick/query/rawmemory"
	"tallystick/query/refusal"
	"tallystick/query/summary"
)

func pair(t *testing.T) (a, b *viewtest.Log) {
	views, _ := query.Default()
	return viewtest.New(t, "mac", views...), viewtest.New(t, "nas", views...)
}

func env(l *viewtest.Log) merges.Env {
	return merges.Env{Self: l.Self(), Horizon: claim.Horizon{Now: time.UnixMilli(viewtest.WallStart + 60_000), Self: l.Self().ID}}
}

func list(l *viewtest.Log, f merges.Filter) merges.Page {
	l.TB.Helper()
	var p merges.Page
	l.Read(func(s oplog.Snapshot) (err error) {
		p, err = merges.List(s, env(l), f)
		return err
	})
	if p.Merges == nil || p.Count != len(p.Merges) {
		l.TB.Fatalf("count %d of %d", p.Count, len(p.Merges))
	}
	return p
}

func undo(l *viewtest.Log, author, id string) (string, error) {
	l.TB.Helper()
	var u merges.Undo
	err := l.View(func(s oplog.Snapshot) (err error) {
		u, err = merges.NewUndo(s, env(l), author, id)
		return err
	})
	if err == nil {
		_, err = l.Append(context.Background(), u.Ops...)
	}
	return u.What, err
}

func ack(l *viewtest.Log, author, id, status string) (string, error) {
	l.TB.Helper()
	var op oplog.Op
	l.Read(func(s oplog.Snapshot) (err error) {
		op, _, err = claim.NewOp(s, l.Self(), author, claim.Input{EventID: id, Status: status})
		return err
	})
	done, err := l.Append(context.Background(), op)
	if err != nil {
		return "", err
	}
	return logstream.EventID(done[0].Ref), nil
}

// race has both replicas claim one task apart; a's claim is stamped first.
func race(t *testing.T) (a, b *viewtest.Log, won, lost string) {
	t.Helper()
	a, b = pair(t)
	request := logstream.EventID(a.Add(viewtest.One(logstream.NewOp(a.Author, logstream.Event{
		Type: logstream.TypeRequest, Stream: "project/x", Room: "delegation", Status: "open", Correlation: "task_1",
	})))[0].Ref)
	b.Pull(a, 1<<20)
	var err error
	if won, err = ack(a, a.Author, request, "claimed"); err != nil {
		t.Fatal(err)
	}
	b.Later(1000)
	if lost, err = ack(b, b.Author, request, "claimed"); err != nil {
		t.Fatal(err)
	}
	viewtest.Meet(a, b)
	return a, b, won, lost
}

func holder(l *viewtest.Log) string {
	l.TB.Helper()
	var p claim.Page
	l.Read(func(s oplog.Snapshot) (err error) {
		p, err = claim.List(s, claim.Filter{}, env(l).Horizon, nil)
		return err
	})
	if len(p.Claims) == 0 {
		return ""
	}
	return p.Claims[0].Holder
}

// TestM3_LostClaim: listed with both sides on both replicas, and undone by who
// won and who lost, in that order.
func TestM3_LostClaim(t *testing.T) {
	a, b, won, lost := race(t)
	for _, l := range []*viewtest.Log{a, b} {
		p := list(l, merges.Filter{})
		if p.Count != 1 {
			t.Fatalf("%s lists %+v", l.Author, p)
		}
		m := p.Merges[0]
		if m.ID != lost || m.Kind != "claim" || m.About != "task_1" || m.Rule != "earliest_claim_wins" || m.Lost.Author != b.Author ||
			m.Kept.ID != won || m.Kept.Author != a.Author || m.Lost.HLC <= m.Kept.HLC || m.Grade == "" {
			t.Errorf("%s: %+v", l.Author, m)
		}
	}
	var not *claim.NotTaken
	if _, err := undo(b, b.Author, lost); !errors.As(err, &not) {
		t.Errorf("the loser takes a task that is held: %v", err)
	}
	if _, err := undo(a, "mac:codex:proj", lost); refusal.CodeOf(err) != refusal.IdentityMismatch {
		t.Errorf("a third undoes: %v", err)
	}
	if what, err := undo(a, a.Author, lost); err != nil || !strings.Contains(what, b.Author) {
		t.Fatalf("the winner gives up: %q, %v", what, err)
	}
	viewtest.Meet(a, b)
	if got := holder(b); got != "" {
		t.Errorf("held by %s after the winner gave up", got)
	}
	if _, err := undo(b, b.Author, lost); err != nil {
		t.Fatal(err)
	}
	viewtest.Meet(a, b)
	for _, l := range []*viewtest.Log{a, b} {
		if got := holder(l); got != b.Author {
			t.Errorf("%s: held by %q, want %s", l.Author, got, b.Author)
		}
	}
	if _, err := undo(a, a.Author, won); refusal.CodeOf(err) != refusal.Conflict {
		t.Errorf("undoing what won: %v", err)
	}
	if _, err := ack(b, b.Author, lost, "applied"); err != nil {
		t.Fatal(err)
	}
	if _, err := undo(b, b.Author, lost); refusal.CodeOf(err) != refusal.Closed {
		t.Errorf("undoing on a closed task: %v", err)
	}
}

// TestClaimsWhy: the explanation names both stamps and the rule, by whatever
// name the task is asked for.
func TestClaimsWhy(t *testing.T) {
	a, _, won, lost := race(t)
	explain := func(id string) (e claim.Explanation, err error) {
		err = a.View(func(s oplog.Snapshot) (err error) {
			e, err = claim.Explain(s, id, env(a).Horizon, nil)
			return err
		})
		return e, err
	}
	for _, id := range []string{won, lost, "task_1"} {
		e, err := explain(id)
		if err != nil || len(e.Verdicts) != 2 {
			t.Fatalf("%s: %+v, %v", id, e, err)
		}
		first, second := e.Verdicts[0], e.Verdicts[1]
		if first.Event != won || first.Outcome != "won" || second.Event != lost || second.Outcome != "lost" || second.Against != won || second.Winner != first.HLC {
			t.Errorf("%s: %+v", id, e.Verdicts)
		}
		text := strings.Join(e.Lines, "\n")
		for _, want := range []string{first.HLC, second.HLC, "earliest stamp wins", "now: held by " + a.Author} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", id, want, text)
			}
		}
		if len(e.Lines) > 6 {
			t.Errorf("%d lines are not few", len(e.Lines))
		}
	}
	for _, id := range []string{"task_2", "evt_20260102T030405_0123456789ab"} {
		if _, err := explain(id); refusal.CodeOf(err) != refusal.NotFound {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// TestWhyOfManyClaims: a task with a long history still explains itself in a
// page, and says what it leaves out.
func TestWhyOfManyClaims(t *testing.T) {
	a, _ := pair(t)
	request := logstream.EventID(a.Add(viewtest.One(logstream.NewOp(a.Author, logstream.Event{
		Type: logstream.TypeRequest, Stream: "project/x", Room: "delegation", Status: "open",
	})))[0].Ref)
	for range 30 {
		for _, status := range []string{"claimed", "released"} {
			if _, err := ack(a, a.Author, request, status); err != nil {
				t.Fatal(err)
			}
		}
	}
	a.Read(func(s oplog.Snapshot) error {
		e, err := claim.Explain(s, request, env(a).Horizon, nil)
		if len(e.Verdicts) != 20 || e.Omitted != 10 || !strings.Contains(e.State, "free") {
			t.Errorf("%d verdicts, %d left out, %s", len(e.Verdicts), e.Omitted, e.State)
		}
		return err
	})
}

// TestM3_Imports: copies are listed; one that differs is brought back as an
// entry of its own, one that says the same is not.
func TestM3_Imports(t *testing.T) {
	a, b := pair(t)
	key := func(id, part string) imported.Key { return imported.Key{Source: "beads", ID: id, Part: part} }
	add := func(l *viewtest.Log, id, body string) {
		l.Add(viewtest.One(logstream.NewOp(l.Author, logstream.Event{
			Type: logstream.TypeRequest, Stream: "project/x", Room: "delegation", Status: "open", Body: body, Import: key(id, "request"),
		})))
		l.Add(viewtest.One(summary.NewOp(l.Author, summary.Summary{Title: body, Text: "t", Identities: []string{}, Timestamp: "2026-01-02T03:04:05Z", Import: key(id, "summary")})))
		l.Add(viewtest.One(rawmemory.NewOp(l.Author, rawmemory.Turn{Session: "s", Prompt: body, Identities: []string{}, ToolCalls: -1, Timestamp: "2026-01-02T03:04:05Z", Import: key(id, "turn")})))
	}
	add(a, "bd-1", "same")
	add(a, "bd-2", "one text")
	b.Later(5000)
	add(b, "bd-1", "same")
	add(b, "bd-2", "another text")
	viewtest.Meet(a, b)
	p := list(a, merges.Filter{})
	if p.Count != 6 {
		t.Fatalf("%+v", p)
	}
	for _, m := range p.Merges {
		what, err := undo(a, a.Author, m.ID)
		if m.Same != strings.Contains(m.About, "bd-1") || m.Lost.Author != b.Author || m.Kept.Author != a.Author {
			t.Errorf("%+v", m)
		}
		if m.Same != (refusal.CodeOf(err) == refusal.Conflict) || !m.Same && (err != nil || what == "") {
			t.Errorf("undo of %+v: %q, %v", m, what, err)
		}
	}
	a.Read(func(s oplog.Snapshot) error {
		page, err := logstream.List(s, logstream.Filter{Stream: "project/x"})
		bodies := []string{}
		for _, e := range page.Events {
			bodies = append(bodies, e.Body)
		}
		slices.Sort(bodies)
		if !slices.Equal(bodies, []string{"another text", "one text", "same"}) {
			t.Errorf("events %q", bodies)
		}
		return err
	})
	a.Read(func(s oplog.Snapshot) error {
		page, err := rawmemory.Session(s, rawmemory.SessionQuery{Filter: identity.Filter{All: true}, Session: "s"})
		var prompts []string
		for _, m := range page.Memories {
			prompts = append(prompts, m.Prompt)
		}
		slices.Sort(prompts)
		if !slices.Equal(prompts, []string{"another text", "one text", "same"}) {
			t.Errorf("turns %q", prompts)
		}
		return err
	})
	// Pages of one go through all, kind by kind.
	var seen []string
	for f := (merges.Filter{Limit: 1}); ; {
		p := list(a, f)
		for _, m := range p.Merges {
			seen = append(seen, m.ID)
		}
		if !p.HasMore {
			break
		}
		if f.Cursor = p.NextCursor; len(seen) > 10 {
			t.Fatal("no end")
		}
	}
	if len(seen) != 6 || len(list(a, merges.Filter{Kind: "summary"}).Merges) != 2 || len(list(a, merges.Filter{Kind: "turn"}).Merges) != 2 {
		t.Errorf("pages give %v", seen)
	}
	for _, f := range []merges.Filter{{Kind: "x"}, {Limit: 501}, {Limit: -1}, {Cursor: "x"}} {
		if err := a.View(func(s oplog.Snapshot) error { _, err := merges.List(s, env(a), f); return err }); err == nil {
			t.Errorf("%+v is not refused", f)
		}
	}
	if _, err := undo(a, a.Author, "nothing"); refusal.CodeOf(err) != refusal.NotFound {
		t.Errorf("undo of nothing: %v", err)
	}
}

// TestM3_Facts: a fact that was updated on two hosts.
func TestM3_Facts(t *testing.T) {
	a, b := pair(t)
	a.Add(viewtest.One(memory.NewAdd(a.Author, memory.Fact{Namespace: "ns", Text: "old"})))
	b.Pull(a, 1<<20)
	update := func(l *viewtest.Log, text string) {
		l.Add(memory.NewUpdate(l.Author, memory.Fact{Namespace: "ns", Text: text}, "old"))
	}
	update(a, "from mac")
	b.Later(5000)
	update(b, "from nas")
	viewtest.Meet(a, b)
	p := list(a, merges.Filter{Kind: "fact"})
	if p.Count != 1 || p.Merges[0].About != "ns" || !strings.Contains(p.Merges[0].Lost.What, "from mac") || !strings.Contains(p.Merges[0].Kept.What, "from nas") {
		t.Fatalf("%+v", p)
	}
	if _, err := undo(b, b.Author, p.Merges[0].ID); err != nil {
		t.Fatal(err)
	}
	if p := list(b, merges.Filter{Kind: "fact"}); p.Count != 0 {
		t.Errorf("still listed after the undo: %+v", p)
	}
}
