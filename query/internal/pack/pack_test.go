package pack_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"

	"tallystick/query/internal/pack"
)

// TestSameBytesAsTheLibrary holds the hand-written form to msgpack's.
func TestSameBytesAsTheLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := rapid.Uint64().Draw(t, "uint")
		s := rapid.String().Draw(t, "string") + strings.Repeat("x", rapid.SampledFrom([]int{0, 31, 32, 255, 256, 65535, 65536}).Draw(t, "more"))
		b := rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		n := rapid.SampledFrom([]int{0, 15, 16, 65535, 65536}).Draw(t, "length")
		var want bytes.Buffer
		enc := msgpack.NewEncoder(&want)
		enc.UseCompactInts(true)
		for _, err := range []error{enc.EncodeArrayLen(n), enc.EncodeUint(u), enc.EncodeString(s), enc.EncodeBytes(b), enc.EncodeNil(), enc.EncodeBool(true), enc.EncodeBool(false)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if b == nil {
			b = []byte{}
		}
		got := pack.Array(nil, n)
		got = pack.Uint(got, u)
		got = pack.Str(got, s)
		got = pack.Bin(got, b)
		got = pack.Bool(pack.Bool(pack.Nil(got), true), false)
		if !bytes.Equal(got, want.Bytes()) {
			t.Fatalf("%x, the library says %x", got, want.Bytes())
		}
		r := pack.NewReader(got)
		if r.Array(1<<20) != n || r.Uint(math.MaxUint64) != u || string(r.Str(1<<20)) != s || !bytes.Equal(r.Bin(1<<20), b) || !r.Nil() || !r.Bool() || r.Bool() || r.End() != nil {
			t.Fatalf("does not read back: %v", r.Err())
		}
	})
}

func TestReaderRefuses(t *testing.T) {
	for _, c := range []struct {
		name, bytes string
		read        func(*pack.Reader)
	}{
		{"long form of a number", "cc05", func(r *pack.Reader) { r.Uint(100) }},
		{"long form of a string", "d90161", func(r *pack.Reader) { r.Str(100) }},
		{"long form of an array", "dc0001", func(r *pack.Reader) { r.Array(100) }},
		{"long form of bytes", "c5000161", func(r *pack.Reader) { r.Bin(100) }},
		{"number over its limit", "cd0100", func(r *pack.Reader) { r.Uint(255) }},
		{"string over its limit", "a3616263", func(r *pack.Reader) { r.Str(2) }},
		{"array over its limit", "93", func(r *pack.Reader) { r.Array(2) }},
		{"bytes over their limit", "c403616263", func(r *pack.Reader) { r.Bin(2) }},
		{"huge string", "dbffffffff", func(r *pack.Reader) { r.Str(math.MaxInt) }},
		{"truncated", "a361", func(r *pack.Reader) { r.Str(100) }},
		{"nothing", "", func(r *pack.Reader) { r.Uint(1) }},
		{"negative number", "ff", func(r *pack.Reader) { r.Uint(1) }},
		{"string for a number", "a161", func(r *pack.Reader) { r.Uint(1) }},
		{"number for a string", "01", func(r *pack.Reader) { r.Str(1) }},
		{"number for an array", "01", func(r *pack.Reader) { r.Exactly(1) }},
		{"number for bytes", "01", func(r *pack.Reader) { r.Bin(1) }},
		{"number for a boolean", "01", func(r *pack.Reader) { r.Bool() }},
		{"wrong length", "92", func(r *pack.Reader) { r.Exactly(1) }},
		{"left over", "0101", func(r *pack.Reader) { r.Uint(1) }},
	} {
		b, err := hex.DecodeString(c.bytes)
		if err != nil {
			t.Fatal(err)
		}
		r := pack.NewReader(b)
		c.read(&r)
		if err := r.End(); !errors.Is(err, pack.ErrMalformed) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
