package oplog

import (
	"bytes"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"

	"tallystick/hlc"
)

// sizes are lengths and numbers at the edges of msgpack's forms.
var sizes = []uint64{0, 1, 15, 16, 31, 32, 127, 128, 255, 256, 65535, 65536, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, math.MaxUint64}

// The hand-written pieces give the library's bytes at every edge.
func TestWirePiecesAreTheLibrarys(t *testing.T) {
	library := func(fn func(*msgpack.Encoder) error) []byte {
		var b bytes.Buffer
		if err := fn(msgpack.NewEncoder(&b)); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	check := func(what string, n uint64, got, want []byte) {
		if !bytes.Equal(got, want) {
			t.Errorf("%s of %d: %x, the library writes %x", what, n, got[:min(len(got), 16)], want[:min(len(want), 16)])
		}
	}
	for _, n := range sizes {
		check("uint", n, appendUint(nil, n), library(func(e *msgpack.Encoder) error { return e.EncodeUint(n) }))
		if n <= 1<<31-1 {
			check("array", n, appendArrayLen(nil, int(n)), library(func(e *msgpack.Encoder) error { return e.EncodeArrayLen(int(n)) }))
		}
		if n > 1<<20 {
			continue
		}
		b := make([]byte, n)
		check("bin", n, appendBin(nil, b), library(func(e *msgpack.Encoder) error { return e.EncodeBytes(b) }))
		check("str", n, appendStr(nil, string(b)), library(func(e *msgpack.Encoder) error { return e.EncodeString(string(b)) }))
	}
	check("nil", 0, appendNil(nil), library(func(e *msgpack.Encoder) error { return e.EncodeNil() }))
}

// Whole values: entry, header, head and frontier are what the library writes
// for array structs of the same values.
func TestCodecWritesWhatTheLibraryWrites(t *testing.T) {
	library := func(t *rapid.T, v any) []byte {
		var b bytes.Buffer
		enc := msgpack.NewEncoder(&b)
		enc.UseCompactInts(true)
		if err := enc.Encode(v); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	rapid.Check(t, func(t *rapid.T) {
		e := entries().Draw(t, "entry")
		e.Time |= 1 << 40 // compact integers are 9 bytes only above 32 bits; ours always
		e.seal()
		h := headerStructOf(&e)
		if got, want := e.RawHeader, library(t, &h); !bytes.Equal(got, want) {
			t.Fatalf("header\n%x\nlibrary\n%x", got, want)
		}
		whole := entryStruct{Header: e.RawHeader, Salt: e.Salt, Payload: e.Payload}
		if got, want := e.Append(nil), library(t, &whole); !bytes.Equal(got, want) {
			t.Fatalf("entry\n%x\nlibrary\n%x", got, want)
		}
		gone := erased(e)
		if got, want := gone.Append(nil), library(t, &entryStruct{Header: e.RawHeader}); !bytes.Equal(got, want) {
			t.Fatalf("erased entry\n%x\nlibrary\n%x", got, want)
		}

		head := Head{Origin: e.Origin, Seq: e.Seq, Hash: e.Hash, Floor: e.Time}
		type headStruct struct {
			//lint:ignore U1000 the library reads the tag
			_msgpack struct{} `msgpack:",as_array"`

			Version uint64
			Origin  []byte
			Seq     uint64
			Hash    []byte
			Floor   uint64
			Sig     []byte
		}
		hs := headStruct{Origin: head.Origin[:], Seq: head.Seq, Hash: head.Hash[:], Floor: uint64(head.Floor), Sig: head.Sig[:]}
		if got, want := head.Append(nil), library(t, &hs); !bytes.Equal(got, want) {
			t.Fatalf("head\n%x\nlibrary\n%x", got, want)
		}

		f := frontiers().Draw(t, "frontier")
		rows := []any{}
		for _, o := range f.Origins() {
			tips := []any{}
			for _, tip := range f[o] {
				tips = append(tips, []any{tip.Seq, tip.Hash[:]})
			}
			rows = append(rows, []any{o[:], tips})
		}
		if got, want := f.Append(nil), library(t, rows); !bytes.Equal(got, want) {
			t.Fatalf("frontier\n%x\nlibrary\n%x", got, want)
		}
	})
}

// TestWireErrors feeds each reader method what it must refuse: other types,
// longer forms than needed, lengths over the limit, and truncated input.
func TestWireErrors(t *testing.T) {
	const limit = 1 << 20
	uintOf := func(r *reader) { r.uint() }
	arrayOf := func(r *reader) { r.arrayLen() }
	three := func(r *reader) { r.array(3) }
	binOf := func(r *reader) { r.bin(limit) }
	bin4 := func(r *reader) { r.binN(4) }
	fixed4 := func(r *reader) { r.fixed(make([]byte, 4)) }
	strOf := func(r *reader) { r.str(limit) }
	str4 := func(r *reader) { r.str(4) }
	for _, c := range []struct {
		name string
		in   string
		read func(*reader)
		want string // part of the message; empty for success
	}{
		{"OK uint", "\xcf\x00\x00\x00\x01\x00\x00\x00\x00", uintOf, ""},
		{"ErrUint1", "\xcc\x7f", uintOf, "shortest"},
		{"ErrUint2", "\xcd\x00\xff", uintOf, "shortest"},
		{"ErrUint4", "\xce\x00\x00\xff\xff", uintOf, "shortest"},
		{"ErrUint8", "\xcf\x00\x00\x00\x00\xff\xff\xff\xff", uintOf, "shortest"},
		{"ErrUintNegative", "\xff", uintOf, "not an unsigned number"},
		{"ErrUintSigned", "\xd0\x01", uintOf, "not an unsigned number"},
		{"ErrUintFloat", "\xcb\x00\x00\x00\x00\x00\x00\x00\x00", uintOf, "not an unsigned number"},
		{"ErrUintNil", "\xc0", uintOf, "not an unsigned number"},
		{"ErrUintEmpty", "", uintOf, "truncated"},
		{"ErrUintTruncated1", "\xcc", uintOf, "truncated"},
		{"ErrUintTruncated2", "\xcd\x01", uintOf, "truncated"},
		{"ErrUintTruncated4", "\xce\x01\x00\x00", uintOf, "truncated"},
		{"ErrUintTruncated8", "\xcf\x01\x00\x00\x00\x00\x00\x00", uintOf, "truncated"},

		{"OK uint64", "\xcf\x00\x00\x00\x00\x00\x00\x00\x01", func(r *reader) { r.uint64() }, ""},
		{"ErrUint64Short", "\x01", func(r *reader) { r.uint64() }, "9-byte form"},
		{"ErrUint64Truncated", "\xcf\x00\x00\x00\x00\x00\x00\x00", func(r *reader) { r.uint64() }, "truncated"},
		{"ErrUint64Empty", "", func(r *reader) { r.uint64() }, "truncated"},

		{"OK array", "\x93", three, ""},
		{"OK array of 16", "\xdc\x00\x10", arrayOf, ""},
		{"OK array of 65536", "\xdd\x00\x01\x00\x00", arrayOf, ""},
		{"ErrArray2", "\xdc\x00\x03", three, "shortest"},
		{"ErrArray4", "\xdd\x00\x00\x00\x03", three, "shortest"},
		{"ErrArray4of65535", "\xdd\x00\x00\xff\xff", arrayOf, "shortest"},
		{"ErrArray2to31", "\xdd\x80\x00\x00\x00", arrayOf, "limit"},
		{"ErrArrayMost", "\xdd\xff\xff\xff\xff", three, "limit"},
		{"ErrArrayOther", "\x94", three, "array of 4, want 3"},
		{"ErrArrayMap", "\x83", three, "not an array"},
		{"ErrArrayNil", "\xc0", three, "not an array"},
		{"ErrArrayEmpty", "", three, "truncated"},
		{"ErrArrayTruncated", "\xdc\x00", three, "truncated"},

		{"OK bin", "\xc4\x04abcd", bin4, ""},
		{"OK fixed", "\xc4\x04abcd", fixed4, ""},
		{"OK bin empty", "\xc4\x00", binOf, ""},
		{"ErrBin2", "\xc5\x00\x04abcd", bin4, "shortest"},
		{"ErrBin4", "\xc6\x00\x00\x00\x04abcd", bin4, "shortest"},
		{"ErrFixed2", "\xc5\x00\x04abcd", fixed4, "shortest"},
		{"ErrFixedShort", "\xc4\x03abc", fixed4, "byte string of 3, want 4"},
		{"ErrFixedLong", "\xc4\x05abcde", fixed4, "byte string of 5, limit 4"},
		{"ErrFixedTruncated", "\xc4\x04abc", fixed4, "truncated"},
		{"ErrFixedStr", "\xa4abcd", fixed4, "not a byte string"},
		{"ErrBinShort", "\xc4\x03abc", bin4, "byte string of 3, want 4"},
		{"ErrBinLimitShort", "\xc4\x05abcde", func(r *reader) { r.bin(4) }, "byte string of 5, limit 4"},
		{"ErrBinTruncatedLength", "\xc4", binOf, "truncated"},
		{"ErrBinLimit", "\xc6\x00\x10\x00\x01", binOf, "byte string of 1048577, limit 1048576"},
		{"ErrBin2to31", "\xc6\x80\x00\x00\x00", binOf, "limit"},
		{"ErrBinMost", "\xc6\xff\xff\xff\xff", binOf, "limit"},
		{"ErrBinStr", "\xa4abcd", binOf, "not a byte string"},
		{"ErrBinNil", "\xc0", binOf, "not a byte string"},
		{"ErrBinTruncated", "\xc6\x00\x10\x00\x00abc", binOf, "truncated"},
		{"ErrBinEmpty", "", binOf, "truncated"},

		{"OK str", "\xa4abcd", str4, ""},
		{"OK str empty", "\xa0", str4, ""},
		{"ErrStr1", "\xd9\x04abcd", strOf, "shortest"},
		{"ErrStr2", "\xda\x00\x04abcd", strOf, "shortest"},
		{"ErrStr4", "\xdb\x00\x00\x00\x04abcd", strOf, "shortest"},
		{"ErrStrLimitShort", "\xa5abcde", str4, "string of 5, limit 4"},
		{"ErrStrLimit", "\xdb\x00\x10\x00\x01", strOf, "string of 1048577, limit 1048576"},
		{"ErrStr2to31", "\xdb\x80\x00\x00\x00", strOf, "limit"},
		{"ErrStrMost", "\xdb\xff\xff\xff\xff", strOf, "limit"},
		{"ErrStrBin", "\xc4\x04abcd", strOf, "not a string"},
		{"ErrStrTruncated", "\xa4abc", strOf, "truncated"},
		{"ErrStrEmpty", "", strOf, "truncated"},

		{"ErrLeftOver", "\x01\x02", func(r *reader) { r.uint(); r.end() }, "1 bytes left over"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := reader{b: []byte(c.in)}
			c.read(&r)
			if c.want == "" {
				if r.err != nil || r.pos > len(c.in) {
					t.Fatalf("%x: %v", c.in, r.err)
				}
				return
			}
			if !errors.Is(r.err, ErrMalformed) || !strings.Contains(r.err.Error(), c.want) {
				t.Fatalf("%x: error %v, want one with %q", c.in, r.err, c.want)
			}
			// The first error sticks and nothing more is read.
			first, pos := r.err, r.pos
			_, _, _, _, _ = r.uint(), r.uint64(), r.arrayLen(), r.bin(9), r.str(9)
			r.fixed(make([]byte, 4))
			r.end()
			if r.err != first || r.pos != pos || r.nil() {
				t.Errorf("the error became %v at %d", r.err, r.pos)
			}
		})
	}
}

// allocated is how many bytes fn allocates. Others allocate too, a store that is
// closing for one: what is over the budget is measured again, up to ten times.
func allocated(budget uint64, fn func()) (used uint64) {
	for range 11 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		fn()
		runtime.ReadMemStats(&after)
		if used = after.TotalAlloc - before.TotalAlloc; used <= budget {
			break
		}
	}
	return used
}

