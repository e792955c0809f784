package replica

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"tallystick/hlc"
	"tallystick/oplog"
)

// Limits of the wire. A frame over its limit costs the connection (L5).
const (
	ProtocolVersion = 1

	frameHeaderSize = 16
	// MaxFrame bounds the body of every frame but a range's.
	MaxFrame = 1 << 20
	// MaxRangeFrame bounds the body of a range's frame.
	MaxRangeFrame = 8 << 20

	maxLabel     = 64
	maxAddrs     = 8
	maxAddr      = 128
	maxErrorText = 512
	maxAfter     = 128  // positions in a want
	maxHeads     = 1024 // in one message
)

var frameMagic = [4]byte{'T', 'S', 'Y', '1'}

// ErrFrame is wrapped by every error about a frame that does not parse. It
// costs the connection (L5).
var ErrFrame = errors.New("replica: malformed frame")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendFrame encodes a message with its frame around it. It fails only when
// the message is over a limit.
func AppendFrame(dst []byte, m Message) ([]byte, error) {
	start := len(dst)
	dst = append(dst, frameMagic[:]...)
	dst = append(dst, ProtocolVersion, byte(m.kind()), 0, 0)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	dst = m.appendBody(dst)
	n := len(dst) - start - frameHeaderSize
	if limit := frameLimit(m.kind()); n > limit {
		return dst[:start], fmt.Errorf("replica: frame of type %d has %d bytes, limit %d", m.kind(), n, limit)
	}
	frame := dst[start:]
	binary.BigEndian.PutUint32(frame[8:], uint32(n))
	binary.BigEndian.PutUint32(frame[12:], frameSum(frame[:12], frame[frameHeaderSize:]))
	return dst, nil
}

func frameSum(head, body []byte) uint32 {
	return crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, body)
}

func frameLimit(k messageKind) int {
	if k == kindRange {
		return MaxRangeFrame
	}
	return MaxFrame
}

// readStep is how much of a body is allocated before its bytes are there: a
// header alone cannot make the reader allocate a whole frame.
const readStep = 256 << 10

// ReadFrame reads one message. io.EOF means the stream ended between frames;
// an error that wraps ErrFrame means the peer sent something else than a
// frame. Slices in the message are the caller's own. progress, when not nil,
// is called as parts of a long frame arrive.
func ReadFrame(r *bufio.Reader, progress func()) (Message, error) {
	var head [frameHeaderSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	k, n, err := checkFrameHeader(head[:])
	if err != nil {
		return nil, err
	}
	body := make([]byte, min(n, readStep))
	for got := 0; ; {
		if _, err := io.ReadFull(r, body[got:]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		if got = len(body); got == n {
			break
		}
		if progress != nil {
			progress()
		}
		// Doubling keeps copying linear; the length is already checked.
		grown := make([]byte, min(n, 2*got))
		copy(grown, body)
		body = grown
	}
	if sum := binary.BigEndian.Uint32(head[12:]); sum != frameSum(head[:12], body) {
		return nil, fmt.Errorf("%w: checksum differs", ErrFrame)
	}
	return parseBody(k, body)
}

// ParseFrame reads one message from the start of b and returns what is left.
// Slices in the message alias b.
func ParseFrame(b []byte) (m Message, rest []byte, err error) {
	if len(b) < frameHeaderSize {
		return nil, nil, fmt.Errorf("%w: %d bytes, shorter than a header", ErrFrame, len(b))
	}
	k, n, err := checkFrameHeader(b)
	if err != nil {
		return nil, nil, err
	}
	if len(b)-frameHeaderSize < n {
		return nil, nil, fmt.Errorf("%w: truncated", ErrFrame)
	}
	body := b[frameHeaderSize : frameHeaderSize+n : frameHeaderSize+n]
	if sum := binary.BigEndian.Uint32(b[12:]); sum != frameSum(b[:12], body) {
		return nil, nil, fmt.Errorf("%w: checksum differs", ErrFrame)
	}
	m, err = parseBody(k, body)
	return m, b[frameHeaderSize+n:], err
}

func checkFrameHeader(head []byte) (k messageKind, n int, err error) {
	if [4]byte(head[:4]) != frameMagic {
		return 0, 0, fmt.Errorf("%w: wrong magic %x", ErrFrame, head[:4])
	}
	if head[4] != ProtocolVersion {
		return 0, 0, fmt.Errorf("%w: wire version %d, this program speaks %d", ErrFrame, head[4], ProtocolVersion)
	}
	k = messageKind(head[5])
	if k < kindHello || k > kindLast {
		return 0, 0, fmt.Errorf("%w: unknown type %d", ErrFrame, k)
	}
	if head[6] != 0 || head[7] != 0 {
		return 0, 0, fmt.Errorf("%w: reserved bytes are not zero", ErrFrame)
	}
	size := binary.BigEndian.Uint32(head[8:])
	if limit := frameLimit(k); uint64(size) > uint64(limit) {
		return 0, 0, fmt.Errorf("%w: body of %d bytes, limit %d", ErrFrame, size, limit)
	}
	return k, int(size), nil
}

func (m *MsgHello) appendBody(b []byte) []byte {
	b = append(b, m.VersionMin, m.VersionMax)
	b = append(b, m.Mesh[:]...)
	b = append(b, m.Key[:]...)
	b = append(b, m.Origin[:]...)
	b = appendInt64(b, m.WallMillis)
	b = append(b, m.Digest[:]...)
	b = binary.BigEndian.AppendUint64(b, m.GossipEpoch)
	b = appendText(b, m.Label, maxLabel)
	b = append(b, byte(len(m.GossipKey)))
	b = append(b, m.GossipKey...)
	addrs := m.Addrs[:min(len(m.Addrs), maxAddrs)]
	b = append(b, byte(len(addrs)))
	for _, a := range addrs {
		b = appendText(b, a, maxAddr)
	}
	return b
}

func (m *MsgFrontier) appendBody(b []byte) []byte {
	return m.Tips.Append(append(b, boolByte(m.Full)))
}

func (m *MsgWant) appendBody(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, m.Sub)
	b = append(b, m.Origin[:]...)
	after := m.After[:min(len(m.After), maxAfter)]
	b = append(b, boolByte(m.Probe), byte(len(after)))
	for _, t := range after {
		b = appendTip(b, t)
	}
	return b
}

func (m *MsgUnwant) appendBody(b []byte) []byte {
	return binary.BigEndian.AppendUint64(b, m.Sub)
}

func (m *MsgRange) appendBody(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, m.Sub)
	b = append(b, m.Range.Origin[:]...)
	b = binary.BigEndian.AppendUint64(b, m.Range.First)
	b = binary.BigEndian.AppendUint32(b, uint32(m.Range.Count))
	b = m.Range.Head.Append(b)
	return append(b, m.Range.Entries...)
}

