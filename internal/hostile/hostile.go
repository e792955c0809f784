package hostile

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Kind is a way to be bad.
type Kind string

// The kinds. A decoder must refuse those of the first group; what it does with
// the others depends on what the changed byte means, so that only panics and
// allocation count there.
const (
	Cut     Kind = "cut"     // an end too early
	Length  Kind = "length"  // a length of 2^31 and the like, with nothing behind it
	Nested  Kind = "nested"  // 100,000 levels, of objects in JSON 20,000
	Behind  Kind = "behind"  // bytes behind the end
	Twice   Kind = "twice"   // a key given twice
	Unknown Kind = "unknown" // a key nobody knows
	Type    Kind = "type"    // a value of another type
	Text    Kind = "text"    // bytes that are no UTF-8, NUL, half a surrogate
	Version Kind = "version" // of a version to come

	Flip Kind = "flip" // one bit turned
	Swap Kind = "swap" // another value somewhere
	Many Kind = "many" // tens of thousands of tiny values

	// Memory is no kind of input. Who takes it has a decoder of a library
	// behind it, or keeps what it reads, and may allocate 24 MiB.
	Memory Kind = "memory"
)

// mustFail are the kinds that are no valid input for any decoder, unless it
// says so.
var mustFail = []Kind{Cut, Length, Nested, Behind, Twice, Unknown, Type, Text, Version}

// Case is one input.
type Case struct {
	Kind Kind
	Name string
	In   []byte
}

const (
	levels = 100_000
	tiny   = 60_000 // values of Many in msgpack, of a byte each
	small  = 20_000 // in JSON, of two to five
	places = 48     // offsets of a good input at which something is put in
)

// Cuts are all the beginnings of good.
func Cuts(good []byte) (list []Case) {
	for i := range spread(len(good), 4096) {
		list = append(list, Case{Cut, fmt.Sprintf("at %d", i), good[:i:i]})
	}
	return list
}

// Flips turn one bit each: every bit of a short input, and one of each byte
// looked at in a long one.
func Flips(good []byte) (list []Case) {
	for i := range spread(len(good), 1024) {
		for bit := range 8 {
			if len(good) > 256 && bit != i%8 {
				continue
			}
			b := bytes.Clone(good)
			b[i] ^= 1 << bit
			list = append(list, Case{Flip, fmt.Sprintf("bit %d of byte %d", bit, i), b})
		}
	}
	return list
}

// spread gives n offsets, at most most of them, evenly.
func spread(n, most int) func(yield func(int) bool) {
	step := max(1, (n+most-1)/most)
	return func(yield func(int) bool) {
		for i := 0; i < n; i += step {
			if !yield(i) {
				return
			}
		}
	}
}

// Msgpack makes bad input of a good value in msgpack: each value in it, at any
// depth, is replaced in turn.
func Msgpack(good []byte) []Case {
	spans, rest := values(good, nil, 0)
	if rest != len(good) {
		panic("hostile: not one value in msgpack")
	}
	list := slices.Concat(Cuts(good), Flips(good), []Case{
		{Behind, "a nil", append(bytes.Clone(good), 0xc0)},
		{Behind, "itself", append(bytes.Clone(good), good...)},
	})
	for i, s := range spans {
		put := func(kind Kind, name string, b ...byte) {
			in := slices.Concat(good[:s[0]], b)
			if kind == Swap || kind == Many { // the others are ends
				in = append(in, good[s[1]:]...)
			}
			list = append(list, Case{kind, fmt.Sprintf("%s at %d", name, s[0]), in})
		}
		bombs(Length, put)
		if i%4 == 0 {
			nests(Nested, put)
		}
	}
	return list
}

// Bytes makes bad input of good bytes of a form of their own, by putting
// things in at many places. What they mean there is not known here, so that of
// the kinds that must be refused there is only Cut, and Behind.
func Bytes(good []byte) []Case {
	list := slices.Concat(Cuts(good), Flips(good), []Case{{Behind, "a byte", append(bytes.Clone(good), 0)}})
	for i := range spread(len(good)+1, places) {
		put := func(_ Kind, name string, b ...byte) {
			list = append(list, Case{Swap, fmt.Sprintf("%s at %d", name, i), slices.Concat(good[:i], b)})
		}
		bombs(Swap, put)
		nests(Swap, put)
	}
	return list
}

// bombs puts in values that claim much, are many or of another type.
func bombs(length Kind, put func(kind Kind, name string, b ...byte)) {
	for name, code := range map[string]byte{"str32": 0xdb, "bin32": 0xc6, "array32": 0xdd, "map32": 0xdf, "ext32": 0xc9} {
		for _, n := range []uint32{1<<31 - 1, 1 << 31, 1<<32 - 1} {
			put(length, fmt.Sprintf("%s of %d", name, n), binary.BigEndian.AppendUint32([]byte{code}, n)...)
		}
	}
	for name, code := range map[string]byte{"str16": 0xda, "bin16": 0xc5, "array16": 0xdc, "map16": 0xde, "ext16": 0xc8} {
		put(length, name, code, 0xff, 0xff)
	}
	for name, v := range map[string]byte{"nil": 0xc0, "empty string": 0xa0, "empty array": 0x90, "empty map": 0x80, "zero": 0} {
		put(Many, "many of "+name, append(binary.BigEndian.AppendUint32([]byte{0xdd}, tiny), bytes.Repeat([]byte{v}, tiny)...)...)
	}
	for name, v := range map[string]string{"nil": "\xc0", "true": "\xc3", "-1": "\xff", "2^64-1": "\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
		"float": "\xcb\x7f\xf8\x00\x00\x00\x00\x00\x01", "ext": "\xd4\x01\x01", "never used": "\xc1", "string": "\xa1a", "bin": "\xc4\x01a", "array": "\x91\xc0",
		"map": "\x81\xa1a\xc0", "map with a key twice": "\x82\xa1a\x01\xa1a\x02", "long form": "\xcd\x00\x01", "no UTF-8": "\xa2\xff\xfe"} {
		put(Swap, name, []byte(v)...)
	}
}

