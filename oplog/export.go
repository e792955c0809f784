package oplog

import (
	"context"
	"errors"
	"fmt"
	"io"
)

const exportRange = 1 << 20 // bytes of entries to a packed range, about

// Export writes a pack of everything that is held: all branches of all
// origins up to their signed heads, and all content that is whole. It reads
// as it goes and stops no writer; what is written meanwhile may be in it or
// not. What is erased is not in it, nor is anything that would let a reader
// continue an incarnation (L7). progress, if set, must not block.
func (l *Log) Export(ctx context.Context, w io.Writer, meta []byte, progress func(done, total uint64)) (PackCounts, error) {
	p, err := NewPackWriter(w, meta)
	if err != nil {
		return PackCounts{}, err
	}
	total := l.Frontier().Total()
	if progress == nil {
		progress = func(uint64, uint64) {}
	}
	for _, o := range l.Origins() {
		if err := l.exportOrigin(ctx, p, o.ID, func() { progress(min(p.n.Entries, total), total) }); err != nil {
			return p.n, err
		}
	}
	if err := l.exportBlobs(ctx, p); err != nil {
		return p.n, err
	}
	return p.Close()
}

func (l *Log) exportOrigin(ctx context.Context, p *PackWriter, id OriginID, tick func()) error {
	var packed []Tip // samples of the lines that are packed already
	for branch := 0; branch < len(l.Frontier()[id]); branch++ {
		tip := l.Frontier()[id][branch]
		var last []Tip
		for {
			if err := ctx.Err(); err != nil {
				return err
			}
			rg, err := l.ReadToward(id, append(last, packed...), tip, exportRange)
			if now := l.Frontier()[id][branch]; errors.Is(err, ErrNotFound) && now != tip {
				tip = now // it has grown
				continue
			}
			if err != nil {
				return err
			}
			if rg.Count == 0 {
				break
			}
			if err := p.Range(&rg); err != nil {
				return err
			}
			last = []Tip{rg.Head.Tip()}
			tick()
		}
		// The next branch leaves this one somewhere: what both have in common is
		// sent again from the sample below it, which costs a reader nothing (L5).
		if s, err := l.Samples(id, tip); err == nil {
			packed = append(packed, s...)
		} else if !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	return nil
}

func (l *Log) exportBlobs(ctx context.Context, p *PackWriter) error {
	var whole []Hash
	err := l.View(func(s Snapshot) error {
		return s.(*snapshot).kv.scan([]byte{tabBlob}, nil, false, func(key, value []byte) (bool, error) {
			m, err := parseBlobMeta(value)
			if err != nil {
				return false, err
			}
			if m.state == blobWhole && len(key) == 1+len(Hash{}) {
				whole = append(whole, Hash(key[1:]))
			}
			return true, ctx.Err()
		})
	})
	if err != nil {
		return err
	}
	for _, h := range whole {
		for i, n := uint32(0), uint32(1); i < n; i++ {
			data, size, err := l.BlobChunk(h, i)
			if errors.Is(err, ErrNotFound) && i == 0 {
				break // erased meanwhile
			}
			if err != nil {
				return fmt.Errorf("oplog: export content %s: %w", h, err)
			}
			n = Chunks(size)
			if err := p.Chunk(&PackedChunk{Hash: h, Size: size, Index: i, Data: data}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Imported is what an import has added.
type Imported struct {
	PackCounts
	Added      int `json:"added"`
	Duplicates int `json:"duplicates"`
	Contents   int `json:"contents"` // that became whole
	Unwanted   int `json:"unwanted"` // chunks of content that no entry here names
}

// Import takes in a pack: each range is verified like one from a peer (L4),
// erasures are obeyed, and what is here already costs nothing (L5). It stops
// at the first range that does not verify and at a pack that is not whole;
// what came before it stays.
func (l *Log) Import(ctx context.Context, p *PackReader, progress func(Imported)) (Imported, error) {
	var n Imported
	for {
		rg, c, err := p.Next()
		n.PackCounts = p.Counts()
		switch {
		case errors.Is(err, io.EOF):
			return n, nil
		case err != nil:
			return n, err
		case rg != nil:
			res, err := l.Ingest(ctx, *rg)
			if err != nil {
				return n, fmt.Errorf("oplog: import entries %d to %d of %s: %w", rg.First, rg.First+uint64(rg.Count)-1, rg.Origin, err)
			}
			n.Added += res.Added
			n.Duplicates += res.Duplicates
		default:
			if err := l.importChunk(ctx, c, &n); err != nil {
				return n, err
			}
		}
		if progress != nil {
			progress(n)
		}
	}
}

func (l *Log) importChunk(ctx context.Context, c *PackedChunk, n *Imported) error {
	if l.HasBlob(c.Hash) {
		return nil
	}
	res, err := l.PutChunk(ctx, c.Hash, c.Size, c.Index, c.Data)
	switch {
	case errors.Is(err, ErrBlobUnwanted):
		n.Unwanted++
		return nil
	case err != nil:
		return fmt.Errorf("oplog: import content %s: %w", c.Hash, err)
	}
	if res.Whole {
		n.Contents++
	}
	return nil
}
