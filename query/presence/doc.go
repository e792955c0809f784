// Package presence knows which identities have written anything, since when,
// and in which hour they last did. It is what "everybody" and "known here" mean
// when mail is addressed.
//
//	known, err := presence.Known(snap, "mac:claude:tally")
//	near, err := presence.Near(snap, "mac:claud:tally")
//
// An identity is known once an entry of it has arrived. Nobody is forgotten:
// names live in the log (RFC 005). The rows are a pure function of the set of
// entries (M1); the hour is coarse so that most entries change nothing.
package presence
