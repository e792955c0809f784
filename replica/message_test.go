package replica_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"tallystick/hlc"
	"tallystick/oplog"
	"tallystick/replica"
)

var update = flag.Bool("update", false, "write the golden files of this package anew")

func fill(b []byte, from byte) {
	for i := range b {
		b[i] = from + byte(i)
	}
}

func originNo(n byte) (o oplog.OriginID) { fill(o[:], n); return o }
func hashNo(n byte) (h oplog.Hash)       { fill(h[:], n); return h }
func keyNo(n byte) (k oplog.DeviceKey)   { fill(k[:], n); return k }

func headNo(n byte, seq uint64) oplog.Head {
	h := oplog.Head{Origin: originNo(n), Seq: seq, Hash: hashNo(n + 1), Floor: hlc.New(1_800_000_000_000, 7)}
	fill(h.Sig[:], n+2)
	return h
}

// samples holds one message of each type, by name of its golden file.
func samples() []struct {
	name string
	msg  replica.Message
} {
	var mesh replica.MeshID
	fill(mesh[:], 0x10)
	key := make([]byte, 32)
	fill(key, 0xc0)
	return []struct {
		name string
		msg  replica.Message
	}{
		{"hello", &replica.MsgHello{
			VersionMin: 1, VersionMax: 1, Mesh: mesh, Key: keyNo(0x20), Origin: originNo(0x30), Label: "mac",
			WallMillis: 1_800_000_000_123, Digest: hashNo(0x40), GossipEpoch: 3, GossipKey: key,
			Addrs: []string{"192.0.2.7:7717", "mac.tail.example:7717"},
		}},
		{"frontier", &replica.MsgFrontier{Full: true, Tips: oplog.Frontier{
			originNo(0x30): {{Seq: 300, Hash: hashNo(0x50)}},
			originNo(0x31): {{Seq: 4, Hash: hashNo(0x51)}, {Seq: 5, Hash: hashNo(0x52)}},
		}}},
		{"frontier_change", &replica.MsgFrontier{Tips: oplog.Frontier{originNo(0x30): {{Seq: 301, Hash: hashNo(0x53)}}}}},
		{"want", &replica.MsgWant{Sub: 9, Origin: originNo(0x30), After: []oplog.Tip{{Seq: 300, Hash: hashNo(0x50)}}}},
		{"want_probe", &replica.MsgWant{Sub: 11, Origin: originNo(0x30), Probe: true, After: []oplog.Tip{{Seq: 300, Hash: hashNo(0x50)}, {Seq: 299, Hash: hashNo(0x4f)}, {Seq: 1, Hash: hashNo(0x4e)}}}},
		{"want_from_birth", &replica.MsgWant{Sub: 10, Origin: originNo(0x31)}},
		{"unwant", &replica.MsgUnwant{Sub: 9}},
		{"range", &replica.MsgRange{Sub: 9, Range: oplog.Range{
			Origin: originNo(0x30), First: 301, Count: 2, Entries: []byte("two entries, as the log gave them"), Head: headNo(0x30, 302),
		}}},
		{"credit", &replica.MsgCredit{Total: 4 << 20}},
		{"heads", &replica.MsgHeads{Heads: []oplog.Head{headNo(0x30, 302), headNo(0x31, 5)}}},
		{"floor_ask", &replica.MsgFloorAsk{Above: hlc.New(1_800_000_000_000, 1)}},
		{"error", &replica.MsgError{Code: replica.WireFork, Sub: 9, Origin: originNo(0x30), Tip: oplog.Tip{Seq: 300, Hash: hashNo(0x54)}, RetryMillis: 5000, Text: "another branch is held here"}},
		{"ping", &replica.MsgPing{Millis: 1_800_000_000_123}},
		{"pong", &replica.MsgPong{Echo: 1_800_000_000_123, Millis: 1_800_000_000_120}},
		{"blob_want", &replica.MsgBlobWant{Sub: 3, Hash: hashNo(0x60), First: 2, Count: 8}},
		{"blob_chunk", &replica.MsgBlobChunk{Sub: 3, Hash: hashNo(0x60), Size: 2*oplog.ChunkSize + 5, Index: 2, Data: []byte("final")}},
		{"blob_state", &replica.MsgBlobState{Hashes: []oplog.Hash{hashNo(0x60)}}},
		{"blob_state_here", &replica.MsgBlobState{Here: true, Hashes: []oplog.Hash{hashNo(0x60), hashNo(0x61)}}},
		{"entry_want", &replica.MsgEntryWant{Sub: 4, Hashes: []oplog.Hash{hashNo(0x60), hashNo(0x61)}}},
		{"entry", &replica.MsgEntry{Sub: 4, Hash: hashNo(0x60), Entry: []byte("an entry, as the log gave it")}},
		{"entry_state", &replica.MsgEntryState{Hashes: []oplog.Hash{hashNo(0x61)}}},
		{"entry_state_here", &replica.MsgEntryState{Here: true, Hashes: []oplog.Hash{hashNo(0x61)}}},
	}
}

