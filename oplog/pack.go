package oplog

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
)

// A pack is a log in a file: the ranges of every origin with their signed
// heads, and the content they name. docs/format-export.md is its
// specification. Nothing in it is believed: each range is verified like one
// from a peer, and content by its hash.

const (
	packMagic   = "tallypak"
	packVersion = 0
	packHeader  = len(packMagic) + 1
	recordHead  = 1 + 4
	recordSum   = 4

	// MaxPackMeta bounds what a pack says of itself.
	MaxPackMeta = 64 << 10
	maxRecord   = MaxRange + 1024
)

// Types of a pack's records.
const (
	recMeta  = 'M'
	recRange = 'R'
	recBlob  = 'B'
	recEnd   = 'E'
)

// ErrBadPack means bytes that are not a whole pack: another file, one that is
// cut short, or one that was changed.
var ErrBadPack = errors.New("oplog: not a whole pack")

func badPack(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrBadPack}, args...)...)
}

// PackedChunk is one chunk of content in a pack.
type PackedChunk struct {
	Hash  Hash
	Size  int64 // of the whole content
	Index uint32
	Data  []byte
}

// PackCounts is what a pack holds.
type PackCounts struct {
	Ranges  uint64 `json:"ranges"`
	Entries uint64 `json:"entries"` // a forked origin's common entries may count twice
	Chunks  uint64 `json:"chunks"`
	Bytes   uint64 `json:"bytes"` // of the file
}

// PackWriter writes a pack. Close writes its end; a pack without one is
// refused by every reader.
type PackWriter struct {
	w   io.Writer
	sum hash.Hash
	n   PackCounts
	buf []byte
	err error
}

// NewPackWriter begins a pack. meta is the caller's, at most MaxPackMeta.
func NewPackWriter(w io.Writer, meta []byte) (*PackWriter, error) {
	if len(meta) > MaxPackMeta {
		return nil, &LimitError{Field: "meta of a pack", Size: len(meta), Limit: MaxPackMeta}
	}
	p := &PackWriter{w: w, sum: sha256.New()}
	p.write(append([]byte(packMagic), packVersion))
	p.record(recMeta, meta)
	return p, p.err
}

func (p *PackWriter) write(b []byte) {
	if p.err != nil {
		return
	}
	p.sum.Write(b)
	p.n.Bytes += uint64(len(b))
	if _, err := p.w.Write(b); err != nil {
		p.err = fmt.Errorf("oplog: write pack: %w", err)
	}
}

func (p *PackWriter) record(kind byte, parts ...[]byte) {
	n := 0
	for _, b := range parts {
		n += len(b)
	}
	p.buf = binary.BigEndian.AppendUint32(append(p.buf[:0], kind), uint32(n))
	for _, b := range parts {
		p.buf = append(p.buf, b...)
	}
	p.buf = binary.BigEndian.AppendUint32(p.buf, crc32.ChecksumIEEE(p.buf))
	p.write(p.buf)
}

// Range adds a range.
func (p *PackWriter) Range(rg *Range) error {
	b := append(make([]byte, 0, 256), rg.Origin[:]...)
	b = binary.BigEndian.AppendUint64(b, rg.First)
	b = binary.BigEndian.AppendUint32(b, uint32(rg.Count))
	b = rg.Head.Append(b)
	p.record(recRange, b, rg.Entries)
	p.n.Ranges++
	p.n.Entries += uint64(rg.Count)
	return p.err
}

