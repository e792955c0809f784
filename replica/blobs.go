package replica

import (
	"sync"

	"tallystick/oplog"
)

// tellMissing tells the core what content the log misses, when that changed.
// It reports false once the replica closes.
func (r *Replica) tellMissing(told *uint64) bool {
	if *told != 0 && r.log.BlobEpoch() == *told-1 {
		return true
	}
	list, epoch := r.log.MissingBlobs()
	*told = epoch + 1
	return r.post(func(now Now) Output { return r.core.BlobsMissing(now, list) })
}

func (r *Replica) readChunk(e ReadChunk) {
	select {
	case r.reads <- struct{}{}:
		defer func() { <-r.reads }()
	case <-r.ctx.Done():
		return
	}
	data, size, err := r.log.BlobChunk(e.Hash, e.Index)
	r.post(func(now Now) Output { return r.core.ChunkRead(now, e, data, size, err) })
}

// chunkLanes takes in chunks: those of one blob in order, blobs beside each
// other.
type chunkLanes struct {
	mu    sync.Mutex
	queue map[oplog.Hash][]PutChunk
}

func (l *chunkLanes) add(r *Replica, e PutChunk) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue == nil {
		l.queue = map[oplog.Hash][]PutChunk{}
	}
	waiting, running := l.queue[e.Hash]
	l.queue[e.Hash] = append(waiting, e)
	if !running {
		r.run(func() { l.work(r, e.Hash) })
	}
}

func (l *chunkLanes) next(h oplog.Hash) (e PutChunk, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue[h]) == 0 {
		delete(l.queue, h)
		return e, false
	}
	e = l.queue[h][0]
	l.queue[h] = l.queue[h][1:]
	return e, true
}

func (l *chunkLanes) work(r *Replica, h oplog.Hash) {
	for {
		e, ok := l.next(h)
		if !ok {
			return
		}
		res, err := r.log.PutChunk(r.ctx, e.Hash, e.Size, e.Index, e.Data)
		if !r.post(func(now Now) Output { return r.core.ChunkPut(now, e, res, err) }) {
			return
		}
	}
}
