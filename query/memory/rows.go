package memory

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"tallystick/oplog"
	"tallystick/query/internal/pack"
)

// ViewName is the name of this domain's view.
const ViewName = "memory"

// The rows of the view. ns16 and slot16 are digests of a namespace, and of a
// namespace with a text. Rows hold references and digests; texts are read back
// from the log.
//
//	h hash32                 info: every fact, mark, link and alias by hash
//	a ns16 Ref               nothing: every fact of a namespace
//	n ns16 Ref               nothing: the live ones
//	N namespace              counts: live, all
//	x slot16 Ref             hash: copies of a text that nothing names
//	y slot16 Ref             hash: copies that an update or a forget names
//	t slot16 Ref             replacement or nothing: marks that reach a text
//	l root32 class1 Ref      type, hash: operations of a lineage
//	w hash32 Ref             type, hash: who names a fact or a mark
//	q hash32 Ref             nothing: who removed a pin, a link or an alias
//	M Ref rule1 root|slot    type, hash: operations that lost without being seen
//	m rule1 root|slot Ref    hash: the same, by where
//	W hash32, L root32, T slot16, P root32
//	                         nothing: there is, or was, a row w, l, t, p of it;
//	                         a lookup is cheaper than a scan that finds nothing
//	p root32 Ref             hash: pins
//	d ns16 band9 Ref         nothing: near-duplicate bands of the live ones
//	k ns16 node16 Ref        nothing: links from a node, K those to it
//	e ns16 term16 Ref        nothing: aliases of a term, E all of a namespace
const (
	rowInfo    = 'h'
	rowAll     = 'a'
	rowLive    = 'n'
	rowCounts  = 'N'
	rowOpen    = 'x'
	rowNamed   = 'y'
	rowReach   = 't'
	rowLineage = 'l'
	rowNamer   = 'w'
	rowRemover = 'q'
	rowMerge   = 'M'
	rowLosers  = 'm'
	rowPin     = 'p'
	rowBand    = 'd'
	rowFrom    = 'k'
	rowTo      = 'K'
	rowAlias   = 'e'
	rowAliases = 'E'

	hasNamer   = 'W'
	hasLineage = 'L'
	hasReach   = 'T'
	hasPin     = 'P'
)

// What an operation is, in rows.
const (
	typeFact   = 'f'
	typeUpdate = 'u' // an update's mark
	typeForget = 'g'
	typePin    = 'i'
	typeUnpin  = 'j'
	typeRemove = 'r'
	typeLink   = 'k'
	typeAlias  = 'e'
)

type id16 [16]byte

func nsID(namespace string) id16 {
	d := sha256.Sum256([]byte("n\x00" + namespace))
	return id16(d[:16])
}

func slotID(namespace, text string) id16 {
	b := binary.BigEndian.AppendUint32([]byte("s\x00"), uint32(len(namespace)))
	d := sha256.Sum256(append(append(b, namespace...), text...))
	return id16(d[:16])
}

func termID(term string) id16 {
	d := sha256.Sum256([]byte("t\x00" + term))
	return id16(d[:16])
}

// key joins the parts of a row's key.
func key(table byte, parts ...[]byte) []byte {
	n := 1
	for _, p := range parts {
		n += len(p)
	}
	k := append(make([]byte, 0, n), table)
	for _, p := range parts {
		k = append(k, p...)
	}
	return k
}

// info is what the view knows of an entry by its hash.
type info struct {
	typ      byte
	ref      oplog.Ref
	hash     oplog.Hash // not stored: it is the key
	ns       id16
	slot     id16
	class    byte         // facts: 0 begins a lineage, 1 continues one
	roots    []oplog.Hash // lineages; never empty for facts and forgets
	label    string       // confidence as written
	category string
	more     []byte // facts: bands; updates: the replacement; links: the other node
	nsName   string
}

func (i *info) fact() bool { return i.typ == typeFact }

// lives is the key of the row that a live fact has.
func (i *info) lives() []byte { return key(rowLive, i.ns[:], i.ref[:]) }

func (i *info) encode() []byte {
	b := pack.Array(nil, 10)
	b = pack.Uint(b, uint64(i.typ))
	b = pack.Bin(b, i.ref[:])
	b = pack.Bin(b, i.ns[:])
	b = pack.Bin(b, i.slot[:])
	b = pack.Uint(b, uint64(i.class))
	if len(i.roots) == 1 && i.roots[0] == i.hash {
		b = pack.Array(b, 0) // its own lineage
	} else {
		b = appendHashes(b, i.roots)
	}
	b = pack.Str(b, i.label)
	b = pack.Str(b, i.category)
	b = pack.Bin(b, i.more)
	return pack.Str(b, i.nsName)
}

func decodeInfo(hash oplog.Hash, v []byte) (i info, err error) {
	r := pack.NewReader(v)
	r.Exactly(10)
	i.hash = hash
	i.typ = byte(r.Uint(255))
	copy(i.ref[:], r.Bin(oplog.RefSize))
	copy(i.ns[:], r.Bin(16))
	copy(i.slot[:], r.Bin(16))
	i.class = byte(r.Uint(1))
	if i.roots = readHashes(&r, maxNames); len(i.roots) == 0 {
		i.roots = []oplog.Hash{hash}
	}
	i.label = string(r.Str(maxLabel))
	i.category = string(r.Str(MaxCategory))
	i.more = append([]byte(nil), r.Bin(128)...)
	i.nsName = string(r.Str(MaxNamespace))
	if err := r.End(); err != nil {
		return info{}, fmt.Errorf("memory: row of an entry: %w", err)
	}
	return i, nil
}