// Chunk adds a chunk of content. All chunks come after all ranges, those of
// one content in order.
func (p *PackWriter) Chunk(c *PackedChunk) error {
	b := append(make([]byte, 0, 64), c.Hash[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(c.Size))
	b = binary.BigEndian.AppendUint32(b, c.Index)
	p.record(recBlob, b, c.Data)
	p.n.Chunks++
	return p.err
}

// Close writes the end. It does not close what it writes to.
func (p *PackWriter) Close() (PackCounts, error) {
	if p.err == nil {
		b := binary.BigEndian.AppendUint64(nil, p.n.Ranges)
		b = binary.BigEndian.AppendUint64(b, p.n.Entries)
		b = binary.BigEndian.AppendUint64(b, p.n.Chunks)
		p.record(recEnd, p.sum.Sum(b))
	}
	return p.n, p.err
}

// PackReader reads a pack, one record at a time.
type PackReader struct {
	r     *bufio.Reader
	sum   hash.Hash
	meta  []byte
	n     PackCounts
	ended bool
	blobs bool
}

// NewPackReader reads a pack's opening.
func NewPackReader(r io.Reader) (*PackReader, error) {
	p := &PackReader{r: bufio.NewReaderSize(r, 64<<10), sum: sha256.New()}
	head := make([]byte, packHeader)
	if _, err := io.ReadFull(p.r, head); err != nil {
		return nil, badPack("%v", err)
	}
	if string(head[:len(packMagic)]) != packMagic {
		return nil, badPack("it does not begin with %q", packMagic)
	}
	if v := head[len(packMagic)]; v != packVersion {
		return nil, fmt.Errorf("%w: pack of version %d, this program reads %d", ErrFormat, v, packVersion)
	}
	p.took(head)
	kind, body, err := p.record()
	if err != nil {
		return nil, err
	}
	if kind != recMeta || len(body) > MaxPackMeta {
		return nil, badPack("it does not say what it is")
	}
	p.meta = body
	return p, nil
}

// Meta is what the writer said of the pack. Nobody has signed it.
func (p *PackReader) Meta() []byte { return p.meta }

// Counts is what was read so far.
func (p *PackReader) Counts() PackCounts { return p.n }

func (p *PackReader) took(b []byte) {
	p.sum.Write(b)
	p.n.Bytes += uint64(len(b))
}

// record reads one record and checks its checksum. What it allocates is
// bounded by what is there to read, not by what a length says.
func (p *PackReader) record() (kind byte, body []byte, err error) {
	var head [recordHead]byte
	if _, err := io.ReadFull(p.r, head[:]); err != nil {
		return 0, nil, badPack("it is cut short: %v", err)
	}
	n := int64(binary.BigEndian.Uint32(head[1:]))
	if n > maxRecord {
		return 0, nil, badPack("a record of %d bytes, limit %d", n, maxRecord)
	}
	var buf bytes.Buffer
	if _, err := io.CopyN(&buf, p.r, n+recordSum); err != nil {
		return 0, nil, badPack("it is cut short: %v", err)
	}
	b := buf.Bytes()
	body = b[:n:n]
	crc := crc32.Update(crc32.ChecksumIEEE(head[:]), crc32.IEEETable, body)
	if crc != binary.BigEndian.Uint32(b[n:]) {
		return 0, nil, badPack("a checksum does not match at byte %d", p.n.Bytes)
	}
	if head[0] != recEnd {
		p.took(head[:])
		p.took(b)
	}
	return head[0], body, nil
}

// Next reads the next range or chunk; the other is nil. io.EOF is the proper
// end, at which the pack as a whole was checked.
func (p *PackReader) Next() (*Range, *PackedChunk, error) {
	if p.ended {
		return nil, nil, io.EOF
	}
	kind, body, err := p.record()
	if err != nil {
		return nil, nil, err
	}
	switch kind {
	case recRange:
		if p.blobs {
			return nil, nil, badPack("a range after content")
		}
		rg, err := parsePackedRange(body)
		if err != nil {
			return nil, nil, err
		}
		p.n.Ranges++
		p.n.Entries += uint64(rg.Count)
		return rg, nil, nil
	case recBlob:
		p.blobs = true
		c, err := parsePackedChunk(body)
		if err != nil {
			return nil, nil, err
		}
		p.n.Chunks++
		return nil, c, nil
	case recEnd:
		return nil, nil, p.end(body)
	}
	return nil, nil, badPack("a record of type %q", kind)
}

func (p *PackReader) end(body []byte) error {
	if len(body) != 3*8+sha256.Size {
		return badPack("its end has %d bytes", len(body))
	}
	said := PackCounts{Ranges: binary.BigEndian.Uint64(body), Entries: binary.BigEndian.Uint64(body[8:]),
		Chunks: binary.BigEndian.Uint64(body[16:]), Bytes: p.n.Bytes}
	if said != p.n {
		return badPack("it says %d ranges, %d entries and %d chunks, and holds %d, %d and %d",
			said.Ranges, said.Entries, said.Chunks, p.n.Ranges, p.n.Entries, p.n.Chunks)
	}
	if !bytes.Equal(p.sum.Sum(nil), body[24:]) {
		return badPack("its digest does not match")
	}
	if _, err := p.r.ReadByte(); err == nil {
		return badPack("bytes after its end")
	} else if !errors.Is(err, io.EOF) {
		return badPack("%v", err)
	}
	p.n.Bytes += uint64(recordHead + len(body) + recordSum)
	p.ended = true
	return io.EOF
}

func parsePackedRange(b []byte) (*Range, error) {
	const fixed = len(OriginID{}) + 8 + 4
	if len(b) < fixed {
		return nil, badPack("a range of %d bytes", len(b))
	}
	rg := &Range{Origin: OriginID(b[:16]), First: binary.BigEndian.Uint64(b[16:])}
	count := binary.BigEndian.Uint32(b[24:])
	head, rest, err := ParseHead(b[fixed:])
	if err != nil {
		return nil, badPack("%v", err)
	}
	if count == 0 || int64(count) > int64(len(rest)) {
		return nil, badPack("%d entries in %d bytes", count, len(rest))
	}
	rg.Count, rg.Head, rg.Entries = int(count), head, rest
	return rg, nil
}

func parsePackedChunk(b []byte) (*PackedChunk, error) {
	const fixed = len(Hash{}) + 8 + 4
	if len(b) < fixed {
		return nil, badPack("content of %d bytes", len(b))
	}
	c := &PackedChunk{Hash: Hash(b[:32]), Index: binary.BigEndian.Uint32(b[40:]), Data: b[fixed:]}
	size := binary.BigEndian.Uint64(b[32:])
	if size == 0 || size > MaxBlob {
		return nil, badPack("content of %d bytes, limit %d", size, MaxBlob)
	}
	c.Size = int64(size)
	if c.Index >= Chunks(c.Size) || len(c.Data) != chunkLen(c.Size, c.Index) {
		return nil, badPack("chunk %d of %d bytes does not fit content of %d", c.Index, len(c.Data), c.Size)
	}
	return c, nil
}
