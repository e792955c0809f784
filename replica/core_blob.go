package replica

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"tallystick/oplog"
)

// Content of entries that is too large for them: which blobs are missing, from
// whom they are taken, and what peers get of this log's. Entries come first:
// chunks are read for a peer only when no range waits for it, and both are
// paid from the same credit.

const (
	// maxWantChunks bounds the chunks of one want: half a window. Fewer are asked
	// for at a time over a slow stream, since entries queue behind them.
	maxWantChunks = 8
	portionTime   = time.Second
	// maxBlobHashes bounds the hashes of one message, and what is remembered of
	// what a peer asked for in vain.
	maxBlobHashes = 1024
)

// ReadChunk asks the log for a chunk of content to send.
type ReadChunk struct {
	Session SessionID
	Sub     uint64
	Hash    oplog.Hash
	Index   uint32
}

// PutChunk asks the log to take in a chunk. Those of one blob are carried out
// in the order given.
type PutChunk struct {
	Session SessionID
	Sub     uint64
	Hash    oplog.Hash
	Size    int64
	Index   uint32
	Data    []byte
}

func (e *PutChunk) cost() uint64 { return chunkCost(len(e.Data)) }

// chunkCost is what a chunk takes from the credit of a session.
func chunkCost(n int) uint64 { return uint64(n) + rangeOverhead }

// blobs is what the core knows of missing content.
type blobs struct {
	missing map[oplog.Hash]*missing
	order   []*missing // by hash
	replan  bool
}

type missing struct {
	oplog.MissingBlob
	fetch *fetch
}

// fetch is one blob on its way from one session.
type fetch struct {
	m        *missing
	s        *session
	first    uint64 // its first subscription
	sub      uint64 // its present one
	next     uint32 // chunk that comes next
	until    uint32 // asked for up to here
	puts     int    // handed to the log
	progress time.Duration
}

// blobSession is what a session has to do with blobs.
type blobSession struct {
	want     *blobWant           // of the peer, being served
	lastWant uint64              // highest seen
	asked    map[oplog.Hash]bool // what it asked for and did not get whole

	fetch   *fetch
	lastSub uint64
	portion uint32        // chunks to ask for at a time
	since   time.Duration // when the present portion was asked for
	backoff map[oplog.Hash]backoff
	last    [2]uint64 // subscription and index of the last chunk, to know a repeat
}

type blobWant struct {
	sub         uint64
	hash        oplog.Hash
	next, until uint32
	reading     bool
}

func newBlobSession() blobSession {
	return blobSession{portion: 2, asked: map[oplog.Hash]bool{}, backoff: map[oplog.Hash]backoff{}}
}

// BlobsMissing tells the core what the log misses: Log.MissingBlobs, at the
// start and whenever its epoch changes.
func (c *Core) BlobsMissing(now Now, list []oplog.MissingBlob) Output {
	c.begin(now)
	old := c.blobs.missing
	c.blobs.missing = make(map[oplog.Hash]*missing, len(list))
	c.blobs.order = c.blobs.order[:0]
	for _, b := range list {
		m := old[b.Hash]
		if m == nil {
			m = &missing{MissingBlob: b}
		}
		m.Have = max(m.Have, b.Have)
		delete(old, b.Hash)
		c.blobs.missing[b.Hash] = m
		c.blobs.order = append(c.blobs.order, m)
	}
	slices.SortFunc(c.blobs.order, func(a, b *missing) int { return bytes.Compare(a.Hash[:], b.Hash[:]) })
	gone := make([]oplog.Hash, 0, len(old))
	for h, m := range old {
		c.endFetch(m.fetch)
		gone = append(gone, h)
	}
	c.tellHere(gone)
	c.blobs.replan = true
	return c.finish()
}

// settled takes a blob off the list: it is here, or nobody names it any more.
func (c *Core) settled(h oplog.Hash) {
	if m := c.blobs.missing[h]; m != nil {
		c.endFetch(m.fetch)
		delete(c.blobs.missing, h)
		c.blobs.order = slices.DeleteFunc(c.blobs.order, func(o *missing) bool { return o == m })
	}
	c.tellHere([]oplog.Hash{h})
	c.blobs.replan = true
}

// tellHere tells the sessions that asked for content in vain that it is here.
func (c *Core) tellHere(list []oplog.Hash) {
	slices.SortFunc(list, func(a, b oplog.Hash) int { return bytes.Compare(a[:], b[:]) })
	for _, s := range c.sessions {
		var tell []oplog.Hash
		for _, h := range list {
			if s.blob.asked[h] && (s.blob.want == nil || s.blob.want.hash != h) {
				delete(s.blob.asked, h)
				tell = append(tell, h)
			}
		}
		if len(tell) > 0 {
			c.send(s, &MsgBlobState{Here: true, Hashes: tell})
		}
	}
}

