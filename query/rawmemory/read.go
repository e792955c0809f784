package rawmemory

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tallystick/oplog"
	"tallystick/query/document"
	"tallystick/query/identity"
	"tallystick/query/internal/near"
	"tallystick/query/logstream"
	"tallystick/query/refusal"
)

// Limits of pages.
const (
	DefaultLimit  = 100 // of a session
	MaxLimit      = 500
	DefaultRecent = 20
	MaxRecent     = 100
	MaxPageBytes  = logstream.MaxPageBytes
	PreviewLength = logstream.PreviewLength
)

// ID is the name of a turn: mem_ and 16 hex digits of its header's hash.
func ID(ref oplog.Ref) string {
	tag := ref.Tag()
	return "mem_" + hex.EncodeToString(tag[:])
}

// Record is a turn as clients see it.
type Record struct {
	ID         string   `json:"id"`
	SessionID  string   `json:"sessionId"`
	Timestamp  *string  `json:"timestamp"` // null when it cannot be read
	Prompt     string   `json:"prompt"`
	Thought    string   `json:"thought,omitempty"`
	Response   string   `json:"response"`
	Type       string   `json:"type"`
	Agent      string   `json:"agent,omitempty"`
	Model      string   `json:"model,omitempty"`
	ToolCalls  *int64   `json:"amountToolCalls,omitempty"`
	Tools      []string `json:"toolsUsed,omitempty"`
	Identities []string `json:"sourceAgentIdentities"`
	Identity   string   `json:"agentIdentity"` // who wrote it
	Origin     string   `json:"origin"`
	Truncated  bool     `json:"truncated,omitempty"`       // texts are previews
	Withheld   bool     `json:"thoughtWithheld,omitempty"` // there is a thought that this caller may not see
	Invisible  bool     `json:"invisible,omitempty"`

	Ref oplog.Ref `json:"-"`
}

// NewRecord shows an entry of this kind.
func NewRecord(e *oplog.Entry, label logstream.Labeler) (Record, error) {
	t, err := Decode(e)
	if err != nil {
		return Record{}, err
	}
	r := Record{
		ID: ID(e.Ref()), SessionID: t.Session, Prompt: t.Prompt, Thought: t.Thought, Response: t.Response, Type: "agent-interaction",
		Agent: t.Agent, Model: t.Model, Tools: t.Tools, Identities: t.Identities, Identity: e.Author, Ref: e.Ref(),
	}
	if ms := t.millis(r.Ref); ms != noTime {
		s := logstream.FormatTime(time.UnixMilli(ms))
		r.Timestamp = &s
	}
	if t.ToolCalls >= 0 {
		r.ToolCalls = &t.ToolCalls
	}
	if label != nil {
		r.Origin = label(e.Origin)
	}
	for _, s := range append([]string{t.Session, t.Prompt, t.Thought, t.Response, t.Agent, t.Model}, append(t.Tools, t.Identities...)...) {
		r.Invisible = r.Invisible || logstream.Invisible(s)
	}
	return r, nil
}

// Get returns a turn by id; a refusal with code not_found if there is none.
func Get(snap oplog.Snapshot, field, id string, label logstream.Labeler) (Record, error) {
	e, err := find(snap, field, id)
	if err != nil {
		return Record{}, err
	}
	return NewRecord(&e, label)
}

// ByRef returns a turn by its entry's Ref, as a search that found it needs it;
// oplog.ErrNotFound if it is none that is here.
func ByRef(snap oplog.Snapshot, ref oplog.Ref, label logstream.Labeler) (Record, error) {
	e, err := snap.Entry(ref)
	if err != nil {
		return Record{}, err
	}
	if e.Kind != Kind || !e.Present() {
		return Record{}, oplog.ErrNotFound
	}
	return NewRecord(&e, label)
}

func find(snap oplog.Snapshot, field, id string) (oplog.Entry, error) {
	var prefix []byte
	if len(id) == 4+16 && id[:4] == "mem_" {
		if b, err := hex.DecodeString(id[4:]); err == nil && hex.EncodeToString(b) == id[4:] {
			prefix = b
		}
	}
	if prefix == nil {
		return oplog.Entry{}, refusal.Invalid(field, "copy the id from an answer, e.g. mem_0123456789abcdef", "%s is %s, which is not a memory id", field, refusal.Quote(id))
	}
	missing := refusal.New(refusal.NotFound, field, "check the id; it may not have arrived on this replica yet", "no memory %s here", id)
	e, err := snap.ByHash(prefix)
	if errors.Is(err, oplog.ErrNotFound) {
		return oplog.Entry{}, missing
	}
	if err != nil {
		return oplog.Entry{}, fmt.Errorf("find memory: %w", err)
	}
	n, err := snap.Arrival(e.Ref())
	if err != nil {
		return oplog.Entry{}, fmt.Errorf("find memory: %w", err)
	}
	if e.Kind != Kind || !e.Present() || n == 0 {
		return oplog.Entry{}, missing
	}
	return e, nil
}

