package logstream_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"tallystick/oplog"
	"tallystick/query/imported"
	"tallystick/query/internal/foldtest"
	"tallystick/query/logstream"
	"tallystick/query/refusal"
)

func valid() logstream.Event {
	return logstream.Event{Type: "status", Stream: "project/x", Room: "status"}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*logstream.Event)
		field  string
		code   refusal.Code
	}{
		{"OK", func(*logstream.Event) {}, "", ""},
		{"OK all fields", func(e *logstream.Event) {
			e.Topic, e.To, e.Correlation, e.Branch, e.BaseCommit = "lane/1", "*", "task_x_1", "feat/a b", "abc"
			e.Status, e.Body, e.Metadata = "open", "tab\tline\nжизнь", json.RawMessage(`{"a":"\ud83d\ude00"}`)
			e.ArtifactIDs = []string{"art_20260101T000000_0123456789ab"}
		}, "", ""},
		{"OK 256 characters", func(e *logstream.Event) { e.Stream = strings.Repeat("é", 256) }, "", ""},
		{"OK body at the limit", func(e *logstream.Event) { e.Body = strings.Repeat("x", logstream.MaxBody) }, "", ""},
		{"ErrNoType", func(e *logstream.Event) { e.Type = "" }, "type", refusal.InvalidArgument},
		{"ErrUpperCaseType", func(e *logstream.Event) { e.Type = "Status" }, "type", refusal.InvalidArgument},
		{"ErrLongType", func(e *logstream.Event) { e.Type = strings.Repeat("x", 65) }, "type", refusal.InvalidArgument},
		{"ErrAckType", func(e *logstream.Event) { e.Type = "event.ack" }, "type", refusal.InvalidArgument},
		{"ErrMailType", func(e *logstream.Event) { e.Type = "mail.read" }, "type", refusal.InvalidArgument},
		{"ErrTallyType", func(e *logstream.Event) { e.Type = "tally.birth" }, "type", refusal.InvalidArgument},
		{"ErrNoStream", func(e *logstream.Event) { e.Stream = " " }, "stream", refusal.InvalidArgument},
		{"ErrNoRoom", func(e *logstream.Event) { e.Room = "" }, "room", refusal.InvalidArgument},
		{"ErrNewlineInRoom", func(e *logstream.Event) { e.Room = "a\nb" }, "room", refusal.InvalidArgument},
		{"ErrNextLineInRoom", func(e *logstream.Event) { e.Room = "a\u0085b" }, "room", refusal.InvalidArgument},
		{"ErrLongTopic", func(e *logstream.Event) { e.Topic = strings.Repeat("é", 257) }, "topic", refusal.TooLarge},
		{"ErrTarget", func(e *logstream.Event) { e.To = "a\x00b" }, "to_agent", refusal.InvalidArgument},
		{"ErrUTF8", func(e *logstream.Event) { e.Correlation = "\xff" }, "correlation_id", refusal.InvalidArgument},
		{"ErrStatus", func(e *logstream.Event) { e.Status = "bogus" }, "status", refusal.InvalidArgument},
		{"ErrBodyNUL", func(e *logstream.Event) { e.Body = "a\x00" }, "body", refusal.InvalidArgument},
		{"ErrBodyUTF8", func(e *logstream.Event) { e.Body = "\xed\xa0\x80" }, "body", refusal.InvalidArgument},
		{"ErrBodySize", func(e *logstream.Event) { e.Body = strings.Repeat("x", logstream.MaxBody+1) }, "body", refusal.TooLarge},
		{"ErrMetadataArray", func(e *logstream.Event) { e.Metadata = json.RawMessage(`[1]`) }, "metadata", refusal.InvalidArgument},
		{"ErrMetadataBroken", func(e *logstream.Event) { e.Metadata = json.RawMessage(`{"a":`) }, "metadata", refusal.InvalidArgument},
		{"ErrMetadataNUL", func(e *logstream.Event) { e.Metadata = json.RawMessage(`{"a":"\u0000"}`) }, "metadata", refusal.InvalidArgument},
		{"ErrMetadataLoneSurrogate", func(e *logstream.Event) { e.Metadata = json.RawMessage(`{"a":"\ud83d x"}`) }, "metadata", refusal.InvalidArgument},
		{"ErrMetadataLowSurrogate", func(e *logstream.Event) { e.Metadata = json.RawMessage(`{"\ude00":1}`) }, "metadata", refusal.InvalidArgument},
		{"OK escaped backslash", func(e *logstream.Event) { e.Metadata = json.RawMessage(`{"a":"\\u0000"}`) }, "", ""},
		{"ErrMetadataSize", func(e *logstream.Event) {
			e.Metadata = json.RawMessage(`{"a":"` + strings.Repeat("x", logstream.MaxMetadata) + `"}`)
		}, "metadata", refusal.TooLarge},
		{"ErrArtifact", func(e *logstream.Event) { e.ArtifactIDs = []string{"evt_1"} }, "artifact_ids", refusal.InvalidArgument},
		{"ErrExpiry", func(e *logstream.Event) { e.ExpiresAt = -1 }, "expires_at", refusal.InvalidArgument},
		{"ErrImport", func(e *logstream.Event) { e.Import = imported.Key{Source: "beads", ID: "a\x1fb", Part: "p"} }, "import.id", refusal.InvalidArgument},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := valid()
			c.change(&e)
			_, err := logstream.NewOp("mac:claude:x", e)
			if c.field == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			got, ok := refusal.As(err)
			if !ok || got.Field != c.field || got.Code != c.code || got.Hint == "" || !strings.Contains(got.Message, strings.Split(c.field, ".")[0]) {
				t.Fatalf("%#v, want %s about %s", err, c.code, c.field)
			}
		})
	}
	var e *refusal.Error
	bad := valid()
	bad.Status = "bogus"
	if _, err := logstream.NewOp("a-b", bad); !errors.As(err, &e) || len(e.Allowed) != 8 {
		t.Errorf("allowed statuses are not listed: %v", err)
	}
	for _, author := range []string{"", "a:b", "A:b:c", "*", "me", "a b", strings.Repeat("x", 257)} {
		if _, err := logstream.NewOp(author, valid()); err == nil {
			t.Errorf("author %q passes", author)
		}
	}
}

