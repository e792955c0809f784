package replica

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"tallystick/hlc"
	"tallystick/oplog"
)

const (
	maxLogReads = 4                     // reads of the log for peers at a time
	reactGap    = 20 * time.Millisecond // between two looks of the reactors
)

// now reads the clocks the core goes by.
func (r *Replica) now() Now { return Now{Mono: time.Since(r.started), Wall: r.cfg.Wall()} }

// post hands an input to the goroutine that owns the core. It waits while
// that is busy, which is the back-pressure on readers, and reports false once
// the replica closes. The core's own goroutine must not call it.
func (r *Replica) post(fn func(now Now) Output) bool {
	select {
	case r.inputs <- fn:
		return true
	case <-r.ctx.Done():
		return false
	}
}

// ask runs fn on the core's goroutine and waits for it.
func (r *Replica) ask(fn func(now Now)) bool {
	done := make(chan struct{})
	if !r.post(func(now Now) Output { fn(now); close(done); return Output{} }) {
		return false
	}
	select {
	case <-done:
		return true
	case <-r.stopped: // the loop ended with fn still waiting, or never to run
		select {
		case <-done:
			return true
		default:
			return false
		}
	}
}

// loop owns the core: one input after the other, and a tick when the core
// wants one.
func (r *Replica) loop() {
	defer close(r.stopped)
	timer := time.NewTimer(r.cfg.Timing.Tick)
	defer timer.Stop()
	defer func() {
		for _, s := range r.sessions {
			s.cut(ErrClosed)
		}
	}()
	for {
		select {
		case <-r.ctx.Done():
			return
		case fn := <-r.inputs:
			r.dispatch(fn(r.now()))
		case <-timer.C:
			r.dispatch(r.core.Tick(r.now()))
		}
		wait := r.core.Wake() - r.now().Mono
		timer.Reset(min(max(wait, time.Millisecond), r.cfg.Timing.Tick))
	}
}

// dispatch carries out what the core wants, never waiting for anything. What
// follows from it, a session that is gone, comes after all of it, so that the
// order of messages to each session is the core's.
func (r *Replica) dispatch(out Output) {
	r.carryOut(out)
	for len(r.lost) > 0 {
		id := r.lost[0]
		r.lost = r.lost[1:]
		r.carryOut(r.core.PeerDown(r.now(), id))
	}
}

// lose takes a session out; the core is told at the end of dispatch.
func (r *Replica) lose(s *stream) {
	if r.sessions[s.id] == s {
		delete(r.sessions, s.id)
		r.lost = append(r.lost, s.id)
	}
}

func (r *Replica) carryOut(out Output) {
	for _, e := range out.Send {
		if s := r.sessions[e.To]; s != nil && !s.queue(e.Msg) {
			s.cut(errQueueFull)
			r.lose(s)
		}
	}
	for _, e := range out.Reads {
		r.run(func() { r.read(e) })
	}
	for _, e := range out.Samples {
		r.run(func() {
			tips, err := e.From(r.log)
			r.post(func(now Now) Output { return r.core.Sampled(now, e, tips, err) })
		})
	}
	for _, e := range out.Ingests {
		r.lanes.add(r, e)
	}
	for _, e := range out.Heads {
		r.run(func() {
			changed, err := r.log.PutHead(r.ctx, e.Head)
			r.post(func(now Now) Output { return r.core.HeadStored(now, e, changed, err) })
		})
	}
	for _, e := range out.Floors {
		r.run(func() {
			head, err := r.log.RaiseFloor(r.ctx, e.Above)
			r.post(func(now Now) Output { return r.core.FloorRaised(now, e, head, err) })
		})
	}
	for _, e := range out.Chunks {
		r.run(func() { r.readChunk(e) })
	}
	for _, e := range out.Puts {
		r.chunks.add(r, e)
	}
	for _, e := range out.Lists {
		r.run(func() {
			list, next, err := e.From(r.log)
			r.post(func(now Now) Output { return r.core.OwedListed(now, e, list, next, err) })
		})
	}
	for _, e := range out.Entries {
		r.run(func() { r.readEntry(e) })
	}
	for _, e := range out.Pays {
		r.run(func() {
			err := r.log.PutOwed(r.ctx, e.Hash, e.Entry)
			r.post(func(now Now) Output { return r.core.EntryPut(now, e, err) })
		})
	}
	for _, e := range out.Disconnects {
		if s := r.sessions[e.Session]; s != nil {
			s.retryAfter.Store(int64(e.RetryAfter))
			s.finish(errors.New("replica: " + e.Reason))
			r.lose(s)
		}
	}
	for _, e := range out.Events {
		r.event(e)
	}
}