// TestL8_GoldenFrames holds the bytes of every message type.
func TestL8_GoldenFrames(t *testing.T) {
	for _, s := range samples() {
		t.Run(s.name, func(t *testing.T) {
			frame, err := replica.AppendFrame(nil, s.msg)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", "wire", s.name+".hex")
			if *update {
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(wrapHex(frame)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			golden, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			want, err := hex.DecodeString(strings.Join(strings.Fields(string(golden)), ""))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(frame, want) {
				t.Fatalf("encoded as\n%swant\n%s", wrapHex(frame), golden)
			}
			m, rest, err := replica.ParseFrame(want)
			if err != nil || len(rest) != 0 || !reflect.DeepEqual(m, s.msg) {
				t.Fatalf("parsed as %+v, %d bytes left, %v; want %+v", m, len(rest), err, s.msg)
			}
			m, err = replica.ReadFrame(bufio.NewReader(bytes.NewReader(want)), nil)
			if err != nil || !reflect.DeepEqual(m, s.msg) {
				t.Fatalf("read as %+v, %v; want %+v", m, err, s.msg)
			}
		})
	}
}

func wrapHex(b []byte) string {
	var s strings.Builder
	for len(b) > 0 {
		n := min(16, len(b))
		s.WriteString(hex.EncodeToString(b[:n]) + "\n")
		b = b[n:]
	}
	return s.String()
}

// reseal puts the right length and checksum into a frame, so that a test
// reaches what lies behind them.
func reseal(frame []byte) []byte {
	binary.BigEndian.PutUint32(frame[8:], uint32(len(frame)-16))
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(crc32.Checksum(frame[:12], table), table, frame[16:])
	binary.BigEndian.PutUint32(frame[12:], sum)
	return frame
}

func sample(t *testing.T, name string) []byte {
	t.Helper()
	for _, s := range samples() {
		if s.name == name {
			frame, err := replica.AppendFrame(nil, s.msg)
			if err != nil {
				t.Fatal(err)
			}
			return frame
		}
	}
	t.Fatalf("no sample %s", name)
	return nil
}

// TestL5_MalformedFrames: what is not a frame is an error, never a panic, and
// never a message.
func TestL5_MalformedFrames(t *testing.T) {
	set := func(i int, v ...byte) func([]byte) []byte {
		return func(f []byte) []byte { copy(f[i:], v); return reseal(f) }
	}
	cases := []struct {
		name, sample, want string
		change             func([]byte) []byte
	}{
		{"ErrMagic", "ping", "magic", set(0, 'X')},
		{"ErrVersion", "ping", "wire version 2", set(4, 2)},
		{"ErrType", "ping", "unknown type 0", set(5, 0)},
		{"ErrTypeAbove", "ping", "unknown type 18", set(5, 18)},
		{"ErrReserved", "ping", "reserved", set(7, 1)},
		{"ErrChecksum", "ping", "checksum", func(f []byte) []byte { f[20] ^= 1; return f }},
		{"ErrHeaderBit", "ping", "checksum", func(f []byte) []byte { f[5] = 8; return f }},
		{"ErrShort", "ping", "too short", func(f []byte) []byte { return reseal(f[:len(f)-1]) }},
		{"ErrLong", "ping", "left over", func(f []byte) []byte { return reseal(append(f, 0)) }},
		{"ErrHugeLength", "ping", "limit 1048576", func(f []byte) []byte { binary.BigEndian.PutUint32(f[8:], 1<<31); return f }},
		{"ErrHugeRange", "range", "limit 8388608", func(f []byte) []byte { binary.BigEndian.PutUint32(f[8:], 8<<20+1); return f }},
		{"ErrGossipKey", "hello", "gossip key of 5", set(16+2+16+32+16+8+32+8+4, 5)},
		{"ErrLabel", "hello", "limit 64", set(16+2+16+32+16+8+32+8, 65)},
		{"ErrAddrs", "hello", "9 addresses", set(16+2+16+32+16+8+32+8+4+1+32, 9)},
		{"ErrFull", "frontier", "neither yes nor no", set(16, 2)},
		{"ErrFrontier", "frontier", "frontier", set(17, 0xc0)},
		{"ErrManyOrigins", "frontier", "limit 65536", set(17, 0xdd, 0x00, 0x01, 0x00, 0x01)},
		{"ErrPosition", "want", "seq 0", set(16+8+16+2, 0, 0, 0, 0, 0, 0, 0, 0)},
		{"ErrProbe", "want", "neither yes nor no", set(16+8+16, 7)},
		{"ErrAfter", "want", "129 positions", set(16+8+16+1, 129)},
		{"ErrHeads", "heads", "limit 1024", set(16, 0x04, 0x01)},
		{"ErrHead", "heads", "head", set(18, 0xc0)},
		{"ErrHeadsMissing", "heads", "head", set(16, 0, 3)},
		{"ErrNoChunks", "blob_want", "0 chunks", set(16+8+32+4, 0)},
		{"ErrManyChunks", "blob_want", "limit 8", set(16+8+32+4, 9)},
		{"ErrFirstChunk", "blob_want", "limit 8", set(16+8+32, 0, 0, 1, 0)},
		{"ErrBlobSize", "blob_chunk", "limit 67108864", set(16+8+32, 4, 0, 0, 1)},
		{"ErrBlobEmpty", "blob_chunk", "content of 0", set(16+8+32, 0, 0, 0, 0)},
		{"ErrChunkIndex", "blob_chunk", "chunk 3", set(16+8+32+4, 0, 0, 0, 3)},
		{"ErrChunkShort", "blob_chunk", "chunk 1 has 5", set(16+8+32+4, 0, 0, 0, 1)},
		{"ErrChunkNone", "blob_chunk", "chunk 2 has 0", func(f []byte) []byte { return reseal(f[:len(f)-5]) }},
		{"ErrHere", "blob_state", "neither yes nor no", set(16, 2)},
		{"ErrNoHashes", "blob_state", "0 hashes", set(17, 0, 0)},
		{"ErrManyHashes", "blob_state", "limit 1024", set(17, 4, 1)},
		{"ErrHashesMissing", "blob_state", "too short", set(17, 4, 0)},
		{"ErrNoEntries", "entry_want", "0 hashes", set(16+8, 0)},
		{"ErrManyEntries", "entry_want", "65 hashes, limit 64", set(16+8, 65)},
		{"ErrEntriesMissing", "entry_want", "too short", set(16+8, 64)},
		{"ErrEntryNone", "entry", "an entry of 0", func(f []byte) []byte { return reseal(f[:16+8+32]) }},
		{"ErrEntryLong", "entry", "limit 1048512", func(f []byte) []byte {
			return reseal(append(f[:16+8+32], make([]byte, oplog.MaxEntry+1)...)) // within the limit of a frame
		}},
		{"ErrEntryHere", "entry_state", "neither yes nor no", set(16, 2)},
		{"ErrEntryStateMissing", "entry_state", "too short", set(17, 2)},
		{"ErrEntryStateEmpty", "entry_state", "0 hashes", set(17, 0)},
		{"ErrText", "error", "limit 512", set(16+1+8+16+8+32+4, 2, 1)},
		{"ErrTextShort", "error", "too short", set(16+1+8+16+8+32+4, 0, 200)},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			frame := c.change(sample(t, c.sample))
			m, _, err := replica.ParseFrame(frame)
			if m != nil || !errors.Is(err, replica.ErrFrame) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("ParseFrame: %v, %v; want an ErrFrame with %q", m, err, c.want)
			}
			m, err = replica.ReadFrame(bufio.NewReader(bytes.NewReader(frame)), nil)
			if m != nil || !errors.Is(err, replica.ErrFrame) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("ReadFrame: %v, %v; want an ErrFrame with %q", m, err, c.want)
			}
		})
	}
}

