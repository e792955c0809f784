package memory

import (
	"fmt"

	"tallystick/oplog"
	"tallystick/query/carried"
	"tallystick/query/logstream"
	"tallystick/query/refusal"
)

// Rules by which a merge discards.
const (
	RuleLatest = "latest operation of a lineage" // update against update or forget
	RuleLate   = "stamped before an update or forget of the same text"
	RuleImport = "earliest copy of an imported row"
)

// Side is one side of a merge.
type Side struct {
	ID         string `json:"id"`
	Op         string `json:"op"` // fact or forget
	Text       string `json:"text,omitempty"`
	Confidence string `json:"confidence,omitempty"`
	Author     string `json:"author"`
	CreatedAt  string `json:"created_at"`
	HLC        string `json:"hlc"`

	Ref oplog.Ref `json:"-"`
}

// Merge is something that was discarded without its discarder having seen it.
// Undo takes the id of the lost side.
type Merge struct {
	Namespace string `json:"agent_id"`
	Rule      string `json:"rule"`
	Lost      Side   `json:"lost"`
	Kept      Side   `json:"kept"`
}

// MergePage is a page of merges.
type MergePage struct {
	Count      int     `json:"count"`
	Merges     []Merge `json:"merges"`
	HasMore    bool    `json:"has_more,omitempty"`
	NextCursor string  `json:"next_cursor,omitempty"`
}

// MergeFilter asks for a page of merges.
type MergeFilter struct {
	Namespace string // empty for all
	Limit     int    // 0 means DefaultLimit
	Cursor    string
}

// Merges lists what merging discarded, newest lost side first (M3). Where both
// sides say the same nothing was discarded and nothing is listed. What was
// undone, or named by a later operation, is no longer listed.
func Merges(snap oplog.Snapshot, f MergeFilter) (MergePage, error) {
	limit, err := checkLimit(f.Limit)
	if err != nil {
		return MergePage{}, err
	}
	from, err := parseCursor(f.Cursor)
	if err != nil {
		return MergePage{}, err
	}
	var start []byte
	if from != nil {
		start = key(rowMerge, from)
	}
	r, page := snap.View(ViewName), MergePage{Merges: []Merge{}}
	var last, done oplog.Ref
	err = r.Scan([]byte{rowMerge}, start, true, func(k, v []byte) (bool, error) {
		if len(k) < 1+oplog.RefSize+1 {
			return false, fmt.Errorf("memory: merge row of %d bytes", len(k))
		}
		ref := oplog.Ref(k[1 : 1+oplog.RefSize])
		if string(ref[:]) == string(from) || ref == done {
			return true, nil
		}
		typ, hash, err := tagged(v)
		if err != nil {
			return false, err
		}
		m, ok, err := merged(snap, r, op{typ: typ, ref: ref, hash: hash}, k[1+oplog.RefSize], k[2+oplog.RefSize:])
		if err != nil || !ok || f.Namespace != "" && m.Namespace != f.Namespace {
			return err == nil, err
		}
		if len(page.Merges) == limit {
			page.HasMore = true
			return false, nil
		}
		page.Merges, last, done = append(page.Merges, m), ref, ref
		return true, nil
	})
	if err != nil {
		return MergePage{}, err
	}
	if page.Count = len(page.Merges); page.HasMore {
		page.NextCursor = cursorOf(last)
	}
	return page, nil
}

// merged describes a merge row; ok is false when both sides say the same.
func merged(snap oplog.Snapshot, r oplog.Reader, lost op, rule byte, where []byte) (m Merge, ok bool, err error) {
	var kept op
	if rule == 'l' {
		kept, ok, err = head(r, oplog.Hash(where))
		if m.Rule = RuleLatest; kept.class == 0 && lost.typ == typeFact {
			m.Rule = RuleImport
		}
	} else {
		m.Rule = RuleLate
		kept, ok, err = reaching(r, id16(where), lost)
	}
	if err != nil || !ok {
		return m, false, err
	}
	if lost.typ == typeForget && kept.typ == typeForget {
		return m, false, nil
	}
	var slots [2]id16
	for n, o := range []op{lost, kept} {
		side, ns, slot, ok, err := sideOf(snap, r, o)
		if err != nil || !ok {
			return m, false, err
		}
		if ns != "" {
			m.Namespace = ns
		}
		if slots[n] = slot; n == 0 {
			m.Lost = side
		} else {
			m.Kept = side
		}
	}
	same := lost.typ == typeFact && kept.typ == typeFact && slots[0] == slots[1] && m.Lost.Confidence == m.Kept.Confidence
	return m, !same || rule == 's', nil
}

