package search

import (
	"fmt"
	"sync"
)

// Most searches ask with the same few filters: facts of two namespaces, turns,
// summaries. What passes one, and how many of those hold a term, is kept from
// one search to the next and extended by what was added meanwhile.

const (
	// maxSets is how many filters are remembered, maxDF for how many terms each.
	maxSets = 8
	maxDF   = 1 << 16
	// worthSet is how many documents a filter looks at before it is remembered.
	worthSet = 256
)

// passes is the remembered sets of one core.
type passes struct {
	mu   sync.Mutex
	sets []*passSet // the last used is last
}

// passSet is what passes a filter, as of the first docs documents of a core and
// its states at a version. Searches see a core that stands still, so the first
// to come brings the set up to date, alone, before any other looks at it.
type passSet struct {
	mu      sync.Mutex
	key     string
	version uint64
	docs    int
	bits    []uint64
	count   int
	words   uint64
	df      map[uint32]uint32 // term -> documents that pass
}

// remember gives f its set, where one is worth it.
func (f *filter) remember(c *core) {
	if f.trivial || f.none {
		return
	}
	n := len(c.hot)
	if lists, ok := f.shortest(c); ok {
		n = 0
		for _, l := range lists {
			n += len(l)
		}
	}
	if n < worthSet {
		return
	}
	set := c.passes.get(fmt.Sprint(f.lists, f.sessions, f.after, f.before, f.minConf, f.superseded, f.forgotte, f.owned, f.orNobodys, f.owner))
	set.mu.Lock()
	defer set.mu.Unlock()
	set.refresh(c, f)
	f.set = set
}

func (p *passes) get(key string) *passSet {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, s := range p.sets {
		if s.key == key {
			p.sets = append(append(p.sets[:i:i], p.sets[i+1:]...), s)
			return s
		}
	}
	s := &passSet{key: key}
	if p.sets = append(p.sets, s); len(p.sets) > maxSets {
		p.sets = p.sets[1:]
	}
	return s
}

// refresh brings the set up to date. The caller holds mu.
func (s *passSet) refresh(c *core, f *filter) {
	if s.version != c.version || s.df == nil {
		s.version, s.docs, s.bits, s.count, s.words, s.df = c.version, 0, nil, 0, 0, map[uint32]uint32{}
	}
	for len(s.bits)*64 < len(c.hot) {
		s.bits = append(s.bits, 0)
	}
	for ; s.docs < len(c.hot); s.docs++ {
		n := uint32(s.docs)
		if !f.ok(c, n) {
			continue
		}
		s.bits[n>>6] |= 1 << (n & 63)
		s.count++
		s.words += uint64(c.hot[n].words)
		if len(s.df) > 0 {
			s.countTerms(c, n)
		}
	}
}

// countTerms adds a new document to what is known of its terms.
func (s *passSet) countTerms(c *core, n uint32) {
	seen := make(map[uint32]bool, c.cold[n].count)
	c.each(n, func(_ int, id uint32, _ bool) {
		if seen[id] {
			return
		}
		seen[id] = true
		if df, ok := s.df[id]; ok {
			s.df[id] = df + 1
		}
	})
}

func (s *passSet) has(n uint32) bool { return s.bits[n>>6]&(1<<(n&63)) != 0 }

// dfOf counts the documents that pass and hold a term.
func (s *passSet) dfOf(c *core, id uint32) uint32 {
	s.mu.Lock()
	df, ok := s.df[id]
	s.mu.Unlock()
	if ok {
		return df
	}
	df = c.countDF(id, s.has)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.df) >= maxDF {
		clear(s.df)
	}
	s.df[id] = df
	return df
}

// countDF counts the documents of a term that pass.
func (c *core) countDF(id uint32, pass func(n uint32) bool) (n uint32) {
	b, doc := c.terms[id].post, uint32(0)
	for len(b) > 0 {
		v, w := uvarint(b)
		b = b[w:]
		doc += uint32(v >> 1)
		if v&1 != 0 {
			_, w = uvarint(b)
			b = b[w:]
		}
		if pass(doc - 1) {
			n++
		}
	}
	return n
}