// TestL5_TruncatedFrames: a stream that ends in a frame is not a clean end.
func TestL5_TruncatedFrames(t *testing.T) {
	frame := sample(t, "hello")
	for n := range len(frame) {
		if _, _, err := replica.ParseFrame(frame[:n]); !errors.Is(err, replica.ErrFrame) {
			t.Fatalf("ParseFrame of %d bytes: %v", n, err)
		}
		_, err := replica.ReadFrame(bufio.NewReader(bytes.NewReader(frame[:n])), nil)
		if want := io.ErrUnexpectedEOF; n > 0 && err != want || n == 0 && err != io.EOF {
			t.Fatalf("ReadFrame of %d bytes: %v", n, err)
		}
	}
}

// TestA4_HeaderDoesNotAllocate: a header that promises a full frame makes the
// reader allocate what has arrived, not what was promised.
func TestA4_HeaderDoesNotAllocate(t *testing.T) {
	frame := sample(t, "range")[:16]
	binary.BigEndian.PutUint32(frame[8:], replica.MaxRangeFrame)
	res := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, err := replica.ReadFrame(bufio.NewReaderSize(bytes.NewReader(frame), 16), nil)
			if err != io.ErrUnexpectedEOF {
				b.Fatal(err)
			}
		}
	})
	if got := res.AllocedBytesPerOp(); got > 512<<10 {
		t.Errorf("%d bytes allocated for a header without a body", got)
	}
}

