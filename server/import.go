package server

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"tallystick/oplog"
	"tallystick/query/claim"
	"tallystick/query/imported"
	"tallystick/query/logstream"
	"tallystick/query/refusal"
)

// SourceBeads is the source in the keys of imported beads rows.
const SourceBeads = "beads"

// The parts of an imported row. The key (source, id, part) is known mesh-wide,
// so that importing again anywhere adds nothing.
const (
	partRequest = "request"
	partAck     = "ack"
	partSummary = "summary"
	partReply   = "reply:" // and the comment's id
)

const (
	roomImport   = "delegation"
	maxImport    = 512     // rows in one chunk
	importBatch  = 512     // ops in one append
	importBytes  = 768_000 // bodies in one append
	importStream = "project/beads"
)

// ImportRequest is one chunk of rows to import.
type ImportRequest struct {
	Session Session    `json:"session"`
	Stream  string     `json:"stream,omitempty"` // default project/<project of the session>
	Rows    []BeadsRow `json:"rows"`
	DryRun  bool       `json:"dry_run,omitempty"` // count, and store nothing
}

// ImportCounts say what became of the parts of the rows: stored now, or here
// already.
type ImportCounts struct {
	Requests       int `json:"requests"`
	Acks           int `json:"acks"`
	Replies        int `json:"replies"`
	Summaries      int `json:"summaries"`
	AlreadyPresent int `json:"already_present"`
	ChangedIgnored int `json:"changed_ignored"` // of those present, how many differ from the row
}

// Add sums counts of several chunks.
func (n *ImportCounts) Add(m ImportCounts) {
	n.Requests += m.Requests
	n.Acks += m.Acks
	n.Replies += m.Replies
	n.Summaries += m.Summaries
	n.AlreadyPresent += m.AlreadyPresent
	n.ChangedIgnored += m.ChangedIgnored
}

