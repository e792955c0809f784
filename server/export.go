package server

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"tallystick/oplog"
	"tallystick/query/checkpoint"
	"tallystick/query/memory"
	"tallystick/query/rawmemory"
	"tallystick/query/summary"
)

// MemoryExport asks for a part of everything that is remembered here, in the
// order in which it arrived.
type MemoryExport struct {
	Session Session `json:"session"`
	// After is Next of the part before.
	After uint64 `json:"after,omitempty"`
	// Namespaces and Kinds narrow it; empty is all. Summaries and turns have no
	// namespace and count by whose they are.
	Namespaces []string `json:"namespaces,omitempty"`
	Kinds      []string `json:"kinds,omitempty"`
}

// MemoryPart is a part of an export.
type MemoryPart struct {
	Rows []json.RawMessage `json:"rows"`
	Next uint64            `json:"next"`
	More bool              `json:"more"`
}

const (
	exportBytes   = 4 << 20
	exportEntries = 4096
)

// ExportMemory gives every record of memory: facts, retired ones too, links,
// aliases, summaries, turns and checkpoints.
func (s *Service) ExportMemory(ctx context.Context, q MemoryExport) (MemoryPart, *Error) {
	if _, bad := s.bind(q.Session); bad != nil {
		return MemoryPart{}, bad
	}
	part := MemoryPart{Rows: []json.RawMessage{}, Next: q.After}
	size, entries := 0, 0
	err := s.d.Log.View(func(snap oplog.Snapshot) error {
		last := snap.LastArrival()
		err := snap.Arrived(q.After, false, func(arrival uint64, e *oplog.Entry) (bool, error) {
			row, ok, err := exportRow(snap, e)
			if err != nil {
				return false, err
			}
			if ok && q.wants(&row) {
				row.HLC = e.Ref().Stamp().String()
				b := encode(row)
				part.Rows = append(part.Rows, b)
				size += len(b)
			}
			part.Next = arrival
			entries++
			return size < exportBytes && entries < exportEntries, ctx.Err()
		})
		part.More = part.Next < last
		return err
	})
	if err != nil {
		return MemoryPart{}, s.asError(ctx, err)
	}
	return part, nil
}

func (q *MemoryExport) wants(r *MemoryRow) bool {
	if len(q.Kinds) > 0 && !slices.Contains(q.Kinds, r.Kind) {
		return false
	}
	if len(q.Namespaces) == 0 || slices.Contains(q.Namespaces, r.Namespace) {
		return true
	}
	return r.Namespace == "" && slices.ContainsFunc(r.Identities, func(id string) bool { return slices.Contains(q.Namespaces, id) })
}

// exportRow shows an entry as a row; ok is false when it is none of memory, or
// does not count.
func exportRow(snap oplog.Snapshot, e *oplog.Entry) (r MemoryRow, ok bool, err error) {
	if !e.Present() {
		return r, false, nil
	}
	ref := e.Ref()
	switch e.Kind {
	case memory.KindFact:
		rec, err := memory.ByRef(snap, ref)
		if err != nil {
			return r, false, err
		}
		r = MemoryRow{
			Kind: RowFact, ID: rec.ID, Imported: rec.Imported, Namespace: rec.Namespace, Text: rec.Text, Confidence: rec.Confidence,
			Category: rec.Category, Pinned: rec.Pinned, Author: rec.Author, CreatedAt: rec.CreatedAt, Supersedes: rec.Supersedes, Retired: rec.Retired,
		}
		if rec.By != "" {
			r.Author = rec.By
		}
		if rec.At != "" {
			r.CreatedAt = rec.At
		}
		if rec.Imported == nil {
			return r, true, nil
		}
		first, ok, err := memory.Imported(snap, *rec.Imported) // copies of it are left out
		return r, ok && first == rec.ID, err
	case memory.KindLink, memory.KindAlias:
		rel, ok, err := memory.RelationOf(snap, e)
		r = MemoryRow{
			Kind: strings.TrimPrefix(e.Kind, "fact."), ID: rel.ID, Namespace: rel.Namespace, From: rel.From, To: rel.To,
			Term: rel.Term, Equivalents: rel.Equivalents, Author: rel.Author, CreatedAt: rel.CreatedAt,
		}
		return r, ok, err
	case summary.Kind:
		in, err := summary.Decode(e)
		if err != nil {
			return r, false, err
		}
		r = MemoryRow{
			Kind: RowSummary, ID: summary.ID(ref), Title: in.Title, Text: in.Text, Category: in.Category, Session: in.Session,
			Identities: in.Identities, Timestamp: stamped(in.Timestamp, e), Author: e.Author,
		}
		if !in.Import.IsZero() {
			r.Imported = &in.Import
			first, ok, err := summary.Imported(snap, in.Import)
			return r, ok && first == ref, err
		}
		return r, true, nil
	case rawmemory.Kind:
		t, err := rawmemory.Decode(e)
		if err != nil {
			return r, false, err
		}
		r = MemoryRow{
			Kind: RowTurn, ID: rawmemory.ID(ref), Session: t.Session, Prompt: t.Prompt, Thought: t.Thought, Response: t.Response,
			Agent: t.Agent, Model: t.Model, Tools: t.Tools, Identities: t.Identities, Timestamp: stamped(t.Timestamp, e), Author: e.Author,
		}
		if t.ToolCalls >= 0 {
			r.ToolCalls = &t.ToolCalls
		}
		if !t.Import.IsZero() {
			r.Imported = &t.Import
			first, ok, err := rawmemory.Imported(snap, t.Import)
			return r, ok && first == ref, err
		}
		return r, true, nil
	case checkpoint.Kind:
		rec, err := checkpoint.NewRecord(e, nil)
		if err != nil {
			return r, false, err
		}
		r = MemoryRow{
			Kind: RowCheckpoint, ID: rec.ID, Namespace: rec.Namespace, State: rec.Raw, Branch: rec.Branch, BaseCommit: rec.BaseCommit,
			Author: rec.Author, CreatedAt: rec.CreatedAt, Imported: rec.Imported,
		}
		if rec.Imported == nil {
			return r, true, nil
		}
		r.Author, r.CreatedAt = cmp.Or(rec.By, r.Author), cmp.Or(rec.At, r.CreatedAt)
		first, ok, err := checkpoint.Imported(snap, *rec.Imported)
		return r, ok && first == ref, err
	}
	return r, false, nil
}

// stamped is the time of a record as it was given, else that of its entry.
func stamped(given string, e *oplog.Entry) *string {
	if given == "" {
		given = timeText(e.Time.Time())
	}
	return &given
}

func equalNode(a, b string) bool {
	return strings.EqualFold(strings.TrimSpace(a), strings.TrimSpace(b))
}
