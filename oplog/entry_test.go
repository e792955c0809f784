package oplog

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tallystick/hlc"
)

// headerFields encodes the nine fields of a good header, to be replaced one
// at a time.
func headerFields() [9][]byte {
	_, e, _ := goldenEntries()
	return [9][]byte{
		{EnvelopeVersion}, appendBin(nil, e.Origin[:]), appendUint(nil, e.Seq), appendUint(nil, uint64(e.Time)), appendBin(nil, e.Prev[:]),
		appendStr(nil, e.Kind), appendStr(nil, e.Author), appendUint(nil, uint64(e.PayloadLen)), appendBin(nil, e.PayloadHash[:]),
	}
}

func headerBytes(array string, f [9][]byte) []byte {
	return append([]byte(array), bytes.Join(f[:], nil)...)
}

// Every field of the header against what it must not be.
func TestParseEntryHeaderErrors(t *testing.T) {
	_, good, _ := goldenEntries()
	zeroHash := appendBin(nil, make([]byte, 32))
	for _, c := range []struct {
		name  string
		array string
		field int
		bytes []byte
		want  string
	}{
		{"OK", "\x99", 0, []byte{0}, ""},
		{"ErrVersion", "\x99", 0, []byte{1}, "unknown envelope version: 1"},
		{"ErrVersionFar", "\x99", 0, appendUint(nil, 1<<63), "unknown envelope version"},
		{"ErrVersionLongForm", "\x99", 0, []byte("\xcc\x00"), "shortest"},
		{"ErrVersionString", "\x99", 0, []byte("\xa10"), "not an unsigned number"},
		{"ErrOriginShort", "\x99", 1, appendBin(nil, make([]byte, 15)), "byte string of 15, want 16"},
		{"ErrOriginLong", "\x99", 1, appendBin(nil, make([]byte, 17)), "byte string of 17"},
		{"ErrOriginString", "\x99", 1, appendStr(nil, strings.Repeat("o", 16)), "not a byte string"},
		{"ErrOriginLongForm", "\x99", 1, append([]byte("\xc5\x00\x10"), make([]byte, 16)...), "shortest"},
		{"ErrSeqZero", "\x99", 2, []byte{0}, "seq 0"},
		{"ErrSeqOne", "\x99", 2, []byte{1}, "previous hash does not fit seq 1"},
		{"ErrSeqLongForm", "\x99", 2, []byte("\xcc\x02"), "shortest"},
		{"ErrSeqNegative", "\x99", 2, []byte("\xfe"), "not an unsigned number"},
		{"ErrSeqSigned", "\x99", 2, []byte("\xd3\x00\x00\x00\x00\x00\x00\x00\x02"), "not an unsigned number"},
		{"ErrTimeZero", "\x99", 3, []byte("\xcf\x00\x00\x00\x00\x00\x00\x00\x00"), "no timestamp"},
		{"ErrTimeShortForm", "\x99", 3, []byte("\xce\x69\xa4\x2c\xc0"), "9-byte form"},
		{"ErrTimeFixint", "\x99", 3, []byte("\x01"), "9-byte form"},
		{"ErrTimeAboveMax", "\x99", 3, appendUint(nil, uint64(hlc.Max)+1), "timestamp without a text form"},
		{"OK time at max", "\x99", 3, appendUint(nil, uint64(hlc.Max)), ""},
		{"ErrPrevZero", "\x99", 4, zeroHash, "previous hash does not fit seq 2"},
		{"ErrPrevShort", "\x99", 4, appendBin(nil, make([]byte, 31)), "byte string of 31, want 32"},
		{"ErrPrevNil", "\x99", 4, []byte("\xc0"), "not a byte string"},
		{"ErrKindEmpty", "\x99", 5, []byte("\xa0"), "no kind"},
		{"ErrKindLong", "\x99", 5, appendStr(nil, strings.Repeat("k", MaxKind+1)), "string of 33, limit 32"},
		{"ErrKindLongForm", "\x99", 5, []byte("\xd9\x05event"), "shortest"},
		{"ErrKindBin", "\x99", 5, []byte("\xc4\x05event"), "not a string"},
		{"OK kind at limit", "\x99", 5, appendStr(nil, strings.Repeat("k", MaxKind)), ""},
		{"ErrAuthorLong", "\x99", 6, appendStr(nil, strings.Repeat("a", MaxAuthor+1)), "string of 257, limit 256"},
		{"ErrAuthorLongForm", "\x99", 6, []byte("\xda\x00\x05event"), "shortest"},
		{"ErrAuthorNil", "\x99", 6, []byte("\xc0"), "not a string"},
		{"OK author at limit", "\x99", 6, appendStr(nil, strings.Repeat("a", MaxAuthor)), ""},
		{"OK author empty", "\x99", 6, appendStr(nil, ""), ""},
		{"ErrLenOther", "\x99", 7, []byte{14}, "payload is not as long"},
		{"ErrLenLimit", "\x99", 7, appendUint(nil, MaxPayload+1), fmt.Sprintf("payload of %d bytes, limit %d", MaxPayload+1, MaxPayload)},
		{"ErrLen2to32", "\x99", 7, appendUint(nil, 1<<32+15), "payload of 4294967311 bytes"},
		{"ErrLenLongForm", "\x99", 7, []byte("\xcc\x0f"), "shortest"},
		{"ErrHashShort", "\x99", 8, appendBin(nil, make([]byte, 31)), "byte string of 31, want 32"},
		{"ErrHashOther", "\x99", 8, zeroHash, "does not fit its header's hash"},
		{"ErrArrayEight", "\x98", 0, []byte{0}, "array of 8, want 9"},
		{"ErrArrayTen", "\x9a", 0, []byte{0}, "array of 10, want 9"},
		{"ErrArrayLongForm", "\xdc\x00\x09", 0, []byte{0}, "shortest"},
		{"ErrMap", "\x89", 0, []byte{0}, "not an array"},
		{"ErrLeftOver", "\x99", 8, append(appendBin(nil, good.PayloadHash[:]), 0), "1 bytes left over"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := headerFields()
			f[c.field] = c.bytes
			e := good
			e.RawHeader = headerBytes(c.array, f)
			got, rest, err := ParseEntry(e.Append(nil))
			checkParse(t, got, rest, err, c.want)
		})
	}
}

