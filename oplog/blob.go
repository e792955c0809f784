package oplog

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
)

// A blob is content too large for an entry, known by its SHA-256 and kept in
// chunks. Entries name blobs; what an entry says is folded whether its blobs
// are here or not. On the replica that writes the entry they are durable
// before it; elsewhere they are wanted from the moment the entry is visible,
// and fetched chunk by chunk. Nothing is served before its hash was checked.
// A blob goes with the erase of the last entry that names it (T5).

// Limits of blobs.
const (
	// ChunkSize is the length of every chunk of a blob but the last.
	ChunkSize = 256 << 10
	// MaxBlob bounds a blob.
	MaxBlob = 64 << 20
)

// Errors about blobs. Test with errors.Is.
var (
	// ErrNoBlob means that an entry to be written names content that is not
	// here: put the content first.
	ErrNoBlob = errors.New("oplog: content that the entry names is not here")
	// ErrBlobHash means that content is not what its hash says.
	ErrBlobHash = errors.New("oplog: content does not match its hash")
	// ErrBlobUnwanted means that no entry here names that content.
	ErrBlobUnwanted = errors.New("oplog: no entry names this content")
	// ErrBadChunk means a chunk of the wrong length or beyond the end.
	ErrBadChunk = errors.New("oplog: chunk does not fit its blob")
)

// BlobName is content as an entry names it.
type BlobName struct {
	Hash Hash
	Size int64 // as the entry says; what is here may prove it wrong
}

// BlobNamer is implemented by a projection whose entries name blobs.
type BlobNamer interface {
	// Blobs lists what an entry names that Apply has taken. It must be a pure
	// function of the entry.
	Blobs(e *Entry) []BlobName
}

// BlobState says how far content has got here.
type BlobState struct {
	Known bool  // some entry names it, or it was put
	Whole bool  // all of it is here and was checked
	Size  int64 // of the content when Whole, else as far as told
	Have  int64 // bytes that are here
}

// MissingBlob is content that an entry names and that is not here.
type MissingBlob struct {
	Hash Hash
	Size int64  // as told
	Have uint32 // chunks that are here, from the first on
	Ref  Ref    // an entry that names it
}

// Chunks is the number of chunks of a blob of so many bytes.
func Chunks(size int64) uint32 { return uint32((size + ChunkSize - 1) / ChunkSize) }

// chunkLen is the length of one chunk of a blob.
func chunkLen(size int64, index uint32) int {
	return int(min(size-int64(index)*ChunkSize, ChunkSize))
}

const (
	blobWanted  = 1 // named, nothing here
	blobPartial = 2 // the first chunks are here
	blobWhole   = 3 // here and checked

	uploadRunning = 0 // chunks of a put that has not ended
	uploadGarbage = 1 // chunks that nothing refers to
)

// blobMeta is the record of a blob. Its chunks are kept under a number, since
// the hash is known only when the last has been read.
type blobMeta struct {
	state byte
	size  int64
	id    uint64
	have  uint32
}

const blobMetaLen = 1 + 8 + 8 + 4

func (m *blobMeta) bytes() []byte {
	b := append(make([]byte, 0, blobMetaLen), m.state)
	b = binary.BigEndian.AppendUint64(b, uint64(m.size))
	b = binary.BigEndian.AppendUint64(b, m.id)
	return binary.BigEndian.AppendUint32(b, m.have)
}

func parseBlobMeta(b []byte) (m blobMeta, err error) {
	if len(b) != blobMetaLen || b[0] < blobWanted || b[0] > blobWhole {
		return m, fmt.Errorf("%w: blob record", ErrDamaged)
	}
	return blobMeta{
		state: b[0], size: int64(binary.BigEndian.Uint64(b[1:])), id: binary.BigEndian.Uint64(b[9:]), have: binary.BigEndian.Uint32(b[17:]),
	}, nil
}

func getBlob(get func([]byte) ([]byte, error), h *Hash) (blobMeta, error) {
	v, err := get(blobKey(h))
	if err != nil {
		return blobMeta{}, err
	}
	return parseBlobMeta(v)
}