// TestA4_FrameLimits: a message over its frame's limit is refused by the
// sender; a long one arrives whole, with word of its progress.
func TestA4_FrameLimits(t *testing.T) {
	long := &replica.MsgRange{Sub: 1, Range: oplog.Range{Origin: originNo(1), First: 1, Count: 1, Head: headNo(1, 1)}}
	long.Range.Entries = bytes.Repeat([]byte{7}, replica.MaxRangeFrame)
	if _, err := replica.AppendFrame(nil, long); err == nil {
		t.Error("a range over the limit was encoded")
	}
	long.Range.Entries = long.Range.Entries[:replica.MaxRangeFrame-1024]
	frame, err := replica.AppendFrame(nil, long)
	if err != nil {
		t.Fatal(err)
	}
	parts := 0
	m, err := replica.ReadFrame(bufio.NewReader(bytes.NewReader(frame)), func() { parts++ })
	if err != nil || !reflect.DeepEqual(m, long) || parts < 3 {
		t.Errorf("long frame: %v, equal %v, %d parts", err, reflect.DeepEqual(m, long), parts)
	}
	heads := &replica.MsgHeads{Heads: make([]oplog.Head, 1024)}
	for i := range heads.Heads {
		heads.Heads[i] = headNo(byte(i), 1<<60)
	}
	if _, err := replica.AppendFrame(nil, heads); err != nil {
		t.Errorf("heads at their limit: %v", err)
	}
}

// FuzzFrame: parsing never panics, and what parses encodes to the same bytes.
func FuzzFrame(f *testing.F) {
	for _, s := range samples() {
		frame, err := replica.AppendFrame(nil, s.msg)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= 16 {
			b = reseal(bytes.Clone(b)) // or nothing would get past the checksum
		}
		m, rest, err := replica.ParseFrame(b)
		if err != nil {
			if !errors.Is(err, replica.ErrFrame) {
				t.Fatalf("error of another class: %v", err)
			}
			return
		}
		again, err := replica.AppendFrame(nil, m)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again, b[:len(b)-len(rest)]) {
			t.Fatalf("parsed %x\nencodes %x", b[:len(b)-len(rest)], again)
		}
	})
}
