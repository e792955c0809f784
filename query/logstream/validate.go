package logstream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"tallystick/hlc"
	"tallystick/oplog"
	"tallystick/query/identity"
	"tallystick/query/refusal"
)

// Limits of an event.
const (
	MaxType      = 64        // characters
	MaxRouting   = 256       // characters of stream, room, topic, agents, correlation, branch, base commit
	MaxBody      = 256 << 10 // bytes
	MaxMetadata  = 64 << 10  // bytes
	MaxArtifacts = 64        // ids

	maxRoutingBytes = MaxRouting * utf8.UTFMax
	maxStatus       = 16
	maxArtifactID   = 64
	maxTaskKey      = 2*maxRoutingBytes + 8
	maxMillis       = hlc.MaxMillis
)

// reserved types are written by their own tools only.
var reserved = []struct{ prefix, hint string }{
	{TypeAck, "use event_ack"},
	{"mail.", "mail is written by the mailbox tools"},
	{"tally.", "types that begin with tally. belong to the replica itself"},
}

// Validate checks an event that a local caller wants to append and returns it
// as it will be stored: routing fields trimmed, repeated artifact ids
// dropped. Errors are *refusal.Error and name the field.
func Validate(e Event) (Event, error) {
	e, err := normalise(e)
	if err != nil {
		return Event{}, err
	}
	if err := checkType("type", e.Type); err != nil {
		return Event{}, err
	}
	for _, r := range reserved {
		if e.Type == r.prefix || strings.HasSuffix(r.prefix, ".") && strings.HasPrefix(e.Type, r.prefix) {
			return Event{}, refusal.Invalid("type", r.hint, "type %s is reserved", refusal.Quote(e.Type))
		}
	}
	for _, f := range []struct{ name, value string }{{"stream", e.Stream}, {"room", e.Room}} {
		if f.value == "" {
			return Event{}, refusal.Invalid(f.name, "name a "+f.name, "%s is required", f.name)
		}
	}
	if err := checkStatus(e.Status, statuses); err != nil {
		return Event{}, err
	}
	return e, nil
}

// normalise checks what events and acks have in common.
func normalise(e Event) (Event, error) {
	for _, f := range []struct {
		name  string
		value *string
	}{
		{"stream", &e.Stream}, {"room", &e.Room}, {"topic", &e.Topic}, {"to_agent", &e.To},
		{"correlation_id", &e.Correlation}, {"branch", &e.Branch}, {"base_commit", &e.BaseCommit},
	} {
		*f.value = strings.TrimSpace(*f.value)
		if err := checkRouting(f.name, *f.value); err != nil {
			return Event{}, err
		}
	}
	if err := CheckBody(e.Body); err != nil {
		return Event{}, err
	}
	if err := checkMetadata(e.Metadata); err != nil {
		return Event{}, err
	}
	ids, err := checkArtifacts(e.ArtifactIDs)
	if err != nil {
		return Event{}, err
	}
	e.ArtifactIDs = ids
	if e.ExpiresAt < 0 || e.ExpiresAt > maxMillis {
		return Event{}, refusal.Invalid("expires_at", "use a time between 1970 and 2286", "expires_at is out of range")
	}
	if !e.Import.IsZero() {
		if err := e.Import.Check(); err != nil {
			return Event{}, err
		}
	}
	return e, nil
}

// NewOp validates an event and makes the op that appends it.
func NewOp(author string, e Event) (oplog.Op, error) {
	if err := CheckAuthor(author); err != nil {
		return oplog.Op{}, err
	}
	e, err := Validate(e)
	if err != nil {
		return oplog.Op{}, err
	}
	return oplog.Op{Kind: KindEvent, Author: author, Version: PayloadVersion, Body: e.Append(nil)}, nil
}

// NewAckOp makes the op that appends an ack. It is for package claim, which
// knows the task; callers use claim.NewOp.
func NewAckOp(author string, a Ack) (oplog.Op, error) {
	if err := CheckAuthor(author); err != nil {
		return oplog.Op{}, err
	}
	ev, err := normalise(a.Event)
	if err != nil {
		return oplog.Op{}, err
	}
	ev.Type = TypeAck
	if err := checkStatus(ev.Status, ackStatuses); err != nil {
		return oplog.Op{}, err
	}
	a.Event = ev
	return oplog.Op{Kind: KindAck, Author: author, Version: PayloadVersion, Body: a.Append(nil)}, nil
}

