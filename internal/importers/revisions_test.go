package importers_test

import (
	"testing"

	"tallystick/internal/importers"
	"tallystick/server"
)

// TestEngramRevisions: chunks are named by digests. Of an observation that
// several hold, the last revision counts, and what one deletes is left out,
// whatever the order of the files.
func TestEngramRevisions(t *testing.T) {
	rev := func(text, at string) string {
		return `{"observations":[{"sync_id":"o1","type":"decision","title":"Store","content":"` + text + `","created_at":"2026-03-01 10:00:00","updated_at":"` + at + `"}]}` + "\n"
	}
	gone := `{"observations":[{"sync_id":"o2","type":"note","title":"Gone","content":"x"}],"prompts":[{"sync_id":"p2","content":"gone, too"}]}` + "\n"
	del := `{"mutations":[{"entity":"observation","entity_key":"o2","op":"delete","payload":"{\"sync_id\":\"o2\",\"deleted\":true}"},{"entity":"prompt","entity_key":"p2","op":"delete","payload":"{}"}]}` + "\n"
	first, last := rev("bolt", "2026-03-01 10:00:00"), rev("badger", "2026-03-02 10:00:00")
	for name, files := range map[string]map[string]string{
		"in order": {"chunks/a.jsonl": first, "chunks/b.jsonl": last, "chunks/c.jsonl": gone, "chunks/d.jsonl": del},
		"reversed": {"chunks/a.jsonl": del, "chunks/b.jsonl": gone, "chunks/c.jsonl": last, "chunks/d.jsonl": first},
	} {
		res := read(t, importers.Engram, write(t, files))
		check(t, res, []string{"fact [decision] Store\nbadger"}, nil)
		if res.Skipped != 5 { // an old revision, two deletes, and what they delete
			t.Errorf("%s: %d skipped", name, res.Skipped)
		}
	}
}

// TestClaudeFrontMatter: memory files nest the type under metadata, and wrap long
// descriptions.
func TestClaudeFrontMatter(t *testing.T) {
	res := read(t, importers.Claude, write(t, map[string]string{
		"projects/x/memory/a.md": "---\nname: canonical-slot\ndescription: >-\n  one line: used\n  for recall\nmetadata:\n  type: project\n  node_type: memory\n---\n\nThe slot is 72.\n",
		"projects/x/memory/b.md": "---\nname: \"quoted\"\ndescription: |\n  two\n\n  lines\nother:\n  type: no\n---\nText.\n",
	}))
	check(t, res, []string{"fact [project] canonical-slot: one line: used for recall\nThe slot is 72.", "fact [projects/x/memory] quoted: two\n\nlines\nText."}, nil)
}

// TestTallyOrder: rows of an export come in the order of its log, with what they
// replace; an export that does not say its order is left as it is.
func TestTallyOrder(t *testing.T) {
	const header = `{"kind":"tally.export","version":1}` + "\n"
	rows := func(hlc bool) (out []server.MemoryRow) {
		text := header
		for _, l := range [][2]string{
			{`"kind":"fact","id":"mem_2","agent_id":"n","text":"new"`, "2"},
			{`"kind":"checkpoint","id":"chk_4","agent_id":"n","state":"{}"`, "4"},
			{`"kind":"checkpoint","id":"chk_3","agent_id":"n","state":"{}"`, "3"},
			{`"kind":"fact","id":"mem_1","agent_id":"n","text":"old","retired":{"how":"updated","superseded_by":"mem_2","hlc":"2"},"replaces":[{"source":"a","id":"b","part":"c"}]`, "1"},
		} {
			text += "{" + l[0]
			if hlc {
				text += `,"hlc":"` + l[1] + `"`
			}
			text += "}\n"
		}
		return read(t, importers.Tally, write(t, map[string]string{"e.jsonl": text})).Rows
	}
	for hlc, want := range map[bool][]string{true: {"mem_1", "mem_2", "chk_3", "chk_4"}, false: {"mem_2", "chk_4", "chk_3", "mem_1"}} {
		for i, r := range rows(hlc) {
			if r.ID != want[i] {
				t.Errorf("%v: row %d is %s, want %s", hlc, i, r.ID, want[i])
			}
			if replaces := hlc && r.ID == "mem_2"; replaces != (len(r.Replaces) == 1) || replaces && r.Replaces[0].ID != "mem_1" {
				t.Errorf("%v: %s replaces %+v", hlc, r.ID, r.Replaces)
			}
		}
	}
}
