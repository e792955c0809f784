package replica

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tallystick/oplog"
)

// alone opens a replica that knows no addresses.
func alone(t testing.TB, cfg Config) *Replica {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(cfg.StateDir, peersFile)); err != nil {
		t.Fatal(err)
	}
	cfg.Peers = nil
	return mustOpen(t, cfg)
}

func mustClose(t testing.TB, rs ...*Replica) {
	t.Helper()
	for _, r := range rs {
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func mustRevoke(t testing.TB, r, gone *Replica, reason string) {
	t.Helper()
	if err := r.Revoke(testContext(t), gone.key, reason, ""); err != nil {
		t.Fatal(err)
	}
}

func standing(r *Replica, of *Replica) Standing {
	list, err := r.Departed()
	for _, d := range list {
		if d.Key == of.key && err == nil {
			return d.Ending.Standing
		}
	}
	return Current
}

// TestT2_RevokedIsRefusedAndHears: a replica is revoked while it is away and
// writes on. When it is back, no member takes it in or shows what it wrote, and
// it hears by whom it was revoked, and keeps that over a restart. What was known
// of it before stays.
func TestT2_RevokedIsRefusedAndHears(t *testing.T) {
	acfg, bcfg, ccfg := testConfig(t, "a"), testConfig(t, "b"), testConfig(t, "c")
	a := mustOpen(t, acfg)
	b := mustJoin(t, a, bcfg)
	c := mustJoin(t, a, ccfg)
	note(t, c, "before")
	converged(t, a, b, c)
	mustClose(t, c)
	mustRevoke(t, a, c, "left in a train")
	c = alone(t, ccfg)
	note(t, c, "meanwhile")
	mustClose(t, c)
	eventually(t, "the revoke at b", func() bool { return standing(b, c) == Revoked })

	for _, member := range []*Replica{b, a} {
		cfg := ccfg
		cfg.Peers = member.Addresses()
		if err := os.RemoveAll(filepath.Join(cfg.StateDir, endedFile)); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(cfg.StateDir, peersFile)); err != nil {
			t.Fatal(err)
		}
		c = mustOpen(t, cfg)
		eventually(t, "c to hear of it from "+member.Label(), func() bool {
			e, err := c.OwnEnding()
			return err == nil && e != nil
		})
		e, err := c.OwnEnding()
		if err != nil || e.Standing != Revoked || e.By != "a" || e.Reason != "left in a train" {
			t.Fatalf("heard %+v, %v", e, err)
		}
		if peerOf(t, c, member.Label()).Reachable {
			t.Errorf("%s speaks with c", member.Label())
		}
		mustClose(t, c)
	}
	c = alone(t, ccfg)
	if e, err := c.OwnEnding(); err != nil || e == nil || !strings.Contains(e.String(), "revoked by a at") {
		t.Fatalf("after a restart: %v, %v", e, err)
	}
	_, err := c.Append(testContext(t), oplog.Op{Kind: "note", Version: 1, Body: []byte{0xa1, 'x'}})
	if !errors.Is(err, &Error{Code: CodePeerRefused}) || !errors.Is(err, oplog.ErrEnded) {
		t.Errorf("writing when revoked: %v", err)
	}
	if got := noteTexts(t, c); !slices.Contains(got, "meanwhile") {
		t.Errorf("c no longer reads its own: %q", got)
	}
	converged(t, a, b)
	for _, r := range []*Replica{a, b} {
		if got := noteTexts(t, r); !slices.Contains(got, "before") || slices.Contains(got, "meanwhile") {
			t.Errorf("%s shows %q", r.Label(), got)
		}
		if len(r.Members()) != 2 {
			t.Errorf("%s has members %+v", r.Label(), r.Members())
		}
	}
}

// TestT2_WhatLiesBeyondTheCutIsUnfolded: b has folded what a, who revokes c, has
// never heard of. When b hears of the revoke, that leaves its views and is listed
// as beyond the cut; both agree.
func TestT2_WhatLiesBeyondTheCutIsUnfolded(t *testing.T) {
	acfg, bcfg, ccfg := testConfig(t, "a"), testConfig(t, "b"), testConfig(t, "c")
	a := mustOpen(t, acfg)
	b := mustJoin(t, a, bcfg)
	ccfg.Peers = b.Addresses() // a is away later
	c := mustJoin(t, a, ccfg)
	note(t, c, "before")
	converged(t, a, b, c)
	mustClose(t, a)
	for range 3 {
		note(t, c, "late")
	}
	converged(t, b, c)
	mustClose(t, b, c)
	a = alone(t, acfg)
	mustRevoke(t, a, c, "")
	cfg := bcfg
	cfg.Peers = a.Addresses()
	b = mustOpen(t, cfg)
	eventually(t, "b to take the late entries back", func() bool { return !slices.Contains(noteTexts(t, b), "late") })
	if got := noteTexts(t, b); !slices.Contains(got, "before") {
		t.Errorf("b shows %q", got)
	}
	note(t, b, "after")
	eventually(t, "the same views", func() bool { return digests(a) == digests(b) })
	asides, err := b.Log().Aside(10)
	if err != nil || len(asides) != 3 || !asides[0].Beyond || !strings.Contains(asides[0].Reason, "beyond cut") {
		t.Errorf("set aside: %+v, %v", asides, err)
	}
	v, err := b.Log().Verify(testContext(t), nil)
	if err != nil || len(v.Findings) > 0 {
		t.Errorf("verify: %+v, %v", v, err)
	}
	mustClose(t, b)
	b = mustOpen(t, cfg)
	if got := noteTexts(t, b); slices.Contains(got, "late") || !slices.Contains(got, "after") {
		t.Errorf("after a restart b shows %q", got)
	}
	eventually(t, "the same views after a restart", func() bool { return digests(a) == digests(b) })
}

// TestT2_Leave: a device leaves; the others hear, refuse it, keep what it wrote,
// and it writes no more.
func TestT2_Leave(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	b := mustJoin(t, a, testConfig(t, "b"))
	ccfg := testConfig(t, "c")
	c := mustJoin(t, a, ccfg)
	note(t, c, "mine")
	converged(t, a, b, c)
	heard, err := c.Leave(testContext(t))
	if err != nil || len(heard) == 0 {
		t.Fatalf("leave: heard by %v, %v", heard, err)
	}
	for _, r := range []*Replica{a, b} {
		eventually(t, "the leave at "+r.Label(), func() bool { return standing(r, c) == Left && len(r.Members()) == 2 })
	}
	if _, err := c.Append(testContext(t), oplog.Op{Kind: "note", Version: 1, Body: []byte{0xa1, 'x'}}); !errors.Is(err, oplog.ErrEnded) {
		t.Errorf("writing after the leave: %v", err)
	}
	if _, err := c.Leave(testContext(t)); !errors.Is(err, oplog.ErrEnded) {
		t.Errorf("leaving twice: %v", err)
	}
	mustClose(t, c)
	c = mustOpen(t, ccfg)
	if e, err := c.OwnEnding(); err != nil || e == nil || e.Standing != Left || !e.Known {
		t.Errorf("after a restart: %+v, %v", e, err)
	}
	converged(t, a, b)
	if got := noteTexts(t, a); !slices.Contains(got, "mine") {
		t.Errorf("a shows %q", got)
	}
}

// TestT2_GossipKeyIsTurned: after a revoke the members have another gossip key,
// also who hears of it by way of others, and the one that is out has not.
func TestT2_GossipKeyIsTurned(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	b := mustJoin(t, a, testConfig(t, "b"))
	dcfg := testConfig(t, "d")
	d := mustJoin(t, b, dcfg)
	c := mustJoin(t, a, testConfig(t, "c"))
	converged(t, a, b, c, d)
	key := func(r *Replica) gossipKey {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.gtold
	}
	before := key(a)
	eventually(t, "one gossip key", func() bool { return key(b) == before && key(c) == before && key(d) == before })
	mustRevoke(t, a, c, "")
	for _, r := range []*Replica{a, b, d} {
		eventually(t, "the new key at "+r.Label(), func() bool { return key(r) != before && key(r) == key(a) })
	}
	if key(c) != before {
		t.Error("c was told the new key")
	}
	left := key(a)
	if _, err := d.Leave(testContext(t)); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*Replica{a, b} {
		eventually(t, "the key after the leave at "+r.Label(), func() bool { return key(r) != left && key(r) == key(a) })
	}
	if key(d) != left {
		t.Error("d was told the new key")
	}
	eventually(t, "the key in a's file", func() bool { return loadGossipKey(&a.cfg, a.logger) == key(a) })
}
