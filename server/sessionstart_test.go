package server

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tallystick/oplog"
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

// BenchmarkSessionStart is what a client's hook asks of a running replica over
// its socket, with 1,000 entries and with a million on disk, in turns.
// TALLY_BENCH_EVENTS sets the larger size. "Process" is the whole of `tally
// hook session-start`, from its start to its end, the median of twenty.
func BenchmarkSessionStart(b *testing.B) {
	var clients [2]*Client
	var homes [2]string
	for i, n := range []int{1000, benchEntries(b)} {
		svc := benchDisk(b)
		var ops []oplog.Op
		for j := range n {
			if ops = append(ops, benchOp(b, j)); len(ops) == 500 || j == n-1 {
				if _, err := svc.d.Log.Append(context.Background(), ops...); err != nil {
					b.Fatal(err)
				}
				ops = ops[:0]
			}
		}
		if log, ok := svc.d.Log.(*oplog.Log); !ok {
			b.Fatalf("the log is a %T", svc.d.Log)
		} else if err := log.Purge(context.Background()); err != nil { // settles what the load left behind
			b.Fatal(err)
		}
		runDir, _ := listenSocket(b, svc)
		homes[i] = filepath.Dir(runDir)
		clients[i] = dialSocket(b, ClientOptions{RunDir: runDir})
	}
	s := Session{Agent: "agent7", Project: "x", Bound: true}
	var spent [2][]time.Duration
	for b.Loop() {
		for i, c := range clients {
			start := time.Now()
			if r, err := c.SessionStart(context.Background(), s); err != nil || !strings.Contains(r.Identity, "agent7") {
				b.Fatal(err)
			}
			spent[i] = append(spent[i], time.Since(start))
		}
	}
	for i, name := range []string{"small", "big"} {
		slices.Sort(spent[i])
		b.ReportMetric(float64(spent[i][len(spent[i])/2].Microseconds())/1000, name+"-ms")
	}
	b.ReportMetric(float64(spent[1][(len(spent[1])-1)*99/100].Microseconds())/1000, "big-p99-ms")
	program := filepath.Join(b.TempDir(), "tally")
	if out, err := exec.Command("go", "build", "-o", program, "tallystick/cmd/tally").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	repo := filepath.Join(b.TempDir(), "x")
	if out, err := exec.Command("git", "init", "-q", repo).CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	for i, name := range []string{"small", "big"} {
		var took []time.Duration
		for range 20 {
			cmd := exec.Command(program, "hook", "session-start", "--agent", "agent7", "--home", homes[i])
			cmd.Dir = repo
			start := time.Now()
			out, err := cmd.CombinedOutput()
			took = append(took, time.Since(start))
			if err != nil || !strings.Contains(string(out), "you are mac:agent7:x") {
				b.Fatalf("%v: %s", err, out)
			}
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, name+"-process-ms")
		b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, name+"-process-max-ms")
	}
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

// TestI4_SessionStartSaysThatMoreClaimsAreOpen: a start shows a few claims and
// requests, and says when that is not all of them.
func TestI4_SessionStartSaysThatMoreClaimsAreOpen(t *testing.T) {
	e := newEnv(t)
	start := func() SessionStart {
		r, bad := e.svc.SessionStart(t.Context(), claude)
		if bad != nil {
			t.Fatal(bad)
		}
		return r
	}
	for i := range startClaims + 1 {
		m := e.do(codex, "event_append", fmt.Sprintf(`{"type":"task.request","stream":"s","room":"r","correlation_id":"mine%d"}`, i))
		e.do(claude, "event_ack", fmt.Sprintf(`{"event_id":%q,"status":"claimed"}`, m["event"].(map[string]any)["id"]))
		if r := start(); r.MoreClaims != (i == startClaims) || len(r.Claims) != min(i+1, startClaims) {
			t.Errorf("after %d: %d claims, more %v", i+1, len(r.Claims), r.MoreClaims)
		}
	}
	for i := range startRequests + 1 {
		e.do(codex, "event_append", fmt.Sprintf(`{"type":"task.request","stream":"s","room":"r","to_agent":"mac:claude:tally","correlation_id":"open%d"}`, i))
		if r := start(); r.MoreRequests != (i == startRequests) || len(r.Requests) != min(i+1, startRequests) {
			t.Errorf("after %d: %d requests, more %v", i+1, len(r.Requests), r.MoreRequests)
		}
	}
}
