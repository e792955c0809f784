package replica

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"tallystick/oplog"
)

// device is a log of its own in memory, the source of entries for a fold.
type device struct {
	key oplog.DeviceKey
	log *oplog.Log
}

// testWall gives each reading of a device's clock another millisecond, so that
// what is done later is stamped later.
var testWall atomic.Int64

func init() { testWall.Store(1_700_000_000_000) }

// newDevice has a gate that lets everything pass: it can write what a device
// that is no member might write.
func newDevice(t testing.TB, seed byte) *device {
	t.Helper()
	priv := ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune(seed)), ed25519.SeedSize)))
	var key oplog.DeviceKey
	copy(key[:], priv.Public().(ed25519.PublicKey))
	log, err := oplog.Open(testContext(t), oplog.Config{InMemory: true, Signer: priv, Wall: func() int64 { return testWall.Add(1) },
		Projections: []oplog.Projection{NewMembership(MeshID{}), notes{}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	return &device{key, log}
}

func (d *device) append(t testing.TB, op oplog.Op, err error) oplog.Appended {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	res, err := d.log.Append(testContext(t), op)
	if err != nil {
		t.Fatal(err)
	}
	return res[0]
}

func (d *device) admits(t testing.TB, key oplog.DeviceKey, label string) {
	op, err := admitOp(key, label)
	d.append(t, op, err)
}

func (d *device) says(t testing.TB, label string) {
	op, err := labelOp(d.log.Self(), label)
	d.append(t, op, err)
}

func (d *device) notes(t testing.TB, author string) {
	d.append(t, oplog.Op{Kind: "note", Author: author, Version: 1, Body: []byte{0xa1, 'x'}}, nil)
}

// founded returns a founder and its mesh.
func founded(t testing.TB) (*device, MeshID) {
	t.Helper()
	d := newDevice(t, 'f')
	op, err := genesisOp(d.log.Self(), "founder")
	d.append(t, op, err)
	return d, MeshOf(d.log.Self().ID)
}

// reader is an empty log with the real gate.
func reader(t testing.TB, mesh MeshID) *oplog.Log {
	t.Helper()
	m := NewMembership(mesh)
	log, err := oplog.Open(testContext(t), oplog.Config{InMemory: true, Signer: ed25519.NewKeyFromSeed(make([]byte, 32)),
		Projections: []oplog.Projection{m, notes{}}, Gate: m})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	return log
}

// ranges cuts everything a device wrote at every head there is.
func (d *device) ranges(t testing.TB) (list []oplog.Range) {
	t.Helper()
	for after := uint64(0); ; {
		r, err := d.log.ReadRange(d.log.Self().ID, after, 1)
		if err != nil {
			t.Fatal(err)
		}
		if r.Count == 0 {
			return list
		}
		list = append(list, r)
		after += uint64(r.Count)
	}
}

func viewsOf(l *oplog.Log) string {
	s := ""
	for _, v := range l.Views() {
		s += v.Name + " " + v.Digest + "; "
	}
	return s
}

// TestM1_MembersInAnyOrder: whatever the order in which logs arrive, the same
// members, labels and flags, and nothing held in the end.
func TestM1_MembersInAnyOrder(t *testing.T) {
	f, mesh := founded(t)
	b, c, d := newDevice(t, 'b'), newDevice(t, 'c'), newDevice(t, 'd')
	f.admits(t, b.key, "bee")
	b.says(t, "bee")
	f.notes(t, "founder:agent:repo")
	b.admits(t, c.key, "cee")
	c.says(t, "cee")
	b.notes(t, "bee:agent:repo")
	c.admits(t, d.key, "bee") // taken: flagged
	f.admits(t, d.key, "dee") // a second admission of d, later
	c.notes(t, "cee:agent:repo")
	d.says(t, "dee") // goes by the second
	d.notes(t, "dee:agent:repo")
	d.notes(t, "bee:agent:repo") // and is quarantined for this, on every replica
	e := newDevice(t, 'e')
	f.admits(t, e.key, "bee")
	e.says(t, "bee")
	e.notes(t, "bee:agent:repo")

	first := ""
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		log := reader(t, mesh)
		queues := [][]oplog.Range{f.ranges(t), b.ranges(t), c.ranges(t), d.ranges(t), e.ranges(t)}
		for left := 5; left > 0; {
			i := rng.IntN(5)
			if len(queues[i]) == 0 {
				continue
			}
			if _, err := log.Ingest(context.Background(), queues[i][0]); err != nil {
				t.Fatal(err)
			}
			if queues[i] = queues[i][1:]; len(queues[i]) == 0 {
				left--
			}
		}
		if asides, err := log.Aside(9); err != nil || len(asides) != 1 || asides[0].Held {
			t.Fatalf("set aside: %+v, %v", asides, err)
		}
		if first == "" {
			first = viewsOf(log)
		} else if got := viewsOf(log); got != first {
			t.Fatalf("views differ: %s and %s", first, got)
		}
		var members []Member
		if err := log.View(func(s oplog.Snapshot) (err error) { members, err = MembersIn(s); return err }); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, m := range members {
			got += fmt.Sprintf("%s %v; ", m.Label, m.Flagged)
		}
		if want := "founder false; bee false; cee false; dee false; bee true; "; got != want {
			t.Fatalf("members %s\nwant    %s", got, want)
		}
	}
}

func TestT2_StrangersEntriesAreHeld(t *testing.T) {
	f, mesh := founded(t)
	x := newDevice(t, 'x')
	x.says(t, "ex")
	x.notes(t, "ex:agent:repo")
	log := reader(t, mesh)
	for _, r := range append(x.ranges(t), f.ranges(t)...) {
		if _, err := log.Ingest(context.Background(), r); err != nil {
			t.Fatal(err)
		}
	}
	if log.Held() != 3 { // birth, label and note
		t.Fatalf("%d entries held, want 3", log.Held())
	}
	asides, err := log.Aside(10)
	if err != nil || len(asides) != 3 || !asides[2].Held || !strings.Contains(asides[2].Reason, "admission") {
		t.Fatalf("asides %+v, %v", asides, err)
	}
	f.admits(t, x.key, "ex")
	for _, r := range f.ranges(t) {
		if _, err := log.Ingest(context.Background(), r); err != nil {
			t.Fatal(err)
		}
	}
	if log.Held() != 0 {
		t.Errorf("%d entries held after the admission", log.Held())
	}
}

func TestT2_GenesisOfAnotherMeshIsQuarantined(t *testing.T) {
	_, mesh := founded(t)
	x := newDevice(t, 'x')
	op, err := genesisOp(x.log.Self(), "evil")
	x.append(t, op, err)
	x.admits(t, x.key, "evil")
	log := reader(t, mesh)
	for _, r := range x.ranges(t) {
		if _, err := log.Ingest(context.Background(), r); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.View(func(s oplog.Snapshot) error {
		if list, err := MembersIn(s); err != nil || len(list) != 0 {
			t.Errorf("members %+v, %v: a stranger admitted itself", list, err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestI9_AuthorOfAnotherHostIsQuarantined(t *testing.T) {
	f, mesh := founded(t)
	f.notes(t, "founder:agent:repo")
	f.notes(t, "laptop:agent:repo") // says it is from elsewhere
	f.notes(t, "laptop-agent")      // flat: carries no host
	log := reader(t, mesh)
	for _, r := range f.ranges(t) {
		if _, err := log.Ingest(context.Background(), r); err != nil {
			t.Fatal(err)
		}
	}
	asides, err := log.Aside(10)
	if err != nil || len(asides) != 1 || asides[0].Held || asides[0].Author != "laptop:agent:repo" {
		t.Fatalf("asides %+v, %v", asides, err)
	}
	r := mustOpen(t, testConfig(t, "a"))
	_, err = r.Append(testContext(t), oplog.Op{Kind: "note", Author: "b:agent:repo", Version: 1, Body: []byte{0xa1, 'x'}})
	if err == nil || !strings.Contains(err.Error(), "I9") {
		t.Errorf("own write under another host: %v", err)
	}
}

// TestI9_ForgingPeer: a member whose program does not keep I9 writes under
// another host's name. It arrives at the other replica, is set aside there with
// its reason, and holds up nothing behind it.
func TestI9_ForgingPeer(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	cfg := testConfig(t, "b")
	b := mustJoin(t, a, cfg)
	note(t, b, "before")
	converged(t, a, b)
	mesh, keys := b.Mesh(), b.keys
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	members := NewMembership(mesh)
	log, err := oplog.Open(testContext(t), oplog.Config{Dir: b.cfg.storeDir(), EncryptionKey: keys.store, Signer: keys.device, MinFree: -1,
		Projections: []oplog.Projection{members, notes{}, erasures{}}}) // and no gate
	if err != nil {
		t.Fatal(err)
	}
	forged, err := log.Append(testContext(t), oplog.Op{Kind: "note", Author: "a:tester:repo", Version: 1, Body: []byte("\xa6forged")})
	if cerr := log.Close(); err != nil || cerr != nil {
		t.Fatal(err, cerr)
	}
	cfg.Peers = a.Addresses()
	b = mustOpen(t, cfg)
	note(t, b, "behind")
	eventually(t, "what comes behind the forged entry", func() bool { return slices.Contains(noteTexts(t, a), "behind") })
	if got := noteTexts(t, a); !slices.Contains(got, "before") || slices.Contains(got, "forged") {
		t.Errorf("a shows %q", got)
	}
	asides, err := a.Log().Aside(10)
	if err != nil || len(asides) != 1 || asides[0].Ref != forged[0].Ref || asides[0].Held || !strings.Contains(asides[0].Reason, "I9") {
		t.Fatalf("set aside: %+v, %v", asides, err)
	}
}

func TestMembers_MalformedBodies(t *testing.T) {
	good, err := admitOp(oplog.DeviceKey{1}, "label")
	if err != nil {
		t.Fatal(err)
	}
	bad := map[string]oplog.Op{
		"ErrVersion":  {Kind: KindAdmit, Version: 9, Body: good.Body},
		"ErrTrailing": {Kind: KindAdmit, Version: 1, Body: append(append([]byte{}, good.Body...), 0xc0)},
		"ErrCut":      {Kind: KindAdmit, Version: 1, Body: good.Body[:len(good.Body)-1]},
		"ErrLong":     {Kind: KindAdmit, Version: 1, Body: append([]byte{0xda, 0x40, 0x00}, make([]byte, 0x4000)...)},
		"ErrGenesis":  {Kind: KindGenesis, Version: 1, Body: good.Body},
	}
	if op, err := admitOp(oplog.DeviceKey{1}, "No Label"); err != nil {
		t.Fatal(err)
	} else {
		bad["ErrLabel"] = op
	}
	d := newDevice(t, 'm')
	for name, op := range bad {
		t.Run(name, func(t *testing.T) {
			op.OpID = ""
			if _, err := d.log.Append(testContext(t), op); err == nil {
				t.Error("taken")
			}
		})
	}
}

// TestM1_TheGatesMemoryIsNotTrusted: what the gate remembers of a transaction
// that was taken back, here of another log, counts for nothing.
func TestM1_TheGatesMemoryIsNotTrusted(t *testing.T) {
	f, mesh := founded(t)
	b := newDevice(t, 'b')
	f.admits(t, b.key, "bee")
	b.says(t, "bee")
	b.notes(t, "bee:agent:repo")
	m := NewMembership(mesh)
	for _, with := range [][]oplog.Range{append(f.ranges(t), b.ranges(t)...), b.ranges(t)} {
		log, err := oplog.Open(testContext(t), oplog.Config{InMemory: true, Signer: newKey(t), Gate: m,
			Projections: []oplog.Projection{m, notes{}}})
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		for _, r := range with {
			if _, err := log.Ingest(context.Background(), r); err != nil {
				t.Fatal(err)
			}
		}
		if len(with) > len(b.ranges(t)) && log.Held() != 0 {
			t.Fatalf("%d entries held, want none", log.Held())
		}
		if len(with) == len(b.ranges(t)) && log.Held() != 3 {
			t.Fatalf("%d entries held, want 3: no admission is known there", log.Held())
		}
	}
}
