package replica

import (
	"bytes"
	"slices"
	"time"

	"tallystick/hlc"
	"tallystick/oplog"
)

// Core holds the state of replication. See the top of core.go.
type Core struct {
	cfg CoreConfig
	now Now
	out Output

	self  oplog.OriginID
	own   map[oplog.OriginID]bool
	owner map[oplog.OriginID]oplog.DeviceKey // whose incarnation it is, as far as known
	tips  oplog.Frontier                     // durable here
	heads map[oplog.OriginID]headState

	sessions []*session // by id
	peers    map[oplog.DeviceKey]*peer

	origins  []oplog.OriginID // all ever heard of, sorted
	wants    map[oplog.OriginID]*want
	ingests  map[oplog.OriginID]int // in flight
	replan   map[oplog.OriginID]bool
	sampling map[oplog.OriginID]SessionID
	forks    map[oplog.OriginID]ForkStatus
	ownAhead map[oplog.OriginID]oplog.Tip
	lastScan time.Duration
	paused   time.Duration // no ingest before
	pauses   int
	busy     string // why, as peers are told; empty when nothing is paused

	floor floorState
	blobs blobs
	owed  owed

	barred map[oplog.DeviceKey]string // no members any more, and what each is told
}

// scanEvery is how often everything that waits is looked at again: expired
// back-offs, stalls, pings.
const scanEvery = time.Second

// helloGrace is how long after a session came up a second one of the same
// pair counts as a crossed dial rather than as a reconnect.
const helloGrace = 5 * time.Second

// peer is what is known of a device; it outlives sessions.
type peer struct {
	key     oplog.DeviceKey
	session *session
	status  PeerStatus // the fields that do not need computing
	tips    oplog.Frontier

	busyUntil time.Duration // its word that it takes no entries holds so long
}

type session struct {
	id     SessionID
	peer   *peer
	dialed bool
	since  time.Duration

	hello   *MsgHello
	atHello oplog.Frontier // what our hello's digest was over; nil once compared
	ready   bool           // the peer's frontier is known

	heard, sent, bulk, pinged, flushed time.Duration

	dirtyTips  map[oplog.OriginID]bool
	dirtyHeads map[oplog.OriginID]bool
	said       map[oplog.OriginID]oplog.Head // newest head the peer told, unverified
	told       map[oplog.OriginID]oplog.Head // newest head we told

	serve serveState
	take  takeState
	blob  blobSession
	entry entrySession
}

// NewCore returns a core that knows what the log holds and has no peers.
func NewCore(cfg CoreConfig) *Core {
	cfg = cfg.withDefaults()
	c := &Core{
		cfg:      cfg,
		self:     cfg.Self,
		own:      map[oplog.OriginID]bool{},
		owner:    map[oplog.OriginID]oplog.DeviceKey{},
		tips:     oplog.Frontier{},
		heads:    map[oplog.OriginID]headState{},
		peers:    map[oplog.DeviceKey]*peer{},
		wants:    map[oplog.OriginID]*want{},
		ingests:  map[oplog.OriginID]int{},
		replan:   map[oplog.OriginID]bool{},
		sampling: map[oplog.OriginID]SessionID{},
		forks:    map[oplog.OriginID]ForkStatus{},
		ownAhead: map[oplog.OriginID]oplog.Tip{},
	}
	if !cfg.Self.IsZero() {
		c.own[cfg.Self] = true
		c.owner[cfg.Self] = cfg.Key
	}
	for i := range cfg.Origins {
		o := &cfg.Origins[i]
		c.noteOrigin(o.ID)
		c.owner[o.ID] = o.Key
		if o.Key == cfg.Key {
			c.own[o.ID] = true
		}
		if len(o.Tips) > 0 {
			c.tips[o.ID] = slices.Clone(o.Tips)
			if len(o.Tips) > 1 {
				c.forks[o.ID] = ForkStatus{Origin: o.ID, Mine: o.Tips[0], Theirs: o.Tips[1]}
			}
		}
		if !o.Head.IsZero() {
			c.heads[o.ID] = headState{Head: o.Head}
		}
	}
	return c
}