func (g *group) setBlob(h *Hash, m blobMeta) {
	g.b.set(blobKey(h), m.bytes())
	g.blobs = append(g.blobs, *h)
}

// newBlobID draws the number of a new run of chunks.
func (g *group) newBlobID() (uint64, error) {
	var id uint64
	switch v, err := g.b.get(metaKey("blob")); {
	case errors.Is(err, ErrNotFound):
	case err != nil:
		return 0, fatal(err)
	case len(v) != 8:
		return 0, fatal(fmt.Errorf("%w: blob counter", ErrDamaged))
	default:
		id = binary.BigEndian.Uint64(v)
	}
	id++
	g.b.set(metaKey("blob"), binary.BigEndian.AppendUint64(nil, id))
	return id, nil
}

func (g *group) dropChunks(id uint64, n uint32) {
	for i := range n {
		g.b.del(chunkKey(id, i))
	}
}

// nameBlobs notes what a folded entry names and wants what is not here.
func (g *group) nameBlobs(e *Entry) error {
	ref := e.Ref()
	for _, p := range g.l.namers[e.Kind] {
		for _, n := range p.Blobs(e) {
			g.b.set(nameKey(&n.Hash, ref), nil)
			switch _, err := getBlob(g.b.get, &n.Hash); {
			case errors.Is(err, ErrNotFound):
				g.setBlob(&n.Hash, blobMeta{state: blobWanted, size: n.Size})
			case err != nil:
				return fatal(err)
			}
		}
	}
	return nil
}

// holdsBlobs checks that all content an own entry names is here.
func (g *group) holdsBlobs(e *Entry) error {
	for _, p := range g.l.namers[e.Kind] {
		for _, n := range p.Blobs(e) {
			m, err := getBlob(g.b.get, &n.Hash)
			if err != nil {
				return fatal(err)
			}
			if m.state != blobWhole || m.size != n.Size {
				return fmt.Errorf("%w: %s", ErrNoBlob, n.Hash)
			}
		}
	}
	return nil
}

