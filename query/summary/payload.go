package summary

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"tallystick/oplog"
	"tallystick/query/identity"
	"tallystick/query/imported"
	"tallystick/query/internal/pack"
	"tallystick/query/logstream"
	"tallystick/query/refusal"
)

// Kind is the kind of entry of this domain.
const Kind = "summary"

// PayloadVersion is the version of the payload that this program writes and
// reads.
const PayloadVersion = 0

// Limits of a summary, in bytes unless said otherwise.
const (
	MaxTitle      = 512
	MaxText       = 64 << 10
	MaxIdentities = identity.MaxSources // of one summary
	MaxSession    = 256

	maxTimestamp = 64
	maxCategory  = 32
)

// DefaultCategory is the category of a summary that names none.
const DefaultCategory = "other"

// categories are the known ones; their positions are part of the view's rows.
var categories = []string{"bugfix", "feature", "refactoring", "documentation", "new-app", "analysis", "other"}

// Categories lists the known categories.
func Categories() []string { return slices.Clone(categories) }

func categoryCode(s string) int { return slices.Index(categories, s) }

// Summary is the payload.
type Summary struct {
	Title    string
	Text     string
	Category string // empty means DefaultCategory
	// Identities are those whose work this is. Nil means the writer; an empty
	// list means nobody known.
	Identities []string
	Session    string
	Timestamp  string // RFC 3339; empty means the entry's own stamp
	Import     imported.Key
}

// Validate checks a summary that a local caller wants to add and returns it
// as it will be stored. The bound identity stands in for absent identities.
func Validate(author string, s Summary) (Summary, error) {
	s.Title = strings.TrimSpace(s.Title)
	switch {
	case s.Title == "":
		return s, refusal.Invalid("title", "give one line that says what was done", "title is empty")
	case len(s.Title) > MaxTitle:
		return s, refusal.New(refusal.TooLarge, "title", "put the rest into summary", "title has %d bytes, at most %d are allowed", len(s.Title), MaxTitle)
	case !utf8.ValidString(s.Title) || strings.IndexFunc(s.Title, unicode.IsControl) >= 0:
		return s, refusal.Invalid("title", "use one line of plain text", "title contains control characters, line breaks or invalid UTF-8")
	case len(s.Text) > MaxText:
		return s, refusal.New(refusal.TooLarge, "summary", "make it shorter", "summary has %d bytes, at most %d are allowed", len(s.Text), MaxText)
	case strings.TrimSpace(s.Text) == "":
		return s, refusal.Invalid("summary", "say what was done", "summary is empty")
	case !utf8.ValidString(s.Text) || strings.IndexByte(s.Text, 0) >= 0:
		return s, refusal.Invalid("summary", "send valid UTF-8 without NUL", "summary contains a NUL character or invalid UTF-8")
	case len(s.Session) > MaxSession || !utf8.ValidString(s.Session) || strings.IndexFunc(s.Session, unicode.IsControl) >= 0:
		return s, refusal.Invalid("sessionId", "use at most 256 bytes of plain text", "sessionId is too long or no plain text")
	}
	if s.Category == "" {
		s.Category = DefaultCategory
	}
	if categoryCode(s.Category) < 0 {
		return s, refusal.OneOf("category", s.Category, Categories())
	}
	if s.Timestamp != "" {
		t, err := logstream.ParseTime("timestamp", s.Timestamp)
		if err != nil {
			return s, err
		}
		if y := t.Year(); y < 1 || y > 9999 {
			return s, refusal.Invalid("timestamp", "use a year from 1 to 9999", "timestamp is out of range")
		}
	}
	if s.Identities == nil {
		s.Identities = []string{author}
	}
	ids, err := identity.ParseSources(s.Identities)
	if err != nil {
		return s, err
	}
	s.Identities = ids
	if !s.Import.IsZero() {
		return s, s.Import.Check()
	}
	return s, nil
}

// NewOp validates a summary and makes the op that adds it.
func NewOp(author string, s Summary) (oplog.Op, error) {
	if err := logstream.CheckAuthor(author); err != nil {
		return oplog.Op{}, err
	}
	s, err := Validate(author, s)
	if err != nil {
		return oplog.Op{}, err
	}
	return oplog.Op{Kind: Kind, Author: author, Version: PayloadVersion, Body: s.Append(nil)}, nil
}

// Append encodes the payload: an array of 7.
func (s *Summary) Append(dst []byte) []byte {
	dst = pack.Array(dst, 7)
	dst = pack.Str(dst, s.Title)
	dst = pack.Str(dst, s.Category)
	dst = pack.Str(dst, s.Session)
	dst = pack.Str(dst, s.Timestamp)
	dst = pack.Array(dst, len(s.Identities))
	for _, id := range s.Identities {
		dst = pack.Str(dst, id)
	}
	dst = s.Import.Append(dst)
	return pack.Str(dst, s.Text)
}

// Decode reads the payload of an entry. An error is a *oplog.QuarantineError.
func Decode(e *oplog.Entry) (Summary, error) {
	if e.Version != PayloadVersion {
		return Summary{}, oplog.Quarantine("summary of payload version %d; this program reads %d", e.Version, PayloadVersion)
	}
	s, err := decode(e.Body)
	if err != nil {
		return Summary{}, oplog.Quarantine("summary: %v", err)
	}
	return s, nil
}

func decode(body []byte) (s Summary, err error) {
	r := pack.NewReader(body)
	r.Exactly(7)
	s.Title = string(r.Str(MaxTitle))
	s.Category = string(r.Str(maxCategory))
	s.Session = string(r.Str(MaxSession))
	s.Timestamp = string(r.Str(maxTimestamp))
	n := r.Array(MaxIdentities)
	s.Identities = make([]string, 0, n)
	for i := 0; i < n && r.Err() == nil; i++ {
		s.Identities = append(s.Identities, string(r.Str(identity.MaxLen)))
	}
	s.Import = imported.Read(&r)
	s.Text = string(r.Str(MaxText))
	return s, r.End()
}

// check judges a decoded payload of any origin.
func (s *Summary) check(author string) error {
	switch {
	case author == "":
		return fmt.Errorf("no author")
	case s.Title == "" || !utf8.ValidString(s.Title) || strings.IndexFunc(s.Title, unicode.IsControl) >= 0:
		return fmt.Errorf("title is no line of text")
	case !utf8.ValidString(s.Text) || strings.IndexByte(s.Text, 0) >= 0:
		return fmt.Errorf("summary is no text")
	case categoryCode(s.Category) < 0:
		return fmt.Errorf("category %s", refusal.Quote(s.Category))
	case !utf8.ValidString(s.Session) || strings.IndexFunc(s.Session, unicode.IsControl) >= 0:
		return fmt.Errorf("session id is no plain text")
	case !utf8.ValidString(s.Timestamp):
		return fmt.Errorf("timestamp is no text")
	}
	for i, id := range s.Identities {
		if err := identity.CheckToken("identity", id); err != nil {
			return err
		}
		if strings.HasPrefix(id, "@") || slices.Contains(s.Identities[:i], id) {
			return fmt.Errorf("identity %s", refusal.Quote(id))
		}
	}
	return nil
}

// millis is the timestamp in unix milliseconds, and whether it can be read.
func (s *Summary) millis(e *oplog.Entry) (int64, bool) {
	if s.Timestamp == "" {
		return e.Time.Millis(), true
	}
	t, err := time.Parse(time.RFC3339Nano, s.Timestamp)
	if err != nil {
		return 0, false
	}
	return t.UnixMilli(), true
}
