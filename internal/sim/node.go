package sim

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"io"
	"slices"
	"time"

	"tallystick/hlc"
	"tallystick/oplog"
	"tallystick/replica"
)

// Node is one replica of the world: a log that survives crashes and a core
// that does not.
type Node struct {
	w     *World
	id    int
	label string
	key   oplog.DeviceKey
	skew  time.Duration
	log   *oplog.Log

	core   *replica.Core // nil while down
	life   int           // counts starts; what an earlier life began comes to nothing
	tickAt time.Duration
	ingest time.Duration // the log takes one range at a time; free from then on
	retry  map[int]time.Duration
	dials  map[int]bool
	asked  hlc.Timestamp
	reacts bool

	missing uint64 // epoch of the missing content that the core knows, and 1
	owed    uint64 // the same of owed entries

	// Faults of a scenario.
	corrupt func(r *oplog.Range)       // what the log gave, before it is sent
	refuse  func(r *oplog.Range) error // why the log takes nothing in, or nil
}

func (w *World) addNode(i int) error {
	n := &Node{w: w, id: i, label: fmt.Sprintf("r%d", i), retry: map[int]time.Duration{}, dials: map[int]bool{}}
	n.skew = w.between(-w.cfg.Skew, w.cfg.Skew)
	w.nodes = append(w.nodes, n)
	return n.openLog()
}

// openLog opens an empty log with what the seed gives this replica.
func (n *Node) openLog() error {
	seed := make([]byte, ed25519.SeedSize)
	if _, err := io.ReadFull(n.w.seeded(n.id, 'k'), seed); err != nil {
		return err
	}
	key := ed25519.NewKeyFromSeed(seed)
	copy(n.key[:], key.Public().(ed25519.PublicKey))
	projections, gate := n.w.cfg.Domain.Folds()
	log, err := oplog.Open(context.Background(), oplog.Config{
		InMemory: true, Signer: key, Wall: n.wall, Rand: n.w.seeded(n.id, 'r'),
		Projections: projections, Gate: gate,
	})
	if err != nil {
		return err
	}
	n.log = log
	return nil
}

func (n *Node) wall() int64 { return epoch + (n.w.q.now + n.skew).Milliseconds() }

func (n *Node) now() replica.Now { return replica.Now{Mono: n.w.q.now, Wall: n.wall()} }

// start begins a life: a fresh core over what the log holds.
func (n *Node) start() {
	n.life++
	n.w.log("start %d", n.id)
	self := n.log.Self()
	n.core = replica.NewCore(replica.CoreConfig{
		Mesh: n.w.mesh, Key: n.key, Label: n.label, Self: self.ID, Origins: n.log.Origins(),
		MaxRange: 8 << 10, Window: 64 << 10, // small, so that a run sees many ranges and full windows
	})
	n.tickAt, n.ingest, n.asked = 0, n.w.q.now, 0
	n.missing, n.owed = 0, 0
	clear(n.retry)
	clear(n.dials)
	n.run(n.core.Tick(n.now()))
	n.tellMissing()
	n.tellOwed()
	n.dialLoop(n.life)
	n.slowTick(n.life)
}

// crash ends a life: the core is gone, and with it what was on the way.
func (n *Node) crash() {
	n.w.log("crash %d", n.id)
	n.core = nil
	n.life++
	for _, c := range slices.Clone(n.w.conns) {
		if c.open && (c.ends[0].node == n || c.ends[1].node == n) {
			n.w.breakConn(c)
		}
	}
}

// later schedules do for this life of the core.
func (n *Node) later(d time.Duration, do func()) {
	life := n.life
	n.w.q.after(d, func() {
		if n.life == life && n.core != nil {
			do()
		}
	})
}

// run carries out what the core decided, as a shell would: in order, each
// effect a little later and its result later still.
func (n *Node) run(out replica.Output) {
	ctx := context.Background()
	for _, e := range out.Send {
		n.w.transmit(n, e)
	}
	for _, e := range out.Reads {
		n.later(n.w.between(0, 3*time.Millisecond), func() {
			r, err := e.From(n.log)
			n.damage(&r)
			n.w.log("read %d %s after %d: %d", n.id, e.Origin.String()[:6], e.After, r.Count)
			n.later(n.w.between(0, 2*time.Millisecond), func() { n.run(n.core.RangeRead(n.now(), e, r, err)) })
		})
	}
	for _, e := range out.Samples {
		n.later(n.w.between(0, 3*time.Millisecond), func() {
			tips, err := e.From(n.log)
			n.w.log("sample %d %s: %d err %v", n.id, e.Origin.String()[:6], len(tips), err)
			n.run(n.core.Sampled(n.now(), e, tips, err))
		})
	}
	for _, e := range out.Ingests {
		// One at a time and in order, with a commit's worth of delay.
		n.ingest = max(n.ingest, n.w.q.now) + n.w.between(time.Millisecond, 8*time.Millisecond)
		n.later(n.ingest-n.w.q.now, func() {
			res, err := n.takeIn(ctx, e.Range)
			n.w.log("ingest %d %s %d+%d: tip %d added %d err %v", n.id, e.Range.Origin.String()[:6], e.Range.First, e.Range.Count, res.Tip.Seq, res.Added, err)
			n.later(n.w.between(0, 2*time.Millisecond), func() {
				n.run(n.core.Ingested(n.now(), e, res, err))
				n.changed()
			})
		})
	}
	for _, e := range out.Heads {
		n.later(n.w.between(0, 4*time.Millisecond), func() {
			changed, err := n.log.PutHead(ctx, e.Head)
			n.w.log("head %d %s %d floor %d: %v", n.id, e.Head.Origin.String()[:6], e.Head.Seq, e.Head.Floor, changed)
			n.run(n.core.HeadStored(n.now(), e, changed, err))
			n.changed()
		})
	}
	for _, e := range out.Floors {
		n.later(n.w.between(0, 4*time.Millisecond), func() {
			head, err := n.log.RaiseFloor(ctx, e.Above)
			n.w.log("floor %d above %d: %d err %v", n.id, e.Above, head.Floor, err)
			n.run(n.core.FloorRaised(n.now(), e, head, err))
			n.changed()
		})
	}
	n.runBlobs(ctx, out)
	n.runOwed(ctx, out)
	for _, e := range out.Disconnects {
		n.w.hangUp(n, e)
	}
	for _, e := range out.Events {
		n.event(e)
	}
	n.armTick()
}

