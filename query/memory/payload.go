package memory

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"tallystick/oplog"
	"tallystick/query/imported"
	"tallystick/query/internal/args"
	"tallystick/query/internal/pack"
)

// Kinds of entry of this domain.
const (
	KindFact  = "fact"
	KindMark  = "fact.mark"
	KindLink  = "fact.link"
	KindAlias = "fact.alias"
)

// PayloadVersion is the version of the payloads that this program writes and
// reads.
const PayloadVersion = 0

// Limits.
const (
	MaxNamespace = 512      // bytes
	MaxText      = 64 << 10 // bytes
	MaxCategory  = 64       // bytes
	MaxTerm      = 256      // bytes, of a term or a node
	MaxTerms     = 32       // equivalents of one alias

	maxLabel = 32   // bytes of a confidence label, whoever wrote it
	maxNames = 8192 // copies one mark names; older ones are reached by text
	maxRoots = 64   // lineages one fact belongs to
)

// Shared is the reserved namespace that everybody reads besides their own.
// Nothing else about it is special: it is passed like any other.
const Shared = "__shared__"

// Fact is what a caller adds.
type Fact struct {
	Namespace  string
	Text       string
	Confidence string // "", verified, inferred or unverified
	Category   string // optional, free
	Import     imported.Key
	Author     string // original author of an imported row, or empty
	At         string // original time of an imported row, verbatim, or empty
}

// factBody is the payload of a fact.
type factBody struct {
	Fact
	Roots   []oplog.Hash // lineages it continues; none for a fact of its own
	Parents []oplog.Hash // entries it replaces, as its writer saw them
}

const factFields = 9

func (f *factBody) encode() []byte {
	b := pack.Array(make([]byte, 0, len(f.Text)+64), factFields)
	b = pack.Str(b, f.Namespace)
	b = pack.Str(b, f.Text)
	b = pack.Str(b, f.Confidence)
	b = pack.Str(b, f.Category)
	b = f.Import.Append(b)
	b = pack.Str(b, f.Author)
	b = pack.Str(b, f.At)
	b = appendHashes(b, f.Roots)
	return appendHashes(b, f.Parents)
}

func decodeFact(body []byte) (f factBody, err error) {
	r := pack.NewReader(body)
	r.Exactly(factFields)
	f.Namespace = string(r.Str(MaxNamespace))
	f.Text = string(r.Str(MaxText))
	f.Confidence = string(r.Str(maxLabel))
	f.Category = string(r.Str(MaxCategory))
	f.Import = imported.Read(&r)
	f.Author = string(r.Str(oplog.MaxAuthor))
	f.At = string(r.Str(64))
	f.Roots = readHashes(&r, maxRoots)
	f.Parents = readHashes(&r, maxNames)
	if err := r.End(); err != nil {
		return factBody{}, err
	}
	switch {
	case args.Blank(f.Namespace) || !args.Plain(f.Namespace):
		r.Fail("namespace is blank or no text")
	case args.Blank(f.Text) || !args.Plain(f.Text):
		r.Fail("text is blank or no text")
	case !args.Plain(f.Confidence), !args.Plain(f.Category), !args.Plain(f.Author), !args.Plain(f.At):
		r.Fail("a field is no text")
	case len(f.Roots) == 0 && len(f.Parents) > 0:
		r.Fail("replaces something outside a lineage")
	case len(f.Roots) > 0 && !f.Import.IsZero():
		r.Fail("an imported row continues a lineage")
	}
	return f, r.Err()
}

// action says what a mark does. The numbers are part of the payload.
type action uint64

const (
	actUpdate action = 1 + iota
	actForget
	actPin
	actUnpin
	actRemove
)

// markBody is the payload of a mark.
type markBody struct {
	Action action
	Names  []oplog.Hash // entries that are retired or removed
	Roots  []oplog.Hash // lineages it speaks of
	New    oplog.Hash   // update: the fact that stands in for them
}

func (m *markBody) encode() []byte {
	b := pack.Array(nil, 4)
	b = pack.Uint(b, uint64(m.Action))
	b = appendHashes(b, m.Names)
	b = appendHashes(b, m.Roots)
	if m.New.IsZero() {
		return pack.Nil(b)
	}
	return pack.Bin(b, m.New[:])
}

