package summary

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/cespare/xxhash/v2"

	"tallystick/oplog"
	"tallystick/query/internal/pack"
)

// ViewName is the name of this domain's view.
const ViewName = "summary"

// The rows of the view. The scope is an identity, or nothing for the whole
// ledger.
//
//	i hash8(scope) inverted time 8 id8 Ref             nothing
//	c hash8(scope) category1 inverted time 8 id8 Ref   nothing: the same by category
//	n scope                                            for each category: how many, how many without a readable time
//	k key16                                            import: Ref of the one that counts, time, category, identities
//	d key16 Ref                                        nothing: copies that do not count
const (
	rowIndex    = 'i'
	rowCategory = 'c'
	rowCount    = 'n'
)

// restLen is the length of inverted time, id and Ref: the order of pages.
const restLen = 8 + 8 + oplog.RefSize

// noTime stands for a timestamp that cannot be read: it sorts last.
const noTime = math.MinInt64

// item is what the rows of one summary are made of.
type item struct {
	ref        oplog.Ref
	millis     int64 // noTime if it cannot be read
	category   int
	identities []string
}

// View folds summaries.
type View struct{}

// Name is "summary".
func (View) Name() string { return ViewName }

// Version of the rows.
func (View) Version() uint32 { return 2 }

// Kinds are summaries.
func (View) Kinds() []string { return []string{Kind} }

// Content are the kinds whose payload a person may have erased (T5).
func (View) Content() []string { return []string{Kind} }

// Apply checks one entry and writes its rows. Of several copies of one import
// only the earliest by C2 has rows, whatever came first (M1).
func (View) Apply(tx oplog.Tx, e *oplog.Entry) error {
	s, err := Decode(e)
	if err != nil {
		return err
	}
	if err := s.check(e.Author); err != nil {
		return oplog.Quarantine("summary: %v", err)
	}
	it := item{ref: e.Ref(), millis: noTime, category: categoryCode(s.Category), identities: s.Identities}
	if ms, ok := s.millis(e); ok {
		it.millis = ms
	}
	if !s.Import.IsZero() {
		counts, err := imports.Take(tx, s.Import.Hash(), it.ref, it.bytes(), func(was []byte) error {
			first, err := parseItem(was)
			if err != nil {
				return err
			}
			return first.put(tx, -1)
		})
		if err != nil || !counts {
			return err
		}
	}
	return it.put(tx, 1)
}

// bytes encodes what is needed to take the rows away again.
func (it *item) bytes() []byte {
	b := pack.Array(nil, 4)
	b = pack.Bin(b, it.ref[:])
	b = pack.Uint(b, uint64(it.millis))
	b = pack.Uint(b, uint64(it.category))
	b = pack.Array(b, len(it.identities))
	for _, id := range it.identities {
		b = pack.Str(b, id)
	}
	return b
}

func parseItem(b []byte) (it item, err error) {
	r := pack.NewReader(b)
	r.Exactly(4)
	copy(it.ref[:], r.Bin(oplog.RefSize))
	it.millis = int64(r.Uint(math.MaxUint64))
	it.category = int(r.Uint(uint64(len(categories) - 1)))
	for n := r.Array(MaxIdentities); n > 0; n-- {
		it.identities = append(it.identities, string(r.Str(512)))
	}
	if err := r.End(); err != nil {
		return it, fmt.Errorf("summary: import row: %w", err)
	}
	return it, nil
}

// put writes the rows of the whole ledger and of each identity, or takes them
// away when delta is -1.
func (it *item) put(tx oplog.Tx, delta int64) error {
	if err := it.putScope(tx, "", delta); err != nil {
		return err
	}
	for _, id := range it.identities {
		if err := it.putScope(tx, id, delta); err != nil {
			return err
		}
	}
	return nil
}

func (it *item) putScope(tx oplog.Tx, scope string, delta int64) error {
	for _, prefix := range [2][]byte{prefixOf(scope, -1), prefixOf(scope, it.category)} {
		var err error
		if key := it.indexKey(prefix); delta > 0 {
			err = tx.Insert(key, nil)
		} else {
			err = tx.Delete(key)
		}
		if err != nil {
			return err
		}
	}
	c, err := readCounts(tx, scope)
	if err != nil {
		return err
	}
	fresh := c.total(-1) == 0
	c.n[it.category] += delta
	if it.millis == noTime {
		c.bad[it.category] += delta
	}
	switch {
	case fresh:
		return tx.Insert(countKey(scope), c.bytes())
	case c.total(-1) == 0:
		return tx.Delete(countKey(scope))
	}
	return tx.Set(countKey(scope), c.bytes())
}

func (it *item) indexKey(prefix []byte) []byte {
	b := binary.BigEndian.AppendUint64(prefix, ^(uint64(it.millis) ^ 1<<63)) // newest first, noTime last
	tag := it.ref.Tag()
	b = append(b, tag[:]...)
	return append(b, it.ref[:]...)
}

// prefixOf is where the rows of a scope begin, of one category or, when it is
// negative, of all.
func prefixOf(scope string, category int) []byte {
	b := append(make([]byte, 0, 1+8+1+restLen), rowIndex)
	b = binary.BigEndian.AppendUint64(b, xxhash.Sum64String(scope))
	if category >= 0 {
		b[0] = rowCategory
		b = append(b, byte(category))
	}
	return b
}

func countKey(scope string) []byte { return append([]byte{rowCount}, scope...) }

// counts is a counter row: by category, how many and how many of them have no
// readable time.
type counts struct {
	n, bad [7]int64
}

func (c *counts) total(category int) (n int64) {
	for i, v := range c.n {
		if category < 0 || category == i {
			n += v
		}
	}
	return n
}

func (c *counts) malformed(category int) (n int64) {
	for i, v := range c.bad {
		if category < 0 || category == i {
			n += v
		}
	}
	return n
}

func (c *counts) bytes() []byte {
	var b []byte
	for i := range c.n {
		b = binary.AppendUvarint(b, uint64(c.n[i]))
		b = binary.AppendUvarint(b, uint64(c.bad[i]))
	}
	return b
}

func readCounts(r oplog.Reader, scope string) (c counts, err error) {
	v, err := r.Get(countKey(scope))
	if errors.Is(err, oplog.ErrNotFound) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	for i := range c.n {
		for _, p := range [2]*int64{&c.n[i], &c.bad[i]} {
			u, n := binary.Uvarint(v)
			if n <= 0 {
				return c, errors.New("summary: malformed counter row")
			}
			*p, v = int64(u), v[n:]
		}
	}
	return c, nil
}
