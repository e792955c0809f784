package replica

import (
	"bytes"
	"net"
	"testing"

	"github.com/hashicorp/memberlist"

	"tallystick/internal/hostile"
	"tallystick/oplog"
)

// TestA4_LongPacketsAreDropped: a packet longer than any that is sent does not
// reach memberlist, which would unpack it; the next one does.
func TestA4_LongPacketsAreDropped(t *testing.T) {
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	g := &gossip{r: &Replica{}, udp: udp, packets: make(chan *memberlist.Packet, packetQueue), stop: make(chan struct{})}
	g.wg.Add(1)
	go g.readPackets()
	t.Cleanup(func() {
		udp.Close()
		g.wg.Wait()
	})
	from, err := net.DialUDP("udp", nil, udp.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	for _, n := range []int{packetMost + 1, 60_000, packetMost} {
		if _, err := from.Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case p := <-g.packets:
		if len(p.Buf) != packetMost {
			t.Errorf("a packet of %d bytes came first", len(p.Buf))
		}
	case <-testContext(t).Done():
		t.Fatal("no packet")
	}
}

// TestA4_HostileHints: what memberlist brings of other members is a hint of
// exactly one form and a device key, or nothing.
func TestA4_HostileHints(t *testing.T) {
	g := &gossip{hints: make(chan []byte, 1)}
	good := encodeHint(oplog.Head{Origin: oplog.OriginID{1}, Seq: 7, Hash: oplog.Hash{2}})
	taken := func(b []byte) bool {
		g.NotifyMsg(b)
		select {
		case got := <-g.hints:
			if !bytes.Equal(got, b) {
				t.Errorf("%x became %x", b, got)
			}
			return true
		default:
			return false
		}
	}
	if !taken(good) {
		t.Fatal("the good one is not taken")
	}
	hostile.Check(t, hostile.Bytes(good), nil, func(b []byte) error {
		if taken(b) && len(b) == hintSize && b[0] == hintType {
			return nil
		}
		return errShort
	})
	f, mesh := founded(t)
	g = &gossip{r: &Replica{key: f.key, log: f.log, members: NewMembership(mesh)}}
	hostile.Check(t, hostile.Bytes(make([]byte, 32)), nil, func(b []byte) error {
		g.NotifyUpdate(&memberlist.Node{Meta: b})
		if len(b) == 32 {
			return nil
		}
		return errShort
	})
}
