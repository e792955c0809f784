package carried

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"tallystick/oplog"
	"tallystick/query/identity"
)

// Log is what entries are carried into. replica.Replica's log with its Append
// satisfies it.
type Log interface {
	Append(ctx context.Context, ops ...oplog.Op) ([]oplog.Appended, error)
	View(fn func(oplog.Snapshot) error) error
	HasBlob(h oplog.Hash) bool
	PutBlob(ctx context.Context, r io.Reader, size int64) (oplog.Hash, int64, error)
}

// Options shape a Bring.
type Options struct {
	Kinds []Kind
	// Own are kinds that belong to the log they are in and mean nothing in
	// another: births, membership, erases.
	Own []string
	// Projections are those of both logs; their BlobNamers tell which content
	// goes with an entry.
	Projections []oplog.Projection
	// Before and After are the labels of this machine in the two meshes.
	Before, After string
	// Progress, when set, hears how many of how many entries are looked at.
	Progress func(done, total int)
}

// Left is how many entries of a kind were not carried, and why.
type Left struct {
	Kind   string `json:"kind"`
	Reason string `json:"reason"`
	Count  int    `json:"count"`
	// Lost says that what they hold is only in the old store.
	Lost bool `json:"-"`
}

// Report says what became of every entry of the old log.
type Report struct {
	Entries int            `json:"entries"`        // in the old log
	Brought map[string]int `json:"brought"`        // by kind
	Left    []Left         `json:"not_brought"`    // what remains
	Own     int            `json:"of_its_own"`     // membership and erases of the old mesh
	Renamed int            `json:"renamed"`        // entries whose author has another label in front
	Blobs   int            `json:"contents"`       // contents of artifacts
	Again   int            `json:"brought_before"` // of Brought: already done by an earlier, interrupted Bring
}

// Total is how many entries were carried.
func (r *Report) Total() (n int) {
	for _, c := range r.Brought {
		n += c
	}
	return n
}

// Complete reports whether nothing would be missed if the old log went: every
// entry is accounted for, and those that were not carried have no content.
func (r *Report) Complete() bool {
	n := r.Total() + r.Own
	for _, l := range r.Left {
		if l.Lost {
			return false
		}
		n += l.Count
	}
	return n == r.Entries
}

func (r *Report) leave(kind, reason string, lost bool) {
	for i := range r.Left {
		if l := &r.Left[i]; l.Kind == kind && l.Reason == reason {
			l.Count++
			return
		}
	}
	r.Left = append(r.Left, Left{Kind: kind, Reason: reason, Count: 1, Lost: lost})
}

// Limits of one append, below those of the log.
const (
	batchOps   = 512
	batchBytes = 512 << 10
)

// Bring carries what users have written from one log into another, in the old
// log's order, each entry once, however often it is repeated. It returns when
// all of it is durable and a later reading has shown it there. An entry that
// the new log does not take is reported and stops nothing; an error means that
// the work is to be begun again, and what was done counts.
func Bring(ctx context.Context, to Log, old *oplog.Log, opt Options) (Report, error) {
	b := &bringer{to: to, old: old, opt: opt, kinds: map[string]*Kind{}, own: map[string]bool{}, at: map[[8]byte]*item{}, ids: map[string]*item{}}
	b.report.Brought, b.report.Left = map[string]int{}, []Left{}
	for i := range opt.Kinds {
		b.kinds[opt.Kinds[i].Name] = &opt.Kinds[i]
	}
	for _, k := range opt.Own {
		b.own[k] = true
	}
	if err := b.survey(); err != nil {
		return b.report, fmt.Errorf("carried: read the old log: %w", err)
	}
	if err := b.carry(ctx); err != nil {
		return b.report, err
	}
	if err := b.check(); err != nil {
		return b.report, err
	}
	slices.SortFunc(b.report.Left, func(x, y Left) int { return strings.Compare(x.Kind+x.Reason, y.Kind+y.Reason) })
	return b.report, nil
}

