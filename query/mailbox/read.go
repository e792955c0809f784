package mailbox

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"tallystick/oplog"
	"tallystick/query/carried"
	"tallystick/query/internal/merge"
	"tallystick/query/logstream"
	"tallystick/query/minted"
	"tallystick/query/refusal"
)

// Limits of a page.
const (
	DefaultLimit  = logstream.DefaultLimit
	MaxLimit      = logstream.MaxLimit
	MaxPageBytes  = logstream.MaxPageBytes
	PreviewLength = logstream.PreviewLength

	maxReceipts = 100 // recipients listed of one message
)

// Boxes and statuses that Query takes, the default first.
func Boxes() []string { return []string{"inbox", "outbox", "all"} }

// Statuses are those of received mail, the default first.
func Statuses() []string { return []string{"all", "read", "unread"} }

// Message is a message as clients see it.
type Message struct {
	ID        string  `json:"messageId"`
	From      string  `json:"from"`
	To        string  `json:"to"`
	Subject   string  `json:"subject"`
	Priority  string  `json:"priority"`
	Thread    string  `json:"threadId"`
	InReplyTo string  `json:"inReplyTo,omitempty"`
	SentAt    string  `json:"sentAt"`
	HLC       string  `json:"hlc"`
	Origin    string  `json:"origin"`
	Box       string  `json:"box,omitempty"`    // inbox when the mailbox's owner received it, outbox when only sent
	Status    string  `json:"status,omitempty"` // of received mail: read or unread
	ReadAt    *string `json:"readAt,omitempty"`
	Archived  *string `json:"archivedAt,omitempty"`

	Preview    string `json:"preview,omitempty"` // the body's beginning, in listings
	Body       string `json:"body,omitempty"`
	Truncated  bool   `json:"bodyTruncated,omitempty"`
	BodyLength int    `json:"bodyLength,omitempty"` // characters, when truncated
	Invisible  bool   `json:"invisible,omitempty"`  // some text holds bidi, zero-width or tag characters

	Receipts       []Receipt `json:"recipients,omitempty"` // of one message read by itself, at most 100
	RecipientCount int       `json:"recipientCount"`
	ReadCount      int       `json:"readCount,omitempty"`

	Ref oplog.Ref `json:"-"`
}

// Receipt says what a recipient has done, as far as that has arrived here.
type Receipt struct {
	Identity string `json:"identity"`
	ReadAt   string `json:"readAt,omitempty"`
	Archived string `json:"archivedAt,omitempty"`
}

// Query asks for a page of a mailbox, newest first.
type Query struct {
	Owner    string // whose mailbox
	Box      string // of Boxes; empty means inbox
	Status   string // of Statuses; empty means all
	From     string // only from this sender
	Thread   string // only of this thread
	Archived bool   // with what is archived
	Limit    int    // 0 means DefaultLimit
	Offset   int
	Label    logstream.Labeler
}

// Page is one page of a mailbox.
type Page struct {
	Count      int       `json:"count"`
	Total      int64     `json:"totalCount"`
	Unread     int64     `json:"unreadCount"` // of the whole mailbox
	Limit      int       `json:"limit"`
	Offset     int       `json:"offset"`
	Truncated  bool      `json:"truncated"`  // there is more
	NextOffset *int      `json:"nextOffset"` // null at the end
	Messages   []Message `json:"messages"`
	Note       string    `json:"note,omitempty"`
}

func (q *Query) check() error {
	if q.Box == "" {
		q.Box = Boxes()[0]
	}
	if q.Status == "" {
		q.Status = Statuses()[0]
	}
	switch {
	case !slices.Contains(Boxes(), q.Box):
		return refusal.OneOf("box", q.Box, Boxes())
	case !slices.Contains(Statuses(), q.Status):
		return refusal.OneOf("status", q.Status, Statuses())
	case q.Box == "outbox" && q.Status != "all":
		return refusal.Invalid("status", "leave status out, or list the inbox", "status %s is of received mail, and the outbox holds what was sent", q.Status)
	case q.Limit == 0:
		q.Limit = DefaultLimit
	case q.Limit < 0 || q.Limit > MaxLimit:
		return refusal.Invalid("limit", "use 1 to 500 and follow nextOffset", "limit is %d, at most %d are allowed", q.Limit, MaxLimit)
	}
	if q.Offset < 0 {
		return refusal.Invalid("offset", "use 0 or more", "offset is %d", q.Offset)
	}
	return nil
}

