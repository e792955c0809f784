package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tallystick/hlc"
	"tallystick/oplog"
	"tallystick/query"
	"tallystick/query/claim"
	"tallystick/query/logstream"
	"tallystick/query/merges"
	"tallystick/replica"
	"tallystick/server"
)

// mesh shows a replica to the server, which is not to depend on how a replica
// keeps what it knows.
type mesh struct{ r *replica.Replica }

func replicaID(o oplog.OriginID) string {
	if o.IsZero() {
		return ""
	}
	return "rep_" + o.String()
}

func (m mesh) Self() server.Self {
	return server.Self{Label: m.r.Label(), Replica: replicaID(m.r.Self().ID), Mesh: m.r.Mesh().String()}
}

func (m mesh) LabelOf(o oplog.OriginID) string { return m.r.LabelOf(o) }

func (m mesh) Spread(ref oplog.Ref) (durableOn, notYet []string) {
	on, notYet := m.r.DurableOn(ref.Origin(), ref.Seq())
	return append([]string{m.r.Label()}, on...), notYet
}

// Horizon is read before the views it judges: what is below its floors is then
// in them.
func (m mesh) Horizon() claim.Horizon {
	return claimHorizon(m.r.Horizon(), m.r.Self().ID)
}

// claimHorizon says in the words of the claim domain how far the members'
// promises reach: query and replica do not know each other.
func claimHorizon(h replica.Horizon, self oplog.OriginID) claim.Horizon {
	out := claim.Horizon{Now: time.UnixMilli(h.Wall), Self: self, Outlier: outlier(h)}
	for _, member := range h.Members {
		out.Flagged = out.Flagged || member.Self && member.Flagged
		row := claim.MemberFloor{Label: member.Label, Self: member.Self, Offset: time.Duration(member.OffsetMillis) * time.Millisecond}
		if member.HeardMillis > 0 {
			row.LastHeard = time.UnixMilli(member.HeardMillis)
			if !member.Reachable {
				row.Reason = "unreachable since " + row.LastHeard.UTC().Format(time.RFC3339)
			}
		}
		if len(member.Origins) == 0 && member.Standing == replica.Current { // admitted, and nothing of it has arrived
			row.Floor, row.Complete = member.Admitted, true
			out.Members = append(out.Members, row)
		}
		current := currentOrigin(member, self)
		for _, o := range member.Origins {
			row := row
			row.Origin, row.Floor, row.Complete, row.Sealed = o.ID, o.Floor, o.Complete, o.Sealed
			if o.Broken && !o.Sealed {
				row.Reason = "has broken a promise of its log, see tally doctor"
			} else if !o.Sealed && o.ID != current {
				row.Reason = "was put back or copied, and its former log is not sealed yet"
			}
			if o.Owed {
				row.Reason = "an entry of it is here without its payload, which is asked of peers"
			}
			out.Members = append(out.Members, row)
		}
	}
	return out
}

// currentOrigin is the incarnation in which a member writes, as far as known
// here: the one with the latest promise.
func currentOrigin(m replica.MemberHorizon, self oplog.OriginID) oplog.OriginID {
	if m.Self {
		return self
	}
	var current replica.OriginHorizon
	for _, o := range m.Origins {
		if !o.Sealed && (current.ID.IsZero() || o.Floor > current.Floor) {
			current = o
		}
	}
	return current.ID
}

// clashes are the labels that two devices have, as after admissions in two
// partitions: who has one since earlier keeps it (I9).
func clashes(r *replica.Replica) (list []merges.LabelClash) {
	members := r.Members()
	for _, m := range members {
		if !m.Flagged {
			continue
		}
		c := merges.LabelClash{Label: m.Label, Lost: m.Since, LostBy: m.Key, LostName: deviceName(m.Key)}
		for _, first := range members {
			if first.Label == m.Label && !first.Flagged {
				c.Kept, c.KeptBy, c.KeptName = first.Since, first.Key, deviceName(first.Key)
			}
		}
		list = append(list, c)
	}
	return list
}

// moves are the renames of all members.
func moves(r *replica.Replica) (list []merges.LabelMove) {
	all, err := r.LabelMoves()
	if err != nil {
		return nil
	}
	for _, m := range all {
		list = append(list, merges.LabelMove{From: m.From, To: m.To, Lost: m.Lost, Kept: m.Kept, By: m.Key, Name: deviceName(m.Key), Last: m.Last})
	}
	return list
}

