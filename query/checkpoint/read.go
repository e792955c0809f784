package checkpoint

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"tallystick/oplog"
	"tallystick/query/carried"
	"tallystick/query/document"
	"tallystick/query/imported"
	"tallystick/query/internal/args"
	"tallystick/query/logstream"
	"tallystick/query/refusal"
)

// Limits of a page.
const (
	DefaultLimit = 50
	MaxLimit     = 500
	MaxPageBytes = logstream.MaxPageBytes
	maxOthers    = 16
)

// What on_missing may say.
const (
	MissingError = "error" // the default
	MissingEmpty = "empty"
)

// Record is a checkpoint as clients see it.
type Record struct {
	ID           string          `json:"id"`
	Namespace    string          `json:"agent_id"`
	CreatedAt    string          `json:"created_at"`
	State        json.RawMessage `json:"state,omitempty"`
	MessageCount *int            `json:"message_count,omitempty"` // of state.messages, when that is an array
	Branch       string          `json:"branch,omitempty"`
	BaseCommit   string          `json:"base_commit,omitempty"`
	Author       string          `json:"author"`
	Origin       string          `json:"origin"`
	HLC          string          `json:"hlc"`
	Imported     *imported.Key   `json:"imported,omitempty"`
	By           string          `json:"imported_author,omitempty"`
	At           string          `json:"imported_at,omitempty"`
	Invisible    bool            `json:"invisible,omitempty"`

	Raw string    `json:"-"` // the state, byte for byte
	Ref oplog.Ref `json:"-"`
}

// Resumed is the answer of checkpoint_resume. Found is false only when there
// is no checkpoint and on_missing was empty.
type Resumed struct {
	Found  bool
	Record Record
	// Others are saves of this namespace that neither this one nor any other
	// save knew of: made elsewhere at the same time, newest first, without
	// their states. Resume one by its id.
	Others []Record
	// More is how many there are beyond those.
	More int
	// Tip says that nothing was saved in knowledge of it: the others were saved
	// at the same time elsewhere. Otherwise some of them are later.
	Tip bool
}

// ResumeQuery asks for a checkpoint.
type ResumeQuery struct {
	Namespace string
	Branch    string // only of this branch; empty for any
	ID        string // this one; empty for the latest
	OnMissing string // error or empty; "" means error
	Label     logstream.Labeler
}

// ParseResume validates the arguments of checkpoint_resume: agent_id,
// on_missing, branch, id. own stands in for an absent agent_id.
func ParseResume(raw []byte, own string) (ResumeQuery, error) {
	o, err := args.Parse(raw, "agent_id", "on_missing", "branch", "id")
	if err != nil {
		return ResumeQuery{}, err
	}
	q := ResumeQuery{Namespace: own}
	for _, f := range []struct {
		field string
		value *string
	}{{"agent_id", &q.Namespace}, {"on_missing", &q.OnMissing}, {"branch", &q.Branch}, {"id", &q.ID}} {
		s, given, err := o.String(f.field)
		if err != nil {
			return ResumeQuery{}, err
		}
		if given {
			*f.value = s
		}
	}
	return q, q.check()
}

func (q *ResumeQuery) check() error {
	if err := args.Filled("agent_id", q.Namespace, MaxNamespace); err != nil {
		return err
	}
	switch q.OnMissing {
	case "", MissingError, MissingEmpty:
	default:
		return refusal.OneOf("on_missing", q.OnMissing, []string{MissingError, MissingEmpty})
	}
	if err := line("branch", q.Branch, MaxBranch); err != nil {
		return err
	}
	if q.ID == "" {
		return nil
	}
	_, err := parseID(q.ID)
	return err
}

func parseID(id string) ([]byte, error) {
	if len(id) == 4+16 && id[:4] == "chk_" {
		if b, err := hex.DecodeString(id[4:]); err == nil && hex.EncodeToString(b) == id[4:] {
			return b, nil
		}
	}
	return nil, refusal.Invalid("id", "copy the id from an answer, e.g. chk_0123456789abcdef", "id is %s, which is not a checkpoint id", refusal.Quote(id))
}

