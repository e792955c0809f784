package memory

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"tallystick/hlc"
	"tallystick/oplog"
	"tallystick/query/carried"
	"tallystick/query/imported"
	"tallystick/query/internal/merge"
	"tallystick/query/logstream"
	"tallystick/query/refusal"
)

// Limits of a page.
const (
	DefaultLimit  = 50
	MaxLimit      = 500
	MaxPageBytes  = logstream.MaxPageBytes
	MaxNamespaces = 64 // of one listing

	maxSupersedes = 16 // ids shown of what a fact replaced
)

// Record is a fact as clients see it.
type Record struct {
	ID         string        `json:"id"`
	Namespace  string        `json:"agent_id"`
	Text       string        `json:"text"`
	Confidence string        `json:"confidence,omitempty"`
	Category   string        `json:"category,omitempty"`
	Pinned     bool          `json:"pinned,omitempty"`
	Author     string        `json:"author"`
	CreatedAt  string        `json:"created_at"`
	HLC        string        `json:"hlc"`
	Retired    *Retired      `json:"retired,omitempty"`    // nil while it is live
	Supersedes []string      `json:"supersedes,omitempty"` // facts it was written in place of
	Imported   *imported.Key `json:"imported,omitempty"`
	By         string        `json:"imported_author,omitempty"`
	At         string        `json:"imported_at,omitempty"`
	Invisible  bool          `json:"invisible,omitempty"`

	Ref      oplog.Ref      `json:"-"`
	Written  hlc.Timestamp  `json:"-"` // when it was first written
	Hash     oplog.Hash     `json:"-"`
	OriginID oplog.OriginID `json:"-"`
}

// How a fact was retired.
const (
	Updated   = "updated"   // replaced by somebody who saw it
	Forgot    = "forgotten" // forgotten by somebody who saw it
	Overruled = "overruled" // lost to a later update or forget elsewhere; see Merges
	Late      = "late"      // stamped before an update or forget of its text, and came after it
)

// Retired says why a fact is no longer live.
type Retired struct {
	How          string `json:"how"`
	SupersededBy string `json:"superseded_by,omitempty"` // the fact in its place, if any
	HLC          string `json:"hlc"`                     // of what retired it

	by oplog.Hash
}

// Get returns a fact by id, live or not; a refusal with code not_found if
// there is none.
func Get(snap oplog.Snapshot, field, id string) (Record, error) {
	e, err := find(snap, field, id, KindFact)
	if err != nil {
		return Record{}, err
	}
	return record(snap, &e)
}

func find(snap oplog.Snapshot, field, id string, kinds ...string) (oplog.Entry, error) {
	prefix, err := parseID(field, id)
	if err != nil {
		return oplog.Entry{}, err
	}
	missing := refusal.New(refusal.NotFound, field, "check the id; it may not have arrived on this replica yet", "no memory %s here", id)
	e, err := snap.ByHash(prefix)
	if errors.Is(err, oplog.ErrNotFound) {
		return oplog.Entry{}, missing
	}
	if err != nil {
		return oplog.Entry{}, fmt.Errorf("find memory: %w", err)
	}
	for _, k := range kinds {
		if e.Kind != k || !e.Present() {
			continue
		}
		_, ok, err := getInfo(snap.View(ViewName), e.Hash)
		if err != nil {
			return oplog.Entry{}, err
		}
		if ok {
			return e, nil
		}
	}
	return oplog.Entry{}, missing
}

func parseID(field, id string) ([]byte, error) {
	if len(id) == 4+16 && id[:4] == "mem_" {
		if b, err := hex.DecodeString(id[4:]); err == nil && hex.EncodeToString(b) == id[4:] {
			return b, nil
		}
	}
	return nil, refusal.Invalid(field, "copy the id from an answer, e.g. mem_0123456789abcdef", "%s is %s, which is not a memory id", field, refusal.Quote(id))
}

// ByRef returns a fact by its entry's Ref, oplog.ErrNotFound if it is not one
// that is here.
func ByRef(snap oplog.Snapshot, ref oplog.Ref) (Record, error) {
	e, err := snap.Entry(ref)
	if err != nil {
		return Record{}, err
	}
	if e.Kind != KindFact || !e.Present() {
		return Record{}, oplog.ErrNotFound
	}
	return record(snap, &e)
}