func TestRoutingFieldsAreTrimmedAndBodiesKept(t *testing.T) {
	e := valid()
	e.Stream, e.To, e.Body = " project/x ", "\ta-b ", " as given \n"
	e.ArtifactIDs = []string{"art_20260101T000000_0123456789ab", "art_2", "art_20260101T000000_0123456789ab"}
	got, err := logstream.Validate(e)
	if err != nil || got.Stream != "project/x" || got.To != "a-b" || got.Body != e.Body || len(got.ArtifactIDs) != 2 {
		t.Fatalf("%+v %v", got, err)
	}
}

func TestPayloadRoundTrip(t *testing.T) {
	e := logstream.Event{
		Type: "task.request", Stream: "s", Room: "r", Topic: "t", To: "*", Correlation: "c", Branch: "b", BaseCommit: "f00",
		Status: "open", Body: "x\x01", Metadata: json.RawMessage(`{}`), ArtifactIDs: []string{"art_1"}, ExpiresAt: 7,
		Import: imported.Key{Source: "s", ID: "i", Part: "p"},
	}
	entry := foldtest.Entry(1, 1, foldtest.At(0), logstream.KindEvent, "a-b", e.Append(nil))
	raw, err := logstream.Decode(&entry)
	if err != nil || !reflect.DeepEqual(raw.Event(), e) {
		t.Fatalf("%+v %v", raw.Event(), err)
	}
	a := logstream.Ack{Event: e, Task: "c\x00s\x00c", Of: entry.Ref(), LeaseMS: 9, Claim: entry.Ref(), Automatic: true}
	entry = foldtest.Entry(1, 2, foldtest.At(0), logstream.KindAck, "a-b", a.Append(nil))
	raw, err = logstream.Decode(&entry)
	if err != nil || !reflect.DeepEqual(raw.AckPayload(), a) {
		t.Fatalf("%+v %v", raw.AckPayload(), err)
	}
}

// Golden bytes of payload version 0.
func TestL8_GoldenPayload(t *testing.T) {
	e := logstream.Event{Type: "status", Stream: "s", Room: "r", Body: "hi", ExpiresAt: 300}
	const want = "9ea6737461747573a0a173a172a0a0a0a0a0cd012cc090c0a26869"
	if got := hex.EncodeToString(e.Append(nil)); got != want {
		t.Errorf("event %s, want %s", got, want)
	}
	a := logstream.Ack{Event: e, Task: "t", Of: oplog.Ref{1}, LeaseMS: 1}
	const wantAck = "dc0013a6737461747573a0a173a172a0a0a0a0a0cd012cc090c0a26869a174c428" +
		"01000000000000000000000000000000000000000000000000000000000000000000000000000000" + "01c0c2"
	if got := hex.EncodeToString(a.Append(nil)); got != wantAck {
		t.Errorf("ack %s, want %s", got, wantAck)
	}
}

