package logstream

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"tallystick/oplog"
	"tallystick/query/imported"
	"tallystick/query/refusal"
)

// Kinds of entry of this domain.
const (
	KindEvent = "event"
	KindAck   = "ack"
)

// TypeAck is the type under which acks are listed.
const TypeAck = "event.ack"

// TypeRequest is the type of an event that opens a task.
const TypeRequest = "task.request"

// Statuses.
const (
	StatusOpen       = "open"
	StatusClaimed    = "claimed"
	StatusReady      = "ready"
	StatusApplied    = "applied"
	StatusBlocked    = "blocked"
	StatusFailed     = "failed"
	StatusSuperseded = "superseded"
	StatusReleased   = "released"
)

// Statuses is the vocabulary, in the order of a task's life. Its positions
// are part of the view's rows.
var statuses = []string{
	StatusOpen, StatusClaimed, StatusReady, StatusApplied, StatusBlocked, StatusFailed, StatusSuperseded, StatusReleased,
}

// AckStatuses is what event_ack accepts besides no status at all.
var ackStatuses = []string{
	StatusClaimed, StatusReady, StatusApplied, StatusBlocked, StatusFailed, StatusSuperseded, StatusReleased,
}

// Statuses lists the statuses of events, in the order of a task's life.
func Statuses() []string { return slices.Clone(statuses) }

// AckStatuses lists the statuses that an ack may have.
func AckStatuses() []string { return slices.Clone(ackStatuses) }

// Event is the payload of an event. From is not in it: it is the author of
// the entry (I8).
type Event struct {
	Type        string
	Stream      string
	Room        string
	Topic       string
	To          string
	Correlation string
	Branch      string
	BaseCommit  string
	Status      string
	Body        string
	Metadata    json.RawMessage // a JSON object, or nil
	ArtifactIDs []string
	ExpiresAt   int64 // unix milliseconds, 0 for never
	Import      imported.Key
}

// Ack is the payload of an ack: an event with what the claim fold needs.
type Ack struct {
	Event
	Task      string    // task key, computed when the ack is written
	Of        oplog.Ref // the event that is acked
	LeaseMS   int64     // lease asked for, 0 for the default
	Claim     oplog.Ref // superseded: the one claim that is lost; zero otherwise
	Automatic bool      // written by the loser's home, not by an agent
}

// EventID is the name of an event: evt_, the second of its stamp, and the
// first 12 hex digits of its header's hash.
func EventID(ref oplog.Ref) string {
	tag := ref.Tag()
	return "evt_" + ref.Time().Time().Format("20060102T150405") + "_" + hex.EncodeToString(tag[:6])
}

// ParseEventID reads an event id: the second it names and the beginning of
// the hash.
func ParseEventID(field, id string) (second time.Time, prefix []byte, err error) {
	bad := func() (time.Time, []byte, error) {
		return time.Time{}, nil, refusal.Invalid(field, "copy the id from a listing, e.g. evt_20260102T030405_0123456789ab", "%s is %s, which is not an event id", field, refusal.Quote(id))
	}
	if len(id) != 4+15+1+12 || id[:4] != "evt_" || id[19] != '_' {
		return bad()
	}
	if second, err = time.Parse("20060102T150405", id[4:19]); err != nil {
		return bad()
	}
	for _, c := range []byte(id[20:]) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return bad()
		}
	}
	if prefix, err = hex.DecodeString(id[20:]); err != nil {
		return bad()
	}
	return second, prefix, nil
}

// Find returns the visible event or ack of that id, or a refusal with code
// not_found.
func Find(snap oplog.Snapshot, field, id string) (oplog.Entry, error) {
	second, prefix, err := ParseEventID(field, id)
	if err != nil {
		return oplog.Entry{}, err
	}
	missing := refusal.New(refusal.NotFound, field, "check the id; it may not have arrived on this replica yet", "no event %s here", id)
	e, err := snap.ByHash(prefix)
	switch {
	case isNotFound(err):
		return oplog.Entry{}, missing
	case err != nil:
		return oplog.Entry{}, fmt.Errorf("find event: %w", err)
	case e.Kind != KindEvent && e.Kind != KindAck, !e.Time.Time().Truncate(time.Second).Equal(second) && !e.Stamped().Time().Truncate(time.Second).Equal(second):
		return oplog.Entry{}, missing
	}
	switch n, err := snap.Arrival(e.Ref()); {
	case err != nil:
		return oplog.Entry{}, fmt.Errorf("find event: %w", err)
	case n == 0:
		return oplog.Entry{}, missing
	}
	return e, nil
}