func record(snap oplog.Snapshot, e *oplog.Entry) (Record, error) {
	b, err := decodeFact(e.Body)
	if err != nil {
		return Record{}, fmt.Errorf("memory: %w", err)
	}
	r := snap.View(ViewName)
	i, ok, err := getInfo(r, e.Hash)
	if err != nil {
		return Record{}, err
	}
	if !ok {
		return Record{}, oplog.ErrNotFound
	}
	rec := Record{
		ID: ID(e.Hash), Namespace: b.Namespace, Text: b.Text, Confidence: b.Confidence, Category: b.Category,
		Author: e.Author, CreatedAt: logstream.FormatTime(carried.Stamp(e).Time()), HLC: e.Ref().Stamp().String(),
		By: b.Author, At: b.At, Written: carried.Stamp(e), Ref: e.Ref(), Hash: e.Hash, OriginID: e.Origin,
		Invisible: logstream.Invisible(b.Text) || logstream.Invisible(b.Namespace) || logstream.Invisible(b.Category),
	}
	if !b.Import.IsZero() {
		rec.Imported = &b.Import
	}
	for _, h := range b.Parents[:min(len(b.Parents), maxSupersedes)] {
		rec.Supersedes = append(rec.Supersedes, ID(h))
	}
	for _, root := range i.roots {
		pinned, err := isPinned(r, root)
		if err != nil {
			return Record{}, err
		}
		rec.Pinned = rec.Pinned || pinned
	}
	rec.Retired, err = retirement(r, &i)
	return rec, err
}

// retirement says why a fact is not live; nil if it is.
func retirement(r oplog.Reader, i *info) (*Retired, error) {
	if live, err := has(r, i.lives()); err != nil || live {
		return nil, err
	}
	var out *Retired
	set := func(how string, ref oplog.Ref, by, replacement oplog.Hash) {
		out = &Retired{How: how, HLC: ref.Stamp().String(), by: by}
		if !replacement.IsZero() {
			out.SupersededBy = ID(replacement)
		}
	}
	err := r.Scan(key(rowNamer, i.hash[:]), nil, true, func(k, v []byte) (bool, error) {
		ref, err := tail(k)
		if err != nil {
			return false, err
		}
		typ, by, err := tagged(v)
		if err != nil {
			return false, err
		}
		switch typ {
		case typeForget:
			set(Forgot, ref, by, oplog.Hash{})
		case typeFact:
			set(Updated, ref, by, by)
		default:
			m, ok, err := getInfo(r, by)
			if err != nil {
				return false, err
			}
			if ok && len(m.more) == len(oplog.Hash{}) {
				set(Updated, ref, by, oplog.Hash(m.more))
			}
		}
		return out == nil, nil
	})
	if err != nil || out != nil {
		return out, err
	}
	for _, root := range i.roots {
		h, ok, err := head(r, root)
		if err != nil {
			return nil, err
		}
		if !ok || h.hash == i.hash {
			continue
		}
		if set(Overruled, h.ref, h.hash, h.hash); h.typ == typeForget {
			out.SupersededBy = ""
		}
		return out, nil
	}
	err = r.Scan(key(rowReach, i.slot[:]), nil, true, func(k, v []byte) (bool, error) {
		ref, err := tail(k)
		if err != nil || ref.Compare(i.ref) < 0 || string(v) == string(i.hash[:]) {
			return err == nil, err
		}
		var replacement oplog.Hash
		copy(replacement[:], v)
		set(Late, ref, oplog.Hash{}, replacement)
		return false, nil
	})
	if err == nil && out == nil {
		err = fmt.Errorf("memory: %s is retired by nothing", ID(i.hash))
	}
	return out, err
}

// Live reports whether the fact at ref in a namespace is live: one lookup.
func Live(views oplog.Views, namespace string, ref oplog.Ref) (bool, error) {
	i := info{ns: nsID(namespace), ref: ref}
	return has(views.View(ViewName), i.lives())
}

// Filter asks for a page of facts.
type Filter struct {
	Namespaces []string // exactly as given when they were written
	Retired    bool     // those that are no longer live, too
	Limit      int      // 0 means DefaultLimit
	Cursor     string   // next_cursor of the page before
}

// Page is the answer, newest first in C2 order.
type Page struct {
	Count      int      `json:"count"`
	Facts      []Record `json:"facts"`
	HasMore    bool     `json:"has_more,omitempty"`
	Truncated  bool     `json:"truncated,omitempty"` // ended by size, not by limit
	NextCursor string   `json:"next_cursor,omitempty"`
}