// damage flips a bit of a range now and then, as bad memory would: TLS and
// the frame's checksum are too late for that, the chain is not (L5).
func (n *Node) damage(r *oplog.Range) {
	if n.corrupt != nil {
		n.corrupt(r)
	}
	if n.w.faults && r.Count > 0 && n.w.chance(0.05) {
		n.withhold(r, func(*oplog.Entry) bool { return n.w.chance(0.3) })
	}
	if n.w.faults && r.Count > 0 && n.w.chance(0.01) {
		r.Entries[n.w.rng.IntN(len(r.Entries))] ^= 1 << n.w.rng.IntN(8)
	}
}

func (n *Node) takeIn(ctx context.Context, r oplog.Range) (oplog.IngestResult, error) {
	if n.refuse != nil {
		if err := n.refuse(&r); err != nil {
			return oplog.IngestResult{}, err
		}
	}
	if n.w.faults && n.w.chance(0.003) {
		return oplog.IngestResult{}, oplog.ErrNoSpace
	}
	return n.log.Ingest(ctx, r)
}

func (n *Node) event(e replica.Event) {
	switch e.Kind {
	case replica.EventReady, replica.EventPeerError:
	case replica.EventFork, replica.EventOwnAhead:
		if n.w.forged {
			n.w.log("event %d kind %d: %s", n.id, e.Kind, e.Origin)
			return
		}
		n.w.fail("replica %d sees a fork or a longer own log where there is none: %+v", n.id, e)
	default:
		n.w.log("event %d kind %d: %v", n.id, e.Kind, e.Err)
	}
}

// armTick sees to it that Tick is called when the core wants it.
func (n *Node) armTick() {
	at := max(n.core.Wake(), n.w.q.now+time.Millisecond)
	if n.tickAt > n.w.q.now && n.tickAt <= at {
		return
	}
	n.tickAt = at
	n.later(at-n.w.q.now, func() {
		if n.tickAt == at {
			n.tickAt = 0
			n.run(n.core.Tick(n.now()))
		}
	})
}

// dialLoop keeps a connection to everybody, as far as the network lets it.
func (n *Node) dialLoop(life int) {
	for _, p := range n.w.nodes {
		if p != n && n.retry[p.id] <= n.w.q.now && !n.w.connected(n, p) {
			n.w.dial(n, p)
		}
	}
	n.later(n.w.between(200*time.Millisecond, 1500*time.Millisecond), func() { n.dialLoop(life) })
}

// changed is what a shell does after commits: it looks whether something
// follows from them, once for several.
func (n *Node) changed() {
	n.tellMissing()
	n.tellOwed()
	if n.reacts {
		return
	}
	n.reacts = true
	n.w.q.after(20*time.Millisecond, func() {
		n.reacts = false
		if n.core != nil {
			n.react()
		}
	})
}

func (n *Node) slowTick(life int) {
	n.later(n.w.between(4*time.Second, 6*time.Second), func() {
		// Held entries whose time has come are let in (C3).
		if err := n.log.ReleaseHeld(context.Background()); err != nil {
			n.w.fail("release %d: %v", n.id, err)
		}
		if err := n.log.ApplyAmends(context.Background()); err != nil {
			n.w.fail("amend %d: %v", n.id, err)
		}
		n.react()
		n.slowTick(life)
	})
}

// react lets revokes act, appends what follows from the views and asks for floors while a loss
// of an own claim is provisional.
func (n *Node) react() {
	// Endings act on the log before anything is made of it (T2).
	if err := n.log.ApplyEndings(context.Background()); err != nil {
		n.w.fail("endings %d: %v", n.id, err)
		return
	}
	ops, ask, err := n.w.cfg.Domain.React(n)
	if err != nil {
		n.w.fail("react %d: %v", n.id, err)
		return
	}
	for _, op := range ops {
		n.append(op)
	}
	if ask > 0 && ask != n.asked {
		n.asked = ask
		n.run(n.core.AskFloor(n.now(), ask))
	}
}

// append writes an op as a local client does.
func (n *Node) append(op oplog.Op) {
	res, err := n.log.Append(context.Background(), op)
	if err != nil {
		n.w.log("append %d %s refused: %v", n.id, op.Kind, err)
		return
	}
	n.w.log("append %d %s seq %d at %d", n.id, op.Kind, res[0].Ref.Seq(), res[0].Ref.Time())
	n.w.acked = append(n.w.acked, acked{n.id, res[0]})
	n.w.noteBlobs(&op)
	n.w.res.Appended++
	if n.core == nil {
		return
	}
	head := n.log.Self().Head
	n.later(n.w.between(0, 2*time.Millisecond), func() { n.run(n.core.LocalCommit(n.now(), head)) })
	n.changed()
}

// Append writes an op at a replica; scenarios use it.
func (w *World) Append(node int, op oplog.Op) { w.nodes[node].append(op) }
