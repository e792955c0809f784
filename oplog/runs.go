package oplog

import (
	"bytes"
	"fmt"

	"github.com/dgraph-io/badger/v4"
)

const (
	maxRuns  = 4 // lanes whose entries are read by cursor at one time
	runStart = 4 // entries of a lane, one behind the other, before a cursor is worth opening
)

// cursorer is a snapshot that can walk through keys in their order.
type cursorer interface {
	cursor(prefix, start []byte) kvCursor
}

// kvCursor walks through the keys of a prefix.
type kvCursor interface {
	// take gives the value of key if the cursor stands there, and moves on.
	take(key []byte) (value []byte, ok bool, err error)
	close()
}

// runReader reads entries one by one. What one lane wrote arrives in the order of
// its sequence, so whoever reads by arrival reads runs of neighbours; these come
// from a cursor, at a quarter of the price of a point read. Whatever the cursor
// does not show, for whatever reason, is asked for by its key: that read has the
// last word.
type runReader struct {
	kv   kvSnapshot
	runs []*run
}

type run struct {
	lane   uint32
	next   uint64 // the sequence that would go on with it
	length int
	cur    kvCursor
}

func (r *runReader) entry(p place) ([]byte, error) {
	key := seqKey(tabEntry, p.lane, p.seq)
	n := r.of(p)
	if n.cur != nil {
		if v, ok, err := n.cur.take(key); ok && err == nil {
			return v, nil
		}
		n.stop()
	}
	return r.kv.get(key)
}

// of gives the run that a place belongs to, with a cursor if it is long enough.
func (r *runReader) of(p place) *run {
	var n *run
	for i, have := range r.runs {
		if have.lane == p.lane {
			n = have
			copy(r.runs[i:], r.runs[i+1:]) // the last is the one used last
			r.runs[len(r.runs)-1] = n
			break
		}
	}
	switch {
	case n != nil:
	case len(r.runs) < maxRuns:
		n = &run{lane: p.lane}
		r.runs = append(r.runs, n)
	default:
		n = r.runs[0]
		n.stop()
		copy(r.runs, r.runs[1:])
		*n = run{lane: p.lane}
		r.runs[len(r.runs)-1] = n
	}
	if n.next != p.seq {
		n.stop()
	}
	n.next, n.length = p.seq+1, n.length+1
	if n.length > runStart && n.cur == nil {
		if kv, ok := r.kv.(cursorer); ok {
			key := seqKey(tabEntry, p.lane, p.seq)
			n.cur = kv.cursor(key[:5], key)
		}
	}
	return n
}

func (n *run) stop() {
	if n.cur != nil {
		n.cur.close()
	}
	n.cur, n.length = nil, 0
}

func (r *runReader) close() {
	for _, n := range r.runs {
		n.stop()
	}
}

func (s badgerSnapshot) cursor(prefix, start []byte) kvCursor {
	opts := badger.DefaultIteratorOptions
	opts.Prefix = prefix
	opts.PrefetchValues = false // see scan
	it := s.txn.NewIterator(opts)
	it.Seek(start)
	return badgerCursor{it}
}

type badgerCursor struct{ it *badger.Iterator }

func (c badgerCursor) take(key []byte) (value []byte, ok bool, err error) {
	if !c.it.Valid() {
		return nil, false, nil
	}
	item := c.it.Item()
	if !bytes.Equal(item.Key(), key) {
		return nil, false, nil
	}
	// The item is used again for the next key, what it holds with it.
	err = item.Value(func(v []byte) error {
		value = bytes.Clone(v)
		return nil
	})
	if err != nil {
		return nil, false, fmt.Errorf("oplog: read: %w", err)
	}
	c.it.Next()
	return value, true, nil
}

func (c badgerCursor) close() { c.it.Close() }
