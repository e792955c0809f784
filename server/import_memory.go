package server

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"tallystick/oplog"
	"tallystick/query/checkpoint"
	"tallystick/query/imported"
	"tallystick/query/memory"
	"tallystick/query/rawmemory"
	"tallystick/query/refusal"
	"tallystick/query/secrets"
	"tallystick/query/summary"
)

// Kinds of row in a memory import and export.
const (
	RowFact       = "fact"
	RowLink       = "link"
	RowAlias      = "alias"
	RowSummary    = "summary"
	RowTurn       = "turn"
	RowCheckpoint = "checkpoint"
)

// MemoryRow is one record of memory, of any kind, as it is imported and
// exported. Fields that a kind does not have are empty.
type MemoryRow struct {
	Kind string `json:"kind"`
	// ID is the record's own id where it comes from; of another mesh or of this
	// one. A record that is here already, under this id or this key, is left as
	// it is.
	ID       string        `json:"id,omitempty"`
	Imported *imported.Key `json:"imported,omitempty"`

	Namespace  string   `json:"agent_id,omitempty"` // empty: the importer's own
	Text       string   `json:"text,omitempty"`
	Confidence string   `json:"confidence,omitempty"`
	Category   string   `json:"category,omitempty"`
	Pinned     bool     `json:"pinned,omitempty"`
	Author     string   `json:"author,omitempty"`
	CreatedAt  string   `json:"created_at,omitempty"` // verbatim
	Supersedes []string `json:"supersedes,omitempty"`
	// Retired is why a fact is no longer live. It is imported as one that is
	// retired, unless a fact of that text is live here.
	Retired *memory.Retired `json:"retired,omitempty"`
	// Replaces are the keys of retired facts in whose place this one stands.
	Replaces []imported.Key `json:"replaces,omitempty"`
	// HLC is the place of the record in the order of its log.
	HLC string `json:"hlc,omitempty"`

	From        string   `json:"from,omitempty"`
	To          string   `json:"to,omitempty"`
	Term        string   `json:"term,omitempty"`
	Equivalents []string `json:"equivalents,omitempty"`

	Title      string   `json:"title,omitempty"`
	Session    string   `json:"sessionId,omitempty"`
	Identities []string `json:"sourceAgentIdentities,omitempty"`
	Timestamp  *string  `json:"timestamp,omitempty"`

	Prompt    string   `json:"prompt,omitempty"`
	Thought   string   `json:"thought,omitempty"`
	Response  string   `json:"response,omitempty"`
	Agent     string   `json:"agent,omitempty"`
	Model     string   `json:"model,omitempty"`
	ToolCalls *int64   `json:"amountToolCalls,omitempty"`
	Tools     []string `json:"toolsUsed,omitempty"`

	State      string `json:"state,omitempty"` // a JSON object as text, byte for byte
	Branch     string `json:"branch,omitempty"`
	BaseCommit string `json:"base_commit,omitempty"`

	File string `json:"file,omitempty"` // where an importer read it
	Line int    `json:"line,omitempty"`
}

// RowError is what is wrong with one row; the others go in.
type RowError struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	ID     string `json:"id,omitempty"`
	Reason string `json:"reason"`
}

// MemoryImport is one chunk of rows to import.
type MemoryImport struct {
	Session Session     `json:"session"`
	Rows    []MemoryRow `json:"rows"`
	DryRun  bool        `json:"dry_run,omitempty"` // count, and store nothing
}

// MemoryCounts say what became of the rows.
type MemoryCounts struct {
	Facts          int        `json:"facts"`
	Pins           int        `json:"pins"`
	Links          int        `json:"links"`
	Aliases        int        `json:"aliases"`
	Summaries      int        `json:"summaries"`
	Turns          int        `json:"turns"`
	Checkpoints    int        `json:"checkpoints"`
	Retired        int        `json:"retired"` // of the facts, how many are retired ones
	AlreadyPresent int        `json:"already_present"`
	ChangedIgnored int        `json:"changed_ignored"` // of those present, how many differ from the row
	SkippedRetired int        `json:"skipped_retired"` // retired ones whose text is live here
	Secrets        int        `json:"likely_secrets"`  // rows that likely hold one
	Errors         []RowError `json:"errors"`
}

