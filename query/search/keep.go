package search

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"strings"

	"tallystick/oplog"
)

// A frame's body is what the index gained since the frame before: the mark,
// new names, new terms, new documents with their terms by number, states that
// changed, vectors.

// load reads the file of Dir, or begins one. The caller holds stepping, or is
// alone.
func (x *Index) load(ctx context.Context) error {
	if x.cfg.Dir == "" {
		return nil
	}
	path := filepath.Join(x.cfg.Dir, fileName)
	c := newCore()
	if x.cfg.Vectorizer != nil {
		c.vec = &vectors{name: x.cfg.Vectorizer.Name(), of: map[uint32][]int8{}}
	}
	var pos mark
	f, err := open(path, x.cfg.Key, x.print[:], func(body []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return c.replay(body, &pos)
	})
	switch {
	case err == nil:
		c.seal(pos)
		x.mu.Lock()
		x.c, x.pos, x.file = c, pos, f
		x.mu.Unlock()
		return nil
	case errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, errDamaged), errors.Is(err, errOutdated), errors.Is(err, errKey):
		reason := "the index file is " + err.Error()
		x.mu.Lock()
		x.refolds = append(x.refolds, reason)
		x.mu.Unlock()
		x.log.Warn("search index folded anew", "reason", reason)
	default:
		return fmt.Errorf("search: open %s: %w", fileName, err)
	}
	if f, err = create(path, x.cfg.Key, x.print[:]); err != nil {
		return err
	}
	if err := f.install(); err != nil {
		f.close()
		return err
	}
	x.mu.Lock()
	x.file = f
	x.mu.Unlock()
	return nil
}

// keep appends what is new. The caller holds stepping.
func (x *Index) keep() error {
	if x.pos == x.c.keptPos && x.c.extent() == x.c.kept && len(x.c.changes) == 0 && !x.freshVectors() {
		x.dirty = 0
		return nil
	}
	if err := x.file.append(x.c.frame(x.pos, len(x.c.hot))); err != nil {
		return err
	}
	x.mu.Lock()
	x.c.seal(x.pos)
	x.mu.Unlock()
	x.dirty = 0
	return nil
}

// rewrite puts a new file in the place of the old: after an erase nothing of
// what was erased is left in it (T5). The caller holds stepping.
func (x *Index) rewrite() error {
	f, err := create(x.file.path, x.cfg.Key, x.print[:])
	if err != nil {
		return err
	}
	x.mu.Lock()
	x.c.kept, x.c.changes = extent{}, nil
	if x.c.vec != nil {
		x.c.vec.fresh = x.c.vec.fresh[:0]
		for n := range x.c.hot {
			if _, ok := x.c.vec.of[uint32(n)]; ok {
				x.c.vec.fresh = append(x.c.vec.fresh, uint32(n))
			}
		}
	}
	x.mu.Unlock()
	// In several frames, none of them large.
	for err == nil {
		to := min(x.c.kept.docs+keepAfter, len(x.c.hot))
		err = f.append(x.c.frame(x.pos, to))
		x.c.kept = extent{len(x.c.terms), len(x.c.names.names), to}
		if to == len(x.c.hot) {
			break
		}
	}
	if err == nil {
		err = f.install()
	}
	if err != nil {
		f.close()
		return err
	}
	x.file.close()
	x.mu.Lock()
	x.file = f
	x.c.seal(x.pos)
	x.mu.Unlock()
	x.dirty = 0
	return nil
}

func (x *Index) freshVectors() bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.c.vec != nil && len(x.c.vec.fresh) > 0
}

func (c *core) extent() extent { return extent{len(c.terms), len(c.names.names), len(c.hot)} }

// seal notes that everything is in the file.
func (c *core) seal(pos mark) {
	c.kept, c.keptPos, c.changes = c.extent(), pos, nil
	if c.vec != nil {
		c.vec.fresh = nil
	}
}

const (
	recordNames = 1 + iota
	recordTerms
	recordDocs
	recordStates
	recordVectors
)

// frame encodes what is not kept yet, of documents those below docs.
func (c *core) frame(pos mark, docs int) []byte {
	b := binary.AppendUvarint(nil, pos.arrival)
	b = append(b, pos.hash[:]...)
	b = append(b, recordNames)
	b = binary.AppendUvarint(b, uint64(len(c.names.names)-c.kept.names))
	for _, s := range c.names.names[c.kept.names:] {
		b = appendText(b, s)
	}
	b = append(b, recordTerms)
	b = binary.AppendUvarint(b, uint64(len(c.terms)-c.kept.terms))
	for i := range c.terms[c.kept.terms:] {
		b = appendText(b, c.terms[c.kept.terms+i].text)
	}
	b = append(b, recordDocs)
	b = binary.AppendUvarint(b, uint64(docs-c.kept.docs))
	for n := c.kept.docs; n < docs; n++ {
		b = c.appendDoc(b, uint32(n))
	}
	b = append(b, recordStates)
	b = binary.AppendUvarint(b, uint64(len(c.changes)))
	for _, ch := range c.changes {
		b = binary.AppendUvarint(b, uint64(ch.n))
		b = append(b, byte(ch.state))
	}
	if c.vec != nil && len(c.vec.fresh) > 0 && docs == len(c.hot) {
		b = append(b, recordVectors)
		b = appendText(b, c.vec.name)
		b = binary.AppendUvarint(b, uint64(c.vec.dims))
		var live []uint32
		for _, n := range c.vec.fresh {
			if _, ok := c.vec.of[n]; ok {
				live = append(live, n)
			}
		}
		b = binary.AppendUvarint(b, uint64(len(live)))
		for _, n := range live {
			b = binary.AppendUvarint(b, uint64(n))
			for _, v := range c.vec.of[n] {
				b = append(b, byte(v))
			}
		}
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func (c *core) appendDoc(b []byte, n uint32) []byte {
	h, k := &c.hot[n], &c.cold[n]
	b = appendText(b, k.id)
	b = append(b, k.ref[:]...)
	b = binary.BigEndian.AppendUint64(b, k.digest)
	b = binary.AppendVarint(b, h.time)
	for _, id := range [4]uint32{h.kind, h.ns, h.category, h.session} {
		b = binary.AppendUvarint(b, uint64(id))
	}
	b = append(b, byte(h.state), h.conf)
	b = binary.AppendUvarint(b, uint64(len(k.idents)))
	for _, id := range k.idents {
		b = binary.AppendUvarint(b, uint64(id))
	}
	b = binary.AppendUvarint(b, uint64(k.title))
	b = binary.AppendUvarint(b, uint64(k.count))
	fwd := c.fwd.at(k.fwd)
	size := 0
	for range k.count {
		_, w := binary.Uvarint(fwd[size:])
		size += w
	}
	return append(b, fwd[:size]...)
}

// reader reads a frame; the first thing wrong sticks.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) uint(limit uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > limit {
		r.bad = true
		r.b = nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) int() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad = true
		r.b = nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.bad = true
		r.b = nil
		return make([]byte, min(n, 64))
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) byte() byte { return r.take(1)[0] }

