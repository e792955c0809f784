// Package imported is the key by which a row of another tool's file is known
// mesh-wide: (source, id, part). Two imports of one row, on any replicas and
// from any folders, carry the same key, and every view folds them to the
// earliest by C2.
package imported

import (
	"crypto/sha256"
	"strings"
	"unicode"
	"unicode/utf8"

	"tallystick/query/internal/pack"
	"tallystick/query/refusal"
)

// Limits in bytes.
const (
	MaxSource = 64
	MaxID     = 256
	MaxPart   = 256
)

// Key names one part of one row of one source, e.g. ("beads", "bd-1", "ack").
type Key struct {
	Source string `json:"source"`
	ID     string `json:"id"`
	Part   string `json:"part"`
}

// IsZero reports whether there is no key.
func (k Key) IsZero() bool { return k == Key{} }

// Hash is the 16-byte name of the key in a view.
func (k Key) Hash() [16]byte {
	d := sha256.Sum256([]byte(k.Source + "\x00" + k.ID + "\x00" + k.Part))
	return [16]byte(d[:16])
}

// Check reports a key that cannot be stored.
func (k Key) Check() error {
	for _, f := range []struct {
		name, value string
		most        int
	}{{"import.source", k.Source, MaxSource}, {"import.id", k.ID, MaxID}, {"import.part", k.Part, MaxPart}} {
		switch {
		case f.value == "":
			return refusal.Invalid(f.name, "name the row", "%s is empty", f.name)
		case len(f.value) > f.most:
			return refusal.New(refusal.TooLarge, f.name, "use a shorter one", "%s has %d bytes, at most %d are allowed", f.name, len(f.value), f.most)
		case !utf8.ValidString(f.value) || strings.IndexFunc(f.value, unicode.IsControl) >= 0:
			return refusal.Invalid(f.name, "use plain text", "%s contains control characters or is not UTF-8", f.name)
		}
	}
	return nil
}

// Append encodes the key, nil when there is none.
func (k Key) Append(dst []byte) []byte {
	if k.IsZero() {
		return pack.Nil(dst)
	}
	dst = pack.Array(dst, 3)
	return pack.Str(pack.Str(pack.Str(dst, k.Source), k.ID), k.Part)
}

// Read decodes what Append writes.
func Read(r *pack.Reader) Key {
	if r.Nil() {
		return Key{}
	}
	r.Exactly(3)
	k := Key{Source: string(r.Str(MaxSource)), ID: string(r.Str(MaxID)), Part: string(r.Str(MaxPart))}
	if r.Err() == nil && (k.Source == "" || k.ID == "" || k.Part == "") {
		r.Fail("import key with an empty part")
	}
	return k
}