// item is an old entry and, once it is carried, the entry that carries it.
type item struct {
	ref          oplog.Ref
	kind         *Kind
	author, opID string
	now          oplog.Entry // header only
	id           string      // what it is called now
	renamed      bool        // its author has another label in front
	done         bool
}

type bringer struct {
	to     Log
	old    *oplog.Log
	opt    Options
	kinds  map[string]*Kind
	own    map[string]bool
	names  *names
	order  []oplog.Ref
	at     map[[8]byte]*item
	ids    map[string]*item
	erased map[oplog.Hash]bool
	report Report

	pending []*item
	ops     []oplog.Op
	bytes   int
	looked  int
}

// survey finds what there is.
func (b *bringer) survey() error {
	flat := map[string]bool{}
	b.erased = map[oplog.Hash]bool{}
	err := b.old.View(func(s oplog.Snapshot) error {
		return s.Arrived(0, false, func(_ uint64, e *oplog.Entry) (bool, error) {
			b.order = append(b.order, e.Ref())
			if id, err := identity.Parse(e.Author); err == nil && id.Flat && id.Host == b.opt.Before {
				flat[e.Author] = true
			}
			for _, h := range oplog.ErasedBy(e) {
				b.erased[h] = true
			}
			return true, nil
		})
	})
	if err != nil {
		return err
	}
	slices.SortFunc(b.order, oplog.Ref.Compare)
	if b.opt.Before != b.opt.After {
		b.names = &names{before: b.opt.Before, after: b.opt.After, flat: flat}
	}
	asides, err := b.old.Aside(1 << 30)
	if err != nil {
		return err
	}
	for _, a := range asides {
		state := "in quarantine: "
		if a.Held {
			state = "held: "
		}
		b.report.leave(a.Kind, state+a.Reason, true)
	}
	b.report.Entries = len(b.order) + len(asides)
	return nil
}

