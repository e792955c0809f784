package sim

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"tallystick/oplog"
	"tallystick/query/artifact"
	"tallystick/replica"
)

// runBlobs carries out what the core decided about content.
func (n *Node) runBlobs(ctx context.Context, out replica.Output) {
	for _, e := range out.Chunks {
		n.later(n.w.between(0, 3*time.Millisecond), func() {
			data, size, err := n.log.BlobChunk(e.Hash, e.Index)
			if n.w.faults && len(data) > 0 && n.w.chance(0.02) {
				data = bytes.Clone(data)
				data[n.w.rng.IntN(len(data))] ^= 1 << n.w.rng.IntN(8)
			}
			n.w.log("chunk %d %s %d: %d err %v", n.id, e.Hash.String()[:6], e.Index, len(data), err)
			n.later(n.w.between(0, 2*time.Millisecond), func() { n.run(n.core.ChunkRead(n.now(), e, data, size, err)) })
		})
	}
	for _, e := range out.Puts {
		n.ingest = max(n.ingest, n.w.q.now) + n.w.between(time.Millisecond, 8*time.Millisecond)
		n.later(n.ingest-n.w.q.now, func() {
			var res oplog.ChunkResult
			var err error = oplog.ErrNoSpace
			if !n.w.faults || !n.w.chance(0.003) {
				res, err = n.log.PutChunk(ctx, e.Hash, e.Size, e.Index, e.Data)
			}
			n.w.log("put %d %s %d: %+v err %v", n.id, e.Hash.String()[:6], e.Index, res, err)
			n.later(n.w.between(0, 2*time.Millisecond), func() { n.run(n.core.ChunkPut(n.now(), e, res, err)) })
		})
	}
}

// tellMissing tells the core what content the log misses, when that changed.
func (n *Node) tellMissing() {
	if n.core == nil || n.missing == n.log.BlobEpoch()+1 {
		return
	}
	list, epoch := n.log.MissingBlobs()
	n.missing = epoch + 1
	n.run(n.core.BlobsMissing(n.now(), list))
}

// shared is content that an acknowledged entry names.
type shared struct {
	hash oplog.Hash
	size int64
}

// noteBlobs remembers what an acknowledged entry names.
func (w *World) noteBlobs(op *oplog.Op) {
	if op.Kind != artifact.Kind {
		return
	}
	e := oplog.Entry{Header: oplog.Header{Kind: op.Kind, Author: op.Author}, Version: op.Version, Body: op.Body}
	for _, b := range (artifact.View{}).Blobs(&e) {
		w.shared = append(w.shared, shared{b.Hash, b.Size})
	}
}

// artifactAt puts content at a replica and makes the op that names it.
func artifactAt(n *Node, i, size int) (*oplog.Op, error) {
	data := make([]byte, size)
	rand.NewChaCha8([32]byte{byte(i), byte(i >> 8)}).Read(data)
	h, _, err := n.log.PutBlob(context.Background(), bytes.NewReader(data), int64(size))
	if err != nil {
		return nil, err
	}
	op, err := artifact.NewOp(n.author(), artifact.Artifact{Kind: "file", Hash: h, Size: int64(size)})
	return &op, err
}

// missesBlobs says what content of acknowledged entries a replica has not got.
func (n *Node) missesBlobs() error {
	if list, _ := n.log.MissingBlobs(); len(list) > 0 {
		return fmt.Errorf("replica %d misses %d blobs", n.id, len(list))
	}
	for _, b := range n.w.shared {
		if !n.log.HasBlob(b.hash) {
			return fmt.Errorf("replica %d has not got blob %s", n.id, b.hash)
		}
	}
	return nil
}

// checkBlobs reads all content of acknowledged entries, which checks hashes.
func (w *World) checkBlobs(n *Node) error {
	for _, b := range w.shared {
		r, err := n.log.Blob(b.hash)
		if err != nil {
			return fmt.Errorf("L1: blob %s, acknowledged, at replica %d: %w", b.hash, n.id, err)
		}
		if size, err := io.Copy(io.Discard, r); err != nil || size != b.size {
			return fmt.Errorf("L1: blob %s at replica %d has %d bytes, %w", b.hash, n.id, size, err)
		}
	}
	return nil
}