// List returns one page of the facts of some namespaces. It costs the page.
func List(snap oplog.Snapshot, f Filter) (Page, error) {
	limit, err := checkLimit(f.Limit)
	if err != nil {
		return Page{}, err
	}
	if len(f.Namespaces) == 0 || len(f.Namespaces) > MaxNamespaces {
		return Page{}, refusal.Invalid("agent_id", "name 1 to 64 namespaces", "%d namespaces are named", len(f.Namespaces))
	}
	from, err := parseCursor(f.Cursor)
	if err != nil {
		return Page{}, err
	}
	table := byte(rowLive)
	if f.Retired {
		table = rowAll
	}
	var prefixes [][]byte
	for _, ns := range f.Namespaces {
		id := nsID(ns)
		prefixes = append(prefixes, key(table, id[:]))
	}
	page, size := Page{Facts: []Record{}}, 0
	err = merge.Scan(snap.View(ViewName), prefixes, from, true, func(rest, _ []byte) (bool, error) {
		if string(rest) == string(from) {
			return true, nil
		}
		if len(page.Facts) == limit {
			page.HasMore = true
			return false, nil
		}
		ref, err := oplog.RefOf(rest)
		if err != nil {
			return false, err
		}
		rec, err := ByRef(snap, ref)
		if err != nil {
			return false, fmt.Errorf("memory: fact of a row: %w", err)
		}
		b, err := json.Marshal(rec)
		if err != nil {
			return false, fmt.Errorf("memory: encode: %w", err)
		}
		if len(page.Facts) > 0 && size+len(b) > MaxPageBytes {
			page.HasMore, page.Truncated = true, true
			return false, nil
		}
		size += len(b)
		page.Facts = append(page.Facts, rec)
		return true, nil
	})
	if err != nil {
		return Page{}, err
	}
	if page.Count = len(page.Facts); page.HasMore {
		page.NextCursor = cursorOf(page.Facts[page.Count-1].Ref)
	}
	return page, nil
}

func checkLimit(limit int) (int, error) {
	switch {
	case limit == 0:
		return DefaultLimit, nil
	case limit < 0 || limit > MaxLimit:
		return 0, refusal.Invalid("limit", "use 1 to 500 and follow next_cursor", "limit is %d, at most %d are allowed", limit, MaxLimit)
	}
	return limit, nil
}

// cursorOf is a place in C2 order. It holds on every replica.
func cursorOf(ref oplog.Ref) string { return "m0." + base64.RawURLEncoding.EncodeToString(ref[:]) }

func parseCursor(s string) ([]byte, error) {
	if s == "" {
		return nil, nil
	}
	if len(s) < 80 && len(s) > 3 && s[:3] == "m0." {
		if b, err := base64.RawURLEncoding.DecodeString(s[3:]); err == nil && len(b) == oplog.RefSize {
			return b, nil
		}
	}
	return nil, refusal.New(refusal.UnknownCursor, "cursor", "start again without it", "cursor is not one of this listing")
}

// Copies lists the live facts of exactly this text, newest first.
func Copies(snap oplog.Snapshot, namespace, text string) ([]Record, error) {
	list, err := liveCopies(snap.View(ViewName), namespace, text)
	if err != nil {
		return nil, err
	}
	out := make([]Record, 0, len(list))
	for i := range list {
		rec, err := ByRef(snap, list[i].ref)
		if err != nil {
			return nil, err
		}
		out = append(out, rec)
	}
	return out, nil
}

// liveCopies are the live copies of a text, newest first, at most maxNames.
func liveCopies(r oplog.Reader, namespace, text string) ([]info, error) {
	var out []info
	slot := slotID(namespace, text)
	err := eachCopy(r, rowOpen, slot, func(i info) (bool, error) {
		live, err := has(r, i.lives())
		if live {
			out = append(out, i)
		}
		return len(out) < maxNames, err
	})
	return out, err
}

func eachCopy(r oplog.Reader, table byte, slot id16, fn func(info) (bool, error)) error {
	return r.Scan(key(table, slot[:]), nil, true, func(_, v []byte) (bool, error) {
		if len(v) != len(oplog.Hash{}) {
			return false, fmt.Errorf("memory: copy of %d bytes", len(v))
		}
		i, ok, err := getInfo(r, oplog.Hash(v))
		if err != nil || !ok {
			return err == nil, err
		}
		return fn(i)
	})
}

// Count is how many facts a namespace holds.
type Count struct {
	Namespace string `json:"agent_id"`
	Live      uint64 `json:"live"`
	All       uint64 `json:"all"`
}

// CountOf counts one namespace: one lookup.
func CountOf(views oplog.Views, namespace string) (Count, error) {
	live, all, err := getCounts(views.View(ViewName), namespace)
	return Count{namespace, live, all}, err
}

// Namespaces lists namespaces that hold facts, by name, after a name.
func Namespaces(views oplog.Views, after string, limit int) ([]Count, error) {
	limit, err := checkLimit(limit)
	if err != nil {
		return nil, err
	}
	r, out := views.View(ViewName), []Count{}
	err = r.Scan([]byte{rowCounts}, key(rowCounts, []byte(after)), false, func(k, v []byte) (bool, error) {
		if name := string(k[1:]); name != after || after == "" {
			c, err := CountOf(views, name)
			if err != nil {
				return false, err
			}
			out = append(out, c)
		}
		return len(out) < limit, nil
	})
	return out, err
}

// Imported returns the fact that counts for an import key, and whether there
// is one, live or not.
func Imported(views oplog.Views, k imported.Key) (id string, ok bool, err error) {
	root := importRoot(k)
	err = views.View(ViewName).Scan(key(rowLineage, root[:], []byte{0}), nil, false, func(_, v []byte) (bool, error) {
		_, h, err := tagged(v)
		id, ok = ID(h), err == nil
		return false, err
	})
	return id, ok, err
}
