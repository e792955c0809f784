package merges_test

import (
	"context"
	"strings"
	"testing"

	"tallystick/oplog"
	"tallystick/query/checkpoint"
	"tallystick/query/claim"
	"tallystick/query/imported"
	"tallystick/query/internal/viewtest"
	"tallystick/query/logstream"
	"tallystick/query/merges"
	"tallystick/query/refusal"
)

// TestM3_CopiesOfCheckpoints: checkpoints that two hosts imported from one file
// before they met are there once, and each copy is listed behind what was saved
// apart, page by page; one that says something else can be brought back.
func TestM3_CopiesOfCheckpoints(t *testing.T) {
	a, b := pair(t)
	save := func(l *viewtest.Log, state, id string) {
		c := checkpoint.Checkpoint{Namespace: "ns", State: state}
		if id != "" {
			c.Import = imported.Key{Source: "tally", ID: id, Part: "checkpoint"}
		}
		op, err := checkpoint.NewOp(l.Author, c)
		l.Add(viewtest.One(op, err))
	}
	for _, l := range []*viewtest.Log{a, b} {
		save(l, `{"n":1}`, "one")
		save(l, `{"n":"`+l.Author+`"}`, "two")
		save(l, `{"after":"`+l.Author+`"}`, "")
		b.Later(5000)
	}
	viewtest.Meet(a, b)
	for _, l := range []*viewtest.Log{b, a} {
		var got []merges.Merge
		f := merges.Filter{Kind: "checkpoint", Limit: 1}
		for more := true; more; {
			p := list(l, f)
			got = append(got, p.Merges...)
			more, f.Cursor = p.HasMore, p.NextCursor
		}
		rules := map[string]int{}
		for _, m := range got {
			rules[m.Rule]++
			if m.Lost.Author == m.Kept.Author || m.Lost.ID != m.ID {
				t.Errorf("%s: %+v", l.Author, m)
			}
			if m.Rule != "latest_stamp_wins" && m.Same != strings.Contains(m.About, "one") {
				t.Errorf("%s: %+v", l.Author, m)
			}
			if l == b {
				continue
			}
			_, err := undo(l, l.Author, m.ID)
			if m.Same != (refusal.CodeOf(err) == refusal.Conflict) {
				t.Errorf("%s: undo of %+v: %v", l.Author, m, err)
			}
		}
		if len(got) != 3 || rules["latest_stamp_wins"] != 1 {
			t.Errorf("%s: %d merges, %v", l.Author, len(got), rules)
		}
	}
}

// TestM3_Checkpoints: of checkpoints that two hosts saved apart the later is
// resumed; the other is listed with both sides, on both, and saved again by
// its id. One that a later save knew of is no merge.
func TestM3_Checkpoints(t *testing.T) {
	a, b := pair(t)
	save := func(l *viewtest.Log, ns, state string) {
		op, err := checkpoint.NewOp(l.Author, checkpoint.Checkpoint{Namespace: ns, State: state})
		l.Add(viewtest.One(op, err))
	}
	save(a, "ns", `{"step":1}`)
	b.Pull(a, 1<<20)
	save(a, "ns", `{"step":"mac"}`)
	save(a, "same", `{"x":1}`)
	save(a, "quiet", `{"x":1}`)
	b.Later(5000)
	save(b, "ns", `{"step":"nas"}`)
	save(b, "same", `{"x":1}`)
	viewtest.Meet(a, b)
	save(a, "quiet", `{"x":2}`)
	viewtest.Meet(a, b)
	var id string
	for _, l := range []*viewtest.Log{a, b} {
		p := list(l, merges.Filter{Kind: "checkpoint"})
		if p.Count != 2 {
			t.Fatalf("%s lists %+v", l.Author, p)
		}
		for _, m := range p.Merges {
			if m.Rule != "latest_stamp_wins" || m.Lost.Author != a.Author || m.Kept.Author != b.Author || m.Lost.HLC >= m.Kept.HLC || m.Same != (m.About == "same") {
				t.Errorf("%s: %+v", l.Author, m)
			}
			if m.About == "ns" {
				if id = m.ID; !strings.Contains(m.Lost.What, "mac") || !strings.Contains(m.Kept.What, "nas") {
					t.Errorf("%+v", m)
				}
			} else if _, err := undo(l, l.Author, m.ID); refusal.CodeOf(err) != refusal.Conflict {
				t.Errorf("undo of what is the same: %v", err)
			}
		}
		one := list(l, merges.Filter{Kind: "checkpoint", Limit: 1})
		two := list(l, merges.Filter{Kind: "checkpoint", Limit: 1, Cursor: one.NextCursor})
		if !one.HasMore || two.HasMore || one.Merges[0].ID == two.Merges[0].ID {
			t.Errorf("pages: %+v, %+v", one, two)
		}
	}
	if _, err := undo(b, b.Author, id); err != nil {
		t.Fatal(err)
	}
	b.Read(func(s oplog.Snapshot) error {
		r, err := checkpoint.Resume(s, checkpoint.ResumeQuery{Namespace: "ns"})
		if r.Record.Raw != `{"step":"mac"}` {
			t.Errorf("resumed after the undo: %+v", r)
		}
		return err
	})
}