// planBlobs gives every session that is free something to fetch.
func (c *Core) planBlobs() {
	if !c.blobs.replan || c.now.Mono < c.paused {
		return
	}
	c.blobs.replan = false
	for _, s := range c.sessions {
		if !s.ready || s.blob.fetch != nil {
			continue
		}
		for _, m := range c.blobs.order {
			if m.fetch == nil && c.mayFetch(s, m) && !c.leaveToOwner(s, m) {
				c.startFetch(s, m)
				c.blobs.replan = true // what is left may now go elsewhere
				break
			}
		}
	}
}

// mayFetch reports whether a peer is worth asking: it holds an entry that
// names the blob and has not failed just now.
func (c *Core) mayFetch(s *session, m *missing) bool {
	return s.ready && s.blob.backoff[m.Hash].until <= c.now.Mono && s.peer.tips.Seq(m.Ref.Origin()) >= m.Ref.Seq()
}

// leaveToOwner reports whether the replica that wrote the entry can be asked:
// it surely has the content.
func (c *Core) leaveToOwner(s *session, m *missing) bool {
	if c.isOwner(s, m.Ref.Origin()) {
		return false
	}
	for _, o := range c.sessions {
		if o != s && c.isOwner(o, m.Ref.Origin()) && o.blob.fetch == nil && c.mayFetch(o, m) {
			return true
		}
	}
	return false
}

func (c *Core) startFetch(s *session, m *missing) {
	f := &fetch{m: m, s: s, first: s.blob.lastSub + 1, next: m.Have, progress: c.now.Mono}
	m.fetch, s.blob.fetch = f, f
	c.wantChunks(f)
}

// wantChunks asks for the next few chunks.
func (c *Core) wantChunks(f *fetch) {
	b := &f.s.blob
	b.lastSub++
	b.since = c.now.Mono
	f.sub, f.until = b.lastSub, f.next+b.portion
	c.send(f.s, &MsgBlobWant{Sub: f.sub, Hash: f.m.Hash, First: f.next, Count: uint8(b.portion)})
}

func (c *Core) endFetch(f *fetch) {
	if f == nil {
		return
	}
	if f.s.blob.fetch == f {
		f.s.blob.fetch = nil
	}
	f.m.fetch = nil
	c.blobs.replan = true
}

// failFetch ends a fetch and backs the blob off at that peer.
func (c *Core) failFetch(f *fetch, base time.Duration) {
	c.endFetch(f)
	b := f.s.blob.backoff[f.m.Hash]
	f.s.blob.backoff[f.m.Hash] = backoff{until: c.now.Mono + min(base<<min(b.n, 20), c.cfg.BackoffMax), n: b.n + 1}
}

func (c *Core) onBlobChunk(s *session, m *MsgBlobChunk) {
	s.bulk = c.now.Mono
	at := [2]uint64{m.Sub, uint64(m.Index)}
	if s.blob.last == at {
		return // a repeat; its cost is not counted twice by the sender either
	}
	s.blob.last = at
	cost, f := chunkCost(len(m.Data)), s.blob.fetch
	if f == nil || m.Sub != f.sub || m.Hash != f.m.Hash || m.Index != f.next {
		s.take.done += cost // of a fetch that is over
		return
	}
	if s.take.bytes+cost > uint64(c.cfg.Window)+(maxReads+1)*MaxRangeFrame {
		c.hangUp(s, WireProtocol, "more chunks than the credit allows", violationRetry)
		return
	}
	s.take.bytes += cost
	f.next++
	f.puts++
	f.progress = c.now.Mono
	c.out.Puts = append(c.out.Puts, PutChunk{Session: s.id, Sub: m.Sub, Hash: m.Hash, Size: m.Size, Index: m.Index, Data: m.Data})
	if f.next == f.until && f.next < oplog.Chunks(m.Size) {
		switch took := c.now.Mono - s.blob.since; {
		case took < portionTime:
			s.blob.portion = min(2*s.blob.portion, maxWantChunks)
		case took > 2*portionTime:
			s.blob.portion = max(s.blob.portion/2, 1)
		}
		c.wantChunks(f)
	}
}

