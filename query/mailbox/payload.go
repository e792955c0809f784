package mailbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"tallystick/hlc"
	"tallystick/oplog"
	"tallystick/query/identity"
	"tallystick/query/internal/pack"
	"tallystick/query/jsoncount"
	"tallystick/query/logstream"
	"tallystick/query/minted"
	"tallystick/query/refusal"
)

// TypeMessage is the type of the events that are mail.
const TypeMessage = "mail.message"

// KindMark is the kind of entry by which a recipient marks a message.
const KindMark = "mail.mark"

// Everybody is the recipient of a broadcast.
const Everybody = "*"

// Limits of a message. The body's is that of every event.
const (
	MaxSubject  = 512  // bytes
	MaxAudience = 1000 // identities of one broadcast
	MaxMarks    = 100  // messages marked in one call
)

// Where mail stands among the events.
const (
	stream = "mail"
	room   = "mail"
)

// Priorities lists the priorities, the default first. They are stored and
// shown and order nothing.
func Priorities() []string { return []string{"normal", "low", "high"} }

// Draft is a message that a local caller wants to send.
type Draft struct {
	To        string // one identity, or Everybody
	Subject   string
	Body      string
	Priority  string // empty means normal
	InReplyTo string // id of a message; the reply joins its thread
	Thread    string // any name, or the id of a thread's first message
}

// letter is what a message keeps in its event's metadata.
type letter struct {
	Subject   string `json:"subject"`
	Priority  string `json:"priority"`
	InReplyTo string `json:"in_reply_to,omitempty"`
	Audience  names  `json:"audience,omitempty"` // of a broadcast
}

// names are those of an audience. More than may be are not allocated.
type names []string

// UnmarshalJSON reads at most MaxAudience names.
func (n *names) UnmarshalJSON(b []byte) error {
	if count, _ := jsoncount.Elements(b); count > MaxAudience {
		return fmt.Errorf("mailbox: an audience of %d", count)
	}
	return json.Unmarshal(b, (*[]string)(n))
}

// NewMessageOp checks a draft and makes the op that sends it. The audience of
// a broadcast is taken in the log's writer, from the views as they stand.
func NewMessageOp(snap oplog.Snapshot, author string, d Draft) (oplog.Op, error) {
	if err := logstream.CheckAuthor(author); err != nil {
		return oplog.Op{}, err
	}
	l, err := d.check()
	if err != nil {
		return oplog.Op{}, err
	}
	if err := d.join(snap, &l); err != nil {
		return oplog.Op{}, err
	}
	ev := logstream.Event{
		Type: TypeMessage, Stream: stream, Room: room, To: d.To, Correlation: d.Thread, Body: d.Body,
	}
	if d.To != Everybody {
		if err := checkKnown(snap, author, d.To); err != nil {
			return oplog.Op{}, err
		}
		return l.op(author, ev)
	}
	if _, err := audience(snap, author); err != nil { // tells now what would fail later
		return oplog.Op{}, err
	}
	op, err := l.op(author, ev)
	op.Make = func(views oplog.Views, _ hlc.Timestamp) ([]byte, error) {
		names, err := audience(views, author)
		if err != nil {
			return nil, err
		}
		addressed := l
		addressed.Audience = names
		made, err := addressed.op(author, ev)
		return made.Body, err
	}
	return op, err
}

func (l *letter) encode() ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(l); err != nil {
		return nil, fmt.Errorf("mailbox: encode: %w", err)
	}
	return bytes.TrimSpace(text.Bytes()), nil
}

func (l *letter) op(author string, ev logstream.Event) (oplog.Op, error) {
	b, err := l.encode()
	if err != nil {
		return oplog.Op{}, err
	}
	if len(b) > logstream.MaxMetadata {
		return oplog.Op{}, refusal.New(refusal.TooLarge, "to", "send it to those whom it concerns",
			"the names of %d recipients take %d bytes, at most %d are allowed", len(l.Audience), len(b), logstream.MaxMetadata)
	}
	ev.Metadata = b
	return logstream.NewMailOp(author, ev)
}

