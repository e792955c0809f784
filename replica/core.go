package replica

// The sync core: every decision of replication, and no IO.
//
// A Core has no goroutine, no lock, reads no clock and draws no random
// number. Whoever drives it (node.go over TLS, internal/sim over virtual
// time) calls one method at a time, from one goroutine or under one lock, and
// carries out the Output it returns:
//
//	core := NewCore(CoreConfig{...})          // origins and heads as the log holds them
//	out := core.PeerUp(now, session, key, dialed) // a TLS stream stands; sends Hello
//	out  = core.Step(now, session, message)   // a frame arrived (ReadFrame)
//	out  = core.Heard(now, session)           // part of a long frame arrived
//	out  = core.PeerDown(now, session)        // the stream is gone; idempotent
//	out  = core.LocalCommit(now, head)        // own entries are durable (Log.Changed, Log.Self)
//	out  = core.BlobsMissing(now, list)       // at the start, and when Log.BlobEpoch changes
//	out  = core.OwedChanged(now)              // at the start, and when Log.OwedEpoch changes
//	out  = core.AskFloor(now, above)          // somebody here has a provisional claim
//	out  = core.StoreReady(now)               // the log refused work and would take it again (Log.Room)
//	out  = core.Bar(now, devices)             // who is no member any more (T2)
//	out  = core.TellGossip(now, epoch, key)   // the gossip key was turned
//	out  = core.Tick(now)                     // at the latest at core.Wake()
//
// and hands back what became of each effect, once for each:
//
//	for _, e := range out.Send        -> AppendFrame to that session, in order; a session
//	                                     that is gone or whose queue is full is dropped (PeerDown)
//	for _, e := range out.Reads       -> r, err := e.From(log)
//	                                     core.RangeRead(now, e, r, err)
//	for _, e := range out.Samples     -> tips, err := e.From(log)
//	                                     core.Sampled(now, e, tips, err)
//	for _, e := range out.Ingests     -> res, err := log.Ingest(ctx, e.Range)
//	                                     core.Ingested(now, e, res, err)
//	for _, e := range out.Heads       -> changed, err := log.PutHead(ctx, e.Head)
//	                                     core.HeadStored(now, e, changed, err)
//	for _, e := range out.Floors      -> head, err := log.RaiseFloor(ctx, e.Above)
//	                                     core.FloorRaised(now, e, head, err)
//	for _, e := range out.Chunks      -> data, size, err := log.BlobChunk(e.Hash, e.Index)
//	                                     core.ChunkRead(now, e, data, size, err)
//	for _, e := range out.Puts        -> res, err := log.PutChunk(ctx, e.Hash, e.Size, e.Index, e.Data)
//	                                     core.ChunkPut(now, e, res, err)
//	for _, e := range out.Lists       -> list, next, err := e.From(log)
//	                                     core.OwedListed(now, e, list, next, err)
//	for _, e := range out.Entries     -> exact, err := log.WholeEntry(e.Hash)
//	                                     core.EntryRead(now, e, exact, err)
//	for _, e := range out.Pays        -> err := log.PutOwed(ctx, e.Hash, e.Entry)
//	                                     core.EntryPut(now, e, err)
//	for _, e := range out.Disconnects -> flush what was sent to it, close, core.PeerDown
//	for _, e := range out.Events      -> log or act; nothing is handed back
//
// Effects may take their time and may overlap, with one rule: Ingests of one
// origin, and Puts of one blob, are carried out in the order given. A Core keeps at most the credit
// window of bytes in Ingests per session, and one Read per subscription.
//
// Frames that do not parse never reach the core: the driver closes the
// connection and calls PeerDown (L5).
//
// What a Core guarantees, given a log that keeps L1:
//   - nothing is offered or sent that is not durable here (L1): it learns of
//     entries only by LocalCommit, Ingested and RangeRead;
//   - each foreign origin is wanted from one session at a time;
//   - a range that does not verify costs that origin at that peer a back-off,
//     and nothing else (L5);
//   - a peer with another branch of an origin (fork) is reported and never
//     disconnected for it; both ends come to hold both branches (L7c). More of
//     an own origin is fetched like anybody's: the log then opens a new
//     incarnation (L7b).

import (
	"time"

	"tallystick/hlc"
	"tallystick/oplog"
)

// SessionID names one connection to one peer. The driver draws it; it is
// never used twice in the life of a Core and never 0.
type SessionID uint64

// Now is one reading of the driver's clocks.
type Now struct {
	Mono time.Duration // monotonic, since anything; timeouts go by it
	Wall int64         // unix milliseconds; offsets and floors go by it
}

// CoreConfig is what a Core starts from. Zero limits mean defaults.
type CoreConfig struct {
	Mesh  MeshID
	Key   oplog.DeviceKey // this device
	Label string
	Self  oplog.OriginID // the incarnation this replica writes in; zero if not born yet
	// Origins are all origins the log holds, own ones included, with tips and
	// heads: Log.Origins().
	Origins []oplog.Origin

	GossipEpoch uint64   // told in Hello; SetGossip changes it
	GossipKey   []byte   //
	Addrs       []string // told in Hello

	Window       int           // bytes of ranges in flight per session; 4 MiB
	MaxRange     int           // bytes asked of one ReadRange; 512 KiB
	StallTimeout time.Duration // a subscription without progress is moved; 10 s
	SwitchGrace  time.Duration // a peer that has less than another is given so long; 2 s
	FlushEvery   time.Duration // changed tips are told at most so often; 50 ms
	PingAfter    time.Duration // silence before a ping; 15 s
	DeadAfter    time.Duration // silence before the session is given up; 45 s
	BackoffMin   time.Duration // first back-off of an origin at a peer; 1 s
	BackoffMax   time.Duration // last one; 5 min
	Bound        time.Duration // clock bound (C3); hlc.DefaultBound
}

