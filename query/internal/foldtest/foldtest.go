// Package foldtest lets tests of folds say which entries there are and in
// which order they arrive. It has a view in memory, entries with any stamp and
// origin, and a snapshot over both.
package foldtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sort"
	"strings"

	"tallystick/hlc"
	"tallystick/oplog"
)

// Tx is a view in memory. It fails when an inserted key exists, which the
// real one does not check.
type Tx struct {
	rows map[string][]byte
}

// NewTx returns an empty view.
func NewTx() *Tx { return &Tx{rows: map[string][]byte{}} }

// Get returns the value or oplog.ErrNotFound.
func (t *Tx) Get(key []byte) ([]byte, error) {
	v, ok := t.rows[string(key)]
	if !ok {
		return nil, oplog.ErrNotFound
	}
	return v, nil
}

// Insert writes a key that must not exist.
func (t *Tx) Insert(key, value []byte) error {
	if _, ok := t.rows[string(key)]; ok {
		return fmt.Errorf("foldtest: inserted key %q exists", key)
	}
	return t.Set(key, value)
}

// Set writes a key.
func (t *Tx) Set(key, value []byte) error {
	t.rows[string(key)] = append([]byte{}, value...)
	return nil
}

// Delete removes a key, which must exist: folds know what they wrote.
func (t *Tx) Delete(key []byte) error {
	if _, ok := t.rows[string(key)]; !ok {
		return fmt.Errorf("foldtest: deleted key %q does not exist", key)
	}
	delete(t.rows, string(key))
	return nil
}

