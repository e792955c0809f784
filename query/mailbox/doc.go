// Package mailbox is mail between identities: a view over events of type
// "mail.message", and the marks by which a recipient reads and archives.
//
//	op, err := mailbox.NewMessageOp(snap, "mac:claude:tally", mailbox.Draft{To: "lap:codex:tally", Subject: "Review", Body: "Please look."})
//	page, err := mailbox.List(snap, mailbox.Query{Owner: "lap:codex:tally"})
//	ops, err := mailbox.NewMarkOps(snap, "lap:codex:tally", mailbox.Read, page.Messages[0].ID)
//
// A message goes to one identity or to all that are known when it is sent. The
// audience of such a broadcast is stored in it, so that every replica agrees
// on whom it was for, whatever it learns of later. Because a message is an
// event, waiting for events wakes on it too.
//
// A mark is an entry of its own, of kind "mail.mark", written by the recipient.
// The earliest mark of a recipient counts and none takes one back: a message
// that was read never turns unread, on any replica and in any order of arrival
// (M1). Archiving hides from the usual listing and deletes nothing. Counts are
// rows of the view: exact, and as cheap as one read.
//
// Anybody with an identity may read any mailbox; only the recipient marks.
// Nothing is marked by reading (M2).
package mailbox