// getInfo reads the row of an entry; ok is false when it is not here.
func getInfo(r oplog.Reader, hash oplog.Hash) (i info, ok bool, err error) {
	v, err := r.Get(key(rowInfo, hash[:]))
	if errors.Is(err, oplog.ErrNotFound) {
		return info{}, false, nil
	}
	if err != nil {
		return info{}, false, err
	}
	i, err = decodeInfo(hash, v)
	return i, err == nil, err
}

func has(r oplog.Reader, k []byte) (bool, error) {
	_, err := r.Get(k)
	if errors.Is(err, oplog.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// any reports whether a row with the prefix exists.
func anyRow(r oplog.Reader, prefix []byte) (found bool, err error) {
	err = r.Scan(prefix, nil, false, func(_, _ []byte) (bool, error) {
		found = true
		return false, nil
	})
	return found, err
}

// isNamed reports whether something names a fact or a mark.
func isNamed(r oplog.Reader, hash oplog.Hash) (bool, error) {
	return has(r, key(hasNamer, hash[:]))
}

// isRemoved reports whether a pin, a link or an alias was taken away.
func isRemoved(r oplog.Reader, hash oplog.Hash) (bool, error) {
	return anyRow(r, key(rowRemover, hash[:]))
}

// note writes a row that says no more than that it is there.
func note(tx oplog.Tx, k []byte) error {
	switch there, err := has(tx, k); {
	case err != nil || there:
		return err
	}
	return tx.Insert(k, nil)
}

// isPinned reports whether a lineage is pinned.
func isPinned(r oplog.Reader, root oplog.Hash) (bool, error) {
	if once, err := has(r, key(hasPin, root[:])); err != nil || !once {
		return false, err
	}
	return anyRow(r, key(rowPin, root[:]))
}

// tail is the Ref at the end of a key.
func tail(k []byte) (ref oplog.Ref, err error) {
	if len(k) < oplog.RefSize {
		return ref, fmt.Errorf("memory: key of %d bytes", len(k))
	}
	return oplog.RefOf(k[len(k)-oplog.RefSize:])
}

// tagged splits a value of a type and a hash.
func tagged(v []byte) (typ byte, h oplog.Hash, err error) {
	if len(v) != 1+len(h) {
		return 0, h, fmt.Errorf("memory: value of %d bytes", len(v))
	}
	return v[0], oplog.Hash(v[1:]), nil
}

func tag(typ byte, h oplog.Hash) []byte { return append([]byte{typ}, h[:]...) }

// op is an operation of a lineage.
type op struct {
	typ   byte // typeFact or typeForget
	class byte
	ref   oplog.Ref
	hash  oplog.Hash
}

// beats reports whether a stands above b in their lineage. What continues a
// lineage stands above what begins one, later above earlier; of several
// beginnings (copies of one import) the earliest counts.
func (a op) beats(b op) bool {
	switch {
	case a.class != b.class:
		return a.class > b.class
	case a.class == 0:
		return a.ref.Compare(b.ref) < 0
	}
	return a.ref.Compare(b.ref) > 0
}

// head is the operation that stands above all others of a lineage.
func head(r oplog.Reader, root oplog.Hash) (o op, ok bool, err error) {
	classes := []byte{1, 0}
	switch more, err := has(r, key(hasLineage, root[:])); {
	case err != nil:
		return op{}, false, err
	case !more:
		classes = nil
	}
	for _, class := range classes {
		err = r.Scan(key(rowLineage, root[:], []byte{class}), nil, class == 1, func(k, v []byte) (bool, error) {
			var err error
			if o.ref, err = tail(k); err != nil {
				return false, err
			}
			o.typ, o.hash, err = tagged(v)
			o.class, ok = class, err == nil
			return false, err
		})
		if ok || err != nil {
			return o, ok, err
		}
	}
	i, ok, err := getInfo(r, root)
	if err != nil || !ok || !i.fact() || i.class != 0 || i.roots[0] != root {
		return op{}, false, err
	}
	return op{typ: typeFact, ref: i.ref, hash: root}, true, nil
}

func getCounts(r oplog.Reader, namespace string) (live, all uint64, err error) {
	v, err := r.Get(key(rowCounts, []byte(namespace)))
	if errors.Is(err, oplog.ErrNotFound) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	if len(v) != 16 {
		return 0, 0, fmt.Errorf("memory: counts of %d bytes", len(v))
	}
	return binary.BigEndian.Uint64(v), binary.BigEndian.Uint64(v[8:]), nil
}

func addCounts(tx oplog.Tx, namespace string, live, all int) error {
	l, a, err := getCounts(tx, namespace)
	if err != nil {
		return err
	}
	v := binary.BigEndian.AppendUint64(nil, l+uint64(int64(live)))
	return tx.Set(key(rowCounts, []byte(namespace)), binary.BigEndian.AppendUint64(v, a+uint64(int64(all))))
}
