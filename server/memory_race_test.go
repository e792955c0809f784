package server

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"tallystick/oplog"
	"tallystick/query"
	"tallystick/query/search"
)

// secondEnv is another replica, whose log a test copies by hand.
func secondEnv(t *testing.T) *env {
	t.Helper()
	wall := &atomic.Int64{}
	wall.Store(testWall)
	projections, _ := query.Default()
	seed := make([]byte, ed25519.SeedSize)
	seed[0] = 8
	log, err := oplog.Open(t.Context(), oplog.Config{
		InMemory: true, Signer: ed25519.NewKeyFromSeed(seed), Wall: wall.Load, Projections: projections,
		Rand: rand.NewChaCha8([32]byte{2}), MinFree: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	index, err := search.Open(t.Context(), search.Config{Log: log, Sources: query.Sources()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { index.Close() })
	mesh := &testMesh{log: log, wall: wall, label: "nas"}
	svc, err := New(Deps{Log: log, Mesh: mesh, Search: index, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return &env{t: t, log: log, svc: svc, mesh: mesh, wall: wall}
}

// pull copies what from holds and to lacks.
func pull(to, from *oplog.Log) error {
	for _, o := range from.Origins() {
		for {
			r, err := from.ReadRange(o.ID, to.Frontier().Seq(o.ID), 4096)
			if err != nil {
				return err
			}
			if r.Count == 0 {
				break
			}
			if _, err := to.Ingest(context.Background(), r); err != nil {
				return err
			}
		}
	}
	return nil
}

// TestM1_ForgetNeverResurrects: facts are forgotten while two hundred searches
// run and two replicas copy from each other, one of which still adds copies
// stamped before the forget. Whoever asks after the forget was answered never
// sees the fact again, on either replica.
func TestM1_ForgetNeverResurrects(t *testing.T) {
	const facts, searches = 20, 200
	a, b := newEnv(t), secondEnv(t)
	for i := range facts {
		args := fmt.Sprintf(`{"agent_id":"team","text":"zebra number%d"}`, i)
		a.do(claude, "memory_add", args)
		b.do(codex, "memory_add", args) // a copy that a has not seen when it forgets
	}
	var forgotten [facts]atomic.Bool
	var wg sync.WaitGroup
	see := func(e *env, text string, i int) error {
		gone := forgotten[i].Load() // before the search begins
		out, bad := e.svc.Call(context.Background(), claude, "memory_search", json.RawMessage(fmt.Sprintf(`{"agent_id":"team","query":"number%d","include_superseded":true}`, i)), "")
		if bad != nil {
			return bad
		}
		if gone && strings.Contains(string(out), text) {
			return fmt.Errorf("%s shows %q after it was forgotten: %s", e.mesh.label, text, out)
		}
		return nil
	}
	fails := make(chan error, 3*searches)
	for w := range 4 {
		wg.Go(func() {
			for n := range searches / 4 {
				i := (n*7 + w) % facts
				if err := see(a, fmt.Sprintf(`"zebra number%d"`, i), i); err != nil {
					fails <- err
				}
			}
		})
	}
	wg.Go(func() {
		for range 50 {
			if err := pull(a.log, b.log); err != nil {
				fails <- err
			}
			if err := pull(b.log, a.log); err != nil {
				fails <- err
			}
		}
	})
	wg.Go(func() {
		for i := range facts {
			if _, bad := a.svc.Call(context.Background(), claude, "memory_reflect", json.RawMessage(fmt.Sprintf(`{"action":"forget","agent_id":"team","target":"zebra number%d"}`, i)), ""); bad != nil {
				fails <- bad
			}
			forgotten[i].Store(true)
		}
	})
	wg.Wait()
	close(fails)
	for err := range fails {
		t.Fatal(err)
	}
	if err := pull(b.log, a.log); err != nil {
		t.Fatal(err)
	}
	for i := range facts {
		for _, e := range []*env{a, b} {
			if err := see(e, fmt.Sprintf(`"zebra number%d"`, i), i); err != nil {
				t.Error(err)
			}
		}
	}
	if x, y := viewDigest(a.log, "memory"), viewDigest(b.log, "memory"); x != y {
		t.Errorf("digests %s and %s", x, y)
	}
	a.do(claude, "memory_add", `{"agent_id":"team","text":"zebra number0"}`) // said again on purpose
	if r := a.do(claude, "memory_search", `{"agent_id":"team","query":"number0"}`); r["count"] != 1.0 {
		t.Errorf("said again, it is not found: %v", r)
	}
}

func viewDigest(l *oplog.Log, name string) string {
	for _, v := range l.Views() {
		if v.Name == name {
			return v.Digest
		}
	}
	return ""
}
