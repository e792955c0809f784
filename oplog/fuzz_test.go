package oplog

import (
	"bytes"
	"errors"
	"testing"
)

// The fuzz targets hold the codec to two promises: no input makes it panic,
// and what it accepts it writes back byte for byte, so that one value has one
// encoding. Seeds lie in testdata/fuzz; the golden files are added to them.
// Errors beside those two classes would be told apart wrongly by callers.

func refused(err error) bool { return errors.Is(err, ErrMalformed) || errors.Is(err, ErrVersion) }

func addGoldenSeeds(f *testing.F) {
	for _, name := range []string{
		"entry-v0-first", "entry-v0-event", "entry-v0-longest", "entry-v0-erased", "head-v0", "head-v0-idle", "frontier-v0-empty", "frontier-v0",
	} {
		b := golden(f, name, nil)
		f.Add(b)
		f.Add(b[:len(b)/2])
		f.Add(append(bytes.Clone(b), b...))
	}
}

func FuzzParseEntry(f *testing.F) {
	addGoldenSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		checkEntry(t, b)
		// A fuzzer finds no hash, so the payload is made to fit: what is behind
		// the hash check gets its share.
		var e Entry
		if _, err := e.decode(b); err == nil && e.Payload != nil {
			e.seal()
			if n := len(e.RawHeader); n > maxHeader {
				t.Fatalf("header of %d bytes", n)
			}
			checkEntry(t, e.Append(nil))
		}
	})
}

func checkEntry(t *testing.T, b []byte) {
	e, rest, err := ParseEntry(b)
	if err != nil {
		if !refused(err) {
			t.Fatalf("unnamed error %v", err)
		}
		return
	}
	whole := b[:len(b)-len(rest)]
	if again := e.Append(nil); !bytes.Equal(again, whole) {
		t.Fatalf("entry\n%x\nencodes to\n%x", whole, again)
	}
	if again := appendHeader(nil, &e.Header); !bytes.Equal(again, e.RawHeader) {
		t.Fatalf("header\n%x\nencodes to\n%x", e.RawHeader, again)
	}
	if len(whole) > MaxEntry || len(whole) > e.Size() {
		t.Fatalf("entry of %d bytes, Size says %d", len(whole), e.Size())
	}
	if !e.Present() {
		return
	}
	if err := e.parsePayload(); err == nil {
		if again := EncodePayload(e.Version, e.OpID, e.Body); !bytes.Equal(again, e.Payload) {
			t.Fatalf("payload\n%x\nencodes to\n%x", e.Payload, again)
		}
	} else if !refused(err) {
		t.Fatalf("unnamed error %v", err)
	}
}

func FuzzParseHead(f *testing.F) {
	addGoldenSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		h, rest, err := ParseHead(b)
		if err != nil {
			if !refused(err) {
				t.Fatalf("unnamed error %v", err)
			}
			return
		}
		if again := h.Append(nil); !bytes.Equal(again, b[:len(b)-len(rest)]) {
			t.Fatalf("head\n%x\nencodes to\n%x", b, again)
		}
		_ = h.Verify(DeviceKey(h.Hash))
	})
}

// A promise is a record of the store: it opens over any bytes, or says that it
// is damaged.
func FuzzParsePromise(f *testing.F) {
	addGoldenSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parsePromise(b)
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Fatalf("unnamed error %v", err)
			}
			return
		}
		if again := p.record(); !bytes.Equal(again, b) {
			t.Fatalf("promise\n%x\nencodes to\n%x", b, again)
		}
	})
}

func FuzzParseFrontier(f *testing.F) {
	addGoldenSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		v, rest, err := ParseFrontier(b)
		if err != nil {
			if !refused(err) {
				t.Fatalf("unnamed error %v", err)
			}
			return
		}
		if again := v.Append(nil); !bytes.Equal(again, b[:len(b)-len(rest)]) {
			t.Fatalf("frontier\n%x\nencodes to\n%x", b, again)
		}
	})
}
