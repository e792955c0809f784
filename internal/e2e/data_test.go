package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The file of real work lies beside the repository, if anywhere. Its text is
// other people's and stays out of the repository.
const realData = "../../../shared/data/agent-work.beads.jsonl"

// workFile returns the real file, or a generated one of the same shape, and
// says which.
func workFile(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat(realData); err == nil {
		path, err := filepath.Abs(realData)
		if err != nil {
			t.Fatal(err)
		}
		t.Log("data: the real file of agents' work")
		return path
	}
	t.Log("data: a generated file of the same shape, for the real one is not here")
	path := filepath.Join(t.TempDir(), "work.jsonl")
	generate(t, path, 2411)
	return path
}

// generate writes rows of the shape of the real file: seven in eight closed,
// one in seven a tombstone, some with comments and reasons.
func generate(t *testing.T, path string, rows int) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	for i := range rows {
		row := map[string]any{
			"id": fmt.Sprintf("gen-%06d", i), "title": fmt.Sprintf("Generated task %d", i), "status": "closed",
			"description": fmt.Sprintf("What task %d asks for, in a sentence or two of ordinary length.", i),
			"issue_type":  []string{"task", "bug", "feature"}[i%3], "created_at": "2026-01-02T03:04:05Z", "updated_at": "2026-01-03T03:04:05Z",
			"created_by": fmt.Sprintf("gen/crew/%d", i%7),
		}
		switch {
		case i%25 == 3:
			row["status"] = "open"
		case i%7 == 1:
			row["status"] = "tombstone"
			row["deleted_at"] = "2026-01-04T03:04:05Z"
		default:
			row["closed_at"] = "2026-01-04T03:04:05Z"
			if i%2 == 0 {
				row["close_reason"] = fmt.Sprintf("Done in change %d.", i)
				row["assignee"] = fmt.Sprintf("gen/polecat/%d", i%5)
			}
		}
		if i%100 == 5 {
			row["comments"] = []any{map[string]any{"id": i, "author": "gen/mayor", "text": "A remark.", "created_at": "2026-01-03T00:00:00Z"}}
		}
		line, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		w.Write(append(line, '\n'))
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
}

// counts is what an import of a file must report, computed from the file.
type counts struct {
	Lines, Requests, Acks, Replies, Summaries, Tombstones, Open int
	ByIdentity                                                  map[string]int // summaries by source identity
	NoIdentity                                                  int
}

func countFile(t *testing.T, path string) counts {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c := counts{ByIdentity: map[string]int{}}
	for line := range strings.Lines(string(b)) {
		var row struct {
			Status      string `json:"status"`
			CloseReason string `json:"close_reason"`
			Assignee    string `json:"assignee"`
			CreatedBy   string `json:"created_by"`
			Comments    []any  `json:"comments"`
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		c.Lines++
		if row.Status == "tombstone" {
			c.Tombstones++
			continue
		}
		c.Requests++
		c.Replies += len(row.Comments)
		if row.Status != "closed" {
			c.Open++
			continue
		}
		c.Acks++
		if strings.TrimSpace(row.CloseReason) == "" {
			continue
		}
		c.Summaries++
		var sources []string
		for _, s := range []string{row.Assignee, row.CreatedBy} {
			if strings.TrimSpace(s) != "" && !slices.Contains(sources, s) {
				sources = append(sources, s)
				c.ByIdentity[s]++
			}
		}
		if len(sources) == 0 {
			c.NoIdentity++
		}
	}
	return c
}

// largest lists the n identities with most summaries.
func (c counts) largest(n int) []string {
	ids := make([]string, 0, len(c.ByIdentity))
	for id := range c.ByIdentity {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b string) int {
		if d := c.ByIdentity[b] - c.ByIdentity[a]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return ids[:min(n, len(ids))]
}