// formerly are the renames by which this replica gave up labels that it has not
// taken again, the latest first.
func formerly(r *replica.Replica) (list []merges.LabelMove) {
	now, own := r.Label(), r.Self().Key
	for _, m := range moves(r) {
		if m.By == own && m.From != now {
			list = append([]merges.LabelMove{m}, list...)
		}
	}
	return list
}

// rename gives the replica another label.
func rename(r *replica.Replica) func(context.Context, string, string) (string, oplog.Ref, error) {
	return func(ctx context.Context, opID, label string) (string, oplog.Ref, error) {
		done, err := r.Rename(ctx, opID, label)
		return done.From, done.Ref, err
	}
}

func deviceName(key oplog.DeviceKey) string { return "device " + key.String()[:12] }

// outlier reports whether this machine's clock is the one that is wrong: off
// from the median of several reachable members by more than the bound (C3).
func outlier(h replica.Horizon) bool {
	var offsets []int64
	for _, m := range h.Members {
		if !m.Self && m.Reachable {
			offsets = append(offsets, m.OffsetMillis)
		}
	}
	if len(offsets) < 2 { // with one alone nobody can say whose it is
		return false
	}
	offsets = append(offsets, 0) // this one; of two in the middle the nearer counts
	slices.Sort(offsets)
	lo, hi := offsets[(len(offsets)-1)/2], offsets[len(offsets)/2]
	return min(max(lo, -lo), max(hi, -hi)) > replica.DefaultBound.Milliseconds()
}

func (m mesh) Status(context.Context) (server.Status, error) {
	st, err := m.r.Status()
	if err != nil {
		return server.Status{}, err
	}
	out := server.Status{
		Held: st.HeldTotal, Quarantined: st.Unfoldable, Owed: st.Owed, Views: st.Views, Note: note(st),
		Clock: server.Clock{
			HLC: hlc.Stamp{Timestamp: st.Clock.Timestamp, Origin: st.Origin.Short()}.String(), Wall: st.Clock.Wall, Bound: st.Clock.Bound, Outlier: st.Clock.Outlier,
		},
	}
	if f, pending, err := m.r.Former(); err == nil && pending && out.Note == "" {
		out.Note = formerNote(f)
	}
	switch own, err := m.r.OwnEnding(); {
	case err != nil:
		return server.Status{}, err
	case own != nil:
		out.Note = own.String() + "; it keeps its data and writes nothing any more"
	}
	for _, p := range st.Peers {
		out.Peers = append(out.Peers, server.Peer{
			Label: p.Label, ID: replicaID(p.Origin), Reachable: p.Reachable, LastSeen: p.LastSeen,
			EntriesBehind: p.EntriesBehind, EntriesAhead: p.EntriesAhead, Address: p.Address,
			OffsetMillis: p.ClockOffset.Milliseconds(), Error: p.Error,
		})
	}
	for _, list := range [][]oplog.Aside{st.Held, st.Quarantined} {
		for _, a := range list {
			label := m.r.LabelOf(a.Ref.Origin())
			if label == "" {
				label = a.Ref.Origin().String()
			}
			out.Aside = append(out.Aside, server.Aside{
				ID: logstream.EventID(a.Ref), Held: a.Held, Kind: a.Kind, Author: a.Author, Origin: label, Reason: a.Reason,
			})
		}
	}
	return out, nil
}

// note is what a person should know and do.
func note(st replica.Status) string {
	switch {
	case st.Clock.Outlier:
		return fmt.Sprintf("this machine's clock differs from most others by %v; set it", st.Clock.Offset)
	case st.Paused:
		return "entries of peers are not taken, most likely because the disk is full; free some space"
	case len(st.Broken) > 0:
		return st.Broken[0].String() + "; its promises do not count, see tally doctor"
	case len(st.Forks) > 0:
		return fmt.Sprintf("%d origins have forked, as after a restored backup or a cloned disk", len(st.Forks))
	}
	return ""
}

// translate gives the replica's errors their code.
func translate(err error) *server.Error {
	var r *replica.Error
	if errors.As(err, &r) {
		return asError(err)
	}
	return nil
}

// reactor lets a domain's reactor run in the replica.
type reactor struct{ query.Reactor }

func (r reactor) React(snap oplog.Snapshot, env replica.Env) ([]oplog.Op, hlc.Timestamp, error) {
	return r.Reactor.React(snap, query.Env{
		Self: env.Self, Label: env.Label, Now: env.Now.Time(), Horizon: claimHorizon(env.Horizon, env.Self.ID),
	})
}

func adaptReactors(list []query.Reactor) []replica.Reactor {
	out := make([]replica.Reactor, len(list))
	for i := range list {
		out[i] = reactor{list[i]}
	}
	return out
}
