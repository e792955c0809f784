package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"tallystick/oplog"
	"tallystick/query"
	"tallystick/query/merges"
	"tallystick/replica"
	"tallystick/server"
)

// site is a real replica with the service in front of it, in this process.
type site struct {
	t    *testing.T
	cfg  replica.Config
	wall *atomic.Int64 // what its clock is ahead, in milliseconds
	rep  *replica.Replica
	svc  *server.Service
}

func newSite(t *testing.T, label string) *site {
	t.Helper()
	ahead := &atomic.Int64{}
	projections, reactors := query.Default()
	dir := t.TempDir()
	return &site{t: t, wall: ahead, cfg: replica.Config{
		Dir: filepath.Join(dir, "data"), StateDir: filepath.Join(dir, "state"), Label: label, Listen: "127.0.0.1:0", Static: true,
		Projections: projections, Reactors: adaptReactors(reactors), MinFree: -1,
		Wall: func() int64 { return time.Now().UnixMilli() + ahead.Load() },
		Timing: replica.Timing{
			Tick: 20 * time.Millisecond, React: 50 * time.Millisecond, RedialMin: 20 * time.Millisecond, RedialMax: 200 * time.Millisecond,
		},
	}}
}

func (s *site) open() {
	s.t.Helper()
	rep, err := replica.Open(s.t.Context(), s.cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.cfg.Listen = rep.ListenAddr() // where the other finds it again
	s.rep = rep
	s.svc, err = server.New(server.Deps{
		Log: rep, Mesh: mesh{rep}, Version: "test", Translate: translate, AskFloor: func(ref oplog.Ref) { rep.AskFloor(ref.Time()) },
		Clashes: func() []merges.LabelClash { return clashes(rep) }, Moves: func() []merges.LabelMove { return moves(rep) },
		Formerly: func() []merges.LabelMove { return formerly(rep) }, Rename: rename(rep),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(s.close)
}

func (s *site) close() {
	if s.rep == nil {
		return
	}
	if err := s.rep.Close(); err != nil {
		s.t.Errorf("close %s: %v", s.cfg.Label, err)
	}
	s.rep = nil
}

// pair is two replicas of one mesh that are connected.
func pair(t *testing.T) (desk, lap *site) {
	t.Helper()
	desk, lap = newSite(t, "desk"), newSite(t, "lap")
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
	return desk, lap
}

// agent is a session of a client in the project x.
func agent(name string) server.Session { return server.Session{Agent: name, Project: "x", Bound: true} }

func (s *site) call(who server.Session, tool, args string) (map[string]any, *server.Error) {
	s.t.Helper()
	out, bad := s.svc.Call(s.t.Context(), who, tool, json.RawMessage(args), "")
	if bad != nil {
		return nil, bad
	}
	var m map[string]any
	if err := json.Unmarshal(out, &m); err != nil {
		s.t.Fatal(err)
	}
	return m, nil
}

func (s *site) do(who server.Session, tool, args string) map[string]any {
	s.t.Helper()
	m, bad := s.call(who, tool, args)
	if bad != nil {
		s.t.Fatalf("%s: %s %s: %s", s.cfg.Label, tool, args, bad.JSON())
	}
	return m
}

func (s *site) refused(who server.Session, tool, args string, code server.Code) {
	s.t.Helper()
	if m, bad := s.call(who, tool, args); bad == nil || bad.Code != code {
		s.t.Errorf("%s: %s %s: %v, %v; want %s", s.cfg.Label, tool, args, m, bad, code)
	}
}

// request asks for a task and returns the request's id.
func (s *site) request(who server.Session, more string) string {
	s.t.Helper()
	return s.do(who, "event_append", `{"type":"task.request","stream":"project/x","room":"delegation","status":"open"`+more+`}`)["event"].(map[string]any)["id"].(string)
}

func (s *site) ack(who server.Session, id, status string) map[string]any {
	s.t.Helper()
	return s.do(who, "event_ack", `{"event_id":"`+id+`","status":"`+status+`"}`)
}

// claim is the live claim of the one task of a stream, nil when it is free.
func (s *site) claim(correlation string) map[string]any {
	s.t.Helper()
	m := s.do(server.Session{}, "claim_list", `{"correlation_id":"`+correlation+`"}`)
	list := m["claims"].([]any)
	if len(list) > 1 {
		s.t.Errorf("%s: %d live claims of one task", s.cfg.Label, len(list))
	}
	if len(list) == 0 {
		return nil
	}
	return list[0].(map[string]any)
}

// until waits on commits, and on a ticker for what no commit tells, such as
// floors, until ok holds.
func (s *site) until(what string, ok func() bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		changed := s.rep.Changed()
		if ok() {
			return
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			s.t.Fatalf("%s: never came about: %s", s.cfg.Label, what)
		}
	}
}

// converge waits until both hold the same and agree on every view.
//
// A commit can be read a moment before the frontier tells of it, so what a test
// has just read need not be in the frontier yet: the positions are read too.
func converge(a, b *site) {
	a.t.Helper()
	views := func(s *site) string { return fmt.Sprint(s.rep.Log().Views()) }
	visible := func(s *site) (text string) {
		if err := s.rep.View(func(snap oplog.Snapshot) error {
			at, err := snap.(interface {
				Positions() ([]oplog.Position, error)
			}).Positions()
			slices.SortFunc(at, func(x, y oplog.Position) int { return bytes.Compare(x.Origin[:], y.Origin[:]) })
			text = fmt.Sprint(at)
			return err
		}); err != nil {
			a.t.Fatal(err)
		}
		return text
	}
	a.until("convergence", func() bool {
		return visible(a) == visible(b) && a.rep.Log().Frontier().Digest() == b.rep.Log().Frontier().Digest() && views(a) == views(b)
	})
}