func checkParse(t *testing.T, got Entry, rest []byte, err error, want string) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrVersion) {
		t.Fatalf("error %v, want one with %q", err, want)
	}
	if !reflect.DeepEqual(got, Entry{}) || rest != nil {
		t.Errorf("something beside the error: %+v, %x", got, rest)
	}
}

func TestParseEntryErrors(t *testing.T) {
	_, e, _ := goldenEntries()
	hdr, salt, payload := appendBin(nil, e.RawHeader), appendBin(nil, e.Salt), appendBin(nil, e.Payload)
	nothing := []byte("\xc0")
	for _, c := range []struct {
		name  string
		parts [][]byte
		want  string
	}{
		{"OK", [][]byte{[]byte("\x93"), hdr, salt, payload}, ""},
		{"OK without payload", [][]byte{[]byte("\x93"), hdr, nothing, nothing}, ""},
		{"ErrEmpty", nil, "truncated"},
		{"ErrArrayTwo", [][]byte{[]byte("\x92"), hdr, salt}, "array of 2, want 3"},
		{"ErrArrayFour", [][]byte{[]byte("\x94"), hdr, salt, payload, nothing}, "array of 4, want 3"},
		{"ErrArrayLongForm", [][]byte{[]byte("\xdc\x00\x03"), hdr, salt, payload}, "shortest"},
		{"ErrHeaderLongForm", [][]byte{append([]byte("\x93\xc5\x00"), byte(len(e.RawHeader))), e.RawHeader, salt, payload}, "shortest"},
		{"ErrHeaderLimit", [][]byte{[]byte("\x93"), appendBin(nil, make([]byte, maxHeader+1)), salt, payload}, "limit"},
		{"ErrHeaderEmpty", [][]byte{[]byte("\x93"), appendBin(nil, nil), salt, payload}, "truncated"},
		{"ErrHeaderArray", [][]byte{[]byte("\x93"), e.RawHeader, salt, payload}, "not a byte string"},
		{"ErrSaltAlone", [][]byte{[]byte("\x93"), hdr, salt, nothing}, "not a byte string"},
		{"ErrPayloadAlone", [][]byte{[]byte("\x93"), hdr, nothing, payload}, "payload without salt"},
		{"ErrSaltShort", [][]byte{[]byte("\x93"), hdr, appendBin(nil, e.Salt[:15]), payload}, "byte string of 15, want 16"},
		{"ErrSaltLong", [][]byte{[]byte("\x93"), hdr, appendBin(nil, make([]byte, 17)), payload}, "byte string of 17"},
		{"ErrSaltOther", [][]byte{[]byte("\x93"), hdr, appendBin(nil, make([]byte, 16)), payload}, "does not fit its header's hash"},
		{"ErrPayloadShort", [][]byte{[]byte("\x93"), hdr, salt, appendBin(nil, e.Payload[1:])}, "not as long"},
		{"ErrPayloadEmpty", [][]byte{[]byte("\x93"), hdr, salt, appendBin(nil, nil)}, "not as long"},
		{"ErrPayloadOther", [][]byte{[]byte("\x93"), hdr, salt, appendBin(nil, make([]byte, len(e.Payload)))}, "does not fit its header's hash"},
		{"ErrPayloadLimit", [][]byte{[]byte("\x93"), hdr, salt, appendBin(nil, make([]byte, MaxPayload+1))}, fmt.Sprintf("limit %d", MaxPayload)},
		{"ErrPayloadLongForm", [][]byte{[]byte("\x93"), hdr, salt, append([]byte("\xc5\x00\x0f"), e.Payload...)}, "shortest"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, rest, err := ParseEntry(bytes.Join(c.parts, nil))
			checkParse(t, got, rest, err, c.want)
		})
	}
}

