// Package pack reads and writes the msgpack of the domains' payloads by hand:
// arrays, strings, byte strings, unsigned numbers, nil and booleans in their
// shortest form, limits checked before anything is allocated. Decoding what
// was encoded and encoding it again gives the same bytes.
package pack

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrMalformed is wrapped by every error of a Reader.
var ErrMalformed = errors.New("malformed payload")

// Array appends the length of an array.
func Array(dst []byte, n int) []byte {
	switch {
	case n < 16:
		return append(dst, 0x90|byte(n))
	case n < 1<<16:
		return append(dst, 0xdc, byte(n>>8), byte(n))
	}
	return binary.BigEndian.AppendUint32(append(dst, 0xdd), uint32(n))
}

// Uint appends an unsigned number.
func Uint(dst []byte, v uint64) []byte {
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

// Str appends a string.
func Str(dst []byte, s string) []byte {
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

// Bin appends a byte string, or nil for a nil slice.
func Bin(dst, b []byte) []byte {
	if b == nil {
		return append(dst, 0xc0)
	}
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

// Bool appends a boolean.
func Bool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 0xc3)
	}
	return append(dst, 0xc2)
}

// Nil appends nil.
func Nil(dst []byte) []byte { return append(dst, 0xc0) }

// Reader reads values in order. Slices it gives alias its input. The first
// error sticks; later reads give zero values.
type Reader struct {
	b   []byte
	pos int
	err error
}

// NewReader reads b.
func NewReader(b []byte) Reader { return Reader{b: b} }

// Err is the first error.
func (r *Reader) Err() error { return r.err }

// Fail sets the error unless there is one.
func (r *Reader) Fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s at byte %d", ErrMalformed, fmt.Sprintf(format, args...), r.pos)
	}
}

func (r *Reader) take(n int) []byte {
	if r.err != nil {
		return nil
	}
	if n < 0 || n > len(r.b)-r.pos {
		r.Fail("truncated")
		return nil
	}
	out := r.b[r.pos : r.pos+n : r.pos+n]
	r.pos += n
	return out
}

func (r *Reader) byte() byte {
	if r.err == nil && r.pos < len(r.b) {
		r.pos++
		return r.b[r.pos-1]
	}
	r.Fail("truncated")
	return 0
}

func (r *Reader) big(n int) uint64 {
	var v uint64
	for _, c := range r.take(n) {
		v = v<<8 | uint64(c)
	}
	return v
}

func (r *Reader) length(n int, min int) int {
	v := int(r.big(n))
	if r.err == nil && v < min {
		r.Fail("length not in its shortest form")
	}
	return v
}

// Uint reads an unsigned number of at most max.
func (r *Reader) Uint(max uint64) uint64 {
	c := r.byte()
	if r.err != nil {
		return 0
	}
	v, min := uint64(c), uint64(0)
	switch {
	case c < 0x80:
	case c == 0xcc:
		v, min = r.big(1), 0x80
	case c == 0xcd:
		v, min = r.big(2), 1<<8
	case c == 0xce:
		v, min = r.big(4), 1<<16
	case c == 0xcf:
		v, min = r.big(8), 1<<32
	default:
		r.Fail("not an unsigned number")
	}
	if r.err == nil && v < min {
		r.Fail("number not in its shortest form")
	}
	if r.err == nil && v > max {
		r.Fail("number %d, limit %d", v, max)
	}
	if r.err != nil {
		return 0
	}
	return v
}

// Array reads the length of an array of at most max elements.
func (r *Reader) Array(max int) int {
	c := r.byte()
	if r.err != nil {
		return 0
	}
	n := 0
	switch {
	case c&0xf0 == 0x90:
		n = int(c & 0x0f)
	case c == 0xdc:
		n = r.length(2, 16)
	case c == 0xdd:
		n = r.length(4, 1<<16)
	default:
		r.Fail("not an array")
	}
	if r.err == nil && n > max {
		r.Fail("array of %d elements, limit %d", n, max)
	}
	if r.err != nil {
		return 0
	}
	return n
}

// Exactly demands an array of n elements.
func (r *Reader) Exactly(n int) {
	if got := r.Array(1 << 20); r.err == nil && got != n {
		r.Fail("array of %d elements, want %d", got, n)
	}
}

// Str reads a string of at most max bytes.
func (r *Reader) Str(max int) []byte {
	c := r.byte()
	if r.err != nil {
		return nil
	}
	n := 0
	switch {
	case c&0xe0 == 0xa0:
		n = int(c & 0x1f)
	case c == 0xd9:
		n = r.length(1, 32)
	case c == 0xda:
		n = r.length(2, 1<<8)
	case c == 0xdb:
		n = r.length(4, 1<<16)
	default:
		r.Fail("not a string")
	}
	if r.err == nil && n > max {
		r.Fail("string of %d bytes, limit %d", n, max)
	}
	return r.take(n)
}

// Bin reads a byte string of at most max bytes; nil when the value is nil.
func (r *Reader) Bin(max int) []byte {
	if r.Nil() {
		return nil
	}
	c := r.byte()
	if r.err != nil {
		return nil
	}
	n := 0
	switch c {
	case 0xc4:
		n = r.length(1, 0)
	case 0xc5:
		n = r.length(2, 1<<8)
	case 0xc6:
		n = r.length(4, 1<<16)
	default:
		r.Fail("not a byte string")
	}
	if r.err == nil && n > max {
		r.Fail("byte string of %d, limit %d", n, max)
	}
	return r.take(n)
}

// Bool reads a boolean.
func (r *Reader) Bool() bool {
	switch c := r.byte(); {
	case r.err != nil:
	case c == 0xc3:
		return true
	case c != 0xc2:
		r.Fail("not a boolean")
	}
	return false
}

// Nil takes a nil if the next value is one, and reports whether it was.
func (r *Reader) Nil() bool {
	if r.err == nil && r.pos < len(r.b) && r.b[r.pos] == 0xc0 {
		r.pos++
		return true
	}
	return false
}

// End demands that nothing is left.
func (r *Reader) End() error {
	if r.err == nil && r.pos != len(r.b) {
		r.Fail("%d bytes left over", len(r.b)-r.pos)
	}
	return r.err
}