func (cfg CoreConfig) withDefaults() CoreConfig {
	orInt := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	orDur := func(p *time.Duration, v time.Duration) {
		if *p == 0 {
			*p = v
		}
	}
	orInt(&cfg.Window, 4<<20)
	orInt(&cfg.MaxRange, 512<<10)
	orDur(&cfg.StallTimeout, 10*time.Second)
	orDur(&cfg.SwitchGrace, 2*time.Second)
	orDur(&cfg.FlushEvery, 50*time.Millisecond)
	orDur(&cfg.PingAfter, 15*time.Second)
	orDur(&cfg.DeadAfter, 45*time.Second)
	orDur(&cfg.BackoffMin, time.Second)
	orDur(&cfg.BackoffMax, 5*time.Minute)
	orDur(&cfg.Bound, hlc.DefaultBound)
	return cfg
}

// begin opens one input. Every exported method that returns an Output calls
// it first and finish last.
func (c *Core) begin(now Now) {
	c.now = now
	c.out = Output{}
}

func (c *Core) finish() Output {
	c.planAll()
	c.planBlobs()
	c.planOwed()
	for _, s := range c.sessions {
		c.pump(s)
		c.pumpEntry(s)
		c.pumpBlob(s)
		c.giveCredit(s, false)
		if len(s.dirtyTips)+len(s.dirtyHeads) > 0 && c.now.Mono-s.flushed >= c.cfg.FlushEvery {
			c.flush(s)
		}
	}
	out := c.out
	c.out = Output{}
	return out
}

func (c *Core) session(id SessionID) *session {
	for _, s := range c.sessions {
		if s.id == id {
			return s
		}
	}
	return nil
}

func (c *Core) send(s *session, m Message) {
	s.sent = c.now.Mono
	c.out.Send = append(c.out.Send, Envelope{To: s.id, Msg: m})
}

func (c *Core) event(e Event) { c.out.Events = append(c.out.Events, e) }

// PeerUp says that a TLS stream to the device stands; dialed, that this side
// opened it. Of two sessions of one pair one stays: if the dials crossed, the
// one opened by the device with the smaller key, else the newer.
func (c *Core) PeerUp(now Now, id SessionID, key oplog.DeviceKey, dialed bool) Output {
	c.begin(now)
	p := c.peers[key]
	if p == nil {
		p = &peer{key: key, tips: oplog.Frontier{}}
		p.status.Key = key
		c.peers[key] = p
	}
	s := &session{
		id: id, peer: p, dialed: dialed, since: now.Mono,
		heard: now.Mono, bulk: now.Mono,
		dirtyTips:  map[oplog.OriginID]bool{},
		dirtyHeads: map[oplog.OriginID]bool{},
		said:       map[oplog.OriginID]oplog.Head{},
		told:       map[oplog.OriginID]oplog.Head{},
	}
	s.flushed = now.Mono
	s.serve.subs = map[uint64]*sub{}
	s.serve.byOrigin = map[oplog.OriginID]*sub{}
	s.take.wants = map[uint64]*want{}
	s.take.backoff = map[oplog.OriginID]backoff{}
	s.take.probe = map[oplog.OriginID]bool{}
	s.blob = newBlobSession()
	s.entry = newEntrySession()
	if old := p.session; old != nil {
		crossed := old.dialed != dialed && now.Mono-old.since < helloGrace
		oursFirst := bytes.Compare(c.cfg.Key[:], key[:]) < 0
		if crossed && dialed != oursFirst {
			c.out.Send = append(c.out.Send, Envelope{To: id, Msg: &MsgError{Code: WireReplaced, Text: "another connection of this pair stays"}})
			c.out.Disconnects = append(c.out.Disconnects, Disconnect{Session: id, Reason: "another connection of this pair stays"})
			return c.finish()
		}
		c.hangUp(old, WireReplaced, "a newer connection of this pair stays", 0)
	}
	p.session = s
	c.sessions = append(c.sessions, s)
	slices.SortFunc(c.sessions, func(a, b *session) int {
		if a.id < b.id {
			return -1
		}
		return 1
	})
	if text, out := c.barred[key]; out {
		c.hangUp(s, WireEnded, text, endedRetry)
		return c.finish()
	}
	s.atHello = c.tips.Clone()
	c.send(s, c.hello(s, s.atHello.Digest()))
	return c.finish()
}

// PeerDown says that a session is gone. What is known of the device stays.
func (c *Core) PeerDown(now Now, id SessionID) Output {
	c.begin(now)
	if s := c.session(id); s != nil {
		c.forget(s)
	}
	return c.finish()
}

