package logstream

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"tallystick/oplog"
)

// ViewName is the name of this domain's view.
const ViewName = "logstream"

// The rows of the view. A print (see below) lets a scan reject what does not
// match without reading the entry.
//
//	e Ref             print: every event and ack
//	t hash8(to) Ref   print: those addressed to somebody, or to "*"
//	c hash8(cor) Ref  print: those with a correlation
//	s hash4(stream) Ref print: every event and ack, by stream
//	k key16           Ref of the one that counts of an import key (or automatic ack)
//	d key16 Ref       nothing: copies that do not count
const (
	rowEvent = 'e'
	rowTo    = 't'
	rowCor   = 'c'
	rowIn    = 's'
)

// print is the fingerprint of an event: hashes of what pages filter by.
//
//	to 8 | correlation 8 | stream 4 | room 4 | topic 4 | type 4 | writer 4 | status 1
type print [37]byte

const printLen = len(print{})

func hash8[T ~string | ~[]byte](s T) uint64 {
	if len(s) == 0 {
		return 0
	}
	return xxhash.Sum64String(string(s)) | 1 // never 0, which stands for absent
}

func hash4[T ~string | ~[]byte](s T) uint32 { return uint32(hash8(s)) }

func (raw *Raw) print(author string) (p print) {
	binary.BigEndian.PutUint64(p[0:], hash8(raw.To))
	binary.BigEndian.PutUint64(p[8:], hash8(raw.Correlation))
	binary.BigEndian.PutUint32(p[16:], hash4(raw.Stream))
	binary.BigEndian.PutUint32(p[20:], hash4(raw.Room))
	binary.BigEndian.PutUint32(p[24:], hash4(raw.Topic))
	binary.BigEndian.PutUint32(p[28:], hash4(raw.Type))
	binary.BigEndian.PutUint32(p[32:], hash4(author))
	p[36] = statusCode(raw.Status)
	return p
}

// View folds events and acks.
type View struct{}

// Name is "logstream".
func (View) Name() string { return ViewName }

// Version of the rows.
func (View) Version() uint32 { return 3 }

// Kinds are events and acks.
func (View) Kinds() []string { return []string{KindEvent, KindAck} }

// Content are the kinds whose payload a person may have erased (T5).
func (View) Content() []string { return []string{KindEvent} }

// Apply checks one entry and writes its index rows. Of several copies of one
// import only the earliest by C2 has index rows, whatever came first (M1).
func (View) Apply(tx oplog.Tx, e *oplog.Entry) error {
	raw, err := Decode(e)
	if err != nil {
		return err
	}
	if err := raw.check(e.Author); err != nil {
		return oplog.Quarantine("%s: %v", e.Kind, err)
	}
	ref, p := e.Ref(), raw.print(e.Author)
	if key, ok := raw.dedup(); ok {
		counts, err := imports.Take(tx, key, ref, ref[:], func(was []byte) error { return unlist(tx, oplog.Ref(was)) })
		if err != nil || !counts {
			return err
		}
	}
	return eachRow(ref, p, func(key []byte) error { return tx.Insert(key, p[:]) })
}

// unlist takes the index rows of an event away.
func unlist(tx oplog.Tx, ref oplog.Ref) error {
	old, err := tx.Get(refRow(rowEvent, ref))
	if err != nil {
		return fmt.Errorf("logstream: row of an earlier import: %w", err)
	}
	if len(old) != printLen {
		return fmt.Errorf("logstream: print of %d bytes", len(old))
	}
	return eachRow(ref, print(old), tx.Delete)
}

// eachRow calls fn for the keys of an event's index rows.
func eachRow(ref oplog.Ref, p print, fn func(key []byte) error) error {
	if err := fn(refRow(rowEvent, ref)); err != nil {
		return err
	}
	if err := fn(append(streamRow(binary.BigEndian.Uint32(p[16:])), ref[:]...)); err != nil {
		return err
	}
	for i, table := range [2]byte{rowTo, rowCor} {
		h := p[8*i : 8*i+8]
		if binary.BigEndian.Uint64(h) == 0 {
			continue
		}
		key := make([]byte, 0, 1+8+oplog.RefSize)
		if err := fn(append(append(append(key, table), h...), ref[:]...)); err != nil {
			return err
		}
	}
	return nil
}

func refRow(table byte, ref oplog.Ref) []byte {
	return append(append(make([]byte, 0, 1+oplog.RefSize), table), ref[:]...)
}

func hashRow(table byte, h uint64) []byte {
	return binary.BigEndian.AppendUint64(append(make([]byte, 0, 9), table), h)
}

func streamRow(h uint32) []byte {
	return binary.BigEndian.AppendUint32(append(make([]byte, 0, 5+oplog.RefSize), rowIn), h)
}