// Truncated at any byte, an entry is an error and nothing else.
func TestParseEntryTruncated(t *testing.T) {
	first, second, third := goldenEntries()
	gone := erased(second)
	for _, e := range []Entry{first, second, third, gone} {
		b := e.Append(nil)
		for n := range b {
			if got, _, err := ParseEntry(b[:n]); !errors.Is(err, ErrMalformed) || !reflect.DeepEqual(got, Entry{}) {
				t.Fatalf("%d of %d bytes parse: %v", n, len(b), err)
			}
		}
	}
}

// A4: all limits at once are still an entry, and its size is what the
// constants say.
func TestA4_LargestEntry(t *testing.T) {
	_, _, e := goldenEntries()
	e.Payload = make([]byte, MaxPayload)
	e.seal()
	if len(e.RawHeader) != maxHeader {
		t.Errorf("the largest header has %d bytes, maxHeader is %d", len(e.RawHeader), maxHeader)
	}
	b := e.Append(nil)
	if len(b) > MaxEntry || len(b) > e.Size() {
		t.Errorf("the largest entry has %d bytes, MaxEntry is %d, Size %d", len(b), MaxEntry, e.Size())
	}
	var got Entry
	var err error
	if used := allocated(64<<10, func() { got, _, err = ParseEntry(b) }); used > 64<<10 {
		t.Errorf("parsing it allocates %d bytes", used)
	}
	if err != nil || got.Hash != e.Hash {
		t.Errorf("it does not parse: %v", err)
	}
}

func TestEntryRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := entries().Draw(t, "entry")
		if rapid.Bool().Draw(t, "erased") {
			want = erased(want)
		}
		b := want.Append(nil)
		if len(b) > want.Size() {
			t.Fatalf("%d bytes, Size says %d", len(b), want.Size())
		}
		if got := want.Append([]byte("before")); string(got) != "before"+string(b) {
			t.Fatalf("appended to what was there:\n%x", got)
		}
		if got := appendHeader([]byte("before"), &want.Header); string(got) != "before"+string(want.RawHeader) {
			t.Fatalf("header appended to what was there:\n%x", got)
		}
		tail := rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "tail")
		got, rest, err := ParseEntry(append(bytes.Clone(b), tail...))
		if err != nil || !bytes.Equal(rest, tail) {
			t.Fatalf("rest %x, want %x, %v", rest, tail, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got\n%+v\nwant\n%+v", got, want)
		}
		if again := got.Append(nil); !bytes.Equal(again, b) {
			t.Fatalf("encoded again\n%x\nwas\n%x", again, b)
		}
	})
}

// L3: whatever bit of an entry flips, it does not parse any more, or its hash
// is another, so that the chain breaks at it.
func TestL3_AnyBitFlipIsDetected(t *testing.T) {
	check := func(t rapid.TB, b []byte, hash Hash, bit int) {
		bad := bytes.Clone(b)
		bad[bit/8] ^= 1 << (bit % 8)
		got, rest, err := ParseEntry(bad)
		if err == nil && len(rest) == 0 && got.Hash == hash {
			t.Fatalf("bit %d of byte %d flipped unseen:\n%x\n%x", bit%8, bit/8, b, bad)
		}
	}
	first, second, third := goldenEntries()
	for _, e := range []Entry{first, second, third, erased(second)} {
		b := e.Append(nil)
		for bit := range 8 * len(b) {
			check(t, b, e.Hash, bit)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		e := entries().Draw(t, "entry")
		b := e.Append(nil)
		for range 50 {
			check(t, b, e.Hash, rapid.IntRange(0, 8*len(b)-1).Draw(t, "bit"))
		}
	})
}

