package search

import (
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"tallystick/query/search/analysis"
)

type interner struct {
	ids   map[string]uint32
	names []string
}

func (in *interner) put(s string) uint32 {
	if id, ok := in.ids[s]; ok {
		return id
	}
	s = strings.Clone(s)
	id := uint32(len(in.names))
	in.names = append(in.names, s)
	in.ids[s] = id
	return id
}

func (in *interner) get(s string) (uint32, bool) {
	id, ok := in.ids[s]
	return id, ok
}

// fwdStore is an append-only byte store in blocks, so that growing copies
// nothing.
type fwdStore struct{ blocks [][]byte }

const fwdBlock = 1 << 20

func (f *fwdStore) put(b []byte) uint64 {
	n := len(f.blocks)
	if n == 0 || len(f.blocks[n-1])+len(b) > cap(f.blocks[n-1]) {
		f.blocks = append(f.blocks, make([]byte, 0, max(fwdBlock, len(b))))
		n++
	}
	at := uint64(n-1)<<32 | uint64(len(f.blocks[n-1]))
	f.blocks[n-1] = append(f.blocks[n-1], b...)
	return at
}

func (f *fwdStore) at(pos uint64) []byte { return f.blocks[pos>>32][uint32(pos):] }

// prepared is a document whose text has been cut, off the index's lock.
type prepared struct {
	doc    Document
	digest uint64
	tokens []token
	title  int  // how many tokens are the title's
	known  bool // the index holds this text already: not cut again
}

type token struct {
	text  string
	whole bool
}

// prepare readies a document for cut, off the index's lock.
func (c *core) prepare(d Document) prepared {
	p := prepared{doc: d, digest: digest(d.Title, d.Text)}
	if n, ok := c.keys[d.ID]; ok && c.cold[n].digest == p.digest {
		p.known = true
	}
	for i, t := range d.Identities {
		if rest, ok := strings.CutPrefix(t, "@"); ok {
			if &p.doc.Identities[0] == &d.Identities[0] {
				p.doc.Identities = slices.Clone(d.Identities)
			}
			p.doc.Identities[i] = rest
		}
	}
	return p
}

// cut turns the text into tokens.
func (p *prepared) cut(a *analysis.Analyser) {
	for i, text := range [2]string{p.doc.Title, p.doc.Text} {
		toks := a.Tokens(text)
		p.tokens = slices.Grow(p.tokens, len(toks))
		for _, t := range toks {
			p.tokens = append(p.tokens, token{t.Term, t.Whole})
		}
		if i == 0 {
			p.title = len(p.tokens)
		}
	}
	p.doc.Title, p.doc.Text, p.known = "", "", false
}

func digest(title, text string) uint64 {
	var h xxhash.Digest
	h.Reset()
	h.WriteString(title)
	h.Write([]byte{0})
	h.WriteString(text)
	return h.Sum64()
}

var emptyDigest = digest("", "")

// titleWeight is how often a word of the title counts.
const titleWeight = 2