// Scan is that of oplog.Reader.
func (t *Tx) Scan(prefix, start []byte, reverse bool, fn func(key, value []byte) (bool, error)) error {
	var keys []string
	for k := range t.rows {
		if strings.HasPrefix(k, string(prefix)) && (start == nil || !reverse && k >= string(start) || reverse && k <= string(start)) {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	for n := range keys {
		k := keys[n]
		if reverse {
			k = keys[len(keys)-1-n]
		}
		if more, err := fn([]byte(k), t.rows[k]); err != nil || !more {
			return err
		}
	}
	return nil
}

// Dump shows all rows in key order, for comparing two views.
func (t *Tx) Dump() string {
	keys := make([]string, 0, len(t.rows))
	for k := range t.rows {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	var b strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&b, "%q = %x\n", k, t.rows[k])
	}
	return b.String()
}

// Len is the number of rows.
func (t *Tx) Len() int { return len(t.rows) }

// Origin is the origin of a made-up device.
func Origin(device byte) oplog.OriginID { return oplog.OriginOf(Key(device), oplog.Incarnation{1}) }

// Key is the key of a made-up device.
func Key(device byte) oplog.DeviceKey { return oplog.DeviceKey{device, 0xfe} }

// Entry makes an entry. Its hash is made of everything that tells it apart.
func Entry(device byte, seq uint64, t hlc.Timestamp, kind, author string, body []byte) oplog.Entry {
	e := oplog.Entry{
		Header: oplog.Header{Origin: Origin(device), Seq: seq, Time: t, Kind: kind, Author: author},
		Body:   body, Payload: oplog.EncodePayload(0, "", body),
	}
	b := binary.BigEndian.AppendUint64(e.Origin[:], seq)
	b = binary.BigEndian.AppendUint64(b, uint64(t))
	b = append(append(append(b, kind...), author...), body...)
	e.Hash = sha256.Sum256(b)
	return e
}

// At is a stamp so many milliseconds after a fixed day.
func At(ms int64) hlc.Timestamp { return hlc.New(1_767_225_600_000+ms, 0) }

// Replica folds entries in the order in which they are given and answers as
// an oplog.Snapshot.
type Replica struct {
	Projections []oplog.Projection
	Hidden      map[oplog.Ref]bool // entries that are set aside: stored, not visible

	views   map[string]*Tx
	entries []oplog.Entry // by arrival
	arrival map[oplog.Ref]uint64
	stored  map[oplog.OriginID]map[uint64]bool
}

// NewReplica returns a replica with these folds.
func NewReplica(p ...oplog.Projection) *Replica {
	r := &Replica{
		Projections: p, views: map[string]*Tx{}, Hidden: map[oplog.Ref]bool{}, arrival: map[oplog.Ref]uint64{},
		stored: map[oplog.OriginID]map[uint64]bool{},
	}
	for _, p := range p {
		r.views[p.Name()] = NewTx()
	}
	return r
}

// Apply folds entries. A quarantined one is kept out of sight. The first
// other error is returned.
func (r *Replica) Apply(entries ...oplog.Entry) error {
	for i := range entries {
		e := &entries[i]
		if r.stored[e.Origin] == nil {
			r.stored[e.Origin] = map[uint64]bool{}
		}
		if r.Hidden[e.Ref()] {
			r.stored[e.Origin][e.Seq] = false
			continue
		}
		aside := false
		for _, p := range r.Projections {
			for _, k := range p.Kinds() {
				if k != e.Kind {
					continue
				}
				err := p.Apply(r.views[p.Name()], e)
				var q *oplog.QuarantineError
				if errors.As(err, &q) {
					aside = true
				} else if err != nil {
					return err
				}
			}
		}
		r.stored[e.Origin][e.Seq] = !aside
		if !aside {
			r.entries = append(r.entries, *e)
			r.arrival[e.Ref()] = uint64(len(r.entries))
		}
	}
	return nil
}

// Tx is a view's rows.
func (r *Replica) Tx(name string) *Tx { return r.views[name] }

// View is that of oplog.Views.
func (r *Replica) View(name string) oplog.Reader {
	if v, ok := r.views[name]; ok {
		return v
	}
	return NewTx()
}

// Entry is that of oplog.Snapshot.
func (r *Replica) Entry(ref oplog.Ref) (oplog.Entry, error) {
	n, ok := r.arrival[ref]
	if !ok {
		return oplog.Entry{}, oplog.ErrNotFound
	}
	return r.entries[n-1], nil
}

// ByHash is that of oplog.Snapshot.
func (r *Replica) ByHash(prefix []byte) (oplog.Entry, error) {
	for _, e := range r.entries {
		if bytes.HasPrefix(e.Hash[:], prefix) {
			return e, nil
		}
	}
	return oplog.Entry{}, oplog.ErrNotFound
}

// ByOp is that of oplog.Snapshot.
func (r *Replica) ByOp(author, opID string) (oplog.Entry, error) {
	for _, e := range r.entries {
		if e.Author == author && e.OpID == opID {
			return e, nil
		}
	}
	return oplog.Entry{}, oplog.ErrNotFound
}

// Arrival is that of oplog.Snapshot.
func (r *Replica) Arrival(ref oplog.Ref) (uint64, error) { return r.arrival[ref], nil }

// LastArrival is that of oplog.Snapshot.
func (r *Replica) LastArrival() uint64 { return uint64(len(r.entries)) }

// Arrived is that of oplog.Snapshot.
func (r *Replica) Arrived(after uint64, reverse bool, fn func(uint64, *oplog.Entry) (bool, error)) error {
	if !reverse {
		for n := after; n < uint64(len(r.entries)); n++ {
			if more, err := fn(n+1, &r.entries[n]); err != nil || !more {
				return err
			}
		}
		return nil
	}
	if after == 0 || after > uint64(len(r.entries)) {
		after = uint64(len(r.entries))
	}
	for n := after; n > 0; n-- {
		if more, err := fn(n, &r.entries[n-1]); err != nil || !more {
			return err
		}
	}
	return nil
}

// Trunks is empty: origins do not fork here.
func (r *Replica) Trunks() (map[oplog.OriginID]uint64, error) { return nil, nil }

// Positions says how far each origin is visible: up to the last stored entry,
// except for what is set aside.
func (r *Replica) Positions() ([]oplog.Position, error) {
	var out []oplog.Position
	for origin, seqs := range r.stored {
		p := oplog.Position{Origin: origin}
		for seq := range seqs {
			p.Seq = max(p.Seq, seq)
		}
		for seq := uint64(1); seq <= p.Seq; seq++ {
			if !seqs[seq] {
				p.Except = append(p.Except, seq)
			}
		}
		for n := len(p.Except); n > 0 && p.Except[n-1] == p.Seq; n-- {
			p.Seq--
			p.Except = p.Except[:n-1]
		}
		for i := range r.entries {
			if r.entries[i].Origin == origin && r.entries[i].Seq == p.Seq {
				copy(p.Tag[:], r.entries[i].Hash[:8])
			}
		}
		out = append(out, p)
	}
	return out, nil
}
