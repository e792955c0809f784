package replica

import (
	"context"
	"crypto/ed25519"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tallystick/oplog"
)

// revokes lets a device revoke another whose log is cut at the tips that this
// one has been shown, here the present ones.
func (d *device) revokes(t testing.TB, of *device, cuts []cutBody) {
	t.Helper()
	op, err := revokeOp(of.key, cuts, "")
	d.append(t, op, err)
}

// cuts are the present cuts of a device's own log.
func (d *device) cuts() []cutBody { return cutsAt(d.log, d.key, oplog.OriginID{}) }

func (d *device) leaves(t testing.TB) {
	t.Helper()
	op, err := leaveOp(d.log.Self(), nil)
	d.append(t, op, err)
}

// folded ingests everything the devices wrote, in a random order, into a log of
// a replica that is new, and lets endings act.
func folded(t testing.TB, mesh MeshID, rng *rand.Rand, devices ...*device) *oplog.Log {
	t.Helper()
	log := reader(t, mesh)
	queues := make([][]oplog.Range, len(devices))
	for i, d := range devices {
		queues[i] = d.ranges(t)
	}
	for left := len(queues); left > 0; {
		i := rng.IntN(len(queues))
		if len(queues[i]) == 0 {
			continue
		}
		if _, err := log.Ingest(context.Background(), queues[i][0]); err != nil {
			t.Fatal(err)
		}
		if queues[i] = queues[i][1:]; len(queues[i]) == 0 {
			left--
		}
		if rng.IntN(3) == 0 {
			applied(t, log)
		}
	}
	applied(t, log)
	return log
}

func applied(t testing.TB, log *oplog.Log) {
	t.Helper()
	if err := log.ApplyEndings(testContext(t)); err != nil {
		t.Fatal(err)
	}
}

