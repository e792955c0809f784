package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestImportReportsTheFilesOwnNumbers imports twice, the second time from
// another folder, and compares with what a plain count of the file gives: a
// generated file always, and the real one where it lies beside the repository.
func TestImportReportsTheFilesOwnNumbers(t *testing.T) {
	t.Run("generated", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "work.jsonl")
		if err := os.WriteFile(path, generateBeads(400), 0o600); err != nil {
			t.Fatal(err)
		}
		importTwice(t, path)
	})
	t.Run("real", func(t *testing.T) {
		path, err := filepath.Abs("../../../shared/data/agent-work.beads.jsonl")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Log("no real file beside the repository; the generated one is tested")
			return
		}
		importTwice(t, path)
	})
}

func importTwice(t *testing.T, path string) {
	want := countBeads(t, path)
	work := t.TempDir()
	t.Cleanup(func() { stopAll(t, work) })
	tally := func(dir string, args ...string) []byte {
		t.Helper()
		cmd := exec.Command("tally", args...)
		cmd.Dir = dir
		cmd.Env = plainEnv()
		for name, value := range scriptEnv(work) {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		var exit *exec.ExitError
		if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == exitPartial && want.errors > 0) {
			t.Fatalf("tally %v: %v\n%s", args, err, stderr.String())
		}
		return out
	}
	var first, second importResult
	decode(t, tally(work, "import", "beads", path, "--json"), &first)
	decode(t, tally(t.TempDir(), "import", "beads", path, "--json"), &second)

	if first.Lines != want.lines || first.Requests != want.requests || first.Acks != want.acks || first.Replies != want.replies ||
		first.Summaries != want.summaries || first.SkippedTombstones != want.tombstones || len(first.Errors) != want.errors || first.AlreadyPresent != 0 {
		t.Errorf("first import %+v, want %+v", first, want)
	}
	parts := want.requests + want.acks + want.replies + want.summaries
	if n := second.ImportCounts; n.AlreadyPresent != parts || n.Requests+n.Acks+n.Replies+n.Summaries+n.ChangedIgnored != 0 {
		t.Errorf("second import %+v, want %d present and nothing new", n, parts)
	}

	// The tools show the same numbers.
	total := func(args ...string) int {
		t.Helper()
		var page struct {
			Total int `json:"total"`
		}
		decode(t, tally(work, append([]string{"summaries", "list", "--limit", "1", "--json"}, args...)...), &page)
		return page.Total
	}
	if n := total(); n != want.summaries {
		t.Errorf("%d summaries listed, want %d", n, want.summaries)
	}
	for category, n := range want.byCategory {
		if got := total("--category", category); got != n {
			t.Errorf("%d summaries in %s, want %d", got, category, n)
		}
	}
	for identity, n := range want.byIdentity {
		if n < want.summaries/50 {
			continue // each costs a process
		}
		if got := total("--identity", identity); got != n {
			t.Errorf("%d summaries of one identity, want %d", got, n)
		}
	}
}

func decode(t *testing.T, b []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatalf("%v in %q", err, b)
	}
}

// beadsNumbers are counted by other code than the import's, straight from
// the rules in its documentation.
type beadsNumbers struct {
	lines, requests, acks, replies, summaries, tombstones, errors int
	byCategory, byIdentity                                        map[string]int
}

func countBeads(t *testing.T, path string) beadsNumbers {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := beadsNumbers{byCategory: map[string]int{}, byIdentity: map[string]int{}}
	seen := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		n.lines++
		var row struct {
			ID, Title, Status, Assignee string
			IssueType                   string `json:"issue_type"`
			CreatedBy                   string `json:"created_by"`
			ClosedAt                    string `json:"closed_at"`
			CloseReason                 string `json:"close_reason"`
			Comments                    []json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil || row.ID == "" || row.Title == "" || row.Status == "" {
			n.errors++
			continue
		}
		if old, ok := seen[row.ID]; ok {
			if old != line {
				n.errors++
			}
			continue
		}
		seen[row.ID] = line
		if row.Status == "tombstone" {
			n.tombstones++
			continue
		}
		n.requests++
		n.replies += len(row.Comments)
		if row.Status != "closed" {
			continue
		}
		n.acks++
		if _, err := time.Parse(time.RFC3339Nano, row.ClosedAt); err != nil {
			n.errors++
			continue
		}
		if strings.TrimSpace(row.CloseReason) == "" {
			continue
		}
		n.summaries++
		category := map[string]string{"bug": "bugfix", "feature": "feature"}[row.IssueType]
		if category == "" {
			category = "other"
		}
		n.byCategory[category]++
		who := map[string]bool{strings.TrimSpace(row.Assignee): true, strings.TrimSpace(row.CreatedBy): true}
		for name := range who {
			if name != "" {
				n.byIdentity[name]++
			}
		}
	}
	return n
}

// generateBeads makes a file of the real one's shape: the same mixture of
// statuses, types and odd lines, and none of its words.
func generateBeads(rows int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	var b bytes.Buffer
	for i := range rows {
		row := map[string]any{
			"id": fmt.Sprintf("gen-%d", i), "title": fmt.Sprintf("Task %d, %s", i, pick("short", " padded ", "ünïcode ✓")),
			"status":     pick("closed", "closed", "closed", "closed", "open", "in_progress", "hooked", "tombstone", "blocked"),
			"issue_type": pick("bug", "feature", "task", "epic", "molecule"), "created_at": "2026-01-02T03:04:05.678901-08:00",
			"assignee": pick("", "gen/crew/ann", "gen/crew/bob", " gen/crew/bob "), "created_by": pick("", "gen/crew/ann", "gen/mayor"),
		}
		if r.IntN(3) > 0 {
			row["description"] = strings.Repeat(pick("text ", "líne\n", "\t"), r.IntN(300))
		}
		if row["status"] == "closed" {
			row["closed_at"] = pick("2026-01-03T03:04:05Z", "2026-01-03T03:04:05.5+01:00")
			row["close_reason"] = pick("", "  ", "done", "merged\nand released")
		}
		if r.IntN(20) == 0 {
			row["comments"] = []map[string]any{{"id": i, "author": "gen/crew/ann", "text": "noted", "created_at": "2026-01-02T05:00:00Z"}}
		}
		line, err := json.Marshal(row)
		if err != nil {
			panic(err)
		}
		b.Write(append(line, '\n'))
	}
	b.WriteString("{\"id\":\"gen-bad\",\"title\":\n")
	b.WriteString("{\"id\":\"gen-no-time\",\"title\":\"t\",\"status\":\"closed\",\"close_reason\":\"r\"}\n")
	return b.Bytes()
}
