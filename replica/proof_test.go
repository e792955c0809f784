package replica

import (
	"bytes"
	"fmt"
	"testing"

	"tallystick/oplog"
)

func nobody(oplog.DeviceKey) bool { return false }

// chain makes a mesh of a founder and n further devices, each admitted by the
// one before, and the proof of the last.
func chain(t testing.TB, n int) (MeshID, proof, []*device) {
	t.Helper()
	f, mesh := founded(t)
	l, err := cutLink(f.log, f.log.Self(), 2)
	if err != nil {
		t.Fatal(err)
	}
	p, devices := proof{l}, []*device{f}
	for i := range n {
		by, d := devices[len(devices)-1], newDevice(t, byte('0'+i))
		by.notes(t, "amid")
		op, err := admitOp(d.key, fmt.Sprint("d", i))
		res := by.append(t, op, err)
		by.notes(t, "after")
		if l, err = cutLink(by.log, by.log.Self(), res.Ref.Seq()); err != nil {
			t.Fatal(err)
		}
		p, devices = p.append(l), append(devices, d)
	}
	return mesh, p, devices
}

func TestT1_ProofStandsAlone(t *testing.T) {
	mesh, p, devices := chain(t, 3)
	b, err := p.encode()
	if err != nil {
		t.Fatal(err)
	}
	if p, err = decodeProof(b); err != nil {
		t.Fatal(err)
	}
	label, err := p.verify(mesh, devices[3].key, nobody)
	if err != nil || label != "d2" {
		t.Fatalf("label %q, %v", label, err)
	}
	if _, err := p.verify(MeshID{1}, devices[3].key, nobody); err == nil {
		t.Error("it holds in another mesh")
	}
	if _, err := p.verify(mesh, newDevice(t, 'z').key, nobody); err == nil {
		t.Error("it holds for another device")
	}
	if _, err := p[1:].verify(mesh, devices[3].key, nobody); err == nil {
		t.Error("it holds without its root")
	}
	if _, err := p[1:].verify(mesh, devices[3].key, func(k oplog.DeviceKey) bool { return k == devices[0].key }); err != nil {
		t.Errorf("its first admitter is known, still: %v", err)
	}
	if _, err := append(p[:1:1], p[2:]...).verify(mesh, devices[3].key, nobody); err == nil {
		t.Error("it holds with a link missing")
	}
	if _, err := (proof{}).verify(mesh, devices[0].key, nobody); err == nil {
		t.Error("nothing shown, and taken")
	}
}

func TestT1_ProofTampered(t *testing.T) {
	mesh, p, devices := chain(t, 1)
	good, err := p.encode()
	if err != nil {
		t.Fatal(err)
	}
	want := devices[1].key
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1
		q, err := decodeProof(bad)
		if err != nil {
			continue
		}
		if _, err := q.verify(mesh, want, nobody); err == nil {
			t.Fatalf("byte %d of %d flipped, and the proof still holds", i, len(good))
		}
	}
}

func TestT1_SelfAdmissionIsNoProof(t *testing.T) {
	mesh, p, _ := chain(t, 0)
	x := newDevice(t, 'x')
	op, err := admitOp(x.key, "ex")
	res := x.append(t, op, err)
	l, err := cutLink(x.log, x.log.Self(), res.Ref.Seq())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.append(l).verify(mesh, x.key, nobody); err == nil {
		t.Error("a device admitted itself")
	}
}

func TestProof_LongChainKeepsItsEnd(t *testing.T) {
	mesh, p, devices := chain(t, maxLinks+2)
	if len(p) != maxLinks {
		t.Fatalf("%d links, want %d", len(p), maxLinks)
	}
	last := devices[len(devices)-1].key
	first := oplog.DeviceKey(p[0].Key)
	if _, err := p.verify(mesh, last, func(k oplog.DeviceKey) bool { return k == first }); err != nil {
		t.Error(err)
	}
	if b, err := p.encode(); err != nil || len(b) > maxProofBytes {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

func FuzzDecodeProof(f *testing.F) {
	mesh, p, devices := chain(f, 1)
	b, err := p.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decodeProof(b)
		if err != nil {
			return
		}
		_, _ = p.verify(mesh, devices[1].key, nobody) // must not panic
	})
}

// anything folds every kind, without a look.
type anything struct{ kinds []string }

func (anything) Name() string                       { return "anything" }
func (anything) Version() uint32                    { return 1 }
func (a anything) Kinds() []string                  { return a.kinds }
func (anything) Apply(oplog.Tx, *oplog.Entry) error { return nil }

// TestT1_ForgedGenesis: a device writes a genesis for somebody else's mesh,
// under its own key and under the founder's. Neither makes a proof, and no
// member follows it.
func TestT1_ForgedGenesis(t *testing.T) {
	f, mesh := founded(t)
	founder := f.log.Self()
	for what, as := range map[string]oplog.Origin{"own key": {}, "founder's key": founder} {
		t.Run(what, func(t *testing.T) {
			priv := newKey(t)
			log, err := oplog.Open(testContext(t), oplog.Config{InMemory: true, Signer: priv,
				Projections: []oplog.Projection{anything{[]string{KindGenesis, KindAdmit}}}})
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			self := log.Self()
			if as.Key.IsZero() {
				as = self
			}
			body, err := marshalArrays(&genesisBody{Mesh: mesh[:], Label: "founder", Key: as.Key[:], Incarnation: as.Incarnation[:]})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := log.Append(testContext(t), oplog.Op{Kind: KindGenesis, Version: 1, Body: body}); err != nil {
				t.Fatal(err)
			}
			l, err := cutLink(log, log.Self(), 2)
			if err != nil {
				t.Fatal(err)
			}
			if label, err := (proof{l}).verify(mesh, self.Key, nobody); err == nil {
				t.Errorf("the forged genesis admits its writer as %q", label)
			}
			victim := reader(t, mesh)
			rg, err := log.ReadRange(self.ID, 0, 1)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := victim.Ingest(testContext(t), rg); err != nil {
				t.Fatal(err)
			}
			if err := victim.View(func(s oplog.Snapshot) error {
				if list, err := MembersIn(s); err != nil || len(list) != 0 {
					t.Errorf("members %+v, %v", list, err)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		})
	}
}
