package replica

import (
	"fmt"
	"slices"
	"time"

	"tallystick/hlc"
	"tallystick/oplog"
)

// maxAsides bounds how many held and quarantined entries a status lists.
const maxAsides = 100

// Status is what a person or a client asks of a replica.
type Status struct {
	Label       string
	Key         oplog.DeviceKey
	Flagged     bool // another device had this label before: no claims until renamed (I9)
	Origin      oplog.OriginID
	Mesh        MeshID
	Addresses   []string
	Peers       []PeerState // by label
	Clock       ClockState
	Held        []oplog.Aside // at most 100, as Quarantined
	Quarantined []oplog.Aside
	HeldTotal   int
	Unfoldable  int // how many are quarantined
	Owed        int // entries without their payload, which is asked of peers (T5), damaged ones included
	Damage      oplog.Damage
	Views       []oplog.ViewInfo
	Entries     uint64 // held of all origins
	Forks       []ForkStatus
	Broken      []BrokenPromise // by first sight
	Doubt       string          // why the incarnation is a new one (L7); empty mostly
	Paused      bool            // the log refuses entries of peers, most likely for lack of space
}

// BrokenPromise is a floor that a replica's log has promised and not kept.
type BrokenPromise struct {
	Label  string // of the replica, empty when not known
	Origin oplog.OriginID
	oplog.BrokenPromise
}

func (b *BrokenPromise) String() string {
	name := b.Label
	if name == "" {
		name = b.Origin.String()
	}
	return fmt.Sprintf("%s (%s) promised at seq %d to stamp nothing before %s, and at seq %d broke it with %s", name, b.Origin, b.Head.Seq,
		b.Head.Floor.Time().UTC().Format(time.RFC3339Nano), b.Seq, b.Stamp.Time().UTC().Format(time.RFC3339Nano))
}

// PeerState is what this replica knows of another member.
type PeerState struct {
	Label         string
	Key           oplog.DeviceKey
	Origin        oplog.OriginID // the incarnation it writes in, when known
	Reachable     bool
	LastSeen      time.Time // zero when never
	Known         bool      // its frontier was told since the start; else the next two are 0
	EntriesBehind uint64    // held here and not there
	EntriesAhead  uint64    // held there and not here
	Address       string
	ClockOffset   time.Duration // its clock minus this one
	RTT           time.Duration
	Flagged       bool
	Error         string // why it is not reachable or, when it is, why it takes no entries
}

// ClockState is what this replica's clock says.
type ClockState struct {
	Wall      time.Time
	Timestamp hlc.Timestamp // highest issued or merged
	Bound     time.Duration
	// Outlier says that this machine's clock is further from most of the
	// reachable peers than the bound: it is most likely the one that is wrong
	// (C3). Offset is the median peer's clock minus this one.
	Outlier bool
	Offset  time.Duration
}

func (r *Replica) coreStatus() (s CoreStatus) {
	r.ask(func(now Now) { s = r.core.Status(now) })
	return s
}

// Status reports peers, clock, and what is set aside.
func (r *Replica) Status() (Status, error) {
	core := r.coreStatus()
	self := r.log.Self()
	s := Status{Label: r.Label(), Key: r.key, Origin: self.ID, Mesh: r.Mesh(), Addresses: r.Addresses(),
		HeldTotal: r.log.Held(), Owed: r.log.OwedTotal(), Views: r.log.Views(), Entries: r.log.Frontier().Total(), Forks: core.Forks, Doubt: r.log.Doubt(), Paused: core.Paused}
	var err error
	if s.Damage, err = r.log.Damage(); err != nil {
		return s, storeError(r.cfg.Dir, err)
	}
	if s.Held, err = r.log.Waiting(maxAsides); err != nil {
		return s, storeError(r.cfg.Dir, err)
	}
	if s.Quarantined, s.Unfoldable, err = r.log.Quarantined(maxAsides); err != nil {
		return s, storeError(r.cfg.Dir, err)
	}
	for _, m := range r.Members() {
		if m.Key == r.key {
			s.Flagged = m.Flagged
		}
	}
	for _, o := range r.log.Origins() {
		if o.Broken != nil {
			s.Broken = append(s.Broken, BrokenPromise{Label: r.LabelOf(o.ID), Origin: o.ID, BrokenPromise: *o.Broken})
		}
	}
	s.Peers = r.peerStates(core)
	s.Clock = r.clockState(s.Peers)
	return s, nil
}

func (r *Replica) peerStates(core CoreStatus) []PeerState {
	known := map[oplog.DeviceKey]PeerStatus{}
	for _, p := range core.Peers {
		known[p.Key] = p
	}
	notes := r.dialer.notes()
	var list []PeerState
	for _, m := range r.Members() {
		if m.Key == r.key {
			continue
		}
		n, p := notes[m.Key], known[m.Key]
		ps := PeerState{Label: m.Label, Key: m.Key, Flagged: m.Flagged, Origin: p.Origin, Reachable: p.Ready, Known: p.Known,
			EntriesBehind: p.Behind, EntriesAhead: p.Ahead, Address: n.addr, RTT: p.RTT,
			ClockOffset: time.Duration(p.OffsetMillis) * time.Millisecond}
		if seen := max(p.HeardMillis, n.seen); seen > 0 {
			ps.LastSeen = time.UnixMilli(seen).UTC()
		}
		switch {
		case ps.Reachable:
			ps.Error = p.Busy
		case n.err != nil:
			ps.Error = n.err.Error()
		case p.LastError != "":
			ps.Error = p.LastError
		}
		list = append(list, ps)
	}
	slices.SortFunc(list, func(a, b PeerState) int {
		if a.Label != b.Label {
			if a.Label < b.Label {
				return -1
			}
			return 1
		}
		return slices.Compare(a.Key[:], b.Key[:])
	})
	for _, n := range r.dialer.unknown() {
		if n.err != nil {
			list = append(list, PeerState{Address: n.addr, Error: n.err.Error()})
		}
	}
	return list
}

func (r *Replica) clockState(peers []PeerState) ClockState {
	c := ClockState{Wall: time.UnixMilli(r.cfg.Wall()).UTC(), Timestamp: r.log.Clock().Last(), Bound: r.cfg.Bound}
	var offsets []time.Duration
	for _, p := range peers {
		if p.Reachable {
			offsets = append(offsets, p.ClockOffset)
		}
	}
	if len(offsets) > 0 {
		c.Offset = medianOffset(offsets)
		// With one peer alone nobody can say whose clock is wrong.
		c.Outlier = len(offsets) > 1 && c.Offset.Abs() > c.Bound
	}
	return c
}

// medianOffset is the median of all clocks, this one included, minus this one.
// Where two are in the middle, as between halves of a mesh, it is the one
// nearer to this clock: nobody can say then which is wrong.
func medianOffset(peers []time.Duration) time.Duration {
	all := slices.Sorted(slices.Values(append([]time.Duration{0}, peers...)))
	lo, hi := all[(len(all)-1)/2], all[len(all)/2]
	if lo.Abs() <= hi.Abs() {
		return lo
	}
	return hi
}
