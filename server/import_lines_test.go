package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// hostileBeads are lines that the domains refuse as a whole or in part, each
// with the reason that is reported.
func hostileBeads() (lines, reasons []string) {
	line := func(id string, fields map[string]any, reason ...string) {
		row := map[string]any{"id": id, "title": "t", "status": "closed", "closed_at": "2026-01-03T00:00:00Z", "close_reason": "done"}
		for k, v := range fields {
			if row[k] = v; v == nil {
				delete(row, k)
			}
		}
		lines = append(lines, string(encode(row)))
		for _, r := range reason {
			reasons = append(reasons, fmt.Sprintf("%d %s", len(lines), r))
		}
	}
	type m = map[string]any
	for i, name := range []string{"me", "@me", "all", "ALL", "*", "@@x", "@"} {
		shown := quote(name)
		line(fmt.Sprintf("a%d", i), m{"assignee": name}, "no summary: assignee or created_by is "+shown+", which is no identity", "no to_agent: assignee "+shown+" names nobody")
		line(fmt.Sprintf("c%d", i), m{"created_by": name}, "no summary: assignee or created_by is "+shown+", which is no identity")
	}
	line("ctl", m{"assignee": "a\tb"}, `no summary: assignee or created_by is "a\tb", which is no identity`, "no to_agent: assignee is too long or holds a control character")
	line("comma", m{"assignee": "a,b"}, `no summary: assignee or created_by is "a,b", which is no identity`)
	line("long-title", m{"title": strings.Repeat("x", maxTitle+1)}, "no summary: title is longer than 512 bytes")
	line("line-title", m{"title": "a\nb"}, "no summary: control character in title")
	line("reason", m{"close_reason": strings.Repeat("x", maxSummary+1)}, "no summary: close_reason is longer than 65536 bytes")
	line("year", m{"closed_at": "9999-12-31T23:59:59-14:00"}, "no summary: timestamp is")
	line("body", m{"description": strings.Repeat("x", maxBody+1)}, "description is longer than")
	line("meta", m{"title": strings.Repeat("\x01", 16<<10)}, "metadata has")
	line(strings.Repeat("é", 200), nil, "import.id has 400 bytes")
	line("null", m{"title": nil}, "no title")
	line("twice", m{"comments": []m{{"id": 1, "text": "a"}, {"id": "1", "text": "b"}, {"id": 1, "text": "a"}}}, `comment 2 is left out: its id "1" stands on an earlier comment with different content; the first one counts`)
	line("comments", m{"comments": []any{m{"id": 1, "text": strings.Repeat("x", maxBody+1)}, m{"id": strings.Repeat("y", 255)}, m{"id": []int{1}}, 7, m{"id": 2, "text": 7}, m{"id": 3, "text": "good"}}},
		"comment 1 is left out: text is longer than", "comment 2 is left out: import.part has 261 bytes", "comment 3 is left out: it has no usable id",
		"comment 4 is left out: it is not an object", "comment 5 is left out: text has the wrong type (number)")
	for _, l := range []struct{ text, reason string }{
		{`{"ID":"x","Title":"t","Status":"open"}`, "no id"},
		{`{"id":"x","Title":"t","status":"open"}`, "no title"},
		{`{"id":"deep","title":"t","status":"open","x":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`, "nested too deep"},
		{`{"id":"huge","title":"t","status":"open","priority":1` + strings.Repeat("0", 5000) + `e999999}`, ""},
		{`{"id":"utf","title":"` + "\xff" + `","status":"open"}`, "title holds bytes that are not UTF-8"},
		{`{"id":"nul","title":"\u0000","status":"open"}`, "title holds a NUL character"},
		{`{"id":"last","title":"t","status":"open","assignee":"@crew/ann"}`, ""},
	} {
		lines = append(lines, l.text)
		if l.reason != "" {
			reasons = append(reasons, fmt.Sprintf("%d %s", len(lines), l.reason))
		}
	}
	return lines, reasons
}

// TestImportHostileLines: a line of which the domains refuse a part is
// reported with its number, and everything else of the file goes in.
func TestImportHostileLines(t *testing.T) {
	e := newEnv(t)
	lines, reasons := hostileBeads()
	file := strings.Join(lines, "\n")
	f, err := ParseBeads(strings.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Errors) != len(reasons) {
		t.Errorf("%d errors, want %d", len(f.Errors), len(reasons))
	}
	for i, want := range reasons {
		if i < len(f.Errors) && !strings.HasPrefix(fmt.Sprintf("%d %s", f.Errors[i].Line, f.Errors[i].Reason), want) {
			t.Errorf("error %d: line %d: %s, want %s", i, f.Errors[i].Line, clip(f.Errors[i].Reason), want)
		}
	}
	want := f.Counts()
	if want.Requests != 24 || want.Acks != 22 || want.Summaries != 2 || want.Replies != 2 {
		t.Errorf("counts %+v", want)
	}
	if n := e.importFile(claude, "", []byte(file)); n != want {
		t.Errorf("stored %+v, want %+v", n, want)
	}
	if n := e.importFile(claude, "", []byte(file)); n != (ImportCounts{AlreadyPresent: 50}) {
		t.Errorf("again %+v", n)
	}
	if n := e.openTasks(); n != 2 {
		t.Errorf("%d open tasks, want 2", n)
	}
	for _, ev := range e.do(claude, "event_list", `{"type":"task.request","limit":100}`)["events"].([]any) {
		ev := ev.(map[string]any)
		to, given := ev["to_agent"]
		if !given {
			continue
		}
		arg, _ := json.Marshal(map[string]any{"type": "x", "stream": "s", "room": "r", "to_agent": to})
		if got := e.do(claude, "event_append", string(arg)); got["event"].(map[string]any)["to_agent"] != to {
			t.Errorf("to_agent %v: %v", to, got)
		}
	}
}

// TestImportRefusalNamesLine: what only the server could refuse names the line.
func TestImportRefusalNamesLine(t *testing.T) {
	e := newEnv(t)
	row := BeadsRow{Line: 3, ID: "a", Title: "t", Body: strings.Repeat("x", maxBody+1)}
	if _, bad := e.svc.ImportBeads(t.Context(), ImportRequest{Session: claude, Rows: []BeadsRow{row}}); bad == nil || !strings.HasPrefix(bad.Message, "line 3: body has") {
		t.Errorf("%v", bad)
	}
}
