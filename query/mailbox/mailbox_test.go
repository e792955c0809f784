package mailbox_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"tallystick/oplog"
	"tallystick/query/internal/foldtest"
	"tallystick/query/internal/viewtest"
	"tallystick/query/logstream"
	"tallystick/query/mailbox"
	"tallystick/query/minted"
	"tallystick/query/refusal"
)

func projections() []oplog.Projection {
	return []oplog.Projection{mailbox.View{}, minted.Speakers{}, logstream.View{}}
}

func newLog(t testing.TB, name string) *viewtest.Log { return viewtest.New(t, name, projections()...) }

// speak makes an identity known.
func speak(l *viewtest.Log, who string) {
	l.TB.Helper()
	l.Add(viewtest.One(logstream.NewOp(who, logstream.Event{Type: "status", Stream: "s", Room: "r"})))
}

// send sends a message and returns its id.
func send(l *viewtest.Log, from string, d mailbox.Draft) string {
	l.TB.Helper()
	if d.Subject == "" {
		d.Subject = "Review"
	}
	if d.Body == "" {
		d.Body = "Please look."
	}
	var op oplog.Op
	l.Read(func(s oplog.Snapshot) (err error) {
		op, err = mailbox.NewMessageOp(s, from, d)
		return err
	})
	return logstream.EventID(l.Add([]oplog.Op{op}, nil)[0].Ref)
}

func mark(l *viewtest.Log, who string, m mailbox.Mark, ids ...string) error {
	l.TB.Helper()
	var ops []oplog.Op
	err := l.View(func(s oplog.Snapshot) (err error) {
		ops, err = mailbox.NewMarkOps(s, who, m, ids...)
		return err
	})
	if err == nil && len(ops) > 0 {
		_, err = l.Append(context.Background(), ops...)
	}
	return err
}

func list(l *viewtest.Log, q mailbox.Query) mailbox.Page {
	l.TB.Helper()
	var p mailbox.Page
	l.Read(func(s oplog.Snapshot) (err error) {
		p, err = mailbox.List(s, q)
		return err
	})
	if p.Count != len(p.Messages) || p.Messages == nil {
		l.TB.Fatalf("count %d of %d", p.Count, len(p.Messages))
	}
	return p
}

func ids(p mailbox.Page) (out []string) {
	for _, m := range p.Messages {
		out = append(out, m.ID)
	}
	return out
}

const (
	alice = "mac:claude:x"
	bob   = "nas:codex:x"
	carol = "win-gemini"
)

