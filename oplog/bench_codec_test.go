package oplog

import (
	"bytes"
	"crypto/sha256"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"tallystick/hlc"
)

// headerStruct and entryStruct are what an entry would be if the library
// encoded it by reflection: the same arrays, the same bytes (see
// TestCodecWritesWhatTheLibraryWrites). Slices, not byte arrays: the library is
// faster on them.
type headerStruct struct {
	//lint:ignore U1000 the library reads the tag
	_msgpack struct{} `msgpack:",as_array"`

	Version     uint64
	Origin      []byte
	Seq         uint64
	Time        uint64
	Prev        []byte
	Kind        string
	Author      string
	PayloadLen  uint64
	PayloadHash []byte
}

type entryStruct struct {
	//lint:ignore U1000 the library reads the tag
	_msgpack struct{} `msgpack:",as_array"`

	Header  []byte
	Salt    []byte
	Payload []byte
}

// flatStruct has all of it in one array: another format, with one call of the
// library instead of two, the least that reflection can be asked to do.
type flatStruct struct {
	//lint:ignore U1000 the library reads the tag
	_msgpack struct{} `msgpack:",as_array"`

	Version     uint64
	Origin      []byte
	Seq         uint64
	Time        uint64
	Prev        []byte
	Kind        string
	Author      string
	PayloadLen  uint64
	PayloadHash []byte
	Salt        []byte
	Payload     []byte
}

func headerStructOf(e *Entry) headerStruct {
	return headerStruct{
		Version: EnvelopeVersion, Origin: e.Origin[:], Seq: e.Seq, Time: uint64(e.Time), Prev: e.Prev[:], Kind: e.Kind,
		Author: e.Author, PayloadLen: uint64(e.PayloadLen), PayloadHash: e.PayloadHash[:],
	}
}

func flatStructOf(e *Entry) flatStruct {
	h := headerStructOf(e)
	return flatStruct{
		Version: h.Version, Origin: h.Origin, Seq: h.Seq, Time: h.Time, Prev: h.Prev, Kind: h.Kind, Author: h.Author,
		PayloadLen: h.PayloadLen, PayloadHash: h.PayloadHash, Salt: e.Salt, Payload: e.Payload,
	}
}

// benchEntry is an ordinary event: about 400 bytes.
func benchEntry() Entry {
	e := Entry{Header: Header{
		Origin: OriginID{0x3f, 0x9a, 0x11}, Seq: 70000, Time: hlc.New(1772366400000, 3), Prev: sha256.Sum256([]byte("before")),
		Kind: "event", Author: "desk:claude:tallystick",
	}}
	e.Salt = bytes.Repeat([]byte{7}, SaltSize)
	e.Payload = EncodePayload(1, "op-1", bytes.Repeat([]byte("body "), 36))
	e.seal()
	return e
}

// compare runs the two as sub-benchmarks and then, as a third, in turns, so
// that whatever else the machine does hits both: its "x" is how many times
// faster the first was.
func compare(b *testing.B, fast, slow string, f, s func()) {
	for _, c := range []struct {
		name string
		fn   func()
	}{{fast, f}, {slow, s}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.fn()
			}
		})
	}
	b.Run(fast+"-vs-"+slow, func(b *testing.B) {
		const turn = 256
		var took [2]time.Duration
		for b.Loop() {
			for i, fn := range [2]func(){f, s} {
				start := time.Now()
				for range turn {
					fn()
				}
				took[i] += time.Since(start)
			}
		}
		b.ReportMetric(float64(took[1])/float64(took[0]), "x")
		b.ReportMetric(float64(took[0])/float64(b.N*turn), "fast-ns")
		b.ReportMetric(float64(took[1])/float64(b.N*turn), "slow-ns")
		b.ReportMetric(0, "ns/op")
	})
}

// BenchmarkEntryEncode writes header and entry of an event whose hashes are
// known; hashing is the same work for any codec. "hashed" is what sealing and
// writing costs in whole.
func BenchmarkEntryEncode(b *testing.B) {
	e := benchEntry()
	want := e.Append(nil)
	dst, hdr := make([]byte, 0, 1024), make([]byte, 0, 1024)
	hand := func() {
		hdr = appendHeader(hdr[:0], &e.Header)
		e.RawHeader = hdr
		dst = e.Append(dst[:0])
	}
	hand()
	if !bytes.Equal(dst, want) {
		b.Fatal("the benchmark writes another entry")
	}
	compare(b, "hand", "reflect", hand, func() {
		h := headerStructOf(&e)
		raw, err := msgpack.Marshal(&h)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := msgpack.Marshal(&entryStruct{Header: raw, Salt: e.Salt, Payload: e.Payload}); err != nil {
			b.Fatal(err)
		}
	})
	compare(b, "hand-again", "flat", hand, func() {
		s := flatStructOf(&e)
		if _, err := msgpack.Marshal(&s); err != nil {
			b.Fatal(err)
		}
	})
	b.Run("hashed", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			e.seal()
			dst = e.Append(dst[:0])
		}
	})
}

// BenchmarkEntryDecode reads the same entry: without hashing, which is the
// codec alone, and as ParseEntry does it, with both hashes.
func BenchmarkEntryDecode(b *testing.B) {
	e := benchEntry()
	raw := e.Append(nil)
	h, f := headerStructOf(&e), flatStructOf(&e)
	rawHeader, err := msgpack.Marshal(&h)
	if err != nil {
		b.Fatal(err)
	}
	nested, err := msgpack.Marshal(&entryStruct{Header: rawHeader, Salt: e.Salt, Payload: e.Payload})
	if err != nil {
		b.Fatal(err)
	}
	flat, err := msgpack.Marshal(&f)
	if err != nil {
		b.Fatal(err)
	}
	var out Entry
	hand := func() {
		if _, err := out.decode(raw); err != nil {
			b.Fatal(err)
		}
	}
	compare(b, "hand", "reflect", hand, func() {
		var s entryStruct
		var h headerStruct
		if err := msgpack.Unmarshal(nested, &s); err != nil {
			b.Fatal(err)
		}
		if err := msgpack.Unmarshal(s.Header, &h); err != nil {
			b.Fatal(err)
		}
	})
	compare(b, "hand-again", "flat", hand, func() {
		var s flatStruct
		if err := msgpack.Unmarshal(flat, &s); err != nil {
			b.Fatal(err)
		}
	})
	compare(b, "hashed", "reflect-hashed", func() {
		if _, _, err := ParseEntry(raw); err != nil {
			b.Fatal(err)
		}
	}, func() {
		var s entryStruct
		var h headerStruct
		if err := msgpack.Unmarshal(nested, &s); err != nil {
			b.Fatal(err)
		}
		if err := msgpack.Unmarshal(s.Header, &h); err != nil {
			b.Fatal(err)
		}
		_ = sha256.Sum256(s.Header)
		if payloadHash(s.Salt, s.Payload) != e.PayloadHash {
			b.Fatal("payload")
		}
	})
}
