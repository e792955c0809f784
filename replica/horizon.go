package replica

import (
	"cmp"
	"log/slog"
	"slices"

	"tallystick/hlc"
	"tallystick/oplog"
)

// Horizon is how far this replica has heard of each member, from which the
// grade of a claim follows (K4). Read the Horizon first and the views after
// it: then everything below its floors is in the views.
type Horizon struct {
	Label   string // of this replica
	Wall    int64  // this replica's wall clock, unix ms
	Members []MemberHorizon
}

// MemberHorizon is what is known of one member, this replica included.
type MemberHorizon struct {
	Label   string
	Key     oplog.DeviceKey
	Self    bool
	Flagged bool            // a later device under a used label (I9)
	Origins []OriginHorizon // its incarnations; none was heard of when empty
	// Admitted is the stamp of its admission: nothing of it is stamped below,
	// even before anything of it has been heard (C1).
	Admitted hlc.Timestamp
	// HeardMillis is this replica's wall clock when it last heard the member
	// itself; 0 when it never has. Floors may have come by others since.
	HeardMillis  int64
	OffsetMillis int64 // the member's wall clock minus this one's, when last heard
	Reachable    bool
	// Standing is Current, or how it ceased to be a member: then Origins are
	// those that its cuts name, sealed there.
	Standing Standing
}

// OriginHorizon is the last signed word of one incarnation.
type OriginHorizon struct {
	ID    oplog.OriginID
	Seq   uint64        // entries up to here are held
	Floor hlc.Timestamp // no later entry is stamped below; 0 without a head
	// Complete says that the head of Floor is the only tip and all entries up to
	// it are here; of a sealed one, that all entries up to its seals are.
	Complete bool
	Sealed   bool // given up by its device, which has said where it ends (L7d), or cut
	Broken   bool // it has broken an earlier promise: Floor is 0, for none counts any more
	// Owed says that an act of it is here without its payload (T5): what is
	// stamped from there on is not in the views, so Floor is not above it.
	Owed bool
}

// Horizon reports how far this replica has heard of each member.
func (r *Replica) Horizon() Horizon {
	h := Horizon{Label: r.Label(), Wall: r.cfg.Wall()}
	status := map[oplog.DeviceKey]PeerStatus{}
	for _, p := range r.coreStatus().Peers {
		status[p.Key] = p
	}
	origins := map[oplog.DeviceKey][]OriginHorizon{}
	seals, err := r.seals()
	if err != nil { // then none counts as sealed, which settles less, not more
		r.logger.Warn("seals not read", slog.Any("error", err))
	}
	owed, err := r.log.OwedSince()
	if err != nil { // then nobody has promised anything
		r.logger.Warn("owed entries not read", slog.Any("error", err))
		return h
	}
	for _, o := range r.log.Origins() {
		oh := OriginHorizon{ID: o.ID, Floor: o.Head.Floor, Broken: o.Broken != nil}
		if oh.Broken {
			oh.Floor = 0
		}
		for _, t := range o.Tips {
			oh.Seq = max(oh.Seq, t.Seq)
		}
		oh.Complete = !o.Head.IsZero() && len(o.Tips) == 1 && o.Tips[0] == o.Head.Tip()
		if ends := seals[o.ID]; len(ends) > 0 {
			oh.Sealed, oh.Complete = true, holdsAll(r.log, o.ID, ends)
		}
		if first, ok := owed[o.ID]; ok {
			oh.Owed, oh.Floor = true, min(oh.Floor, first)
			oh.Complete = oh.Complete && !oh.Sealed
		}
		origins[o.Key] = append(origins[o.Key], oh)
	}
	for _, m := range r.Members() {
		mh := MemberHorizon{Label: m.Label, Key: m.Key, Self: m.Key == r.key, Flagged: m.Flagged, Origins: origins[m.Key], Admitted: m.Admission.Time()}
		slices.SortFunc(mh.Origins, func(a, b OriginHorizon) int { return a.ID.Compare(b.ID) })
		if p, ok := status[m.Key]; ok {
			mh.HeardMillis, mh.OffsetMillis, mh.Reachable = p.HeardMillis, p.OffsetMillis, p.Ready
		}
		if mh.Self {
			mh.HeardMillis, mh.Reachable = h.Wall, true
		}
		h.Members = append(h.Members, mh)
	}
	h.Members = append(h.Members, r.endedHorizons()...)
	return h
}