// List gives a page of a mailbox. totalCount is of everything that matches; it
// costs one read, and a scan of the owner's rows when sender or thread filter.
func List(snap oplog.Snapshot, q Query) (Page, error) {
	if err := q.check(); err != nil {
		return Page{}, err
	}
	view := snap.View(ViewName)
	c, err := readCounts(view, q.Owner)
	if err != nil {
		return Page{}, err
	}
	l := &lister{snap: snap, view: view, q: &q, page: Page{Unread: c.Unread, Limit: q.Limit, Offset: q.Offset, Messages: []Message{}}}
	total, counted := q.total(&c)
	if l.counted = counted; counted {
		l.page.Total = total
	}
	if err := l.run(); err != nil {
		return Page{}, err
	}
	p := &l.page
	p.Count = len(p.Messages)
	if next := q.Offset + l.used; l.used > 0 && int64(next) < p.Total {
		p.Truncated, p.NextOffset = true, &next
	}
	if c == (Counts{}) {
		p.Note, err = note(snap, q.Owner)
	}
	return *p, err
}

// total is how many messages match, when the counters can tell.
func (q *Query) total(c *Counts) (n int64, ok bool) {
	switch {
	case q.From != "" || q.Thread != "":
		return 0, false
	case q.Box == "outbox":
		return c.Sent, true
	case q.Status == "all":
		if n = c.Inbox; q.Archived {
			n += c.Archived
		}
		if q.Box == "all" {
			n += c.Sent - c.self
			if q.Archived {
				n -= c.selfArchived
			}
		}
		return n, true
	case q.Archived:
		return 0, false
	case q.Status == "unread":
		return c.Unread, true
	}
	return c.Inbox - c.Unread, true
}

// note is for a mailbox without any mail: names that look like its owner's.
func note(snap oplog.Snapshot, owner string) (string, error) {
	known, err := minted.Spoke(snap, owner)
	if err != nil || known {
		return "", err
	}
	text := "Nothing of this identity has arrived here; it may be spelled otherwise."
	near, err := minted.SpeakersNear(snap, owner)
	for i, name := range near {
		near[i] = refusal.Quote(name)
	}
	if len(near) > 0 {
		text += fmt.Sprintf(" Near names: %s.", joined(near))
	}
	return text, err
}

func joined(list []string) (s string) {
	for i, v := range list {
		if i > 0 {
			s += ", "
		}
		s += v
	}
	return s
}

type lister struct {
	snap    oplog.Snapshot
	view    oplog.Reader
	q       *Query
	counted bool
	full    bool
	size    int
	used    int // rows behind this page
	seen    int64
	page    Page
}

// prefixes are the rows that hold every match. Of a message in two boxes the
// row of the first counts.
func (l *lister) prefixes() [][]byte {
	in := boxPrefix(rowInbox, l.q.Owner)
	switch {
	case l.q.Box == "outbox":
		return [][]byte{boxPrefix(rowOutbox, l.q.Owner)}
	case l.q.Status == "unread" && !l.q.Archived:
		return [][]byte{boxPrefix(rowUnread, l.q.Owner)}
	case l.q.Box == "all" && l.q.Status == "all":
		return [][]byte{boxPrefix(rowOutbox, l.q.Owner), in}
	}
	return [][]byte{in}
}

func (l *lister) run() error {
	err := merge.Scan(l.view, l.prefixes(), nil, true, func(rest, row []byte) (bool, error) {
		if len(row) < printLen {
			return false, fmt.Errorf("mailbox: row of %d bytes", len(row))
		}
		if !l.may(row) {
			return true, nil
		}
		l.seen++
		if l.seen <= int64(l.q.Offset) {
			return true, nil
		}
		if l.full || len(l.page.Messages) == l.q.Limit {
			l.full = true
			return !l.counted, nil // goes on only to count
		}
		ref, err := oplog.RefOf(rest)
		if err != nil {
			return false, fmt.Errorf("mailbox: row: %w", err)
		}
		return true, l.give(ref)
	})
	if !l.counted {
		l.page.Total = l.seen
	}
	return err
}

// may judges a row by its print and flags.
func (l *lister) may(row []byte) bool {
	if l.q.From != "" && binary.BigEndian.Uint64(row) != hash8(l.q.From) ||
		l.q.Thread != "" && binary.BigEndian.Uint64(row[8:]) != hash8(l.q.Thread) {
		return false
	}
	if len(row) == printLen {
		return true // sent, or unread
	}
	flags := row[printLen]
	switch {
	case flags&flagArchived != 0 && !l.q.Archived:
		return false
	case l.q.Status == "read":
		return flags&flagRead != 0
	case l.q.Status == "unread":
		return flags&flagRead == 0
	}
	return true
}

