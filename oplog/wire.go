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
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uintN(n int) uint64 {
	var v uint64
	for _, c := range r.take(n) {
		v = v<<8 | uint64(c)
	}
	return v
}

func (r *reader) uint() uint64 {
	c := r.byte()
	if r.err != nil {
		return 0
	}
	var v, min uint64
	switch {
	case c < 0x80:
		return uint64(c)
	case c == 0xcc:
		v, min = r.uintN(1), 0x80
	case c == 0xcd:
		v, min = r.uintN(2), 1<<8
	case c == 0xce:
		v, min = r.uintN(4), 1<<16
	case c == 0xcf:
		v, min = r.uintN(8), 1<<32
	default:
		r.pos--
		r.fail("not an unsigned number")
		return 0
	}
	if r.err == nil && v < min {
		r.fail("number not in its shortest form")
	}
	return v
}

func (r *reader) arrayLen() int {
	c := r.byte()
	if r.err != nil {
		return 0
	}
	switch {
	case c&0xf0 == 0x90:
		return int(c & 0x0f)
	case c == 0xdc:
		n := int(r.uintN(2))
		if n < 16 {
			r.fail("array length not in its shortest form")
		}
		return n
	case c == 0xdd:
		n := int(r.uintN(4))
		if n < 1<<16 {
			r.fail("array length not in its shortest form")
		}
		return n
	}
	r.pos--
	r.fail("not an array")
	return 0
}

// array demands an array of exactly n elements.
func (r *reader) array(n int) {
	if got := r.arrayLen(); r.err == nil && got != n {
		r.fail(fmt.Sprintf("array of %d elements, want %d", got, n))
	}
}

func (r *reader) bin(max int) []byte {
	c := r.byte()
	if r.err != nil {
		return nil
	}
	var n, min int
	switch c {
	case 0xc4:
		n = int(r.uintN(1))
	case 0xc5:
		n, min = int(r.uintN(2)), 1<<8
	case 0xc6:
		n, min = int(r.uintN(4)), 1<<16
	default:
		r.pos--
		r.fail("not a byte string")
		return nil
	}
	if r.err == nil && n < min {
		r.fail("byte string length not in its shortest form")
	}
	if r.err == nil && n > max {
		r.fail(fmt.Sprintf("byte string of %d, limit %d", n, max))
	}
	return r.take(n)
}

// binN demands a byte string of exactly n bytes.
func (r *reader) binN(n int) []byte {
	b := r.bin(n)
	if r.err == nil && len(b) != n {
		r.fail(fmt.Sprintf("byte string of %d, want %d", len(b), n))
	}
	if r.err != nil {
		return nil
	}
	return b
}

func (r *reader) str(max int) []byte {
	c := r.byte()
	if r.err != nil {
		return nil
	}
	var n, min int
	switch {
	case c&0xe0 == 0xa0:
		n = int(c & 0x1f)
	case c == 0xd9:
		n, min = int(r.uintN(1)), 32
	case c == 0xda:
		n, min = int(r.uintN(2)), 1<<8
	case c == 0xdb:
		n, min = int(r.uintN(4)), 1<<16
	default:
		r.pos--
		r.fail("not a string")
		return nil
	}
	if r.err == nil && n < min {
		r.fail("string length not in its shortest form")
	}
	if r.err == nil && n > max {
		r.fail(fmt.Sprintf("string of %d bytes, limit %d", n, max))
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