// endedHorizons are the devices that are no members any more: of them all
// entries up to their cuts are waited for, and nothing else.
func (r *Replica) endedHorizons() (list []MemberHorizon) {
	if len(r.log.Endings()) == 0 {
		return nil
	}
	departed, err := r.Departed()
	if err != nil {
		r.logger.Warn("endings not read", slog.Any("error", err))
	}
	for _, d := range departed {
		mh := MemberHorizon{Label: d.Label, Key: d.Key, Self: d.Key == r.key, Standing: d.Ending.Standing}
		for _, c := range d.Ending.Cuts {
			at := slices.IndexFunc(mh.Origins, func(o OriginHorizon) bool { return o.ID == c.Origin })
			if at < 0 {
				at = len(mh.Origins)
				mh.Origins = append(mh.Origins, OriginHorizon{ID: c.Origin, Sealed: true, Complete: true})
			}
			o := &mh.Origins[at]
			o.Seq = max(o.Seq, c.Tip.Seq)
			o.Complete = o.Complete && holdsAll(r.log, c.Origin, []oplog.Tip{c.Tip})
		}
		list = append(list, mh)
	}
	return list
}

// Members lists the members by admission, this replica included. Before the
// log has heard of the own admission, those known by its proof stand for it.
func (r *Replica) Members() []Member {
	var list []Member
	err := r.log.View(func(s oplog.Snapshot) (err error) {
		list, err = MembersIn(s)
		return err
	})
	if err != nil {
		return nil
	}
	have := map[oplog.DeviceKey]bool{}
	for _, m := range list {
		have[m.Key] = true
	}
	n := len(list)
	r.members.mu.RLock()
	for key, label := range r.members.known {
		if !have[key] && !r.hasEnded(key) {
			list = append(list, Member{Key: key, Label: label})
		}
	}
	r.members.mu.RUnlock()
	slices.SortFunc(list[n:], func(a, b Member) int { return cmp.Compare(a.Key.String(), b.Key.String()) })
	return list
}

// LabelOf is the label of an origin's device, or "".
func (r *Replica) LabelOf(o oplog.OriginID) string {
	for _, or := range r.log.Origins() {
		if or.ID != o {
			continue
		}
		for _, m := range r.Members() {
			if m.Key == or.Key {
				return m.Label
			}
		}
		return r.formerLabel(or.Key)
	}
	return ""
}

// formerLabel is the last label of a device that is no member any more.
func (r *Replica) formerLabel(key oplog.DeviceKey) (label string) {
	if !r.hasEnded(key) {
		return ""
	}
	err := r.log.View(func(s oplog.Snapshot) (err error) {
		label, err = lastLabel(s.View(MembersView), key)
		return err
	})
	if err != nil {
		return ""
	}
	return label
}

// DurableOn says which members are known to hold an own or foreign entry
// durably, and of which that is not known yet. This replica is not listed.
func (r *Replica) DurableOn(origin oplog.OriginID, seq uint64) (on, notYet []string) {
	holds := map[oplog.DeviceKey]bool{}
	r.ask(func(Now) {
		keys, _ := r.core.DurableOn(origin, seq)
		for _, k := range keys {
			holds[k] = true
		}
	})
	on, notYet = []string{}, []string{}
	for _, m := range r.Members() {
		switch {
		case m.Key == r.key:
		case holds[m.Key]:
			on = append(on, m.Label)
		default:
			notYet = append(notYet, m.Label)
		}
	}
	return on, notYet
}
