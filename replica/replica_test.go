package replica

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"tallystick/oplog"
)

// notes is a small domain for the tests: kind "note", the body kept by Ref.
type notes struct{}

func (notes) Name() string    { return "notes" }
func (notes) Version() uint32 { return 1 }
func (notes) Kinds() []string { return []string{"note"} }
func (notes) Apply(tx oplog.Tx, e *oplog.Entry) error {
	ref := e.Ref()
	return tx.Insert(ref[:], e.Body)
}

// quick are intervals for tests on loopback.
var quick = Timing{Tick: 20 * time.Millisecond, React: 100 * time.Millisecond, Handshake: 5 * time.Second, Idle: 5 * time.Second,
	Write: 5 * time.Second, RedialMin: 30 * time.Millisecond, RedialMax: 300 * time.Millisecond}

// testConfig is a home below t.TempDir.
func testConfig(t testing.TB, label string) Config {
	t.Helper()
	dir := t.TempDir()
	return Config{Dir: filepath.Join(dir, "data"), StateDir: filepath.Join(dir, "state"), Label: label, Listen: "127.0.0.1:0",
		Static: true, Projections: []oplog.Projection{notes{}}, Timing: quick, MinFree: -1, Logger: testLogger(t, label)}
}

// testLogger logs until the test has ended.
func testLogger(t testing.TB, label string) *slog.Logger {
	var over atomic.Bool
	t.Cleanup(func() { over.Store(true) })
	return slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
		if !over.Load() && testing.Verbose() {
			t.Logf("%s: %s", label, b)
		}
		return len(b), nil
	}), &slog.HandlerOptions{Level: slog.LevelInfo}))
}

type writerFunc func(b []byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func mustOpen(t testing.TB, cfg Config) *Replica {
	t.Helper()
	r, err := Open(testContext(t), cfg)
	if err != nil {
		t.Fatalf("open %s: %v", cfg.Label, err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close %s: %v", cfg.Label, err)
		}
	})
	return r
}

// mustJoin joins cfg's home by way of an inviter and opens it.
func mustJoin(t testing.TB, inviter *Replica, cfg Config) *Replica {
	t.Helper()
	inv, err := inviter.Invite(testContext(t), InviteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Join(testContext(t), cfg, inv.Token); err != nil {
		t.Fatalf("join %s: %v", cfg.Label, err)
	}
	return mustOpen(t, cfg)
}

func note(t testing.TB, r *Replica, text string) oplog.Appended {
	t.Helper()
	body := append([]byte{0xd9, byte(len(text))}, text...)
	res, err := r.Append(testContext(t), oplog.Op{Kind: "note", Author: r.Label() + ":tester:repo", Version: 1, Body: body})
	if err != nil {
		t.Fatalf("append: %v", err)
	}
	return res[0]
}

// digests are the views of a replica, as "name rows digest".
func digests(r *Replica) string {
	s := ""
	for _, v := range r.Log().Views() {
		s += fmt.Sprintf("%s %d %s; ", v.Name, v.Rows, v.Digest)
	}
	return s
}

// eventually waits on commits and a ticker until ok holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(40 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never came about: %s", what)
		}
	}
}

// converged waits until all replicas hold the same and agree on every view.
func converged(t testing.TB, rs ...*Replica) {
	t.Helper()
	eventually(t, "convergence", func() bool {
		for _, r := range rs[1:] {
			if r.Log().Frontier().Digest() != rs[0].Log().Frontier().Digest() || digests(r) != digests(rs[0]) || r.Log().Held() != 0 {
				return false
			}
		}
		return rs[0].Log().Held() == 0
	})
}

func TestConvergeTwo(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	note(t, a, "before")
	b := mustJoin(t, a, testConfig(t, "b"))
	for i := range 20 {
		note(t, a, fmt.Sprint("a", i))
		note(t, b, fmt.Sprint("b", i))
	}
	converged(t, a, b)
	if got := a.Log().Frontier().Total(); got < 41 {
		t.Errorf("%d entries in all, want at least 41", got)
	}
}
