package oplog

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
)

// PutBlob stores content and returns its hash when it is durable. size is what
// r must give; -1 takes what comes, up to MaxBlob. Content that no entry names
// is dropped when the log is next opened, or by DropBlob. On an error nothing
// of it is kept.
func (l *Log) PutBlob(ctx context.Context, r io.Reader, size int64) (Hash, int64, error) {
	if size > MaxBlob {
		return Hash{}, 0, &LimitError{Field: "content", Size: int(size), Limit: MaxBlob}
	}
	p := &putter{l: l, sum: sha256.New()}
	if err := p.read(ctx, r, size); err != nil {
		return Hash{}, 0, errors.Join(err, p.abandon(ctx))
	}
	j := &finishJob{waiter: newWaiter(), sizeOf: p.size, id: p.id, staged: p.chunks, last: p.last}
	p.sum.Sum(j.hash[:0])
	err := l.submit(ctx, j)
	if err == nil {
		err = l.wait(ctx, j.waiter)
	}
	if err != nil {
		return Hash{}, 0, errors.Join(err, p.abandon(ctx))
	}
	return j.hash, p.size, nil
}

// putter is a put under way: all chunks but the last are staged as they come.
type putter struct {
	l      *Log
	sum    hash.Hash
	id     uint64
	chunks uint32 // staged
	last   []byte
	size   int64
}

func (p *putter) read(ctx context.Context, r io.Reader, size int64) error {
	for {
		buf := make([]byte, ChunkSize)
		n, err := io.ReadFull(r, buf)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("oplog: read content: %w", err)
		}
		if n > 0 {
			if p.last != nil {
				if err := p.stage(ctx); err != nil {
					return err
				}
			}
			p.last = buf[:n]
			p.sum.Write(p.last)
			p.size += int64(n)
			if limit := size; p.size > MaxBlob || limit >= 0 && p.size > limit {
				if limit < 0 {
					limit = MaxBlob
				}
				return &LimitError{Field: "content", Size: int(p.size), Limit: int(limit)}
			}
		}
		if err != nil {
			break
		}
	}
	switch {
	case size >= 0 && p.size != size:
		return fmt.Errorf("oplog: content has %d bytes, %d were announced: %w", p.size, size, io.ErrUnexpectedEOF)
	case p.size == 0:
		return errors.New("oplog: content is empty")
	}
	return nil
}

func (p *putter) stage(ctx context.Context) error {
	j := &stageJob{waiter: newWaiter(), id: p.id, index: p.chunks, data: p.last}
	if err := p.l.submit(ctx, j); err != nil {
		return err
	}
	if err := p.l.wait(ctx, j.waiter); err != nil {
		return err
	}
	p.id = j.got
	p.chunks++
	return nil
}

// abandon drops what a put has staged.
func (p *putter) abandon(ctx context.Context) error {
	if p.id == 0 {
		return nil
	}
	j := &dropJob{waiter: newWaiter(), id: p.id}
	ctx = context.WithoutCancel(ctx)
	if err := p.l.submit(ctx, j); err != nil {
		return nil // closed: the next open sweeps
	}
	return p.l.wait(ctx, j.waiter)
}

// stageJob stores a chunk of content whose hash is not known yet.
type stageJob struct {
	waiter
	id    uint64 // 0 draws one
	index uint32
	data  []byte
	got   uint64
}

func (j *stageJob) size() int { return len(j.data) }
func (j *stageJob) accept()   {}

func (j *stageJob) apply(g *group) (bool, error) {
	j.got = j.id
	if j.got == 0 {
		id, err := g.newBlobID()
		if err != nil {
			return false, err
		}
		j.got = id
	}
	g.b.set(chunkKey(j.got, j.index), j.data)
	g.b.set(uploadKey(j.got), uploadRecord(uploadRunning, j.index+1))
	return false, nil
}

// finishJob gives staged chunks and the last one their name.
type finishJob struct {
	waiter
	hash   Hash
	sizeOf int64
	id     uint64
	staged uint32
	last   []byte
}

func (j *finishJob) size() int { return len(j.last) }
func (j *finishJob) accept()   {}

func (j *finishJob) apply(g *group) (bool, error) {
	m, err := getBlob(g.b.get, &j.hash)
	switch {
	case errors.Is(err, ErrNotFound):
	case err != nil:
		return false, fatal(err)
	case m.state == blobWhole: // the same content was put before
		g.dropChunks(j.id, j.staged)
		if j.id != 0 {
			g.b.del(uploadKey(j.id))
		}
		return false, nil
	default:
		g.dropChunks(m.id, m.have)
	}
	id := j.id
	if id == 0 {
		if id, err = g.newBlobID(); err != nil {
			return false, err
		}
	}
	g.b.set(chunkKey(id, j.staged), j.last)
	g.b.del(uploadKey(id))
	g.setBlob(&j.hash, blobMeta{state: blobWhole, size: j.sizeOf, id: id, have: j.staged + 1})
	return false, nil
}

// dropJob takes back a put that did not come to its end.
type dropJob struct {
	waiter
	id uint64
}

func (j *dropJob) size() int { return 0 }
func (j *dropJob) accept()   {}

func (j *dropJob) apply(g *group) (bool, error) {
	v, err := g.b.get(uploadKey(j.id))
	if errors.Is(err, ErrNotFound) {
		return false, nil // it had come to its end
	}
	if err != nil {
		return false, fatal(err)
	}
	_, n, err := parseUpload(v)
	if err != nil {
		return false, fatal(err)
	}
	g.dropChunks(j.id, n)
	g.b.del(uploadKey(j.id))
	return false, nil
}

// DropBlob takes content away that was put and that no entry names. It does
// nothing when an entry does.
func (l *Log) DropBlob(ctx context.Context, h Hash) error {
	j := &forgetJob{newWaiter(), h}
	if err := l.submit(ctx, j); err != nil {
		return err
	}
	return l.wait(ctx, j.waiter)
}

type forgetJob struct {
	waiter
	hash Hash
}

func (j *forgetJob) size() int { return 0 }
func (j *forgetJob) accept()   {}

func (j *forgetJob) apply(g *group) (bool, error) {
	m, err := getBlob(g.b.get, &j.hash)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	named := false
	if err == nil {
		err = g.b.scan(nameKey(&j.hash, Ref{})[:1+len(Hash{})], nil, false, func(_, _ []byte) (bool, error) {
			named = true
			return false, nil
		})
	}
	if err != nil {
		return false, fatal(err)
	}
	if !named {
		g.dropChunks(m.id, m.have)
		g.b.del(blobKey(&j.hash))
		g.blobs = append(g.blobs, j.hash)
	}
	return false, nil
}
