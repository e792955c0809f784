package logstream

import (
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"tallystick/oplog"
	"tallystick/query/carried"
	"tallystick/query/refusal"
)

// Limits of a page.
const (
	DefaultLimit = 50
	MaxLimit     = 500
	MaxPageBytes = 32_000 // of encoded records; a page ends before the record that crosses it
)

// Filter says which events a page holds. The zero Filter is everything,
// newest first. Values compare whole and by bytes; empty ones do not filter.
type Filter struct {
	Stream, Room, Topic string
	Types               []string // any of
	To                  []string // any of, or addressed to "*": the inbox rule
	Writer              string   // written by
	ExcludeWriter       string   // not written by; automatic notices pass all the same
	Correlation, Status string

	Cursor        string    // next_cursor of an earlier page
	SinceEventID  string    // strictly after it in local arrival order
	BeforeEventID string    // strictly before it in local arrival order
	SinceCreated  time.Time // stamped then or later

	Limit   int    // 0 means DefaultLimit
	Order   string // "asc", "desc" or empty
	Preview bool   // cut bodies to PreviewLength characters

	Replica oplog.OriginID // the replica that answers, for cursors
	Label   Labeler        // names origins; may be nil
}

// Page is one page of events.
type Page struct {
	Events     []Record `json:"events"`
	Count      int      `json:"count"`
	HasMore    bool     `json:"has_more"`
	Truncated  bool     `json:"truncated,omitempty"` // ended by size, not by limit
	NextCursor string   `json:"next_cursor,omitempty"`

	after, upTo uint64 // arrival numbers looked through, when listed by arrival
}

// Covers reports whether a page listed with time, in order of arrival, looked
// through that arrival number.
func (p *Page) Covers(arrival uint64) bool { return arrival > p.after && arrival <= p.upTo }

// check returns the filter with defaults filled in, or what is wrong with it.
func (f Filter) check() (Filter, error) {
	for _, v := range []struct{ field, value string }{
		{"stream", f.Stream}, {"room", f.Room}, {"topic", f.Topic}, {"writer", f.Writer}, {"correlation_id", f.Correlation},
	} {
		if err := checkRouting(v.field, v.value); err != nil {
			return f, err
		}
	}
	for _, t := range f.Types {
		if err := checkType("type", t); err != nil {
			return f, err
		}
	}
	for _, t := range f.To {
		if err := checkRouting("to_agent", t); err != nil {
			return f, err
		}
		if t == "" {
			return f, refusal.Invalid("to_agent", "name an agent, or leave it out", "to_agent has an empty value")
		}
	}
	if err := checkStatus(f.Status, statuses); err != nil {
		return f, err
	}
	switch {
	case f.Limit == 0:
		f.Limit = DefaultLimit
	case f.Limit < 0 || f.Limit > MaxLimit:
		return f, refusal.Invalid("limit", "use 1 to 500 and follow next_cursor", "limit is %d, at most %d are allowed", f.Limit, MaxLimit)
	}
	f.Order = strings.ToLower(f.Order)
	if f.Order != "" && f.Order != "asc" && f.Order != "desc" {
		return f, refusal.OneOf("order", f.Order, []string{"asc", "desc"})
	}
	if f.Cursor != "" && f.SinceEventID != "" {
		return f, refusal.Invalid("since_event_id", "leave one of them out", "cursor and since_event_id both say where to start")
	}
	return f, nil
}

// prefixes are the rows of the view that hold every match.
func (f *Filter) prefixes() [][]byte {
	switch {
	case len(f.To) > 0:
		out := [][]byte{hashRow(rowTo, hash8("*"))}
		for _, to := range f.To {
			if p := hashRow(rowTo, hash8(to)); !slices.ContainsFunc(out, func(o []byte) bool { return string(o) == string(p) }) {
				out = append(out, p)
			}
		}
		return out
	case f.Correlation != "":
		return [][]byte{hashRow(rowCor, hash8(f.Correlation))}
	case f.Stream != "":
		return [][]byte{streamRow(hash4(f.Stream))}
	}
	return [][]byte{{rowEvent}}
}

// hashes are what a row's print must show; zero means anything.
type hashes struct {
	cor                       uint64
	stream, room, topic, from uint32
	types                     []uint32
	status                    byte
}

func (f *Filter) hashes() hashes {
	h := hashes{
		cor: hash8(f.Correlation), stream: hash4(f.Stream), room: hash4(f.Room), topic: hash4(f.Topic),
		from: hash4(f.Writer), status: statusCode(f.Status),
	}
	for _, t := range f.Types {
		h.types = append(h.types, hash4(t))
	}
	return h
}

// may reports whether the event behind a print can match.
func (h *hashes) may(p []byte) bool {
	if len(p) != printLen {
		return true
	}
	u32 := binary.BigEndian.Uint32
	return (h.cor == 0 || h.cor == binary.BigEndian.Uint64(p[8:])) &&
		(h.stream == 0 || h.stream == u32(p[16:])) &&
		(h.room == 0 || h.room == u32(p[20:])) &&
		(h.topic == 0 || h.topic == u32(p[24:])) &&
		(h.from == 0 || h.from == u32(p[32:])) &&
		(h.status == 0 || h.status == p[36]) &&
		(len(h.types) == 0 || slices.Contains(h.types, u32(p[28:])))
}

// Matches reports whether an event would be on a page of this filter, wherever
// the page begins.
func (f *Filter) Matches(raw *Raw, e *oplog.Entry) bool { return f.match(raw, e) }

// match is the filter itself.
func (f *Filter) match(raw *Raw, e *oplog.Entry) bool {
	eq := func(want string, got []byte) bool { return want == "" || want == string(got) }
	return eq(f.Stream, raw.Stream) && eq(f.Room, raw.Room) && eq(f.Topic, raw.Topic) &&
		eq(f.Correlation, raw.Correlation) && eq(f.Status, raw.Status) &&
		(f.Writer == "" || f.Writer == e.Author) &&
		(f.ExcludeWriter == "" || f.ExcludeWriter != e.Author || raw.Automatic) &&
		(len(f.Types) == 0 || slices.Contains(f.Types, string(raw.Type))) &&
		(len(f.To) == 0 || f.inbox(string(raw.To))) &&
		(f.SinceCreated.IsZero() || !carried.Stamp(e).Time().Before(f.SinceCreated))
}

// MatchRecord is the filter for records that are not in the log.
func (f *Filter) MatchRecord(r *Record) bool {
	eq := func(want, got string) bool { return want == "" || want == got }
	created, err := ParseTime("created_at", r.CreatedAt)
	return err == nil && eq(f.Stream, r.Stream) && eq(f.Room, r.Room) && eq(f.Topic, r.Topic) &&
		eq(f.Correlation, r.Correlation) && eq(f.Status, r.Status) && eq(f.Writer, r.FromAgent) &&
		(len(f.Types) == 0 || slices.Contains(f.Types, r.Type)) &&
		(len(f.To) == 0 || f.inbox(r.ToAgent)) &&
		(f.SinceCreated.IsZero() || !created.Before(f.SinceCreated))
}

// inbox is the rule of RFC 003 and 005: exactly the name, or "*".
func (f *Filter) inbox(to string) bool {
	return to != "" && (to == "*" || slices.Contains(f.To, to))
}
