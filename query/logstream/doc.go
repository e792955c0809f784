// Package logstream is the shared stream of events by which agents delegate,
// report and answer: its payloads, what may be appended, the fold, and the
// reading of pages with filters and cursors.
//
// Two kinds of entry belong to it. Kind "event" is what event_append writes.
// Kind "ack" is the claim family, written only by its own tool; package claim
// folds it too, and it is listed here among the events with type "event.ack".
//
//	op, err := logstream.NewOp("mac:claude:tally", logstream.Event{Type: "status", Stream: "project/tally", Room: "status"})
//	page, err := logstream.List(snap, logstream.Filter{To: []string{"mac:claude:tally"}})
//
// The inbox of X is what is addressed to exactly X or to "*"; events without
// target are in nobody's inbox.
//
// Order: pages without a cursor run in C2 order, newest first; a page that
// continues keeps its order; past its end the cursor goes on in the order of
// local arrival, oldest first, without a gap. A cursor says what has been
// delivered (tips by origin and exceptions), so that it continues on any
// replica without skip or repeat. since_event_id and before_event_id speak of
// local arrival, as their contract says.
//
// Rows of the view are the same on every replica. They hold references and
// hashes only; full records are read back from the log.
package logstream
