package replica

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	stdlog "log"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"tallystick/oplog"
)

// Gossip is memberlist: liveness of the members, addresses, and hints of new
// heads. It is never the only path: with UDP blocked, or without it, the sync
// streams carry everything. This is the only file that knows memberlist.

const (
	gossipPacket = 1200 // bytes; tailnets have an MTU of 1280
	packetMost   = 1280 // longer ones are dropped unread: packed, 64 KiB unfold to 40 MiB
	hintsWaiting = 256  // hints received and not looked at; more are dropped
	hintRepeat   = 4    // a hint goes out so many times the digits of the mesh's size
	packetQueue  = 256
	streamQueue  = 16
	rejoinEvery  = 30 * time.Second
)

// hint is "origin is at seq". 1 byte type, 8 origin, 8 seq, 4 of the hash.
const (
	hintType = 1
	hintSize = 21
)

func encodeHint(h oplog.Head) []byte {
	b := make([]byte, 0, hintSize)
	b = append(b, hintType)
	b = append(b, h.Origin[:8]...)
	b = binary.BigEndian.AppendUint64(b, h.Seq)
	return append(b, h.Hash[:4]...)
}

// hintQueue holds the newest hint of each origin until it has gone out often
// enough. Memberlist's own queue loses one of two messages of equal length when
// the other was queued as it ran empty (v0.7.0).
type hintQueue struct {
	mu    sync.Mutex
	hints map[oplog.OriginID]*sentHint
}

type sentHint struct {
	msg  []byte
	left int // transmissions
}

// put queues a hint in place of an older one of its origin.
func (q *hintQueue) put(h oplog.Head, members int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.hints == nil {
		q.hints = map[oplog.OriginID]*sentHint{}
	}
	times := hintRepeat * int(math.Ceil(math.Log10(float64(members+1))))
	q.hints[h.Origin] = &sentHint{encodeHint(h), times}
}

// take gives the hints that fit a packet, those sent least often first.
func (q *hintQueue) take(overhead, limit int) (msgs [][]byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ids := slices.SortedFunc(maps.Keys(q.hints), func(a, b oplog.OriginID) int {
		return cmp.Or(cmp.Compare(q.hints[b].left, q.hints[a].left), a.Compare(b))
	})
	for _, id := range ids {
		h := q.hints[id]
		if limit -= overhead + len(h.msg); limit < 0 {
			break
		}
		msgs = append(msgs, h.msg)
		if h.left--; h.left <= 0 {
			delete(q.hints, id)
		}
	}
	return msgs
}

// gossip runs memberlist over the transport's listener and a UDP socket on
// the same port.
type gossip struct {
	r     *Replica
	udp   *net.UDPConn // nil when the port is taken or UDP is not to be had
	list  atomic.Pointer[memberlist.Memberlist]
	keys  *memberlist.Keyring
	oldMu sync.Mutex
	old   []oldKey // that packets on their way may still be encrypted with
	queue hintQueue

	packets chan *memberlist.Packet
	streams chan net.Conn
	hints   chan []byte
	found   chan meeting
	stop    chan struct{}
	once    sync.Once
	wg      sync.WaitGroup
}

type meeting struct {
	key   oplog.DeviceKey
	addrs []string
}

// newGossip starts memberlist, or logs why it cannot run and returns nil.
func newGossip(r *Replica) *gossip {
	g := &gossip{r: r, packets: make(chan *memberlist.Packet, packetQueue), streams: make(chan net.Conn, streamQueue),
		hints: make(chan []byte, hintsWaiting), found: make(chan meeting, 64), stop: make(chan struct{})}
	if err := g.start(); err != nil {
		r.logger.Warn("no gossip, the sync streams do without", slog.Any("error", err))
		g.shutdown()
		return nil
	}
	return g
}

func (g *gossip) start() error {
	r := g.r
	addr := r.tr.ln.Addr().(*net.TCPAddr)
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: addr.IP, Port: addr.Port, Zone: addr.Zone})
	if err != nil {
		r.logger.Warn("no UDP, gossip goes over streams only", slog.Any("error", err))
	} else {
		g.udp = udp
		g.wg.Add(1)
		go g.readPackets()
	}
	if g.keys, err = memberlist.NewKeyring(nil, r.gkey.secret()); err != nil {
		return err
	}
	conf := memberlist.DefaultLANConfig()
	conf.Name = hex.EncodeToString(r.key[:16])
	conf.Transport = g
	conf.Keyring = g.keys
	conf.UDPBufferSize = gossipPacket
	conf.Delegate = g
	conf.Events = g
	conf.DeadNodeReclaimTime = 10 * time.Second // a device that comes back with another address is itself
	conf.Logger = stdlog.New(logWriter{r.logger}, "", 0)
	list, err := memberlist.Create(conf)
	if err != nil {
		return err
	}
	g.list.Store(list)
	return nil
}

