package oplog

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"tallystick/hlc"
)

// The formats are frozen (L6): a golden file is only ever added. The flag
// writes the files that are missing.
var addGolden = flag.Bool("add-golden", false, "write golden files that are missing")

// goldenKey and goldenOrigin are the device and the origin of all golden
// bytes: the key's seed is 00 01 02 .. 1f, the incarnation a0 a1 .. af.
func goldenKey() (key ed25519.PrivateKey, pub DeviceKey, origin OriginID) {
	seed := make([]byte, ed25519.SeedSize)
	for i := range seed {
		seed[i] = byte(i)
	}
	var inc Incarnation
	for i := range inc {
		inc[i] = 0xa0 + byte(i)
	}
	key = ed25519.NewKeyFromSeed(seed)
	copy(pub[:], key.Public().(ed25519.PublicKey))
	return key, pub, OriginOf(pub, inc)
}

// sealed builds an entry as the writer does.
func sealed(h Header, opID string, body []byte) Entry {
	e := Entry{Header: h, Salt: make([]byte, SaltSize), Payload: EncodePayload(1, opID, body)}
	for i := range e.Salt {
		e.Salt[i] = 0x50 + byte(i)
	}
	e.seal()
	return e
}

// goldenEntries is a log of three: a first entry, an ordinary one, and one
// with every field at its longest form but the payload.
func goldenEntries() (first, second, third Entry) {
	_, _, origin := goldenKey()
	first = sealed(Header{Origin: origin, Seq: 1, Time: hlc.New(1772366400000, 0), Kind: "tally.test"}, "", []byte{0x90})
	second = sealed(Header{
		Origin: origin, Seq: 2, Time: hlc.New(1772366400000, 1), Prev: first.Hash, Kind: "event", Author: "desk:claude:tallystick",
	}, "op-1", []byte("\x92\xa5hello\x01"))
	third = sealed(Header{
		Origin: origin, Seq: 1<<64 - 1, Time: hlc.Max, Prev: second.Hash, Kind: strings.Repeat("k", MaxKind), Author: strings.Repeat("a", MaxAuthor),
	}, strings.Repeat("o", MaxOpID), append([]byte{0xc5, 1, 0}, make([]byte, 256)...))
	return first, second, third
}

func goldenHead(floor hlc.Timestamp) Head {
	key, _, origin := goldenKey()
	_, second, _ := goldenEntries()
	h := Head{Origin: origin, Seq: second.Seq, Hash: second.Hash, Floor: floor}
	h.sign(key)
	return h
}

func goldenFrontier() Frontier {
	_, _, origin := goldenKey()
	first, second, third := goldenEntries()
	return Frontier{
		origin:                {{Seq: 2, Hash: second.Hash}},
		OriginID{0: 1}:        {{Seq: 70000, Hash: third.Hash}, {Seq: 300, Hash: second.Hash}, {Seq: 300, Hash: first.Hash}},
		OriginID{0: 0xff}:     {{Seq: 1<<64 - 1, Hash: third.Hash}},
		OriginID{0: 1, 15: 1}: {{Seq: 1, Hash: first.Hash}},
	}
}

func goldenPromise() BrokenPromise {
	return BrokenPromise{Head: goldenHead(hlc.New(1772366460000, 0)), Seq: 3, Stamp: hlc.New(1772366459000, 7)}
}

// erased is the entry as it is stored and relayed when its payload is gone.
func erased(e Entry) Entry {
	e = e.Clone()
	e.Salt, e.Payload, e.Version, e.OpID, e.Body = nil, nil, 0, "", nil
	return e
}

func TestL8_GoldenBytes(t *testing.T) {
	first, second, third := goldenEntries()
	gone, promise := erased(second), goldenPromise()
	head, idle := goldenHead(second.Time.Next()), goldenHead(hlc.New(1772366460000, 0))
	for name, got := range map[string][]byte{
		"entry-v0-first":    first.Append(nil),
		"entry-v0-event":    second.Append(nil),
		"entry-v0-longest":  third.Append(nil),
		"entry-v0-erased":   gone.Append(nil),
		"head-v0":           head.Append(nil),
		"head-v0-idle":      idle.Append(nil),
		"frontier-v0-empty": Frontier{}.Append(nil),
		"frontier-v0":       goldenFrontier().Append(nil),
		"payload":           second.Payload,
		"pack-v0":           goldenPack(t),
		"promise-v0":        promise.record(),
	} {
		t.Run(name, func(t *testing.T) {
			if want := golden(t, name, got); !bytes.Equal(got, want) {
				t.Errorf("%s encodes to\n%x\nthe golden file has\n%x", name, got, want)
			}
		})
	}
	if n := len(goldenFiles(t)); n != 11 {
		t.Errorf("%d golden files, 11 are tested: a file without a test, or the other way round", n)
	}
}