// Resume gives the latest checkpoint of a namespace in C2 order. When there is
// none the answer is a refusal with code not_found, or Found false when
// on_missing is empty. Only true absence converts: every other fault stays an
// error in both.
func Resume(snap oplog.Snapshot, q ResumeQuery) (Resumed, error) {
	if err := q.check(); err != nil {
		return Resumed{}, err
	}
	view, ns := snap.View(ViewName), nsID(q.Namespace)
	prefix := row(rowAll, ns)
	if q.Branch != "" {
		prefix = row(rowBranch, ns, digest('b', q.Branch))
	}
	var ref oplog.Ref
	var ok bool
	var err error
	if q.ID != "" {
		ref, ok, err = byID(snap, view, prefix, q.ID)
	} else {
		ref, _, ok, err = latest(view, prefix)
	}
	switch {
	case err != nil:
		return Resumed{}, err
	case !ok && q.OnMissing == MissingEmpty:
		return Resumed{}, nil
	case !ok:
		return Resumed{}, missing(&q)
	}
	out := Resumed{Found: true}
	if out.Record, err = recordAt(snap, ref, q.Label); err != nil {
		return Resumed{}, err
	}
	err = view.Scan(row(rowOpen, ns), nil, true, func(k, v []byte) (bool, error) {
		other, _, err := parse(k, v)
		if err != nil || other == ref {
			out.Tip = out.Tip || err == nil
			return err == nil, err
		}
		if len(out.Others) == maxOthers {
			out.More++
			return true, nil
		}
		rec, err := recordAt(snap, other, q.Label)
		rec.State, rec.Raw = nil, ""
		out.Others = append(out.Others, rec)
		return true, err
	})
	return out, err
}

func missing(q *ResumeQuery) error {
	what := "no checkpoint found for " + refusal.Quote(q.Namespace)
	if q.Branch != "" {
		what += " on branch " + refusal.Quote(q.Branch)
	}
	if q.ID != "" {
		what += " with id " + q.ID
	}
	return refusal.New(refusal.NotFound, "agent_id", "save one with checkpoint_save, or pass on_missing: empty; it may not have arrived on this replica yet", "%s", what)
}

// byID finds a checkpoint of the namespace and branch that prefix stands for.
func byID(snap oplog.Snapshot, view oplog.Reader, prefix []byte, id string) (ref oplog.Ref, ok bool, err error) {
	b, err := parseID(id)
	if err != nil {
		return ref, false, err
	}
	e, err := snap.ByHash(b)
	if errors.Is(err, oplog.ErrNotFound) {
		return ref, false, nil
	}
	if err != nil {
		return ref, false, fmt.Errorf("find checkpoint: %w", err)
	}
	ref = e.Ref()
	counts, ok, err := copyOf(view, e.Hash)
	if err != nil {
		return ref, false, err
	}
	if ok {
		ref = counts
	}
	ok, err = has(view, append(prefix[:len(prefix):len(prefix)], ref[:]...))
	return ref, ok, err
}

func recordAt(snap oplog.Snapshot, ref oplog.Ref, label logstream.Labeler) (Record, error) {
	e, err := snap.Entry(ref)
	if err != nil {
		return Record{}, fmt.Errorf("checkpoint: entry of a row: %w", err)
	}
	return NewRecord(&e, label)
}

// NewRecord shows an entry of this kind.
func NewRecord(e *oplog.Entry, label logstream.Labeler) (Record, error) {
	c, err := Decode(e)
	if err != nil {
		return Record{}, err
	}
	r := Record{
		ID: ID(e.Hash), Namespace: c.Namespace, CreatedAt: logstream.FormatTime(carried.Stamp(e).Time()), Branch: c.Branch, BaseCommit: c.BaseCommit,
		Author: e.Author, HLC: e.Ref().Stamp().String(), Raw: c.State, Ref: e.Ref(), By: c.Author, At: c.At,
		Invisible: logstream.Invisible(c.Namespace) || logstream.Invisible(c.State) || logstream.Invisible(c.Branch) || logstream.Invisible(c.BaseCommit),
	}
	if !c.Import.IsZero() {
		r.Imported = &c.Import
	}
	if label != nil {
		r.Origin = label(e.Origin)
	}
	if c.State != "" {
		r.State = json.RawMessage(c.State)
		var s struct {
			Messages *[]json.RawMessage `json:"messages"`
		}
		if json.Unmarshal(r.State, &s) == nil && s.Messages != nil {
			n := len(*s.Messages)
			r.MessageCount = &n
		}
	}
	return r, nil
}