// Add sums counts of several chunks.
func (n *MemoryCounts) Add(m MemoryCounts) {
	for _, p := range [][2]*int{
		{&n.Facts, &m.Facts}, {&n.Pins, &m.Pins}, {&n.Links, &m.Links}, {&n.Aliases, &m.Aliases}, {&n.Summaries, &m.Summaries},
		{&n.Turns, &m.Turns}, {&n.Checkpoints, &m.Checkpoints}, {&n.Retired, &m.Retired}, {&n.AlreadyPresent, &m.AlreadyPresent},
		{&n.ChangedIgnored, &m.ChangedIgnored}, {&n.SkippedRetired, &m.SkippedRetired}, {&n.Secrets, &m.Secrets},
	} {
		*p[0] += *p[1]
	}
	n.Errors = append(n.Errors, m.Errors...)
}

// MemoryChunks cuts rows into chunks that ImportMemory takes.
func MemoryChunks(rows []MemoryRow) [][]MemoryRow {
	var out [][]MemoryRow
	start, size := 0, 0
	for i := range rows {
		r := &rows[i]
		n := len(r.Text) + len(r.Prompt) + len(r.Thought) + len(r.Response) + len(r.State) + 640*len(r.Replaces) + 1024
		if i > start && (i-start == maxImport/2 || size+n > localBody/8) {
			out = append(out, rows[start:i])
			start, size = i, 0
		}
		size += n
	}
	if start < len(rows) {
		out = append(out, rows[start:])
	}
	return out
}