// The golden bytes parse to what they were made of, on their own.
func TestL8_GoldenBytesParse(t *testing.T) {
	first, second, third := goldenEntries()
	for name, want := range map[string]Entry{
		"entry-v0-first": first, "entry-v0-event": second, "entry-v0-longest": third, "entry-v0-erased": erased(second),
	} {
		got, rest, err := ParseEntry(golden(t, name, nil))
		if err != nil || len(rest) != 0 || !reflect.DeepEqual(got, want) {
			t.Errorf("%s parses to\n%+v, %v\nwant\n%+v", name, got, err, want)
		}
	}
	_, pub, _ := goldenKey()
	for name, want := range map[string]Head{
		"head-v0": goldenHead(second.Time.Next()), "head-v0-idle": goldenHead(hlc.New(1772366460000, 0)),
	} {
		got, rest, err := ParseHead(golden(t, name, nil))
		if err != nil || len(rest) != 0 || got != want || !got.Verify(pub) {
			t.Errorf("%s parses to %+v, %v", name, got, err)
		}
	}
	for name, want := range map[string]Frontier{"frontier-v0": goldenFrontier(), "frontier-v0-empty": {}} {
		got, rest, err := ParseFrontier(golden(t, name, nil))
		if err != nil || len(rest) != 0 || got.Digest() != want.Digest() || len(got) != len(want) {
			t.Errorf("%s parses to %v, %v", name, got, err)
		}
	}
	if got, err := parsePromise(golden(t, "promise-v0", nil)); err != nil || *got != goldenPromise() {
		t.Errorf("promise parses to %+v, %v", got, err)
	}
	e := Entry{Payload: golden(t, "payload", nil)}
	if err := e.parsePayload(); err != nil || e.Version != 1 || e.OpID != "op-1" || string(e.Body) != "\x92\xa5hello\x01" {
		t.Errorf("payload parses to %d %q %q, %v", e.Version, e.OpID, e.Body, err)
	}
}

// Ids are derived from bytes as well: the same inputs must name the same
// origin and sign the same head for ever. The values were computed by other
// programs (sha256sum, openssl).
func TestL4_GoldenIDs(t *testing.T) {
	_, pub, origin := goldenKey()
	if got, want := pub.String(), "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"; got != want {
		t.Errorf("device key %s, want %s", got, want)
	}
	if got, want := origin.String(), "24058e03254150d94f57fc6f0aa91c2d"; got != want {
		t.Errorf("origin %s, want %s", got, want)
	}
	_, second, _ := goldenEntries()
	if got, want := second.Hash.String(), "23ca8486542346de6b81d30d2bb92858604baa4f38d77ca4db706093e6a97e1f"; got != want {
		t.Errorf("entry hash %s, want %s", got, want)
	}
	if got, want := second.PayloadHash.String(), "949704d0d37470cdeff303fb379e925b28b2d344aa6ec028b4fcd7cebc03fe7c"; got != want {
		t.Errorf("payload hash %s, want %s", got, want)
	}
}

// golden reads testdata/golden/NAME.hex: lines of hex, "#" begins a comment.
func golden(t testing.TB, name string, add []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", "golden", name+".hex")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && *addGolden && add != nil {
		var b strings.Builder
		for chunk := range chunks(add, 32) {
			b.WriteString(hex.EncodeToString(chunk) + "\n")
		}
		text, err = []byte(b.String()), os.WriteFile(path, []byte(b.String()), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	var digits strings.Builder
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		digits.WriteString(strings.TrimSpace(line))
	}
	b, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return b
}

func chunks(b []byte, n int) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) > n {
			if !yield(b[:n]) {
				return
			}
			b = b[n:]
		}
		yield(b)
	}
}

func goldenFiles(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "golden", "*.hex"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}