// check fills in defaults and says what is wrong with a draft by itself.
func (d *Draft) check() (letter, error) {
	d.Subject = strings.TrimSpace(d.Subject)
	if d.Priority == "" {
		d.Priority = Priorities()[0]
	}
	switch {
	case d.To == "":
		return letter{}, refusal.Invalid("to", "name an identity, or * for everybody", "to is empty")
	case d.Subject == "":
		return letter{}, refusal.Invalid("subject", "say in one line what it is about", "subject is empty")
	case len(d.Subject) > MaxSubject:
		return letter{}, refusal.New(refusal.TooLarge, "subject", "put the rest into body", "subject has %d bytes, at most %d are allowed", len(d.Subject), MaxSubject)
	case !oneLine(d.Subject):
		return letter{}, refusal.Invalid("subject", "use one line of plain text", "subject contains control characters, line breaks or invalid UTF-8")
	case strings.TrimSpace(d.Body) == "":
		return letter{}, refusal.Invalid("body", "say what it is about", "body is empty")
	case !slices.Contains(Priorities(), d.Priority):
		return letter{}, refusal.OneOf("priority", d.Priority, Priorities())
	}
	if d.To != Everybody {
		if err := identity.CheckToken("to", d.To); err != nil {
			return letter{}, err
		}
		if identity.Reserved(d.To) || strings.HasPrefix(d.To, "@") {
			return letter{}, refusal.Invalid("to", "name an identity, or * for everybody", "to is %s, which names nobody", refusal.Quote(d.To))
		}
	}
	return letter{Subject: d.Subject, Priority: d.Priority, InReplyTo: d.InReplyTo}, nil
}

func oneLine(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, unicode.IsControl) < 0
}

// join puts a reply into the thread of what it answers.
func (d *Draft) join(snap oplog.Snapshot, l *letter) error {
	if d.InReplyTo == "" {
		return nil
	}
	parent, err := find(snap, "inReplyTo", d.InReplyTo)
	if err != nil {
		return err
	}
	l.InReplyTo = logstream.EventID(parent.ref)
	if d.Thread != "" && d.Thread != parent.thread() {
		return refusal.Invalid("threadId", "leave it out", "%s belongs to the thread %s", d.InReplyTo, refusal.Quote(parent.thread()))
	}
	d.Thread = parent.thread()
	return nil
}

// checkKnown refuses a recipient of whom nothing has arrived here: most likely
// the name is misspelled, and a message to nobody would be lost in silence.
func checkKnown(views oplog.Views, author, to string) error {
	if to == author {
		return nil
	}
	known, err := minted.Spoke(views, to)
	if err != nil || known {
		return err
	}
	near, err := minted.SpeakersNear(views, to)
	if err != nil {
		return err
	}
	hint := "check the name; an identity is known once it has written something that has arrived here"
	if len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	e := refusal.New(refusal.NotFound, "to", hint, "nobody named %s is known here", refusal.Quote(to))
	e.Allowed = near
	return e
}

// audience is everybody who is known, without the sender.
func audience(views oplog.Views, author string) ([]string, error) {
	names, more, err := minted.SpeakerNames(views, MaxAudience+1)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range names {
		if name != author && identity.CheckToken("to", name) == nil {
			out = append(out, name)
		}
	}
	switch {
	case len(out) == 0:
		return nil, refusal.New(refusal.NotFound, "to", "wait until somebody else has written, or name a recipient", "nobody else is known here yet")
	case more || len(out) > MaxAudience:
		return nil, refusal.New(refusal.TooLarge, "to", "name a recipient", "more than %d identities are known, which is too many for one message", MaxAudience)
	}
	return out, nil
}

// message is a decoded message.
type message struct {
	letter
	ref   oplog.Ref
	raw   logstream.Raw
	entry *oplog.Entry
}

// thread is the name of the message's thread: the one it was put into, else
// its own id.
func (m *message) thread() string {
	if len(m.raw.Correlation) > 0 {
		return string(m.raw.Correlation)
	}
	return logstream.EventID(m.ref)
}

// recipients are those it was sent to.
func (m *message) recipients() []string {
	if string(m.raw.To) == Everybody {
		return m.Audience
	}
	return []string{string(m.raw.To)}
}

// decodeMessage reads a message out of an event; ok is false when the event is
// no mail. An error is a *oplog.QuarantineError.
func decodeMessage(e *oplog.Entry) (m message, ok bool, err error) {
	raw, err := logstream.Decode(e)
	if err != nil {
		return m, false, err
	}
	if string(raw.Type) != TypeMessage || raw.Ack {
		return m, false, nil
	}
	m = message{raw: raw, ref: e.Ref(), entry: e}
	if err := json.Unmarshal(raw.Metadata, &m.letter); err != nil {
		return m, false, oplog.Quarantine("mail without a readable envelope")
	}
	return m, true, m.check()
}