func (b *bringer) carry(ctx context.Context) error {
	const page = 1024
	for refs := range slices.Chunk(b.order, page) {
		err := b.old.View(func(s oplog.Snapshot) error {
			for _, ref := range refs {
				e, err := s.Entry(ref)
				if err != nil {
					return fmt.Errorf("carried: entry of the old log: %w", err)
				}
				if err := b.take(ctx, &e); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return b.flush(ctx)
}

// take puts one old entry into the batch, or says why not.
func (b *bringer) take(ctx context.Context, e *oplog.Entry) error {
	b.looked++
	if b.opt.Progress != nil && b.looked%256 == 0 {
		b.opt.Progress(b.looked, b.report.Entries)
	}
	kind := b.kinds[e.Kind]
	switch {
	case b.own[e.Kind]:
		b.report.Own++
		return nil
	case !e.Present() || b.erased[e.Hash]:
		b.report.leave(e.Kind, "erased", false)
		return nil
	case kind == nil:
		b.report.leave(e.Kind, "this program does not know the kind", true)
		return nil
	}
	switch bad, err := b.contents(ctx, e); {
	case err != nil:
		return err
	case bad != "":
		b.report.leave(e.Kind, bad, true)
		return nil
	}
	it := &item{ref: e.Ref(), kind: kind, author: b.names.now(e.Author), opID: OpID(e)}
	it.renamed = it.author != e.Author
	b.at[it.ref.Tag()] = it
	if kind.ID != nil {
		b.ids[kind.ID(e)] = it
	}
	entry := *e
	b.pending = append(b.pending, it)
	b.ops = append(b.ops, oplog.Op{
		Kind: e.Kind, Author: it.author, Version: e.Version, OpID: it.opID, Body: e.Body, // Body until Make gives the right one
		Make: b.body(&entry, kind),
	})
	if b.bytes += len(e.Body) + 2*len(it.opID); b.bytes >= batchBytes || len(b.ops) >= batchOps {
		return b.flush(ctx)
	}
	return nil
}

// contents copies what an entry names and is kept apart from it.
func (b *bringer) contents(ctx context.Context, e *oplog.Entry) (bad string, err error) {
	for _, p := range b.opt.Projections {
		n, ok := p.(oplog.BlobNamer)
		if !ok || !slices.Contains(p.Kinds(), e.Kind) {
			continue
		}
		for _, blob := range n.Blobs(e) {
			if b.to.HasBlob(blob.Hash) {
				continue
			}
			if !b.old.HasBlob(blob.Hash) {
				return "its content is not here", nil
			}
			hash, _, err := b.to.PutBlob(ctx, &blobReader{log: b.old, hash: blob.Hash}, blob.Size)
			var limit *oplog.LimitError
			switch {
			case errors.As(err, &limit) || errors.Is(err, io.ErrUnexpectedEOF):
				return "its content has another size than it says", nil
			case err != nil:
				return "", fmt.Errorf("carried: copy content %s: %w", blob.Hash, err)
			case hash != blob.Hash:
				return "its content is damaged", nil
			}
			b.report.Blobs++
		}
	}
	return "", nil
}

// flush appends the batch. When the log refuses it, each entry is tried alone,
// so that one that is not taken costs the others nothing.
func (b *bringer) flush(ctx context.Context) error {
	items, ops := b.pending, b.ops
	b.pending, b.ops, b.bytes = nil, nil, 0
	if len(ops) == 0 {
		return nil
	}
	res, err := b.to.Append(ctx, ops...)
	if err == nil {
		return b.note(items, res)
	}
	if refusalOf(err) == "" {
		return fmt.Errorf("carried: append: %w", err)
	}
	for i := range ops {
		res, err := b.to.Append(ctx, ops[i])
		if err == nil {
			err = b.note(items[i:i+1], res)
		} else if why := refusalOf(err); why != "" {
			b.report.leave(ops[i].Kind, "refused: "+why, true)
			err = nil
		}
		if err != nil {
			return fmt.Errorf("carried: append: %w", err)
		}
	}
	return nil
}

// refusalOf says why the log does not take an op, empty when the error is not
// about the op.
func refusalOf(err error) string {
	var q *oplog.QuarantineError
	var limit *oplog.LimitError
	switch {
	case errors.As(err, &q):
		return q.Reason
	case errors.As(err, &limit):
		return limit.Error()
	case errors.Is(err, oplog.ErrNoBlob):
		return "its content is not here"
	}
	return ""
}

// note keeps what a batch has become.
func (b *bringer) note(items []*item, res []oplog.Appended) error {
	return b.to.View(func(s oplog.Snapshot) error {
		for i, it := range items {
			e, err := s.Entry(res[i].Ref)
			if err != nil {
				return fmt.Errorf("carried: read back: %w", err)
			}
			it.now, it.done = oplog.Entry{Header: e.Header, Hash: e.Hash}, true
			if it.kind.ID != nil {
				it.id = it.kind.ID(&e)
			}
			b.report.Brought[e.Kind]++
			if res[i].Replayed {
				b.report.Again++
			}
			if it.renamed {
				b.report.Renamed++
			}
		}
		return nil
	})
}

// check reads every carried entry once more.
func (b *bringer) check() error {
	missing := 0
	err := b.to.View(func(s oplog.Snapshot) error {
		for _, it := range b.at {
			if !it.done {
				continue
			}
			e, err := s.ByOp(it.author, it.opID)
			if errors.Is(err, oplog.ErrNotFound) {
				missing++
				continue
			}
			if err != nil {
				return err
			}
			switch n, err := s.Arrival(e.Ref()); {
			case err != nil:
				return err
			case n == 0 || e.Ref() != it.now.Ref():
				missing++
			}
		}
		return nil
	})
	if err == nil && missing > 0 {
		err = fmt.Errorf("carried: a later reading does not show %d of %d entries", missing, b.report.Total())
	}
	return err
}
