package logstream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode"

	"tallystick/oplog"
	"tallystick/query/carried"
)

// Record is an event as clients see it. 64-bit numbers are strings.
type Record struct {
	ID          string          `json:"id"`
	Seq         string          `json:"seq"` // local arrival number
	Origin      string          `json:"origin"`
	OriginID    string          `json:"origin_id"`
	OriginSeq   string          `json:"origin_seq"`
	HLC         string          `json:"hlc"`
	Type        string          `json:"type"`
	Stream      string          `json:"stream"`
	Room        string          `json:"room"`
	Topic       string          `json:"topic,omitempty"`
	FromAgent   string          `json:"from_agent"`
	ToAgent     string          `json:"to_agent,omitempty"`
	Correlation string          `json:"correlation_id,omitempty"`
	Branch      string          `json:"branch,omitempty"`
	BaseCommit  string          `json:"base_commit,omitempty"`
	Status      string          `json:"status,omitempty"`
	ArtifactIDs []string        `json:"artifact_ids"`
	Body        string          `json:"body"`
	CreatedAt   string          `json:"created_at"`
	ExpiresAt   string          `json:"expires_at,omitempty"`
	Metadata    json.RawMessage `json:"metadata"`

	BodyTruncated bool `json:"body_truncated,omitempty"`
	BodyLength    int  `json:"body_length,omitempty"` // characters, when truncated
	Invisible     bool `json:"invisible,omitempty"`   // some field holds bidi, zero-width or tag characters

	// A computed record is not in the log: it tells of a claim that is lost
	// while the loss is not settled yet.
	Computed bool     `json:"computed,omitempty"`
	Grade    string   `json:"grade,omitempty"`
	Unheard  []string `json:"unheard,omitempty"` // who is waited for, and why
}

// TimeFormat is how times are shown: RFC 3339, UTC, milliseconds.
const TimeFormat = "2006-01-02T15:04:05.000Z"

// FormatTime shows a time, empty for the zero time.
func FormatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(TimeFormat)
}

// PreviewLength is how many characters of a body a preview keeps.
const PreviewLength = 200

// Labeler names an origin for people; empty when it is not known.
type Labeler func(oplog.OriginID) string

// Get returns one event by id as a Record.
func Get(snap oplog.Snapshot, id string, label Labeler) (Record, error) {
	e, err := Find(snap, "event_id", id)
	if err != nil {
		return Record{}, err
	}
	return NewRecord(snap, &e, label)
}

// NewRecord shows an entry of kind "event" or "ack".
func NewRecord(snap oplog.Snapshot, e *oplog.Entry, label Labeler) (Record, error) {
	raw, err := Decode(e)
	if err != nil {
		return Record{}, err
	}
	arrival, err := snap.Arrival(e.Ref())
	if err != nil {
		return Record{}, err
	}
	return record(&raw, e, arrival, label), nil
}

func record(raw *Raw, e *oplog.Entry, arrival uint64, label Labeler) Record {
	ref := e.Ref()
	r := Record{
		ID: EventID(ref), Seq: strconv.FormatUint(arrival, 10),
		OriginID: e.Origin.String(), OriginSeq: strconv.FormatUint(e.Seq, 10), HLC: ref.Stamp().String(),
		Type: string(raw.Type), Stream: string(raw.Stream), Room: string(raw.Room), Topic: string(raw.Topic),
		FromAgent: e.Author, ToAgent: string(raw.To), Correlation: string(raw.Correlation),
		Branch: string(raw.Branch), BaseCommit: string(raw.BaseCommit), Status: string(raw.Status),
		Body: string(raw.Body), CreatedAt: FormatTime(carried.Stamp(e).Time()), ArtifactIDs: []string{}, Metadata: raw.metadata(),
	}
	if label != nil {
		r.Origin = label(e.Origin)
	}
	if raw.ExpiresAt != 0 {
		r.ExpiresAt = FormatTime(time.UnixMilli(raw.ExpiresAt))
	}
	for _, a := range raw.Artifacts {
		r.ArtifactIDs = append(r.ArtifactIDs, string(a))
	}
	for _, f := range [...][]byte{raw.Stream, raw.Room, raw.Topic, raw.To, raw.Correlation, raw.Branch, raw.BaseCommit, raw.Body, raw.Metadata} {
		r.Invisible = r.Invisible || Invisible(f)
	}
	return r
}

// metadata is the stored object; for an ack with the event that it acks in
// front.
func (raw *Raw) metadata() json.RawMessage {
	stored := raw.Metadata
	if stored == nil {
		stored = []byte("{}")
	}
	if !raw.Ack {
		return append(json.RawMessage{}, stored...)
	}
	out := append(json.RawMessage{}, fmt.Sprintf("{%q:%q", "ack_of", EventID(raw.Of))...)
	rest := bytes.TrimLeft(stored, " \t\r\n")[1:]
	if trimmed := bytes.TrimLeft(rest, " \t\r\n"); trimmed[0] != '}' {
		out = append(out, ',')
	}
	return append(out, rest...)
}

func (r *Record) preview() {
	runes := 0
	for i := range r.Body {
		if runes == PreviewLength {
			r.BodyLength = runes + len([]rune(r.Body[i:]))
			r.Body, r.BodyTruncated = r.Body[:i], true
			return
		}
		runes++
	}
}

// Invisible reports whether text holds characters that change what a reader
// sees without being seen: bidi controls, zero-width characters, tags, and
// variation selectors that do not follow an emoji.
func Invisible[T ~string | ~[]byte](text T) bool {
	ascii := true
	for i := 0; i < len(text); i++ {
		if text[i] >= 0x80 {
			ascii = false
			break
		}
	}
	if ascii {
		return false
	}
	var before rune
	for _, c := range string(text) {
		switch {
		case c == 0x00ad, c == 0x034f, c == 0x061c, c == 0x115f, c == 0x1160, c == 0x17b4, c == 0x17b5, c == 0x180e, c == 0x3164, c == 0xfeff, c == 0xffa0,
			c >= 0x200b && c <= 0x200f, c >= 0x202a && c <= 0x202e, c >= 0x2060 && c <= 0x206f,
			c >= 0xe0000 && c <= 0xe007f:
			return true
		case c >= 0xfe00 && c <= 0xfe0f, c >= 0xe0100 && c <= 0xe01ef:
			if !emoji(before) {
				return true
			}
		}
		before = c
	}
	return false
}

// emoji reports whether a variation selector may follow c.
func emoji(c rune) bool {
	return c == '#' || c == '*' || c >= '0' && c <= '9' || c == 0xa9 || c == 0xae || c >= 0x2000 && unicode.Is(unicode.S, c) || unicode.Is(unicode.So, c)
}
