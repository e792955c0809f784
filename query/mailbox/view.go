package mailbox

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"tallystick/oplog"
	"tallystick/query/internal/pack"
	"tallystick/query/logstream"
)

// ViewName is the name of this domain's view.
const ViewName = "mailbox"

// The rows of the view. An identity is written out, followed by a NUL, which
// no identity holds. A print lets a scan reject what does not match without
// reading the entry.
//
//	i identity NUL Ref   print, flags: what an identity has received
//	u identity NUL Ref   print: the part of it that is neither read nor archived
//	o identity NUL Ref   print: what it has sent
//	m Ref identity       Ref of the earliest read mark, Ref of the earliest archive mark
//	n identity           counters
const (
	rowInbox  = 'i'
	rowUnread = 'u'
	rowOutbox = 'o'
	rowMarks  = 'm'
	rowCount  = 'n'
)

// print is what listings filter by: hashes of sender and thread.
const printLen = 16

const (
	flagRead = 1 << iota
	flagArchived
)

// View folds messages and marks.
type View struct{}

// Name is "mailbox".
func (View) Name() string { return ViewName }

// Version of the rows.
func (View) Version() uint32 { return 1 }

// Kinds are events, for those that are mail, and marks.
func (View) Kinds() []string { return []string{logstream.KindEvent, KindMark} }

// Apply folds one message or mark. Marks and messages may arrive in any order.
func (View) Apply(tx oplog.Tx, e *oplog.Entry) error {
	if e.Kind == KindMark {
		return applyMark(tx, e)
	}
	if !mayBeMail(e.Body) {
		return nil
	}
	m, ok, err := decodeMessage(e)
	if err != nil || !ok {
		return err
	}
	p := m.print()
	self := false
	for _, to := range m.recipients() {
		marks, err := marksOf(tx, m.ref, to)
		if err != nil {
			return err
		}
		flags := marks.flags()
		if err := tx.Insert(boxRow(rowInbox, to, m.ref), append(p[:printLen:printLen], flags)); err != nil {
			return err
		}
		if flags == 0 {
			if err := tx.Insert(boxRow(rowUnread, to, m.ref), p); err != nil {
				return err
			}
		}
		sent := to == e.Author
		self = self || sent
		if err := count(tx, to, func(c *Counts) { c.add(flags, sent, 1) }); err != nil {
			return err
		}
	}
	if err := tx.Insert(boxRow(rowOutbox, e.Author, m.ref), p); err != nil {
		return err
	}
	return count(tx, e.Author, func(c *Counts) { c.Sent++ })
}

// mayBeMail looks at the first field of an event, its type, so that folding
// the many events that are no mail costs nothing. What is malformed elsewhere
// is for the fold of events to set aside.
func mayBeMail(body []byte) bool {
	return len(body) > 0 && bytes.HasPrefix(body[1:], mailOpening)
}

var mailOpening = pack.Str(nil, TypeMessage)

func applyMark(tx oplog.Tx, e *oplog.Entry) error {
	target, mark, err := decodeMark(e)
	if err != nil {
		return err
	}
	if e.Author == "" {
		return oplog.Quarantine("mail mark without author")
	}
	was, err := marksOf(tx, target, e.Author)
	if err != nil {
		return err
	}
	now := was
	switch at := now.at(mark); {
	case at.IsZero() || e.Ref().Compare(*at) < 0:
		*at = e.Ref()
	default:
		return nil // an earlier mark counts
	}
	row := marksRow(target, e.Author)
	if was == (marks{}) {
		err = tx.Insert(row, now.bytes())
	} else {
		err = tx.Set(row, now.bytes())
	}
	if err != nil || was.flags() == now.flags() {
		return err
	}
	return remark(tx, target, e.Author, was.flags(), now.flags())
}

