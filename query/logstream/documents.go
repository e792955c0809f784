package logstream

import (
	"encoding/json"
	"fmt"

	"tallystick/oplog"
	"tallystick/query/carried"
	"tallystick/query/document"
)

// DocumentVersion changes whenever the documents of the same entries would.
const DocumentVersion = 1

// KindMail is the kind of document of an event that is mail, so that a search
// can leave it out.
const KindMail = "mail"

// ByRef returns an event or an ack by its entry's Ref, as a search that found
// it needs it; oplog.ErrNotFound if it is none that is here.
func ByRef(snap oplog.Snapshot, ref oplog.Ref, label Labeler) (Record, error) {
	e, err := snap.Entry(ref)
	if err != nil {
		return Record{}, err
	}
	if e.Kind != KindEvent && e.Kind != KindAck || !e.Present() {
		return Record{}, oplog.ErrNotFound
	}
	return NewRecord(snap, &e, label)
}

// Documents gives the document of an event, or of an ack that says something,
// as the snapshot has it now: the earliest of several copies of an import is
// live, the others are not shown. Its namespace is the stream, its category the
// type, its session the task or else the room.
func Documents(snap oplog.Snapshot, e *oplog.Entry) ([]document.Document, error) {
	if e.Kind != KindEvent && e.Kind != KindAck {
		return nil, nil
	}
	gone := document.Document{ID: EventID(e.Ref()), Ref: e.Ref(), Kind: e.Kind, State: document.Erased}
	if !e.Present() {
		return []document.Document{gone}, nil
	}
	raw, err := Decode(e)
	if err != nil {
		return nil, nil // in quarantine: no document
	}
	key, ok := raw.dedup()
	if !ok {
		return documentOf(e, &raw), nil
	}
	first, ok, err := imports.Counts(snap.View(ViewName), key)
	if err != nil || !ok {
		return nil, err
	}
	if first == e.Ref() {
		return documentOf(e, &raw), nil
	}
	fe, err := snap.Entry(first)
	if err != nil {
		return nil, fmt.Errorf("logstream: entry of an import: %w", err)
	}
	out := []document.Document{gone}
	if fr, err := Decode(&fe); fe.Present() && err == nil {
		out = append(out, documentOf(&fe, &fr)...)
	}
	return out, nil
}

func documentOf(e *oplog.Entry, raw *Raw) []document.Document {
	var meta struct {
		Title   string `json:"title"`
		Subject string `json:"subject"`
	}
	if len(raw.Metadata) > 0 && json.Unmarshal(raw.Metadata, &meta) != nil {
		meta.Title, meta.Subject = "", ""
	}
	d := document.Document{
		ID: EventID(e.Ref()), Ref: e.Ref(), Kind: e.Kind, Namespace: string(raw.Stream), Category: string(raw.Type),
		Identities: []string{e.Author}, Session: string(raw.Correlation), Time: carried.Stamp(e).Millis(), Confidence: 1, State: document.Live,
		Title: meta.Title + meta.Subject, Text: string(raw.Body),
	}
	if to := string(raw.To); to != "" && to != "*" && to != e.Author {
		d.Identities = append(d.Identities, to)
	}
	if d.Session == "" {
		d.Session = string(raw.Stream) + "/" + string(raw.Room)
	}
	if len(raw.Topic) > 0 {
		d.Title = string(raw.Topic) + " " + d.Title
	}
	if len(d.Category) > 5 && d.Category[:5] == "mail." {
		d.Kind = KindMail
	}
	if d.Title == "" && d.Text == "" {
		return nil // nothing to find it by
	}
	return []document.Document{d}
}
