package replica

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"tallystick/oplog"
)

// gossiping is testConfig with memberlist on.
func gossiping(t testing.TB, label string) Config {
	cfg := testConfig(t, label)
	cfg.Static = false
	return cfg
}

func TestGossip_MembersSeeEachOther(t *testing.T) {
	a := mustOpen(t, gossiping(t, "a"))
	b := mustJoin(t, a, gossiping(t, "b"))
	c := mustJoin(t, b, gossiping(t, "c"))
	note(t, a, "one")
	converged(t, a, b, c)
	sees := func(r *Replica, others ...*Replica) bool {
		got := r.gossipPeers()
		for _, o := range others {
			if !slices.Contains(got, o.key) {
				return false
			}
		}
		return len(got) == len(others)
	}
	eventually(t, "full membership", func() bool { return sees(a, b, c) && sees(b, a, c) && sees(c, a, b) })
	eventually(t, "a and c connected", func() bool { return peerOf(t, a, "c").Reachable })
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	note(t, b, "two")
	converged(t, a, b) // whatever memberlist thinks of c
}

// TestGossip_ConvergesWithUDPBlocked: memberlist runs and hears nothing by
// packets; the streams do not need it.
func TestGossip_ConvergesWithUDPBlocked(t *testing.T) {
	blocked := func(label string) Config {
		cfg := gossiping(t, label)
		cfg.DropPacket = func() bool { return true }
		return cfg
	}
	a := mustOpen(t, blocked("a"))
	b := mustJoin(t, a, blocked("b"))
	c := mustJoin(t, b, blocked("c"))
	for range 3 {
		note(t, a, "a")
		note(t, b, "b")
		note(t, c, "c")
	}
	converged(t, a, b, c)
}

// TestGossip_KeysConvergeOnTheNewest: a newer gossip key travels in the hello
// and both end in one gossip under it.
func TestGossip_KeysConvergeOnTheNewest(t *testing.T) {
	a := mustOpen(t, gossiping(t, "a"))
	cfgB := gossiping(t, "b")
	b := mustJoin(t, a, cfgB)
	converged(t, a, b)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	later, err := newGossipKey(randOr(nil), time.Now().Add(time.Hour).UnixMilli())
	if err != nil {
		t.Fatal(err)
	}
	if err := saveGossipKey(&b.cfg, later); err != nil {
		t.Fatal(err)
	}
	b = mustOpen(t, cfgB)
	eventually(t, "a to take the newer key", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.gkey == later
	})
	eventually(t, "both in one gossip", func() bool {
		return slices.Contains(a.gossipPeers(), b.key) && slices.Contains(b.gossipPeers(), a.key)
	})
	if kept := loadGossipKey(&a.cfg, a.logger); kept != later {
		eventually(t, "the key to be kept", func() bool { return loadGossipKey(&a.cfg, a.logger) == later })
	}
}

func TestGossip_HintsAreSmallAndReplaceEachOther(t *testing.T) {
	h := oplog.Head{Origin: oplog.OriginID{1}, Seq: 1 << 60, Hash: oplog.Hash{9}}
	b := encodeHint(h)
	if len(b) != hintSize || len(b) > 30 {
		t.Errorf("hint of %d bytes", len(b))
	}
	var q hintQueue
	for seq := range uint64(100) {
		h.Seq = seq
		q.put(h, 3)
	}
	other := h
	other.Origin = oplog.OriginID{2}
	for range hintRepeat {
		if got := q.take(3, gossipPacket); len(got) != 1 || !bytes.Equal(got[0], encodeHint(h)) {
			t.Fatalf("hints %x, want the newest of the origin", got)
		}
	}
	if got := q.take(3, gossipPacket); len(got) != 0 {
		t.Errorf("hints %x after they went out often enough", got)
	}
	q.put(h, 3)
	q.take(3, gossipPacket)
	q.put(other, 3)
	if got := q.take(3, hintSize+3); len(got) != 1 || !bytes.Equal(got[0], encodeHint(other)) {
		t.Errorf("hints %x, want the one that was sent less", got)
	}
	if got := q.take(3, hintSize+2); len(got) != 0 {
		t.Errorf("hints %x in too little room", got)
	}
}

func TestGossip_NotifyMsgNeverBlocks(t *testing.T) {
	g := &gossip{hints: make(chan []byte, 2)}
	b := encodeHint(oplog.Head{Origin: oplog.OriginID{1}, Seq: 1})
	for range 10 {
		g.NotifyMsg(b)
	}
	g.NotifyMsg(nil)
	g.NotifyMsg([]byte("something else of some length"))
	b[1] = 0xff // memberlist may use the buffer again
	if got := <-g.hints; got[1] != 1 || len(g.hints) != 1 {
		t.Errorf("hint %x, %d more queued", got, len(g.hints))
	}
}

// TestGossip_AHintBringsADial: news of a peer that is not connected ends the
// back-off.
func TestGossip_AHintBringsADial(t *testing.T) {
	r := &Replica{cfg: Config{}.withDefaults()}
	d := &dialer{r: r, wake: make(chan struct{}, 1), peers: map[oplog.DeviceKey]*target{}, conns: map[oplog.DeviceKey]int{}}
	far := time.Now().Add(time.Hour)
	key := oplog.DeviceKey{1}
	d.peers[key] = &target{key: key, addrs: []string{"127.0.0.1:1"}, next: far}
	d.alive(key, "")
	if d.peers[key].next == far {
		t.Error("still waiting")
	}
	d.alive(oplog.DeviceKey{2}, "127.0.0.1:2")
	if p := d.peers[oplog.DeviceKey{2}]; p == nil || !slices.Equal(p.addrs, []string{"127.0.0.1:2"}) {
		t.Errorf("target %+v", p)
	}
	d.conns[key] = 1
	d.peers[key].next = far
	d.alive(key, "")
	if d.peers[key].next != far {
		t.Error("a connected peer is dialled")
	}
}