// ImportMemory stores the rows that are not here yet. What cannot be stored is
// listed and stops nothing else; importing again adds nothing.
func (s *Service) ImportMemory(ctx context.Context, q MemoryImport) (MemoryCounts, *Error) {
	id, bad := s.bindWriter(q.Session)
	if bad != nil {
		return MemoryCounts{}, bad
	}
	if len(q.Rows) > maxImport {
		return MemoryCounts{}, fail(CodeTooLarge, "rows", "send chunks", "%d rows in one call, at most %d are allowed", len(q.Rows), maxImport)
	}
	w := &memoryImport{s: s, author: id.Name, dry: q.DryRun, seen: map[[16]byte]string{}, live: map[[2]string]bool{}, gone: map[[16]byte]bool{}}
	w.counts.Errors = []RowError{}
	err := s.d.Log.View(func(snap oplog.Snapshot) error {
		for i := range q.Rows {
			if err := w.row(snap, q.Rows[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = w.flush(ctx)
	}
	for i := range w.pins {
		if err == nil {
			err = w.pin(ctx, &w.pins[i])
		}
	}
	if err != nil {
		return MemoryCounts{}, s.asError(ctx, err)
	}
	s.log.Info("imported memory", "identity", id.Name, "rows", len(q.Rows), "facts", w.counts.Facts, "present", w.counts.AlreadyPresent, "dry", q.DryRun)
	return w.counts, nil
}

// memoryImport is the work on one chunk.
type memoryImport struct {
	s      *Service
	author string
	dry    bool
	counts MemoryCounts
	seen   map[[16]byte]string // rows of this chunk
	live   map[[2]string]bool  // namespace and text of its live facts
	gone   map[[16]byte]bool   // keys of its retired facts
	ops    []planned
	pins   []MemoryRow
}

// planned is an op to append.
type planned struct {
	oplog.Op
	count  *int // what it counts as; nil for a mark
	joined bool // goes into one Append with the op before
	spare  bool // may be left out when it cannot be made any more
}

// row plans what a row needs. An error is one of the store.
func (w *memoryImport) row(snap oplog.Snapshot, r MemoryRow) error {
	if r.Retired != nil && r.HLC == "" { // without an order it may retire what came later
		w.counts.SkippedRetired++
		return nil
	}
	k := imported.Key{Source: "tally", ID: r.ID, Part: r.Kind}
	if r.Imported != nil {
		k = *r.Imported
	}
	if r.Namespace == "" {
		r.Namespace = w.author
		if r.Kind == RowFact && r.Imported != nil {
			k.Part += "@" + w.author // the same row in two namespaces is two facts
		}
	}
	text := r.Title + "\n" + r.Text + "\n" + r.Prompt + "\n" + r.Thought + "\n" + r.Response + "\n" + r.State
	if found := secrets.Find(text); len(found) > 0 {
		w.counts.Secrets++
		if w.s.d.RefuseSecrets {
			w.bad(&r, fmt.Errorf("it likely holds a secret: %s, %s", found[0].Kind, quote(found[0].Shown)))
			return nil
		}
	}
	op, count, err := w.op(&r, k)
	if err == nil && op.Make == nil && op.Body == nil {
		err = fmt.Errorf("there is no kind of row %s", quote(r.Kind))
	}
	if err != nil {
		w.bad(&r, err)
		return nil
	}
	h := k.Hash()
	content := r.Text + "\x00" + text
	if was, twice := w.seen[h]; twice {
		w.counts.AlreadyPresent++
		if was != content {
			w.counts.ChangedIgnored++
		}
		return nil
	}
	w.seen[h] = content
	here, changed, err := w.here(snap, &r, k)
	if err != nil {
		return err
	}
	if here {
		w.counts.AlreadyPresent++
		if changed {
			w.counts.ChangedIgnored++
		}
	} else if err := w.plan(snap, &r, k, op, count); err != nil {
		return err
	}
	if r.Kind != RowFact {
		return nil
	}
	if r.Pinned && r.Retired == nil {
		w.pins = append(w.pins, r)
	}
	return w.replaces(snap, &r, k, !here)
}

func (w *memoryImport) bad(r *MemoryRow, err error) {
	reason := err.Error()
	if e, ok := refusal.As(err); ok {
		reason = e.Message
	}
	w.counts.Errors = append(w.counts.Errors, RowError{File: r.File, Line: r.Line, ID: clip(r.ID), Reason: clip(reason)})
}

// op makes the op of a row and says what it counts as.
func (w *memoryImport) op(r *MemoryRow, k imported.Key) (oplog.Op, *int, error) {
	switch r.Kind {
	case RowFact:
		op, err := memory.NewAdd(w.author, memory.Fact{
			Namespace: r.Namespace, Text: r.Text, Confidence: r.Confidence, Category: r.Category, Import: k, Author: r.Author, At: r.CreatedAt,
		})
		return op, &w.counts.Facts, err
	case RowLink:
		op, err := memory.NewLink(w.author, r.Namespace, r.From, r.To)
		return op, &w.counts.Links, err
	case RowAlias:
		op, err := memory.NewAlias(w.author, r.Namespace, r.Term, r.Equivalents)
		return op, &w.counts.Aliases, err
	case RowSummary:
		op, err := summary.NewOp(w.author, summary.Summary{
			Title: r.Title, Text: r.Text, Category: r.Category, Identities: append([]string{}, r.Identities...), Session: r.Session, Timestamp: deref(r.Timestamp), Import: k,
		})
		return op, &w.counts.Summaries, err
	case RowTurn:
		t := rawmemory.Turn{
			Session: r.Session, Prompt: r.Prompt, Thought: r.Thought, Response: r.Response, Agent: r.Agent, Model: r.Model, ToolCalls: -1,
			Tools: r.Tools, Identities: append([]string{}, r.Identities...), Timestamp: deref(r.Timestamp), Import: k,
		}
		if r.ToolCalls != nil {
			t.ToolCalls = *r.ToolCalls
		}
		op, err := rawmemory.NewOp(w.author, t)
		return op, &w.counts.Turns, err
	case RowCheckpoint:
		op, err := checkpoint.NewOp(w.author, checkpoint.Checkpoint{
			Namespace: r.Namespace, State: r.State, Branch: r.Branch, BaseCommit: r.BaseCommit, Import: k, Author: r.Author, At: r.CreatedAt,
		})
		return op, &w.counts.Checkpoints, err
	}
	return oplog.Op{}, nil, nil
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// here reports whether a row is in the log already, and whether it differs.
func (w *memoryImport) here(snap oplog.Snapshot, r *MemoryRow, k imported.Key) (here, changed bool, err error) {
	if here, err = hasEntry(snap, r.ID); here || err != nil {
		return here, false, err
	}
	switch r.Kind {
	case RowFact:
		id, ok, err := memory.Imported(snap, k)
		if err != nil || !ok {
			return false, false, err
		}
		rec, err := memory.Get(snap, "id", id)
		if refusal.CodeOf(err) == refusal.NotFound { // erased: it stays gone
			return true, false, nil
		}
		return true, rec.Text != r.Text, err
	case RowSummary:
		_, ok, err := summary.Imported(snap, k)
		return ok, false, err
	case RowTurn:
		_, ok, err := rawmemory.Imported(snap, k)
		return ok, false, err
	case RowLink:
		from, _, err := memory.Links(snap, r.Namespace, r.From, 0)
		return slices.ContainsFunc(from, func(e memory.Edge) bool { return equalNode(e.To, r.To) }), false, err
	case RowAlias:
		list, err := memory.Aliases(snap, r.Namespace, r.Term, 0)
		return slices.ContainsFunc(list, func(a memory.Alias) bool { return slices.Equal(a.Equivalents, r.Equivalents) }), false, err
	case RowCheckpoint:
		_, ok, err := checkpoint.Imported(snap, k)
		return ok, false, err
	}
	return false, false, nil
}

// hasEntry reports whether the entry that an id of this mesh names is here.
func hasEntry(snap oplog.Snapshot, id string) (bool, error) {
	if len(id) != 4+16 || id[3] != '_' || !slices.Contains([]string{"mem", "sum", "chk"}, id[:3]) {
		return false, nil
	}
	b, err := hex.DecodeString(id[4:])
	if err != nil {
		return false, nil
	}
	_, err = snap.ByHash(b)
	if errors.Is(err, oplog.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

func (w *memoryImport) flush(ctx context.Context) error {
	if w.dry {
		for _, p := range w.ops {
			if p.count != nil {
				*p.count++
			}
		}
		return nil
	}
	for len(w.ops) > 0 {
		n, size := 0, 0
		for n < len(w.ops) && (w.ops[n].joined || n < importBatch && (n == 0 || size+len(w.ops[n].Body) <= importBytes)) {
			size += len(w.ops[n].Body) + 64
			n++
		}
		batch := w.ops[:n]
		err := w.append(ctx, batch)
		if refusal.CodeOf(err) == refusal.Conflict {
			batch = slices.DeleteFunc(slices.Clone(batch), func(p planned) bool { return p.spare })
			err = w.append(ctx, batch)
		}
		if err != nil {
			return err
		}
		w.ops = w.ops[n:]
	}
	return nil
}

func (w *memoryImport) append(ctx context.Context, batch []planned) error {
	if len(batch) == 0 {
		return nil
	}
	ops := make([]oplog.Op, len(batch))
	for i := range batch {
		ops[i] = batch[i].Op
	}
	done, err := w.s.d.Log.Append(ctx, ops...)
	if err != nil {
		return err
	}
	for i, d := range done {
		switch count := batch[i].count; {
		case count == nil || d.Replayed && count == &w.counts.Retired:
		case d.Replayed:
			w.counts.AlreadyPresent++
		default:
			*count++
		}
	}
	return nil
}

// pin pins an imported fact unless it is pinned or no longer live.
func (w *memoryImport) pin(ctx context.Context, r *MemoryRow) error {
	pinned, live := false, w.dry
	err := w.s.d.Log.View(func(snap oplog.Snapshot) error {
		copies, err := memory.Copies(snap, r.Namespace, r.Text)
		for _, c := range copies {
			live, pinned = true, pinned || c.Pinned
		}
		return err
	})
	if err != nil || pinned || !live {
		return err
	}
	w.counts.Pins++
	if w.dry {
		return nil
	}
	op, err := memory.NewPin(w.author, r.Namespace, r.Text)
	if err != nil {
		return err
	}
	if _, err = w.s.d.Log.Append(ctx, op); refusal.CodeOf(err) == refusal.NotFound { // forgotten meanwhile
		w.counts.Pins--
		return nil
	}
	return err
}
