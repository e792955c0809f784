package claim

import (
	"encoding/json"
	"fmt"
	"time"

	"tallystick/hlc"
	"tallystick/oplog"
	"tallystick/query/imported"
	"tallystick/query/logstream"
	"tallystick/query/refusal"
)

// Outcomes of event_ack. Of a claim: won, joined, held, closed, expired,
// superseded; anything else is recorded.
const (
	Won        = "won"
	Joined     = "joined"
	Held       = "held"
	Closed     = "closed"
	Expired    = "expired"
	Superseded = "superseded" // an earlier claim of the caller lost to the one that is live
	Recorded   = "recorded"
)

// NotTaken is the error of the op's guard when a claim would not win. Nothing
// was appended. A joined claim is held by the caller already.
type NotTaken struct {
	Outcome string
	TaskKey string
	Claim   oplog.Ref // the live claim, or zero
}

func (e *NotTaken) Error() string {
	switch e.Outcome {
	case Joined:
		return "claim: this identity holds the task already"
	case Closed:
		return "claim: the task is closed"
	case Expired:
		return "claim: the task has expired"
	case Superseded:
		return "claim: an earlier claim of this identity lost to another's, which is live"
	}
	return "claim: another identity holds the task"
}

// ErrorCode is the code for adapters.
func (e *NotTaken) ErrorCode() string {
	switch e.Outcome {
	case Closed:
		return string(refusal.Closed)
	case Expired:
		return string(refusal.Expired)
	case Joined:
		return string(refusal.Conflict)
	}
	return string(refusal.ClaimHeld)
}

// Input is a call of event_ack.
type Input struct {
	EventID string    // the event to ack; or
	Of      oplog.Ref // the same by reference
	Status  string
	Body    string
	Topic   string // the target's when empty
	LeaseMS int64  // 0 for the default; only with claimed, ready, blocked or no status
	Import  imported.Key
	// Metadata is a JSON object to store with the ack, or nil.
	Metadata json.RawMessage
	// Outlier says that this replica's clock is the one that is wrong: it then
	// writes no claims and no renewals (C3).
	Outlier bool
	// Flagged says that another device had this replica's label before: it then
	// writes no claims and no renewals (I9).
	Flagged bool
}

// NewOp makes the op of an event_ack and names its task. A claim is judged
// again in the log's writer, right before it is stamped: when it would not
// win, Append returns *NotTaken and nothing is stored.
func NewOp(snap oplog.Snapshot, self oplog.Origin, author string, in Input) (oplog.Op, string, error) {
	target, err := findTarget(snap, in)
	if err != nil {
		return oplog.Op{}, "", err
	}
	if target.Payload == nil {
		return oplog.Op{}, "", refusal.New(refusal.NotFound, "event_id", "nothing can be said about it any more; when it was not erased, try again once it has arrived whole",
			"the content of %s was erased, or is not here yet", logstream.EventID(target.Ref()))
	}
	raw, err := logstream.Decode(&target)
	if err != nil {
		return oplog.Op{}, "", err
	}
	if err := checkLease(in); err != nil {
		return oplog.Op{}, "", err
	}
	ack := logstream.Ack{
		Event: logstream.Event{
			Type: logstream.TypeAck, Stream: string(raw.Stream), Room: string(raw.Room), Topic: string(raw.Topic), To: target.Author,
			Correlation: string(raw.Correlation), Status: in.Status, Body: in.Body, Import: in.Import, Metadata: in.Metadata,
		},
		Task: taskKeyOf(&raw, target.Hash), Of: target.Ref(), LeaseMS: in.LeaseMS,
	}
	if ack.Correlation == "" {
		ack.Correlation = logstream.EventID(target.Ref())
	}
	if in.Topic != "" {
		ack.Topic = in.Topic
	}
	who := actorOf(author, self.Key[:])
	if in.Status == logstream.StatusSuperseded {
		if ack.Claim, err = ownClaim(snap, ack.Task, who, &target, &raw); err != nil {
			return oplog.Op{}, "", err
		}
	}
	op, err := logstream.NewAckOp(author, ack)
	if err != nil {
		return oplog.Op{}, "", err
	}
	op.Guard = guard(ack.Task, who, in)
	return op, ack.Task, nil
}

