package search

import (
	"slices"
	"strings"
	"time"

	"tallystick/query/refusal"
)

// Filter narrows a search before anything is ranked: what it hides has no
// influence on what is shown, not even through the rarity of a word. A nil list
// lets everything pass; an empty one nothing.
type Filter struct {
	Kinds      []string
	Namespaces []string
	Categories []string
	// Identities are whole, case-sensitive names; one leading @ is ignored.
	Identities []string
	Sessions   []string
	// Owner, when it is not empty, lets pass only what that identity has a part
	// in, besides what Identities ask for; with OrNobodys also what names no
	// identity at all.
	Owner     string
	OrNobodys bool
	// After and Before bound a document's time: After <= time < Before. Zero
	// is open.
	After, Before time.Time
	// MinConfidence is the lowest level to show.
	MinConfidence int
	// IncludeSuperseded and IncludeForgotten let in what no longer holds.
	IncludeSuperseded bool
	IncludeForgotten  bool
}

// MaxFilterValues is how many values one list of a Filter may hold.
const MaxFilterValues = 64

func (f *Filter) validate() error {
	for _, l := range []struct {
		field string
		list  []string
	}{{"kinds", f.Kinds}, {"namespaces", f.Namespaces}, {"categories", f.Categories}, {"identities", f.Identities}, {"sessions", f.Sessions}} {
		if len(l.list) > MaxFilterValues {
			return refusal.New(refusal.TooLarge, l.field, "search in several steps", "%d values, at most %d", len(l.list), MaxFilterValues)
		}
	}
	if f.MinConfidence < Unverified || f.MinConfidence > Verified {
		return refusal.Invalid("min_confidence", "use unverified, inferred or verified", "confidence level %d", f.MinConfidence)
	}
	if !f.After.IsZero() && !f.Before.IsZero() && !f.After.Before(f.Before) {
		return refusal.Invalid("before", "give a time after the other bound", "before is not later than after")
	}
	return nil
}

// noName is no name's number.
const noName = 1<<32 - 1

// filter is a Filter in the numbers of one core.
type filter struct {
	trivial              bool // live documents, nothing else asked
	none                 bool // nothing can pass
	lists                [nLists][]uint32
	sessions             []uint32
	owned, orNobodys     bool
	owner                uint32
	after, before        int64
	minConf              uint8
	superseded, forgotte bool
	set                  *passSet // what passes, when it is remembered
}

// may is ok, by what is remembered where it is.
func (f *filter) may(c *core, n uint32) bool {
	if f.set != nil {
		return f.set.has(n)
	}
	return f.ok(c, n)
}

func (f *Filter) compile(c *core) *filter {
	out := &filter{before: 1<<63 - 1, after: -1 << 63, minConf: confidence(f.MinConfidence), superseded: f.IncludeSuperseded, forgotte: f.IncludeForgotten}
	out.trivial = !f.IncludeForgotten && !f.IncludeSuperseded && f.MinConfidence == 0
	if !f.After.IsZero() {
		out.after, out.trivial = f.After.UnixMilli(), false
		if f.After.Nanosecond()%int(time.Millisecond) != 0 {
			out.after++
		}
	}
	if !f.Before.IsZero() {
		out.before, out.trivial = f.Before.UnixMilli(), false
		if f.Before.Nanosecond()%int(time.Millisecond) != 0 {
			out.before++
		}
	}
	number := func(values []string, strip bool) []uint32 {
		if values == nil {
			return nil
		}
		out.trivial = false
		ids := make([]uint32, 0, len(values))
		for _, v := range values {
			if strip {
				v = strings.TrimPrefix(v, "@")
			}
			if id, ok := c.names.get(v); ok && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
		if len(ids) == 0 {
			out.none = true
		}
		return ids
	}
	out.lists[listNS] = number(f.Namespaces, false)
	out.lists[listKind] = number(f.Kinds, false)
	out.lists[listCategory] = number(f.Categories, false)
	out.lists[listIdentity] = number(f.Identities, true)
	out.sessions = number(f.Sessions, false)
	if f.Owner != "" {
		id, ok := c.names.get(strings.TrimPrefix(f.Owner, "@"))
		if out.owner = id; !ok {
			out.owner = noName
		}
		out.owned, out.orNobodys, out.trivial = true, f.OrNobodys, false
	}
	return out
}

// ok reports whether document n may be seen.
func (f *filter) ok(c *core, n uint32) bool {
	h := &c.hot[n]
	switch h.state {
	case stLive:
	case stSuperseded:
		if !f.superseded {
			return false
		}
	case stForgotten:
		if !f.forgotte {
			return false
		}
	default:
		return false
	}
	if f.trivial {
		return true
	}
	if f.none || h.conf < f.minConf || h.time < f.after || h.time >= f.before {
		return false
	}
	if l := f.lists[listNS]; l != nil && !slices.Contains(l, h.ns) {
		return false
	}
	if l := f.lists[listKind]; l != nil && !slices.Contains(l, h.kind) {
		return false
	}
	if l := f.lists[listCategory]; l != nil && !slices.Contains(l, h.category) {
		return false
	}
	if f.sessions != nil && !slices.Contains(f.sessions, h.session) {
		return false
	}
	if idents := c.cold[n].idents; f.owned && !slices.Contains(idents, f.owner) && !(f.orNobodys && len(idents) == 0) {
		return false
	}
	if l := f.lists[listIdentity]; l != nil {
		for _, id := range c.cold[n].idents {
			if slices.Contains(l, id) {
				return true
			}
		}
		return false
	}
	return true
}

// size counts the documents that pass, and their words.
func (f *filter) size(c *core) (docs int, words uint64) {
	if f.none {
		return 0, 0
	}
	if f.trivial {
		return c.live, c.liveLen
	}
	if f.set != nil {
		return f.set.count, f.set.words
	}
	count := func(n uint32) {
		if f.ok(c, n) {
			docs++
			words += uint64(c.hot[n].words)
		}
	}
	if lists, ok := f.shortest(c); ok {
		for _, l := range lists {
			for _, n := range l {
				count(n)
			}
		}
		return docs, words
	}
	for n := range c.hot {
		count(uint32(n))
	}
	return docs, words
}

// shortest picks the lists of documents that hold all that can pass, without
// one twice, when there are such lists.
func (f *filter) shortest(c *core) (best [][]uint32, ok bool) {
	total := len(c.hot)
	try := func(names []uint32, by [][]uint32) {
		if names == nil {
			return
		}
		n, lists := 0, make([][]uint32, 0, len(names))
		for _, id := range names {
			if int(id) < len(by) {
				n += len(by[id])
				lists = append(lists, by[id])
			}
		}
		if n < total {
			best, ok, total = lists, true, n
		}
	}
	try(f.lists[listNS], c.byName[listNS])
	try(f.lists[listKind], c.byName[listKind])
	try(f.lists[listCategory], c.byName[listCategory])
	if l := f.lists[listIdentity]; len(l) == 1 {
		try(l, c.byName[listIdentity])
	}
	if f.sessions != nil && !slices.Contains(f.sessions, 0) {
		try(f.sessions, c.bySess)
	}
	return best, ok
}