// scope is the index part of a filter.
func scope(f identity.Filter) ([]byte, error) {
	if f.All == (f.Identity != "") {
		return nil, refusal.Invalid("agentIdentity", "use all, @me or one identity", "agentIdentity says neither all nor whose")
	}
	return id16('i', f.Identity), nil
}

// SessionQuery asks for turns of one session.
type SessionQuery struct {
	Session string
	Filter  identity.Filter // the zero Filter is refused: say All
	Limit   int             // 0 means DefaultLimit
	Offset  int
	Label   logstream.Labeler // names origins; may be nil
}

// SessionPage is the answer.
type SessionPage struct {
	SessionID  string   `json:"sessionId"`
	Count      int      `json:"count"`
	Total      int64    `json:"total"` // matching, before limit and offset
	Limit      int      `json:"limit"`
	Offset     int      `json:"offset"`
	Memories   []Record `json:"memories"`
	Malformed  int64    `json:"malformedTimestamps,omitempty"`
	HasMore    bool     `json:"has_more,omitempty"`
	Truncated  bool     `json:"truncated,omitempty"` // ended by size, not by limit
	NextOffset *int     `json:"next_offset,omitempty"`
	Note       string   `json:"note,omitempty"`
}

// Session lists the turns of a session, oldest first. A session that is not
// known here is an empty page with a note.
func Session(snap oplog.Snapshot, q SessionQuery) (SessionPage, error) {
	switch {
	case q.Limit == 0:
		q.Limit = DefaultLimit
	case q.Limit < 0 || q.Limit > MaxLimit:
		return SessionPage{}, refusal.Invalid("limit", "use 1 to 500 and follow next_offset", "limit is %d, at most %d are allowed", q.Limit, MaxLimit)
	}
	if q.Offset < 0 {
		return SessionPage{}, refusal.Invalid("offset", "use 0 or more", "offset is %d", q.Offset)
	}
	if strings.TrimSpace(q.Session) == "" {
		return SessionPage{}, refusal.Invalid("sessionId", "name the session", "sessionId is required")
	}
	if err := line("sessionId", q.Session, MaxSession); err != nil {
		return SessionPage{}, err
	}
	who, err := scope(q.Filter)
	if err != nil {
		return SessionPage{}, err
	}
	view, session := snap.View(ViewName), id16('s', q.Session)
	c, err := readCounts(view, row(rowInside, session, who))
	if err != nil {
		return SessionPage{}, err
	}
	page := SessionPage{SessionID: q.Session, Total: c.all, Malformed: c.bad, Limit: q.Limit, Offset: q.Offset, Memories: []Record{}}
	if c.all == 0 {
		if page.Note, err = emptyNote(view, q.Filter); err != nil {
			return SessionPage{}, err
		}
	}
	skip, size := q.Offset, 0
	err = view.Scan(row(rowSession, session, who), nil, false, func(k, _ []byte) (bool, error) {
		if int64(q.Offset) >= c.all || len(page.Memories) == q.Limit {
			return false, nil
		}
		if skip > 0 {
			skip--
			return true, nil
		}
		r, err := recordAt(snap, k, q.Label)
		if err != nil {
			return false, err
		}
		if page.Truncated, err = full(&r, len(page.Memories), &size); err != nil || page.Truncated {
			return false, err
		}
		page.Memories = append(page.Memories, r)
		return true, nil
	})
	if err != nil {
		return SessionPage{}, err
	}
	page.Count = len(page.Memories)
	if next := q.Offset + page.Count; page.Count > 0 && int64(next) < page.Total {
		page.HasMore, page.NextOffset = true, &next
	}
	return page, nil
}

func recordAt(snap oplog.Snapshot, k []byte, label logstream.Labeler) (Record, error) {
	if len(k) < oplog.RefSize {
		return Record{}, fmt.Errorf("rawmemory: row of %d bytes", len(k))
	}
	e, err := snap.Entry(oplog.Ref(k[len(k)-oplog.RefSize:]))
	if err != nil {
		return Record{}, fmt.Errorf("rawmemory: entry of a row: %w", err)
	}
	return NewRecord(&e, label)
}