// Output is what the driver must do, in the order of the fields.
type Output struct {
	Send        []Envelope
	Reads       []ReadRange
	Samples     []Sample
	Ingests     []Ingest
	Heads       []PutHead
	Floors      []RaiseFloor
	Chunks      []ReadChunk
	Puts        []PutChunk
	Lists       []ListOwed
	Entries     []ReadEntry
	Pays        []PutEntry
	Disconnects []Disconnect
	Events      []Event
}

// Envelope is a message for a session. The message must not be changed.
type Envelope struct {
	To  SessionID
	Msg Message
}

// ReadRange asks the log for entries to send.
type ReadRange struct {
	Session  SessionID
	Sub      uint64
	Origin   oplog.OriginID
	After    uint64 // of the origin's only line; or, where branches are about:
	Held     []oplog.Tip
	Toward   oplog.Tip // the tip to read toward, after the highest of Held on its line
	MaxBytes int
}

// From carries the read out.
func (e ReadRange) From(log *oplog.Log) (oplog.Range, error) {
	if e.Toward.Seq == 0 {
		return log.ReadRange(e.Origin, e.After, e.MaxBytes)
	}
	return log.ReadToward(e.Origin, e.Held, e.Toward, e.MaxBytes)
}

// Sample asks the log for entries of an origin's lines, so that a peer with
// another branch finds the last common one.
type Sample struct {
	Session SessionID
	Origin  oplog.OriginID
	Tips    []oplog.Tip
}

// From carries the sampling out.
func (e Sample) From(log *oplog.Log) (all []oplog.Tip, err error) {
	for _, t := range e.Tips {
		tips, err := log.Samples(e.Origin, t)
		if err != nil {
			return nil, err
		}
		all = append(all, tips...)
	}
	return all, nil
}

// Ingest asks the log to take in a range.
type Ingest struct {
	Session SessionID
	Sub     uint64
	Range   oplog.Range
}

// PutHead asks the log to keep a head with a higher floor.
type PutHead struct {
	Session SessionID
	Head    oplog.Head
}

// RaiseFloor asks the log to re-sign the own head with a floor above a
// timestamp.
type RaiseFloor struct{ Above hlc.Timestamp }

// Disconnect asks the driver to close a session. RetryAfter is how long not
// to dial that peer; 0 leaves it to the driver's own back-off.
type Disconnect struct {
	Session    SessionID
	Reason     string
	RetryAfter time.Duration
}

// Event tells the driver something it may log or act on.
type Event struct {
	Kind    EventKind
	Session SessionID
	Key     oplog.DeviceKey
	Origin  oplog.OriginID
	Hello   *MsgHello // EventReady, EventGossip
	Mine    oplog.Tip // EventFork, EventOwnAhead
	Theirs  oplog.Tip
	Err     error // EventBadRange, EventStore
}

// EventKind says what an Event is about.
type EventKind uint8

// The kinds of Event.
const (
	// EventReady: hellos are exchanged; Hello is the peer's (gossip key, addresses).
	EventReady EventKind = iota + 1
	// EventFork: a peer holds another branch of Origin (L7c).
	EventFork
	// EventOwnAhead: a peer holds more of an own origin than this log does: the
	// log was restored or rolled back (L7b).
	EventOwnAhead
	// EventBadRange: a range did not verify; the origin is backed off there (L5).
	EventBadRange
	// EventStore: the local log refused work (full disk, closed); syncing pauses.
	EventStore
	// EventPeerError: the peer sent an error.
	EventPeerError
	// EventBadBlob: content that a peer gave is not what its hash says.
	EventBadBlob
	// EventGossip: a peer tells another gossip key, in Hello.
	EventGossip
)

// PeerStatus is what the core knows of a device it has met since it started.
// It outlives the session.
type PeerStatus struct {
	Key          oplog.DeviceKey
	Session      SessionID // 0 when not connected
	Ready        bool      // hellos exchanged and frontier known
	Label        string
	Origin       oplog.OriginID
	Addrs        []string
	HeardMillis  int64 // local wall clock when last heard
	OffsetMillis int64 // peer's wall clock minus ours
	RTT          time.Duration
	Known        bool   // its frontier has been told in full at least once
	Behind       uint64 // entries we hold and it does not
	Ahead        uint64 // entries it holds and we do not
	Wants        int    // subscriptions it has here
	Wanted       int    // subscriptions we have there
	LastError    string
	Busy         string // in its words why it takes no entries, mostly for lack of space; empty when it does
}

// ForkStatus says that an origin has more than one branch.
type ForkStatus struct {
	Origin oplog.OriginID
	Key    oplog.DeviceKey // who showed the other branch; zero if it was here at the start
	Mine   oplog.Tip
	Theirs oplog.Tip
}

// CoreStatus is a snapshot of the core for status and tests.
type CoreStatus struct {
	Peers  []PeerStatus // by key
	Forks  []ForkStatus // by origin
	Paused bool         // ingest is paused because the log refused work
}
