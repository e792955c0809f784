package rawmemory

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"tallystick/oplog"
	"tallystick/query/identity"
	"tallystick/query/imported"
	"tallystick/query/internal/args"
	"tallystick/query/internal/pack"
	"tallystick/query/logstream"
	"tallystick/query/refusal"
)

// Kind is the kind of entry of this domain.
const Kind = "rawmem"

// PayloadVersion is the version of the payload that this program writes and
// reads.
const PayloadVersion = 0

// Limits, in bytes unless said otherwise.
const (
	MaxText       = 256 << 10 // of prompt, thought and response each
	MaxSession    = 256
	MaxName       = 256 // of agent, model and one tool
	MaxTools      = 256 // names
	MaxToolCalls  = 1 << 31
	MaxIdentities = identity.MaxSources // of one turn

	maxTimestamp = 64
)

// Turn is the payload.
type Turn struct {
	Session  string
	Prompt   string
	Thought  string
	Response string
	Agent    string // as its program calls itself; not an identity
	Model    string
	// ToolCalls is how many tools were called, below 0 when it is not said.
	ToolCalls int64
	Tools     []string // their names
	// Identities are those whose turn this is. Nil means the writer; an empty
	// list means nobody known.
	Identities []string
	Timestamp  string // RFC 3339; empty means the entry's own stamp
	Import     imported.Key
}

// Validate checks a turn that a local caller wants to add and returns it as it
// will be stored.
func Validate(author string, t Turn) (Turn, error) {
	for _, f := range []struct {
		field, value string
	}{{"prompt", t.Prompt}, {"thought", t.Thought}, {"response", t.Response}} {
		if err := args.Text(f.field, f.value, MaxText); err != nil {
			return t, err
		}
	}
	if args.Blank(t.Prompt) && args.Blank(t.Thought) && args.Blank(t.Response) {
		return t, refusal.Invalid("prompt", "give prompt, thought and response", "the turn is empty")
	}
	if err := line("sessionId", t.Session, MaxSession); err != nil {
		return t, err
	}
	if args.Blank(t.Session) {
		return t, refusal.Invalid("sessionId", "name the session", "sessionId is blank")
	}
	for _, f := range []struct{ field, value string }{{"agent", t.Agent}, {"model", t.Model}} {
		if err := line(f.field, f.value, MaxName); err != nil {
			return t, err
		}
	}
	if t.ToolCalls > MaxToolCalls {
		return t, refusal.New(refusal.TooLarge, "amountToolCalls", "count again", "amountToolCalls is %d", t.ToolCalls)
	}
	if len(t.Tools) > MaxTools {
		return t, refusal.New(refusal.TooLarge, "toolsUsed", "name fewer", "toolsUsed has %d names, at most %d are allowed", len(t.Tools), MaxTools)
	}
	for _, s := range t.Tools {
		if err := line("toolsUsed", s, MaxName); err != nil {
			return t, err
		}
		if args.Blank(s) {
			return t, refusal.Invalid("toolsUsed", "leave blank names out", "toolsUsed contains a blank name")
		}
	}
	if t.Timestamp != "" {
		at, err := logstream.ParseTime("timestamp", t.Timestamp)
		if err != nil {
			return t, err
		}
		if y := at.Year(); y < 1 || y > 9999 || len(t.Timestamp) > maxTimestamp {
			return t, refusal.Invalid("timestamp", "use a year from 1 to 9999", "timestamp is out of range")
		}
	}
	if t.Identities == nil {
		t.Identities = []string{author}
	}
	ids, err := identity.ParseSources(t.Identities)
	if err != nil {
		return t, err
	}
	t.Identities = ids
	if !t.Import.IsZero() {
		return t, t.Import.Check()
	}
	return t, nil
}

func line(field, s string, max int) error {
	switch {
	case len(s) > max:
		return refusal.New(refusal.TooLarge, field, "use a shorter one", "%s has %d bytes, at most %d are allowed", field, len(s), max)
	case !utf8.ValidString(s) || strings.IndexFunc(s, unicode.IsControl) >= 0:
		return refusal.Invalid(field, "use one line of plain text", "%s contains control characters or is not valid UTF-8", field)
	}
	return nil
}

// NewOp validates a turn and makes the op that adds it.
func NewOp(author string, t Turn) (oplog.Op, error) {
	if err := args.Author(author); err != nil {
		return oplog.Op{}, err
	}
	t, err := Validate(author, t)
	if err != nil {
		return oplog.Op{}, err
	}
	return oplog.Op{Kind: Kind, Author: author, Version: PayloadVersion, Body: t.encode()}, nil
}

