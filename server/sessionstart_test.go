package server

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tallystick/oplog"
	"tallystick/query"
	"tallystick/query/logstream"
	"tallystick/query/mailbox"
	"tallystick/query/summary"
)

// A session's start tells of what is one's own: mail, claims, summaries and
// tasks that wait, and of replicas that were not heard of for a day.
func TestI4_SessionStartShowsOwnClaims(t *testing.T) {
	e := newEnv(t)
	request := func(task, to string) string {
		m := e.do(codex, "event_append", fmt.Sprintf(`{"type":"task.request","stream":"project/x","room":"delegation","to_agent":%q,"correlation_id":%q,"status":"open","body":"mend %s"}`, to, task, task))
		return m["event"].(map[string]any)["id"].(string)
	}
	mine, theirs := request("t1", "mac:claude:tally"), request("t2", "*")
	request("t3", "mac:claude:tally")
	request("t4", "mac:gemini:x")
	e.do(claude, "event_ack", fmt.Sprintf(`{"event_id":%q,"status":"claimed"}`, mine))
	e.do(codex, "event_ack", fmt.Sprintf(`{"event_id":%q,"status":"claimed"}`, theirs))
	e.do(claude, "add_summary", `{"title":"One","summary":"x"}`)
	e.do(codex, "add_summary", `{"title":"Two","summary":"x"}`)
	var op oplog.Op
	err := e.log.View(func(snap oplog.Snapshot) (err error) {
		op, err = mailbox.NewMessageOp(snap, "mac:codex:tally", mailbox.Draft{To: "mac:claude:tally", Subject: "Hello", Body: "x"})
		return err
	})
	if err == nil {
		_, err = e.log.Append(t.Context(), op)
	}
	if err != nil {
		t.Fatal(err)
	}

	// Another window of the same identity sees what the first one claimed.
	window := claude
	window.Client = "another window"
	r, bad := e.svc.SessionStart(t.Context(), window)
	if bad != nil {
		t.Fatal(bad)
	}
	if r.Identity != "mac:claude:tally" || r.Unread != 1 || len(r.Claims) != 1 || r.Claims[0].Task != "t1" {
		t.Errorf("%+v", r)
	}
	if len(r.Requests) != 1 || r.Requests[0].Task != "t3" || r.Requests[0].From != "mac:codex:tally" {
		t.Errorf("requests: %+v", r.Requests)
	}
	if len(r.Summaries) != 1 || r.Summaries[0].Title != "One" {
		t.Errorf("summaries: %+v", r.Summaries)
	}
	if len(r.Stale) != 1 || r.Stale[0].Label != "old" || r.Stale[0].LastSeen != "" {
		t.Errorf("stale: %+v", r.Stale)
	}
	e.wall.Add((48 * time.Hour).Milliseconds())
	if r, bad = e.svc.SessionStart(t.Context(), Session{}); bad != nil || r.Identity != "" || len(r.Stale) != 1 {
		t.Errorf("unbound: %+v, %v", r, bad)
	}
}

// BenchmarkSessionStart is what a client's hook asks of a running replica, at
// two sizes of the log.
func BenchmarkSessionStart(b *testing.B) {
	for _, n := range []int{20_000, 200_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			e := benchEnv(b)
			var ops []oplog.Op
			for i := range n {
				ops = append(ops, benchOp(b, i))
				if len(ops) == 1000 {
					if _, err := e.d.Log.Append(context.Background(), ops...); err != nil {
						b.Fatal(err)
					}
					ops = ops[:0]
				}
			}
			s := Session{Agent: "agent7", Project: "x", Bound: true}
			b.ReportAllocs()
			for b.Loop() {
				if r, bad := e.SessionStart(context.Background(), s); bad != nil || !strings.Contains(r.Identity, "agent7") {
					b.Fatal(bad)
				}
			}
		})
	}
}

func benchEnv(b *testing.B) *Service {
	b.Helper()
	projections, _ := query.Default()
	log, err := oplog.Open(context.Background(), oplog.Config{
		InMemory: true, Signer: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), Projections: projections, MinFree: -1,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { log.Close() })
	wall := &atomic.Int64{}
	wall.Store(time.Now().UnixMilli())
	svc, err := New(Deps{Log: log, Mesh: &testMesh{log: log, wall: wall, label: "mac"}})
	if err != nil {
		b.Fatal(err)
	}
	return svc
}

// benchOp is one of the things of which a log is full: three events, of which
// one asks for work, and a summary, by and for 50 agents in turn.
func benchOp(b *testing.B, i int) oplog.Op {
	b.Helper()
	author := fmt.Sprintf("mac:agent%d:x", i/4%50)
	var op oplog.Op
	var err error
	if i%4 == 0 {
		op, err = summary.NewOp(author, summary.Summary{Title: "A summary", Text: strings.Repeat("text ", 40), Identities: []string{author}})
	} else {
		ev := logstream.Event{Type: "status", Stream: "project/x", Room: "delegation", To: fmt.Sprintf("mac:agent%d:x", (i/4+1)%50), Body: "what to do"}
		if i%4 == 1 {
			ev.Type, ev.Status, ev.Correlation = logstream.TypeRequest, "open", fmt.Sprint("t", i)
		}
		op, err = logstream.NewOp(author, ev)
	}
	if err != nil {
		b.Fatal(err)
	}
	return op
}
