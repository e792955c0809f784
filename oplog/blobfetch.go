package oplog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// The receiving side of blobs: chunks of content that entries name, as they
// come from peers, and what is left behind by puts and fetches that ended
// otherwise than well.

// ChunkResult says what became of a chunk.
type ChunkResult struct {
	Have  uint32 // chunks that are here now, from the first on
	Whole bool   // all are here and the content was checked
}

// PutChunk takes in one chunk of wanted content, whose size is as the giver
// says. Chunks are taken in order; one out of order changes nothing, and the
// result says which is due. With the last one the hash is checked: content
// that is wrong is dropped and the answer is ErrBlobHash.
func (l *Log) PutChunk(ctx context.Context, h Hash, size int64, index uint32, data []byte) (ChunkResult, error) {
	if size <= 0 || size > MaxBlob || index >= Chunks(size) || len(data) != chunkLen(size, index) {
		return ChunkResult{}, fmt.Errorf("%w: chunk %d of %d bytes, blob of %d", ErrBadChunk, index, len(data), size)
	}
	j := &chunkJob{waiter: newWaiter(), hash: h, sizeOf: size, index: index, data: data}
	if err := l.submit(ctx, j); err != nil {
		return ChunkResult{}, err
	}
	if err := l.wait(ctx, j.waiter); err != nil {
		return ChunkResult{}, err
	}
	if j.res.Whole || j.m.state != blobPartial || j.res.Have < Chunks(j.m.size) {
		return j.res, nil
	}
	return l.settleBlob(ctx, h, j.m)
}

type chunkJob struct {
	waiter
	hash   Hash
	sizeOf int64
	index  uint32
	data   []byte

	m   blobMeta // as this job leaves it
	res ChunkResult
}

func (j *chunkJob) size() int { return len(j.data) }
func (j *chunkJob) accept()   {}

func (j *chunkJob) apply(g *group) (bool, error) {
	m, err := getBlob(g.b.get, &j.hash)
	switch {
	case errors.Is(err, ErrNotFound):
		return false, fmt.Errorf("%w: %s", ErrBlobUnwanted, j.hash)
	case err != nil:
		return false, fatal(err)
	}
	if m.state == blobPartial && m.size != j.sizeOf {
		// Two givers disagree. The hash will tell who is right.
		g.dropChunks(m.id, m.have)
		m = blobMeta{state: blobWanted, size: j.sizeOf}
		g.setBlob(&j.hash, m)
	}
	if m.state != blobWhole && j.index == m.have {
		if m.state == blobWanted {
			if m.id, err = g.newBlobID(); err != nil {
				return false, err
			}
			m.state, m.size = blobPartial, j.sizeOf
		}
		g.b.set(chunkKey(m.id, j.index), j.data)
		m.have++
		g.setBlob(&j.hash, m)
	}
	j.m, j.res = m, ChunkResult{Have: m.have, Whole: m.state == blobWhole}
	return false, nil
}

// settleBlob checks content whose last chunk is here.
func (l *Log) settleBlob(ctx context.Context, h Hash, m blobMeta) (ChunkResult, error) {
	sum := sha256.New()
	for i := range m.have {
		b, err := l.chunk(m.id, i)
		if err != nil {
			return ChunkResult{}, fmt.Errorf("oplog: check content: %w", err)
		}
		sum.Write(b)
	}
	j := &settleJob{waiter: newWaiter(), hash: h, id: m.id, good: bytes.Equal(sum.Sum(nil), h[:])}
	if err := l.submit(ctx, j); err != nil {
		return ChunkResult{}, err
	}
	if err := l.wait(ctx, j.waiter); err != nil {
		return ChunkResult{}, err
	}
	if !j.good {
		return ChunkResult{}, fmt.Errorf("%w: %s", ErrBlobHash, h)
	}
	return ChunkResult{Have: m.have, Whole: true}, nil
}

type settleJob struct {
	waiter
	hash Hash
	id   uint64
	good bool
}

func (j *settleJob) size() int { return 0 }
func (j *settleJob) accept()   {}

func (j *settleJob) apply(g *group) (bool, error) {
	m, err := getBlob(g.b.get, &j.hash)
	if errors.Is(err, ErrNotFound) {
		return false, fmt.Errorf("%w: %s", ErrBlobUnwanted, j.hash)
	}
	if err != nil {
		return false, fatal(err)
	}
	if m.state == blobPartial && m.id == j.id {
		g.settle(&j.hash, m, j.good)
	}
	return false, nil
}

