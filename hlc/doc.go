// Package hlc gives hybrid logical timestamps and the clock that issues and
// merges them within a bound.
//
// A [Timestamp] is 48 bits of unix milliseconds above 16 bits of counter. It
// reads like wall time and orders like a logical clock: whatever a replica
// writes is stamped above all that it has seen, however wrong the wall clocks
// are. Most callers need three calls: [NewClock] with the highest timestamp
// the replica has promised as Floor, [Clock.Now] for each entry, and
// [Clock.Merge] with the highest timestamp of what has just been taken in.
//
// # Guarantees
//
//   - C1: timestamps of one clock strictly increase: when the wall stands
//     still, when it steps back, and across restarts if Floor is the highest of
//     own stamps, the persisted ceiling and the admission. A full counter
//     borrows the next millisecond; nothing waits and nothing fails. What Now
//     issues after Merge lies above what was merged.
//   - C2: timestamps are compared as numbers, and [Stamp] texts sort as bytes
//     in the same order. Two origins may issue equal timestamps, so the total
//     order is (timestamp, origin, seq, entry hash); a Stamp alone carries only
//     the first two, the origin in part.
//   - C3: a timestamp further ahead of the local wall clock than the bound never
//     moves the clock. Merge says so with [*AheadError] and changes nothing.
//     Therefore a clock is never further ahead than the highest wall reading it
//     has seen plus the bound (or Floor, if that is higher), plus the
//     milliseconds it has borrowed.
//
// The wall is an input ([Config].Wall); this package never sleeps and never
// fails because of it. Readings outside 0..[MaxMillis] are brought into it.
//
// # Channels a timestamp travels on
//
// Causality holds only along channels on which the receiver merges. Each
// channel is listed with what it promises and, marked HAZARD, what it does not.
//
// Between replicas:
//
//   - Entries. The stamp stands in the header, covered by the chain and by a
//     signed head, and is relayed verbatim, at once or months later. The
//     receiver commits the batch and then, in its single writer and before
//     its next append, merges the highest stamp within the bound. HAZARD: merge
//     before the commit and a refused batch leaves the clock moved. HAZARD:
//     merge every entry and a batch of 65,537 overflows a naive counter; merge
//     the maximum. HAZARD: the maximum of all may be beyond the bound, and then
//     nothing would be merged; take the maximum of those that [Clock.Ahead]
//     finds within it.
//   - Floors. A signed head promises that no later entry of its incarnation is
//     stamped below its floor. A floor is a reading handed out without an entry,
//     so the ceiling that covers it must be durable before it is signed, and
//     the single writer signs, or an entry stamped lower may still be in its
//     queue. Receivers do not merge floors: they compare them. HAZARD: a floor
//     further ahead than the bound proves nothing about a repaired clock and
//     does not count. HAZARD: a floor equal to a stamp does not settle it,
//     another origin may tie: the comparison is strict.
//   - Requests for a floor above a timestamp. They carry a stamp of somebody
//     else's claim. HAZARD: it is an unsigned number from a peer; it may be
//     answered only with what the own clock gives, and never jumps it past the
//     bound.
//   - Hellos carry a plain wall reading, not a timestamp, so that two people
//     can be told whose clock is off. It is never merged.
//   - Admissions. A newcomer continues above the stamp of its admission. HAZARD:
//     an inviter a year ahead would drag it along; a join between clocks further
//     apart than the bound is refused, naming both.
//   - Gossip packets and courier files carry the same entry bytes and head
//     bytes as a sync stream and get the same treatment, no more and no less.
//
// Between runs of one replica:
//
//   - The store: own entries and the persisted ceiling. Restart continues above
//     wall, highest own stamp and ceiling. HAZARD: a restored backup, a cloned
//     disk or a rolled-back machine brings an older ceiling; the clock cannot
//     see that. A new incarnation must be opened, which is the log's business.
//   - The incarnation. The only legal way down for a clock that once stood in
//     2099 is a new incarnation that starts above its predecessor's sane floor.
//     HAZARD: C1 holds within an incarnation, not across such a change.
//
// Between a replica and its clients:
//
//   - Text in answers (`hlc` of an event, fences, ids, cursors). It may come back
//     as an argument, to compare with or to continue from. HAZARD: it is then a
//     client's text: parsed strictly by [ParseStamp], never merged.
//   - Wall instants in payloads (expiries, imported dates, a summary's own time)
//     look alike and are not timestamps. They are never merged and order
//     nothing except where a domain says so.
//   - View keys begin with the big-endian timestamp; byte order is clock order.
//
// Beside all of these: HAZARD: people and agents talk past the mesh (a chat, a
// shared checkout, a second terminal). An entry written on machine B because
// of something read aloud from machine A may be stamped below its cause, by as
// much as the two clocks differ. Nothing here can see such a channel. A reply
// that names the entry it answers is safe once that entry has arrived.
//
// HAZARD: an earlier stamp wins a claim, so a clock that is behind profits. The
// bound guards only the future; the past is guarded by floors and grades,
// above this package.
//
// # Compatibility
//
// The 64-bit layout and the text form are frozen. The text has 13 decimal
// digits of milliseconds, hence [Max], in the year 2286: no clock issues above
// it, nothing above it can be merged, and the log's codec refuses it.
package hlc
