package server

import (
	"testing"
)

// TestImportMemoryByAnotherIdentity: an export that was read in by one identity
// adds nothing when another reads it in, which is what happens on a second
// machine; and states that were saved twice stay twice.
func TestImportMemoryByAnotherIdentity(t *testing.T) {
	e := newEnv(t)
	at := "2026-01-02T03:04:05.000Z"
	rows := []MemoryRow{
		{Kind: RowFact, ID: "mem_00000000000000f1", Namespace: "ns", Text: "the port is 7717", Author: "old:a:x", CreatedAt: at, Pinned: true},
		{Kind: RowLink, ID: "mem_00000000000000f2", Namespace: "ns", From: "a", To: "b"},
		{Kind: RowAlias, ID: "mem_00000000000000f3", Namespace: "ns", Term: "db", Equivalents: []string{"database"}},
		{Kind: RowSummary, ID: "sum_00000000000000f4", Title: "t", Text: "s", Category: "other", Identities: []string{"old:a:x"}, Timestamp: &at},
		{Kind: RowTurn, ID: "mem_00000000000000f5", Session: "s", Prompt: "p", Response: "r", Identities: []string{"old:a:x"}, Timestamp: &at},
		{Kind: RowCheckpoint, ID: "chk_00000000000000f6", Namespace: "ns", State: `{"n":1}`, Branch: "main"},
		{Kind: RowCheckpoint, ID: "chk_00000000000000f7", Namespace: "ns", State: `{"n":2}`, Branch: "main"},
		{Kind: RowCheckpoint, ID: "chk_00000000000000f8", Namespace: "ns", State: `{"n":1}`, Branch: "main"},
	}
	read := func(s Session, dry bool) MemoryCounts {
		t.Helper()
		n, bad := e.svc.ImportMemory(t.Context(), MemoryImport{Session: s, Rows: rows, DryRun: dry})
		if bad != nil || len(n.Errors) > 0 {
			t.Fatal(bad, n.Errors)
		}
		return n
	}
	if n := read(claude, false); n.Facts != 1 || n.Pins != 1 || n.Links != 1 || n.Aliases != 1 || n.Summaries != 1 || n.Turns != 1 || n.Checkpoints != 3 || n.AlreadyPresent != 0 {
		t.Errorf("first: %+v", n)
	}
	entries := e.entries()
	for what, n := range map[string]MemoryCounts{"again": read(claude, false), "by another": read(codex, false), "dry": read(codex, true)} {
		n.Errors = nil
		if got := n.AlreadyPresent; got != len(rows) || n.Pins != 0 {
			t.Errorf("%s: %+v", what, n)
		}
	}
	if e.entries() != entries {
		t.Errorf("importing again stored %d entries", e.entries()-entries)
	}
	state := e.do(codex, "checkpoint_resume", `{"agent_id":"ns"}`)["state"]
	if string(encode(state)) != `{"n":1}` {
		t.Errorf("the latest is %s", encode(state))
	}
}