// NewMailOp makes the op that appends an event of the mailbox. It is for
// package mailbox, which knows the recipients; callers use
// mailbox.NewMessageOp.
func NewMailOp(author string, e Event) (oplog.Op, error) {
	if err := CheckAuthor(author); err != nil {
		return oplog.Op{}, err
	}
	e, err := normalise(e)
	if err != nil {
		return oplog.Op{}, err
	}
	if !validType(e.Type) || !strings.HasPrefix(e.Type, "mail.") || e.Stream == "" || e.Room == "" {
		return oplog.Op{}, refusal.Invalid("type", "use mailbox.NewMessageOp", "%s is no type of mail", refusal.Quote(e.Type))
	}
	return oplog.Op{Kind: KindEvent, Author: author, Version: PayloadVersion, Body: e.Append(nil)}, nil
}

// CheckAuthor checks the identity under which something is written.
func CheckAuthor(author string) error {
	if author == "" {
		return refusal.New(refusal.IdentityUnbound, "from_agent", "start the server with --agent NAME", "nothing can be written without an identity")
	}
	if _, err := identity.Parse(author); err != nil {
		if e, ok := err.(*refusal.Error); ok {
			e.Field = "from_agent"
		}
		return err
	}
	return nil
}

func checkType(field, s string) error {
	rule := "a lower-case letter or digit, then a-z 0-9 _ . -, at most 64 characters"
	if s == "" {
		return refusal.Invalid(field, "for example task.request, task.reply, status", "%s is required", field)
	}
	if !validType(s) {
		e := refusal.Invalid(field, "for example task.request, task.reply, status", "%s is %s", field, refusal.Quote(s))
		e.Allowed = []string{rule}
		return e
	}
	return nil
}

func validType[T ~string | ~[]byte](s T) bool {
	if len(s) == 0 || len(s) > MaxType {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		lower := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !lower && (i == 0 || c != '_' && c != '.' && c != '-') {
			return false
		}
	}
	return true
}

func checkStatus(s string, allowed []string) error {
	if s == "" {
		return nil
	}
	for _, a := range allowed {
		if s == a {
			return nil
		}
	}
	return refusal.OneOf("status", s, allowed)
}

func checkRouting(field, s string) error {
	switch {
	case !utf8.ValidString(s):
		return refusal.Invalid(field, "send valid UTF-8", "%s is not valid UTF-8", field)
	case utf8.RuneCountInString(s) > MaxRouting:
		return refusal.New(refusal.TooLarge, field, "use a shorter value", "%s has %d characters, at most %d are allowed", field, utf8.RuneCountInString(s), MaxRouting)
	case strings.IndexFunc(s, unicode.IsControl) >= 0:
		return refusal.Invalid(field, "use one line of plain text", "%s contains control characters", field)
	}
	return nil
}

// CheckBody checks a body: valid UTF-8 without NUL, at most MaxBody bytes.
func CheckBody(s string) error {
	switch {
	case len(s) > MaxBody:
		return refusal.New(refusal.TooLarge, "body", "put large text into an artifact", "body has %d bytes, at most %d are allowed", len(s), MaxBody)
	case !utf8.ValidString(s):
		return refusal.Invalid("body", "send valid UTF-8", "body is not valid UTF-8")
	case strings.IndexByte(s, 0) >= 0:
		return refusal.Invalid("body", "remove it", "body contains a NUL character")
	}
	return nil
}

func checkMetadata(b []byte) error {
	if b == nil {
		return nil
	}
	switch {
	case len(b) > MaxMetadata:
		return refusal.New(refusal.TooLarge, "metadata", "put large data into an artifact", "metadata has %d bytes, at most %d are allowed", len(b), MaxMetadata)
	case !validObject(b):
		return refusal.Invalid("metadata", `send an object such as {"key": "value"}`, "metadata is not a JSON object")
	case badEscapes(b):
		return refusal.Invalid("metadata", "remove it", "metadata contains a NUL character or a lone surrogate")
	}
	return nil
}

func validObject(b []byte) bool {
	t := bytes.TrimLeft(b, " \t\r\n")
	return len(t) > 0 && t[0] == '{' && utf8.Valid(b) && json.Valid(b)
}

// badEscapes finds \u0000 and lone surrogates among the escapes of valid JSON.
func badEscapes(b []byte) bool {
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' {
			continue
		}
		i++
		if b[i] != 'u' {
			continue
		}
		c := hex4(b[i+1:])
		i += 4
		switch {
		case c == 0, c >= 0xdc00 && c < 0xe000:
			return true
		case c >= 0xd800 && c < 0xdc00:
			if i+6 >= len(b) || b[i+1] != '\\' || b[i+2] != 'u' {
				return true
			}
			if d := hex4(b[i+3:]); d < 0xdc00 || d >= 0xe000 {
				return true
			}
			i += 6
		}
	}
	return false
}

