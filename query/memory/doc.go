// Package memory is what agents know: facts in namespaces, with the words that
// name the same thing (aliases) and links between nodes.
//
//	op, err := memory.NewAdd("mac:claude:tally", memory.Fact{Namespace: "mac:claude:tally", Text: "the port is 7717"})
//	page, err := memory.List(snap, memory.Filter{Namespaces: []string{"mac:claude:tally", memory.Shared}})
//
// Most callers need NewAdd, ParseReflect and its Ops, Outcome for the answer,
// and List, Get, Near and Merges for reading.
//
// # Facts and lineages
//
// A fact is a text in a namespace, both as given, compared by bytes. Adding
// the same text twice makes two copies. Update and forget act on every live
// copy of exactly that text: they name the copies that live when they are
// written, in the log's single writer, and reach every other copy of the text
// that is stamped before them and arrives late. So a tombstone beats late
// older writes, and the same text added afterwards is found again.
//
// An update belongs to the lineage of the facts it replaces; so does a
// forget. Each lineage is a register with one head: the latest operation in
// C2 order. Two hosts that update one fact in a partition end with one head on
// both; whoever lost without having been seen is listed by Merges, with both
// sides, and Undo brings it back by a new operation (M3). Rows of one import
// key are one lineage, its earliest copy counts, and a forget holds against
// importing the same row again.
//
// A pin belongs to the lineage, so it follows a fact through its updates.
// Pins, links and aliases are observed-remove sets: removing takes away what
// the remover saw.
//
// # Kinds of entry
//
//   - "fact" is content: namespace, text, confidence, what it replaces.
//   - "fact.mark" is structure: retire (update or forget), pin, unpin, remove.
//     It holds hashes of entries, never a text or a digest of one, so a fact
//     whose payload is erased leaves nothing to guess at (T5).
//   - "fact.link" and "fact.alias" are content.
//
// An update is two entries of one append, the fact first: there is no moment
// without a live version, on any replica.
//
// # Guarantees
//
// The view is a pure function of the set of entries (M1): a copy only ever
// changes from live to retired as entries are added. Listing and lookup cost
// the page, whatever the size of a namespace. Nothing here writes on a read
// (M2). Identity for memory_reflect is validated before anything else is
// touched, by ParseReflect.
package memory