func (r *reader) text() string {
	n := r.uint(uint64(len(r.b)))
	if r.bad {
		return ""
	}
	return string(r.take(int(n)))
}

// count reads how many records of at least size bytes follow.
func (r *reader) count(size int) int {
	return int(r.uint(uint64(len(r.b) / size)))
}

// replay adds a frame's gains to a core.
func (c *core) replay(body []byte, pos *mark) error {
	r := &reader{b: body}
	pos.arrival = r.uint(math.MaxUint64)
	copy(pos.hash[:], r.take(len(pos.hash)))
	for len(r.b) > 0 && !r.bad {
		switch r.byte() {
		case recordNames:
			for range r.count(1) {
				if s := r.text(); !r.bad && int(c.names.put(s)) != len(c.names.names)-1 && s != "" {
					return errDamaged
				}
			}
		case recordTerms:
			for range r.count(1) {
				t := r.text()
				if _, twice := c.dict[t]; twice || r.bad {
					return errDamaged
				}
				c.newTerm(t)
			}
		case recordDocs:
			for range r.count(64) {
				c.replayDoc(r)
				if r.bad {
					return errDamaged
				}
			}
		case recordStates:
			for range r.count(2) {
				n, s := r.uint(uint64(len(c.hot))), state(r.byte())
				if r.bad || int(n) >= len(c.hot) || s > stErased && s != stReplaced {
					return errDamaged
				}
				c.setState(uint32(n), s)
			}
		case recordVectors:
			c.replayVectors(r)
		default:
			return errDamaged
		}
	}
	if r.bad || len(c.hot)-c.dead != len(c.keys) {
		return errDamaged
	}
	return nil
}

func (c *core) replayDoc(r *reader) {
	var h hot
	var k cold
	k.id = strings.Clone(r.text())
	copy(k.ref[:], r.take(oplog.RefSize))
	k.digest = binary.BigEndian.Uint64(r.take(8))
	h.time = r.int()
	names := uint64(len(c.names.names) - 1)
	for _, p := range [4]*uint32{&h.kind, &h.ns, &h.category, &h.session} {
		*p = uint32(r.uint(names))
	}
	h.state, h.conf = state(r.byte()), r.byte()
	for range r.count(1) {
		k.idents = append(k.idents, uint32(r.uint(names)))
	}
	k.title = uint32(r.uint(math.MaxUint32))
	k.count = uint32(r.count(1))
	start := r.b
	for i := range k.count {
		v := r.uint(math.MaxUint32 << 1)
		if v>>1 >= uint64(len(c.terms)) {
			r.bad = true
			return
		}
		if v&1 == 0 {
			h.words++
			if !c.terms[v>>1].word {
				c.sort(uint32(v >> 1))
			}
		}
		c.count(uint32(v>>1), i < k.title)
	}
	if r.bad || h.state > stForgotten && h.state != stReplaced || h.conf > Verified || k.title > k.count {
		r.bad = true
		return
	}
	k.fwd = c.fwd.put(start[:len(start)-len(r.b)])
	n := uint32(len(c.hot))
	c.push(h, k)
	if h.state != stReplaced {
		c.keys[k.id] = n
	} else {
		c.dead++
	}
	c.post(n, h.state)
	c.list(n)
	if h.state == stLive {
		c.live++
		c.liveLen += uint64(h.words)
	}
}

func (c *core) replayVectors(r *reader) {
	name, dims := r.text(), int(r.uint(maxDims))
	if dims == 0 {
		r.bad = true
		return
	}
	use := c.vec != nil && c.vec.name == name
	if use {
		c.vec.dims = dims
	}
	for range r.count(dims) {
		n, raw := r.uint(uint64(len(c.hot))), r.take(dims)
		if r.bad || int(n) >= len(c.hot) {
			r.bad = true
			return
		}
		if !use || c.hot[n].state == stReplaced {
			continue
		}
		v := make([]int8, dims)
		for i, b := range raw {
			v[i] = int8(b)
		}
		c.vec.of[uint32(n)] = v
	}
}