// full reports whether a record no longer fits a page of n records and size
// bytes; otherwise it counts it.
func full(r *Record, n int, size *int) (bool, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return false, fmt.Errorf("rawmemory: encode: %w", err)
	}
	if n > 0 && *size+len(b) > MaxPageBytes {
		return true, nil
	}
	*size += len(b)
	return false, nil
}

// emptyNote says why there may be nothing.
func emptyNote(view oplog.Reader, f identity.Filter) (string, error) {
	if f.All {
		return "No such turns here. They may not have arrived yet.", nil
	}
	if c, err := readCounts(view, row(rowCounts, []byte(f.Identity))); err != nil || c.all > 0 {
		return "", err
	}
	return near.Note(view, rowCounts, f.Identity, "No turns of this identity here. They may not have arrived yet, or it is spelled otherwise.")
}

// Before is a place in a listing: the timestamp and id of the last turn given.
// Without an id everything before the timestamp is meant.
type Before struct {
	Timestamp string `json:"timestamp,omitempty"` // empty when the turn has none
	ID        string `json:"id,omitempty"`
}

// How much of a turn a listing shows.
const (
	DetailSummary     = "summary" // previews, no thought
	DetailFull        = "full"
	ProjectionPublic  = "public"  // no thought
	ProjectionPrivate = "private" // with the thoughts of the caller's own turns
)

// RecentQuery asks for the latest turns.
type RecentQuery struct {
	Filter     identity.Filter // the tool's default is @me
	Limit      int             // 0 means DefaultRecent
	Before     Before
	Detail     string // empty means DetailSummary
	Projection string // empty means ProjectionPublic
	Caller     string // bound identity, empty when there is none
	Label      logstream.Labeler
}

// RecentPage is the answer.
type RecentPage struct {
	Count      int      `json:"count"`
	Total      int64    `json:"total"`
	Turns      []Record `json:"turns"`
	Malformed  int64    `json:"malformedTimestamps,omitempty"`
	HasMore    bool     `json:"has_more,omitempty"`
	Truncated  bool     `json:"truncated,omitempty"`
	NextBefore *Before  `json:"next_before,omitempty"`
	Note       string   `json:"note,omitempty"`
}

// Recent lists the latest turns, newest first. Following NextBefore neither
// repeats nor skips what was there when the listing began.
func Recent(snap oplog.Snapshot, q RecentQuery) (RecentPage, error) {
	switch {
	case q.Limit == 0:
		q.Limit = DefaultRecent
	case q.Limit < 0 || q.Limit > MaxRecent:
		return RecentPage{}, refusal.Invalid("limit", "use 1 to 100 and follow next_before", "limit is %d, at most %d are allowed", q.Limit, MaxRecent)
	}
	for _, f := range []struct {
		field   string
		value   *string
		allowed []string
	}{{"detail", &q.Detail, []string{DetailSummary, DetailFull}}, {"projection", &q.Projection, []string{ProjectionPublic, ProjectionPrivate}}} {
		if *f.value == "" {
			*f.value = f.allowed[0]
		}
		if !slices.Contains(f.allowed, *f.value) {
			return RecentPage{}, refusal.OneOf(f.field, *f.value, f.allowed)
		}
	}
	who, err := scope(q.Filter)
	if err != nil {
		return RecentPage{}, err
	}
	view := snap.View(ViewName)
	prefix := row(rowIndex, who)
	from, err := q.Before.place(snap)
	if err != nil {
		return RecentPage{}, err
	}
	var start []byte
	if from != nil {
		start = append(append([]byte{}, prefix...), from...)
	}
	c, err := readCounts(view, row(rowCounts, []byte(q.Filter.Identity)))
	if err != nil {
		return RecentPage{}, err
	}
	page := RecentPage{Total: c.all, Malformed: c.bad, Turns: []Record{}}
	if c.all == 0 {
		if page.Note, err = emptyNote(view, q.Filter); err != nil {
			return RecentPage{}, err
		}
	}
	size := 0
	err = view.Scan(prefix, start, true, func(k, _ []byte) (bool, error) {
		if from != nil && string(k[len(prefix):]) == string(from) {
			return true, nil
		}
		if len(page.Turns) == q.Limit {
			page.HasMore = true
			return false, nil
		}
		r, err := recordAt(snap, k, q.Label)
		if err != nil {
			return false, err
		}
		r.project(&q)
		if page.Truncated, err = full(&r, len(page.Turns), &size); err != nil || page.Truncated {
			page.HasMore = true
			return false, err
		}
		page.Turns = append(page.Turns, r)
		return true, nil
	})
	if err != nil {
		return RecentPage{}, err
	}
	if page.Count = len(page.Turns); page.HasMore {
		last := page.Turns[page.Count-1]
		page.NextBefore = &Before{ID: last.ID}
		if last.Timestamp != nil {
			page.NextBefore.Timestamp = *last.Timestamp
		}
	}
	return page, nil
}