func (l *lister) give(ref oplog.Ref) error {
	m, ok, err := read(l.snap, ref)
	if err != nil {
		return err
	}
	if !ok { // erased: absent
		l.used++
		return nil
	}
	r, err := l.record(&m)
	if err != nil {
		return err
	}
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("mailbox: encode: %w", err)
	}
	if len(l.page.Messages) > 0 && l.size+len(b) > MaxPageBytes {
		l.full = true
		return nil
	}
	l.size += len(b)
	l.used++
	l.page.Messages = append(l.page.Messages, r)
	return nil
}

func read(snap oplog.Snapshot, ref oplog.Ref) (m message, ok bool, err error) {
	e, err := snap.Entry(ref)
	if err != nil {
		return m, false, fmt.Errorf("mailbox: message of a row: %w", err)
	}
	if !e.Present() {
		return m, false, nil
	}
	return decodeMessage(&e)
}

// record shows a message in a listing.
func (l *lister) record(m *message) (Message, error) {
	r, err := show(l.snap, m, l.q.Owner, l.q.Label)
	if err != nil {
		return r, err
	}
	runes := []rune(r.Body)
	if r.Preview, r.Body = r.Body, ""; len(runes) > PreviewLength {
		r.Preview, r.Truncated, r.BodyLength = string(runes[:PreviewLength]), true, len(runes)
	}
	return r, nil
}

// show gives a whole message as the owner of a mailbox sees it.
func show(snap oplog.Snapshot, m *message, owner string, label logstream.Labeler) (Message, error) {
	to := m.recipients()
	r := Message{
		ID: logstream.EventID(m.ref), From: m.entry.Author, To: string(m.raw.To), Subject: m.Subject, Priority: m.Priority,
		Thread: m.thread(), InReplyTo: m.InReplyTo, SentAt: logstream.FormatTime(carried.Stamp(m.entry).Time()), HLC: m.ref.Stamp().String(),
		Body: string(m.raw.Body), RecipientCount: len(to), Ref: m.ref,
		Invisible: logstream.Invisible(m.raw.Body) || logstream.Invisible(m.Subject) || logstream.Invisible(m.raw.Correlation) || logstream.Invisible(m.raw.To),
	}
	if label != nil {
		r.Origin = label(m.ref.Origin())
	}
	if slices.Contains(to, owner) {
		marks, err := marksOf(snap.View(ViewName), m.ref, owner)
		if err != nil {
			return r, err
		}
		r.Box, r.Status = "inbox", "unread"
		if !marks.read.IsZero() {
			at, err := atOf(snap, marks.read)
			if err != nil {
				return r, err
			}
			r.Status, r.ReadAt = "read", &at
		}
		if !marks.archived.IsZero() {
			at, err := atOf(snap, marks.archived)
			if err != nil {
				return r, err
			}
			r.Archived = &at
		}
	} else if m.entry.Author == owner {
		r.Box = "outbox"
	}
	return r, nil
}

// Get reads one message whole, as an identity sees it, with what its
// recipients have done with it as far as that has arrived.
func Get(snap oplog.Snapshot, id, viewer string, label logstream.Labeler) (Message, error) {
	m, err := find(snap, "messageId", id)
	if err != nil {
		return Message{}, err
	}
	r, err := show(snap, &m, viewer, label)
	if err != nil {
		return r, err
	}
	for _, who := range m.recipients() {
		marks, err := marksOf(snap.View(ViewName), m.ref, who)
		if err != nil {
			return r, err
		}
		receipt := Receipt{Identity: who}
		if !marks.read.IsZero() {
			if receipt.ReadAt, err = atOf(snap, marks.read); err != nil {
				return r, err
			}
			r.ReadCount++
		}
		if !marks.archived.IsZero() {
			if receipt.Archived, err = atOf(snap, marks.archived); err != nil {
				return r, err
			}
		}
		if len(r.Receipts) < maxReceipts {
			r.Receipts = append(r.Receipts, receipt)
		}
	}
	return r, nil
}

// ByRef reads a message that was just appended.
func ByRef(snap oplog.Snapshot, ref oplog.Ref, viewer string, label logstream.Labeler) (Message, error) {
	m, ok, err := read(snap, ref)
	switch {
	case err != nil:
		return Message{}, err
	case !ok:
		return Message{}, errors.New("mailbox: the entry is no message")
	}
	return show(snap, &m, viewer, label)
}
