package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tallystick/query"
	"tallystick/query/search"
	"tallystick/replica"
	"tallystick/server"
)

// stopWall makes a site's clock stand at a time; what it is ahead still counts.
func (s *site) stopWall(at time.Time) {
	s.cfg.Wall = func() int64 { return at.UnixMilli() + s.wall.Load() }
}

// serve lets the command line reach a site, as the socket of its owner would,
// and gives it a search index.
func (s *site) serve() {
	s.t.Helper()
	index, err := search.Open(s.t.Context(), search.Config{Log: s.rep.Log(), Sources: query.Sources()})
	if err != nil {
		s.t.Fatal(err)
	}
	svc, err := server.New(server.Deps{Log: s.rep, Mesh: mesh{s.rep}, Owner: s.rep, Search: index, Version: programVersion().Version, Translate: translate})
	if err != nil {
		s.t.Fatal(err)
	}
	socket, err := server.ListenSocket(filepath.Join(s.root(), "run"), svc)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { // before the replica, which was opened before
		if err := socket.Close(); err != nil {
			s.t.Error(err)
		}
		if err := index.Close(); err != nil {
			s.t.Error(err)
		}
	})
}

func (s *site) root() string { return filepath.Dir(s.cfg.Dir) }

// tally types a command line at a site that serves.
func (s *site) tally(args ...string) (stdout, stderr string, code int) {
	s.t.Helper()
	var out, errs bytes.Buffer
	env := map[string]string{"TALLY_HOME": s.root(), "TALLY_AGENT": "tester", "TZ": "UTC"}
	code = run(s.t.Context(), args, &app{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Dir: s.t.TempDir(), Getenv: func(k string) string { return env[k] }})
	return out.String(), errs.String(), code
}

// types is tally that must end well; its output has every one of the words.
func (s *site) types(line string, words ...string) string {
	s.t.Helper()
	out, errs, code := s.tally(strings.Fields(line)...)
	if code != 0 {
		s.t.Fatalf("%s: tally %s: exit %d\n%s%s", s.cfg.Label, line, code, out, errs)
	}
	for _, w := range words {
		if !strings.Contains(out, w) {
			s.t.Errorf("%s: tally %s has no %q:\n%s", s.cfg.Label, line, w, out)
		}
	}
	return out
}

// TestC3_ClockAmendAtTheCommandLine: a machine's clock goes an hour ahead, and
// it writes. On another machine a person sees what is held, how far ahead it is
// and when its time comes, to the second; amends it; and sees it in the
// listings, on both machines alike, also in the search index of the one that
// had it all along.
func TestC3_ClockAmendAtTheCommandLine(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Second)
	desk, lap := newSite(t, "desk"), newSite(t, "lap")
	desk.stopWall(now)
	lap.stopWall(now)
	desk.open()
	inv, err := desk.rep.Invite(t.Context(), replica.InviteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := replica.Join(t.Context(), lap.cfg, inv.Token); err != nil {
		t.Fatal(err)
	}
	lap.open()
	converge(desk, lap)
	desk.serve()
	desk.types("clock", "nothing is stamped further ahead")
	desk.types("quarantine", "nothing is held")

	lap.close()
	lap.wall.Store(time.Hour.Milliseconds())
	lap.open()
	lap.serve()
	lap.types("events append --type status.update --stream project/x --room status --to * --body zebrawood")
	wrong, release := now.Add(time.Hour), now.Add(time.Hour-desk.rep.Log().Bound())
	lap.types("search zebrawood", shortTime(timeOf(wrong)))
	desk.until("what lap wrote is held", func() bool {
		c := desk.rep.Clocks()
		return len(c.Lines) == 1 && c.Lines[0].Last == lap.rep.Self().Tips[0] && c.Lines[0].Heard && c.Lines[0].Offset > 50*time.Minute
	})

	var aside server.AsideList
	if err := json.Unmarshal([]byte(desk.types("quarantine --json")), &aside); err != nil {
		t.Fatal(err)
	}
	if aside.Held == 0 || aside.Held != len(aside.Entries) {
		t.Fatalf("held: %+v", aside)
	}
	for _, e := range aside.Entries {
		if e.State != "held" || e.Origin != "lap" || e.LeadMS != time.Hour.Milliseconds() || e.Release != timeOf(release) {
			t.Errorf("%+v; want lap's, an hour ahead, released at %s", e, timeOf(release))
		}
	}
	desk.types("quarantine", "lap", "1h0m0s", shortTime(timeOf(release)), "stamped 1h0m0s ahead of this machine's clock")
	desk.types("clock", "lap", "1h0m0s", shortTime(timeOf(release)), "1h0m0s ahead")
	if strings.Contains(desk.types("events list --stream project/x"), "zebrawood") {
		t.Error("desk lists what it holds")
	}

	desk.types("clock amend lap --dry-run", "lap", "1h0m0s", "would count as stamped "+shortTime(timeOf(now)))
	if desk.rep.Log().Held() == 0 {
		t.Error("a dry run amends")
	}
	desk.types("clock amend lap --yes", "amended lap up to seq ")
	desk.types("clock", "nothing is stamped further ahead")
	desk.types("quarantine", "nothing is held")
	converge(desk, lap)
	lap.until("lap's views show it", func() bool { return lap.rep.Log().AmendPending() == 0 })
	converge(desk, lap)
	for _, s := range []*site{desk, lap} {
		s.types("events list --stream project/x", shortTime(timeOf(now)), "zebrawood")
		s.until("the index shows it", func() bool {
			out, _, code := s.tally("search", "zebrawood")
			return code == 0 && strings.Contains(out, shortTime(timeOf(now))) && !strings.Contains(out, shortTime(timeOf(wrong)))
		})
	}
	lap.types("clock", "nothing is stamped further ahead")
	if out, errs, code := desk.tally("clock", "amend", "lap", "--yes"); code != exitNotFound {
		t.Errorf("amending again: exit %d\n%s%s", code, out, errs)
	}
}

func timeOf(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
