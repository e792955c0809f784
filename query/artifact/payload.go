package artifact

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	"tallystick/oplog"
	"tallystick/query/internal/args"
	"tallystick/query/internal/pack"
	"tallystick/query/refusal"
)

// Kind is the kind of entry of this domain.
const Kind = "artifact"

// PayloadVersion is the version of the payload that this program writes and
// reads.
const PayloadVersion = 0

// Limits of an artifact.
const (
	MaxContent  = oplog.MaxBlob
	MaxMetadata = 64 << 10 // bytes
	maxKind     = 16
	maxWarnings = 8
	maxWarning  = 256

	fields = 5
)

// kinds are the known kinds; their positions are part of the view's rows.
var kinds = []string{"patch", "file", "log", "json", "note"}

// Kinds lists what an artifact can be.
func Kinds() []string { return slices.Clone(kinds) }

// Artifact is the payload. Who made it is the author of the entry.
type Artifact struct {
	Kind     string // one of Kinds
	Hash     oplog.Hash
	Size     int64
	Metadata json.RawMessage // a JSON object, or nil
	Warnings []string
}

// Validate checks what a local caller wants to write.
func Validate(a Artifact) error {
	switch {
	case !slices.Contains(kinds, a.Kind):
		return refusal.OneOf("kind", a.Kind, Kinds())
	case a.Size <= 0:
		return refusal.Invalid("content", "give some content", "content is empty")
	case a.Size > MaxContent:
		return TooLarge(a.Size, MaxContent, "split it")
	}
	if err := CheckMetadata(a.Metadata); err != nil {
		return err
	}
	return a.check()
}

// CheckMetadata checks the metadata of an artifact: nil or a JSON object.
func CheckMetadata(b []byte) error {
	switch {
	case b == nil:
		return nil
	case len(b) > MaxMetadata:
		return refusal.New(refusal.TooLarge, "metadata", "put it into the content", "metadata has %d bytes, at most %d are allowed", len(b), MaxMetadata)
	case !validObject(b):
		return refusal.Invalid("metadata", `send an object such as {"key": "value"}`, "metadata is not a JSON object")
	case args.BadEscape(b):
		return refusal.Invalid("metadata", "remove it", "metadata contains a NUL character or a lone surrogate")
	}
	return nil
}

// TooLarge says that content is over a limit, and the other way.
func TooLarge(size, limit int64, way string) error {
	return refusal.New(refusal.TooLarge, "content", way, "content has %d bytes, at most %d are allowed", size, limit)
}

func validObject(b []byte) bool {
	t := bytes.TrimLeft(b, " \t\r\n")
	return len(t) > 0 && t[0] == '{' && utf8.Valid(b) && json.Valid(b)
}

// NewOp validates an artifact and makes the op that adds it. Its content must
// have been put into the log before.
func NewOp(author string, a Artifact) (oplog.Op, error) {
	if err := args.Author(author); err != nil {
		return oplog.Op{}, err
	}
	if err := Validate(a); err != nil {
		return oplog.Op{}, err
	}
	return oplog.Op{Kind: Kind, Author: author, Version: PayloadVersion, Body: a.Append(nil)}, nil
}

// Append encodes the payload: an array of 5.
func (a *Artifact) Append(dst []byte) []byte {
	dst = pack.Array(dst, fields)
	dst = pack.Str(dst, a.Kind)
	dst = pack.Bin(dst, a.Hash[:])
	dst = pack.Uint(dst, uint64(max(a.Size, 0)))
	dst = pack.Bin(dst, a.Metadata)
	dst = pack.Array(dst, len(a.Warnings))
	for _, w := range a.Warnings {
		dst = pack.Str(dst, w)
	}
	return dst
}

// Decode reads the payload of an entry. An error is a *oplog.QuarantineError.
func Decode(e *oplog.Entry) (Artifact, error) {
	if e.Version != PayloadVersion {
		return Artifact{}, oplog.Quarantine("artifact of payload version %d; this program reads %d", e.Version, PayloadVersion)
	}
	a, err := decode(e.Body)
	if err == nil {
		err = a.check()
	}
	if err == nil && e.Author == "" {
		err = fmt.Errorf("no author")
	}
	if err != nil {
		return Artifact{}, oplog.Quarantine("artifact: %v", err)
	}
	return a, nil
}

func decode(body []byte) (a Artifact, err error) {
	r := pack.NewReader(body)
	r.Exactly(fields)
	a.Kind = string(r.Str(maxKind))
	if h := r.Bin(len(a.Hash)); len(h) == len(a.Hash) {
		a.Hash = oplog.Hash(h)
	} else {
		r.Fail("hash of %d bytes", len(h))
	}
	a.Size = int64(r.Uint(MaxContent))
	if m := r.Bin(MaxMetadata); m != nil {
		a.Metadata = append(json.RawMessage{}, m...)
	}
	n := r.Array(maxWarnings)
	for i := 0; i < n && r.Err() == nil; i++ {
		a.Warnings = append(a.Warnings, string(r.Str(maxWarning)))
	}
	return a, r.End()
}

// check judges an artifact of any origin.
func (a *Artifact) check() error {
	switch {
	case !slices.Contains(kinds, a.Kind):
		return fmt.Errorf("kind %s", refusal.Quote(a.Kind))
	case a.Size <= 0 || a.Size > MaxContent:
		return fmt.Errorf("content of %d bytes", a.Size)
	case a.Metadata != nil && (!validObject(a.Metadata) || args.BadEscape(a.Metadata)):
		return fmt.Errorf("metadata is no JSON object")
	}
	for _, w := range a.Warnings {
		if !args.Plain(w) {
			return fmt.Errorf("a warning is no text")
		}
	}
	return nil
}

// Warnings about patches. Their text is part of the contract with people only.
const (
	WarnNoNewline = "the patch does not end with a newline; git apply may refuse it"
	WarnCR        = "the patch contains carriage returns; it applies only to files that have them"
)

// Scanner looks at content as it passes, for the warnings that its kind calls
// for. It is an io.Writer that never fails.
type Scanner struct {
	cr   bool
	last byte
}

// Write looks at more of the content.
func (s *Scanner) Write(p []byte) (int, error) {
	if len(p) > 0 {
		s.cr = s.cr || bytes.IndexByte(p, '\r') >= 0
		s.last = p[len(p)-1]
	}
	return len(p), nil
}

// Warnings are those about the content so far, as content of a kind.
func (s *Scanner) Warnings(kind string) (list []string) {
	if kind != "patch" {
		return nil
	}
	if s.last != '\n' {
		list = append(list, WarnNoNewline)
	}
	if s.cr {
		list = append(list, WarnCR)
	}
	return list
}
