package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type importReport struct {
	Lines             int `json:"lines"`
	Requests          int `json:"requests"`
	Acks              int `json:"acks"`
	Replies           int `json:"replies"`
	Summaries         int `json:"summaries"`
	SkippedTombstones int `json:"skipped_tombstones"`
	AlreadyPresent    int `json:"already_present"`
	Errors            []struct {
		Line   int    `json:"line"`
		Reason string `json:"reason"`
	} `json:"errors"`
}

type event struct {
	ID       string          `json:"id"`
	Type     string          `json:"type"`
	From     string          `json:"from_agent"`
	To       string          `json:"to_agent"`
	Status   string          `json:"status"`
	Metadata json.RawMessage `json:"metadata"`
	Grade    string          `json:"grade"`
}

func (e event) meta(t *testing.T) (m struct {
	AckOf     string `json:"ack_of"`
	Claim     string `json:"claim"`
	Winner    string `json:"winner"`
	Automatic bool   `json:"automatic"`
	Imported  struct {
		Status string `json:"status"`
	} `json:"imported"`
}) {
	t.Helper()
	if len(e.Metadata) > 0 {
		if err := json.Unmarshal(e.Metadata, &m); err != nil {
			t.Fatalf("metadata of %s: %v", e.ID, err)
		}
	}
	return m
}

// events pages through a whole listing.
func (h *host) events(filter ...string) (all []event) {
	h.t.Helper()
	cursor := ""
	for {
		args := append([]string{"events", "list", "--limit", "500", "--order", "asc"}, filter...)
		if cursor != "" {
			args = append(args, "--cursor", cursor)
		}
		page := get[struct {
			Events     []event `json:"events"`
			HasMore    bool    `json:"has_more"`
			NextCursor string  `json:"next_cursor"`
		}](h, args...)
		all = append(all, page.Events...)
		if !page.HasMore {
			return all
		}
		cursor = page.NextCursor
	}
}

// total asks for the number of summaries of an identity; empty is everybody's.
func (h *host) total(identity string) int {
	h.t.Helper()
	args := []string{"summaries", "list", "--limit", "1"}
	if identity != "" {
		args = append(args, "--identity", "@"+identity)
	}
	return get[struct {
		Total int `json:"total"`
	}](h, args...).Total
}

// claimed is the answer to a claim.
type claimed struct {
	Outcome string `json:"outcome"`
	Event   event  `json:"event"`
	Claim   struct {
		Holder string `json:"holder"`
		Grade  string `json:"grade"`
	} `json:"claim"`
}

func (h *host) claim(id string) claimed {
	h.t.Helper()
	r := h.try("events", "ack", id, "--status", "claimed", "--json")
	var c claimed
	if err := json.Unmarshal(r.stdout, &c); err != nil {
		h.t.Fatalf("%s claims %s: exit %d, %v\n%s%s", h.label, id, r.code, err, r.stdout, r.stderr)
	}
	return c
}

// holders maps each live claim's task to its holder and grade.
func (h *host) holders() map[string]string {
	h.t.Helper()
	out := map[string]string{}
	cursor := ""
	for {
		args := []string{"claims"}
		if cursor != "" {
			args = append(args, "--cursor", cursor)
		}
		page := get[struct {
			Claims []struct {
				Task   json.RawMessage `json:"task"`
				Holder string          `json:"holder"`
				Grade  string          `json:"grade"`
			} `json:"claims"`
			HasMore    bool   `json:"has_more"`
			NextCursor string `json:"next_cursor"`
		}](h, args...)
		for _, c := range page.Claims {
			out[string(c.Task)] = c.Holder + " " + c.Grade
		}
		if !page.HasMore {
			return out
		}
		cursor = page.NextCursor
	}
}

func (h *host) join(from *host) {
	h.t.Helper()
	token := get[struct {
		Token string `json:"token"`
	}](from, "invite").Token
	h.run(append([]string{"join", token, "--no-start", "--label", h.label, "--listen", h.net.listen(h.label)}, h.net.flags()...)...)
}