// BeadsChunks cuts rows into chunks that ImportBeads takes.
func BeadsChunks(rows []BeadsRow) [][]BeadsRow {
	var out [][]BeadsRow
	start, size := 0, 0
	for i := range rows {
		n := rows[i].size()
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

func (r *BeadsRow) size() int {
	n := len(r.Title) + len(r.Body) + 512
	for i := range r.Replies {
		n += len(r.Replies[i].Text) + 256
	}
	if r.Summary != nil {
		n += len(r.Summary.Text)
	}
	return n
}

// importing is the work on one chunk.
type importing struct {
	s      *Service
	author string
	stream string
	dry    bool
	counts ImportCounts
	refs   map[string]target // by row id
	ops    []oplog.Op
	tally  []*int // what each op counts as when it is new
	bytes  int
}

// target is an imported request as it is stored here.
type target struct {
	ref          oplog.Ref
	hash         oplog.Hash
	stream, room string
}

// ImportBeads stores the parts of the rows that are not here yet: requests
// first, then what refers to them. It may stop half way; importing again
// completes it.
func (s *Service) ImportBeads(ctx context.Context, q ImportRequest) (ImportCounts, *Error) {
	id, bad := s.bindWriter(q.Session)
	if bad != nil {
		return ImportCounts{}, bad
	}
	if len(q.Rows) > maxImport {
		return ImportCounts{}, fail(CodeTooLarge, "rows", "send chunks", "%d rows in one call, at most %d are allowed", len(q.Rows), maxImport)
	}
	w := &importing{s: s, author: id.Name, stream: strings.TrimSpace(q.Stream), dry: q.DryRun, refs: map[string]target{}}
	switch {
	case w.stream != "":
	case id.Project != "":
		w.stream = "project/" + id.Project
	default:
		w.stream = importStream
	}
	if err := w.run(ctx, q.Rows); err != nil {
		return ImportCounts{}, s.asError(ctx, err)
	}
	if !q.DryRun {
		s.mintAfter(ctx, id)
	}
	s.log.Info("imported", "identity", id.Name, "rows", len(q.Rows), "requests", w.counts.Requests, "present", w.counts.AlreadyPresent, "dry", q.DryRun)
	return w.counts, nil
}

func (w *importing) run(ctx context.Context, rows []BeadsRow) error {
	missing := make([]*BeadsRow, 0, len(rows))
	err := w.s.d.Log.View(func(snap oplog.Snapshot) error {
		for i := range rows {
			here, err := w.present(snap, &rows[i])
			if err != nil {
				return err
			}
			if !here {
				missing = append(missing, &rows[i])
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, r := range missing {
		op, err := w.request(r)
		if err != nil {
			return atLine(r.Line, err)
		}
		if err := w.add(ctx, op, key(r.ID, partRequest), &w.counts.Requests); err != nil {
			return err
		}
	}
	if err := w.flush(ctx); err != nil {
		return err
	}
	if !w.dry {
		if err := w.resolve(missing); err != nil {
			return err
		}
	}
	for i := range rows {
		if err := w.rest(ctx, &rows[i]); err != nil {
			return atLine(rows[i].Line, err)
		}
	}
	return w.flush(ctx)
}

// atLine names the line of what the domain refuses.
func atLine(line int, err error) error {
	var r *refusal.Error
	if !errors.As(err, &r) {
		return fmt.Errorf("line %d: %w", line, err)
	}
	e := *r
	e.Message = fmt.Sprintf("line %d: %s", line, r.Message)
	return &e
}

func key(id, part string) imported.Key { return imported.Key{Source: SourceBeads, ID: id, Part: part} }

// present looks for the request of a row and notes where it is.
func (w *importing) present(snap oplog.Snapshot, r *BeadsRow) (bool, error) {
	if !token(r.ID) {
		return false, invalid("rows", "parse the file with this program", "line %d has no usable id", r.Line)
	}
	ref, ok, err := logstream.Imported(snap, key(r.ID, partRequest))
	if err != nil || !ok {
		return false, err
	}
	raw, err := w.note(snap, r.ID, ref)
	if err != nil {
		return false, err
	}
	w.counts.AlreadyPresent++
	was := metaOf(raw.Metadata)
	if string(raw.Body) != r.Body || string(raw.To) != r.Assignee || was.Title != r.Title ||
		was.Imported.Author != r.Author || was.Imported.At != r.CreatedAt {
		w.counts.ChangedIgnored++
	}
	return true, nil
}

func (w *importing) note(snap oplog.Snapshot, id string, ref oplog.Ref) (logstream.Raw, error) {
	e, err := snap.Entry(ref)
	if err != nil {
		return logstream.Raw{}, fmt.Errorf("imported request: %w", err)
	}
	raw, err := logstream.Decode(&e)
	if err != nil {
		return logstream.Raw{}, err
	}
	w.refs[id] = target{ref: ref, hash: e.Hash, stream: string(raw.Stream), room: string(raw.Room)}
	return raw, nil
}

// resolve finds the requests that were just appended.
func (w *importing) resolve(rows []*BeadsRow) error {
	return w.s.d.Log.View(func(snap oplog.Snapshot) error {
		for _, r := range rows {
			ref, ok, err := logstream.Imported(snap, key(r.ID, partRequest))
			if err != nil {
				return err
			}
			if !ok {
				return fmt.Errorf("line %d: the request is not visible after its append", r.Line)
			}
			if _, err := w.note(snap, r.ID, ref); err != nil {
				return err
			}
		}
		return nil
	})
}

// importMeta is the metadata of imported entries.
type importMeta struct {
	Title    string       `json:"title,omitempty"`
	Imported importedMeta `json:"imported"`
}

type importedMeta struct {
	Source  string `json:"source"`
	ID      string `json:"id"`
	Comment string `json:"comment,omitempty"`
	Author  string `json:"author,omitempty"`
	At      string `json:"at,omitempty"`
	Status  string `json:"status,omitempty"`
}

func metaOf(raw []byte) (m importMeta) {
	if json.Unmarshal(raw, &m) != nil {
		return importMeta{}
	}
	return m
}

func (w *importing) request(r *BeadsRow) (oplog.Op, error) {
	return logstream.NewOp(w.author, logstream.Event{
		Type: logstream.TypeRequest, Stream: w.stream, Room: roomImport, To: r.Assignee, Status: logstream.StatusOpen, Body: r.Body,
		Metadata: encode(importMeta{Title: r.Title, Imported: importedMeta{Source: SourceBeads, ID: r.ID, Author: r.Author, At: r.CreatedAt, Status: r.Status}}),
		Import:   key(r.ID, partRequest),
	})
}

// rest stores what refers to the request: ack, replies, summary.
func (w *importing) rest(ctx context.Context, r *BeadsRow) error {
	t := w.refs[r.ID]
	base := logstream.Event{Stream: t.stream, Room: t.room, Correlation: logstream.EventID(t.ref)}
	if r.Ack != nil {
		ev := base
		ev.Type, ev.Status, ev.Import = logstream.TypeAck, logstream.StatusApplied, key(r.ID, partAck)
		ev.Metadata = encode(importMeta{Imported: importedMeta{Source: SourceBeads, ID: r.ID, At: r.Ack.At}})
		err := w.part(ctx, ev.Import, &w.counts.Acks,
			func(raw *logstream.Raw) bool { return metaOf(raw.Metadata).Imported.At == r.Ack.At },
			func() (oplog.Op, error) {
				task := claim.TaskKey("", "", key(r.ID, partRequest), t.hash)
				return logstream.NewAckOp(w.author, logstream.Ack{Event: ev, Task: task, Of: t.ref})
			})
		if err != nil {
			return err
		}
	}
	for _, c := range r.Replies {
		err := w.part(ctx, key(r.ID, partReply+c.ID), &w.counts.Replies,
			func(raw *logstream.Raw) bool { return string(raw.Body) == c.Text },
			func() (oplog.Op, error) { return w.reply(r, t, &c) })
		if err != nil {
			return err
		}
	}
	if r.Summary != nil {
		return w.summary(ctx, r)
	}
	return nil
}

func (w *importing) reply(r *BeadsRow, t target, c *BeadsComment) (oplog.Op, error) {
	if t.ref.IsZero() {
		t.stream, t.room = w.stream, roomImport
	}
	return logstream.NewOp(w.author, logstream.Event{
		Type: "task.reply", Stream: t.stream, Room: t.room, Correlation: logstream.EventID(t.ref), Body: c.Text,
		Metadata: encode(importMeta{Imported: importedMeta{Source: SourceBeads, ID: r.ID, Comment: c.ID, Author: c.Author, At: c.At}}),
		Import:   key(r.ID, partReply+c.ID),
	})
}

// part stores one event or ack unless it is here.
func (w *importing) part(ctx context.Context, k imported.Key, count *int, same func(*logstream.Raw) bool, make func() (oplog.Op, error)) error {
	here := false
	err := w.s.d.Log.View(func(snap oplog.Snapshot) error {
		ref, ok, err := logstream.Imported(snap, k)
		if err != nil || !ok {
			return err
		}
		e, err := snap.Entry(ref)
		if err != nil {
			return fmt.Errorf("imported entry: %w", err)
		}
		raw, err := logstream.Decode(&e)
		if err != nil {
			return err
		}
		here = true
		w.counts.AlreadyPresent++
		if !same(&raw) {
			w.counts.ChangedIgnored++
		}
		return nil
	})
	if err != nil || here {
		return err
	}
	if w.dry {
		*count++
		return nil
	}
	op, err := make()
	if err != nil {
		return err
	}
	return w.add(ctx, op, k, count)
}

// add puts an op in the batch, which is written when it is full. A dry run
// only counts it.
func (w *importing) add(ctx context.Context, op oplog.Op, k imported.Key, count *int) error {
	if w.dry {
		*count++
		return nil
	}
	if len(w.ops) == importBatch || w.bytes+len(op.Body) > importBytes {
		if err := w.flush(ctx); err != nil {
			return err
		}
	}
	h := k.Hash()
	op.OpID = "import/" + hex.EncodeToString(h[:])
	w.ops = append(w.ops, op)
	w.tally = append(w.tally, count)
	w.bytes += len(op.Body) + 64
	return nil
}

func (w *importing) flush(ctx context.Context) error {
	if len(w.ops) == 0 {
		return nil
	}
	done, err := w.s.d.Log.Append(ctx, w.ops...)
	if err != nil {
		return err
	}
	for i, d := range done {
		if d.Replayed {
			w.counts.AlreadyPresent++
		} else {
			*w.tally[i]++
		}
	}
	w.ops, w.tally, w.bytes = w.ops[:0], w.tally[:0], 0
	return nil
}
