package search

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"tallystick/oplog"
	"tallystick/query/search/analysis"
)

// core is the index itself: postings in memory, without locks, time or IO.
// The same documents in any order give the same answers.
type core struct {
	dict   map[string]uint32
	sorted btree.Map[string, uint32]
	terms  []term

	lean []lean
	hot  []hot
	cold []cold
	keys map[string]uint32 // document id -> number

	names  interner
	bySess [][]uint32 // name -> documents of that session, by time and id
	byName [nLists][][]uint32

	// fwd holds each document's terms in order: number<<1, plus one for an
	// identifier kept whole.
	fwd fwdStore

	live    int    // documents that are Live
	liveLen uint64 // their words
	dead    int    // documents replaced or erased, for compaction
	erased  bool   // some are erased: compaction must not wait

	// version changes when a document's state does; passes remembers what
	// filters let through.
	version uint64
	passes  passes

	vec *vectors // nil without a Vectorizer

	// changes are states set on documents that a file already holds, to be
	// written with the next frame; kept is how much of everything it holds.
	changes []change
	kept    extent
	keptPos mark

	buf     []byte
	scratch []uint16
	touched []uint32
}

// change is a state that document n took on.
type change struct {
	n     uint32
	state state
}

// extent is how much of a core is in its file.
type extent struct{ terms, names, docs int }

type term struct {
	text string
	post []byte // gaps and counts
	last uint32 // last document, plus one
	df   uint32 // documents that are Live
	all  uint32 // documents
	word bool   // was a word somewhere, so that it is in core.sorted
	cue  cue    // what it tells
	sig  uint64 // letters, for fuzzy matching
}

// lean is what scoring looks at when there is no filter.
type lean struct {
	words   uint32 // hidden when it is not Live
	session uint32
}

// hidden stands in lean.words for a document that is not shown by default.
const hidden = 1<<32 - 1

// hot is what a filter looks at.
type hot struct {
	time     int64
	ns       uint32
	session  uint32
	words    uint32
	kind     uint32
	category uint32
	state    state
	conf     uint8
}

type cold struct {
	id     string
	ref    oplog.Ref
	idents []uint32
	digest uint64 // of title and text
	fwd    uint64
	title  uint32 // how many of its terms are the title's
	count  uint32
}

const (
	listNS = iota
	listKind
	listCategory
	listIdentity
	nLists
)

func newCore() *core {
	c := &core{dict: map[string]uint32{}, keys: map[string]uint32{}}
	c.names.ids = map[string]uint32{}
	c.names.put("")
	return c
}

// put adds a document or changes the one of that id.
func (c *core) put(p *prepared) {
	d, st := &p.doc, parseState(p.doc.State)
	if old, ok := c.keys[d.ID]; ok {
		if st != stLive && p.digest == emptyDigest || c.same(old, p) {
			// Only the state changes; the text of what is gone may be too.
			c.setState(old, st)
			return
		}
		if p.known && c.cold[old].digest == p.digest {
			var was prepared
			c.export(old, &was)
			p.tokens, p.title, p.known = was.tokens, was.title, false
		}
		c.setState(old, stReplaced)
	}
	if p.known {
		// What held this text went within the same batch.
		p.cut(new(analysis.Analyser))
	}
	if st == stErased || st != stLive && p.digest == emptyDigest {
		return
	}
	n := uint32(len(c.hot))
	ids, words := c.intern(p)
	h := hot{
		time: d.Time, ns: c.names.put(d.Namespace), session: c.names.put(d.Session), words: words,
		kind: c.names.put(d.Kind), category: c.names.put(d.Category), state: st, conf: confidence(d.Confidence),
	}
	k := cold{id: strings.Clone(d.ID), ref: d.Ref, digest: p.digest, title: uint32(p.title), count: uint32(len(p.tokens)), fwd: c.fwd.put(ids)}
	for _, who := range d.Identities {
		if id := c.names.put(who); !slices.Contains(k.idents, id) {
			k.idents = append(k.idents, id)
		}
	}
	c.push(h, k)
	c.keys[k.id] = n
	c.post(n, st)
	c.list(n)
	if st == stLive {
		c.live++
		c.liveLen += uint64(words)
	}
}