// check judges a message of any origin.
func (m *message) check() error {
	if m.Subject == "" || len(m.Subject) > MaxSubject || !oneLine(m.Subject) {
		return oplog.Quarantine("mail: subject is no line of text")
	}
	if !slices.Contains(Priorities(), m.Priority) {
		return oplog.Quarantine("mail: priority %s", refusal.Quote(m.Priority))
	}
	if (string(m.raw.To) == Everybody) != (len(m.Audience) > 0) || len(m.Audience) > MaxAudience {
		return oplog.Quarantine("mail to %s with an audience of %d", refusal.Quote(string(m.raw.To)), len(m.Audience))
	}
	if !slices.IsSorted(m.Audience) || len(slices.Compact(slices.Clone(m.Audience))) != len(m.Audience) {
		return oplog.Quarantine("mail: audience is not in order")
	}
	for _, r := range m.recipients() {
		if err := identity.CheckToken("recipient", r); err != nil {
			return oplog.Quarantine("mail: %v", err)
		}
	}
	return nil
}

// find reads a message by its id.
func find(snap oplog.Snapshot, field, id string) (message, error) {
	e, err := logstream.Find(snap, field, id)
	if err != nil {
		return message{}, err
	}
	missing := refusal.New(refusal.NotFound, field, "copy the id from list_messages", "%s is not a message", id)
	if !e.Present() {
		return message{}, missing
	}
	m, ok, err := decodeMessage(&e)
	switch {
	case err != nil:
		return message{}, err
	case !ok:
		return message{}, missing
	}
	return m, nil
}

// Mark says what a recipient has done with a message.
type Mark byte

// The marks.
const (
	Read Mark = iota + 1
	Archived
)

const markVersion = 0

// NewMarkOps makes the ops that mark messages for their recipient. Messages
// that carry the mark already need none.
func NewMarkOps(snap oplog.Snapshot, author string, mark Mark, ids ...string) ([]oplog.Op, error) {
	if err := logstream.CheckAuthor(author); err != nil {
		return nil, err
	}
	if len(ids) > MaxMarks {
		return nil, refusal.New(refusal.TooLarge, "messageIds", "mark them in several calls", "%d messages, at most %d are marked in one call", len(ids), MaxMarks)
	}
	var ops []oplog.Op
	var done []oplog.Ref
	for _, id := range ids {
		m, err := find(snap, "messageId", id)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(m.recipients(), author) {
			return nil, refusal.New(refusal.IdentityMismatch, "messageId", "only who received a message marks it; reading needs no mark",
				"%s was not sent to %s", id, refusal.Quote(author))
		}
		marks, err := marksOf(snap.View(ViewName), m.ref, author)
		if err != nil {
			return nil, err
		}
		if !marks.of(mark).IsZero() || slices.Contains(done, m.ref) {
			continue
		}
		done = append(done, m.ref)
		ops = append(ops, oplog.Op{
			Kind: KindMark, Author: author, Version: markVersion, Body: appendMark(nil, m.ref, mark),
			OpID: fmt.Sprintf("%s/%d/%x", KindMark, mark, m.ref[:]), // two windows that mark at once count once
		})
	}
	return ops, nil
}

// appendMark encodes the payload of a mark: an array of 2.
func appendMark(dst []byte, ref oplog.Ref, mark Mark) []byte {
	return pack.Uint(pack.Bin(pack.Array(dst, 2), ref[:]), uint64(mark))
}

func decodeMark(e *oplog.Entry) (ref oplog.Ref, mark Mark, err error) {
	if e.Version != markVersion {
		return ref, 0, oplog.Quarantine("mail mark of payload version %d; this program reads %d", e.Version, markVersion)
	}
	r := pack.NewReader(e.Body)
	r.Exactly(2)
	b := r.Bin(oplog.RefSize)
	mark = Mark(r.Uint(uint64(Archived)))
	if err := r.End(); err != nil {
		return ref, 0, oplog.Quarantine("mail mark: %v", err)
	}
	if ref, err = oplog.RefOf(b); err != nil || ref.IsZero() || mark == 0 {
		return ref, 0, oplog.Quarantine("mail mark of nothing")
	}
	return ref, mark, nil
}