func (g *group) settle(h *Hash, m blobMeta, good bool) {
	if good {
		m.state = blobWhole
	} else {
		g.dropChunks(m.id, m.have)
		m = blobMeta{state: blobWanted, size: m.size}
	}
	g.setBlob(h, m)
}

func uploadRecord(state byte, chunks uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{state}, chunks)
}

func parseUpload(v []byte) (state byte, chunks uint32, err error) {
	if len(v) != 5 || v[0] > uploadGarbage {
		return 0, 0, fmt.Errorf("%w: upload record", ErrDamaged)
	}
	return v[0], binary.BigEndian.Uint32(v[1:]), nil
}

// sweep drops the chunks of erased content.
func (l *Log) sweep(ctx context.Context) error {
	j := &sweepJob{newWaiter()}
	if err := l.submit(ctx, j); err != nil {
		return err
	}
	return l.wait(ctx, j.waiter)
}

type sweepJob struct{ waiter }

func (j *sweepJob) size() int                             { return 0 }
func (j *sweepJob) accept()                               {}
func (j *sweepJob) apply(g *group) (more bool, err error) { return g.sweep(false) }

// sweep drops garbage, and with running also what puts left that a stop of the
// process ended. more says that the group is full.
func (g *group) sweep(running bool) (more bool, err error) {
	type run struct {
		id uint64
		n  uint32
	}
	var runs []run
	err = g.b.scan([]byte{tabUpload}, nil, false, func(key, value []byte) (bool, error) {
		state, n, err := parseUpload(value)
		if err != nil || len(key) != 9 {
			return false, errors.Join(err, fmt.Errorf("%w: upload record", ErrDamaged))
		}
		if state == uploadGarbage || running {
			runs = append(runs, run{binary.BigEndian.Uint64(key[1:]), n})
		}
		return true, nil
	})
	if err != nil {
		return false, fatal(err)
	}
	for _, r := range runs {
		if g.b.full() {
			return true, nil
		}
		g.dropChunks(r.id, r.n)
		g.b.del(uploadKey(r.id))
	}
	return false, nil
}

// loadBlobs runs at open. It drops what puts left that a stop ended, content
// that no entry names, and finds what is missing. Content whose last chunk
// came right before a stop is checked now.
func (l *Log) loadBlobs() error {
	snap := l.db.snapshot()
	defer snap.release()
	named := map[Hash]Ref{}
	err := snap.scan([]byte{tabName}, nil, false, func(key, _ []byte) (bool, error) {
		if len(key) != 1+len(Hash{})+RefSize {
			return false, fmt.Errorf("%w: name of a blob", ErrDamaged)
		}
		h := Hash(key[1:])
		if _, ok := named[h]; !ok {
			named[h] = Ref(key[1+len(Hash{}):])
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	var unsettled []Hash
	g := l.newGroup(nil)
	defer func() { g.b.release() }()
	err = snap.scan([]byte{tabBlob}, nil, false, func(key, value []byte) (bool, error) {
		if len(key) != 1+len(Hash{}) {
			return false, fmt.Errorf("%w: blob record", ErrDamaged)
		}
		m, err := parseBlobMeta(value)
		if err != nil {
			return false, err
		}
		h := Hash(key[1:])
		ref, ok := named[h]
		switch {
		case !ok:
			g.b.del(key)
			if m.have > 0 {
				g.b.set(uploadKey(m.id), uploadRecord(uploadGarbage, m.have))
			}
		case m.state == blobPartial && m.have == Chunks(m.size):
			unsettled = append(unsettled, h)
		case m.state != blobWhole:
			l.missing[h] = MissingBlob{Hash: h, Size: m.size, Have: m.have, Ref: ref}
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	for _, h := range unsettled {
		m, err := getBlob(g.b.get, &h)
		if err != nil {
			return err
		}
		sum := sha256.New()
		for i := range m.have {
			b, err := snap.get(chunkKey(m.id, i))
			if err != nil {
				return fmt.Errorf("oplog: check content: %w", err)
			}
			sum.Write(b)
		}
		good := bytes.Equal(sum.Sum(nil), h[:])
		if g.settle(&h, m, good); !good {
			l.missing[h] = MissingBlob{Hash: h, Size: m.size, Ref: named[h]}
		}
	}
	for {
		more, err := g.sweep(true)
		if err != nil {
			return err
		}
		if g.b.items.Len() > 0 {
			if err := l.db.commit(g.b); err != nil {
				return fmt.Errorf("oplog: sweep blobs: %w", err)
			}
		}
		if !more {
			return nil
		}
		g.b.release()
		g = l.newGroup(nil)
	}
}
