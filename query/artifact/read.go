package artifact

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"tallystick/oplog"
	"tallystick/query/carried"
	"tallystick/query/logstream"
	"tallystick/query/refusal"
)

// Limits of a page.
const (
	DefaultLimit = 50
	MaxLimit     = 500
	MaxPageBytes = logstream.MaxPageBytes
)

// ID is the name of an artifact: art_, the second of its entry's stamp, and
// the first 12 hex digits of its content's hash.
func ID(ref oplog.Ref, content oplog.Hash) string {
	return "art_" + ref.Time().Time().Format("20060102T150405") + "_" + hex.EncodeToString(content[:6])
}

// parseID reads an artifact id. Ids of another make are well-formed for the
// log stream and unknown here: ok is false.
func parseID(id string) (second time.Time, prefix []byte, ok bool) {
	if len(id) != 4+15+1+12 || id[:4] != "art_" || id[19] != '_' {
		return second, nil, false
	}
	second, err := time.Parse("20060102T150405", id[4:19])
	if err != nil {
		return second, nil, false
	}
	prefix, err = hex.DecodeString(id[20:])
	return second, prefix, err == nil && hex.EncodeToString(prefix) == id[20:]
}

// Find returns the entry that an id stands for, and false when none here has
// that id. It needs no content.
func Find(views oplog.Views, id string) (ref oplog.Ref, found bool, err error) {
	second, prefix, ok := parseID(id)
	if !ok {
		return ref, false, nil
	}
	err = views.View(ViewName).Scan(append([]byte{rowHash}, prefix...), nil, false, func(key, _ []byte) (bool, error) {
		r, err := refOf(key, 1+len(oplog.Hash{}))
		if err != nil {
			return false, err
		}
		if r.Time().Time().Truncate(time.Second).Equal(second) && (!found || r.Compare(ref) < 0) {
			ref, found = r, true
		}
		return true, nil
	})
	return ref, found, err
}

func missing(field, id string) error {
	return refusal.New(refusal.NotFound, field, "copy the id that artifact_put gave; it may not have arrived on this replica yet", "no artifact %s here", refusal.Quote(id))
}

// CheckKnown refuses ids of artifacts whose entry is not here. The content of
// a known one may still be on its way.
func CheckKnown(views oplog.Views, field string, ids []string) error {
	for _, id := range ids {
		switch _, found, err := Find(views, id); {
		case err != nil:
			return err
		case !found:
			return missing(field, id)
		}
	}
	return nil
}

// Blobs says how far content has got here. oplog.Log is one.
type Blobs interface {
	BlobState(h oplog.Hash) (oplog.BlobState, error)
}

// Record is an artifact as clients see it.
type Record struct {
	ID        string          `json:"id"`
	Kind      string          `json:"kind"`
	SHA256    string          `json:"sha256"`
	Size      int64           `json:"size_bytes"`
	CreatedBy string          `json:"created_by"`
	CreatedAt string          `json:"created_at"`
	HLC       string          `json:"hlc"`
	Origin    string          `json:"origin"`
	Here      bool            `json:"content_here"`         // the content can be read
	Have      int64           `json:"bytes_here,omitempty"` // while it is on its way
	Note      string          `json:"note,omitempty"`       // why it cannot be read
	Metadata  json.RawMessage `json:"metadata,omitempty"`
	Warnings  []string        `json:"warnings,omitempty"`
	Invisible bool            `json:"invisible,omitempty"`

	Hash oplog.Hash `json:"-"`
}

const (
	noteComing = "the content has not arrived on this replica yet; it is fetched from a peer that has it"
	noteSize   = "the entry tells another size than the content has; the content is as its hash says"
)

