package server

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"tallystick/oplog"
	"tallystick/query/claim"
)

func (e *env) importFile(s Session, stream string, content []byte) ImportCounts {
	e.t.Helper()
	f, err := ParseBeads(bytes.NewReader(content))
	if err != nil {
		e.t.Fatal(err)
	}
	var n ImportCounts
	for _, rows := range BeadsChunks(f.Rows) {
		counts, bad := e.svc.ImportBeads(e.t.Context(), ImportRequest{Session: s, Stream: stream, Rows: rows})
		if bad != nil {
			e.t.Fatal(bad)
		}
		n.Add(counts)
	}
	return n
}

func (e *env) openTasks() (n int) {
	e.t.Helper()
	err := e.log.View(func(snap oplog.Snapshot) (err error) {
		n, err = claim.CountOpen(snap)
		return err
	})
	if err != nil {
		e.t.Fatal(err)
	}
	return n
}

// TestImport: every part of a row goes where the mapping says, once.
func TestImport(t *testing.T) {
	e := newEnv(t)
	want := ImportCounts{Requests: 7, Acks: 5, Replies: 1, Summaries: 3}
	if n := e.importFile(claude, "", []byte(smallBeads)); n != want {
		t.Errorf("first import %+v, want %+v", n, want)
	}
	entries := e.entries()
	for what, again := range map[string]ImportCounts{
		"again":                  e.importFile(claude, "", []byte(smallBeads)),
		"into another stream":    e.importFile(claude, "project/other", []byte(smallBeads)),
		"by another identity":    e.importFile(codex, "", []byte(smallBeads)),
		"from outside a project": e.importFile(Session{Agent: "claude", Bound: true}, "", []byte(smallBeads)),
	} {
		if again != (ImportCounts{AlreadyPresent: 16}) {
			t.Errorf("%s: %+v", what, again)
		}
	}
	if e.entries() != entries {
		t.Errorf("importing again stored %d entries", e.entries()-entries)
	}
	if n := e.openTasks(); n != 2 {
		t.Errorf("%d open tasks, want 2", n)
	}
	req := e.do(claude, "event_list", `{"type":"task.request","order":"asc","limit":1}`)["events"].([]any)[0].(map[string]any)
	meta := req["metadata"].(map[string]any)
	from := meta["imported"].(map[string]any)
	if req["stream"] != "project/tally" || req["room"] != "delegation" || req["status"] != "open" || req["to_agent"] != "crew/ann" || req["body"] != "do it" ||
		req["from_agent"] != "mac:claude:tally" || meta["title"] != " First " ||
		fmt.Sprint(from) != "map[at:2026-01-02T03:04:05+01:00 author:crew/bob id:x-1 source:beads status:closed]" {
		t.Errorf("request: %v", req)
	}
	acks := e.do(claude, "event_list", `{"type":"event.ack","order":"asc"}`)["events"].([]any)
	ack := acks[0].(map[string]any)
	meta = ack["metadata"].(map[string]any)
	if ack["status"] != "applied" || meta["ack_of"] != req["id"] || fmt.Sprint(meta["imported"]) != "map[at:2026-01-03T00:00:00Z id:x-1 source:beads]" {
		t.Errorf("ack: %v", ack)
	}
	reply := e.do(claude, "event_list", `{"type":"task.reply"}`)["events"].([]any)[0].(map[string]any)
	if reply["body"] != "half way" || reply["correlation_id"] != req["id"] {
		t.Errorf("reply: %v", reply)
	}
	sums := e.do(claude, "get_all_summaries", `{"agentIdentity":"crew/bob"}`)["summaries"].([]any)
	if s := sums[0].(map[string]any); s["title"] != "First" || s["summary"] != "done" || s["category"] != "bugfix" || s["timestamp"] != "2026-01-03T00:00:00.000Z" || s["author"] != "mac:claude:tally" {
		t.Errorf("summary: %v", s)
	}
	if m := e.do(claude, "get_all_summaries", `{"agentIdentity":"@me"}`); m["total"] != 0.0 {
		t.Errorf("a summary without names is the importer's: %v", m)
	}
	// A closed task stays closed, an open one can be claimed by its request.
	if m := e.ack(codex, req["id"].(string), "claimed"); m["outcome"] != "closed" {
		t.Errorf("claim of a closed row: %v", m)
	}
	open := e.do(claude, "event_list", `{"type":"task.request"}`)["events"].([]any)
	for _, ev := range open {
		ev := ev.(map[string]any)
		if ev["metadata"].(map[string]any)["imported"].(map[string]any)["status"] == "hooked" {
			if m := e.ack(codex, ev["id"].(string), "claimed"); m["outcome"] != "won" {
				t.Errorf("claim of a hooked row: %v", m)
			}
		}
	}
}