func (m *MsgCredit) appendBody(b []byte) []byte {
	return binary.BigEndian.AppendUint64(b, m.Total)
}

func (m *MsgHeads) appendBody(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(m.Heads)))
	for i := range m.Heads {
		b = m.Heads[i].Append(b)
	}
	return b
}

func (m *MsgFloorAsk) appendBody(b []byte) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(m.Above))
}

func (m *MsgError) appendBody(b []byte) []byte {
	b = append(b, byte(m.Code))
	b = binary.BigEndian.AppendUint64(b, m.Sub)
	b = append(b, m.Origin[:]...)
	b = appendTip(b, m.Tip)
	b = binary.BigEndian.AppendUint32(b, m.RetryMillis)
	text := m.Text
	if len(text) > maxErrorText {
		text = text[:maxErrorText]
	}
	b = binary.BigEndian.AppendUint16(b, uint16(len(text)))
	return append(b, text...)
}

func (m *MsgPing) appendBody(b []byte) []byte { return appendInt64(b, m.Millis) }

func (m *MsgPong) appendBody(b []byte) []byte {
	return appendInt64(appendInt64(b, m.Echo), m.Millis)
}

func appendInt64(b []byte, v int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(v)) }

func appendTip(b []byte, t oplog.Tip) []byte {
	b = binary.BigEndian.AppendUint64(b, t.Seq)
	return append(b, t.Hash[:]...)
}

func appendText(b []byte, s string, limit int) []byte {
	if len(s) > limit {
		s = s[:limit]
	}
	return append(append(b, byte(len(s))), s...)
}

func boolByte(v bool) byte {
	if v {
		return 1
	}
	return 0
}

func parseBody(k messageKind, body []byte) (Message, error) {
	d := bodyReader{b: body}
	var m Message
	switch k {
	case kindHello:
		m = d.hello()
	case kindFrontier:
		m = d.frontier()
	case kindWant:
		m = d.want()
	case kindUnwant:
		m = &MsgUnwant{Sub: d.uint64()}
	case kindRange:
		m = d.rangeOf()
	case kindCredit:
		m = &MsgCredit{Total: d.uint64()}
	case kindHeads:
		m = d.heads()
	case kindFloorAsk:
		m = &MsgFloorAsk{Above: hlc.Timestamp(d.uint64())}
	case kindError:
		m = d.errorOf()
	case kindPing:
		m = &MsgPing{Millis: int64(d.uint64())}
	case kindPong:
		m = &MsgPong{Echo: int64(d.uint64()), Millis: int64(d.uint64())}
	case kindBlobWant:
		m = d.blobWant()
	case kindBlobChunk:
		m = d.blobChunk()
	case kindBlobState:
		m = d.blobState()
	case kindEntryWant:
		m = d.entryWant()
	case kindEntry:
		m = d.entry()
	case kindEntryState:
		m = d.entryState()
	default:
		d.fail("unknown type %d", k)
	}
	if d.err == nil && len(d.b) != 0 {
		d.fail("%d bytes left over in a frame of type %d", len(d.b), k)
	}
	if d.err != nil {
		return nil, d.err
	}
	return m, nil
}

// bodyReader takes fields from the front of a body. The first error sticks.
type bodyReader struct {
	b   []byte
	err error
}

func (d *bodyReader) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: "+format, append([]any{ErrFrame}, args...)...)
	}
}

