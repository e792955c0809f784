package replica

import (
	"bytes"
	"crypto/ed25519"
	"testing"
	"time"

	"tallystick/oplog"
)

// TestA4b_AdmissionFromAFastClock: a member whose clock is 75 years ahead
// admits another. The admission acts on receipt; what else that member writes
// waits for its time, and what the admitted one writes does not.
func TestA4b_AdmissionFromAFastClock(t *testing.T) {
	far := time.Now().AddDate(75, 0, 0).UnixMilli()
	priv := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{'f'}, ed25519.SeedSize))
	fast := &device{}
	copy(fast.key[:], priv.Public().(ed25519.PublicKey))
	log, err := oplog.Open(testContext(t), oplog.Config{InMemory: true, Signer: priv, Wall: func() int64 { return far },
		Projections: []oplog.Projection{NewMembership(MeshID{}), notes{}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	fast.log = log
	op, err := genesisOp(log.Self(), "founder")
	fast.append(t, op, err)
	fast.notes(t, "founder:tester:x")
	other := newDevice(t, 'o')
	fast.admits(t, other.key, "other") // behind what is held
	other.says(t, "other")
	other.notes(t, "other:tester:x")
	for _, order := range [][]*device{{fast, other}, {other, fast}} {
		l := reader(t, MeshOf(log.Self().ID))
		for _, d := range order {
			for _, r := range d.ranges(t) {
				if _, err := l.Ingest(testContext(t), r); err != nil {
					t.Fatal(err)
				}
			}
		}
		err := l.View(func(s oplog.Snapshot) error {
			members, err := MembersIn(s)
			if err != nil {
				return err
			}
			if len(members) != 2 {
				t.Errorf("%d members, want the admitted one as well", len(members))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if l.Held() != 1 || l.Views()[1].Rows != 1 {
			t.Errorf("%d held, %d notes shown; want the founder's note held and the other's shown", l.Held(), l.Views()[1].Rows)
		}
	}
}
