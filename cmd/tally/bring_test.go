package main

import (
	"context"
	"log/slog"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"tallystick/oplog"
	"tallystick/query"
	"tallystick/replica"
)

// TestBring_EveryKindIsSpokenFor: a kind of entry is carried by its domain or
// is of its own log only. One that is neither would be left behind.
func TestBring_EveryKindIsSpokenFor(t *testing.T) {
	own := replica.OwnKinds()
	carried := map[string]bool{}
	for _, k := range query.Carried() {
		if carried[k.Name] || slices.Contains(own, k.Name) {
			t.Errorf("%s is spoken for twice", k.Name)
		}
		carried[k.Name] = true
	}
	projections, _ := query.Default()
	var members oplog.Projection = replica.NewMembership(replica.MeshID{})
	for _, p := range append(projections, members) {
		for _, k := range p.Kinds() {
			if k != "*" && !carried[k] && !slices.Contains(own, k) {
				t.Errorf("nothing says how entries of kind %s (view %s) are carried into another mesh; see query/carried", k, p.Name())
			}
		}
	}
	for _, k := range []string{oplog.KindErase, replica.KindErased} {
		if !slices.Contains(own, k) {
			t.Errorf("%s is not spoken for", k)
		}
	}
}

// joinAsideCmd is `joinaside TOKEN`: a join with --bring of the home, whose
// owner does not run, that was killed right after the handshake.
func joinAsideCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: joinaside TOKEN")
	}
	h, err := findHome(ts.Getenv("TALLY_HOME"), ts.Getenv)
	ts.Check(err)
	cfg := replicaConfig(h, settings{Label: ts.Getenv("TALLY_LABEL"), Listen: ts.Getenv("TALLY_LISTEN")}, slog.New(slog.DiscardHandler))
	res, err := replica.JoinWith(context.Background(), cfg, args[0], replica.JoinOptions{Bring: true})
	ts.Check(err)
	if !res.Brings {
		ts.Fatalf("nothing is to be brought")
	}
}

// untilCmd is `until PATTERN program args...`: it returns when the program's
// output matches. The test's own deadline is the only limit.
func untilCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until PATTERN program args...")
	}
	for want := regexp.MustCompile(args[0]); ; time.Sleep(50 * time.Millisecond) {
		if err := ts.Exec(args[1], args[2:]...); err == nil && want.MatchString(ts.ReadFile("stdout")) {
			return
		}
	}
}