var zeroes [64]byte

// take returns the next n bytes; n is at most 64 for it to be safe to read
// the result after a failure.
func (d *bodyReader) take(n int) []byte {
	if d.err == nil && n > len(d.b) {
		d.fail("body is too short")
	}
	if d.err != nil {
		return zeroes[:min(n, len(zeroes))]
	}
	out := d.b[:n:n]
	d.b = d.b[n:]
	return out
}

func (d *bodyReader) byte() byte             { return d.take(1)[0] }
func (d *bodyReader) uint16() uint16         { return binary.BigEndian.Uint16(d.take(2)) }
func (d *bodyReader) uint32() uint32         { return binary.BigEndian.Uint32(d.take(4)) }
func (d *bodyReader) uint64() uint64         { return binary.BigEndian.Uint64(d.take(8)) }
func (d *bodyReader) origin() oplog.OriginID { return oplog.OriginID(d.take(16)) }
func (d *bodyReader) hash() oplog.Hash       { return oplog.Hash(d.take(32)) }

// tip reads seq and hash; seq 0 must come with a zero hash, and only where
// zero is allowed.
func (d *bodyReader) tip(zero bool) oplog.Tip {
	t := oplog.Tip{Seq: d.uint64(), Hash: d.hash()}
	if d.err == nil && t.Seq == 0 && (!zero || !t.Hash.IsZero()) {
		d.fail("position at seq 0")
	}
	return t
}

func (d *bodyReader) text(limit int) string {
	n := int(d.byte())
	if n > limit {
		d.fail("text of %d bytes, limit %d", n, limit)
	}
	if d.err != nil || n > len(d.b) {
		d.fail("body is too short")
		return ""
	}
	return string(d.take(n))
}

func (d *bodyReader) hello() *MsgHello {
	m := &MsgHello{VersionMin: d.byte(), VersionMax: d.byte()}
	copy(m.Mesh[:], d.take(16))
	copy(m.Key[:], d.take(32))
	m.Origin = d.origin()
	m.WallMillis = int64(d.uint64())
	m.Digest = d.hash()
	m.GossipEpoch = d.uint64()
	m.Label = d.text(maxLabel)
	switch n := d.byte(); n {
	case 0:
	case 16, 24, 32:
		m.GossipKey = append([]byte(nil), d.take(int(n))...)
	default:
		d.fail("gossip key of %d bytes", n)
	}
	n := int(d.byte())
	if n > maxAddrs {
		d.fail("%d addresses, limit %d", n, maxAddrs)
	}
	for i := 0; i < n && d.err == nil; i++ {
		m.Addrs = append(m.Addrs, d.text(maxAddr))
	}
	return m
}

func (d *bodyReader) bool() bool {
	v := d.byte()
	if v > 1 {
		d.fail("%d is neither yes nor no", v)
	}
	return v == 1
}

func (d *bodyReader) want() *MsgWant {
	m := &MsgWant{Sub: d.uint64(), Origin: d.origin(), Probe: d.bool()}
	n := int(d.byte())
	if n > maxAfter {
		d.fail("%d positions, limit %d", n, maxAfter)
	}
	for i := 0; i < n && d.err == nil; i++ {
		m.After = append(m.After, d.tip(false))
	}
	return m
}

func (d *bodyReader) frontier() *MsgFrontier {
	m := &MsgFrontier{Full: d.bool()}
	if d.err != nil {
		return m
	}
	tips, rest, err := oplog.ParseFrontier(d.b)
	if err != nil {
		d.fail("frontier: %v", err)
		return m
	}
	m.Tips, d.b = tips, rest
	return m
}

func (d *bodyReader) head() (h oplog.Head) {
	if d.err != nil {
		return h
	}
	h, rest, err := oplog.ParseHead(d.b)
	if err != nil {
		d.fail("head: %v", err)
		return h
	}
	d.b = rest
	return h
}

func (d *bodyReader) heads() *MsgHeads {
	n := int(d.uint16())
	if n > maxHeads {
		d.fail("%d heads, limit %d", n, maxHeads)
	}
	m := &MsgHeads{}
	for i := 0; i < n && d.err == nil; i++ {
		m.Heads = append(m.Heads, d.head())
	}
	return m
}

func (d *bodyReader) rangeOf() *MsgRange {
	m := &MsgRange{Sub: d.uint64()}
	m.Range.Origin = d.origin()
	m.Range.First = d.uint64()
	m.Range.Count = int(d.uint32())
	m.Range.Head = d.head()
	if d.err != nil {
		return m
	}
	m.Range.Entries, d.b = d.b, nil
	return m
}

func (d *bodyReader) errorOf() *MsgError {
	m := &MsgError{Code: WireCode(d.byte()), Sub: d.uint64(), Origin: d.origin(), Tip: d.tip(true), RetryMillis: d.uint32()}
	n := int(d.uint16())
	if n > maxErrorText {
		d.fail("text of %d bytes, limit %d", n, maxErrorText)
	}
	if d.err != nil || n > len(d.b) {
		d.fail("body is too short")
		return m
	}
	m.Text = string(d.take(n))
	return m
}