// forget removes a session; what it was asked for is asked elsewhere.
func (c *Core) forget(s *session) {
	c.sessions = slices.DeleteFunc(c.sessions, func(t *session) bool { return t == s })
	if s.peer.session == s {
		s.peer.session = nil
	}
	for o, w := range c.wants {
		if w.s == s {
			delete(c.wants, o)
			c.replan[o] = true
		}
	}
	c.forgetBlobs(s)
	c.forgetEntries(s)
	for o, id := range c.sampling {
		if id == s.id {
			delete(c.sampling, o)
			c.replan[o] = true
		}
	}
}

// hangUp ends a session from this side.
func (c *Core) hangUp(s *session, code WireCode, reason string, retry time.Duration) {
	c.send(s, &MsgError{Code: code, Text: reason})
	c.out.Disconnects = append(c.out.Disconnects, Disconnect{Session: s.id, Reason: reason, RetryAfter: retry})
	s.peer.status.LastError = reason
	c.forget(s)
}

// Heard says that bytes of a frame that is not complete yet have arrived.
func (c *Core) Heard(now Now, id SessionID) Output {
	c.begin(now)
	if s := c.session(id); s != nil {
		s.heard, s.bulk = now.Mono, now.Mono
		s.peer.status.HeardMillis = now.Wall
	}
	return c.finish()
}

// Step takes one message of a session.
func (c *Core) Step(now Now, id SessionID, m Message) Output {
	c.begin(now)
	s := c.session(id)
	if s == nil {
		return c.finish()
	}
	s.heard = now.Mono
	s.peer.status.HeardMillis = now.Wall
	switch m := m.(type) {
	case *MsgHello:
		c.onHello(s, m)
	case *MsgError:
		c.onError(s, m)
	default:
		if s.hello == nil {
			c.hangUp(s, WireProtocol, "the first message is not a hello", violationRetry)
			break
		}
		c.onMessage(s, m)
	}
	return c.finish()
}

const (
	violationRetry = 30 * time.Second
	endedRetry     = 10 * time.Minute // of a device that is no member any more
)

func (c *Core) onMessage(s *session, m Message) {
	switch m := m.(type) {
	case *MsgFrontier:
		c.onFrontier(s, m)
	case *MsgWant:
		c.onWant(s, m)
	case *MsgUnwant:
		c.onUnwant(s, m.Sub)
	case *MsgRange:
		c.onRange(s, m)
	case *MsgCredit:
		s.serve.granted = max(s.serve.granted, m.Total)
	case *MsgHeads:
		c.onHeads(s, m)
	case *MsgFloorAsk:
		c.onFloorAsk(s, m.Above)
	case *MsgBlobWant:
		c.onBlobWant(s, m)
	case *MsgBlobChunk:
		c.onBlobChunk(s, m)
	case *MsgBlobState:
		c.onBlobState(s, m)
	case *MsgEntryWant:
		c.onEntryWant(s, m)
	case *MsgEntry:
		c.onEntry(s, m)
	case *MsgEntryState:
		c.onEntryState(s, m)
	case *MsgPing:
		c.send(s, &MsgPong{Echo: m.Millis, Millis: c.now.Wall})
	case *MsgPong:
		c.onPong(s, m)
	}
}

// onHello compares digests: equal ones mean that each side knows the other's
// frontier; else both send theirs in full.
func (c *Core) onHello(s *session, m *MsgHello) {
	switch {
	case s.hello != nil:
		c.helloAgain(s, m)
		return
	case m.Key != s.peer.key:
		c.hangUp(s, WireProtocol, "the hello names another device than the certificate", violationRetry)
		return
	case m.VersionMin > ProtocolVersion || m.VersionMax < ProtocolVersion:
		c.hangUp(s, WireVersion, "no common wire version", 10*time.Minute)
		return
	case m.Mesh != c.cfg.Mesh:
		c.hangUp(s, WireMesh, "the peer belongs to another mesh", 10*time.Minute)
		return
	}
	s.hello = m
	st := &s.peer.status
	st.Label, st.Origin, st.Addrs, st.LastError, st.Busy = m.Label, m.Origin, m.Addrs, "", ""
	st.OffsetMillis = m.WallMillis - c.now.Wall
	if _, ok := c.owner[m.Origin]; !ok && !m.Origin.IsZero() {
		c.owner[m.Origin] = m.Key
	}
	c.event(Event{Kind: EventReady, Session: s.id, Key: m.Key, Hello: m})
	mine := s.atHello
	s.atHello = nil
	if mine.Digest() == m.Digest {
		c.learnFrontier(s, mine)
	} else {
		c.tellFrontier(s, c.tips, true)
		clear(s.dirtyTips)
	}
	c.giveCredit(s, true)
	c.tellHeads(s, c.origins)
	if c.floor.ask > 0 {
		c.send(s, &MsgFloorAsk{Above: c.floor.ask})
	}
	if c.busy != "" {
		c.tellBusy(s)
	}
}