// NewRecord shows an entry of kind "artifact".
func NewRecord(e *oplog.Entry, blobs Blobs, label logstream.Labeler) (Record, error) {
	a, err := Decode(e)
	if err != nil {
		return Record{}, err
	}
	st, err := blobs.BlobState(a.Hash)
	if err != nil {
		return Record{}, fmt.Errorf("artifact: state of the content: %w", err)
	}
	r := Record{
		ID: ID(e.Ref(), a.Hash), Kind: a.Kind, SHA256: a.Hash.String(), Size: a.Size, CreatedBy: e.Author,
		CreatedAt: logstream.FormatTime(carried.Stamp(e).Time()), HLC: e.Ref().Stamp().String(), Here: st.Whole,
		Metadata: a.Metadata, Warnings: a.Warnings, Hash: a.Hash, Invisible: logstream.Invisible(a.Metadata),
	}
	switch {
	case !st.Whole:
		r.Have, r.Note = st.Have, noteComing
	case st.Size != a.Size:
		r.Size, r.Note = st.Size, noteSize
	}
	if label != nil {
		r.Origin = label(e.Origin)
	}
	return r, nil
}

// Get returns the artifact of that id, or a refusal: invalid_argument for what
// is no artifact id, not_found for one that is not known here.
func Get(snap oplog.Snapshot, field, id string, blobs Blobs, label logstream.Labeler) (Record, error) {
	if !logstream.IsArtifactID(id) {
		return Record{}, refusal.Invalid(field, "copy the id that artifact_put gave, e.g. art_20260102T030405_0123456789ab", "%s is %s, which is not an artifact id", field, refusal.Quote(id))
	}
	ref, found, err := Find(snap, id)
	if err != nil {
		return Record{}, err
	}
	if !found {
		return Record{}, missing(field, id)
	}
	e, err := snap.Entry(ref)
	if errors.Is(err, oplog.ErrNotFound) || err == nil && !e.Present() {
		return Record{}, missing(field, id)
	}
	if err != nil {
		return Record{}, fmt.Errorf("artifact: entry of a row: %w", err)
	}
	return NewRecord(&e, blobs, label)
}

// Page is a part of the list.
type Page struct {
	Artifacts  []Record `json:"artifacts"`
	Count      int      `json:"count"`
	HasMore    bool     `json:"has_more"`
	Truncated  bool     `json:"truncated,omitempty"` // ended by size, not by limit
	NextOffset int      `json:"next_offset,omitempty"`
}

// List returns artifacts, newest first.
func List(snap oplog.Snapshot, limit, offset int, blobs Blobs, label logstream.Labeler) (Page, error) {
	switch {
	case limit == 0:
		limit = DefaultLimit
	case limit < 0 || limit > MaxLimit:
		return Page{}, refusal.Invalid("limit", "use 1 to 500 and follow next_offset", "limit is %d, at most %d are allowed", limit, MaxLimit)
	}
	if offset < 0 {
		return Page{}, refusal.Invalid("offset", "use 0 or more", "offset is %d", offset)
	}
	page := Page{Artifacts: []Record{}}
	at, size := 0, 0
	err := snap.View(ViewName).Scan([]byte{rowAll}, nil, true, func(key, _ []byte) (bool, error) {
		if at++; at <= offset {
			return true, nil
		}
		if len(page.Artifacts) == limit {
			page.HasMore = true
			return false, nil
		}
		ref, err := refOf(key, 1)
		if err != nil {
			return false, err
		}
		e, err := snap.Entry(ref)
		if err != nil {
			return false, fmt.Errorf("artifact: entry of a row: %w", err)
		}
		if !e.Present() {
			return true, nil
		}
		r, err := NewRecord(&e, blobs, label)
		if err != nil {
			return false, err
		}
		b, err := json.Marshal(r)
		if err != nil {
			return false, fmt.Errorf("artifact: encode: %w", err)
		}
		if len(page.Artifacts) > 0 && size+len(b) > MaxPageBytes {
			page.HasMore, page.Truncated = true, true
			return false, nil
		}
		size += len(b)
		page.Artifacts = append(page.Artifacts, r)
		return true, nil
	})
	page.Count = len(page.Artifacts)
	if page.HasMore {
		page.NextOffset = at - 1
	}
	return page, err
}