// TestMailboxBoxes: what each box, status and filter shows, with exact counts.
func TestMailboxBoxes(t *testing.T) {
	l := newLog(t, "mac")
	for _, who := range []string{alice, bob, carol} {
		speak(l, who)
	}
	one := send(l, alice, mailbox.Draft{To: bob})
	two := send(l, carol, mailbox.Draft{To: bob, Priority: "high"})
	reply := send(l, bob, mailbox.Draft{To: alice, InReplyTo: one})
	self := send(l, bob, mailbox.Draft{To: bob})
	if err := mark(l, bob, mailbox.Read, one); err != nil {
		t.Fatal(err)
	}
	if err := mark(l, bob, mailbox.Archived, two); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		q    mailbox.Query
		want []string
	}{
		{"inbox", mailbox.Query{}, []string{self, one}},
		{"unread", mailbox.Query{Status: "unread"}, []string{self}},
		{"read", mailbox.Query{Status: "read"}, []string{one}},
		{"with archive", mailbox.Query{Archived: true}, []string{self, two, one}},
		{"unread with archive", mailbox.Query{Archived: true, Status: "unread"}, []string{self, two}},
		{"outbox", mailbox.Query{Box: "outbox"}, []string{self, reply}},
		{"all", mailbox.Query{Box: "all"}, []string{self, reply, one}},
		{"all with archive", mailbox.Query{Box: "all", Archived: true}, []string{self, reply, two, one}},
		{"all unread", mailbox.Query{Box: "all", Status: "unread"}, []string{self}},
		{"from", mailbox.Query{From: alice}, []string{one}},
		{"from a stranger", mailbox.Query{From: "mac:claude"}, nil},
		{"thread", mailbox.Query{Box: "all", Thread: one}, []string{reply, one}},
		{"page", mailbox.Query{Box: "all", Limit: 1, Offset: 1}, []string{reply}},
		{"behind the end", mailbox.Query{Offset: 9}, nil},
	} {
		c.q.Owner = bob
		p := list(l, c.q)
		if !slices.Equal(ids(p), c.want) {
			t.Errorf("%s: %v, want %v", c.name, ids(p), c.want)
		}
		if c.q.Limit == 0 && c.q.Offset == 0 && (p.Total != int64(len(c.want)) || p.Truncated || p.NextOffset != nil) {
			t.Errorf("%s: total %d, truncated %v", c.name, p.Total, p.Truncated)
		}
		if p.Unread != 1 {
			t.Errorf("%s: %d unread", c.name, p.Unread)
		}
	}
	p := list(l, mailbox.Query{Owner: bob, Box: "all", Limit: 1, Offset: 1})
	if p.Total != 3 || !p.Truncated || p.NextOffset == nil || *p.NextOffset != 2 {
		t.Errorf("page: %+v", p)
	}
	if r := list(l, mailbox.Query{Owner: alice}).Messages[0]; r.InReplyTo != one || r.Thread != one || r.Status != "unread" || r.Box != "inbox" {
		t.Errorf("reply %+v", r)
	}
	for _, q := range []mailbox.Query{{Box: "trash"}, {Status: "new"}, {Box: "outbox", Status: "unread"}, {Limit: 501}, {Limit: -1}, {Offset: -1}} {
		err := l.View(func(s oplog.Snapshot) error { _, err := mailbox.List(s, q); return err })
		if refusal.CodeOf(err) != refusal.InvalidArgument {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

// TestSelfMail: a note to oneself is in both boxes and counts once; archived,
// it is still among what was sent.
func TestSelfMail(t *testing.T) {
	l := newLog(t, "mac")
	speak(l, bob)
	self := send(l, bob, mailbox.Draft{To: bob})
	other := send(l, bob, mailbox.Draft{To: bob})
	if err := mark(l, bob, mailbox.Archived, self); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		q    mailbox.Query
		want []string
	}{
		{mailbox.Query{}, []string{other}},
		{mailbox.Query{Box: "all"}, []string{other, self}},
		{mailbox.Query{Box: "all", Archived: true}, []string{other, self}},
		{mailbox.Query{Archived: true}, []string{other, self}},
		{mailbox.Query{Box: "outbox"}, []string{other, self}},
	} {
		c.q.Owner = bob
		if p := list(l, c.q); !slices.Equal(ids(p), c.want) || p.Total != int64(len(c.want)) {
			t.Errorf("%+v: %v of %d, want %v", c.q, ids(p), p.Total, c.want)
		}
	}
}

// TestMailboxPages: sixty messages page to an exact end.
func TestMailboxPages(t *testing.T) {
	l := newLog(t, "mac")
	speak(l, alice)
	for range 60 {
		send(l, alice, mailbox.Draft{To: alice, Body: strings.Repeat("long ", 100)})
	}
	p := list(l, mailbox.Query{Owner: alice})
	if p.Count != 50 || p.Total != 60 || !p.Truncated || p.NextOffset == nil || *p.NextOffset != 50 {
		t.Errorf("first page: %d of %d, next %v", p.Count, p.Total, p.NextOffset)
	}
	if m := p.Messages[0]; !m.Truncated || m.BodyLength != 500 || len(m.Preview) != mailbox.PreviewLength || m.Body != "" {
		t.Errorf("preview: %+v", m)
	}
	seen := map[string]bool{}
	for offset, pages := 0, 0; ; pages++ {
		p := list(l, mailbox.Query{Owner: alice, Limit: 500, Offset: offset})
		for _, m := range p.Messages {
			if seen[m.ID] {
				t.Fatalf("%s is given twice", m.ID)
			}
			seen[m.ID] = true
		}
		if p.NextOffset == nil {
			break
		}
		if offset = *p.NextOffset; pages > 20 {
			t.Fatal("no end")
		}
	}
	if len(seen) != 60 {
		t.Errorf("%d messages in all pages", len(seen))
	}
}

// TestBroadcastAudience: it is for whom was known when it was sent, whoever
// turns up later, and is marked by each recipient alone.
func TestBroadcastAudience(t *testing.T) {
	l := newLog(t, "mac")
	var err error
	l.Read(func(s oplog.Snapshot) error {
		_, err = mailbox.NewMessageOp(s, alice, mailbox.Draft{To: "*", Subject: "Hello", Body: "Anybody?"})
		return nil
	})
	if refusal.CodeOf(err) != refusal.NotFound {
		t.Errorf("a broadcast to nobody: %v", err)
	}
	for _, who := range []string{alice, bob, carol} {
		speak(l, who)
	}
	id := send(l, alice, mailbox.Draft{To: "*"})
	speak(l, "late:claude:x")
	for who, want := range map[string]int{bob: 1, carol: 1, alice: 0, "late:claude:x": 0} {
		if p := list(l, mailbox.Query{Owner: who}); p.Count != want {
			t.Errorf("%s has %d messages, want %d", who, p.Count, want)
		}
	}
	if err := mark(l, bob, mailbox.Read, id); err != nil {
		t.Fatal(err)
	}
	if p := list(l, mailbox.Query{Owner: carol, Status: "unread"}); p.Count != 1 || p.Unread != 1 {
		t.Errorf("one reader hid the broadcast from another: %+v", p)
	}
	for _, who := range []string{alice, "late:claude:x"} {
		if err := mark(l, who, mailbox.Read, id); refusal.CodeOf(err) != refusal.IdentityMismatch {
			t.Errorf("%s marks what it was not sent: %v", who, err)
		}
	}
	var m mailbox.Message
	l.Read(func(s oplog.Snapshot) (err error) {
		m, err = mailbox.Get(s, id, alice, nil)
		return err
	})
	if m.RecipientCount != 2 || m.ReadCount != 1 || len(m.Receipts) != 2 || m.Receipts[0].Identity != bob || m.Receipts[0].ReadAt == "" || m.Receipts[1].ReadAt != "" {
		t.Errorf("receipts %+v", m)
	}
}

// TestUnknownRecipient: refused with near names, and nothing is stored.
func TestUnknownRecipient(t *testing.T) {
	l := newLog(t, "mac")
	speak(l, bob)
	for to, code := range map[string]refusal.Code{
		"nas:codx:x": refusal.NotFound, "": refusal.InvalidArgument, "me": refusal.InvalidArgument, "a,b": refusal.InvalidArgument, "@" + bob: refusal.InvalidArgument,
	} {
		err := l.View(func(s oplog.Snapshot) error {
			_, err := mailbox.NewMessageOp(s, alice, mailbox.Draft{To: to, Subject: "s", Body: "b"})
			return err
		})
		var e *refusal.Error
		if !errors.As(err, &e) || e.Code != code || e.Field != "to" {
			t.Errorf("to %q: %v", to, err)
		}
		if to == "nas:codx:x" && !slices.Equal(e.Allowed, []string{bob}) {
			t.Errorf("near names %v", e.Allowed)
		}
	}
	if p := list(l, mailbox.Query{Owner: "nas:codx:x"}); p.Count != 0 || !strings.Contains(p.Note, bob) {
		t.Errorf("the mailbox of somebody unknown: %+v", p)
	}
}

func TestBadDrafts(t *testing.T) {
	l := newLog(t, "mac")
	speak(l, bob)
	event := logstream.EventID(l.Add(viewtest.One(logstream.NewOp(bob, logstream.Event{Type: "status", Stream: "s", Room: "r"})))[0].Ref)
	first := send(l, alice, mailbox.Draft{To: bob, Thread: "plans"})
	ok := mailbox.Draft{To: bob, Subject: "s", Body: "b"}
	for name, c := range map[string]struct {
		change func(*mailbox.Draft)
		field  string
	}{
		"no subject":      {func(d *mailbox.Draft) { d.Subject = " " }, "subject"},
		"long subject":    {func(d *mailbox.Draft) { d.Subject = strings.Repeat("x", 513) }, "subject"},
		"two lines":       {func(d *mailbox.Draft) { d.Subject = "a\nb" }, "subject"},
		"no body":         {func(d *mailbox.Draft) { d.Body = "\n" }, "body"},
		"NUL":             {func(d *mailbox.Draft) { d.Body = "a\x00" }, "body"},
		"large body":      {func(d *mailbox.Draft) { d.Body = strings.Repeat("x", logstream.MaxBody+1) }, "body"},
		"priority":        {func(d *mailbox.Draft) { d.Priority = "urgent" }, "priority"},
		"reply to none":   {func(d *mailbox.Draft) { d.InReplyTo = "evt_20260102T030405_0123456789ab" }, "inReplyTo"},
		"reply to event":  {func(d *mailbox.Draft) { d.InReplyTo = event }, "inReplyTo"},
		"another thread":  {func(d *mailbox.Draft) { d.InReplyTo, d.Thread = first, "other" }, "threadId"},
		"control in name": {func(d *mailbox.Draft) { d.Thread = "a\tb" }, "correlation_id"},
	} {
		d := ok
		c.change(&d)
		err := l.View(func(s oplog.Snapshot) error { _, err := mailbox.NewMessageOp(s, alice, d); return err })
		var e *refusal.Error
		if !errors.As(err, &e) || e.Field != c.field {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReadNeverTurnsBack: two replicas mark apart, in any order of arrival.
func TestReadNeverTurnsBack(t *testing.T) {
	a, b := newLog(t, "mac"), newLog(t, "nas")
	speak(a, alice)
	speak(a, bob)
	id := send(a, alice, mailbox.Draft{To: bob})
	b.Pull(a, 1<<20)
	if err := mark(a, bob, mailbox.Read, id); err != nil {
		t.Fatal(err)
	}
	b.Later(60_000)
	for _, m := range []mailbox.Mark{mailbox.Archived, mailbox.Read} {
		if err := mark(b, bob, m, id); err != nil {
			t.Fatal(err)
		}
	}
	before := list(a, mailbox.Query{Owner: bob, Archived: true}).Messages[0]
	a.Pull(b, 1<<20)
	b.Pull(a, 1<<20)
	if a.Digest() != b.Digest() {
		t.Error("the views differ")
	}
	for _, l := range []*viewtest.Log{a, b} {
		p := list(l, mailbox.Query{Owner: bob, Archived: true})
		if m := p.Messages[0]; m.Status != "read" || *m.ReadAt != *before.ReadAt || m.Archived == nil || p.Unread != 0 {
			t.Errorf("%s: %+v", l.Author, m)
		}
		entries := l.Frontier().Total()
		if err := mark(l, bob, mailbox.Read, id, id); err != nil || l.Frontier().Total() != entries {
			t.Errorf("marking again appends: %v", err)
		}
	}
}

// entries are messages and marks of several devices, some of them bad.
func entries() (all []oplog.Entry) {
	seq := map[byte]uint64{}
	add := func(device byte, ms int64, kind, author string, body []byte) oplog.Entry {
		seq[device]++
		e := foldtest.Entry(device, seq[device], foldtest.At(ms), kind, author, body)
		all = append(all, e)
		return e
	}
	message := func(device byte, ms int64, from, to, meta string) oplog.Entry {
		ev := logstream.Event{Type: mailbox.TypeMessage, Stream: "mail", Room: "mail", To: to, Body: "b", Metadata: []byte(meta)}
		return add(device, ms, logstream.KindEvent, from, ev.Append(nil))
	}
	one := message(1, 10, alice, bob, `{"subject":"s","priority":"normal"}`)
	two := message(1, 20, alice, "*", `{"subject":"s","priority":"low","audience":["nas:codex:x","win-gemini"]}`)
	self := message(2, 15, bob, bob, `{"subject":"s","priority":"high"}`)
	for n, target := range []oplog.Entry{one, two, self} {
		ref := target.Ref()
		add(2, int64(100-n), mailbox.KindMark, bob, mailbox.AppendMark(nil, ref, mailbox.Read))
		add(3, int64(50+n), mailbox.KindMark, bob, mailbox.AppendMark(nil, ref, mailbox.Read))
		add(3, int64(70+n), mailbox.KindMark, carol, mailbox.AppendMark(nil, ref, mailbox.Archived))
	}
	add(2, 200, mailbox.KindMark, bob, mailbox.AppendMark(nil, self.Ref(), mailbox.Archived))
	return all
}

// TestM1_MailboxInAnyOrder folds the same entries in many orders; the view in
// memory also fails on an insert of what exists.
func TestM1_MailboxInAnyOrder(t *testing.T) {
	all := entries()
	fold := func(list []oplog.Entry) *foldtest.Replica {
		r := foldtest.NewReplica(mailbox.View{})
		if err := r.Apply(list...); err != nil {
			t.Fatal(err)
		}
		return r
	}
	want := fold(all)
	for shift := range all {
		turned := append(slices.Clone(all[shift:]), all[:shift]...)
		back := slices.Clone(turned)
		slices.Reverse(back)
		for _, order := range [][]oplog.Entry{turned, back} {
			if got := fold(order); got.Tx(mailbox.ViewName).Dump() != want.Tx(mailbox.ViewName).Dump() {
				t.Fatalf("order %d: rows differ\n%s\n%s", shift, got.Tx(mailbox.ViewName).Dump(), want.Tx(mailbox.ViewName).Dump())
			}
		}
	}
	got := map[string]mailbox.Counts{}
	for _, who := range []string{alice, bob, carol} {
		c, err := mailbox.CountsOf(want, who)
		if err != nil {
			t.Fatal(err)
		}
		got[who] = mailbox.Counts{Inbox: c.Inbox, Unread: c.Unread, Archived: c.Archived, Sent: c.Sent}
	}
	if w := map[string]mailbox.Counts{alice: {Sent: 2}, bob: {Inbox: 2, Archived: 1, Sent: 1}, carol: {Archived: 1}}; !reflect.DeepEqual(got, w) {
		t.Errorf("counts %+v, want %+v", got, w)
	}
}

// TestL6_BadMailIsSetAside: what no tool of ours writes costs only itself.
func TestL6_BadMailIsSetAside(t *testing.T) {
	bad := func(to, meta string) oplog.Entry {
		ev := logstream.Event{Type: mailbox.TypeMessage, Stream: "mail", Room: "mail", To: to, Body: "b"}
		if meta != "" {
			ev.Metadata = []byte(meta)
		}
		return foldtest.Entry(1, 1, foldtest.At(1), logstream.KindEvent, alice, ev.Append(nil))
	}
	for name, e := range map[string]oplog.Entry{
		"no envelope":        bad(bob, ""),
		"no subject":         bad(bob, `{"priority":"low"}`),
		"wrong type":         bad(bob, `{"subject":1,"priority":"low"}`),
		"no recipient":       bad("", `{"subject":"s","priority":"low"}`),
		"no audience":        bad("*", `{"subject":"s","priority":"low"}`),
		"direct to several":  bad(bob, `{"subject":"s","priority":"low","audience":["x"]}`),
		"audience unsorted":  bad("*", `{"subject":"s","priority":"low","audience":["b","a"]}`),
		"audience twice":     bad("*", `{"subject":"s","priority":"low","audience":["a","a"]}`),
		"audience of commas": bad("*", `{"subject":"s","priority":"low","audience":["a,b"]}`),
		"mark of nothing":    foldtest.Entry(1, 1, foldtest.At(1), mailbox.KindMark, bob, mailbox.AppendMark(nil, oplog.Ref{}, mailbox.Read)),
		"unknown mark":       foldtest.Entry(1, 1, foldtest.At(1), mailbox.KindMark, bob, mailbox.AppendMark(nil, oplog.Ref{1}, 9)),
		"no mark":            foldtest.Entry(1, 1, foldtest.At(1), mailbox.KindMark, bob, []byte{0x90}),
		"nobody's mark":      foldtest.Entry(1, 1, foldtest.At(1), mailbox.KindMark, "", mailbox.AppendMark(nil, oplog.Ref{1}, mailbox.Read)),
	} {
		var q *oplog.QuarantineError
		if err := (mailbox.View{}).Apply(foldtest.NewTx(), &e); !errors.As(err, &q) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// BenchmarkCounts shows that the unread count costs the same however much
// mail there is.
func BenchmarkCounts(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			l := newLog(b, "mac")
			speak(l, alice)
			for range n {
				send(l, alice, mailbox.Draft{To: alice})
			}
			b.ResetTimer()
			for range b.N {
				l.Read(func(s oplog.Snapshot) error { _, err := mailbox.CountsOf(s, alice); return err })
			}
		})
	}
}