func (c *Core) onError(s *session, m *MsgError) {
	if m.Code == WireBusy && m.Sub == 0 && s.hello != nil {
		c.onBusy(s, m)
		return
	}
	s.peer.status.LastError = m.Text
	if m.Sub != 0 {
		c.onSubError(s, m)
		return
	}
	c.event(Event{Kind: EventPeerError, Session: s.id, Key: s.peer.key, Err: &PeerError{Code: m.Code, Text: m.Text}})
	var retry time.Duration
	switch m.Code {
	case WireMesh, WireVersion:
		retry = 10 * time.Minute
	case WireProtocol:
		retry = violationRetry
	case WireEnded:
		retry = endedRetry
	case WireReplaced, WireClosing:
	default:
		return
	}
	c.out.Disconnects = append(c.out.Disconnects, Disconnect{Session: s.id, Reason: "the peer hung up: " + m.Text, RetryAfter: retry})
	c.forget(s)
}

// PeerError is an error that a peer sent.
type PeerError struct {
	Code WireCode
	Text string
}

func (e *PeerError) Error() string { return "replica: peer says: " + e.Text }

// onPong measures the peer's clock against the middle of the round trip; the
// shortest round trip is the most exact.
func (c *Core) onPong(s *session, m *MsgPong) {
	rtt := c.now.Wall - m.Echo
	if rtt < 0 || s.pinged == 0 {
		return // our own wall was set meanwhile, or nobody asked
	}
	st := &s.peer.status
	st.RTT = time.Duration(rtt) * time.Millisecond
	st.OffsetMillis = m.Millis - (m.Echo + rtt/2)
}

// Tick lets time pass. Call it at the latest at Wake.
func (c *Core) Tick(now Now) Output {
	c.begin(now)
	if now.Mono-c.lastScan >= scanEvery || now.Mono < c.lastScan {
		c.lastScan = now.Mono
		c.scan()
	}
	return c.finish()
}

func (c *Core) scan() {
	for _, s := range slices.Clone(c.sessions) {
		quiet := c.now.Mono - s.heard
		switch {
		case quiet >= c.cfg.DeadAfter:
			c.out.Disconnects = append(c.out.Disconnects, Disconnect{Session: s.id, Reason: "nothing heard for " + quiet.Round(time.Second).String()})
			s.peer.status.LastError = "timed out"
			c.forget(s)
		case s.hello != nil && quiet >= c.cfg.PingAfter && c.now.Mono-s.pinged >= c.cfg.PingAfter:
			s.pinged = c.now.Mono
			c.send(s, &MsgPing{Millis: c.now.Wall})
		}
		c.wakeSubs(s)
	}
	for _, o := range c.origins {
		c.replan[o] = true
	}
	c.scanBlobs()
	c.scanOwed()
	c.tryRaise()
}

// Wake is the monotonic time at which Tick has something to do.
func (c *Core) Wake() time.Duration {
	next := c.lastScan + scanEvery
	for _, s := range c.sessions {
		if s.hello != nil && len(s.dirtyTips)+len(s.dirtyHeads) > 0 {
			next = min(next, s.flushed+c.cfg.FlushEvery)
		}
	}
	return next
}

// SetGossip changes what the next hellos tell of the gossip key.
func (c *Core) SetGossip(epoch uint64, key []byte) {
	c.cfg.GossipEpoch, c.cfg.GossipKey = epoch, slices.Clone(key)
}

// SetAddrs changes what the next hellos tell of listening addresses.
func (c *Core) SetAddrs(addrs []string) { c.cfg.Addrs = slices.Clone(addrs) }
