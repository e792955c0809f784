package importers_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tallystick/internal/hostile"
	"tallystick/internal/importers"
)

var errHostile = errors.New("reported")

// goodFiles is a line or a file of each source.
var goodFiles = map[importers.Source]string{
	importers.MCPMemory:  `{"type":"entity","name":"n","entityType":"t","observations":["o"]}`,
	importers.GrayMatter: `{"id":"1","agent_id":"a","text":"x","created_at":"2026-01-02T03:04:05Z","confidence":"verified","pinned":true,"superseded_by":""}`,
	importers.Engram: `{"sessions":[{"id":"s","project":"p","started_at":"2026-01-02T03:04:05Z","summary":"x"}],"observations":[{"sync_id":"1","title":"t","content":"c"}],` +
		`"prompts":[{"sync_id":"2","session_id":"s","content":"p"}],"mutations":[{"entity":"session","op":"upsert","payload":"{}"}]}`,
	importers.Tally: `{"kind":"fact","id":"mem_0123456789abcdef","agent_id":"n","text":"x"}`,
}

// TestA4_HostileImports: files of other tools, which anybody may have written.
// A bad line is reported, and nothing but rows costs memory.
func TestA4_HostileImports(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.jsonl")
	for source, good := range goodFiles {
		t.Run(string(source), func(t *testing.T) {
			read := func(b []byte) error {
				if err := os.WriteFile(path, b, 0o600); err != nil {
					t.Fatal(err)
				}
				res, err := importers.Read(source, path, "")
				if err == nil && (len(res.Errors) > 0 || len(res.Rows) == 0) {
					err = errHostile
				}
				return err
			}
			if err := read([]byte(good)); err != nil {
				t.Fatal("the good one is reported")
			}
			cases := hostile.JSON([]byte(good))
			for i := range cases {
				if cases[i].Name == "the whole is a list of it" {
					cases[i].Kind = hostile.Swap // a form that is read
				}
			}
			hostile.Check(t, cases, map[hostile.Kind]string{
				hostile.Twice: "the last counts", hostile.Unknown: "other tools grow fields", hostile.Text: "mended by encoding/json; the domain checks each text",
				hostile.Memory: "rows are kept in memory",
			}, read)
		})
	}
	for _, source := range []importers.Source{importers.Markdown, importers.Claude} {
		t.Run(string(source), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "memory")
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, "CLAUDE.md")
			const any = "any text is Markdown"
			hostile.Check(t, hostile.Bytes([]byte("---\nname: x\n---\n# A\n- b\n<!-- x:start -->\nc\n<!-- x:end -->\n")), map[hostile.Kind]string{hostile.Cut: any, hostile.Behind: any}, func(b []byte) error {
				if err := os.WriteFile(file, b, 0o600); err != nil {
					t.Fatal(err)
				}
				_, err := importers.Read(source, file, "")
				return err
			})
		})
	}
}

// TestA4_ImportLimits: a file of errors, a heading of megabytes before
// thousands of items, and blocks of tools that nothing closes: each says where
// its limit is, or ends in time that grows with its size.
func TestA4_ImportLimits(t *testing.T) {
	read := func(source importers.Source, name, text string) *importers.Result {
		t.Helper()
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		res, err := importers.Read(source, path, "")
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	res := read(importers.Tally, "e.jsonl", strings.Repeat("x\n", 20_000)+goodFiles[importers.Tally])
	if n := len(res.Errors); n != 5001 || !strings.Contains(res.Errors[n-1].Reason, "not listed") || len(res.Rows) != 1 {
		t.Errorf("%d errors, %d rows", n, len(res.Rows))
	}

	list := `{"observations":[` + strings.TrimSuffix(strings.Repeat("{},", 200_001), ",") + "]}"
	if res = read(importers.Engram, "e.json", list); len(res.Errors) != 1 || !strings.Contains(res.Errors[0].Reason, "at most 200000") {
		t.Errorf("%+v", res.Errors)
	}

	const long = 1 << 20
	res = read(importers.Markdown, "h.md", "# "+strings.Repeat("h", long)+"\n"+strings.Repeat("- a\n", 20_000))
	size := 0
	for _, r := range res.Rows {
		size += len(r.Text)
	}
	if len(res.Rows) != 20_001 || size > 2*long {
		t.Errorf("%d rows of %d bytes in all", len(res.Rows), size)
	}

	// Pairwise, these lines would be 10^9 comparisons.
	var b strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&b, "<!-- tool%d:start -->\n", i)
	}
	for i := range 50_000 {
		fmt.Fprintf(&b, "<!-- other%d:end -->\n", i)
	}
	b.WriteString("<!-- tool49999:end -->\nkept\n")
	res = read(importers.Markdown, "m.md", b.String())
	if len(res.Rows) != 1 || res.Rows[0].Text != "kept" || res.Skipped != 1 {
		t.Errorf("%d rows, %d skipped", len(res.Rows), res.Skipped)
	}

	res = read(importers.Claude, "CLAUDE.md", strings.Repeat("\n", 16<<20+1))
	if len(res.Errors) != 1 || !strings.Contains(res.Errors[0].Reason, "at most 16777216") {
		t.Errorf("%+v", res.Errors)
	}
}
