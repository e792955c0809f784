package server

import (
	"context"
	"time"

	"tallystick/hlc"
	"tallystick/oplog"
)

// ClockAnswer is what `tally clock` shows.
type ClockAnswer struct {
	Wall     string      `json:"wall"`
	HLC      string      `json:"hlc"`
	BoundMS  int64       `json:"bound_ms"`
	OffsetMS int64       `json:"offset_ms"` // of the median reachable peer's clock
	Outlier  bool        `json:"outlier"`   // this machine's clock is the wrong one
	Future   []ClockLine `json:"future"`
}

// ClockLine is a line of entries that a wrong clock has stamped.
type ClockLine struct {
	Label    string `json:"label,omitempty"`
	Origin   string `json:"origin"`
	Self     bool   `json:"self,omitempty"`
	Last     uint64 `json:"last"` // seq of the newest entry
	Held     uint64 `json:"held"` // how many entries are held; 0 when they were folded
	Stamp    string `json:"stamp"`
	LeadMS   int64  `json:"lead_ms"`
	Release  string `json:"release"`
	Heard    bool   `json:"heard"` // its machine's clock is known
	OffsetMS int64  `json:"offset_ms,omitempty"`
}

func (s *Service) showClock(_ context.Context, o Owner, _ struct{}) (ClockAnswer, error) {
	return clockAnswer(o), nil
}

func clockAnswer(o Owner) ClockAnswer {
	c := o.Clocks()
	self := o.Log().Self().ID
	ans := ClockAnswer{Wall: timeText(c.Wall), HLC: hlc.Stamp{Timestamp: c.Timestamp, Origin: self.Short()}.String(),
		BoundMS: c.Bound.Milliseconds(), OffsetMS: c.Offset.Milliseconds(), Outlier: c.Outlier, Future: []ClockLine{}}
	for _, l := range c.Lines {
		row := ClockLine{Label: l.Label, Origin: l.Origin.String(), Self: l.Self, Last: l.Last.Seq, LeadMS: l.Lead.Milliseconds(),
			Stamp: hlc.Stamp{Timestamp: l.Stamp, Origin: l.Origin.Short()}.String(), Release: timeText(l.Release), Heard: l.Heard,
			OffsetMS: l.Offset.Milliseconds()}
		if l.FutureLine.Held > 0 {
			row.Held = l.Last.Seq - l.FutureLine.Held + 1
		}
		ans.Future = append(ans.Future, row)
	}
	return ans
}

// AmendRequest asks to set the stamps of an origin right.
type AmendRequest struct {
	Session Session `json:"session"`
	Origin  string  `json:"origin"` // an origin's id, or a replica's label
	OpID    string  `json:"op_id,omitempty"`
	DryRun  bool    `json:"dry_run,omitempty"`
}

// AmendAnswer is what an amend speaks for.
type AmendAnswer struct {
	Lines   []ClockLine `json:"lines"`
	CountAs string      `json:"count_as"` // about now: the time of the amend
	Held    int         `json:"held"`     // entries of all replicas that are still held
}

func (s *Service) amend(ctx context.Context, o Owner, q AmendRequest) (ans AmendAnswer, err error) {
	id, bad := s.bindWriter(q.Session)
	if bad != nil {
		return ans, bad
	}
	ans = AmendAnswer{Lines: []ClockLine{}, CountAs: timeText(time.UnixMilli(o.Log().Clock().Wall()))}
	all := clockAnswer(o)
	if all.Outlier {
		return ans, fail(CodeConflict, "clock", "set this machine's clock; amend at one whose clock is right",
			"this machine's own clock is the one that is wrong: it differs from most others by %v",
			time.Duration(max(all.OffsetMS, -all.OffsetMS))*time.Millisecond)
	}
	var lines []oplog.Amendment
	for i, l := range o.Clocks().Lines {
		if i < len(all.Future) && (q.Origin == l.Origin.String() || q.Origin == l.Label) {
			lines = append(lines, l.Amendment())
			ans.Lines = append(ans.Lines, all.Future[i])
		}
	}
	if len(lines) == 0 {
		return ans, fail(CodeNotFound, "origin", "see tally clock for what is", "nothing of %s is stamped further ahead than the bound", quote(q.Origin))
	}
	if !q.DryRun {
		if q.OpID == "" {
			q.OpID = NewOpID()
		}
		if err := o.Amend(ctx, id.Name, opKey("amend", q.OpID, ""), lines...); err != nil {
			return ans, err
		}
		s.log.Info("amended stamps", "identity", id.Name, "of", q.Origin)
	}
	ans.Held = o.Log().Held()
	return ans, nil
}
