// Package search finds memories, summaries and events by their words.
//
// Most callers need Open, Index.Search and Index.Close. Domains plug in by a
// Source, usually SourceOf their Documents function; an Index without a log is
// filled by Put.
//
// A question is an OR of stemmed words and of identifiers, which count whole
// and in their parts, ranked by BM25. Words that stand side by side weigh more,
// and short documents borrow weight from their session and their neighbours. A
// hit says why it matched. A question without a hit is asked again with words
// that are spelt alike, and the answer says so.
//
// # Guarantees
//
//   - M1 Answers depend on the documents alone: any order of arrival gives the
//     same hits in the same total order with the same scores.
//   - M2 The index is derived and may trail. Search first folds what was
//     acknowledged before it, unless that is a lot; Result.Behind tells how
//     much is missing. It follows the log by arrival number and goes on where
//     it stopped.
//   - A filter works before anything is ranked: hidden documents influence
//     nothing. Superseded and forgotten documents are hidden unless asked for.
//   - T3 The index lives in memory. What it keeps over a restart is a file
//     sealed with a key derived from the store's, or nothing.
//   - T5 Once an erase is folded, no term of what was erased is in memory or in
//     the file.
//   - A4 Everything has a limit with a named error.
//
// # Hazards
//
// Memory grows with the number of words: docs/search.md has figures. A damaged
// file costs a fold of the whole log, which Status reports; answers are behind
// meanwhile. Vectors come from a model outside and differ from machine to
// machine; with a Vectorizer the order of hits does too.
//
// The file's format is 1; another format, another version of the analysis or
// of a Source folds everything anew.
package search
