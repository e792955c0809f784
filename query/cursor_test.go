package query_test

import (
	"context"
	"fmt"
	"testing"

	"tallystick/oplog"
	"tallystick/query/logstream"
)

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