// TestImportLater: a later file adds what is missing and rewrites nothing.
func TestImportLater(t *testing.T) {
	e := newEnv(t)
	e.importFile(claude, "", []byte(`{"id":"a","title":"t","description":"old","status":"open"}`))
	n := e.importFile(claude, "", []byte(`{"id":"a","title":"t","description":"new","status":"closed","closed_at":"2026-01-03T00:00:00Z","close_reason":"r","assignee":"x"}`))
	if n != (ImportCounts{Acks: 1, Summaries: 1, AlreadyPresent: 1, ChangedIgnored: 1}) {
		t.Errorf("%+v", n)
	}
	if m := e.do(claude, "event_list", `{"type":"task.request"}`); bodies(m) != "old" {
		t.Errorf("rewritten: %v", m)
	}
	n = e.importFile(claude, "", []byte(`{"id":"a","title":"t","description":"old","status":"closed","closed_at":"2026-01-04T00:00:00Z","close_reason":"r2"}`))
	if n != (ImportCounts{AlreadyPresent: 3, ChangedIgnored: 2}) {
		t.Errorf("%+v", n)
	}
}

// TestImportTwoReplicas: two imports of one file that did not know of each
// other are one after they have met.
func TestImportTwoReplicas(t *testing.T) {
	e := newEnv(t)
	p := newPeer(t, func() int64 { return testWall + 7 })
	svc, err := New(Deps{Log: p.log, Mesh: &testMesh{log: p.log, wall: e.wall, label: "nas"}})
	if err != nil {
		t.Fatal(err)
	}
	nas := &env{t: t, log: p.log, svc: svc}
	e.importFile(claude, "", []byte(smallBeads))
	nas.importFile(codex, "project/nas", []byte(smallBeads))
	carry(t, e.log, p.log)
	carry(t, p.log, e.log)
	for _, r := range []*env{e, nas} {
		if m := r.do(claude, "event_list", `{"type":"task.request"}`); m["count"] != 7.0 {
			t.Errorf("%v requests", m["count"])
		}
		if m := r.do(claude, "get_all_summaries", `{}`); m["total"] != 3.0 {
			t.Errorf("%v summaries", m["total"])
		}
		if n := r.importFile(claude, "", []byte(smallBeads)); n != (ImportCounts{AlreadyPresent: 16}) {
			t.Errorf("again: %+v", n)
		}
		if n := r.openTasks(); n != 2 {
			t.Errorf("%d open tasks", n)
		}
	}
	if a, b := fmt.Sprint(e.log.Views()), fmt.Sprint(p.log.Views()); a != b {
		t.Errorf("views differ:\n%s\n%s", a, b)
	}
}

// TestImportRefuses: who may not write imports nothing.
func TestImportRefuses(t *testing.T) {
	e := newEnv(t)
	rows := []BeadsRow{{Line: 1, ID: "a", Title: "t", Status: "open"}}
	for name, c := range map[string]struct {
		q    ImportRequest
		code Code
	}{
		"ErrUnbound": {ImportRequest{Rows: rows}, CodeIdentityUnbound},
		"ErrAgent":   {ImportRequest{Session: Session{Agent: "A", Bound: true}, Rows: rows}, CodeInvalidArgument},
		"ErrStream":  {ImportRequest{Session: claude, Stream: "a\nb", Rows: rows}, CodeInvalidArgument},
		"ErrID":      {ImportRequest{Session: claude, Rows: []BeadsRow{{Line: 3, Title: "t"}}}, CodeInvalidArgument},
		"ErrMany":    {ImportRequest{Session: claude, Rows: make([]BeadsRow, maxImport+1)}, CodeTooLarge},
		"ErrBody":    {ImportRequest{Session: claude, Rows: []BeadsRow{{Line: 3, ID: "a", Title: "t", Body: strings.Repeat("x", maxBody+1)}}}, CodeTooLarge},
	} {
		if _, bad := e.svc.ImportBeads(t.Context(), c.q); bad == nil || bad.Code != c.code {
			t.Errorf("%s: %v", name, bad)
		}
	}
	if n := e.entries(); n != 0 {
		t.Errorf("%d entries stored", n)
	}
}

// TestImportReal: the numbers that the file itself gives, through the socket.
func TestImportReal(t *testing.T) {
	b, err := os.ReadFile(sharedBeads)
	if err != nil {
		t.Logf("no real file here (%v): only the small one was imported", err)
		return
	}
	f, err := ParseBeads(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	e := newEnv(t)
	runDir, _ := listenSocket(t, e.svc)
	c := dialSocket(t, ClientOptions{RunDir: runDir})
	want := f.Counts()
	for round, want := range []ImportCounts{want, {AlreadyPresent: want.Requests + want.Acks + want.Replies + want.Summaries}} {
		var n ImportCounts
		for _, rows := range BeadsChunks(f.Rows) {
			counts, err := c.ImportBeads(t.Context(), ImportRequest{Session: claude, Rows: rows})
			if err != nil {
				t.Fatal(err)
			}
			n.Add(counts)
		}
		if n != want {
			t.Errorf("round %d: %+v, want %+v", round, n, want)
		}
	}
	if n := e.openTasks(); n != 94 {
		t.Errorf("%d open tasks, want 94", n)
	}
	for who, want := range map[string]float64{"beads/crew/emma": 209, "beads/refinery": 202, "beads/crew/dave": 92, "mayor": 53, "beads/crew/fang": 36, "all": 855} {
		if m := e.do(claude, "get_all_summaries", `{"limit":1,"agentIdentity":"`+who+`"}`); m["total"] != want {
			t.Errorf("%s: %v summaries, want %v", who, m["total"], want)
		}
	}
}