func nests(nested Kind, put func(kind Kind, name string, b ...byte)) {
	put(nested, "arrays in arrays", bytes.Repeat([]byte{0x91}, levels)...)
	put(nested, "maps in maps", bytes.Repeat([]byte{0x81, 0xa0}, levels)...)
}

// values finds where each value of msgpack begins and ends, the outermost
// first, of what this repository writes: no maps, no extensions.
func values(b []byte, list [][2]int, at int) ([][2]int, int) {
	const bad = 1 << 30
	if at >= len(b) {
		return list, bad
	}
	own, c := len(list), b[at]
	list = append(list, [2]int{at, 0})
	number := func(n int) (v int) {
		for _, x := range b[min(at, len(b)):min(at+n, len(b))] {
			v = v<<8 | int(x)
		}
		at += n
		return v
	}
	size, items := 0, 0
	at++
	switch {
	case c < 0x80, c >= 0xe0, c == 0xc0, c == 0xc2, c == 0xc3:
	case c&0xf0 == 0x90:
		items = int(c & 0x0f)
	case c&0xe0 == 0xa0:
		size = int(c & 0x1f)
	case c == 0xc4, c == 0xd9:
		size = number(1)
	case c == 0xc5, c == 0xda:
		size = number(2)
	case c == 0xc6, c == 0xdb:
		size = number(4)
	case c >= 0xcc && c <= 0xcf:
		size = 1 << (c - 0xcc)
	case c >= 0xd0 && c <= 0xd3:
		size = 1 << (c - 0xd0)
	case c == 0xdc:
		items = number(2)
	case c == 0xdd:
		items = number(4)
	default:
		return list, bad
	}
	at += size
	for ; items > 0 && at <= len(b); items-- {
		list, at = values(b, list, at)
	}
	if at > len(b) {
		return list, bad
	}
	list[own][1] = at
	return list, at
}

// JSON makes bad input of a good JSON object.
func JSON(good []byte) []Case {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(good, &fields); err != nil {
		panic("hostile: no JSON object: " + err.Error())
	}
	good = bytes.TrimSpace(good)
	deep := map[string]string{
		"arrays":           strings.Repeat("[", levels) + strings.Repeat("]", levels),
		"objects":          strings.Repeat(`{"a":`, levels/5) + "1" + strings.Repeat("}", levels/5),
		"arrays, not shut": strings.Repeat("[", levels),
	}
	list := slices.Concat(Cuts(good), Flips(good), []Case{
		{Behind, "a word", append(bytes.Clone(good), " x"...)},
		{Behind, "itself", append(bytes.Clone(good), good...)},
		{Text, "bytes that are no UTF-8", bytes.Replace(good, []byte(`"`), []byte("\"\xff\xfe"), 1)},
	})
	for name, b := range map[string]string{"null": "null", "true": "true", "a number": "1", "a text": `"x"`, "a list": "[]", "a list of it": "[" + string(good) + "]"} {
		list = append(list, Case{Type, "the whole is " + name, []byte(b)})
	}
	for name, b := range deep {
		list = append(list, Case{Nested, name, []byte(b)})
	}
	without := func(key string) []byte { // opened, with the other fields
		rest := maps.Clone(fields)
		delete(rest, key)
		b, err := json.Marshal(rest)
		if err != nil {
			panic(err)
		}
		if b = b[:len(b)-1]; len(rest) > 0 {
			b = append(b, ',')
		}
		return b
	}
	many := map[string]string{"ones": "1", "texts": `""`, "lists": "[]", "objects": "{}", "nulls": "null"}
	for key, old := range fields {
		name, _ := json.Marshal(key)
		put := func(kind Kind, what, value string) {
			b := without(key)
			list = append(list, Case{kind, key + " is " + what, append(b, string(name)+":"+value+"}"...)})
		}
		twice := append(without(key), fmt.Sprintf("%s:%s,%s:%s}", name, old, name, old)...)
		list = append(list, Case{Twice, key, twice})
		for what, v := range deep {
			put(Nested, what, v)
		}
		for what, v := range many {
			put(Many, "many "+what, "["+strings.TrimSuffix(strings.Repeat(v+",", small), ",")+"]")
		}
		put(Many, "many keys", "{"+strings.TrimSuffix(strings.Repeat(`"a":1,`, small), ",")+"}")
		for _, v := range []string{"null", "true", "-1", "1.5", "1e999", "9223372036854775808", strings.Repeat("9", 4096), `""`, `"x"`, "[]", "[null]", `["x"]`, "{}", `{"x":null}`} {
			put(wrong(old, v), "now "+v[:min(len(v), 24)], v)
		}
		put(Swap, "a long text", `"`+strings.Repeat("x", 64<<10)+`"`)
		if old[0] == '"' {
			put(Text, "half a surrogate", `"\ud800"`)
			put(Text, "NUL", `"a\u0000"`)
			put(Text, "no UTF-8", "\"\xff\xfe\"")
		}
	}
	return append(list, Case{Unknown, "a key", append(without(""), `"hostile_key":1}`...)})
}

// wrong tells a value of another type from one that is only another.
func wrong(old json.RawMessage, v string) Kind {
	class := func(c byte) byte {
		switch c {
		case '"', '[', '{', 'n':
			return c
		case 't', 'f':
			return 't'
		}
		return '0'
	}
	if class(old[0]) == class(v[0]) || v[0] == 'n' {
		return Swap
	}
	return Type
}