// TestM3_I9_Labels: a label that two devices have, and one that a device gave
// up, are listed with both sides. Only the device whose label it is about can
// take another, and is told which.
func TestM3_I9_Labels(t *testing.T) {
	a, _ := pair(t)
	ref := func(body string) oplog.Ref {
		return a.Add(viewtest.One(logstream.NewOp(a.Author, logstream.Event{Type: "note", Stream: "s", Room: "r", Body: body})))[0].Ref
	}
	kept, lost, old, now := ref("first"), ref("second"), ref("third"), ref("fourth")
	mine, other := oplog.DeviceKey{1}, oplog.DeviceKey{2}
	clash := merges.LabelClash{Label: "lap", Lost: lost, Kept: kept, LostBy: other, KeptBy: mine, LostName: "device 02", KeptName: "device 01"}
	move := merges.LabelMove{From: "mac", To: "desk", Lost: old, Kept: now, By: mine, Name: "device 01", Last: true}
	at := func(key oplog.DeviceKey) merges.Env {
		with := env(a)
		with.Self.Key, with.Labels = key, []string{"lap", "lap", "lap_2", "desk"}
		with.Clashes, with.Moves = []merges.LabelClash{clash}, []merges.LabelMove{move}
		return with
	}
	a.Read(func(s oplog.Snapshot) error {
		p, err := merges.List(s, at(mine), merges.Filter{Kind: "label"})
		if err != nil || p.Count != 2 {
			t.Fatalf("%+v, %v", p, err)
		}
		about := map[string]merges.Merge{}
		for _, m := range p.Merges {
			about[m.About] = m
		}
		l, m := about["lap"], about["mac"]
		if l.Kept.Author != "device 01" || l.Lost.Author != "device 02" || l.Lost.HLC <= l.Kept.HLC || !strings.Contains(l.Undo, "tally rename") {
			t.Errorf("%+v", l)
		}
		if m.Lost.What != "named mac" || m.Kept.What != "named desk" || m.Lost.HLC >= m.Kept.HLC || m.ID == l.ID {
			t.Errorf("%+v", m)
		}
		one, err := merges.List(s, at(mine), merges.Filter{Kind: "label", Limit: 1})
		two, err2 := merges.List(s, at(mine), merges.Filter{Kind: "label", Limit: 1, Cursor: one.NextCursor})
		if err != nil || err2 != nil || !one.HasMore || two.HasMore || one.Merges[0].ID != p.Merges[0].ID || two.Merges[0].ID != p.Merges[1].ID {
			t.Errorf("pages %+v, %+v, %v, %v", one, two, err, err2)
		}
		for id, want := range map[string]string{l.ID: "lap_3", m.ID: "mac"} {
			if u, err := merges.NewUndo(s, at(mine), a.Author, id); err != nil || u.Label != want || len(u.Ops) != 0 {
				t.Errorf("undo of %s: %+v, %v; want %s", id, u, err, want)
			}
			for _, key := range []oplog.DeviceKey{other, {3}} {
				if _, err := merges.NewUndo(s, at(key), a.Author, id); refusal.CodeOf(err) != refusal.Conflict {
					t.Errorf("undo of %s elsewhere: %v", id, err)
				}
			}
		}
		return nil
	})
}

// TestI9_FlaggedMayNotClaim: a device whose label another had first neither
// claims nor renews; it still reports and closes.
func TestI9_FlaggedMayNotClaim(t *testing.T) {
	a, _ := pair(t)
	request := logstream.EventID(a.Add(viewtest.One(logstream.NewOp(a.Author, logstream.Event{
		Type: logstream.TypeRequest, Stream: "project/x", Room: "delegation", Status: "open",
	})))[0].Ref)
	for status, refused := range map[string]bool{"claimed": true, "ready": false, "applied": false} {
		for _, lease := range []int64{0, claim.MinLease.Milliseconds()} {
			if status == "applied" && lease > 0 {
				continue
			}
			var op oplog.Op
			a.Read(func(s oplog.Snapshot) (err error) {
				op, _, err = claim.NewOp(s, a.Self(), a.Author, claim.Input{EventID: request, Status: status, LeaseMS: lease, Flagged: true})
				return err
			})
			_, err := a.Append(context.Background(), op)
			if want := refused || lease > 0; want != (refusal.CodeOf(err) == refusal.Conflict) || want != (err != nil) {
				t.Errorf("%s with a lease of %d: %v", status, lease, err)
			}
			if err != nil && status == "claimed" && !strings.Contains(err.Error(), "label") {
				t.Errorf("%v", err)
			}
		}
	}
}