func decodeMark(body []byte) (m markBody, err error) {
	r := pack.NewReader(body)
	r.Exactly(4)
	m.Action = action(r.Uint(uint64(actRemove)))
	m.Names = readHashes(&r, maxNames)
	m.Roots = readHashes(&r, maxNames)
	if !r.Nil() {
		m.New = readHash(&r)
	}
	if err := r.End(); err != nil {
		return markBody{}, err
	}
	switch {
	case m.Action == 0:
		r.Fail("mark without action")
	case (m.Action == actUpdate) == m.New.IsZero():
		r.Fail("replacement and action do not fit")
	case len(m.Names) == 0 && m.Action != actPin && m.Action != actUnpin:
		r.Fail("mark of nothing")
	case len(m.Roots) == 0 && (m.Action == actPin || m.Action == actForget):
		r.Fail("mark of no lineage")
	}
	return m, r.Err()
}

// linkBody is the payload of a link between two nodes.
type linkBody struct{ Namespace, From, To string }

func (l *linkBody) encode() []byte {
	b := pack.Str(pack.Array(nil, 3), l.Namespace)
	return pack.Str(pack.Str(b, l.From), l.To)
}

func decodeLink(body []byte) (l linkBody, err error) {
	r := pack.NewReader(body)
	r.Exactly(3)
	l.Namespace = string(r.Str(MaxNamespace))
	l.From, l.To = string(r.Str(MaxTerm)), string(r.Str(MaxTerm))
	if err := r.End(); err != nil {
		return linkBody{}, err
	}
	for _, s := range []string{l.Namespace, l.From, l.To} {
		if args.Blank(s) || !args.Plain(s) {
			r.Fail("a field is blank or no text")
		}
	}
	if l.From != node(l.From) || l.To != node(l.To) {
		r.Fail("node is not in its plain form")
	}
	return l, r.Err()
}

// aliasBody is the payload of an alias.
type aliasBody struct {
	Namespace, Term string
	Equivalents     []string
}

func (a *aliasBody) encode() []byte {
	b := pack.Str(pack.Array(nil, 3), a.Namespace)
	b = pack.Array(pack.Str(b, a.Term), len(a.Equivalents))
	for _, s := range a.Equivalents {
		b = pack.Str(b, s)
	}
	return b
}

func decodeAlias(body []byte) (a aliasBody, err error) {
	r := pack.NewReader(body)
	r.Exactly(3)
	a.Namespace, a.Term = string(r.Str(MaxNamespace)), string(r.Str(MaxTerm))
	for n := r.Array(MaxTerms); n > 0 && r.Err() == nil; n-- {
		a.Equivalents = append(a.Equivalents, string(r.Str(MaxTerm)))
	}
	if err := r.End(); err != nil {
		return aliasBody{}, err
	}
	if len(a.Equivalents) == 0 {
		r.Fail("alias without equivalents")
	}
	for _, s := range append([]string{a.Namespace, a.Term}, a.Equivalents...) {
		if args.Blank(s) || !args.Plain(s) {
			r.Fail("a field is blank or no text")
		}
	}
	return a, r.Err()
}

// appendHashes writes a set: ascending, without repeats.
func appendHashes(dst []byte, list []oplog.Hash) []byte {
	list = sorted(list)
	dst = pack.Array(dst, len(list))
	for i := range list {
		dst = pack.Bin(dst, list[i][:])
	}
	return dst
}

func readHashes(r *pack.Reader, max int) (list []oplog.Hash) {
	for n := r.Array(max); n > 0 && r.Err() == nil; n-- {
		h := readHash(r)
		if k := len(list); k > 0 && r.Err() == nil && bytes.Compare(list[k-1][:], h[:]) >= 0 {
			r.Fail("hashes out of order")
		}
		list = append(list, h)
	}
	return list
}

func sorted(list []oplog.Hash) []oplog.Hash {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b oplog.Hash) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(list)
}

func readHash(r *pack.Reader) (h oplog.Hash) {
	b := r.Bin(len(h))
	if r.Err() == nil && len(b) != len(h) {
		r.Fail("hash of %d bytes", len(b))
	}
	copy(h[:], b)
	if r.Err() == nil && h.IsZero() {
		r.Fail("hash of nothing")
	}
	return h
}

// ID is the name of a fact: mem_ and the first 16 hex digits of its header's
// hash.
func ID(h oplog.Hash) string { return "mem_" + hex.EncodeToString(h[:8]) }

// importRoot is the lineage of everything imported under one key.
func importRoot(k imported.Key) oplog.Hash {
	h := k.Hash()
	return sha256.Sum256(append([]byte("tallystick import\x00"), h[:]...))
}
