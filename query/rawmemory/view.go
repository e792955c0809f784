package rawmemory

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"tallystick/oplog"
	"tallystick/query/identity"
	"tallystick/query/internal/pack"
)

// ViewName is the name of this domain's view.
const ViewName = "rawmemory"

// The rows of the view. A scope is an identity, or nothing for everybody.
//
//	i scope16 time8 Ref         nothing
//	s session16 scope16 time8 Ref  nothing
//	n scope                     counts: how many, how many without a readable time
//	c session16 scope16         the same within a session
//	k key16                     import: what the rows of the one that counts are made of
//	d key16 Ref                 nothing: copies that do not count
const (
	rowIndex   = 'i'
	rowSession = 's'
	rowCounts  = 'n'
	rowInside  = 'c'
)

// item is what the rows of one turn are made of.
type item struct {
	ref        oplog.Ref
	millis     int64
	session    string
	identities []string
}

func id16(kind byte, s string) []byte {
	d := sha256.Sum256(append([]byte{kind, 0}, s...))
	return d[:16]
}

func row(table byte, parts ...[]byte) []byte {
	k := []byte{table}
	for _, p := range parts {
		k = append(k, p...)
	}
	return k
}

// place is a turn's position among others: time, then C2 order.
func place(millis int64, ref oplog.Ref) []byte {
	return append(binary.BigEndian.AppendUint64(make([]byte, 0, 8+oplog.RefSize), uint64(millis)^1<<63), ref[:]...)
}

// View folds turns.
type View struct{}

// Name is "rawmemory".
func (View) Name() string { return ViewName }

// Version of the rows.
func (View) Version() uint32 { return 1 }

// Kinds are turns.
func (View) Kinds() []string { return []string{Kind} }

// Content are the kinds that may be erased (T5).
func (View) Content() []string { return []string{Kind} }

// Apply checks one entry and writes its rows. Of several copies of one import
// only the earliest by C2 has rows, whatever came first (M1).
func (View) Apply(tx oplog.Tx, e *oplog.Entry) error {
	t, err := Decode(e)
	if err != nil {
		return err
	}
	it := item{ref: e.Ref(), millis: t.millis(e.Ref()), session: t.Session, identities: t.Identities}
	if !t.Import.IsZero() {
		counts, err := imports.Take(tx, t.Import.Hash(), it.ref, it.bytes(), func(was []byte) error {
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

func (it *item) bytes() []byte {
	b := pack.Bin(pack.Array(nil, 4), it.ref[:])
	b = pack.Uint(b, uint64(it.millis))
	b = pack.Str(b, it.session)
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
	it.session = string(r.Str(MaxSession))
	for n := r.Array(MaxIdentities); n > 0 && r.Err() == nil; n-- {
		it.identities = append(it.identities, string(r.Str(identity.MaxLen)))
	}
	if err := r.End(); err != nil {
		return it, fmt.Errorf("rawmemory: import row: %w", err)
	}
	return it, nil
}

// put writes a turn's rows, or takes them away when delta is -1.
func (it *item) put(tx oplog.Tx, delta int64) error {
	change := func(k []byte) error { return tx.Insert(k, nil) }
	if delta < 0 {
		change = tx.Delete
	}
	at, session := place(it.millis, it.ref), id16('s', it.session)
	for _, name := range append([]string{""}, it.identities...) {
		scope := id16('i', name)
		if err := change(row(rowIndex, scope, at)); err != nil {
			return err
		}
		if err := change(row(rowSession, session, scope, at)); err != nil {
			return err
		}
		for _, k := range [][]byte{row(rowCounts, []byte(name)), row(rowInside, session, scope)} {
			if err := addCounts(tx, k, delta, it.millis == noTime); err != nil {
				return err
			}
		}
	}
	return nil
}

// counts is how many turns there are, and how many without a readable time.
type counts struct{ all, bad int64 }

func readCounts(r oplog.Reader, k []byte) (c counts, err error) {
	v, err := r.Get(k)
	if errors.Is(err, oplog.ErrNotFound) {
		return counts{}, nil
	}
	if err != nil {
		return counts{}, err
	}
	if len(v) != 16 {
		return counts{}, fmt.Errorf("rawmemory: counts of %d bytes", len(v))
	}
	return counts{int64(binary.BigEndian.Uint64(v)), int64(binary.BigEndian.Uint64(v[8:]))}, nil
}

func addCounts(tx oplog.Tx, k []byte, delta int64, bad bool) error {
	c, err := readCounts(tx, k)
	if err != nil {
		return err
	}
	if c.all += delta; bad {
		c.bad += delta
	}
	if c.all == 0 {
		return tx.Delete(k)
	}
	v := binary.BigEndian.AppendUint64(nil, uint64(c.all))
	return tx.Set(k, binary.BigEndian.AppendUint64(v, uint64(c.bad)))
}
