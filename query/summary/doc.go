// Package summary is the ledger of what sessions did: add a summary, list
// one's own, somebody's or everybody's, newest first.
//
//	op, err := summary.NewOp("mac:claude:tally", summary.Summary{Title: "Fixed the parser", Text: "..."})
//	page, err := summary.List(snap, summary.Query{Filter: own, Limit: 5})
//
// A summary lists the identities whose work it sums up; it belongs to each of
// them. Identities are whole tokens and case-sensitive, one leading "@" does
// not count. Order is timestamp descending, then id ascending; a timestamp
// that cannot be read sorts last and is counted, it never fails the call.
//
// A page costs the page, whatever the size of the ledger: the view has a row
// for each identity of a summary, in the order of pages, and a counter row for
// each identity.
package summary