// push appends a document's fixed parts.
func (c *core) push(h hot, k cold) {
	l := lean{h.words, h.session}
	if h.state != stLive {
		l.words = hidden
	}
	c.lean, c.hot, c.cold = append(c.lean, l), append(c.hot, h), append(c.cold, k)
}

func confidence(level int) uint8 { return uint8(min(max(level, Unverified), Verified)) }

// intern gives the document's terms as bytes, and how many words they are. It
// leaves their counts in scratch.
func (c *core) intern(p *prepared) ([]byte, uint32) {
	buf := c.buf[:0]
	words := uint32(0)
	for i, t := range p.tokens {
		id, ok := c.dict[t.text]
		if !ok {
			id = c.newTerm(strings.Clone(t.text))
		}
		v := uint64(id) << 1
		if t.whole {
			v |= 1
		} else {
			words++
			if !c.terms[id].word {
				c.sort(id)
			}
		}
		buf = binary.AppendUvarint(buf, v)
		c.count(id, i < p.title)
	}
	c.buf = buf
	return buf, words
}

func (c *core) newTerm(text string) uint32 {
	id := uint32(len(c.terms))
	c.terms = append(c.terms, term{text: text, sig: signature(text), cue: cueOf(text)})
	c.scratch = append(c.scratch, 0)
	c.dict[text] = id
	if isHex(text) {
		c.sort(id)
	}
	return id
}

// sort puts a term where its like is looked for: words and hashes, not the
// many identifiers.
func (c *core) sort(id uint32) {
	t := &c.terms[id]
	t.word = true
	c.sorted.Set(t.text, id)
}

// each calls fn for the terms of document n in order.
func (c *core) each(n uint32, fn func(i int, id uint32, whole bool)) {
	k := &c.cold[n]
	b := c.fwd.at(k.fwd)
	for i := range int(k.count) {
		v, w := binary.Uvarint(b)
		b = b[w:]
		fn(i, uint32(v>>1), v&1 != 0)
	}
}

// counts fills c.touched with the distinct terms of document n and c.scratch
// with how often each counts; the caller clears them.
func (c *core) counts(n uint32) {
	title := int(c.cold[n].title)
	c.each(n, func(i int, id uint32, _ bool) { c.count(id, i < title) })
}

func (c *core) count(id uint32, title bool) {
	if c.scratch[id] == 0 {
		c.touched = append(c.touched, id)
	}
	if c.scratch[id] < 1<<15 {
		c.scratch[id]++
		if title {
			c.scratch[id] += titleWeight - 1
		}
	}
}

func (c *core) clearCounts() {
	for _, id := range c.touched {
		c.scratch[id] = 0
	}
	c.touched = c.touched[:0]
}

// post adds the counted terms to the postings of document n.
func (c *core) post(n uint32, st state) {
	for _, id := range c.touched {
		t := &c.terms[id]
		gap, tf := uint64(n+1-t.last)<<1, uint64(c.scratch[id])
		if tf > 1 {
			t.post = binary.AppendUvarint(t.post, gap|1)
			t.post = binary.AppendUvarint(t.post, tf)
		} else {
			t.post = binary.AppendUvarint(t.post, gap)
		}
		t.last = n + 1
		t.all++
		if st == stLive {
			t.df++
		}
	}
	c.clearCounts()
}

func (c *core) list(n uint32) {
	h, k := &c.hot[n], &c.cold[n]
	c.enlist(listNS, h.ns, n)
	c.enlist(listKind, h.kind, n)
	c.enlist(listCategory, h.category, n)
	for _, id := range k.idents {
		c.enlist(listIdentity, id, n)
	}
	if h.session == 0 {
		return
	}
	for int(h.session) >= len(c.bySess) {
		c.bySess = append(c.bySess, nil)
	}
	s := c.bySess[h.session]
	at, _ := slices.BinarySearchFunc(s, n, c.compareInSession)
	c.bySess[h.session] = slices.Insert(s, at, n)
}

// compareInSession orders documents as they were said.
func (c *core) compareInSession(a, b uint32) int {
	switch ta, tb := c.hot[a].time, c.hot[b].time; {
	case ta != tb && ta < tb:
		return -1
	case ta != tb:
		return 1
	}
	if o := c.cold[a].ref.Compare(c.cold[b].ref); o != 0 {
		return o
	}
	if o := strings.Compare(c.cold[a].id, c.cold[b].id); o != 0 {
		return o
	}
	return int(a) - int(b)
}