// remark brings the rows of a received message up to date. A mark on what has
// not arrived, or was sent to others, has none.
func remark(tx oplog.Tx, target oplog.Ref, owner string, was, now byte) error {
	row := boxRow(rowInbox, owner, target)
	v, err := tx.Get(row)
	if errors.Is(err, oplog.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(v) != printLen+1 {
		return fmt.Errorf("mailbox: row of %d bytes", len(v))
	}
	if err := tx.Set(row, append(append([]byte{}, v[:printLen]...), now)); err != nil {
		return err
	}
	if was == 0 {
		if err := tx.Delete(boxRow(rowUnread, owner, target)); err != nil {
			return err
		}
	}
	sent := true
	if _, err := tx.Get(boxRow(rowOutbox, owner, target)); errors.Is(err, oplog.ErrNotFound) {
		sent = false
	} else if err != nil {
		return err
	}
	return count(tx, owner, func(c *Counts) {
		c.add(was, sent, -1)
		c.add(now, sent, 1)
	})
}

func boxRow(table byte, owner string, ref oplog.Ref) []byte {
	return append(boxPrefix(table, owner), ref[:]...)
}

func boxPrefix(table byte, owner string) []byte {
	k := append(make([]byte, 0, 2+len(owner)+oplog.RefSize), table)
	return append(append(k, owner...), 0)
}

func marksRow(target oplog.Ref, who string) []byte {
	k := append(make([]byte, 0, 1+oplog.RefSize+len(who)), rowMarks)
	return append(append(k, target[:]...), who...)
}

func (m *message) print() []byte {
	p := binary.BigEndian.AppendUint64(make([]byte, 0, printLen), hash8(m.entry.Author))
	return binary.BigEndian.AppendUint64(p, hash8(m.thread()))
}

func hash8(s string) uint64 { return xxhash.Sum64String(s) }

// marks are a recipient's earliest marks on one message.
type marks struct{ read, archived oplog.Ref }

func (m *marks) at(mark Mark) *oplog.Ref {
	if mark == Archived {
		return &m.archived
	}
	return &m.read
}

func (m marks) of(mark Mark) oplog.Ref { return *m.at(mark) }

func (m marks) flags() (f byte) {
	if !m.read.IsZero() {
		f |= flagRead
	}
	if !m.archived.IsZero() {
		f |= flagArchived
	}
	return f
}

func (m marks) bytes() []byte {
	return append(append(make([]byte, 0, 2*oplog.RefSize), m.read[:]...), m.archived[:]...)
}

func marksOf(r oplog.Reader, target oplog.Ref, who string) (m marks, err error) {
	v, err := r.Get(marksRow(target, who))
	if errors.Is(err, oplog.ErrNotFound) {
		return m, nil
	}
	if err != nil {
		return m, err
	}
	if len(v) != 2*oplog.RefSize {
		return m, fmt.Errorf("mailbox: marks row of %d bytes", len(v))
	}
	m.read, m.archived = oplog.Ref(v[:oplog.RefSize]), oplog.Ref(v[oplog.RefSize:])
	return m, nil
}

// Counts is how much mail an identity has.
type Counts struct {
	Inbox    int64 `json:"inbox"`    // received and not archived
	Unread   int64 `json:"unread"`   // the part of it that is not read
	Archived int64 `json:"archived"` // received and archived
	Sent     int64 `json:"sent"`

	self         int64 // in Inbox and Sent
	selfArchived int64 // in Archived and Sent
}

func (c *Counts) fields() [6]*int64 {
	return [6]*int64{&c.Inbox, &c.Unread, &c.Archived, &c.Sent, &c.self, &c.selfArchived}
}

// add counts a received message with these flags in or out.
func (c *Counts) add(flags byte, sent bool, delta int64) {
	switch {
	case flags&flagArchived != 0:
		c.Archived += delta
		if sent {
			c.selfArchived += delta
		}
		return
	case flags&flagRead == 0:
		c.Unread += delta
	}
	c.Inbox += delta
	if sent {
		c.self += delta
	}
}

// CountsOf reads the counters of an identity: one read, however much mail.
func CountsOf(views oplog.Views, owner string) (Counts, error) {
	return readCounts(views.View(ViewName), owner)
}

func readCounts(r oplog.Reader, owner string) (c Counts, err error) {
	v, err := r.Get(append([]byte{rowCount}, owner...))
	if errors.Is(err, oplog.ErrNotFound) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	for _, f := range c.fields() {
		u, n := binary.Uvarint(v)
		if n <= 0 {
			return c, errors.New("mailbox: malformed counter row")
		}
		*f, v = int64(u), v[n:]
	}
	return c, nil
}

func count(tx oplog.Tx, owner string, change func(*Counts)) error {
	c, err := readCounts(tx, owner)
	if err != nil {
		return err
	}
	fresh := c == Counts{}
	change(&c)
	var b []byte
	for _, f := range c.fields() {
		b = binary.AppendUvarint(b, uint64(*f))
	}
	key := append([]byte{rowCount}, owner...)
	if fresh {
		return tx.Insert(key, b)
	}
	return tx.Set(key, b)
}