func hex4(b []byte) (v rune) {
	for _, c := range b[:4] {
		v <<= 4
		switch {
		case c >= 'a':
			v |= rune(c - 'a' + 10)
		case c >= 'A':
			v |= rune(c - 'A' + 10)
		default:
			v |= rune(c - '0')
		}
	}
	return v
}

func checkArtifacts(ids []string) ([]string, error) {
	if len(ids) > MaxArtifacts {
		return nil, refusal.New(refusal.TooLarge, "artifact_ids", "send fewer", "artifact_ids has %d ids, at most %d are allowed", len(ids), MaxArtifacts)
	}
	var out []string
	seen := map[string]bool{}
	for _, id := range ids {
		if !validArtifact(id) {
			return nil, refusal.Invalid("artifact_ids", "copy the id that artifact_put gave", "artifact_ids contains %s, which is not an artifact id", refusal.Quote(id))
		}
		if !seen[id] {
			seen[id] = true
			out = append(out, id)
		}
	}
	return out, nil
}

// IsArtifactID reports whether s has the form of an artifact id, whoever made it.
func IsArtifactID(s string) bool { return validArtifact(s) }

// validArtifact reports whether s has the form of an artifact id: art_ and
// letters, digits, _ . or -. Whether it is known is asked elsewhere.
func validArtifact[T ~string | ~[]byte](s T) bool {
	const prefix = "art_"
	if len(s) <= len(prefix) || len(s) > maxArtifactID || string(s[:len(prefix)]) != prefix {
		return false
	}
	for _, c := range []byte(s[len(prefix):]) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '.', c == '-':
		default:
			return false
		}
	}
	return true
}

// ParseTime reads a time of a local write or filter: RFC 3339. The zero time
// stands for an empty text.
func ParseTime(field, s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, refusal.Invalid(field, "use RFC 3339, e.g. 2026-01-02T03:04:05Z", "%s is %s, which is not a time", field, refusal.Quote(s))
	}
	return t.UTC(), nil
}

// check judges a decoded payload of any origin by the same rules, so that one
// bad entry is set aside and blocks nothing (L6).
func (raw *Raw) check(author string) error {
	if author == "" {
		return fmt.Errorf("no author")
	}
	if !validType(raw.Type) {
		return fmt.Errorf("type %s", refusal.Quote(string(raw.Type)))
	}
	if (string(raw.Type) == TypeAck) != raw.Ack {
		return fmt.Errorf("type %s in the wrong kind of entry", raw.Type)
	}
	if len(raw.Stream) == 0 || len(raw.Room) == 0 {
		return fmt.Errorf("no stream or no room")
	}
	if statusCode(raw.Status) == 0 && len(raw.Status) > 0 {
		return fmt.Errorf("status %s", refusal.Quote(string(raw.Status)))
	}
	for _, f := range [...][]byte{raw.Stream, raw.Room, raw.Topic, raw.To, raw.Correlation, raw.Branch, raw.BaseCommit} {
		if !plain(f) {
			return fmt.Errorf("a routing field is no plain text or too long")
		}
	}
	if !utf8.Valid(raw.Body) || bytes.IndexByte(raw.Body, 0) >= 0 {
		return fmt.Errorf("body is no text")
	}
	if raw.Metadata != nil && (!validObject(raw.Metadata) || badEscapes(raw.Metadata)) {
		return fmt.Errorf("metadata is no JSON object")
	}
	for _, a := range raw.Artifacts {
		if !validArtifact(a) {
			return fmt.Errorf("artifact id %s", refusal.Quote(string(a)))
		}
	}
	return nil
}

// plain reports whether a routing field is text without control characters.
func plain(b []byte) bool {
	ascii := true
	for _, c := range b {
		if c < 0x20 || c == 0x7f {
			return false
		}
		ascii = ascii && c < utf8.RuneSelf
	}
	if ascii {
		return len(b) <= MaxRouting
	}
	return utf8.Valid(b) && utf8.RuneCount(b) <= MaxRouting && bytes.IndexFunc(b, unicode.IsControl) < 0
}

// statusCode is a status' number in the rows; 0 for none or unknown.
func statusCode[T ~string | ~[]byte](s T) byte {
	for i, known := range statuses {
		if string(s) == known {
			return byte(i + 1)
		}
	}
	return 0
}