// unnameBlobs takes back what an entry named. Content that nothing names any
// more becomes garbage, which sweep takes away.
func (g *group) unnameBlobs(e *Entry) error {
	if !e.Present() {
		return nil
	}
	for _, p := range g.l.namers[e.Kind] {
		for _, n := range p.Blobs(e) {
			g.b.del(nameKey(&n.Hash, e.Ref()))
			named := false
			err := g.b.scan(nameKey(&n.Hash, Ref{})[:1+len(Hash{})], nil, false, func(_, _ []byte) (bool, error) {
				named = true
				return false, nil
			})
			if err != nil {
				return err
			}
			if named {
				continue
			}
			m, err := getBlob(g.b.get, &n.Hash)
			if errors.Is(err, ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			g.b.del(blobKey(&n.Hash))
			g.blobs = append(g.blobs, n.Hash)
			if m.have > 0 {
				g.b.set(uploadKey(m.id), uploadRecord(uploadGarbage, m.have))
			}
		}
	}
	return nil
}

// Blob reads content that is whole here, or ErrNotFound. The reader checks the
// hash as it goes and gives ErrDamaged instead of the end when it is wrong.
func (l *Log) Blob(h Hash) (*BlobReader, error) {
	m, err := l.blob(&h)
	if err != nil {
		return nil, err
	}
	if m.state != blobWhole {
		return nil, ErrNotFound
	}
	return &BlobReader{l: l, hash: h, m: m, sum: sha256.New()}, nil
}

func (l *Log) blob(h *Hash) (m blobMeta, err error) {
	err = l.View(func(s Snapshot) error {
		m, err = getBlob(s.(*snapshot).kv.get, h)
		return err
	})
	return m, err
}

// BlobReader reads one blob from its beginning. It holds nothing open.
type BlobReader struct {
	l    *Log
	hash Hash
	m    blobMeta
	sum  hash.Hash
	next uint32
	buf  []byte
	err  error
}

// Size is the length of the content.
func (r *BlobReader) Size() int64 { return r.m.size }

// Read implements io.Reader. Content erased meanwhile is ErrNotFound.
func (r *BlobReader) Read(p []byte) (int, error) {
	for len(r.buf) == 0 && r.err == nil {
		if r.next == r.m.have {
			r.err = io.EOF
			if !bytes.Equal(r.sum.Sum(nil), r.hash[:]) {
				r.err = fmt.Errorf("%w: content %s", ErrDamaged, r.hash)
			}
			break
		}
		if r.buf, r.err = r.l.chunk(r.m.id, r.next); r.err == nil {
			r.sum.Write(r.buf)
			r.next++
		}
	}
	if r.err != nil {
		return 0, r.err
	}
	n := copy(p, r.buf)
	r.buf = r.buf[n:]
	return n, nil
}

func (l *Log) chunk(id uint64, index uint32) (b []byte, err error) {
	err = l.View(func(s Snapshot) error {
		b, err = s.(*snapshot).kv.get(chunkKey(id, index))
		return err
	})
	return b, err
}

// BlobChunk gives one chunk of content that is whole here, and the content's
// size; ErrNotFound when it is not whole, or has no such chunk.
func (l *Log) BlobChunk(h Hash, index uint32) (data []byte, size int64, err error) {
	err = l.View(func(s Snapshot) error {
		kv := s.(*snapshot).kv
		m, err := getBlob(kv.get, &h)
		if err != nil {
			return err
		}
		if m.state != blobWhole || index >= m.have {
			return ErrNotFound
		}
		size = m.size
		data, err = kv.get(chunkKey(m.id, index))
		return err
	})
	return data, size, err
}

// BlobState says how far content has got here.
func (l *Log) BlobState(h Hash) (BlobState, error) {
	m, err := l.blob(&h)
	if errors.Is(err, ErrNotFound) {
		return BlobState{}, nil
	}
	if err != nil {
		return BlobState{}, err
	}
	return BlobState{Known: true, Whole: m.state == blobWhole, Size: m.size, Have: min(int64(m.have)*ChunkSize, m.size)}, nil
}

// HasBlob reports whether content is whole here.
func (l *Log) HasBlob(h Hash) bool {
	st, err := l.BlobState(h)
	return err == nil && st.Whole
}

// MissingBlobs lists what entries name and is not here, by hash, and a number
// that changes when something is added to the list or leaves it unfetched.
func (l *Log) MissingBlobs() (list []MissingBlob, epoch uint64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	list = make([]MissingBlob, 0, len(l.missing))
	for _, m := range l.missing {
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b MissingBlob) int { return bytes.Compare(a.Hash[:], b.Hash[:]) })
	return list, l.blobEpoch
}

// BlobEpoch is the number that MissingBlobs gives.
func (l *Log) BlobEpoch() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.blobEpoch
}

// publishBlobs brings what is missing up to date with a committed group. The
// caller holds the lock.
func (l *Log) publishBlobs(g *group) {
	for i := range g.blobs {
		h := &g.blobs[i]
		old, was := l.missing[*h]
		m, err := getBlob(g.b.get, h)
		switch {
		case err == nil && m.state == blobWhole:
			delete(l.missing, *h) // who fetched it knows
		case err != nil:
			delete(l.missing, *h)
			if was {
				l.blobEpoch++
			}
		default:
			now := MissingBlob{Hash: *h, Size: m.size, Have: m.have, Ref: old.Ref}
			if !was {
				now.Ref, _ = firstName(g.b.scan, h)
				l.blobEpoch++
			}
			l.missing[*h] = now
		}
	}
}

// firstName is the earliest entry that names a blob.
func firstName(scan scanFunc, h *Hash) (ref Ref, err error) {
	err = scan(nameKey(h, Ref{})[:1+len(Hash{})], nil, false, func(key, _ []byte) (bool, error) {
		ref, err = RefOf(key[1+len(Hash{}):])
		return false, err
	})
	return ref, err
}
