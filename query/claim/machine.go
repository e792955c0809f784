package claim

import (
	"math"

	"tallystick/hlc"
	"tallystick/oplog"
)

// act is what an entry does to a task.
type act byte

const (
	actRequest  act = iota + 1 // opens the task
	actClaim                   // claimed
	actKeep                    // ready, blocked, or no status: the holder goes on
	actRenew                   // the same with a lease asked for
	actRelease                 // released
	actApply                   // applied
	actFail                    // failed
	actWithdraw                // superseded, without naming a claim
	actLose                    // superseded, naming the claim that is lost, written by its home
	actYield                   // the same by the agent itself, which gives its claim up
	actTold                    // released, written by a home, naming the claim that it tells to be freed
)

// names reports whether an act is about one claim, which it names.
func (a act) names() bool { return a == actLose || a == actYield || a == actTold }

// input is what the replay needs of one entry.
type input struct {
	ref   oplog.Ref
	act   act
	actor actor
	num   int64         // request: expiry in unix ms, 0 for none; claim, keep, renew: lease in ms, 0 for the default
	claim oplog.Ref     // actLose, actYield, actTold
	at    hlc.Timestamp // of a carried entry: when it was first written; else zero
	until hlc.Timestamp // not stored: when its device was revoked or left; zero if it was not
}

// time is what leases and expiries are measured by. The order of inputs is
// that of their stamps alone.
func (i *input) time() hlc.Timestamp {
	if i.at != 0 {
		return i.at
	}
	return i.ref.Time()
}

// Rule says why a claim was lost.
type Rule byte

// The rules.
const (
	RuleEarliest Rule = iota + 1 // stamped inside another identity's live span (K1)
	RuleClosed                   // the task was closed (K3)
	RuleExpired                  // the task had expired (K3)
)

// String is the rule as clients see it.
func (r Rule) String() string {
	switch r {
	case RuleEarliest:
		return "earliest_claim_wins"
	case RuleClosed:
		return "task_closed"
	case RuleExpired:
		return "task_expired"
	}
	return "unknown"
}

// loss is a claim that lost and what it lost to.
type loss struct {
	claim  oplog.Ref
	actor  actor
	winner oplog.Ref // the live claim, the close, or the request that expired
	rule   Rule
	told   bool // a superseded ack names it
}

// state is a task after some of its entries, all in C2 order.
type state struct {
	request   oplog.Ref // the earliest that opens it; zero if none is here
	requester []actor   // whoever opened it, in C2 order
	expires   hlc.Timestamp

	closed   oplog.Ref // the entry that closed it; zero while open
	closedBy act

	claim  oplog.Ref // latest claim that won; zero if none yet
	holder actor
	end    hlc.Timestamp // when that claim's life ends, by what is known
	length int64         // of its lease in ms, as last asked for; 0 for the default
	ended  bool          // its home has ended it, or the task closed
	freed  oplog.Ref     // the ack by which its home ended it as lost, while by now it has won; zero once that is told

	// shadows are leases that their holders believed in and that do not count:
	// of lost claims, and of the claim that a close cut short. What such a
	// holder wrote to keep its claim belongs to that claim and is no loss of
	// its own.
	shadows []shadow
}

type shadow struct {
	actor  actor
	end    hlc.Timestamp
	length int64 // as last asked for
}

const forever = hlc.Timestamp(math.MaxUint64)

// open notes a request: the earliest sets the expiry, each makes its author a
// requester.
func (s *state) open(i input) {
	if s.request.IsZero() {
		s.request, s.expires = i.ref, forever
		if i.num > 0 {
			s.expires = hlc.New(i.num, 0)
		}
		if s.live0() && s.end > s.expires {
			s.end = s.expires
		}
	}
	for _, r := range s.requester {
		if r == i.actor {
			return
		}
	}
	s.requester = append(s.requester, i.actor)
}

func (s *state) expiry() hlc.Timestamp {
	if s.request.IsZero() {
		return forever
	}
	return s.expires
}

// live reports whether somebody holds the task at t.
func (s *state) live(t hlc.Timestamp) bool {
	return !s.claim.IsZero() && !s.ended && s.closed.IsZero() && t < s.end
}

// lease is the end of a lease that an input starts or goes on with: when its
// device was revoked or left, that ends it (K1).
func (s *state) lease(i input, ms int64) hlc.Timestamp {
	end := min(leaseEnd(i.time(), ms), s.expiry())
	if i.until != 0 {
		end = min(end, i.until)
	}
	return end
}

func leaseEnd(t hlc.Timestamp, ms int64) hlc.Timestamp {
	if ms == 0 {
		ms = DefaultLease.Milliseconds()
	}
	ms = min(max(ms, MinLease.Milliseconds()), MaxLease.Milliseconds())
	end := t + hlc.Timestamp(uint64(ms)<<16)
	if end < t {
		return forever
	}
	return end
}