func (c *core) enlist(list int, name, n uint32) {
	for int(name) >= len(c.byName[list]) {
		c.byName[list] = append(c.byName[list], nil)
	}
	c.byName[list][name] = append(c.byName[list][name], n)
}

// same reports whether p is document n but for its state.
func (c *core) same(n uint32, p *prepared) bool {
	h, k, d := &c.hot[n], &c.cold[n], &p.doc
	if k.digest != p.digest || k.ref != d.Ref || h.time != d.Time || h.conf != confidence(d.Confidence) ||
		c.names.names[h.ns] != d.Namespace || c.names.names[h.session] != d.Session ||
		c.names.names[h.kind] != d.Kind || c.names.names[h.category] != d.Category {
		return false
	}
	for _, who := range d.Identities {
		id, ok := c.names.get(who)
		if !ok || !slices.Contains(k.idents, id) {
			return false
		}
	}
	return len(k.idents) <= len(d.Identities)
}

func (c *core) setState(n uint32, s state) {
	h := &c.hot[n]
	if h.state == s {
		return
	}
	was, is := h.state == stLive, s == stLive
	if was != is {
		c.counts(n)
		for _, id := range c.touched {
			if is {
				c.terms[id].df++
			} else {
				c.terms[id].df--
			}
		}
		c.clearCounts()
		c.lean[n].words = hidden
		if is {
			c.lean[n].words = h.words
			c.live++
			c.liveLen += uint64(h.words)
		} else {
			c.live--
			c.liveLen -= uint64(h.words)
		}
	}
	h.state = s
	c.version++
	if int(n) < c.kept.docs {
		c.changes = append(c.changes, change{n, s})
	}
	if s == stErased || s == stReplaced {
		c.dead++
		c.erased = c.erased || s == stErased
		if c.keys[c.cold[n].id] == n {
			delete(c.keys, c.cold[n].id)
		}
		if c.vec != nil {
			delete(c.vec.of, n)
		}
		if s == stErased {
			h.state = stReplaced
		}
	}
}

// eraseRefs takes out whatever came from some entries.
func (c *core) eraseRefs(refs []oplog.Ref) {
	if len(refs) == 0 {
		return
	}
	gone := make(map[oplog.Ref]bool, len(refs))
	for _, r := range refs {
		gone[r] = true
	}
	for n := range c.cold {
		if c.hot[n].state != stReplaced && gone[c.cold[n].ref] {
			c.setState(uint32(n), stErased)
		}
	}
	// A text that was replaced may still be there, out of use.
	c.erased = true
}

// wasteful reports whether compaction is worth it.
func (c *core) wasteful() bool {
	return c.erased || c.dead > 1024 && c.dead > len(c.hot)/4
}

// compact gives a core of the documents in use, in the same order: no term of
// an erased document is left in it (T5).
func (c *core) compact() *core {
	fresh := newCore()
	if c.vec != nil {
		fresh.vec = &vectors{name: c.vec.name, dims: c.vec.dims, of: make(map[uint32][]int8, len(c.vec.of))}
	}
	var p prepared
	for n := range c.hot {
		if c.hot[n].state == stReplaced {
			continue
		}
		c.export(uint32(n), &p)
		if c.vec != nil {
			if v, ok := c.vec.of[uint32(n)]; ok {
				fresh.vec.of[uint32(len(fresh.hot))] = v
			}
		}
		fresh.put(&p)
	}
	return fresh
}

// export fills p with document n.
func (c *core) export(n uint32, p *prepared) {
	h, k := &c.hot[n], &c.cold[n]
	p.doc = Document{
		ID: k.id, Ref: k.ref, Kind: c.names.names[h.kind], Namespace: c.names.names[h.ns], Category: c.names.names[h.category],
		Session: c.names.names[h.session], Time: h.time, Confidence: int(h.conf), State: h.state.public(),
	}
	for _, id := range k.idents {
		p.doc.Identities = append(p.doc.Identities, c.names.names[id])
	}
	p.digest, p.title, p.tokens = k.digest, int(k.title), p.tokens[:0]
	c.each(n, func(_ int, id uint32, whole bool) {
		p.tokens = append(p.tokens, token{c.terms[id].text, whole})
	})
}
