package importers_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tallystick/internal/importers"
	"tallystick/server"
)

// write makes files below a folder and returns it.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func read(t *testing.T, s importers.Source, path string) *importers.Result {
	t.Helper()
	res, err := importers.Read(s, path, "")
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]bool{}
	for _, r := range res.Rows {
		if r.Imported == nil {
			t.Errorf("%s has no key", show(&r))
			continue
		}
		if err := r.Imported.Check(); err != nil {
			t.Errorf("%s: %v", show(&r), err)
		}
		k := fmt.Sprint(*r.Imported)
		if keys[k] {
			t.Errorf("key %s twice", k)
		}
		keys[k] = true
	}
	return res
}

// show is a row in short.
func show(r *server.MemoryRow) string {
	switch r.Kind {
	case server.RowLink:
		return "link " + r.From + " -> " + r.To
	case server.RowSummary:
		return "summary " + r.Title
	case server.RowTurn:
		return "turn " + r.Prompt
	}
	return strings.TrimRight(r.Kind+" ["+r.Category+"] "+r.Text, " ")
}

func check(t *testing.T, res *importers.Result, rows, errs []string) {
	t.Helper()
	var got, bad []string
	for i := range res.Rows {
		got = append(got, show(&res.Rows[i]))
	}
	for _, e := range res.Errors {
		bad = append(bad, fmt.Sprintf("%d %s", e.Line, e.Reason))
	}
	if !slices.Equal(got, rows) {
		t.Errorf("rows\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(rows, "\n"))
	}
	if len(bad) != len(errs) {
		t.Fatalf("errors\n%s\nwant\n%s", strings.Join(bad, "\n"), strings.Join(errs, "\n"))
	}
	for i := range bad {
		if !strings.Contains(bad[i], errs[i]) {
			t.Errorf("error %q, want %q", bad[i], errs[i])
		}
	}
}

func TestMCPMemory(t *testing.T) {
	dir := write(t, map[string]string{"memory.jsonl": `{"type":"entity","name":"Tally","entityType":"project","observations":["speaks MCP","is written in Go"]}
{"type":"entity","name":"Ann","entityType":"person","observations":[]}
{"type":"relation","from":"Ann","to":"Tally","relationType":"works_on"}

{"type":"entity","name":" ","observations":[]}
{"type":"entity","name":"Bad","observations":["ok",7]}
{"type":"thing"}
not json
{"type":"relation","from":"Ann"}
`})
	check(t, read(t, importers.MCPMemory, filepath.Join(dir, "memory.jsonl")), []string{
		"fact [project] Tally: speaks MCP", "fact [project] Tally: is written in Go", "fact [person] Ann (person)",
		"fact [relation] Ann works on Tally", "link Ann -> Tally", "fact [] Bad: ok",
	}, []string{"5 an entity without a name", "6 observation 2", `7 type is "thing"`, "8 no JSON", "9 a relation without both ends"})
}

func TestGrayMatter(t *testing.T) {
	facts := `{"id":"01A","agent_id":"planner","text":"deploy on Fridays","created_at":"2026-03-01T10:00:00Z","confidence":"verified","pinned":true},
{"id":"01B","agent_id":"planner","text":"old","superseded_by":"01A"},
{"id":"01C","agent_id":"__shared__","text":"the port is 7717","confidence":"guess"},
{"id":"01D","agent_id":"planner","text":" "}`
	want := []string{"fact [] deploy on Fridays", "fact [] the port is 7717"}
	for name, text := range map[string]string{
		"array": "[" + facts + "]", "object": `{"facts":[` + facts + "]}", "lines": strings.ReplaceAll(facts, "},\n", "}\n"),
	} {
		t.Run(name, func(t *testing.T) {
			res := read(t, importers.GrayMatter, write(t, map[string]string{"facts.json": text}))
			check(t, res, want, []string{"4 a fact without text"})
			if r := res.Rows[0]; r.Namespace != "planner" || r.Confidence != "verified" || !r.Pinned || r.CreatedAt != "2026-03-01T10:00:00Z" {
				t.Errorf("%+v", r)
			}
			if r := res.Rows[1]; r.Namespace != "__shared__" || r.Confidence != "unverified" {
				t.Errorf("%+v", r)
			}
			if res.Skipped != 1 {
				t.Errorf("%d skipped", res.Skipped)
			}
		})
	}
	check(t, read(t, importers.GrayMatter, write(t, map[string]string{"x.json": "[{"})), nil, []string{"not JSON"})
	check(t, read(t, importers.GrayMatter, write(t, map[string]string{"x.json": "{}"})), nil, []string{"no list of facts"})
}

func TestEngram(t *testing.T) {
	chunk := `{"sessions":[{"id":"s1","project":"tally","started_at":"2026-03-01 10:00:00","ended_at":"2026-03-01 11:00:00","summary":"## Mended the parser\nIt dropped lines."},{"id":"s2","started_at":"2026-03-01 10:00:00"}],` +
		`"observations":[{"id":1,"sync_id":"obs-1","session_id":"s1","type":"bugfix","title":"Parser","content":"drops empty lines","created_at":"2026-03-01 10:30:00"},{"id":2,"sync_id":"obs-2","session_id":"s1","type":"decision","title":"gone","content":"x","deleted_at":"2026-03-02"}],` +
		`"prompts":[{"id":1,"session_id":"s1","content":"mend it","created_at":"2026-03-01 10:00:00"}]}`
	want := []string{"fact [bugfix] Parser\ndrops empty lines", "summary Mended the parser", "turn mend it"}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	fmt.Fprintln(z, chunk)
	z.Close()
	var indented bytes.Buffer
	if err := json.Indent(&indented, []byte(chunk), "", "  "); err != nil {
		t.Fatal(err)
	}
	for name, files := range map[string]map[string]string{
		"chunk":  {".engram/chunks/a1.jsonl.gz": zipped.String(), ".engram/manifest.json": "{}"},
		"export": {"engram-export.json": indented.String()},
		"line":   {"all.jsonl": chunk + "\n"},
		"mutations": {"m.jsonl": `{"mutations":[{"entity":"observation","op":"upsert","payload":"{\"sync_id\":\"obs-1\",\"type\":\"bugfix\",\"title\":\"Parser\",\"content\":\"drops empty lines\"}"},` +
			`{"entity":"session","op":"upsert","payload":"{\"id\":\"s1\",\"summary\":\"Mended the parser\"}"},{"entity":"prompt","op":"upsert","payload":"{\"content\":\"mend it\"}"},{"entity":"observation","op":"delete","payload":"{}"}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			res := read(t, importers.Engram, write(t, files))
			check(t, res, want, nil)
			if r := res.Rows[0]; r.Imported.ID != "obs-1" || r.Imported.Source != "engram" {
				t.Errorf("%+v", r.Imported)
			}
		})
	}
	check(t, read(t, importers.Engram, write(t, map[string]string{"o.jsonl": `{"sync_id":"a","title":"T","content":"c","type":"note"}
{"title":" ","content":""}
{"colour":"red"}
{
`})), []string{"fact [note] T\nc"}, []string{"2 observation 1 has neither", "3 neither an observation", "4 no JSON"})
}

const page = "---\ntags: [x]\n---\n# Project\n\nFirst paragraph\nof two lines.\n\n## Rules\n- always test\n  with -race\n\n  and twice\n- use `go vet`\n1. one\n\n```sh\ngo test ./...\n\n# no heading\n```\n\n<!-- a comment -->\n***\n" +
	"<!-- tally:start (do not edit) -->\n- not memory\n<!-- tally:end -->\n\n## Rules\n- always test\n  with -race\n\n  and twice\n"

func TestMarkdown(t *testing.T) {
	dir := write(t, map[string]string{"a/notes.md": page, "a/skip.txt": "no", ".hidden/x.md": "no", "bad.md": "\xff\xfe"})
	res, err := importers.Read(importers.Markdown, dir, "")
	if err != nil {
		t.Fatal(err)
	}
	check(t, res, []string{
		"fact [Project] Project: First paragraph\nof two lines.",
		"fact [Rules] Project > Rules: always test\nwith -race\n\nand twice",
		"fact [Rules] Project > Rules: use `go vet`",
		"fact [Rules] Project > Rules: one",
		"fact [Rules] Project > Rules: ```sh\ngo test ./...\n\n# no heading\n```",
		"fact [Rules] Project > Rules: always test\nwith -race\n\nand twice", // the same key as before: it counts once
	}, []string{"not valid UTF-8"})
	if a, b := res.Rows[1], res.Rows[5]; *a.Imported != *b.Imported || a.File != "a/notes.md" || a.Line != 10 {
		t.Errorf("%+v and %+v", a, b)
	}
	named, err := importers.Read(importers.Markdown, dir, "team")
	if err != nil {
		t.Fatal(err)
	}
	if r := named.Rows[0]; r.Namespace != "team" || *r.Imported == *res.Rows[0].Imported {
		t.Errorf("another namespace, the same key: %+v", r)
	}
}

func TestClaude(t *testing.T) {
	dir := write(t, map[string]string{
		"CLAUDE.md":                             "# Build\n- run `make`\n- @docs/more.md\n@AGENTS.md\n",
		"projects/x/memory/MEMORY.md":           "- [Testing](feedback_testing.md) - how to test\n- likes short answers\n",
		"projects/x/memory/feedback_testing.md": "---\nname: testing\ndescription: how Ann wants tests\ntype: feedback\n---\nNever mock the store.\n\n**Why:** it hid a bug.\n",
		"projects/x/session.jsonl":              "{}",
		"plugins/readme.md":                     "not memory",
		"projects/x/memory/deep/reference.md":   "plain\n",
	})
	res := read(t, importers.Claude, dir)
	check(t, res, []string{
		"fact [Build] Build: run `make`", "fact [] likes short answers", "fact [] plain",
		"fact [feedback] testing: how Ann wants tests\nNever mock the store.\n\n**Why:** it hid a bug.",
	}, nil)
	if res.Skipped != 2 {
		t.Errorf("%d skipped", res.Skipped)
	}
}

func TestRead_Errors(t *testing.T) {
	if _, err := importers.Read(importers.Markdown, filepath.Join(t.TempDir(), "absent"), ""); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
	if _, err := importers.Read(importers.Markdown, t.TempDir(), ""); err == nil {
		t.Error("an empty folder was read")
	}
	if _, err := importers.Read(importers.Engram, write(t, map[string]string{"x.jsonl.gz": "\x1f\x8bbroken"})+"/x.jsonl.gz", ""); err == nil {
		t.Error("broken gzip was read")
	}
	check(t, read(t, importers.Tally, write(t, map[string]string{"e.jsonl": `{"kind":"tally.export","version":2}
{"kind":"fact","text":"x"}
{"kind":"tally.export","version":1}
{"kind":"fact","id":"mem_0123456789abcdef","agent_id":"n","text":"x"}
`})), []string{"fact [] x"}, []string{"1 an export of version 2", "2 a row without an id"})
	check(t, read(t, importers.MCPMemory, write(t, map[string]string{"m.jsonl": `[1]
{"type":"entity","name":7}
`})), nil, []string{"1 no JSON object as expected: it must not be of type array", "2 no JSON object as expected: name must not be of type number"})
}

func FuzzRead(f *testing.F) {
	for _, s := range importers.Sources() {
		f.Add(string(s), page)
		f.Add(string(s), `{"type":"entity","name":"a","observations":["b"]}`+"\n"+`{"observations":[{"title":"x","id":{}}],"mutations":[{"op":"x"}]}`)
	}
	f.Fuzz(func(t *testing.T, source, text string) {
		path := filepath.Join(t.TempDir(), "memory", "CLAUDE.md")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		res, err := importers.Read(importers.Source(source), path, "")
		if err != nil {
			return
		}
		for _, r := range res.Rows {
			if r.Imported == nil || r.Imported.Check() != nil && source != string(importers.Tally) {
				t.Fatalf("key %+v of %+v", r.Imported, r)
			}
		}
	})
}

func Example() {
	dir, err := os.MkdirTemp("", "notes")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "notes.md"), []byte("# Ports\n- the mesh uses 7717\n"), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	res, err := importers.Read(importers.Markdown, dir, "")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range res.Rows {
		fmt.Println(r.Kind, "-", r.Text)
	}
	// Output: fact - Ports: the mesh uses 7717
}