func findTarget(snap oplog.Snapshot, in Input) (oplog.Entry, error) {
	if in.EventID != "" || in.Of.IsZero() {
		if in.EventID == "" {
			return oplog.Entry{}, refusal.Invalid("event_id", "name the event to ack", "event_id is required")
		}
		return logstream.Find(snap, "event_id", in.EventID)
	}
	return logstream.Find(snap, "event_id", logstream.EventID(in.Of))
}

func checkLease(in Input) error {
	lease := time.Duration(in.LeaseMS) * time.Millisecond
	switch {
	case in.LeaseMS == 0:
		return nil
	case in.LeaseMS < MinLease.Milliseconds() || in.LeaseMS > MaxLease.Milliseconds():
		return refusal.Invalid("lease_ms", fmt.Sprintf("use %d to %d", MinLease.Milliseconds(), MaxLease.Milliseconds()),
			"a lease of %s is outside %s to %s", lease, MinLease, MaxLease)
	}
	switch in.Status {
	case "", logstream.StatusClaimed, logstream.StatusReady, logstream.StatusBlocked:
		return nil
	}
	return refusal.Invalid("lease_ms", "leave it out", "lease_ms does not go with status %s", in.Status)
}

// ownClaim is the one claim that a superseded ack gives up: the target when it
// is the caller's claim, else the caller's claim on the task unless the caller
// is the requester, who withdraws the task.
func ownClaim(snap oplog.Snapshot, taskKey string, who actor, target *oplog.Entry, raw *logstream.Raw) (oplog.Ref, error) {
	r := snap.View(ViewName)
	if raw.Ack && string(raw.Status) == logstream.StatusClaimed {
		if by, err := actorOfEntry(r, target); err != nil || by == who {
			return target.Ref(), err
		}
	}
	s, losses, err := verdict(r, idOf(taskKey))
	if err != nil {
		return oplog.Ref{}, err
	}
	for _, a := range s.requester {
		if a == who {
			return oplog.Ref{}, nil
		}
	}
	if s.holder == who && s.live0() {
		return s.claim, nil
	}
	for n := len(losses) - 1; n >= 0; n-- {
		if losses[n].actor == who && !losses[n].told {
			return losses[n].claim, nil
		}
	}
	return oplog.Ref{}, nil
}

// guard judges a claim, a renewal or a release against the views as they
// stand when it is stamped. Everything visible is stamped below it (C1).
func guard(taskKey string, who actor, in Input) func(oplog.Views, hlc.Timestamp) error {
	claims := in.Status == logstream.StatusClaimed
	renews := in.LeaseMS > 0 && !claims
	if !claims && !renews && in.Status != logstream.StatusReleased {
		return nil
	}
	return func(views oplog.Views, stamp hlc.Timestamp) error {
		if in.Outlier && (claims || renews) {
			return refusal.New(refusal.Conflict, "status", "set this machine's clock right, then claim again", "this replica's clock is off, so it may not claim or renew")
		}
		if in.Flagged && (claims || renews) {
			return refusal.New(refusal.Conflict, "status", "give this machine another label with tally rename LABEL, then claim again", "another machine had this replica's label first, so it may not claim or renew")
		}
		s, losses, err := verdict(views.View(ViewName), idOf(taskKey))
		if err != nil {
			return err
		}
		holds := s.live(stamp) && s.holder == who
		if !claims {
			if holds || renews && s.holder == who && !s.claim.IsZero() && !s.live(stamp) && s.closed.IsZero() && stamp < s.expiry() {
				return nil
			}
			return refusal.New(refusal.Conflict, "status", "claim the task first", "only the holder of a claim can renew or release it, and this identity holds none on this task")
		}
		outcome := &NotTaken{TaskKey: taskKey}
		switch {
		case !s.closed.IsZero():
			outcome.Outcome = Closed
		case stamp >= s.expiry():
			outcome.Outcome = Expired
		case holds:
			outcome.Outcome, outcome.Claim = Joined, s.claim
		case s.live(stamp):
			outcome.Outcome, outcome.Claim = Held, s.claim
			for _, l := range losses {
				if l.actor == who && l.winner == s.claim {
					outcome.Outcome = Superseded
				}
			}
		default:
			return nil
		}
		return outcome
	}
}
