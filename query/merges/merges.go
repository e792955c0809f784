package merges

import (
	"encoding/base64"
	"slices"
	"strings"

	"tallystick/oplog"
	"tallystick/query/claim"
	"tallystick/query/logstream"
	"tallystick/query/refusal"
)

// Limits of a page.
const (
	DefaultLimit = 50
	MaxLimit     = 500
)

// Env is what a source may know besides the snapshot.
type Env struct {
	Self    oplog.Origin
	Horizon claim.Horizon
	Label   logstream.Labeler
	Clashes []LabelClash
	Moves   []LabelMove
	Labels  []string // of all members
}

// Side is one of the two things between which a rule decided.
type Side struct {
	ID     string `json:"id"`
	Author string `json:"author"`
	HLC    string `json:"hlc"`
	At     string `json:"at"`
	What   string `json:"what,omitempty"` // status, text or title, cut to 200 characters
}

// Merge is one decision. Its name is that of the lost side.
type Merge struct {
	ID    string `json:"id"`
	Kind  string `json:"kind"`
	About string `json:"about"` // task, import key, namespace or label
	Rule  string `json:"rule"`
	Lost  Side   `json:"lost"`
	Kept  Side   `json:"kept"`
	Same  bool   `json:"same,omitempty"`  // both sides say the same: nothing is missing
	Grade string `json:"grade,omitempty"` // of a claim: how final the decision is
	Undo  string `json:"undo"`            // who can undo it and what that does
}

// Undo restores the lost side of a merge.
type Undo struct {
	Ops   []oplog.Op
	Label string // the label that this replica is to take; then there are no ops
	What  string // in words, once it is done
}

// Source shows what one domain discards.
type Source interface {
	// Kind is the name under which its merges are listed.
	Kind() string
	// List gives a page in a fixed order from behind a place on; next is nil at
	// the end.
	List(snap oplog.Snapshot, env Env, after []byte, limit int) (list []Merge, next []byte, err error)
	// Undo makes the ops that restore a lost side; ok is false when the id is
	// none of this domain's.
	Undo(snap oplog.Snapshot, env Env, author, id string) (u Undo, ok bool, err error)
}

// Sources are all domains that discard, in the order in which they are listed.
func Sources() []Source {
	return []Source{claims{}, events{}, summaries, turns, facts{}, checkpoints{}, labels{}}
}

// Kinds lists the kinds of merge.
func Kinds() (kinds []string) {
	for _, s := range Sources() {
		kinds = append(kinds, s.Kind())
	}
	return kinds
}

// Filter asks for a page of merges.
type Filter struct {
	Kind   string // empty for all
	Limit  int    // 0 means DefaultLimit
	Cursor string
	Fits   func(Merge) bool // says that a merge no longer fits the page; may be nil
}

// Page is a page of merges.
type Page struct {
	Merges     []Merge `json:"merges"`
	Count      int     `json:"count"`
	HasMore    bool    `json:"has_more"`
	NextCursor string  `json:"next_cursor,omitempty"`
}

// List gives a page of merges, kind by kind.
func List(snap oplog.Snapshot, env Env, f Filter) (Page, error) {
	sources := Sources()
	switch {
	case f.Kind != "" && !slices.Contains(Kinds(), f.Kind):
		return Page{}, refusal.OneOf("kind", f.Kind, Kinds())
	case f.Limit == 0:
		f.Limit = DefaultLimit
	case f.Limit < 0 || f.Limit > MaxLimit:
		return Page{}, refusal.Invalid("limit", "use 1 to 500 and follow next_cursor", "limit is %d, at most %d are allowed", f.Limit, MaxLimit)
	}
	first, after, err := parseCursor(f.Cursor)
	if err != nil {
		return Page{}, err
	}
	page := Page{Merges: []Merge{}}
	for n := first; n < len(sources); n++ {
		if f.Kind != "" && sources[n].Kind() != f.Kind {
			after = nil
			continue
		}
		for {
			if len(page.Merges) == f.Limit {
				more, _, err := sources[n].List(snap, env, after, 1)
				if err != nil {
					return Page{}, err
				}
				if len(more) > 0 {
					page.HasMore, page.NextCursor = true, cursorOf(n, after)
					page.Count = len(page.Merges)
					return page, nil
				}
				break
			}
			// One at a time, so that the place behind each is known: pages end by
			// size too.
			list, next, err := sources[n].List(snap, env, after, 1)
			if err != nil {
				return Page{}, err
			}
			if len(list) == 0 {
				break
			}
			if f.Fits != nil && !f.Fits(list[0]) && len(page.Merges) > 0 {
				page.HasMore, page.NextCursor = true, cursorOf(n, after)
				page.Count = len(page.Merges)
				return page, nil
			}
			page.Merges = append(page.Merges, list[0])
			if after = next; next == nil {
				break
			}
		}
		after = nil
	}
	page.Count = len(page.Merges)
	return page, nil
}

const cursorPrefix = "merges 3 "

func cursorOf(source int, after []byte) string {
	return base64.RawURLEncoding.EncodeToString(append([]byte(cursorPrefix+string(rune('0'+source))), after...))
}

func parseCursor(cursor string) (source int, after []byte, err error) {
	if cursor == "" {
		return 0, nil, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	place, ok := strings.CutPrefix(string(b), cursorPrefix)
	if err != nil || !ok || place == "" || int(place[0]-'0') >= len(Sources()) {
		return 0, nil, refusal.New(refusal.UnknownCursor, "cursor", "start again without it", "cursor is not one of a listing of merges")
	}
	if len(place) > 1 {
		after = []byte(place[1:])
	}
	return int(place[0] - '0'), after, nil
}

// NewUndo makes the ops that restore the lost side of a merge.
func NewUndo(snap oplog.Snapshot, env Env, author, id string) (Undo, error) {
	if err := logstream.CheckAuthor(author); err != nil {
		return Undo{}, err
	}
	for _, s := range Sources() {
		u, ok, err := s.Undo(snap, env, author, id)
		if err != nil || ok {
			return u, err
		}
	}
	return Undo{}, refusal.New(refusal.NotFound, "id", "copy the id from tally merges", "%s is not the lost side of a merge", refusal.Quote(id))
}

// cut shortens a text for a line.
func cut(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	if r := []rune(s); len(r) > 200 {
		return string(r[:200]) + "..."
	}
	return s
}
