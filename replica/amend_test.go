package replica

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// TestC3_AmendOverTheNetwork: three replicas, the clock of one jumps ahead
// between two runs. The others hold what it stamps and say whose clock it is;
// it finds itself to be the outlier and writes no amend. One amend at another
// sets it right on all, also on the one that had folded it; and the device,
// its clock mended, goes on under a new incarnation that nobody holds.
func TestC3_AmendOverTheNetwork(t *testing.T) {
	const ahead = 1000 * time.Hour
	a := mustOpen(t, testConfig(t, "a"))
	cfg := testConfig(t, "b")
	b := mustJoin(t, a, cfg)
	c := mustJoin(t, a, testConfig(t, "c"))
	note(t, b, "right")
	converged(t, a, b, c)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.Wall = func() int64 { return time.Now().Add(ahead).UnixMilli() }
	cfg.Peers = []string{a.Addresses()[0], c.Addresses()[0]} // with both of them
	b = mustOpen(t, cfg)
	note(t, b, "wrong")
	origin := b.Self().ID
	eventually(t, "both hold it and name the clock", func() bool {
		for _, r := range []*Replica{a, c} {
			lines := r.Clocks().Lines
			if r.Log().Held() != 1 || len(lines) != 1 || !lines[0].Heard || lines[0].Offset < ahead-time.Hour {
				return false // it may not have heard of b directly since the jump
			}
			if l := lines[0]; l.Label != "b" || l.Origin != origin || l.Self || l.Lead < ahead-time.Hour {
				t.Fatalf("%s says %+v", r.Label(), l)
			}
		}
		return true
	})
	eventually(t, "b finds itself the outlier", func() bool { return b.Clocks().Outlier })
	line := c.Clocks().Lines[0]
	if err := b.Amend(testContext(t), "", "", line.Amendment()); !errors.Is(err, &Error{Code: CodeConflict}) {
		t.Errorf("the outlier amends: %v", err)
	}
	if a.Clocks().Outlier || c.Clocks().Outlier {
		t.Error("the others take themselves for outliers")
	}

	if err := c.Amend(testContext(t), "", "amend-1", line.Amendment()); err != nil {
		t.Fatal(err)
	}
	converged(t, a, b, c)
	for _, r := range []*Replica{a, b, c} {
		if got := noteTexts(t, r); !slices.Contains(got, "wrong") {
			t.Errorf("%s shows %q", r.Label(), got)
		}
		if got := r.Clocks().Lines; len(got) != 0 {
			t.Errorf("%s still names %+v", r.Label(), got)
		}
	}

	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.Wall = nil
	b = mustOpen(t, cfg)
	note(t, b, "right again")
	if b.Self().ID == origin {
		t.Error("the mended clock goes on in the incarnation that is in the future")
	}
	converged(t, a, b, c)
}
