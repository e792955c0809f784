// Package claim decides who holds a task. A task is (stream, correlation id),
// or one request when it has no correlation; the claim family of acks (claimed,
// ready, blocked, released, failed, applied, superseded) acts on it.
//
//	op, err := claim.NewOp(snap, self, "mac:claude:tally", claim.Input{EventID: id, Status: "claimed"})
//	task, err := claim.Get(snap, key, horizon)
//	claims, err := claim.List(snap, claim.Filter{Identity: "mac:claude:tally"}, horizon)
//
// The verdict is a pure function of the task's entries, replayed in C2 order
// (K1): a claim lives from its stamp until its home ends it, its lease runs
// out, or the task closes or expires; a claim stamped inside another's live
// span is lost for good. So of racing claims the earliest stamp wins, on every
// replica. The same identity on the same device joins its own claim (K2).
// Leases and expiries are judged by stamps (K3); only "is it over by now" asks
// the reader's clock.
//
// Every claim and every loss carries a grade (K4), computed at read time from
// a Horizon, which says how far each member's promises reach. A loser hears
// at once through Notices; when the loss is settled, Reactor makes the loser's
// home append one superseded ack. Late truth is told the same way (K5).
package claim