func (r *Replica) read(e ReadRange) {
	select {
	case r.reads <- struct{}{}:
		defer func() { <-r.reads }()
	case <-r.ctx.Done():
		return
	}
	rg, err := e.From(r.log)
	r.post(func(now Now) Output { return r.core.RangeRead(now, e, rg, err) })
}

// ingestLanes carries out ingests: in order within an origin, beside each
// other between origins.
type ingestLanes struct {
	mu    sync.Mutex
	queue map[oplog.OriginID][]Ingest
}

func (l *ingestLanes) add(r *Replica, e Ingest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue == nil {
		l.queue = map[oplog.OriginID][]Ingest{}
	}
	waiting, running := l.queue[e.Range.Origin]
	l.queue[e.Range.Origin] = append(waiting, e)
	if !running {
		r.run(func() { l.work(r, e.Range.Origin) })
	}
}

// next takes what waits. When nothing does, and nothing is being written
// either, the lane ends.
func (l *ingestLanes) next(o oplog.OriginID, busy bool) (e Ingest, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue[o]) == 0 {
		if !busy {
			delete(l.queue, o)
		}
		return e, false
	}
	e = l.queue[o][0]
	l.queue[o] = l.queue[o][1:]
	return e, true
}

// work carries out the ingests of one origin. The next one is verified while
// the last one is written.
func (l *ingestLanes) work(r *Replica, o oplog.OriginID) {
	type started struct {
		e    Ingest
		wait func() (oplog.IngestResult, error)
	}
	var flying *started
	land := func() bool {
		if flying == nil {
			return true
		}
		f := flying
		flying = nil
		res, err := f.wait()
		return r.post(func(now Now) Output { return r.core.Ingested(now, f.e, res, err) })
	}
	for {
		e, ok := l.next(o, flying != nil)
		if !ok {
			if flying == nil {
				return
			}
			if !land() {
				return
			}
			continue
		}
		wait, err := r.log.StartIngest(r.ctx, e.Range)
		landed := land()
		if errors.Is(err, oplog.ErrUnknownOrigin) { // its birth was being written
			wait, err = r.log.StartIngest(r.ctx, e.Range)
		}
		if err != nil {
			failed := err
			wait = func() (oplog.IngestResult, error) { return oplog.IngestResult{}, failed }
		}
		flying = &started{e, wait}
		if !landed {
			return
		}
	}
}

// watchLog tells the core, and the gossip, of own entries as soon as they are
// durable and never before (L1).
func (r *Replica) watchLog() {
	var last oplog.Head
	var missing, owed uint64
	for {
		changed := r.log.Changed()
		if !r.tellMissing(&missing) || !r.tellOwed(&owed) {
			return
		}
		if err := r.settleLabel(r.ctx); err != nil && r.ctx.Err() == nil {
			r.logger.Warn("label of the new incarnation not said", slog.Any("error", err))
		}
		if self := r.log.Self(); self.Head != last {
			last = self.Head
			if !r.post(func(now Now) Output { return r.core.LocalCommit(now, self.Head) }) {
				return
			}
			if r.gossip != nil {
				r.gossip.hint(self.Head)
			}
		}
		select {
		case <-changed:
		case <-r.log.Done():
			return
		case <-r.ctx.Done():
			return
		}
	}
}

// react calls the reactors after commits, several commits at a time, and on a
// slow tick.
func (r *Replica) react() {
	tick := time.NewTicker(r.cfg.Timing.React)
	defer tick.Stop()
	turn := time.NewTicker(time.Hour)
	defer turn.Stop()
	for {
		changed := r.log.Changed()
		r.endings(byCommit)
		if !r.isEnded() {
			r.seal()
			r.reactOnce()
		}
		r.mend()
		select { // let commits gather
		case <-time.After(reactGap):
		case <-r.ctx.Done():
			return
		}
		select {
		case <-changed:
			if r.log.ErasePending() > 0 {
				r.erase()
			}
			r.amend()
		case <-tick.C:
			if err := r.log.ReleaseHeld(r.ctx); err != nil && r.ctx.Err() == nil {
				r.logger.Warn("held entries not looked at", slog.Any("error", err))
			}
			r.erase()
			r.amend()
			r.endings(byTick)
		case <-turn.C:
			if err := r.log.TurnToken(r.ctx); err != nil && r.ctx.Err() == nil {
				r.logger.Warn("continuity token not turned", slog.Any("error", err))
			}
		case <-r.log.Done():
			return
		case <-r.ctx.Done():
			return
		}
	}
}