// TestFirstLight is the main job, end to end: three replicas as real
// processes, real input, a partition with racing claims that heals, and a
// catch-up that is killed again and again.
func TestFirstLight(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes and imports thousands of records")
	}
	file := workFile(t)
	want := countFile(t, file)
	net := newNetwork(t, "a", "b", "c")
	a, b, c := newHost(t, net, "a"), newHost(t, net, "b"), newHost(t, net, "c")

	a.start()
	checkImport(t, a, file, want)
	for _, h := range []*host{b, c} {
		h.join(a)
		h.start()
	}
	converged(t, 2*time.Minute, a, b, c)
	for _, h := range []*host{a, b, c} {
		checkCounts(t, h, want)
	}

	race := partitionRace(t, net, a, b, c, want)
	checkRace(t, race, a, b, c)

	if os.Getenv("TALLY_E2E_RACE_ONLY") == "" {
		killDuringCatchUp(t, a, b, c)
	}
}

func checkImport(t *testing.T, h *host, file string, want counts) {
	t.Helper()
	got := get[importReport](h, "import", "beads", file)
	if got.Lines != want.Lines || got.Requests != want.Requests || got.Acks != want.Acks || got.Replies != want.Replies ||
		got.Summaries != want.Summaries || got.SkippedTombstones != want.Tombstones || len(got.Errors) != 0 {
		t.Errorf("import reports %+v, the file has %+v", got, want)
	}
	before := h.status()
	again := get[importReport](h, "import", "beads", file)
	parts := want.Requests + want.Acks + want.Replies + want.Summaries
	if again.Requests+again.Acks+again.Replies+again.Summaries != 0 || again.AlreadyPresent != parts {
		t.Errorf("a second import reports %+v, want %d present and nothing new", again, parts)
	}
	if after := h.status(); fmt.Sprint(after.Views) != fmt.Sprint(before.Views) {
		t.Error("a second import changed the views")
	}
}

func checkCounts(t *testing.T, h *host, want counts) {
	t.Helper()
	if got := len(h.events("--type", "task.request")); got != want.Requests {
		t.Errorf("%s shows %d requests, the file has %d", h.label, got, want.Requests)
	}
	if got := len(h.events("--type", "event.ack")); got != want.Acks {
		t.Errorf("%s shows %d acks, the file has %d", h.label, got, want.Acks)
	}
	if got := h.total(""); got != want.Summaries {
		t.Errorf("%s shows %d summaries, the file has %d", h.label, got, want.Summaries)
	}
	for _, id := range want.largest(5) {
		if got := h.total(id); got != want.ByIdentity[id] {
			t.Errorf("%s shows %d summaries of %s, the file has %d", h.label, got, id, want.ByIdentity[id])
		}
	}
}

// race is what was acknowledged on either side of the partition.
type race struct {
	tasks []string // request ids claimed by both sides
	acked []string // ids of every acknowledged append

	claims map[string][2]string // by request id: the claim of either side
}

func partitionRace(t *testing.T, net network, a, b, c *host, want counts) race {
	t.Helper()
	var r race
	for _, e := range a.events("--type", "task.request") {
		if s := e.meta(t).Imported.Status; s != "closed" {
			r.tasks = append(r.tasks, e.ID)
		}
	}
	if len(r.tasks) != want.Open {
		t.Fatalf("%d open tasks, the file leaves %d", len(r.tasks), want.Open)
	}
	r.tasks = r.tasks[:50]
	r.claims = map[string][2]string{}

	net.cut(a, b, c)
	for i, id := range r.tasks {
		first, second := a, c
		if i%2 == 1 {
			first, second = c, a
		}
		for n, h := range []*host{first, second} {
			got := h.claim(id)
			if got.Outcome != "won" || got.Claim.Grade != "provisional" {
				t.Errorf("%s claims %s behind the partition: %s, %s; want won, provisional", h.label, id, got.Outcome, got.Claim.Grade)
			}
			r.acked = append(r.acked, got.Event.ID)
			both := r.claims[id]
			both[n] = got.Event.ID
			r.claims[id] = both
		}
		if i%5 == 0 {
			note := get[struct {
				Event event `json:"event"`
			}](b, "events", "append", "--type", "status.update", "--stream", "project/race", "--room", "status", "--to", "*", "--body", fmt.Sprintf("round %d", i))
			r.acked = append(r.acked, note.Event.ID)
			eventually(t, "c hears b", time.Minute, func() (bool, string) {
				for _, e := range c.events("--stream", "project/race") {
					if e.ID == note.Event.ID {
						return true, ""
					}
				}
				return false, "not yet"
			})
		}
	}
	for _, e := range a.events("--stream", "project/race") {
		t.Errorf("a saw %s through the partition", e.ID)
	}
	net.heal(a, b, c)
	return r
}