// place is where the listing goes on, nil for its beginning.
func (b Before) place(snap oplog.Snapshot) ([]byte, error) {
	if b.Timestamp != "" {
		if _, err := logstream.ParseTime("before", b.Timestamp); err != nil {
			return nil, err
		}
	}
	if b.ID == "" {
		if b.Timestamp == "" {
			return nil, nil
		}
		at, _ := time.Parse(time.RFC3339Nano, b.Timestamp)
		// A fraction of a millisecond leaves that millisecond before the time.
		ms := at.UnixMilli()
		if at.Nanosecond()%int(time.Millisecond) != 0 {
			ms++
		}
		return place(ms, oplog.Ref{}), nil
	}
	e, err := find(snap, "before", b.ID)
	if err != nil {
		if refusal.CodeOf(err) == refusal.NotFound {
			return nil, refusal.New(refusal.UnknownCursor, "before", "start again without before", "the turn %s has not arrived here", b.ID)
		}
		return nil, err
	}
	t, err := Decode(&e)
	if err != nil {
		return nil, err
	}
	ms := t.millis(e.Ref())
	if b.Timestamp != "" {
		if at, _ := time.Parse(time.RFC3339Nano, b.Timestamp); at.UnixMilli() != ms {
			return nil, refusal.New(refusal.UnknownCursor, "before", "pass next_before as it was given", "the turn %s has another timestamp", b.ID)
		}
	}
	return place(ms, e.Ref()), nil
}

// project leaves out what the query does not ask for or may not see.
func (r *Record) project(q *RecentQuery) {
	own := q.Caller != "" && slices.Contains(r.Identities, identity.Strip(q.Caller))
	if r.Thought != "" && (q.Projection != ProjectionPrivate || !own || q.Detail != DetailFull) {
		r.Withheld = q.Projection == ProjectionPrivate && !own
		r.Thought = ""
	}
	if q.Detail == DetailFull {
		return
	}
	for _, s := range []*string{&r.Prompt, &r.Response} {
		n := 0
		for i := range *s {
			if n == PreviewLength {
				*s, r.Truncated = (*s)[:i], true
				break
			}
			n++
		}
	}
}

// DocumentVersion changes whenever the documents of the same entries would.
const DocumentVersion = 1

// Documents gives the document of a turn, as the snapshot has it now: the
// earliest of several copies of an import is live, the others are erased from
// the index.
func Documents(snap oplog.Snapshot, e *oplog.Entry) ([]document.Document, error) {
	if e.Kind != Kind {
		return nil, nil
	}
	if !e.Present() {
		return []document.Document{{ID: ID(e.Ref()), Ref: e.Ref(), Kind: Kind, State: document.Erased}}, nil
	}
	t, err := Decode(e)
	if err != nil {
		return nil, nil // in quarantine: no document
	}
	if t.Import.IsZero() {
		return []document.Document{documentOf(e.Ref(), &t)}, nil
	}
	first, ok, err := Imported(snap, t.Import)
	if err != nil || !ok {
		return nil, err
	}
	var out []document.Document
	if first != e.Ref() {
		out = append(out, document.Document{ID: ID(e.Ref()), Ref: e.Ref(), Kind: Kind, State: document.Erased})
	}
	others, err := imports.Others(snap.View(ViewName), t.Import.Hash())
	if err != nil {
		return nil, err
	}
	for _, ref := range others {
		if ref != e.Ref() {
			out = append(out, document.Document{ID: ID(ref), Ref: ref, Kind: Kind, State: document.Erased})
		}
	}
	if first == e.Ref() {
		return append(out, documentOf(first, &t)), nil
	}
	fe, err := snap.Entry(first)
	if err != nil {
		return nil, fmt.Errorf("rawmemory: entry of an import: %w", err)
	}
	ft, err := Decode(&fe)
	if err != nil {
		return nil, err
	}
	return append(out, documentOf(first, &ft)), nil
}

func documentOf(ref oplog.Ref, t *Turn) document.Document {
	d := document.Document{
		ID: ID(ref), Ref: ref, Kind: Kind, Identities: t.Identities, Session: t.Session, Confidence: 1, State: document.Live,
		Time: max(t.millis(ref), 0), Text: t.Prompt + "\n" + t.Response,
	}
	return d
}
