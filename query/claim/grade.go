package claim

import (
	"fmt"
	"time"

	"tallystick/hlc"
	"tallystick/oplog"
)

// Grades (K4).
const (
	Settled     = "settled"
	Presumed    = "presumed"
	Provisional = "provisional"
)

// DefaultWindow is W of K4: a member unheard for longer does not hold up
// "presumed".
const DefaultWindow = 7 * 24 * time.Hour

// MemberFloor is what is known of one incarnation of one member: the last
// promise that no later entry of it is stamped below Floor.
type MemberFloor struct {
	Label     string
	Origin    oplog.OriginID
	Floor     hlc.Timestamp // of the latest head that counts; the stamp of the admission if none was heard
	Complete  bool          // all entries up to that head (or the seal, or the cut) are here
	Sealed    bool          // sealed, left or revoked: Floor does not matter, Complete does
	Self      bool          // an incarnation of this replica's own device
	Offset    time.Duration // its wall clock minus this one's, as measured; zero if it was not
	LastHeard time.Time     // when it was last heard of; for the reason only
	Reason    string        // why it lags, if the replica knows better ("asleep since ...")
}

// Horizon is how far the promises of all members reach, as this replica knows
// them now.
type Horizon struct {
	Now     time.Time // the reader's wall clock
	Bound   time.Duration
	Window  time.Duration
	Label   string         // of this replica; acks that it owes for claims under a former one are written under it
	Self    oplog.OriginID // the incarnation that writes here; its own log is always complete
	Members []MemberFloor  // every unsealed and sealed incarnation of every current member, own ones included
	Outlier bool           // this replica's own clock is the one that is wrong (C3)
	Flagged bool           // another device had this replica's label before: it may not claim (I9)
}

// Unheard is a member that a grade waits for.
type Unheard struct {
	Replica string `json:"replica"`
	Reason  string `json:"reason"`
}

// Grade judges how final the verdict on a claim stamped t is: whether an
// earlier entry of anybody can still turn up.
func (h *Horizon) Grade(t hlc.Timestamp) (grade string, unheard []Unheard) {
	unheard = []Unheard{}
	if len(h.Members) == 0 {
		return Provisional, append(unheard, Unheard{Reason: "the members are not known yet"})
	}
	if h.Outlier {
		return Provisional, append(unheard, Unheard{Reason: "this replica's own clock is off"})
	}
	bound, window := h.Bound, h.Window
	if bound == 0 {
		bound = hlc.DefaultBound
	}
	if window == 0 {
		window = DefaultWindow
	}
	limit := hlc.New(h.Now.Add(bound).UnixMilli(), maxCounter)
	old := hlc.New(h.Now.Add(-window).UnixMilli(), 0)
	grade = Settled
	for i := range h.Members {
		m := &h.Members[i]
		reason := m.lacks(t, limit, h)
		if reason == "" {
			continue
		}
		unheard = append(unheard, Unheard{Replica: m.Label, Reason: reason})
		if m.Floor < old && !m.Floor.IsZero() && !m.Sealed && m.Floor <= t {
			if grade == Settled {
				grade = Presumed
			}
			continue
		}
		grade = Provisional
	}
	return grade, unheard
}

// clockNoise is how far off a clock may be measured without being named.
const clockNoise = 2 * time.Second

const maxCounter = 1<<16 - 1

// lacks says what keeps a member from vouching for everything below t; empty
// if nothing does.
func (m *MemberFloor) lacks(t, limit hlc.Timestamp, h *Horizon) string {
	switch {
	case m.Origin == h.Self:
		return "" // this log's writer stamps above everything it has shown
	case m.Sealed && m.Complete:
		return ""
	case m.Sealed:
		return "closed its log, but not all of it has arrived"
	case m.Floor > limit:
		return fmt.Sprintf("clock %s ahead", age(m.Floor.Time().Sub(h.Now)))
	case m.Floor > t && m.Complete:
		return ""
	case m.Reason != "":
		return m.Reason
	case m.Floor > t:
		return "not all of its entries have arrived"
	case m.Floor.IsZero():
		return "never heard from"
	case !m.LastHeard.IsZero() && h.Now.Sub(m.LastHeard) < time.Minute:
		if m.Offset < -clockNoise {
			return fmt.Sprintf("clock %s behind; its promise is on the way", age(-m.Offset))
		}
		return "its promise is on the way"
	}
	return fmt.Sprintf("not heard since %s", m.Floor.Time().Format(time.RFC3339))
}

// age shows a duration roughly.
func age(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	case d >= time.Minute:
		return d.Round(time.Minute).String()
	}
	return d.Round(time.Second).String()
}