// ParseAdd validates the arguments of add_memory, which requires prompt,
// thought and response; session stands in for an absent sessionId.
func ParseAdd(raw []byte, session string) (Turn, error) {
	o, err := args.Parse(raw, "prompt", "thought", "response", "sessionId", "agent", "model", "amountToolCalls", "toolsUsed", "sourceAgentIdentities", "timestamp")
	if err != nil {
		return Turn{}, err
	}
	t := Turn{ToolCalls: -1}
	for _, f := range []struct {
		field    string
		value    *string
		required bool
	}{
		{"prompt", &t.Prompt, true}, {"thought", &t.Thought, true}, {"response", &t.Response, true}, {"sessionId", &t.Session, false},
		{"agent", &t.Agent, false}, {"model", &t.Model, false}, {"timestamp", &t.Timestamp, false},
	} {
		given := false
		if *f.value, given, err = o.String(f.field); err != nil {
			return Turn{}, err
		}
		switch {
		case !given && f.required:
			return Turn{}, refusal.Invalid(f.field, "give prompt, thought and response", "%s is required", f.field)
		case !given && f.field == "sessionId":
			t.Session = session
		case given && f.field == "timestamp" && t.Timestamp == "":
			return Turn{}, refusal.Invalid(f.field, "use RFC 3339, or leave it out", "timestamp is empty")
		}
	}
	n, given, err := o.Int("amountToolCalls")
	if err != nil {
		return Turn{}, err
	}
	if given {
		if t.ToolCalls = n; n < 0 {
			return Turn{}, refusal.Invalid("amountToolCalls", "use 0 or more", "amountToolCalls is %d", n)
		}
	}
	if t.Tools, _, err = o.Strings("toolsUsed", MaxTools); err != nil {
		return Turn{}, err
	}
	ids, given, err := o.Strings("sourceAgentIdentities", MaxIdentities)
	if err != nil {
		return Turn{}, err
	}
	if given {
		t.Identities = ids
	}
	_, err = Validate("check", t)
	return t, err
}

const fields = 11

func (t *Turn) encode() []byte {
	b := pack.Array(make([]byte, 0, len(t.Prompt)+len(t.Thought)+len(t.Response)+128), fields)
	for _, s := range []string{t.Session, t.Prompt, t.Thought, t.Response, t.Agent, t.Model} {
		b = pack.Str(b, s)
	}
	if t.ToolCalls < 0 {
		b = pack.Nil(b)
	} else {
		b = pack.Uint(b, uint64(t.ToolCalls))
	}
	for _, list := range [][]string{t.Tools, t.Identities} {
		b = pack.Array(b, len(list))
		for _, s := range list {
			b = pack.Str(b, s)
		}
	}
	return t.Import.Append(pack.Str(b, t.Timestamp))
}

func decode(body []byte) (t Turn, err error) {
	r := pack.NewReader(body)
	r.Exactly(fields)
	t.Session = string(r.Str(MaxSession))
	for _, s := range []*string{&t.Prompt, &t.Thought, &t.Response} {
		*s = string(r.Str(MaxText))
	}
	t.Agent, t.Model = string(r.Str(MaxName)), string(r.Str(MaxName))
	if t.ToolCalls = -1; !r.Nil() {
		t.ToolCalls = int64(r.Uint(MaxToolCalls))
	}
	for n := r.Array(MaxTools); n > 0 && r.Err() == nil; n-- {
		t.Tools = append(t.Tools, string(r.Str(MaxName)))
	}
	t.Identities = []string{}
	for n := r.Array(MaxIdentities); n > 0 && r.Err() == nil; n-- {
		t.Identities = append(t.Identities, string(r.Str(identity.MaxLen)))
	}
	t.Timestamp = string(r.Str(maxTimestamp))
	t.Import = imported.Read(&r)
	return t, r.End()
}

// Decode reads and checks an entry of this kind. An error is a
// *oplog.QuarantineError.
func Decode(e *oplog.Entry) (Turn, error) {
	if e.Version != PayloadVersion {
		return Turn{}, oplog.Quarantine("rawmem of payload version %d; this program reads %d", e.Version, PayloadVersion)
	}
	t, err := decode(e.Body)
	if err == nil {
		err = t.check(e.Author)
	}
	if err != nil {
		return Turn{}, oplog.Quarantine("rawmem: %v", err)
	}
	return t, nil
}

// check judges a payload of any origin. A timestamp that is no date is no
// reason to lose the turn.
func (t *Turn) check(author string) error {
	if author == "" {
		return fmt.Errorf("no author")
	}
	if args.Blank(t.Session) {
		return fmt.Errorf("session is blank")
	}
	for _, s := range append([]string{t.Session, t.Prompt, t.Thought, t.Response, t.Agent, t.Model, t.Timestamp}, t.Tools...) {
		if !args.Plain(s) {
			return fmt.Errorf("a field is no text")
		}
	}
	for i, id := range t.Identities {
		if identity.CheckToken("identity", id) != nil || strings.HasPrefix(id, "@") || slices.Contains(t.Identities[:i], id) {
			return fmt.Errorf("identity %s", refusal.Quote(id))
		}
	}
	return nil
}

// noTime stands for a timestamp that cannot be read; it sorts as the oldest.
const noTime = math.MinInt64

// millis is the turn's time in unix milliseconds, noTime if it cannot be read.
func (t *Turn) millis(ref oplog.Ref) int64 {
	if t.Timestamp == "" {
		return ref.Time().Millis()
	}
	at, err := time.Parse(time.RFC3339Nano, t.Timestamp)
	if err != nil || at.Year() < 1 || at.Year() > 9999 {
		return noTime
	}
	return at.UnixMilli()
}