// loop joins peers that memberlist does not know and acts on hints.
func (g *gossip) loop() {
	tick := time.NewTicker(rejoinEvery)
	defer tick.Stop()
	known := map[oplog.DeviceKey][]string{}
	for {
		select {
		case m := <-g.found:
			known[m.key] = m.addrs
			g.join(m.key, m.addrs)
		case now := <-tick.C:
			g.dropOld(now)
			for key, addrs := range known {
				g.join(key, addrs)
			}
		case b := <-g.hints:
			g.act(b)
		case <-g.stop:
			return
		case <-g.r.ctx.Done():
			return
		}
	}
}

// meet tells of a peer's addresses. It never blocks.
func (g *gossip) meet(key oplog.DeviceKey, addrs []string) {
	select {
	case g.found <- meeting{key, addrs}:
	default: // the next hello tells again
	}
}

func (g *gossip) join(key oplog.DeviceKey, addrs []string) {
	for _, n := range g.list.Load().Members() {
		if bytes.Equal(n.Meta, key[:]) {
			return
		}
	}
	for _, a := range addrs {
		if n, err := g.list.Load().Join([]string{a}); err == nil && n > 0 {
			return
		}
		if g.r.ctx.Err() != nil {
			return
		}
	}
}

// hint spreads the news of a head. A newer one of the origin replaces it.
func (g *gossip) hint(h oplog.Head) { g.queue.put(h, g.list.Load().NumMembers()) }

// act uses a hint: whoever has news and no connection is worth a dial now.
func (g *gossip) act(b []byte) {
	seq := binary.BigEndian.Uint64(b[9:17])
	for _, o := range g.r.log.Origins() {
		if !bytes.Equal(o.ID[:8], b[1:9]) {
			continue
		}
		held := uint64(0)
		for _, t := range o.Tips {
			held = max(held, t.Seq)
		}
		if seq > held {
			g.r.dialer.alive(o.Key, "")
		}
		return
	}
}

// oldKeyLife is how long a gossip key is good for after it was turned.
const oldKeyLife = 10 * time.Minute

type oldKey struct {
	secret []byte
	since  time.Time
}

func (g *gossip) addKey(k gossipKey, primary bool) {
	was := g.keys.GetPrimaryKey()
	err := g.keys.AddKey(k.secret())
	if err == nil && primary {
		if err = g.keys.UseKey(k.secret()); err == nil && !bytes.Equal(was, k.secret()) {
			g.oldMu.Lock()
			g.old = append(g.old, oldKey{was, time.Now()})
			g.oldMu.Unlock()
		}
	}
	if err != nil {
		g.r.logger.Warn("gossip key refused", slog.Any("error", err))
	}
}

// dropOld takes keys out that were turned long enough ago.
func (g *gossip) dropOld(now time.Time) {
	g.oldMu.Lock()
	defer g.oldMu.Unlock()
	g.old = slices.DeleteFunc(g.old, func(k oldKey) bool {
		if now.Sub(k.since) < oldKeyLife {
			return false
		}
		if err := g.keys.RemoveKey(k.secret); err != nil { // it is in use again
			g.r.logger.Warn("old gossip key stays", slog.Any("error", err))
		}
		return true
	})
}

// shutdown stops memberlist. Some of its goroutines take about two seconds
// more to notice.
func (g *gossip) shutdown() {
	g.once.Do(func() {
		close(g.stop)
		if list := g.list.Load(); list != nil {
			_ = list.Shutdown() // always nil for a transport whose Shutdown is
		}
		if g.udp != nil {
			g.udp.Close()
		}
		g.wg.Wait()
		for {
			select {
			case c := <-g.streams:
				c.Close()
			default:
				return
			}
		}
	})
}

// Delegate.

// NodeMeta tells the device key, for memberlist's names are only a part of it.
func (g *gossip) NodeMeta(int) []byte { return g.r.key[:] }

// NotifyMsg must not block: a hint that finds the queue full is lost, which
// costs nothing but time.
func (g *gossip) NotifyMsg(b []byte) {
	if len(b) != hintSize || b[0] != hintType {
		return
	}
	select {
	case g.hints <- bytes.Clone(b):
	default:
	}
}

// GetBroadcasts gives the waiting hints.
func (g *gossip) GetBroadcasts(overhead, limit int) [][]byte {
	return g.queue.take(overhead, limit)
}

// LocalState is empty: the streams compare frontiers.
func (g *gossip) LocalState(bool) []byte { return nil }

