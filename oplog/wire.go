package oplog

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrMalformed is wrapped by every error about bytes that do not parse.
var ErrMalformed = errors.New("oplog: malformed bytes")

// The functions below write msgpack by hand: the entry is the hot path, and
// reflection costs 6 to 32 times as much for the same bytes. The library
// serves everything else.

func appendArrayLen(dst []byte, n int) []byte {
	switch {
	case n < 16:
		return append(dst, 0x90|byte(n))
	case n < 1<<16:
		return append(dst, 0xdc, byte(n>>8), byte(n))
	}
	return binary.BigEndian.AppendUint32(append(dst, 0xdd), uint32(n))
}

func appendUint(dst []byte, v uint64) []byte {
	switch {
	case v < 0x80:
		return append(dst, byte(v))
	case v < 1<<8:
		return append(dst, 0xcc, byte(v))
	case v < 1<<16:
		return append(dst, 0xcd, byte(v>>8), byte(v))
	case v < 1<<32:
		return binary.BigEndian.AppendUint32(append(dst, 0xce), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(dst, 0xcf), v)
}

func appendBin(dst, b []byte) []byte {
	switch n := len(b); {
	case n < 1<<8:
		dst = append(dst, 0xc4, byte(n))
	case n < 1<<16:
		dst = append(dst, 0xc5, byte(n>>8), byte(n))
	default:
		dst = binary.BigEndian.AppendUint32(append(dst, 0xc6), uint32(n))
	}
	return append(dst, b...)
}

func appendStr(dst []byte, s string) []byte {
	switch n := len(s); {
	case n < 32:
		dst = append(dst, 0xa0|byte(n))
	case n < 1<<8:
		dst = append(dst, 0xd9, byte(n))
	case n < 1<<16:
		dst = append(dst, 0xda, byte(n>>8), byte(n))
	default:
		dst = binary.BigEndian.AppendUint32(append(dst, 0xdb), uint32(n))
	}
	return append(dst, s...)
}

func appendNil(dst []byte) []byte { return append(dst, 0xc0) }

// reader parses msgpack without allocating: slices it returns alias its
// input. The first error sticks. Only the shortest encoding of a length or
// number is accepted, so that parsing and encoding again gives the same bytes.
type reader struct {
	b   []byte
	pos int
	err error
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s at byte %d", ErrMalformed, what, r.pos)
	}
}

// failSize and its like are apart so that what calls them stays small.
func (r *reader) failSize(what string, n, limit int) {
	r.fail(fmt.Sprintf("%s of %d, limit %d,", what, n, limit))
}

func (r *reader) failExact(what string, n, want int) {
	r.fail(fmt.Sprintf("%s of %d, want %d,", what, n, want))
}

func (r *reader) take(n int) []byte {
	if r.err != nil {
		return nil
	}
	if n < 0 || n > len(r.b)-r.pos {
		r.fail("truncated")
		return nil
	}
	out := r.b[r.pos : r.pos+n : r.pos+n]
	r.pos += n
	return out
}

func (r *reader) byte() byte {
	if r.err == nil && r.pos < len(r.b) {
		c := r.b[r.pos]
		r.pos++
		return c
	}
	r.fail("truncated")
	return 0
}

// uintN reads a big-endian number of 1, 2, 4 or 8 bytes.
func (r *reader) uintN(n int) uint64 {
	b := r.take(n)
	if b == nil {
		return 0
	}
	switch n {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.BigEndian.Uint16(b))
	case 4:
		return uint64(binary.BigEndian.Uint32(b))
	}
	return binary.BigEndian.Uint64(b)
}

// sizeN reads a length of 1, 2 or 4 bytes that must be at least min, else a
// shorter form would do, and at most max.
func (r *reader) sizeN(what string, n int, min, max uint64) int {
	v := r.uintN(n)
	switch {
	case r.err != nil:
		return 0
	case v < min:
		r.fail(what + " length not in its shortest form")
		return 0
	case v > max:
		r.fail(fmt.Sprintf("%s of %d, limit %d,", what, v, max))
		return 0
	}
	return int(v)
}

