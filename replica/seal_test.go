package replica

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"tallystick/oplog"
)

// former gives the incarnation o as a replica's horizon shows it.
func former(r *Replica, o oplog.OriginID) OriginHorizon {
	for _, m := range r.Horizon().Members {
		for _, h := range m.Origins {
			if h.ID == o {
				return h
			}
		}
	}
	return OriginHorizon{}
}

// putBack runs b on its own, then puts an earlier copy of its store back, and
// opens it again: under a new incarnation (L7a).
func putBack(t *testing.T, b *Replica, cfg Config, between func()) (again *Replica, old oplog.OriginID) {
	t.Helper()
	old = b.Self().ID
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	backup := filepath.Join(t.TempDir(), "backup")
	if err := os.CopyFS(backup, os.DirFS(cfg.Dir)); err != nil {
		t.Fatal(err)
	}
	between()
	// Moved, not removed: a directory made anew may get the inode of one that is
	// gone, and an equal store in an equal place is in no doubt.
	if err := os.Rename(cfg.Dir, filepath.Join(filepath.Dir(backup), "gone")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(cfg.Dir, os.DirFS(backup)); err != nil {
		t.Fatal(err)
	}
	again = mustOpen(t, cfg)
	if again.Self().ID == old {
		t.Fatal("the restored store goes on in the old incarnation")
	}
	return again, old
}

// TestL7d_SealAfterEveryMemberHeard: a device that was put back seals its former
// incarnation only once every member has told what it holds of it: c, which
// alone had its last entries, is away at first. Then the former log counts as
// settled on all (K4), with its last entry.
func TestL7d_SealAfterEveryMemberHeard(t *testing.T) {
	acfg, bcfg, ccfg := testConfig(t, "a"), testConfig(t, "b"), testConfig(t, "c")
	a := mustOpen(t, acfg)
	b := mustJoin(t, a, bcfg)
	c := mustJoin(t, a, ccfg)
	note(t, b, "before the backup")
	converged(t, a, b, c)
	if err := a.Close(); err != nil { // a does not hear what comes between
		t.Fatal(err)
	}
	var last uint64
	b, old := putBack(t, b, bcfg, func() {
		cfg := bcfg
		cfg.Peers = c.Addresses()
		b := mustOpen(t, cfg)
		note(t, b, "after the backup")
		converged(t, b, c)
		last = c.Log().Frontier().Seq(b.Self().ID)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	})
	acfg.Peers = b.Addresses()
	a = mustOpen(t, acfg)
	note(t, b, "after the restore")
	converged(t, a, b)
	for range 3 { // nothing stands in its way but c
		if err := b.sealFormer(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range []*Replica{a, b} {
		if h := former(r, old); h.Sealed {
			t.Fatalf("%s: sealed at seq %d while c was not heard", r.Label(), h.Seq)
		}
	}
	ccfg.Peers = b.Addresses()
	c = mustOpen(t, ccfg)
	for _, r := range []*Replica{a, b, c} {
		eventually(t, "the seal at "+r.Label(), func() bool { h := former(r, old); return h.Sealed && h.Complete })
		if h := former(r, old); h.Seq != last {
			t.Errorf("%s: sealed at seq %d, want %d", r.Label(), h.Seq, last)
		}
		if seals, err := r.seals(); err != nil || len(seals) != 1 || len(seals[old]) != 1 || seals[old][0].Seq != last {
			t.Errorf("%s: seals %v", r.Label(), seals)
		}
	}
	converged(t, a, b, c)
	if h := former(b, b.Self().ID); h.Sealed {
		t.Error("the incarnation that writes is sealed")
	}
}

// TestL7d_AloneSealsAtOnce: without other members there is nobody to hear, and
// a second start writes no second seal.
func TestL7d_AloneSealsAtOnce(t *testing.T) {
	cfg := testConfig(t, "a")
	a := mustOpen(t, cfg)
	note(t, a, "before")
	a, old := putBack(t, a, cfg, func() {})
	eventually(t, "the seal", func() bool { return former(a, old).Sealed })
	if h := former(a, old); !h.Complete {
		t.Errorf("%+v", h)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	a = mustOpen(t, cfg)
	if err := a.sealFormer(testContext(t)); err != nil {
		t.Fatal(err)
	}
	n := 0
	err := a.Log().View(func(s oplog.Snapshot) error {
		return s.Arrived(0, false, func(_ uint64, e *oplog.Entry) (bool, error) {
			if e.Kind == KindSeal {
				n++
			}
			return true, nil
		})
	})
	if err != nil || n != 1 {
		t.Errorf("%d seals, %v", n, err)
	}
}

// TestL7d_OnlyItsDeviceSeals: a seal of another device's incarnation, or of the
// one that writes it, is quarantined.
func TestL7d_OnlyItsDeviceSeals(t *testing.T) {
	f, _ := founded(t)
	b := newDevice(t, 'b')
	self := f.log.Self()
	tip := self.Tips[0]
	theirs := b.log.Self()
	for name, op := range map[string]func() (oplog.Op, error){
		"of itself":      func() (oplog.Op, error) { return sealOp(&self, &self, tip) },
		"as another":     func() (oplog.Op, error) { return sealOp(&theirs, &self, tip) },
		"of another's":   func() (oplog.Op, error) { return sealOp(&theirs, &oplog.Origin{Incarnation: self.Incarnation}, tip) },
		"without an end": func() (oplog.Op, error) { return sealOp(&self, &theirs, oplog.Tip{}) },
		"of a wrong size": func() (oplog.Op, error) {
			return oplog.Op{Kind: KindSeal, Version: 1, Body: []byte{0x95, 0xc4, 0, 0xc4, 0, 0xc4, 0, 1, 0xc4, 0}}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := op()
			if err != nil {
				t.Fatal(err)
			}
			o.OpID = ""
			if _, err := f.log.Append(testContext(t), o); err == nil {
				t.Error("taken")
			}
		})
	}
}

// TestL7d_M1_SealsInAnyOrder: the seals of a forked incarnation make one and the
// same view in any order.
func TestL7d_M1_SealsInAnyOrder(t *testing.T) {
	f, mesh := founded(t)
	self := f.log.Self()
	gone := oplog.Origin{ID: oplog.OriginOf(self.Key, oplog.Incarnation{7}), Key: self.Key, Incarnation: oplog.Incarnation{7}}
	tips := []oplog.Tip{{Seq: 4, Hash: oplog.Hash{1}}, {Seq: 9, Hash: oplog.Hash{2}}, {Seq: 9, Hash: oplog.Hash{3}}}
	for _, at := range []int{1, 2, 0} {
		op, err := sealOp(&self, &gone, tips[at])
		if err == nil {
			_, err = f.log.Append(testContext(t), op)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	read := func(log *oplog.Log) (seals map[oplog.OriginID][]oplog.Tip) {
		if err := log.View(func(s oplog.Snapshot) (err error) { seals, err = SealsIn(s); return err }); err != nil {
			t.Fatal(err)
		}
		return seals
	}
	if got := read(f.log)[gone.ID]; !slices.Equal(got, tips) {
		t.Errorf("seals %v, want %v", got, tips)
	}
	m := NewMembership(mesh)
	log, err := oplog.Open(testContext(t), oplog.Config{InMemory: true, Signer: newKey(t), Gate: m, Projections: []oplog.Projection{m, notes{}}})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	for _, r := range f.ranges(t) {
		if _, err := log.Ingest(testContext(t), r); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(log)[gone.ID]; !slices.Equal(got, tips) {
		t.Errorf("elsewhere %v, want %v", got, tips)
	}
	if a, b := f.log.Views()[0], log.Views()[0]; a != b {
		t.Errorf("views %+v and %+v", a, b)
	}
}