func TestL6_WhatCannotBeFoldedIsSetAside(t *testing.T) {
	body := func(change func(*logstream.Event)) []byte {
		e := valid()
		change(&e)
		return e.Append(nil)
	}
	ok := body(func(*logstream.Event) {})
	for _, c := range []struct {
		name    string
		version uint64
		author  string
		body    []byte
	}{
		{"later version", 1, "a-b", ok},
		{"no author", 0, "", ok},
		{"not msgpack", 0, "a-b", []byte{0xc1}},
		{"truncated", 0, "a-b", ok[:len(ok)-1]},
		{"left over", 0, "a-b", append(append([]byte{}, ok...), 0)},
		{"type", 0, "a-b", body(func(e *logstream.Event) { e.Type = "X" })},
		{"ack in an event", 0, "a-b", body(func(e *logstream.Event) { e.Type = "event.ack" })},
		{"status", 0, "a-b", body(func(e *logstream.Event) { e.Status = "bogus" })},
		{"no room", 0, "a-b", body(func(e *logstream.Event) { e.Room = "" })},
		{"control character", 0, "a-b", body(func(e *logstream.Event) { e.To = "a\x1b[2J" })},
		{"long field", 0, "a-b", body(func(e *logstream.Event) { e.To = strings.Repeat("x", 257) })},
		{"metadata", 0, "a-b", body(func(e *logstream.Event) { e.Metadata = json.RawMessage("7") })},
		{"body", 0, "a-b", body(func(e *logstream.Event) { e.Body = "\xff" })},
	} {
		e := foldtest.Entry(1, 1, foldtest.At(0), logstream.KindEvent, c.author, c.body)
		e.Version = c.version
		tx := foldtest.NewTx()
		var q *oplog.QuarantineError
		if err := (logstream.View{}).Apply(tx, &e); !errors.As(err, &q) {
			t.Errorf("%s: %v, want quarantine", c.name, err)
		}
		if tx.Len() != 0 {
			t.Errorf("%s: left %d rows", c.name, tx.Len())
		}
	}
}

