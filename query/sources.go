package query

import (
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
// the log. What an erase names the index takes out by itself.
func Sources() []search.Source {
	return []search.Source{
		search.SourceOf("memory", memory.DocumentVersion, []string{memory.KindFact, memory.KindMark}, memory.Documents),
		search.SourceOf("rawmemory", rawmemory.DocumentVersion, []string{rawmemory.Kind}, rawmemory.Documents),
		search.SourceOf("summary", summary.DocumentVersion, []string{summary.Kind}, summary.Documents),
		search.SourceOf("logstream", logstream.DocumentVersion, []string{logstream.KindEvent, logstream.KindAck}, logstream.Documents),
	}
}
