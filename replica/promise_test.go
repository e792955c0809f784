package replica

import (
	"crypto/ed25519"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"tallystick/hlc"
	"tallystick/oplog"
)

// signHead signs a head as its device does (docs/format-disk.md).
func signHead(h *oplog.Head, key ed25519.PrivateKey) {
	b := append([]byte("tallystick head 0\x00"), h.Origin[:]...)
	b = binary.BigEndian.AppendUint64(b, h.Seq)
	b = append(b, h.Hash[:]...)
	copy(h.Sig[:], ed25519.Sign(key, binary.BigEndian.AppendUint64(b, uint64(h.Floor))))
}

// TestK4_BrokenPromiseIsNotTrusted: a member has promised to stamp nothing in
// the next five minutes, and does. Who holds the promise says whose was broken,
// and counts no floor of that incarnation any more; its entries are shown.
func TestK4_BrokenPromiseIsNotTrusted(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	b := mustJoin(t, a, testConfig(t, "b"))
	note(t, b, "before")
	converged(t, a, b)
	eventually(t, "a holds b's head", func() bool {
		o := former(a, b.Self().ID)
		return o.Complete && o.Floor > 0 && !o.Broken
	})
	promise := b.Self().Head
	promise.Floor = hlc.New(time.Now().Add(5*time.Minute).UnixMilli(), 0)
	signHead(&promise, b.keys.device)
	if changed, err := a.Log().PutHead(testContext(t), promise); err != nil || !changed {
		t.Fatalf("the promise is not kept: %v, %v", changed, err)
	}
	note(t, b, "within five minutes")
	converged(t, a, b)
	if o := former(a, b.Self().ID); !o.Broken || o.Floor != 0 {
		t.Errorf("the floor still counts: %+v", o)
	}
	st, err := a.Status()
	if err != nil || len(st.Broken) != 1 {
		t.Fatalf("broken promises: %+v, %v", st.Broken, err)
	}
	if p := &st.Broken[0]; p.Label != "b" || p.Origin != b.Self().ID || p.Head != promise || !strings.HasPrefix(p.String(), "b (") {
		t.Errorf("told: %s, %+v", p, p)
	}
	if st, err := b.Status(); err != nil || len(st.Broken) != 0 {
		t.Errorf("b, which knows of no promise, tells %+v, %v", st.Broken, err)
	}
}