func TestRecord(t *testing.T) {
	e := valid()
	e.Metadata, e.Body, e.ExpiresAt = json.RawMessage(`{"n":12345678901234567890}`), "text", foldtest.At(0).Millis()
	entry := foldtest.Entry(3, 42, foldtest.At(1234), logstream.KindEvent, "mac:claude:x", e.Append(nil))
	r := fold(t, entry)
	rec, err := logstream.Get(r, logstream.EventID(entry.Ref()), func(oplog.OriginID) string { return "mac" })
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(rec)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"id":"evt_20260101T000001_` + entry.Hash.String()[:12] + `"`, `"seq":"1"`, `"origin":"mac"`, `"origin_seq":"42"`,
		`"hlc":"1767225601234-0000-` + entry.Origin.String()[:12] + `"`, `"created_at":"2026-01-01T00:00:01.234Z"`,
		`"artifact_ids":[]`, `"metadata":{"n":12345678901234567890}`, `"from_agent":"mac:claude:x"`, `"expires_at":"2026-01-01T00:00:00.000Z"`,
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("record %s lacks %s", b, want)
		}
	}
	for _, absent := range []string{"topic", "to_agent", "status", "invisible", "computed", "body_length"} {
		if strings.Contains(string(b), `"`+absent+`":`) {
			t.Errorf("record %s shows %s", b, absent)
		}
	}
}

func TestAckRecordNamesItsTarget(t *testing.T) {
	target := event(0, 1, "a-b")
	for _, c := range []struct{ metadata, want string }{
		{"", `{"ack_of":"` + logstream.EventID(target.Ref()) + `"}`},
		{` { } `, `{"ack_of":"` + logstream.EventID(target.Ref()) + `" } `},
		{`{"a":1}`, `{"ack_of":"` + logstream.EventID(target.Ref()) + `","a":1}`},
	} {
		a := logstream.Ack{Event: valid(), Task: "t", Of: target.Ref()}
		a.Type = logstream.TypeAck
		if c.metadata != "" {
			a.Metadata = json.RawMessage(c.metadata)
		}
		r := fold(t, target, foldtest.Entry(0, 2, foldtest.At(5000), logstream.KindAck, "a-b", a.Append(nil)))
		p := list(t, r, logstream.Filter{Types: []string{"event.ack"}})
		if p.Count != 1 || string(p.Events[0].Metadata) != c.want || !json.Valid(p.Events[0].Metadata) {
			t.Errorf("metadata %s, want %s", p.Events[0].Metadata, c.want)
		}
	}
}

func TestInvisible(t *testing.T) {
	for _, c := range []struct {
		text string
		want bool
	}{
		{"plain text", false}, {"жизнь 漢字 é", false}, {"heart \u2764\ufe0f", false}, {"keycap 1\ufe0f\u20e3", false},
		{"letter a\ufe0f", true}, {"zero\u200bwidth", true}, {"bidi \u202e", true}, {"isolate \u2066x", true},
		{"tag \U000e0041", true}, {"bom \ufeff", true}, {"join \u200d", true}, {"selector x\U000e0101", true},
	} {
		if got := logstream.Invisible(c.text); got != c.want {
			t.Errorf("%+q: %v", c.text, got)
		}
	}
	r := fold(t, event(0, 1, "a-b", func(e *logstream.Event) { e.Topic = "a\u202eb" }))
	if p := list(t, r, logstream.Filter{}); !p.Events[0].Invisible || p.Events[0].Topic != "a\u202eb" {
		t.Errorf("%+v", p.Events[0])
	}
}

func TestFind(t *testing.T) {
	e := event(0, 1, "a-b")
	r := fold(t, e)
	id := logstream.EventID(e.Ref())
	if got, err := logstream.Find(r, "event_id", id); err != nil || got.Ref() != e.Ref() {
		t.Fatalf("%v", err)
	}
	for _, c := range []struct {
		id   string
		code refusal.Code
	}{
		{strings.Replace(id, "T000001", "T000002", 1), refusal.NotFound},
		{id[:20] + "000000000000", refusal.NotFound},
		{id + "0", refusal.InvalidArgument}, {strings.ToUpper(id), refusal.InvalidArgument},
		{"evt_20261301T000000_000000000000", refusal.InvalidArgument}, {"", refusal.InvalidArgument},
	} {
		if _, err := logstream.Find(r, "event_id", c.id); refusal.CodeOf(err) != c.code {
			t.Errorf("%q: %v, want %s", c.id, err, c.code)
		}
	}
}

func FuzzDecode(f *testing.F) {
	e := valid()
	e.Import, e.Metadata, e.ArtifactIDs = imported.Key{Source: "s", ID: "i", Part: "p"}, json.RawMessage("{}"), []string{"art_1"}
	a := logstream.Ack{Event: e, Task: "t", Of: oplog.Ref{1}, Claim: oplog.Ref{2}, LeaseMS: 1 << 40, Automatic: true}
	f.Add(e.Append(nil), false)
	f.Add(a.Append(nil), true)
	f.Fuzz(func(t *testing.T, body []byte, ack bool) {
		kind := logstream.KindEvent
		if ack {
			kind = logstream.KindAck
		}
		entry := foldtest.Entry(1, 1, foldtest.At(0), kind, "a-b", body)
		raw, err := logstream.Decode(&entry)
		if err != nil {
			return
		}
		var again []byte
		if ack {
			p := raw.AckPayload()
			again = p.Append(nil)
		} else {
			p := raw.Event()
			again = p.Append(nil)
		}
		if string(again) != string(body) {
			t.Fatalf("decoding and encoding again gives\n%x\nof\n%x", again, body)
		}
		if err := (logstream.View{}).Apply(foldtest.NewTx(), &entry); err == nil {
			r := fold(t, entry)
			if p := list(t, r, logstream.Filter{}); p.Count != 1 || !json.Valid(p.Events[0].Metadata) {
				t.Fatalf("folded but not listed: %+v", p)
			}
		}
	})
}

func FuzzCursor(f *testing.F) {
	r := fold(f, event(0, 1, "a-b"), event(0, 2, "a-b"), event(1, 1, "a-b"))
	for _, filter := range []logstream.Filter{{Limit: 1}, {Limit: 1, Order: "asc"}, {}} {
		f.Add(list(f, r, filter).NextCursor)
	}
	f.Fuzz(func(t *testing.T, cursor string) {
		_, err := logstream.List(r, logstream.Filter{Cursor: cursor})
		if err != nil && refusal.CodeOf(err) == "" {
			t.Fatalf("a bad cursor is a failure of the store: %v", err)
		}
	})
}