// Filter asks for a page of checkpoints.
type Filter struct {
	Namespace string
	Branch    string // empty for any
	Limit     int    // 0 means DefaultLimit
	Cursor    string
	Label     logstream.Labeler
}

// Page is the answer, newest first in C2 order.
type Page struct {
	Count       int      `json:"count"`
	Checkpoints []Record `json:"checkpoints"`
	HasMore     bool     `json:"has_more,omitempty"`
	Truncated   bool     `json:"truncated,omitempty"`
	NextCursor  string   `json:"next_cursor,omitempty"`
}

// List returns one page of a namespace's checkpoints.
func List(snap oplog.Snapshot, f Filter) (Page, error) {
	switch {
	case f.Limit == 0:
		f.Limit = DefaultLimit
	case f.Limit < 0 || f.Limit > MaxLimit:
		return Page{}, refusal.Invalid("limit", "use 1 to 500 and follow next_cursor", "limit is %d, at most %d are allowed", f.Limit, MaxLimit)
	}
	q := ResumeQuery{Namespace: f.Namespace, Branch: f.Branch}
	if err := q.check(); err != nil {
		return Page{}, err
	}
	prefix := row(rowAll, nsID(f.Namespace))
	if f.Branch != "" {
		prefix = row(rowBranch, nsID(f.Namespace), digest('b', f.Branch))
	}
	var start []byte
	if f.Cursor != "" {
		b, err := base64.RawURLEncoding.DecodeString(f.Cursor)
		if err != nil || len(b) != oplog.RefSize {
			return Page{}, refusal.New(refusal.UnknownCursor, "cursor", "start again without it", "cursor is not one of this listing")
		}
		start = append(append([]byte{}, prefix...), b...)
	}
	page, size := Page{Checkpoints: []Record{}}, 0
	err := snap.View(ViewName).Scan(prefix, start, true, func(k, v []byte) (bool, error) {
		if string(k) == string(start) {
			return true, nil
		}
		ref, _, err := parse(k, v)
		if err != nil {
			return false, err
		}
		if len(page.Checkpoints) == f.Limit {
			page.HasMore = true
			return false, nil
		}
		rec, err := recordAt(snap, ref, f.Label)
		if err != nil {
			return false, err
		}
		b, err := json.Marshal(rec)
		if err != nil {
			return false, fmt.Errorf("checkpoint: encode: %w", err)
		}
		if len(page.Checkpoints) > 0 && size+len(b) > MaxPageBytes {
			page.HasMore, page.Truncated = true, true
			return false, nil
		}
		size += len(b)
		page.Checkpoints = append(page.Checkpoints, rec)
		return true, nil
	})
	if err != nil {
		return Page{}, err
	}
	if page.Count = len(page.Checkpoints); page.HasMore {
		ref := page.Checkpoints[page.Count-1].Ref
		page.NextCursor = base64.RawURLEncoding.EncodeToString(ref[:])
	}
	return page, nil
}

// DocumentVersion changes whenever the documents of the same entries would.
const DocumentVersion = 1

// Documents gives the document of a checkpoint, for those who want to search
// them; it is not part of what recall gives.
func Documents(_ oplog.Snapshot, e *oplog.Entry) ([]document.Document, error) {
	if e.Kind != Kind {
		return nil, nil
	}
	d := document.Document{ID: ID(e.Hash), Ref: e.Ref(), Kind: Kind, State: document.Erased}
	if !e.Present() {
		return []document.Document{d}, nil
	}
	c, err := Decode(e)
	if err != nil {
		return nil, nil // in quarantine: no document
	}
	d.Namespace, d.Identities, d.Time, d.State = c.Namespace, []string{e.Author}, carried.Stamp(e).Millis(), document.Live
	d.Confidence, d.Title, d.Text = 1, c.Branch, c.State
	return []document.Document{d}, nil
}
