package summary

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"tallystick/oplog"
	"tallystick/query/identity"
	"tallystick/query/internal/near"
	"tallystick/query/logstream"
	"tallystick/query/refusal"
)

// Limits of a page.
const (
	DefaultLimit = 50
	MaxLimit     = 500
	MaxPageBytes = logstream.MaxPageBytes
)

const unknown = "No summaries of this identity here. It may not have arrived yet, or be spelled otherwise."

// ID is the name of a summary: sum_ and 16 hex digits of its header's hash.
func ID(ref oplog.Ref) string {
	tag := ref.Tag()
	return "sum_" + hex.EncodeToString(tag[:])
}

// Record is a summary as clients see it.
type Record struct {
	ID         string   `json:"id"`
	Title      string   `json:"title"`
	Summary    string   `json:"summary"`
	Category   string   `json:"category"`
	Timestamp  *string  `json:"timestamp"` // null when it cannot be read
	SessionID  string   `json:"sessionId,omitempty"`
	Identities []string `json:"sourceAgentIdentities"`
	Author     string   `json:"author"`
	Origin     string   `json:"origin"`
	Invisible  bool     `json:"invisible,omitempty"`
}

// Query asks for a page.
type Query struct {
	Filter   identity.Filter // the zero Filter is refused: say All
	Category string          // empty for all
	Limit    int             // 0 means DefaultLimit
	Offset   int
	Label    logstream.Labeler // names origins; may be nil
}

// Page is the answer.
type Page struct {
	Count      int      `json:"count"`
	Total      int64    `json:"total"` // matching, before limit and offset
	Limit      int      `json:"limit"`
	Offset     int      `json:"offset"`
	Summaries  []Record `json:"summaries"`
	Malformed  int64    `json:"malformedTimestamps,omitempty"` // matching without a readable timestamp
	Note       string   `json:"note,omitempty"`
	HasMore    bool     `json:"has_more,omitempty"`
	Truncated  bool     `json:"truncated,omitempty"` // ended by size, not by limit
	NextOffset *int     `json:"next_offset,omitempty"`
}

// List returns one page, newest first, ids ascending among equal times.
func List(snap oplog.Snapshot, q Query) (Page, error) {
	category := -1
	switch {
	case q.Limit == 0:
		q.Limit = DefaultLimit
	case q.Limit < 0 || q.Limit > MaxLimit:
		return Page{}, refusal.Invalid("limit", "use 1 to 500 and follow next_offset", "limit is %d, at most %d are allowed", q.Limit, MaxLimit)
	}
	if q.Offset < 0 {
		return Page{}, refusal.Invalid("offset", "use 0 or more", "offset is %d", q.Offset)
	}
	if q.Category != "" {
		if category = categoryCode(q.Category); category < 0 {
			return Page{}, refusal.OneOf("category", q.Category, Categories())
		}
	}
	if q.Filter.All == (q.Filter.Identity != "") {
		return Page{}, refusal.Invalid("agentIdentity", "use all, @me or one identity", "agentIdentity says neither all nor whose")
	}
	view := snap.View(ViewName)
	c, err := readCounts(view, q.Filter.Identity)
	if err != nil {
		return Page{}, err
	}
	page := Page{
		Total: c.total(category), Malformed: c.malformed(category), Limit: q.Limit, Offset: q.Offset, Summaries: []Record{},
	}
	if c.total(-1) == 0 && !q.Filter.All {
		if page.Note, err = near.Note(view, rowCount, q.Filter.Identity, unknown); err != nil {
			return Page{}, err
		}
	}
	if int64(q.Offset) < page.Total {
		if err := fill(snap, view, &q, category, &page); err != nil {
			return Page{}, err
		}
	}
	page.Count = len(page.Summaries)
	if next := q.Offset + page.Count; page.Count > 0 && int64(next) < page.Total {
		page.HasMore, page.NextOffset = true, &next
	}
	return page, nil
}

// fill reads the rows of the page.
func fill(snap oplog.Snapshot, view oplog.Reader, q *Query, category int, page *Page) error {
	prefix := prefixOf(q.Filter.Identity, category)
	skip, size := q.Offset, 0
	return view.Scan(prefix, nil, false, func(key, _ []byte) (bool, error) {
		rest := key[len(prefix):]
		if skip > 0 {
			skip--
			return true, nil
		}
		if len(page.Summaries) == q.Limit {
			return false, nil
		}
		if len(rest) != restLen {
			return false, fmt.Errorf("summary: index row of %d bytes", len(rest))
		}
		e, err := snap.Entry(oplog.Ref(rest[16:]))
		if err != nil {
			return false, fmt.Errorf("summary: entry of a row: %w", err)
		}
		if !e.Present() {
			return true, nil // erased: absent
		}
		r, err := NewRecord(&e, q.Label)
		if err != nil {
			return false, err
		}
		if !q.Filter.All && !slices.Contains(r.Identities, q.Filter.Identity) {
			return true, nil // another identity with the same hash
		}
		b, err := json.Marshal(r)
		if err != nil {
			return false, fmt.Errorf("summary: encode: %w", err)
		}
		if len(page.Summaries) > 0 && size+len(b) > MaxPageBytes {
			page.Truncated = true
			return false, nil
		}
		size += len(b)
		page.Summaries = append(page.Summaries, r)
		return true, nil
	})
}

// NewRecord shows an entry of kind "summary".
func NewRecord(e *oplog.Entry, label logstream.Labeler) (Record, error) {
	s, err := Decode(e)
	if err != nil {
		return Record{}, err
	}
	r := Record{
		ID: ID(e.Ref()), Title: s.Title, Summary: s.Text, Category: s.Category, SessionID: s.Session,
		Identities: s.Identities, Author: e.Author,
		Invisible: logstream.Invisible(s.Title) || logstream.Invisible(s.Text) || logstream.Invisible(s.Session),
	}
	for _, id := range s.Identities {
		r.Invisible = r.Invisible || logstream.Invisible(id)
	}
	if label != nil {
		r.Origin = label(e.Origin)
	}
	if ms, ok := s.millis(e); ok {
		t := logstream.FormatTime(time.UnixMilli(ms))
		r.Timestamp = &t
	}
	return r, nil
}
