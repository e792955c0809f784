package search

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"tallystick/oplog"
)

// embedder keeps the vector arm: its own pass over the log, behind that of the
// words, since a model is slow and may be away.
type embedder struct {
	x *Index
	// stepping serialises steps.
	stepping sync.Mutex
	pos      mark   // guarded by x.mu
	restarts int    // how often the pass began anew; guarded by x.mu
	fault    string // guarded by x.mu
	again    chan struct{}

	covered uint64
}

const (
	embedBatch = 32
	// embedBytes is what a model sees of a document. The words of the rest are
	// found by the other arm.
	embedBytes = 8 << 10
	// askWait is how long a question waits for its vector.
	askWait = 2 * time.Second
)

func newEmbedder(x *Index) *embedder { return &embedder{x: x, again: make(chan struct{}, 1)} }

// restart begins anew; what has a vector keeps it. The caller holds no lock.
func (v *embedder) restart() {
	v.x.mu.Lock()
	v.pos = mark{}
	v.restarts++
	v.x.mu.Unlock()
	select {
	case v.again <- struct{}{}:
	default:
	}
}

// follow gives documents their vectors until ctx ends.
func (v *embedder) follow(ctx context.Context) {
	const least, most = time.Second, 5 * time.Minute
	wait := least
	for ctx.Err() == nil {
		changed := v.x.cfg.Log.Changed()
		more, err := v.step(ctx)
		if ctx.Err() != nil || errors.Is(err, oplog.ErrClosed) {
			return
		}
		if err == nil {
			wait = least
			if more {
				continue
			}
			select {
			case <-ctx.Done():
			case <-changed:
			case <-v.again:
			}
			continue
		}
		timer := time.NewTimer(wait)
		wait = min(2*wait, most)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// CatchUpVectors gives every document of the log its vector. It does nothing
// without a Vectorizer.
func (x *Index) CatchUpVectors(ctx context.Context) error {
	if x.vec == nil || x.cfg.Log == nil {
		return nil
	}
	for {
		more, err := x.vec.step(ctx)
		if err != nil || !more {
			return err
		}
	}
}

// step gives the documents of the next entries their vectors. It stays behind
// the words, so that each document is there.
func (v *embedder) step(ctx context.Context) (more bool, err error) {
	v.stepping.Lock()
	defer v.stepping.Unlock()
	x := v.x
	x.mu.RLock()
	from, restarts := v.pos, v.restarts
	x.mu.RUnlock()
	got, err := readFrom(ctx, x.cfg.Log, x.cfg.Sources, from, &v.covered)
	// The words catch up after the reading: what arrives in between would
	// otherwise be passed by before its document is there.
	if err := x.CatchUp(ctx); err != nil {
		return false, v.fail(err)
	}
	var again *refoldError
	if errors.As(err, &again) {
		// The words fold anew for the same reason and start this pass again;
		// here it means only to look once more from the beginning.
		v.restart()
		return got.last > 0, nil
	}
	if err == nil {
		err = v.put(ctx, got.docs, false)
	}
	if err != nil {
		return false, v.fail(err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	v.fault = ""
	if v.restarts != restarts { // the index was emptied since the reading
		return true, nil
	}
	v.pos = got.next
	return got.next.arrival < got.last, nil
}

func (v *embedder) fail(err error) error {
	if !errors.Is(err, context.Canceled) {
		v.x.mu.Lock()
		v.fault = err.Error()
		v.x.mu.Unlock()
	}
	return err
}

// put gives those of docs a vector that the index holds, with this text and
// without a vector. Stepping says that the caller holds that lock.
func (v *embedder) put(ctx context.Context, docs []Document, stepping bool) error {
	x := v.x
	var texts []string
	var ids []string
	var digests []uint64
	flush := func() error {
		if len(texts) == 0 {
			return nil
		}
		vecs, err := x.cfg.Vectorizer.Embed(ctx, texts, false)
		if err != nil {
			return fmt.Errorf("search: %s: %w", x.cfg.Vectorizer.Name(), err)
		}
		if len(vecs) != len(texts) {
			return fmt.Errorf("search: %s gave %d vectors for %d texts", x.cfg.Vectorizer.Name(), len(vecs), len(texts))
		}
		if !stepping {
			x.stepping.Lock()
			defer x.stepping.Unlock()
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		for i, vec := range vecs {
			if err := x.c.setVector(ids[i], digests[i], vec); err != nil {
				return err
			}
		}
		texts, ids, digests = texts[:0], ids[:0], digests[:0]
		return nil
	}
	for _, d := range docs {
		if parseState(d.State) != stLive || d.Title == "" && d.Text == "" {
			continue
		}
		sum := digest(d.Title, d.Text)
		x.mu.RLock()
		n, here := x.c.keys[d.ID]
		here = here && x.c.cold[n].digest == sum // a later text comes later
		_, has := x.c.vec.of[n]
		x.mu.RUnlock()
		if !here || has {
			continue
		}
		text := d.Text
		if d.Title != "" {
			text = d.Title + "\n" + d.Text
		}
		if len(text) > embedBytes {
			text = text[:embedBytes]
		}
		texts, ids, digests = append(texts, text), append(ids, d.ID), append(digests, sum)
		if len(texts) == embedBatch {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// setVector gives document id the vector of the text with this digest. Another
// text may have taken its place while the model was asked.
func (c *core) setVector(id string, digest uint64, vec []float32) error {
	if len(vec) == 0 || len(vec) > maxDims {
		return fmt.Errorf("search: vector of %d numbers, allowed are 1 to %d", len(vec), maxDims)
	}
	if c.vec.dims == 0 || len(c.vec.of) == 0 {
		c.vec.dims = len(vec)
	}
	if len(vec) != c.vec.dims {
		return fmt.Errorf("search: vector of %d numbers among ones of %d", len(vec), c.vec.dims)
	}
	n, ok := c.keys[id]
	if q := quantize(vec); ok && c.cold[n].digest == digest && q != nil {
		c.vec.of[n] = q
		c.vec.fresh = append(c.vec.fresh, n)
	}
	return nil
}

// ask gives a question's vector, or why there is none. It never fails a
// search.
func (v *embedder) ask(ctx context.Context, text string) ([]float32, error) {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	vecs, err := v.x.cfg.Vectorizer.Embed(ctx, []string{text}, true)
	if err != nil {
		return nil, err
	}
	if len(vecs) != 1 {
		return nil, fmt.Errorf("%d vectors for one text", len(vecs))
	}
	return vecs[0], nil
}
