// Package analysis turns text into the terms a search index holds: words
// lowered, folded and stemmed, identifiers both whole and in their parts.
//
// Most callers need Tokens for a document and Tokens again for a question;
// both sides must pass through the same Version. Words are English when
// stemmed; other alphabets pass unstemmed, and scripts written without spaces
// become overlapping pairs.
//
// # Guarantees
//
// Tokens is a pure function of its input and Version. It never fails: any
// bytes are text, invalid UTF-8 counts as a break. A term is at most MaxTerm
// bytes long; a longer run is known by its first bytes and a digest of all.
package analysis
