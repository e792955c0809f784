package replica

import (
	"tallystick/hlc"
	"tallystick/oplog"
)

// The messages of the sync stream. Their bytes are in docs/format-wire.md;
// AppendFrame writes them and ReadFrame reads them (message_codec.go).

// Message is one of the Msg types, always as a pointer.
type Message interface {
	// kind is the type byte of the frame.
	kind() messageKind
	// appendBody encodes what follows the frame's header.
	appendBody(dst []byte) []byte
}

type messageKind byte

// Type bytes. They are never reused.
const (
	kindHello    messageKind = 1
	kindFrontier messageKind = 2
	kindWant     messageKind = 3
	kindUnwant   messageKind = 4
	kindRange    messageKind = 5
	kindCredit   messageKind = 6
	kindHeads    messageKind = 7
	kindFloorAsk messageKind = 8
	kindError    messageKind = 9
	kindPing     messageKind = 10
	kindPong     messageKind = 11

	kindBlobWant  messageKind = 12
	kindBlobChunk messageKind = 13
	kindBlobState messageKind = 14

	kindEntryWant  messageKind = 15
	kindEntry      messageKind = 16
	kindEntryState messageKind = 17
	kindLast                   = kindEntryState
)

// MsgHello is the first message in both directions. Digest is over the tips
// of the sender's durable frontier, without floors (B5).
type MsgHello struct {
	VersionMin  uint8 // wire versions the sender speaks
	VersionMax  uint8
	Mesh        MeshID
	Key         oplog.DeviceKey // must be the key of the TLS certificate
	Origin      oplog.OriginID  // the incarnation the sender writes in; zero before its first entry
	Label       string
	WallMillis  int64 // the sender's wall clock, for clock_offset_ms
	Digest      oplog.Hash
	GossipEpoch uint64   // counts rotations of the gossip key
	GossipKey   []byte   // 0, 16, 24 or 32 bytes
	Addrs       []string // where the sender listens, for redialling
}

// MsgFrontier tells durable tips: all of them (Full), or those that changed
// since the last one of this session. It is acknowledgement and offer in one.
type MsgFrontier struct {
	Full bool
	Tips oplog.Frontier
}

// MsgWant subscribes to one origin from where the sender is: what is missing,
// then each new entry as it is committed, with no gap between. Sub rises with
// each Want of a session. After are the sender's tips; none asks from the
// birth on. With Probe they are samples of its line as well, since the branches
// may have parted: the giver starts at the highest that is on its own line, or
// at the birth (L7c).
type MsgWant struct {
	Sub    uint64
	Origin oplog.OriginID
	Probe  bool
	After  []oplog.Tip
}

// MsgUnwant ends a subscription.
type MsgUnwant struct{ Sub uint64 }

// MsgRange carries entries of a subscription, ending at a signed head.
type MsgRange struct {
	Sub   uint64
	Range oplog.Range
}

// MsgCredit lets the other side send ranges until their cost (RangeCost) in
// this session reaches Total. It is a running total, so that a repeat changes
// nothing.
type MsgCredit struct{ Total uint64 }

// MsgHeads carries heads, for the floors in them (K4).
type MsgHeads struct{ Heads []oplog.Head }

// MsgFloorAsk asks every replica to promise a floor above the timestamp,
// because somebody has a provisional claim (L4). Flooded once per value.
type MsgFloorAsk struct{ Above hlc.Timestamp }

// MsgError says what a message met, or why the sender hangs up.
type MsgError struct {
	Code        WireCode
	Sub         uint64         // the subscription it is about, or 0
	Origin      oplog.OriginID // the origin it is about, or zero
	Tip         oplog.Tip      // for WireFork: what the sender holds there
	RetryMillis uint32         // for WireBusy: ask again no sooner
	Text        string         // for people
}

// WireCode is what MsgError is about. Codes are only ever added.
type WireCode uint8

// The codes of MsgError.
const (
	WireBusy     WireCode = 1 // not now; try again after RetryMillis
	WireFork     WireCode = 2 // the position wanted is not on the branch held here
	WireRead     WireCode = 3 // the log could not give the range
	WireProtocol WireCode = 4 // the peer broke the protocol; the connection ends
	WireMesh     WireCode = 5 // another mesh; the connection ends
	WireVersion  WireCode = 6 // no common wire version; the connection ends
	WireReplaced WireCode = 7 // another connection of the same pair stays
	WireClosing  WireCode = 8 // the replica shuts down
	WireEnded    WireCode = 9 // the receiver is no member any more; the connection ends
)

// MsgPing keeps a quiet stream alive and measures the peer's clock.
type MsgPing struct{ Millis int64 } // the sender's wall clock

// MsgPong answers a MsgPing.
type MsgPong struct {
	Echo   int64 // Millis of the ping
	Millis int64 // the answerer's wall clock
}

// MsgBlobWant asks for chunks of content that an entry names, from First on.
// Sub rises with each of a session; a later one takes the place of an earlier.
type MsgBlobWant struct {
	Sub   uint64
	Hash  oplog.Hash
	First uint32
	Count uint8
}

// MsgBlobChunk carries one chunk of a want. Size is that of the whole content,
// which its giver has checked.
type MsgBlobChunk struct {
	Sub   uint64
	Hash  oplog.Hash
	Size  int64
	Index uint32
	Data  []byte
}

// MsgBlobState says of content that was wanted that it is not whole here, or,
// later, that it is.
type MsgBlobState struct {
	Here   bool
	Hashes []oplog.Hash
}

func (*MsgHello) kind() messageKind    { return kindHello }
func (*MsgFrontier) kind() messageKind { return kindFrontier }
func (*MsgWant) kind() messageKind     { return kindWant }
func (*MsgUnwant) kind() messageKind   { return kindUnwant }
func (*MsgRange) kind() messageKind    { return kindRange }
func (*MsgCredit) kind() messageKind   { return kindCredit }
func (*MsgHeads) kind() messageKind    { return kindHeads }
func (*MsgFloorAsk) kind() messageKind { return kindFloorAsk }
func (*MsgError) kind() messageKind    { return kindError }
func (*MsgPing) kind() messageKind     { return kindPing }
func (*MsgPong) kind() messageKind     { return kindPong }

func (*MsgBlobWant) kind() messageKind  { return kindBlobWant }
func (*MsgBlobChunk) kind() messageKind { return kindBlobChunk }
func (*MsgBlobState) kind() messageKind { return kindBlobState }