// step replays one entry. The verdict on a claim that loses is returned;
// claims that win or join lose nothing.
func (s *state) step(i input) (lost loss, isLoss bool) {
	t := i.time()
	s.prune(t)
	holds := s.live(t) && s.holder == i.actor
	switch i.act {
	case actRequest:
		s.open(i)
	case actClaim, actRenew: // a renewal after the end is a new claim (K3)
		return s.take(i, holds)
	case actKeep:
		if holds { // renews by the length that was asked for
			s.end = max(s.end, s.lease(i, s.length))
		} else {
			s.shade(i, false)
		}
	case actRelease:
		s.unshade(i.actor)
		if holds {
			s.ended, s.end = true, t
		}
	case actTold:
		// Releases nothing: the claim has ended, and the agent may hold the task by
		// a later one.
		if s.holder == i.actor && sameEntry(i.claim, s.claim) {
			s.freed = oplog.Ref{}
		}
	case actApply:
		s.close(i)
	case actFail:
		if holds {
			s.close(i)
		}
	case actWithdraw:
		for _, r := range s.requester {
			if r == i.actor {
				s.close(i)
				break
			}
		}
	case actLose, actYield:
		// Ends that one claim, never the task; it stays in force when the winner
		// turns out to be none (K1).
		if sameEntry(i.claim, s.claim) && holds {
			s.ended, s.end = true, t
			if i.act == actLose {
				s.freed = i.ref
			}
		} else {
			s.unshade(i.actor)
		}
	}
	return loss{}, false
}

// take judges a claim or a renewal.
func (s *state) take(i input, holds bool) (lost loss, isLoss bool) {
	t := i.time()
	lost = loss{claim: i.ref, actor: i.actor}
	switch {
	case i.until != 0 && t >= i.until:
		return loss{}, false // claims nothing: its device was no member any more
	case !s.closed.IsZero():
		lost.winner, lost.rule = s.closed, RuleClosed
	case t >= s.expiry():
		lost.winner, lost.rule = s.request, RuleExpired
	case holds: // K2: joins, and renews like any ack of the holder
		if i.num > 0 {
			s.length = i.num
		}
		s.end = max(s.end, s.lease(i, s.length))
		return loss{}, false
	case s.live(t):
		lost.winner, lost.rule = s.claim, RuleEarliest
	default:
		s.claim, s.holder, s.end, s.length, s.ended = i.ref, i.actor, s.lease(i, i.num), i.num, false
		s.freed = oplog.Ref{}
		s.unshade(i.actor)
		return loss{}, false
	}
	return lost, !s.shade(i, true)
}

// shade extends the lease that the actor believes in and reports whether it
// believed in one. Without one, begin starts it.
func (s *state) shade(i input, begin bool) bool {
	t := i.time()
	for n := range s.shadows {
		h := &s.shadows[n]
		if h.actor != i.actor {
			continue
		}
		if i.num > 0 {
			h.length = i.num
		}
		h.end = max(h.end, leaseEnd(t, h.length))
		return true
	}
	if begin {
		s.shadows = append(s.shadows, shadow{i.actor, leaseEnd(t, i.num), i.num})
	}
	return false
}

func (s *state) unshade(a actor) {
	s.keepShadows(func(h shadow) bool { return h.actor != a })
}

func (s *state) prune(t hlc.Timestamp) {
	s.keepShadows(func(h shadow) bool { return h.end > t })
}

func (s *state) keepShadows(keep func(shadow) bool) {
	kept := s.shadows[:0:0]
	for _, h := range s.shadows {
		if keep(h) {
			kept = append(kept, h)
		}
	}
	s.shadows = kept
}

func (s *state) close(i input) {
	if !s.closed.IsZero() {
		return // the first close stands
	}
	s.closed, s.closedBy = i.ref, i.act
	if s.live0() {
		if s.end > i.time() {
			s.shadows = append(s.shadows, shadow{s.holder, s.end, s.length})
		}
		s.ended, s.end = true, min(s.end, i.time())
	}
}

func (s *state) live0() bool { return !s.claim.IsZero() && !s.ended }

// replay runs all inputs of a task, which are in C2 order.
func replay(in []input) (s state, losses []loss) {
	at := map[entryName]int{}
	for _, i := range in {
		if l, ok := s.step(i); ok {
			at[nameOf(l.claim)] = len(losses)
			losses = append(losses, l)
		}
		if i.act == actLose || i.act == actYield {
			if n, ok := at[nameOf(i.claim)]; ok && losses[n].actor == i.actor {
				losses[n].told = true
			}
		}
	}
	return s, losses
}

// entryName is what of a Ref an amend leaves alone: origin, seq and hash. An
// ack names its claim as that was stamped when the ack was written.
type entryName [oplog.RefSize - 8]byte

func nameOf(ref oplog.Ref) entryName { return entryName(ref[8:]) }

func sameEntry(a, b oplog.Ref) bool { return nameOf(a) == nameOf(b) }
