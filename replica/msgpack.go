package replica

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
)

// marshalArrays encodes with msgpack, structs as arrays.
func marshalArrays(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := msgpack.NewEncoder(&b)
	enc.UseArrayEncodedStructs(true)
	enc.UseCompactInts(true)
	err := enc.Encode(v)
	return b.Bytes(), err
}

// maxValues bounds how many values unmarshalArrays takes, those inside others
// included. A value of one byte can become a struct of a hundred in memory; the
// most that is written is an answer to a join, about 900.
const maxValues = 4096

// unmarshalArrays decodes exactly one value. The bytes come from strangers:
// their claimed lengths are checked against what is there before the library
// allocates by them.
func unmarshalArrays(b []byte, v any) error { return unmarshalMany(b, v, maxValues) }

// unmarshalMany is unmarshalArrays with a limit of its own.
func unmarshalMany(b []byte, v any, most int) error {
	rest, err := skipValue(b, 0, &most)
	if err == nil && len(rest) != 0 {
		err = errors.New("bytes after the end")
	}
	if err == nil {
		err = msgpack.Unmarshal(b, v)
	}
	if err != nil {
		return fmt.Errorf("replica: decode: %w", err)
	}
	return nil
}

var (
	errShort = errors.New("a length beyond the end")
	errMany  = errors.New("too many values")
)

const maxNesting = 8

// arrayLen is the length that an array at the start of b claims, 0 for
// anything else.
func arrayLen(b []byte) int {
	switch {
	case len(b) > 0 && b[0]&0xf0 == 0x90:
		return int(b[0] & 0x0f)
	case len(b) > 2 && b[0] == 0xdc:
		return int(binary.BigEndian.Uint16(b[1:]))
	case len(b) > 4 && b[0] == 0xdd:
		return int(binary.BigEndian.Uint32(b[1:]))
	}
	return 0
}

// skipValue returns what follows the first value of b. Maps, floats and
// extensions, which nothing here writes, are refused, and more values than
// left says, which goes down.
func skipValue(b []byte, depth int, left *int) ([]byte, error) {
	if len(b) == 0 || depth > maxNesting {
		return nil, errShort
	}
	if *left--; *left < 0 {
		return nil, errMany
	}
	c, b := b[0], b[1:]
	number := func(n int) uint64 { // of n bytes, 0 when they are not there
		if len(b) < n {
			return 1 << 62
		}
		var w [8]byte
		copy(w[8-n:], b[:n])
		b = b[n:]
		return binary.BigEndian.Uint64(w[:])
	}
	var bytes, items uint64
	switch {
	case c < 0x80, c >= 0xe0, c == 0xc0, c == 0xc2, c == 0xc3:
	case c&0xf0 == 0x90:
		items = uint64(c & 0x0f)
	case c&0xe0 == 0xa0:
		bytes = uint64(c & 0x1f)
	case c == 0xc4, c == 0xd9:
		bytes = number(1)
	case c == 0xc5, c == 0xda:
		bytes = number(2)
	case c == 0xc6, c == 0xdb:
		bytes = number(4)
	case c >= 0xcc && c <= 0xcf:
		bytes = 1 << (c - 0xcc)
	case c >= 0xd0 && c <= 0xd3:
		bytes = 1 << (c - 0xd0)
	case c == 0xdc:
		items = number(2)
	case c == 0xdd:
		items = number(4)
	default:
		return nil, fmt.Errorf("a value of type %#02x", c)
	}
	if bytes > uint64(len(b)) || items > uint64(len(b)) {
		return nil, errShort
	}
	b = b[bytes:]
	var err error
	for ; items > 0 && err == nil; items-- {
		b, err = skipValue(b, depth+1, left)
	}
	return b, err
}