// whole makes a parser of exactly one value of one that leaves a rest.
func whole[T any](parse func([]byte) (T, []byte, error)) func([]byte) error {
	return func(b []byte) error {
		_, rest, err := parse(b)
		if err == nil && len(rest) > 0 {
			return errors.New("bytes left over")
		}
		return err
	}
}

// A4: a length of 2^31 or 2^32-1 where any length can stand is an error
// that costs next to no memory.
func TestA4_HugeLengthsCostNothing(t *testing.T) {
	_, second, _ := goldenEntries()
	head := goldenHead(hlc.New(1772366400000, 2))
	parsers := map[string]struct {
		good  []byte
		parse func([]byte) error
	}{
		"entry":    {second.Append(nil), whole(ParseEntry)},
		"header":   {second.RawHeader, func(b []byte) error { var h Header; return h.decode(b) }},
		"head":     {head.Append(nil), whole(ParseHead)},
		"frontier": {goldenFrontier().Append(nil), whole(ParseFrontier)},
		"payload": {second.Payload, func(b []byte) error {
			e := Entry{Payload: b}
			return e.parsePayload()
		}},
	}
	lengths := []string{"\xff\xff\xff\xff", "\x80\x00\x00\x00", "\x7f\xff\xff\xff", "\x00\x10\x00\x01"}
	for name, p := range parsers {
		if err := p.parse(p.good); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for at := range p.good {
			for _, form := range []byte{0xc6, 0xdb, 0xdd, 0xdf, 0xc9} { // bin, str, array, map, ext of 32 bits
				for _, n := range lengths {
					// In place of what stands there, with bytes of content after it.
					bad := append(bytes.Clone(p.good[:at]), form)
					bad = append(append(bad, n...), p.good[at:]...)
					var err error
					if used := allocated(1<<20-1, func() { err = p.parse(bad) }); used >= 1<<20 {
						t.Fatalf("%s: a length of %x at %d costs %d bytes", name, n, at, used)
					}
					// The op id and the body of a payload may hold any bytes.
					if err == nil && (name != "payload" || at < len("\x93\x01\xa4")) {
						t.Fatalf("%s: a length of %x at %d is no error", name, n, at)
					}
				}
			}
		}
	}
}
