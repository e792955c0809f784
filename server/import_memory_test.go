package server

import (
	"reflect"
	"testing"

	"tallystick/oplog"
	"tallystick/query/imported"
	"tallystick/query/memory"
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

// TestImportRetired: retired facts come in as retired ones, with what stands in
// their place; those whose text is live here stay out, as do those of an export
// that does not say in which order things happened. Nothing is stored twice,
// and what was erased here stays so and stops nothing.
func TestImportRetired(t *testing.T) {
	e := newEnv(t)
	e.do(codex, "memory_add", `{"agent_id":"ns","text":"mine"}`)
	gone := &memory.Retired{How: "updated", SupersededBy: "mem_00000000000000a3", HLC: "1"}
	forgot := &memory.Retired{How: "forgotten", HLC: "1"}
	key := func(id string) *imported.Key { return &imported.Key{Source: "tally", ID: id, Part: "fact"} }
	row := func(id, text, hlc string, r *memory.Retired, replaces ...imported.Key) MemoryRow {
		return MemoryRow{Kind: RowFact, ID: id, Imported: key(id), Namespace: "ns", Text: text, HLC: hlc, Retired: r, Replaces: replaces, Author: "old:a:x"}
	}
	rows := []MemoryRow{
		row("mem_00000000000000a1", "port 1", "1", gone),
		row("mem_00000000000000a2", "port 1", "2", gone),
		row("mem_00000000000000a3", "port 2", "3", &memory.Retired{How: "updated", SupersededBy: "mem_00000000000000a4", HLC: "4"},
			*key("mem_00000000000000a1"), *key("mem_00000000000000a2"), *key("mem_00000000000000a3"), *key("mem_00000000000000ff")),
		row("mem_00000000000000a4", "port 1", "4", nil, *key("mem_00000000000000a3")),
		row("mem_00000000000000a5", "said once", "5", forgot),
		row("mem_00000000000000a6", "mine", "6", forgot),
		row("mem_00000000000000a7", "no order", "", forgot),
	}
	read := func(s Session, dry bool) MemoryCounts {
		t.Helper()
		n, bad := e.svc.ImportMemory(t.Context(), MemoryImport{Session: s, Rows: rows, DryRun: dry})
		if bad != nil || len(n.Errors) > 0 {
			t.Fatal(bad, n.Errors)
		}
		n.Errors = nil
		return n
	}
	entries := e.entries()
	want := MemoryCounts{Facts: 5, Retired: 4, SkippedRetired: 2}
	if n := read(claude, true); !reflect.DeepEqual(n, want) || e.entries() != entries {
		t.Errorf("dry: %+v", n)
	}
	if n := read(claude, false); !reflect.DeepEqual(n, want) {
		t.Errorf("first: %+v", n)
	}
	check := func() {
		t.Helper()
		err := e.log.View(func(snap oplog.Snapshot) error {
			page, err := memory.List(snap, memory.Filter{Namespaces: []string{"ns"}, Retired: true})
			for _, f := range page.Facts {
				live := f.Text == "mine" || f.Imported != nil && f.Imported.ID == "mem_00000000000000a4"
				if live != (f.Retired == nil) {
					t.Errorf("live is %v: %+v", live, f)
				}
				if live || f.Text == "said once" {
					continue
				}
				by, err := memory.Get(snap, "id", f.Retired.SupersededBy)
				if err != nil || by.Imported == nil || f.Text == "port 1" && by.Text != "port 2" || f.Text == "port 2" && by.Text != "port 1" {
					t.Errorf("%+v is replaced by %+v, %v", f, by, err)
				}
			}
			if page.Count != 6 {
				t.Errorf("%d facts", page.Count)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	check()
	entries = e.entries()
	again := MemoryCounts{AlreadyPresent: 5, SkippedRetired: 2}
	for what, n := range map[string]MemoryCounts{"again": read(claude, false), "by another": read(codex, false), "dry": read(codex, true)} {
		if !reflect.DeepEqual(n, again) {
			t.Errorf("%s: %+v", what, n)
		}
	}
	if e.entries() != entries {
		t.Errorf("importing again stored %d entries", e.entries()-entries)
	}
	check()

	var erased oplog.Hash
	if err := e.log.View(func(snap oplog.Snapshot) error {
		id, _, err := memory.Imported(snap, *key("mem_00000000000000a3"))
		if err != nil {
			return err
		}
		rec, err := memory.Get(snap, "id", id)
		erased = rec.Hash
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.log.Erase(t.Context(), "codex", "", "old", erased); err != nil {
		t.Fatal(err)
	}
	entries = e.entries()
	if n := read(claude, false); n.Facts != 0 || n.Retired != 0 || e.entries() != entries {
		t.Errorf("after an erase: %+v, %d entries more", n, e.entries()-entries)
	}
}
