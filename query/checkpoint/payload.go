package checkpoint

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"tallystick/hlc"
	"tallystick/oplog"
	"tallystick/query/imported"
	"tallystick/query/internal/args"
	"tallystick/query/internal/pack"
	"tallystick/query/refusal"
)

// Kind is the kind of entry of this domain.
const Kind = "checkpoint"

// PayloadVersion is the version of the payload that this program writes and
// reads.
const PayloadVersion = 0

// Limits in bytes.
const (
	MaxNamespace = 512
	MaxState     = 512 << 10
	MaxBranch    = 512
	MaxCommit    = 128

	maxAt = 64
)

// Checkpoint is the payload.
type Checkpoint struct {
	Namespace  string
	State      string // a JSON object as text, or empty for none
	Branch     string
	BaseCommit string
	// Knew is the latest checkpoint of the namespace that the writer knew; it
	// is filled in by the writer.
	Knew oplog.Hash
	// Import is the key of an imported checkpoint, zero for others. Two imports
	// of one checkpoint, on any replicas, are one: the earliest by C2.
	Import imported.Key
	Author string // original author of an imported checkpoint, or empty
	At     string // original time of an imported checkpoint, verbatim, or empty
}

// ID is the name of a checkpoint: chk_ and 16 hex digits of its header's hash.
func ID(h oplog.Hash) string { return "chk_" + hex.EncodeToString(h[:8]) }

// CheckState checks a state: text that holds a JSON object. Empty is no state.
func CheckState(s string) error {
	const hint = `send a string that holds a JSON object, e.g. "{\"step\": 3}"`
	if s == "" {
		return nil
	}
	if err := args.Text("state", s, MaxState); err != nil {
		return err
	}
	t := bytes.TrimSpace([]byte(s))
	switch {
	case !json.Valid(t):
		return refusal.Invalid("state", hint, "state is not JSON")
	case t[0] != '{':
		return refusal.Invalid("state", hint, "state is JSON but not an object")
	case args.BadEscape(t):
		return refusal.Invalid("state", "remove it", "state contains a NUL character or a lone surrogate")
	}
	return nil
}

// Validate checks a checkpoint of a local caller. Errors are *refusal.Error.
func Validate(c Checkpoint) error {
	if err := args.Filled("agent_id", c.Namespace, MaxNamespace); err != nil {
		return err
	}
	if err := CheckState(c.State); err != nil {
		return err
	}
	if err := line("branch", c.Branch, MaxBranch); err != nil {
		return err
	}
	if err := line("base_commit", c.BaseCommit, MaxCommit); err != nil {
		return err
	}
	if err := line("author", c.Author, oplog.MaxAuthor); err != nil {
		return err
	}
	if err := line("at", c.At, maxAt); err != nil {
		return err
	}
	if c.Import.IsZero() {
		if c.Author != "" || c.At != "" {
			return refusal.Invalid("import", "name the row", "author and at belong to an imported checkpoint")
		}
		return nil
	}
	return c.Import.Check()
}

func line(field, s string, max int) error {
	if err := args.Text(field, s, max); err != nil {
		return err
	}
	if strings.IndexFunc(s, unicode.IsControl) >= 0 {
		return refusal.Invalid(field, "use one line of plain text", "%s contains control characters", field)
	}
	return nil
}

// NewOp validates a checkpoint and makes the op that saves it.
func NewOp(author string, c Checkpoint) (oplog.Op, error) {
	if err := args.Author(author); err != nil {
		return oplog.Op{}, err
	}
	if err := Validate(c); err != nil {
		return oplog.Op{}, err
	}
	op := oplog.Op{Kind: Kind, Author: author, Version: PayloadVersion}
	op.Make = func(views oplog.Views, _ hlc.Timestamp) ([]byte, error) {
		_, hash, ok, err := latest(views.View(ViewName), row(rowAll, nsID(c.Namespace)))
		if err != nil {
			return nil, err
		}
		if c.Knew = (oplog.Hash{}); ok {
			c.Knew = hash
		}
		return c.encode(), nil
	}
	return op, nil
}

// ParseSave validates the arguments of checkpoint_save: agent_id, state,
// branch, base_commit. A state that is not a string is refused, whatever it
// holds. own stands in for an absent agent_id.
func ParseSave(raw []byte, own string) (Checkpoint, error) {
	o, err := args.Parse(raw, "agent_id", "state", "branch", "base_commit")
	if err != nil {
		return Checkpoint{}, err
	}
	c := Checkpoint{Namespace: own}
	for _, f := range []struct {
		field string
		value *string
	}{{"agent_id", &c.Namespace}, {"state", &c.State}, {"branch", &c.Branch}, {"base_commit", &c.BaseCommit}} {
		s, given, err := o.String(f.field)
		if err != nil {
			return Checkpoint{}, err
		}
		if given {
			*f.value = s
		}
		if f.field == "state" && given && s == "" {
			return Checkpoint{}, refusal.Invalid("state", "send a JSON object, or leave state out", "state is empty")
		}
	}
	return c, Validate(c)
}

// A checkpoint has five fields, an imported one three more.
const (
	fields         = 5
	importedFields = 8
)

func (c *Checkpoint) encode() []byte {
	n := fields
	if !c.Import.IsZero() {
		n = importedFields
	}
	b := pack.Array(make([]byte, 0, len(c.State)+128), n)
	for _, s := range []string{c.Namespace, c.State, c.Branch, c.BaseCommit} {
		b = pack.Str(b, s)
	}
	if c.Knew.IsZero() {
		b = pack.Nil(b)
	} else {
		b = pack.Bin(b, c.Knew[:])
	}
	if n == fields {
		return b
	}
	return pack.Str(pack.Str(c.Import.Append(b), c.Author), c.At)
}

func decode(body []byte) (c Checkpoint, err error) {
	r := pack.NewReader(body)
	n := r.Array(importedFields)
	if n != fields && n != importedFields {
		r.Fail("array of %d elements, want %d or %d", n, fields, importedFields)
	}
	c.Namespace = string(r.Str(MaxNamespace))
	c.State = string(r.Str(MaxState))
	c.Branch = string(r.Str(MaxBranch))
	c.BaseCommit = string(r.Str(MaxCommit))
	if b := r.Bin(len(c.Knew)); b != nil {
		if len(b) != len(c.Knew) {
			r.Fail("hash of %d bytes", len(b))
		}
		if copy(c.Knew[:], b); r.Err() == nil && c.Knew.IsZero() {
			r.Fail("hash of nothing")
		}
	}
	if n == importedFields {
		if c.Import = imported.Read(&r); r.Err() == nil && c.Import.IsZero() {
			r.Fail("import without a key")
		}
		c.Author, c.At = string(r.Str(oplog.MaxAuthor)), string(r.Str(maxAt))
	}
	return c, r.End()
}

// Decode reads and checks an entry of this kind. An error is a
// *oplog.QuarantineError.
func Decode(e *oplog.Entry) (Checkpoint, error) {
	if e.Version != PayloadVersion {
		return Checkpoint{}, oplog.Quarantine("checkpoint of payload version %d; this program reads %d", e.Version, PayloadVersion)
	}
	c, err := decode(e.Body)
	if err == nil && e.Author == "" {
		err = fmt.Errorf("no author")
	}
	if err == nil {
		if err = Validate(c); err == nil && !utf8.ValidString(c.State) {
			err = fmt.Errorf("state is no text")
		}
	}
	if err != nil {
		return Checkpoint{}, oplog.Quarantine("checkpoint: %v", err)
	}
	return c, nil
}