func (r *reader) uint() uint64 {
	c := r.byte()
	if c < 0x80 {
		return uint64(c)
	}
	var v, min uint64
	switch c {
	case 0xcc:
		v, min = r.uintN(1), 0x80
	case 0xcd:
		v, min = r.uintN(2), 1<<8
	case 0xce:
		v, min = r.uintN(4), 1<<16
	case 0xcf:
		v, min = r.uintN(8), 1<<32
	default:
		r.pos--
		r.fail("not an unsigned number")
		return 0
	}
	if r.err != nil {
		return 0
	}
	if v < min {
		r.fail("number not in its shortest form")
		return 0
	}
	return v
}

// maxArray is how long an array may be before its reader has its say.
const maxArray = 1<<31 - 1

func (r *reader) arrayLen() int {
	c := r.byte()
	switch {
	case r.err != nil:
		return 0
	case c&0xf0 == 0x90:
		return int(c & 0x0f)
	case c == 0xdc:
		return r.sizeN("array", 2, 16, maxArray)
	case c == 0xdd:
		return r.sizeN("array", 4, 1<<16, maxArray)
	}
	r.pos--
	r.fail("not an array")
	return 0
}

// array demands an array of exactly n elements.
func (r *reader) array(n int) {
	if got := r.arrayLen(); r.err == nil && got != n {
		r.failExact("array", got, n)
	}
}

func (r *reader) bin(max int) []byte {
	c := r.byte()
	if r.err != nil {
		return nil
	}
	var n int
	switch c {
	case 0xc4:
		if n = int(r.byte()); n > max {
			r.failSize("byte string", n, max)
		}
	case 0xc5:
		n = r.sizeN("byte string", 2, 1<<8, uint64(max))
	case 0xc6:
		n = r.sizeN("byte string", 4, 1<<16, uint64(max))
	default:
		r.pos--
		r.fail("not a byte string")
	}
	return r.take(n)
}

// binN demands a byte string of exactly n bytes.
func (r *reader) binN(n int) []byte {
	b := r.bin(n)
	if r.err == nil && len(b) != n {
		r.failExact("byte string", len(b), n)
	}
	if r.err != nil {
		return nil
	}
	return b
}

// uint64 demands the 9-byte form, whatever the number.
func (r *reader) uint64() uint64 {
	if p := r.pos; r.err == nil && len(r.b)-p >= 9 && r.b[p] == 0xcf {
		r.pos = p + 9
		return binary.BigEndian.Uint64(r.b[p+1 : p+9])
	}
	if c := r.byte(); r.err == nil && c != 0xcf {
		r.pos--
		r.fail("number not in its 9-byte form")
	}
	return r.uintN(8)
}

// fixed reads a byte string exactly as long as dst into it. Keys, hashes and
// signatures are short enough for one look at their two leading bytes.
func (r *reader) fixed(dst []byte) {
	if p, n := r.pos, len(dst); r.err == nil && n < 1<<8 && n+2 <= len(r.b)-p {
		if b := r.b[p : p+2+n]; b[0] == 0xc4 && int(b[1]) == n {
			copy(dst, b[2:])
			r.pos = p + 2 + n
			return
		}
	}
	copy(dst, r.binN(len(dst)))
}

func (r *reader) str(max int) []byte {
	c := r.byte()
	if r.err != nil {
		return nil
	}
	var n int
	switch {
	case c&0xe0 == 0xa0:
		if n = int(c & 0x1f); n > max {
			r.failSize("string", n, max)
		}
	case c == 0xd9:
		n = r.sizeN("string", 1, 32, uint64(max))
	case c == 0xda:
		n = r.sizeN("string", 2, 1<<8, uint64(max))
	case c == 0xdb:
		n = r.sizeN("string", 4, 1<<16, uint64(max))
	default:
		r.pos--
		r.fail("not a string")
	}
	return r.take(n)
}

// nil reports whether the next value is nil, and takes it if so.
func (r *reader) nil() bool {
	if r.err == nil && r.pos < len(r.b) && r.b[r.pos] == 0xc0 {
		r.pos++
		return true
	}
	return false
}

// end demands that nothing is left.
func (r *reader) end() {
	if r.err == nil && r.pos != len(r.b) {
		r.fail(fmt.Sprintf("%d bytes left over", len(r.b)-r.pos))
	}
}