// reaching is the latest mark, or the fact in its place, that reaches a lost
// copy of a text.
func reaching(r oplog.Reader, slot id16, lost op) (kept op, ok bool, err error) {
	err = r.Scan(key(rowReach, slot[:]), nil, true, func(k, v []byte) (bool, error) {
		ref, err := tail(k)
		if err != nil || ref.Compare(lost.ref) < 0 || string(v) == string(lost.hash[:]) {
			return err == nil && ref.Compare(lost.ref) >= 0, err
		}
		kept, ok = op{typ: typeForget, ref: ref}, true
		if len(v) == len(oplog.Hash{}) {
			if i, here, err := getInfo(r, oplog.Hash(v)); err != nil || here {
				kept = op{typ: typeFact, ref: i.ref, hash: i.hash}
				return false, err
			}
		}
		return false, nil
	})
	return kept, ok, err
}

func sideOf(snap oplog.Snapshot, r oplog.Reader, o op) (s Side, ns string, slot id16, ok bool, err error) {
	e, err := snap.Entry(o.ref)
	if err != nil {
		return s, "", slot, false, fmt.Errorf("memory: entry of a merge: %w", err)
	}
	s = Side{
		ID: ID(e.Hash), Op: "forget", Author: e.Author, CreatedAt: logstream.FormatTime(carried.Stamp(&e).Time()),
		HLC: o.ref.Stamp().String(), Ref: o.ref,
	}
	if !e.Present() {
		return s, "", slot, false, nil
	}
	if o.typ == typeFact {
		b, err := decodeFact(e.Body)
		if err != nil {
			return s, "", slot, false, fmt.Errorf("memory: %w", err)
		}
		s.Op, s.Text, s.Confidence = "fact", b.Text, b.Confidence
		return s, b.Namespace, slotID(b.Namespace, b.Text), true, nil
	}
	b, err := decodeMark(e.Body)
	if err != nil {
		return s, "", slot, false, fmt.Errorf("memory: %w", err)
	}
	for _, h := range b.Names {
		i, here, err := getInfo(r, h)
		if err != nil {
			return s, "", slot, false, err
		}
		if here && i.fact() {
			ns = i.nsName
			if f, err := ByRef(snap, i.ref); err == nil {
				s.Text = f.Text
			}
			break
		}
	}
	return s, ns, slot, true, nil
}

// NewUndo makes the ops that bring back the lost side of a merge: a lost fact
// is written again in place of what was kept, a lost forget is carried out.
// They are refused when the merge is no longer listed at that moment.
func NewUndo(snap oplog.Snapshot, author, lostID string) ([]oplog.Op, error) {
	e, err := find(snap, "id", lostID, KindFact, KindMark)
	if err != nil {
		return nil, err
	}
	gone := refusal.New(refusal.Conflict, "id", "list the merges again", "%s is not the lost side of a merge, or was brought back already", lostID)
	lost := e.Ref()
	check := func(r oplog.Reader) error {
		switch listed, err := anyRow(r, key(rowMerge, lost[:])); {
		case err != nil:
			return err
		case !listed:
			return gone
		}
		return nil
	}
	if err := check(snap.View(ViewName)); err != nil {
		return nil, err
	}
	i, _, err := getInfo(snap.View(ViewName), e.Hash)
	if err != nil {
		return nil, err
	}
	// standing is what stands in the lost side's lineages, besides itself.
	standing := func(r oplog.Reader) (names, roots []oplog.Hash, err error) {
		if err := check(r); err != nil {
			return nil, nil, err
		}
		names, roots = []oplog.Hash{i.hash}, i.roots
		for _, root := range i.roots {
			h, ok, err := head(r, root)
			if err != nil {
				return nil, nil, err
			}
			if !ok || h.hash == i.hash {
				continue
			}
			names = append(names, h.hash)
			hi, ok, err := getInfo(r, h.hash)
			if err != nil {
				return nil, nil, err
			}
			if ok {
				roots = append(roots[:len(roots):len(roots)], hi.roots...)
			}
		}
		return sorted(names), sorted(roots), nil
	}
	if i.typ == typeForget {
		return undoForget(author, standing)
	}
	b, err := decodeFact(e.Body)
	if err != nil {
		return nil, fmt.Errorf("memory: %w", err)
	}
	fact := Fact{Namespace: b.Namespace, Text: b.Text, Confidence: b.Confidence, Category: b.Category}
	return replaceOps(author, fact, func(r oplog.Reader) (replaced, error) {
		names, roots, err := standing(r)
		return replaced{names: names, roots: roots, label: b.Confidence, category: b.Category}, err
	})
}
