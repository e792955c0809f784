package server

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
)

const sharedBeads = "../../shared/data/agent-work.beads.jsonl"

// smallBeads is a file of the same shape as real ones, with every kind of
// bad line.
const smallBeads = "\ufeff" + `{"id":"x-1","title":" First ","description":"do it","status":"closed","issue_type":"bug","assignee":"crew/ann","created_by":"crew/bob","created_at":"2026-01-02T03:04:05+01:00","closed_at":"2026-01-03T00:00:00Z","close_reason":"done","comments":[{"id":4,"author":"crew/cy","text":"half way","created_at":"2026-01-02T10:00:00Z"}],"labels":["a","b"],"notes":"n","dependencies":[{"x":1}]}
{"id":"x-2","title":"Open one","status":"open","issue_type":"task","assignee":" "}

{"id":"x-3","title":"Gone","status":"tombstone","deleted_at":"2026-01-01T00:00:00Z","close_reason":"x"}
not json
["x"]
{"id":"x-4","status":"open"}
{"title":"no id","status":"open"}
{"id":"x-5","title":"no status"}
{"id":"x-6","title":"odd","status":"sleeping"}
{"id":"x-7","title":7,"status":"open"}
{"id":"x\u0007","title":"bell","status":"open"}
{"id":"x-8","title":"when","status":"closed","closed_at":"yesterday","close_reason":"done"}
{"id":"x-2","title":"Open one, again","status":"open"}
{"id":"x-2","title":"Open one","status":"open","issue_type":"task","assignee":" "}
{"id":"x-9","title":"half \ud800 pair","status":"open"}
{"id":"x-10","title":"feature done","status":"closed","issue_type":"feature","closed_at":"2026-01-03T00:00:00.5-08:00","close_reason":"Closed","assignee":"ann","created_by":"ann"}
{"id":"x-11","title":"nobody","status":"closed","closed_at":"2026-01-03T00:00:00Z","close_reason":"  "}
{"id":"x-12","title":"kept","status":"hooked","deleted_at":"2026-01-03T00:00:00Z","close_reason":"x"}
{"id":"x-13","title":"nameless","status":"closed","closed_at":"2026-01-03T00:00:00Z","close_reason":"gone"}
{"id":"x-14","title":"broken","status":"open"`

func TestParseBeads(t *testing.T) {
	f, err := ParseBeads(strings.NewReader(strings.ReplaceAll(smallBeads, "not json", "not json\r")))
	if err != nil {
		t.Fatal(err)
	}
	n := f.Counts()
	if f.Lines != 20 || n.Requests != 7 || n.Acks != 5 || n.Replies != 1 || n.Summaries != 3 || f.SkippedTombstones != 1 {
		t.Errorf("lines %d, counts %+v, tombstones %d", f.Lines, n, f.SkippedTombstones)
	}
	if f.NotImported != (NotImported{Dependencies: 1, Notes: 1, Labels: 2}) {
		t.Errorf("not imported: %+v", f.NotImported)
	}
	want := []string{
		"5 : not a JSON object", "6 : not a JSON object", "7 x-4: no title", "8 : no id", "9 x-5: no status",
		`10 x-6: unknown status "sleeping"`, "11 x-7: title has the wrong type (number)", "12 : control character in id",
		"13 x-8: closed without a readable closed_at: request and ack go in without the time, no summary",
		"14 x-2: this id stands on an earlier line with different content; the first one counts",
		"16 x-9: title holds half of a surrogate pair", "21 : broken JSON",
	}
	var got []string
	for _, e := range f.Errors {
		got = append(got, fmt.Sprintf("%d %s: %s", e.Line, e.ID, e.Reason))
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("errors:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	first := f.Rows[0]
	if first.Title != " First " || first.Summary.Title != "First" || first.Summary.Category != "bugfix" ||
		strings.Join(first.Summary.Sources, " ") != "crew/ann crew/bob" || first.Ack.At != "2026-01-03T00:00:00Z" ||
		first.Replies[0] != (BeadsComment{ID: "4", Author: "crew/cy", Text: "half way", At: "2026-01-02T10:00:00Z"}) {
		t.Errorf("first row: %+v %+v %+v", first, first.Summary, first.Ack)
	}
	if r := f.Rows[1]; r.Assignee != "" || r.Ack != nil || r.Summary != nil {
		t.Errorf("open row: %+v", r)
	}
	if r := f.Rows[len(f.Rows)-1]; r.ID != "x-13" || r.Summary == nil || len(r.Summary.Sources) != 0 {
		t.Errorf("a summary without names has no sources, not the importer: %+v", r)
	}
}

func TestParseBeadsLongLine(t *testing.T) {
	long := `{"id":"a","title":"t","status":"open","description":"` + strings.Repeat("x", maxBeadsLine) + `"}`
	f, err := ParseBeads(strings.NewReader(long + "\n" + `{"id":"b","title":"t","status":"open"}` + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Rows) != 1 || f.Rows[0].ID != "b" || f.Rows[0].Line != 2 || len(f.Errors) != 1 || !strings.Contains(f.Errors[0].Reason, "longer than") {
		t.Errorf("rows %+v errors %+v", f.Rows, f.Errors)
	}
}

// TestParseBeadsReal checks the numbers that the mapping promises for the
// real file, where it is.
func TestParseBeadsReal(t *testing.T) {
	b, err := os.ReadFile(sharedBeads)
	if err != nil {
		t.Logf("no real file here (%v): only the small one was parsed", err)
		return
	}
	f, err := ParseBeads(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	n := f.Counts()
	if f.Lines != 2411 || n.Requests != 2069 || n.Acks != 1975 || n.Replies != 14 || n.Summaries != 855 || f.SkippedTombstones != 342 || len(f.Errors) != 0 {
		t.Errorf("lines %d, %+v, tombstones %d, errors %v", f.Lines, n, f.SkippedTombstones, f.Errors)
	}
	category, source, nobody := map[string]int{}, map[string]int{}, 0
	for _, r := range f.Rows {
		if r.Summary == nil {
			continue
		}
		category[r.Summary.Category]++
		for _, s := range r.Summary.Sources {
			source[s]++
		}
		if len(r.Summary.Sources) == 0 {
			nobody++
		}
	}
	if category["bugfix"] != 70 || category["feature"] != 38 || category["other"] != 747 || nobody != 102 {
		t.Errorf("categories %v, %d without identity", category, nobody)
	}
	for name, want := range map[string]int{"beads/crew/emma": 209, "beads/refinery": 202, "beads/crew/dave": 92, "mayor": 53, "beads/crew/fang": 36} {
		if source[name] != want {
			t.Errorf("%s: %d summaries, want %d", name, source[name], want)
		}
	}
}

func FuzzParseBeads(f *testing.F) {
	f.Add([]byte(smallBeads))
	f.Add([]byte("{}\n{\"id\":\"\"}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := ParseBeads(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if len(file.Rows)+file.SkippedTombstones > file.Lines {
			t.Errorf("more rows than lines")
		}
		for _, r := range file.Rows {
			if !token(r.ID) || r.Title == "" {
				t.Errorf("bad row %+v", r)
			}
		}
	})
}