// L3: an erased payload leaves the header, and with it the chain, as it was;
// and the salt, without which a payload cannot be guessed back, goes with it.
func TestL3_ErasedEntryKeepsItsHash(t *testing.T) {
	_, e, _ := goldenEntries()
	gone := erased(e)
	b := gone.Append(nil)
	got, _, err := ParseEntry(b)
	if err != nil || got.Hash != e.Hash || got.Header != e.Header || got.Present() || got.Ref() != e.Ref() {
		t.Fatalf("%+v, %v", got, err)
	}
	if bytes.Contains(b, e.Salt) || bytes.Contains(b, e.Payload) {
		t.Error("salt or payload are still there")
	}
	other := e.Clone()
	other.Salt[0]++
	other.seal()
	if other.PayloadHash == e.PayloadHash || other.Hash == e.Hash {
		t.Error("the salt does not enter the hash")
	}
}

// L6: a payload whose opening is broken is the business of quarantine; the
// entry itself parses, is stored and relayed.
func TestL6_BrokenOpeningStillParses(t *testing.T) {
	_, e, _ := goldenEntries()
	for _, c := range []struct{ name, payload, want string }{
		{"OK", "\x93\x01\xa4op-1\xc0", ""},
		{"OK no op id", "\x93\x00\xa0\x90", ""},
		{"OK far version", "\x93\xcf\xff\xff\xff\xff\xff\xff\xff\xff\xa0\x90", ""},
		{"ErrEmpty", "", "truncated"},
		{"ErrNoBody", "\x93\x01\xa4op-1", "payload without body"},
		{"ErrArray", "\x92\x01\xa4op-1\xc0", "array of 2, want 3"},
		{"ErrVersion", "\x93\xa1x\xa4op-1\xc0", "not an unsigned number"},
		{"ErrVersionLongForm", "\x93\xcc\x01\xa4op-1\xc0", "shortest"},
		{"ErrOpIDLong", "\x93\x01\xda\x01\x01" + strings.Repeat("o", MaxOpID+1) + "\xc0", "string of 257, limit 256"},
		{"ErrOpIDNil", "\x93\x01\xc0\xc0", "not a string"},
		{"ErrOpIDTruncated", "\x93\x01\xa4op", "truncated"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := e
			in.Payload = []byte(c.payload)
			in.seal()
			got, _, err := ParseEntry(in.Append(nil))
			if err != nil || !got.Present() {
				t.Fatalf("L6: the envelope must not care: %v", err)
			}
			err = got.parsePayload()
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestPayloadRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		version, opID := numbers().Draw(t, "version"), rapid.StringN(0, 60, MaxOpID).Draw(t, "op id")
		body := rapid.SliceOfN(rapid.Byte(), 1, 200).Draw(t, "body")
		e := Entry{Payload: EncodePayload(version, opID, body)}
		if err := e.parsePayload(); err != nil || e.Version != version || e.OpID != opID || !bytes.Equal(e.Body, body) {
			t.Fatalf("%d %q %x, %v", e.Version, e.OpID, e.Body, err)
		}
	})
}

func TestEntryCloneSharesNothing(t *testing.T) {
	_, e, _ := goldenEntries()
	b := e.Append(nil)
	got, _, err := ParseEntry(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := got.parsePayload(); err != nil {
		t.Fatal(err)
	}
	c := got.Clone()
	// Growing one slice must not write into what lies behind it.
	_, _, _ = append(got.RawHeader, 0xee), append(got.Salt, 0xee), append(got.Payload, 0xee)
	if !bytes.Equal(b, e.Append(nil)) {
		t.Error("appending to a field of a parsed entry writes into its neighbour")
	}
	clear(b)
	if !bytes.Equal(c.Append(nil), e.Append(nil)) || string(c.Body) != "\x92\xa5hello\x01" || c.Kind != "event" || c.Author != e.Author {
		t.Errorf("the clone changed with its origin: %+v", c)
	}
	gone := erased(e)
	if c := gone.Clone(); c.Present() || c.Salt != nil || c.Body != nil {
		t.Errorf("a clone of an erased entry has a payload: %+v", c)
	}
}
