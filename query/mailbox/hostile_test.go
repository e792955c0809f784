package mailbox

import (
	"encoding/json"
	"errors"
	"testing"

	"tallystick/internal/hostile"
	"tallystick/oplog"
	"tallystick/query/logstream"
)

// TestL6_HostileMail: the envelope of a letter and the mark of a recipient, as
// a member may write them. An envelope is JSON of our own making: keys nobody
// knows are left for versions to come, of a key given twice the last counts.
func TestL6_HostileMail(t *testing.T) {
	quarantined := func(err error) error {
		if q := new(oplog.QuarantineError); err != nil && !errors.As(err, &q) {
			t.Errorf("not set aside: %v", err)
		}
		return err
	}
	mark := func(b []byte) error {
		_, _, err := decodeMark(&oplog.Entry{Version: markVersion, Body: b})
		return quarantined(err)
	}
	good := appendMark(nil, oplog.Ref{1}, Archived)
	if err := mark(good); err != nil {
		t.Fatal(err)
	}
	hostile.Check(t, hostile.Msgpack(good), nil, mark)
	if _, _, err := decodeMark(&oplog.Entry{Version: markVersion + 1, Body: good}); quarantined(err) == nil {
		t.Error("a mark of a version to come is taken")
	}

	letter := func(b []byte) error {
		ev := logstream.Event{Type: TypeMessage, Stream: stream, Room: room, To: Everybody, Body: "b", Metadata: json.RawMessage(b)}
		e := oplog.Entry{Header: oplog.Header{Kind: logstream.KindMail, Author: "mac:claude:tally"}, Body: ev.Append(nil)}
		_, ok, err := decodeMessage(&e)
		if err == nil && !ok {
			t.Error("mail that is none")
		}
		return quarantined(err)
	}
	envelope := []byte(`{"subject":"s","priority":"normal","audience":["nas-codex","win-gemini"]}`)
	if err := letter(envelope); err != nil {
		t.Fatal(err)
	}
	hostile.Check(t, hostile.JSON(envelope), map[hostile.Kind]string{
		hostile.Twice: "the last counts", hostile.Unknown: "for versions to come", hostile.Text: "mended by encoding/json, the same everywhere",
	}, letter)
}

func FuzzMail(f *testing.F) {
	f.Add(appendMark(nil, oplog.Ref{1}, Archived), []byte(`{"subject":"s","priority":"normal","audience":["nas-codex"]}`))
	f.Fuzz(func(t *testing.T, body, envelope []byte) {
		ref, mark, err := decodeMark(&oplog.Entry{Body: body})
		if err == nil && string(appendMark(nil, ref, mark)) != string(body) {
			t.Errorf("%x encodes as %x", body, appendMark(nil, ref, mark))
		}
		ev := logstream.Event{Type: TypeMessage, Stream: stream, Room: room, To: Everybody, Body: "b", Metadata: envelope}
		e := oplog.Entry{Header: oplog.Header{Kind: logstream.KindMail, Author: "mac:claude:tally"}, Body: ev.Append(nil)}
		m, ok, err := decodeMessage(&e)
		if err == nil && ok && (len(m.Audience) == 0 || len(m.Audience) > MaxAudience || m.Subject == "") {
			t.Errorf("%q is taken as %+v", envelope, m.letter)
		}
	})
}