// standings are "founder member; bee revoked; ...", by device.
func standings(t testing.TB, log *oplog.Log, devices ...*device) string {
	t.Helper()
	s := ""
	err := log.View(func(snap oplog.Snapshot) error {
		ended, err := EndingsIn(snap)
		if err != nil {
			return err
		}
		members, err := MembersIn(snap)
		if err != nil {
			return err
		}
		for i, d := range devices {
			word := "stranger"
			if e, ok := ended[d.key]; ok {
				word = e.Standing.String()
			}
			if slices.ContainsFunc(members, func(m Member) bool { return m.Key == d.key }) {
				if word != "stranger" {
					t.Errorf("device %d is a member and %s", i, word)
				}
				word = "member"
			}
			s += word + "; "
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func visibleNotes(t testing.TB, log *oplog.Log) (n int) {
	t.Helper()
	err := log.View(func(s oplog.Snapshot) error {
		return s.View("notes").Scan(nil, nil, false, func(_, _ []byte) (bool, error) { n++; return true, nil })
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// sameEverywhere folds what the devices wrote in many orders and wants the same
// standings, notes and views each time.
func sameEverywhere(t *testing.T, mesh MeshID, want string, notes int, devices ...*device) {
	t.Helper()
	first := ""
	rng := rand.New(rand.NewPCG(1, 2))
	for range 12 {
		log := folded(t, mesh, rng, devices...)
		if got := standings(t, log, devices...); got != want {
			t.Fatalf("standings %s\nwant      %s", got, want)
		}
		if got := visibleNotes(t, log); got != notes {
			asides, _ := log.Aside(20)
			t.Fatalf("%d notes visible, want %d; aside %+v", got, notes, asides)
		}
		if got := viewsOf(log); first == "" {
			first = got
		} else if got != first {
			t.Fatalf("views differ: %s and %s", first, got)
		}
		if v, err := log.Verify(testContext(t), nil); err != nil || len(v.Findings) > 0 {
			t.Fatalf("verify: %+v, %v", v, err)
		}
	}
}

// TestT2_M1_RevokesInAnyOrder: whatever the order in which entries and revokes
// arrive, and however often endings are applied in between, the views are the
// same; what lies beyond the cut is in none, and the furthest of two cuts counts.
func TestT2_M1_RevokesInAnyOrder(t *testing.T) {
	f, mesh := founded(t)
	b, c := newDevice(t, 'b'), newDevice(t, 'c')
	f.admits(t, b.key, "bee")
	f.admits(t, c.key, "cee")
	b.says(t, "bee")
	c.says(t, "cee")
	c.notes(t, "cee:agent:repo")
	near := c.cuts()
	c.notes(t, "cee:agent:repo")
	far := c.cuts()
	c.notes(t, "cee:agent:repo") // void by both
	f.revokes(t, c, near)
	f.notes(t, "founder:agent:repo")
	b.revokes(t, c, far)
	b.notes(t, "bee:agent:repo")
	c.notes(t, "cee:agent:repo")
	sameEverywhere(t, mesh, "member; member; revoked; ", 4, f, b, c)
}

// TestT2_OfTwoThatRevokeEachOtherTheEarlierStands: the later revoke lies beyond
// the cut of the earlier one.
func TestT2_OfTwoThatRevokeEachOtherTheEarlierStands(t *testing.T) {
	f, mesh := founded(t)
	b := newDevice(t, 'b')
	f.admits(t, b.key, "bee")
	b.says(t, "bee")
	fcuts := f.cuts()
	f.revokes(t, b, b.cuts())
	b.revokes(t, f, fcuts)
	b.notes(t, "bee:agent:repo")
	f.notes(t, "founder:agent:repo")
	sameEverywhere(t, mesh, "member; revoked; ", 1, f, b)
}

// TestT2_SuspendedUntilReadmitted: who was admitted beyond the cut, and who that
// one admitted, is suspended, its log kept; another admission brings it back.
func TestT2_SuspendedUntilReadmitted(t *testing.T) {
	f, mesh := founded(t)
	b, c, d := newDevice(t, 'b'), newDevice(t, 'c'), newDevice(t, 'd')
	f.admits(t, b.key, "bee")
	b.says(t, "bee")
	cuts := b.cuts()
	b.admits(t, c.key, "cee")
	c.says(t, "cee")
	c.notes(t, "cee:agent:repo")
	c.admits(t, d.key, "dee")
	d.says(t, "dee")
	d.notes(t, "dee:agent:repo")
	f.revokes(t, b, cuts)
	sameEverywhere(t, mesh, "member; revoked; suspended; suspended; ", 0, f, b, c, d)
	f.admits(t, d.key, "dee")
	sameEverywhere(t, mesh, "member; revoked; suspended; member; ", 1, f, b, c, d)
	f.admits(t, c.key, "cee")
	sameEverywhere(t, mesh, "member; revoked; member; member; ", 2, f, b, c, d)
}

// TestT2_UnlistedIncarnationsAreVoid: a revoke that knows nothing of a device
// leaves nothing of it, and a leave does not reach further than a revoke.
func TestT2_UnlistedIncarnationsAreVoid(t *testing.T) {
	f, mesh := founded(t)
	b := newDevice(t, 'b')
	f.admits(t, b.key, "bee")
	b.says(t, "bee")
	b.notes(t, "bee:agent:repo")
	f.revokes(t, b, nil)
	b.leaves(t)
	sameEverywhere(t, mesh, "member; revoked; ", 0, f, b)
}

// TestT2_LeaveEndsItsLog: what a device writes after its leave does not count,
// and its leave after that neither.
func TestT2_LeaveEndsItsLog(t *testing.T) {
	f, mesh := founded(t)
	b := newDevice(t, 'b')
	f.admits(t, b.key, "bee")
	b.says(t, "bee")
	b.notes(t, "bee:agent:repo")
	b.leaves(t)
	b.notes(t, "bee:agent:repo") // its program does not keep its word
	sameEverywhere(t, mesh, "member; left; ", 1, f, b)
}

// onDisk opens a device's log in a folder, so that it can be copied.
func onDisk(t testing.TB, seed byte, dir string) *device {
	t.Helper()
	priv := ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune(seed)), ed25519.SeedSize)))
	log, err := oplog.Open(testContext(t), oplog.Config{Dir: dir, Signer: priv, MinFree: -1, Wall: func() int64 { return testWall.Add(1) },
		Projections: []oplog.Projection{NewMembership(MeshID{}), notes{}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	return &device{oplog.DeviceKey(priv.Public().(ed25519.PublicKey)), log}
}

// TestT2_ForkBelowTheCutIsVoid: a thief forks the log below the cut. The seqs of
// his branch are below it, and yet it does not count, in whatever order it came.
func TestT2_ForkBelowTheCutIsVoid(t *testing.T) {
	f, mesh := founded(t)
	dir := t.TempDir()
	b := onDisk(t, 'b', filepath.Join(dir, "b"))
	f.admits(t, b.key, "bee")
	b.says(t, "bee")
	b.notes(t, "bee:agent:repo")
	if err := b.log.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "thief"), os.DirFS(filepath.Join(dir, "b"))); err != nil {
		t.Fatal(err)
	}
	b = onDisk(t, 'b', filepath.Join(dir, "b"))
	thief := onDisk(t, 'b', filepath.Join(dir, "thief"))
	x := newDevice(t, 'x')
	thief.notes(t, "bee:agent:repo")
	thief.admits(t, x.key, "ex")
	x.says(t, "ex")
	x.notes(t, "ex:agent:repo")
	for range 3 {
		b.notes(t, "bee:agent:repo")
	}
	f.revokes(t, b, b.cuts())
	sameEverywhere(t, mesh, "member; revoked; revoked; suspended; ", 4, f, b, thief, x)
}

// TestT2_RevokeBodiesAreChecked: a cut that the device has not signed, a leave
// of another device, and what is over a limit are quarantined.
func TestT2_RevokeBodiesAreChecked(t *testing.T) {
	f, _ := founded(t)
	b := newDevice(t, 'b')
	b.says(t, "bee")
	good := b.cuts()
	forged := slices.Clone(good)
	forged[0].Seq++
	many := slices.Repeat(good, maxCuts+1)
	for name, make := range map[string]func() (oplog.Op, error){
		"forged cut":      func() (oplog.Op, error) { return revokeOp(b.key, forged, "") },
		"another's cut":   func() (oplog.Op, error) { return revokeOp(f.key, good, "") },
		"too many":        func() (oplog.Op, error) { return revokeOp(b.key, many, "") },
		"long reason":     func() (oplog.Op, error) { return revokeOp(b.key, good, strings.Repeat("x", maxRevokeWords+1)) },
		"not UTF-8":       func() (oplog.Op, error) { return revokeOp(b.key, good, "\xff") },
		"another's leave": func() (oplog.Op, error) { return leaveOp(b.log.Self(), nil) },
	} {
		t.Run(name, func(t *testing.T) {
			op, err := make()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.log.Append(testContext(t), op); err == nil {
				t.Error("taken")
			}
		})
	}
	if _, err := f.log.Append(testContext(t), must(revokeOp(b.key, good, "good"))); err != nil {
		t.Error(err)
	}
}

func must(op oplog.Op, err error) oplog.Op {
	if err != nil {
		panic(err)
	}
	return op
}
