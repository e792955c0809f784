package replica

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"tallystick/oplog"
)

const (
	maxDials     = 8  // at a time
	maxRemember  = 12 // addresses of a peer
	saveInterval = 2 * time.Second
)

// target is somebody to be connected with: a known device, or an address
// from the configuration that has not told its device yet.
type target struct {
	key      oplog.DeviceKey // zero until an address of the configuration has answered
	label    string
	addrs    []string // the one that worked last first
	seen     int64    // unix ms of the last hello
	fixed    bool     // from the configuration
	dialing  bool
	backoff  time.Duration
	next     time.Time
	lastErr  error
	lastAddr string
}

// dialer keeps a connection to every peer it has an address of. Whoever can
// dial, dials; the core closes the surplus one of two.
type dialer struct {
	r    *Replica
	wake chan struct{}

	mu    sync.Mutex
	peers map[oplog.DeviceKey]*target
	fixed []*target
	conns map[oplog.DeviceKey]int    // sessions that stand, dialled or accepted
	out   map[oplog.DeviceKey]string // no members any more: not dialled
	dirty bool
}

func newDialer(r *Replica) *dialer {
	d := &dialer{r: r, wake: make(chan struct{}, 1), peers: map[oplog.DeviceKey]*target{}, conns: map[oplog.DeviceKey]int{}}
	for _, p := range loadPeers(&r.cfg, r.logger) {
		t := &target{label: p.Label, addrs: p.Addrs, seen: p.Seen}
		copy(t.key[:], p.Key)
		d.peers[t.key] = t
	}
	for _, a := range r.cfg.Peers {
		d.fixed = append(d.fixed, &target{addrs: []string{a}, fixed: true})
	}
	return d
}

func (d *dialer) poke() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// loop starts dials when they are due and saves the address book.
func (d *dialer) loop() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var saved time.Time
	for {
		timer.Reset(d.startDue())
		select {
		case <-timer.C:
		case <-d.wake:
		case <-d.r.ctx.Done():
			d.save()
			return
		}
		if time.Since(saved) > saveInterval {
			saved = time.Now()
			d.save()
		}
	}
}

// startDue starts what is due and says when to look again.
func (d *dialer) startDue() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	wait := saveInterval
	running := 0
	all := d.targetsLocked()
	for _, t := range all {
		if t.dialing {
			running++
		}
	}
	for _, t := range all {
		if t.dialing || len(t.addrs) == 0 || t.key == d.r.key || !t.key.IsZero() && d.conns[t.key] > 0 {
			continue
		}
		if _, out := d.out[t.key]; out {
			continue
		}
		if due := t.next.Sub(now); due > 0 {
			wait = min(wait, due)
			continue
		}
		if running >= maxDials {
			continue // the end of one wakes the loop
		}
		running++
		t.dialing = true
		d.r.run(func() { d.dial(t) })
	}
	return wait
}

func (d *dialer) targetsLocked() []*target {
	all := slices.Clone(d.fixed)
	for _, t := range d.peers {
		all = append(all, t)
	}
	return all
}

