package carried

import (
	"errors"
	"fmt"
	"io"

	"tallystick/hlc"
	"tallystick/oplog"
)

// body gives the payload of a carrying entry in the writer, where those that
// were written right before it can be found.
func (b *bringer) body(e *oplog.Entry, kind *Kind) func(oplog.Views, hlc.Timestamp) ([]byte, error) {
	return func(views oplog.Views, _ hlc.Timestamp) ([]byte, error) {
		r := &resolver{b: b}
		r.found, _ = views.(oplog.Results)
		m := &Map{find: r.find, called: r.called, names: b.names}
		body, err := kind.Body(e, m)
		if err == nil {
			err = r.err
		}
		return body, err
	}
}

// resolver finds carrying entries: those of earlier batches in memory, those of
// the batch that is being written by their op id.
type resolver struct {
	b     *bringer
	found oplog.Results
	err   error
}

func (r *resolver) entry(it *item) (oplog.Entry, bool) {
	switch {
	case it == nil:
		return oplog.Entry{}, false
	case it.done:
		return it.now, true
	case r.found == nil:
		return oplog.Entry{}, false
	}
	e, err := r.found.ByOp(it.author, it.opID)
	if err != nil && !errors.Is(err, oplog.ErrNotFound) {
		r.err = err
	}
	return e, err == nil
}

func (r *resolver) find(tag [8]byte) (oplog.Entry, bool) { return r.entry(r.b.at[tag]) }

func (r *resolver) called(id string) (string, bool) {
	it := r.b.ids[id]
	if it == nil || it.kind.ID == nil {
		return "", false
	}
	if it.done {
		return it.id, true
	}
	e, ok := r.entry(it)
	if !ok {
		return "", false
	}
	return it.kind.ID(&e), true
}

// blobReader reads content out of a log, chunk by chunk.
type blobReader struct {
	log   *oplog.Log
	hash  oplog.Hash
	index uint32
	rest  []byte
	size  int64
}

func (r *blobReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.index > 0 && r.index >= oplog.Chunks(r.size) {
			return 0, io.EOF
		}
		data, size, err := r.log.BlobChunk(r.hash, r.index)
		if err != nil {
			return 0, fmt.Errorf("carried: read content %s: %w", r.hash, err)
		}
		r.rest, r.size = data, size
		r.index++
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}
