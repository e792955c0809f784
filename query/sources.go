package query

import (
	"errors"
	"fmt"

	"tallystick/oplog"
	"tallystick/query/document"
	"tallystick/query/logstream"
	"tallystick/query/memory"
	"tallystick/query/rawmemory"
	"tallystick/query/search"
	"tallystick/query/summary"
)

// Kinds of document that Sources make.
const (
	DocFact    = memory.KindFact
	DocTurn    = rawmemory.Kind
	DocSummary = summary.Kind
	DocEvent   = logstream.KindEvent
	DocAck     = logstream.KindAck
	DocMail    = logstream.KindMail
)

// Sources are the documents of every domain, for a search index that follows
// the log.
func Sources() []search.Source {
	return []search.Source{
		search.SourceOf("memory", memory.DocumentVersion, []string{memory.KindFact, memory.KindMark}, memory.Documents),
		search.SourceOf("rawmemory", rawmemory.DocumentVersion, []string{rawmemory.Kind}, rawmemory.Documents),
		search.SourceOf("summary", summary.DocumentVersion, []string{summary.Kind}, summary.Documents),
		search.SourceOf("logstream", logstream.DocumentVersion, []string{logstream.KindEvent, logstream.KindAck}, logstream.Documents),
		search.SourceOf("erase", 1, []string{oplog.KindErase}, erased),
	}
}

// erased takes what an erase names out of the index, whether or not its bytes
// are gone from the log yet (T5). What arrives after its erase has no bytes
// when its own source sees it.
func erased(snap oplog.Snapshot, e *oplog.Entry) ([]document.Document, error) {
	var out []document.Document
	for _, h := range oplog.ErasedBy(e) {
		named, err := snap.ByHash(h[:])
		if errors.Is(err, oplog.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("entry of an erase: %w", err)
		}
		ref := named.Ref()
		d := document.Document{Ref: ref, Kind: named.Kind, State: document.Erased}
		switch named.Kind {
		case memory.KindFact:
			d.ID = memory.ID(named.Hash)
		case rawmemory.Kind:
			d.ID = rawmemory.ID(ref)
		case summary.Kind:
			d.ID = summary.ID(ref)
		case logstream.KindEvent, logstream.KindAck:
			d.ID = logstream.EventID(ref)
		default:
			continue
		}
		out = append(out, d)
	}
	return out, nil
}