// dial tries a target's addresses in turn and serves the session of the first
// that works.
func (d *dialer) dial(t *target) {
	d.mu.Lock()
	addrs, want := slices.Clone(t.addrs), t.key
	d.mu.Unlock()
	var err error
	for _, addr := range addrs {
		if err = d.dialOne(t, addr, want); err == nil || d.r.ctx.Err() != nil {
			break
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t.dialing = false
	if err != nil {
		d.failedLocked(t, err)
	}
	d.poke()
}

// dialOne returns nil once a session stood and both had said hello.
func (d *dialer) dialOne(t *target, addr string, want oplog.DeviceKey) error {
	r := d.r
	conn, key, err := r.tr.dial(r.ctx, addr, alpnSync, want)
	d.mu.Lock()
	t.lastAddr = addr
	if errors.Is(err, errSelf) {
		t.addrs = slices.DeleteFunc(t.addrs, func(a string) bool { return a == addr })
		if t.fixed {
			t.key = r.key
		}
		d.mu.Unlock()
		return err
	}
	busy := false
	if err == nil {
		busy = d.conns[key] > 0
		if t.fixed {
			t.key = key
		}
	}
	d.mu.Unlock()
	if err != nil {
		return err
	}
	if busy { // it reached us while we dialled
		conn.Close()
		return nil
	}
	err = r.serveStream(conn, key, addr)
	conn.Close()
	if isAlert(err) {
		r.askEnded(r.ctx, addr, key) // a refusal says no more than no
	}
	return err
}

// bar sets which devices are not dialled, for they are no members any more.
func (d *dialer) bar(out map[oplog.DeviceKey]string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.out = out
	d.poke()
}

// addrsOf are the addresses at which a device was last heard of.
func (d *dialer) addrsOf(key oplog.DeviceKey) (list []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.targetsLocked() {
		if t.key == key {
			list = append(list, t.addrs...)
		}
	}
	return list
}

func (d *dialer) failedLocked(t *target, err error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, ErrClosed) {
		return
	}
	if t.lastErr == nil || t.lastErr.Error() != err.Error() {
		d.r.logger.Info("no connection", slog.String("address", t.lastAddr), slog.Any("error", err))
	}
	t.lastErr = err
	t.backoff = min(max(2*t.backoff, d.r.cfg.Timing.RedialMin), d.r.cfg.Timing.RedialMax)
	d.delayLocked(t, t.backoff)
}

// delayLocked puts the next dial off, by half to once and a half of the time,
// so that peers that lost each other do not dial in step.
func (d *dialer) delayLocked(t *target, by time.Duration) {
	if next := time.Now().Add(by/2 + rand.N(by+1)); next.After(t.next) {
		t.next = next
	}
}

func (d *dialer) up(key oplog.DeviceKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns[key]++
}

// down tells that a session has ended.
func (d *dialer) down(s *stream) {
	err := s.reason()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conns[s.peer]--; d.conns[s.peer] <= 0 {
		delete(d.conns, s.peer)
	}
	for _, t := range d.targetsLocked() {
		if t.key != s.peer {
			continue
		}
		if s.readied.Load() {
			t.backoff = 0
			d.delayLocked(t, d.r.cfg.Timing.RedialMin)
		} else if s.addr == "" {
			t.lastErr = refused(s.conn.RemoteAddr().String(), err)
		}
		if ra := time.Duration(s.retryAfter.Load()); ra > 0 {
			d.delayLocked(t, ra)
		}
	}
	d.poke()
}

// ready notes what a peer's hello says of itself. It runs on the core's
// goroutine.
func (d *dialer) ready(s *stream, h *MsgHello) {
	s.readied.Store(true)
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.peers[s.peer]
	if t == nil {
		t = &target{key: s.peer}
		d.peers[s.peer] = t
	}
	t.label, t.seen, t.backoff, t.lastErr = h.Label, d.r.cfg.Wall(), 0, nil
	addrs := slices.Clone(h.Addrs)
	if s.addr != "" {
		addrs = append([]string{s.addr}, addrs...)
	} else if a := observed(s.conn.RemoteAddr(), h.Addrs); a != "" {
		addrs = append(addrs, a)
	}
	d.rememberLocked(t, addrs)
	for _, f := range d.fixed {
		if f.key == s.peer {
			f.backoff, f.lastErr = 0, nil
		}
	}
	if d.r.gossip != nil && len(t.addrs) > 0 {
		d.r.gossip.meet(s.peer, slices.Clone(t.addrs))
	}
}

// observed is the address a peer connected from, with the port it listens on.
func observed(remote net.Addr, told []string) string {
	tcp, ok := remote.(*net.TCPAddr)
	if !ok || len(told) == 0 {
		return ""
	}
	_, port, err := net.SplitHostPort(told[0])
	if err != nil {
		return ""
	}
	return net.JoinHostPort(tcp.IP.String(), port)
}

// rememberLocked puts addresses before those known.
func (d *dialer) rememberLocked(t *target, addrs []string) {
	var list []string
	for _, a := range append(addrs, t.addrs...) {
		if checkAddr(a, false) == nil && !slices.Contains(list, a) && len(list) < maxRemember {
			list = append(list, a)
		}
	}
	if !slices.Equal(list, t.addrs) {
		t.addrs = list
	}
	d.dirty = true
}

// alive tells that a device was heard of at an address, or just at all: it is
// dialled now if there is no connection.
func (d *dialer) alive(key oplog.DeviceKey, addr string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if key == d.r.key || d.conns[key] > 0 {
		return
	}
	t := d.peers[key]
	if t == nil {
		if addr == "" {
			return
		}
		t = &target{key: key}
		d.peers[key] = t
	}
	if addr != "" && !slices.Contains(t.addrs, addr) {
		d.rememberLocked(t, append(slices.Clone(t.addrs), addr))
	}
	// Not at once: the peer dials as well, and a burst of hints must not
	// become a burst of dials.
	if soon := time.Now().Add(d.r.cfg.Timing.RedialMin); t.next.After(soon) {
		t.next, t.backoff = soon, 0
	}
	d.poke()
}

// peerNote is what status needs of a target.
type peerNote struct {
	label string
	addr  string
	addrs []string
	seen  int64
	err   error
}

func (d *dialer) notes() map[oplog.DeviceKey]peerNote {
	d.mu.Lock()
	defer d.mu.Unlock()
	notes := make(map[oplog.DeviceKey]peerNote, len(d.peers))
	for key, t := range d.peers {
		n := peerNote{label: t.label, seen: t.seen, err: t.lastErr, addrs: slices.Clone(t.addrs)}
		if len(t.addrs) > 0 {
			n.addr = t.addrs[0]
		}
		notes[key] = n
	}
	return notes
}

// unknown lists addresses of the configuration that have not answered.
func (d *dialer) unknown() []peerNote {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []peerNote
	for _, t := range d.fixed {
		if t.key.IsZero() {
			list = append(list, peerNote{addr: t.lastAddr, err: t.lastErr})
		}
	}
	return list
}

func listenAddresses(ln *net.TCPAddr) []string {
	port := strconv.Itoa(ln.Port)
	if !ln.IP.IsUnspecified() {
		return []string{net.JoinHostPort(ln.IP.String(), port)}
	}
	var list []string
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		addrs = nil
	}
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok || n.IP.IsLoopback() || n.IP.IsLinkLocalUnicast() || n.IP.IsMulticast() || len(list) >= maxAddrs {
			continue
		}
		list = append(list, net.JoinHostPort(n.IP.String(), port))
	}
	if len(list) == 0 {
		list = append(list, net.JoinHostPort("127.0.0.1", port))
	}
	return list
}