func checkRace(t *testing.T, r race, hosts ...*host) {
	t.Helper()
	// The losers' homes write their acks once the loss is settled; only then
	// do all three agree for good.
	eventually(t, "every loser acked", 2*time.Minute, func() (bool, string) {
		lost := map[string]bool{}
		for _, e := range hosts[0].events("--type", "event.ack", "--status", "superseded") {
			lost[e.meta(t).Claim] = true
		}
		var waits []string
		for _, task := range r.tasks {
			if a, c := r.claims[task][0], r.claims[task][1]; !lost[a] && !lost[c] {
				waits = append(waits, fmt.Sprintf("of %s neither %s nor %s", task, a, c))
			}
		}
		return len(lost) >= len(r.tasks), fmt.Sprintf("%d of %d superseded acks; %s", len(lost), len(r.tasks), strings.Join(waits, "; "))
	})
	converged(t, 2*time.Minute, hosts...)
	eventually(t, "every claim settled everywhere", 2*time.Minute, func() (bool, string) {
		for _, h := range hosts {
			for task, who := range h.holders() {
				if !strings.HasSuffix(who, " settled") {
					return false, fmt.Sprintf("%s: %s held by %s", h.label, task, who)
				}
			}
		}
		return true, ""
	})
	winners := hosts[0].holders()
	if len(winners) != len(r.tasks) {
		t.Errorf("%d live claims, want %d", len(winners), len(r.tasks))
	}
	for _, h := range hosts {
		if got := h.holders(); fmt.Sprint(got) != fmt.Sprint(winners) {
			t.Errorf("%s names other winners than %s:\n%v\n%v", h.label, hosts[0].label, got, winners)
		}
		superseded := h.events("--type", "event.ack", "--status", "superseded")
		claims := map[string]int{}
		for _, e := range superseded {
			m := e.meta(t)
			claims[m.Claim]++
			if !m.Automatic || m.Claim == "" || m.Winner == "" || e.From != e.To {
				t.Errorf("%s: superseded ack %+v", h.label, e)
			}
		}
		if len(superseded) != len(r.tasks) || len(claims) != len(r.tasks) {
			t.Errorf("%s: %d superseded acks of %d claims, want %d", h.label, len(superseded), len(claims), len(r.tasks))
		}
		have := map[string]bool{}
		for _, e := range h.events() {
			have[e.ID] = true
		}
		for _, id := range r.acked {
			if !have[id] {
				t.Errorf("%s lacks the acknowledged %s", h.label, id)
			}
		}
	}
	// Each loser finds its losses in its inbox, on its own machine.
	notices := 0
	for _, h := range hosts {
		me := h.label + "-tester" // outside a repository an identity is flat
		for _, e := range h.events("--to", me, "--status", "superseded") {
			if e.meta(t).Automatic {
				notices++
			}
		}
	}
	if notices != len(r.tasks) {
		t.Errorf("%d notices in the losers' inboxes, want %d", notices, len(r.tasks))
	}
}

// killDuringCatchUp imports 200,000 generated entries on a while b is down,
// then kills b five times on its way.
func killDuringCatchUp(t *testing.T, a, b, c *host) {
	t.Helper()
	b.stop()
	file := filepath.Join(t.TempDir(), "many.jsonl")
	generate(t, file, 95_500)
	want := countFile(t, file)
	entries := want.Requests + want.Acks + want.Replies + want.Summaries
	t.Logf("catch-up of %d generated entries", entries)
	if entries < 200_000 {
		t.Fatalf("%d entries generated, want 200,000", entries)
	}
	before := a.status().rows()
	a.run("import", "beads", file, "--json")
	goal := a.status().rows()
	for n := range 5 {
		b.start()
		share := before + (goal-before)*uint64(n+1)/8
		eventually(t, "progress", 5*time.Minute, func() (bool, string) {
			got := b.status().rows()
			return got >= share, fmt.Sprintf("%d rows of %d", got, goal)
		})
		got := b.status().rows()
		if got >= goal {
			t.Logf("kill %d came after the catch-up was done", n+1)
		} else {
			t.Logf("kill %d at %d of %d rows", n+1, got, goal)
		}
		b.kill()
	}
	b.start()
	converged(t, 10*time.Minute, a, b, c)
}