func (r *Replica) reactOnce() {
	for _, re := range r.cfg.Reactors {
		env := Env{Self: r.log.Self(), Label: r.Label(), Now: hlc.New(r.cfg.Wall(), 0), Horizon: r.Horizon()}
		var ops []oplog.Op
		var ask hlc.Timestamp
		err := r.log.View(func(s oplog.Snapshot) (err error) {
			ops, ask, err = re.React(s, env)
			return err
		})
		if ask > 0 && err == nil {
			r.AskFloor(ask)
		}
		for len(ops) > 0 && err == nil {
			n := min(len(ops), oplog.MaxAppendOps)
			_, err = r.Append(r.ctx, ops[:n]...)
			ops = ops[n:]
		}
		if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, oplog.ErrClosed) {
			r.logger.Warn("reactor failed", slog.String("reactor", re.Name()), slog.Any("error", err))
		}
	}
}

// event acts on what the core reports.
func (r *Replica) event(e Event) {
	peer := slog.String("peer", shortKey(e.Key))
	switch e.Kind {
	case EventReady:
		s := r.sessions[e.Session]
		if s == nil {
			return
		}
		r.logger.Info("connected", peer, slog.String("label", e.Hello.Label))
		r.dialer.ready(s, e.Hello)
		r.takenIn(e.Key)
		if k, ok := gossipKeyOf(e.Hello.GossipEpoch, e.Hello.GossipKey); ok {
			r.learnGossipKey(k)
		}
	case EventGossip:
		if k, ok := gossipKeyOf(e.Hello.GossipEpoch, e.Hello.GossipKey); ok {
			r.learnGossipKey(k)
		}
	case EventFork:
		r.logger.Error("an origin has forked", peer, slog.String("origin", e.Origin.String()),
			slog.Uint64("mine", e.Mine.Seq), slog.Uint64("theirs", e.Theirs.Seq))
	case EventOwnAhead:
		r.logger.Error("a peer holds more of this replica's own log: was this store restored?", peer,
			slog.Uint64("mine", e.Mine.Seq), slog.Uint64("theirs", e.Theirs.Seq))
	case EventBadRange:
		r.logger.Warn("a range does not verify", peer, slog.String("origin", e.Origin.String()), slog.Any("error", e.Err))
	case EventStore:
		r.logger.Error("the log refuses entries of peers", slog.Any("error", e.Err))
		if errors.Is(e.Err, oplog.ErrNoSpace) && r.roomless.CompareAndSwap(false, true) {
			r.run(r.awaitRoom)
		}
	case EventBadBlob:
		r.logger.Warn("content does not match its hash", peer, slog.Any("error", e.Err))
	case EventPeerError:
		r.logger.Info("a peer reports an error", peer, slog.Any("error", e.Err))
		var said *PeerError
		if errors.As(e.Err, &said) && said.Code == WireEnded {
			r.mu.Lock()
			r.hungUp = append(r.hungUp, e.Key)
			r.mu.Unlock()
			r.run(func() { r.askWhy(e.Key) })
		}
	}
}

// awaitRoom watches a disk that was too full, so that what waits for room goes
// on as soon as there is some.
func (r *Replica) awaitRoom() {
	tick := time.NewTicker(5 * r.cfg.Timing.Tick)
	defer tick.Stop()
	for r.log.Room() != nil {
		select {
		case <-tick.C:
		case <-r.log.Done():
			return
		case <-r.ctx.Done():
			return
		}
	}
	r.roomless.Store(false) // before the core tries again, which may find it full
	r.post(r.core.StoreReady)
}

// learnGossipKey takes over a newer gossip key from a peer's hello.
func (r *Replica) learnGossipKey(k gossipKey) {
	r.mu.Lock()
	newer := k.newer(r.gkey)
	told := newer && (!k.turned() || k.epoch() <= r.endingEpoch)
	stale := k.epoch() < r.endingEpoch
	if newer {
		r.gkey = k
	}
	if told {
		r.gtold = k
	}
	r.mu.Unlock()
	if r.gossip != nil && (newer || !stale) {
		r.gossip.addKey(k, newer)
	}
	// A key that was turned for an ending is told on by those who know of that.
	if !told {
		return
	}
	r.core.SetGossip(k.epoch(), k.secret()) // this is the core's goroutine
	r.run(func() {
		r.keepGossipKey()
		r.post(func(now Now) Output { return r.core.TellGossip(now, k.epoch(), k.secret()) })
	})
}