// MergeRemoteState ignores what LocalState does not send.
func (g *gossip) MergeRemoteState([]byte, bool) {}

// Events.

// NotifyJoin remembers where a member answers.
func (g *gossip) NotifyJoin(n *memberlist.Node) { g.NotifyUpdate(n) }

// NotifyLeave does nothing: dead means no more hints to it, and no data is
// dropped for it. Its stream tells by itself when it ends.
func (g *gossip) NotifyLeave(*memberlist.Node) {}

// NotifyUpdate remembers where a member answers.
func (g *gossip) NotifyUpdate(n *memberlist.Node) {
	var key oplog.DeviceKey
	if len(n.Meta) != len(key) {
		return
	}
	copy(key[:], n.Meta)
	if key != g.r.key && g.r.isMember(key) {
		g.r.dialer.alive(key, n.Address())
	}
}

// Transport.

// FinalAdvertiseAddr is the first of the addresses that peers are told.
func (g *gossip) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	for _, a := range g.r.Addresses() {
		if ap, err := netip.ParseAddrPort(a); err == nil {
			return ap.Addr().Unmap().AsSlice(), int(ap.Port()), nil
		}
	}
	addr := g.r.tr.ln.Addr().(*net.TCPAddr)
	if addr.IP.IsUnspecified() {
		return net.IPv4(127, 0, 0, 1), addr.Port, nil
	}
	return addr.IP, addr.Port, nil
}

// WriteTo sends a packet, or loses it.
func (g *gossip) WriteTo(b []byte, addr string) (time.Time, error) {
	if g.udp == nil || g.drops() {
		return time.Now(), nil
	}
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return time.Time{}, fmt.Errorf("replica: gossip address %q: %w", addr, err)
	}
	_, err = g.udp.WriteToUDPAddrPort(b, ap)
	return time.Now(), err
}

func (g *gossip) drops() bool { return g.r.cfg.DropPacket != nil && g.r.cfg.DropPacket() }

// PacketCh is where received packets come out.
func (g *gossip) PacketCh() <-chan *memberlist.Packet { return g.packets }

func (g *gossip) readPackets() {
	defer g.wg.Done()
	buf := make([]byte, packetMost+1)
	for {
		n, from, err := g.udp.ReadFromUDP(buf)
		now := time.Now()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n == 0 || n > packetMost || g.drops() {
			continue
		}
		select {
		case g.packets <- &memberlist.Packet{Buf: bytes.Clone(buf[:n]), From: from, Timestamp: now}:
		case <-g.stop:
			return
		default: // as on a busy network
		}
	}
}

// DialTimeout opens a stream on the peer's TLS listener.
func (g *gossip) DialTimeout(addr string, _ time.Duration) (net.Conn, error) {
	conn, _, err := g.r.tr.dial(g.r.ctx, addr, alpnGossip, oplog.DeviceKey{})
	if err != nil {
		return nil, err // no typed nil in the interface
	}
	return conn, nil
}

// StreamCh is where accepted streams come out.
func (g *gossip) StreamCh() <-chan net.Conn { return g.streams }

// Shutdown ends the transport; shutdown does the work.
func (g *gossip) Shutdown() error { return nil }

// accept gives an accepted stream to memberlist and waits for its end.
func (g *gossip) accept(conn *tls.Conn) {
	c := &gossipConn{Conn: conn, done: make(chan struct{})}
	select {
	case g.streams <- c:
	default:
		return // busy; memberlist at the other end tries again
	}
	select {
	case <-c.done:
	case <-g.stop:
		conn.NetConn().Close()
	}
}

type gossipConn struct {
	net.Conn
	once sync.Once
	done chan struct{}
}

func (c *gossipConn) Close() error {
	defer c.once.Do(func() { close(c.done) })
	return c.Conn.Close()
}

// logWriter brings memberlist's log lines to ours, as details.
type logWriter struct{ log *slog.Logger }

func (w logWriter) Write(b []byte) (int, error) {
	w.log.Debug("memberlist", slog.String("line", string(bytes.TrimSpace(b))))
	return len(b), nil
}

// gossipPeers lists the devices memberlist sees alive, for tests.
func (r *Replica) gossipPeers() []oplog.DeviceKey {
	if r.gossip == nil {
		return nil
	}
	var list []oplog.DeviceKey
	for _, n := range r.gossip.list.Load().Members() {
		var key oplog.DeviceKey
		if copy(key[:], n.Meta) == len(key) && key != r.key {
			list = append(list, key)
		}
	}
	slices.SortFunc(list, func(a, b oplog.DeviceKey) int { return slices.Compare(a[:], b[:]) })
	return list
}
