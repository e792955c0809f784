package server

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tallystick/hlc"
	"tallystick/oplog"
	"tallystick/query"
	"tallystick/query/claim"
	"tallystick/query/search"
)

// env is a service over a real log in memory, with a mesh of one more member
// that tests speak for.
type env struct {
	t    *testing.T
	log  *oplog.Log
	svc  *Service
	mesh *testMesh
	wall *atomic.Int64
}

const testWall = 1_790_000_000_000 // unix ms of the tests' clock

var (
	claude = Session{Agent: "claude", Project: "tally", Bound: true}
	codex  = Session{Agent: "codex", Project: "tally", Bound: true}
)

func newEnv(t *testing.T) *env { return newEnvOf(t, 7) }

// newEnvOf is newEnv on another device.
func newEnvOf(t *testing.T, device byte) *env {
	t.Helper()
	wall := &atomic.Int64{}
	wall.Store(testWall)
	projections, _ := query.Default()
	seed := make([]byte, ed25519.SeedSize)
	seed[0] = device
	log, err := oplog.Open(t.Context(), oplog.Config{
		InMemory: true, Signer: ed25519.NewKeyFromSeed(seed), Wall: wall.Load, Projections: projections,
		Rand: rand.NewChaCha8([32]byte{device}), MinFree: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	mesh := &testMesh{log: log, wall: wall, label: "mac"}
	index, err := search.Open(t.Context(), search.Config{Log: log, Sources: query.Sources()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { index.Close() })
	svc, err := New(Deps{Log: log, Blobs: log, Mesh: mesh, Search: index, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return &env{t: t, log: log, svc: svc, mesh: mesh, wall: wall}
}

// do calls a tool and fails the test when it is refused.
func (e *env) do(s Session, tool, args string) map[string]any {
	e.t.Helper()
	out, bad := e.svc.Call(e.t.Context(), s, tool, json.RawMessage(args), "")
	if bad != nil {
		e.t.Fatalf("%s %s: %s", tool, args, bad.JSON())
	}
	return parse(e.t, out)
}

// refused calls a tool that must be refused.
func (e *env) refused(s Session, tool, args string) *Error {
	e.t.Helper()
	out, bad := e.svc.Call(e.t.Context(), s, tool, json.RawMessage(args), "")
	if bad == nil {
		e.t.Fatalf("%s %s: answered %s", tool, args, out)
	}
	if bad.Message == "" || bad.Hint == "" || len(bad.Message) > 500 {
		e.t.Errorf("%s %s: error without message or hint: %s", tool, args, bad.JSON())
	}
	return bad
}

func parse(t *testing.T, raw []byte) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(raw, &m); err != nil {
		t.Fatalf("result is no object: %v: %s", err, raw)
	}
	return m
}

// entries is how many entries the log holds.
func (e *env) entries() uint64 { return e.log.Frontier().Total() }

type testMesh struct {
	log   *oplog.Log
	wall  *atomic.Int64
	label string

	mu    sync.Mutex
	other hlc.Timestamp // floor of the other member
	holds bool          // whether the other member has everything
	gone  bool          // there is no other member
}

func (m *testMesh) Self() Self {
	return Self{Label: m.label, Replica: "rep_" + m.log.Self().ID.String(), Mesh: "mesh_00"}
}

func (m *testMesh) LabelOf(o oplog.OriginID) string {
	if o == m.log.Self().ID {
		return m.label
	}
	return ""
}

func (m *testMesh) set(fn func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fn()
}

func (m *testMesh) Spread(oplog.Ref) (durableOn, notYet []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.gone:
		return []string{m.label}, nil
	case m.holds:
		return []string{m.label, "nas"}, nil
	}
	return []string{m.label}, []string{"nas"}
}

func (m *testMesh) Horizon() claim.Horizon {
	m.mu.Lock()
	defer m.mu.Unlock()
	self := m.log.Self()
	h := claim.Horizon{Now: time.UnixMilli(m.wall.Load()), Self: self.ID, Members: []claim.MemberFloor{
		{Label: m.label, Origin: self.ID, Floor: self.Head.Floor, Complete: true, Self: true},
	}}
	if !m.gone {
		h.Members = append(h.Members, claim.MemberFloor{Label: "nas", Origin: oplog.OriginID{9}, Floor: m.other, Complete: true})
	}
	return h
}

func (m *testMesh) Status(context.Context) (Status, error) {
	return Status{
		Peers: []Peer{
			{Label: "nas", ID: "rep_09", Reachable: true, LastSeen: time.UnixMilli(testWall), EntriesBehind: 3, Address: "192.0.2.1:7717", OffsetMillis: -12},
			{Label: "old", ID: "rep_0a", Error: "connection refused"},
		},
		Clock: Clock{HLC: hlc.Stamp{Timestamp: m.log.Clock().Last(), Origin: m.log.Self().ID.Short()}.String(), Wall: time.UnixMilli(m.wall.Load()), Bound: 10 * time.Minute},
		Held:  1, Aside: []Aside{{ID: "evt_x", Held: true, Kind: "event", Origin: "nas", Reason: "its clock is 3 h ahead"}},
		Views: m.log.Views(),
	}, nil
}

// yieldNow lets other goroutines run.
func yieldNow() { runtime.Gosched() }
