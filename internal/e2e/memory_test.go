package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// texts are the facts of a namespace that a search on a host finds.
func (h *host) texts(namespace, query string) []string {
	h.t.Helper()
	page := get[struct {
		Facts []struct {
			Text string `json:"text"`
		} `json:"facts"`
		Index struct {
			Behind uint64 `json:"behind"`
		} `json:"index"`
	}](h, "memory", "search", "--agent-id", namespace, "--top", "100", query)
	if page.Index.Behind != 0 {
		h.t.Errorf("%s: the index is %d entries behind", h.label, page.Index.Behind)
	}
	out := []string{}
	for _, f := range page.Facts {
		out = append(out, f.Text)
	}
	slices.Sort(out)
	return out
}

// TestM3_TwoHostsEditFacts: two real replicas edit the same facts while they
// cannot see each other. Healed, both show the same facts, and what was
// overwritten unseen is listed on both and can be brought back; a checkpoint
// travels.
func TestM3_TwoHostsEditFacts(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes")
	}
	net := newNetwork(t, "a", "b")
	a, b := newHost(t, net, "a"), newHost(t, net, "b")
	a.start()
	for i := range 3 {
		a.run("memory", "add", "--agent-id", "team", fmt.Sprintf("zebra fact %d", i))
	}
	b.join(a)
	b.start()
	converged(t, time.Minute, a, b)

	net.cut(b, a)
	reflect := func(h *host, args ...string) {
		t.Helper()
		h.run(append([]string{"memory", "reflect", "--agent-id", "team"}, args...)...)
	}
	reflect(a, "--action", "update", "--target", "zebra fact 0", "--text", "zebra fact 0 by a")
	reflect(b, "--action", "update", "--target", "zebra fact 0", "--text", "zebra fact 0 by b")
	reflect(a, "--action", "forget", "--target", "zebra fact 1")
	b.run("memory", "add", "--agent-id", "team", "zebra fact 1") // a copy that a never saw, later than the forget
	reflect(a, "--action", "pin", "--target", "zebra fact 2")
	reflect(b, "--action", "update", "--target", "zebra fact 2", "--text", "zebra fact 2 by b")
	b.run("checkpoint", "save", "--agent-id", "team", "--state", `{"step":2}`, "--branch", "fix", "--base-commit", "1f3c2d")
	if got := a.texts("team", "zebra"); !slices.Equal(got, []string{"zebra fact 0 by a", "zebra fact 2"}) {
		t.Errorf("a before healing: %q", got)
	}

	net.heal(b, a)
	converged(t, time.Minute, a, b)
	want := []string{"zebra fact 0 by b", "zebra fact 1", "zebra fact 2 by b"}
	for _, h := range []*host{a, b} {
		if got := h.texts("team", "zebra"); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", h.label, got, want)
		}
		r := get[struct {
			State struct {
				Step int `json:"step"`
			} `json:"state"`
			Branch string `json:"branch"`
			Commit string `json:"base_commit"`
			Origin string `json:"origin"`
		}](h, "checkpoint", "resume", "--agent-id", "team")
		if r.State.Step != 2 || r.Branch != "fix" || r.Commit != "1f3c2d" || r.Origin != "b" {
			t.Errorf("%s resumes %+v", h.label, r)
		}
	}
	type merges struct {
		Merges []struct {
			ID   string `json:"id"`
			Lost struct {
				What string `json:"what"`
			} `json:"lost"`
			Kept struct {
				What string `json:"what"`
			} `json:"kept"`
		} `json:"merges"`
	}
	for _, h := range []*host{a, b} {
		m := get[merges](h, "merges", "--kind", "fact").Merges
		if len(m) != 1 || m[0].Lost.What != "fact zebra fact 0 by a" || m[0].Kept.What != "fact zebra fact 0 by b" {
			t.Errorf("%s lists %+v", h.label, m)
		}
	}
	if m := get[merges](a, "merges", "--kind", "fact").Merges; len(m) == 1 {
		a.run("merges", "--undo", m[0].ID)
	}
	converged(t, time.Minute, a, b)
	if got := b.texts("team", "zebra"); !slices.Contains(got, "zebra fact 0 by a") || slices.Contains(got, "zebra fact 0 by b") {
		t.Errorf("after undoing: %q", got)
	}
}