// ChunkPut says what the log made of a chunk.
func (c *Core) ChunkPut(now Now, e PutChunk, res oplog.ChunkResult, err error) Output {
	c.begin(now)
	var f *fetch
	if s := c.session(e.Session); s != nil {
		s.take.bytes -= min(s.take.bytes, e.cost())
		s.take.done += e.cost()
		if g := s.blob.fetch; g != nil && g.m.Hash == e.Hash && e.Sub >= g.first {
			f = g
			f.puts--
			f.progress = now.Mono
		}
	}
	m := c.blobs.missing[e.Hash]
	switch {
	case err == nil && res.Whole, errors.Is(err, oplog.ErrBlobUnwanted):
		c.settled(e.Hash)
	case err == nil:
		if m != nil {
			m.Have = res.Have
		}
		if f != nil && res.Have != e.Index+1 {
			c.endFetch(f) // the log is elsewhere: go on from there
		}
	case errors.Is(err, oplog.ErrBlobHash), errors.Is(err, oplog.ErrBadChunk):
		if m != nil {
			m.Have = 0
		}
		if f != nil {
			c.event(Event{Kind: EventBadBlob, Session: f.s.id, Key: f.s.peer.key, Err: err})
			c.failFetch(f, 30*c.cfg.BackoffMin)
		}
	default:
		// The store: no peer can help. Everything waits.
		c.endFetch(f)
		c.event(Event{Kind: EventStore, Session: e.Session, Err: err})
		c.pause(err)
	}
	return c.finish()
}

func (c *Core) onBlobWant(s *session, m *MsgBlobWant) {
	b := &s.blob
	if m.Sub <= b.lastWant {
		return // a repeat
	}
	b.lastWant, b.want = m.Sub, nil
	if len(b.asked) < maxBlobHashes {
		b.asked[m.Hash] = true
	}
	if c.blobs.missing[m.Hash] != nil {
		c.send(s, &MsgBlobState{Hashes: []oplog.Hash{m.Hash}})
		return
	}
	b.want = &blobWant{sub: m.Sub, hash: m.Hash, next: m.First, until: m.First + uint32(m.Count)}
}

// pumpBlob reads the next chunk for a session when no entries wait for it and
// its credit allows.
func (c *Core) pumpBlob(s *session) {
	v, w := &s.serve, s.blob.want
	if w == nil || w.reading || len(v.queue) > 0 || v.spent+v.reserved >= v.granted {
		return
	}
	w.reading = true
	v.reserved += chunkCost(oplog.ChunkSize)
	c.out.Chunks = append(c.out.Chunks, ReadChunk{Session: s.id, Sub: w.sub, Hash: w.hash, Index: w.next})
}

// ChunkRead says what the log gave for a ReadChunk: the chunk and the size of
// its blob, or oplog.ErrNotFound when that is not whole here.
func (c *Core) ChunkRead(now Now, e ReadChunk, data []byte, size int64, err error) Output {
	c.begin(now)
	s := c.session(e.Session)
	if s == nil {
		return c.finish()
	}
	s.serve.reserved -= min(s.serve.reserved, chunkCost(oplog.ChunkSize))
	w := s.blob.want
	if w == nil || w.sub != e.Sub {
		return c.finish() // it wants something else by now
	}
	w.reading = false
	if err != nil {
		s.blob.want = nil
		c.send(s, &MsgBlobState{Hashes: []oplog.Hash{w.hash}})
		if !errors.Is(err, oplog.ErrNotFound) && !errors.Is(err, oplog.ErrClosed) {
			c.event(Event{Kind: EventStore, Session: s.id, Key: s.peer.key, Err: err})
		}
		return c.finish()
	}
	c.send(s, &MsgBlobChunk{Sub: w.sub, Hash: w.hash, Size: size, Index: w.next, Data: data})
	s.serve.spent += chunkCost(len(data))
	w.next++
	switch w.next {
	case oplog.Chunks(size):
		delete(s.blob.asked, w.hash)
		s.blob.want = nil
	case w.until:
		s.blob.want = nil
	}
	return c.finish()
}

// onBlobState is a peer's word on content that was wanted from it.
func (c *Core) onBlobState(s *session, m *MsgBlobState) {
	for _, h := range m.Hashes {
		switch f := s.blob.fetch; {
		case c.blobs.missing[h] == nil:
		case m.Here:
			delete(s.blob.backoff, h)
			c.blobs.replan = true
		case f != nil && f.m.Hash == h && f.puts == 0:
			c.failFetch(f, c.cfg.BackoffMin)
		}
	}
}

// scanBlobs lets time pass: what stalls is asked for elsewhere.
func (c *Core) scanBlobs() {
	for _, s := range c.sessions {
		f := s.blob.fetch
		if f == nil || f.puts > 0 {
			continue
		}
		own := c.now.Mono - f.progress
		if own > 6*c.cfg.StallTimeout || min(own, c.now.Mono-s.bulk) > c.cfg.StallTimeout {
			c.failFetch(f, c.cfg.BackoffMin)
		}
	}
	c.blobs.replan = c.blobs.replan || len(c.blobs.order) > 0
}

// forgetBlobs is what the end of a session means for blobs.
func (c *Core) forgetBlobs(s *session) { c.endFetch(s.blob.fetch) }
