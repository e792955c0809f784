package replica

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"slices"
	"time"

	"tallystick/oplog"
)

// The taking side: from whom this replica takes each origin.

// takeState is the taking side of a session.
type takeState struct {
	wants   map[uint64]*want
	lastSub uint64
	backoff map[oplog.OriginID]backoff
	probe   map[oplog.OriginID]bool // branches have parted here: ask with samples
	bytes   uint64                  // in ingests in flight
	granted uint64                  // running total told
	done    uint64                  // running total of cost received and dealt with
}

type backoff struct {
	until time.Duration
	n     int // failures in a row
}

// want is this replica's one subscription of an origin.
type want struct {
	origin oplog.OriginID
	s      *session
	sub    uint64
	probe  bool
	last   oplog.Tip // where the last range ended

	progress time.Duration // last range, or the start
	behind   time.Duration // since when another peer has more than s; 0 never
}

// planAll reconsiders the origins for which something changed.
func (c *Core) planAll() {
	if len(c.replan) == 0 {
		return
	}
	todo := make([]oplog.OriginID, 0, len(c.replan))
	for o := range c.replan {
		todo = append(todo, o)
	}
	clear(c.replan)
	slices.SortFunc(todo, oplog.OriginID.Compare)
	for _, o := range todo {
		c.plan(o)
	}
}

// plan sees to it that an origin is wanted from one peer, the best one. Own
// origins are wanted only from a peer that holds more of them (L7b).
func (c *Core) plan(o oplog.OriginID) {
	w := c.wants[o]
	if w != nil && c.own[o] && c.ingests[o] == 0 && !c.lacks(w.s, o) {
		c.dropWant(w, 0, 0)
		w = nil
	}
	if w != nil && c.stalled(w) {
		c.dropWant(w, c.cfg.BackoffMin, 0)
		w = nil
	}
	best := c.choose(o)
	if w != nil && !c.better(w, best) {
		return
	}
	// A new subscription starts at the durable position, so what is in the air
	// must land first.
	if best == nil || c.ingests[o] > 0 || c.now.Mono < c.paused || c.sampling[o] != 0 {
		return
	}
	if w != nil {
		c.dropWant(w, 0, 0)
	}
	_, _, parted := c.parted(best, o)
	if tips := c.tips[o]; len(tips) > 0 && (parted || best.take.probe[o]) {
		c.sampling[o] = best.id
		c.out.Samples = append(c.out.Samples, Sample{Session: best.id, Origin: o, Tips: slices.Clone(tips)})
		return
	}
	c.want(best, o, c.tips[o], false)
}

func (c *Core) want(s *session, o oplog.OriginID, after []oplog.Tip, probe bool) {
	s.take.lastSub++
	w := &want{origin: o, s: s, sub: s.take.lastSub, probe: probe, progress: c.now.Mono}
	c.wants[o] = w
	s.take.wants[w.sub] = w
	c.send(s, &MsgWant{Sub: w.sub, Origin: o, Probe: probe, After: slices.Clone(after)})
}

// Sampled says what the log gave for a Sample: the want it was for goes out.
func (c *Core) Sampled(now Now, e Sample, tips []oplog.Tip, err error) Output {
	c.begin(now)
	if c.sampling[e.Origin] == e.Session {
		delete(c.sampling, e.Origin)
		s := c.session(e.Session)
		switch {
		case s == nil || c.wants[e.Origin] != nil:
		case err != nil:
			// The tips have changed meanwhile, or the log is ill.
			c.backOff(s, e.Origin, c.cfg.BackoffMin/4, 0)
		default:
			if len(tips) > maxAfter {
				tips = tips[:maxAfter]
			}
			c.want(s, e.Origin, tips, true)
		}
		c.replan[e.Origin] = true
	}
	return c.finish()
}

// stalled reports whether the peer said it has more and gives nothing. A slow
// stream is not a stall: any range, or a part of one, counts, up to a limit.
func (c *Core) stalled(w *want) bool {
	if !c.lacks(w.s, w.origin) || w.s.take.bytes > 0 {
		return false
	}
	own := c.now.Mono - w.progress
	return own > 6*c.cfg.StallTimeout || min(own, c.now.Mono-w.s.bulk) > c.cfg.StallTimeout
}

// better reports whether to move a subscription: at once to the origin's own
// replica, and after a grace to a peer that has what the present one lacks.
func (c *Core) better(w *want, best *session) bool {
	if best == nil || best == w.s {
		w.behind = 0
		return false
	}
	if c.isOwner(best, w.origin) && !c.isOwner(w.s, w.origin) {
		return true
	}
	if !c.lacks(best, w.origin) || c.lacks(w.s, w.origin) || c.ingests[w.origin] > 0 {
		w.behind = 0
		return false
	}
	if w.behind == 0 {
		w.behind = c.now.Mono
	}
	return c.now.Mono-w.behind >= c.cfg.SwitchGrace
}

func (c *Core) isOwner(s *session, o oplog.OriginID) bool {
	key, ok := c.owner[o]
	return ok && key == s.peer.key
}

// choose finds the best peer for an origin: its own replica unless another
// peer has more of it, then one that has more than we do, then any that holds
// it. Ties are spread over the peers by a hash.
func (c *Core) choose(o oplog.OriginID) (best *session) {
	mine, most := c.tips.Seq(o), uint64(0)
	for _, s := range c.sessions {
		if s.ready {
			most = max(most, s.peer.tips.Seq(o))
		}
	}
	bestRank, bestTie := -1, uint64(0)
	for _, s := range c.sessions {
		if !s.ready || s.take.backoff[o].until > c.now.Mono {
			continue
		}
		seq := s.peer.tips.Seq(o)
		owner := c.isOwner(s, o)
		lacks := c.lacks(s, o)
		if seq == 0 && !owner || c.own[o] && !lacks {
			continue
		}
		rank := 0
		if owner && seq >= most && seq >= mine {
			rank += 2
		}
		if lacks {
			rank++
		}
		if tie := spread(c.cfg.Key, s.peer.key, o); rank > bestRank || rank == bestRank && tie < bestTie {
			best, bestRank, bestTie = s, rank, tie
		}
	}
	return best
}

func spread(me, peer oplog.DeviceKey, o oplog.OriginID) uint64 {
	h := fnv.New64a()
	h.Write(me[:])
	h.Write(peer[:])
	h.Write(o[:])
	return binary.BigEndian.Uint64(h.Sum(nil))
}

// dropWant ends a subscription; base, when not zero, backs the origin off at
// that peer, for twice as long with each failure in a row and at least for
// least.
func (c *Core) dropWant(w *want, base, least time.Duration) {
	if c.wants[w.origin] == w {
		delete(c.wants, w.origin)
	}
	if _, ok := w.s.take.wants[w.sub]; ok {
		delete(w.s.take.wants, w.sub)
		c.send(w.s, &MsgUnwant{Sub: w.sub})
	}
	c.replan[w.origin] = true
	if base == 0 {
		return
	}
	c.backOff(w.s, w.origin, base, least)
}

func (c *Core) backOff(s *session, o oplog.OriginID, base, least time.Duration) {
	b := s.take.backoff[o]
	wait := min(max(base<<min(b.n, 20), least), c.cfg.BackoffMax)
	s.take.backoff[o] = backoff{until: c.now.Mono + wait, n: b.n + 1}
}

func (c *Core) onRange(s *session, m *MsgRange) {
	s.bulk = c.now.Mono
	cost := RangeCost(&m.Range)
	r := &m.Range
	last := r.First + uint64(r.Count) - 1
	// A range tells that its sender holds it, wanted still or not: the sender
	// does not say so again. Of several branches it does.
	if r.Head.Origin == r.Origin && len(s.peer.tips[r.Origin]) <= 1 && s.ready {
		c.peerAt(s, r.Origin, []oplog.Tip{r.Head.Tip()})
	}
	w := s.take.wants[m.Sub]
	if w == nil {
		s.take.done += cost // of a subscription that is over
		return
	}
	switch {
	case r.Origin != w.origin || r.Count == 0 || r.First == 0 || last < r.First || r.Count > len(r.Entries) || r.Head.Origin != r.Origin:
		s.take.done += cost
		c.badRange(w, oplog.ErrBadRange)
	case r.Head.Tip() == w.last:
		// A repeat: it was received, and dealt with, before. Its cost is not
		// counted twice by the sender either.
	case s.take.bytes+cost > uint64(c.cfg.Window)+(maxReads+1)*MaxRangeFrame:
		c.hangUp(s, WireProtocol, "more ranges than the credit allows", violationRetry)
	default:
		w.last = r.Head.Tip()
		w.progress = c.now.Mono
		s.take.bytes += cost
		c.ingests[w.origin]++
		c.out.Ingests = append(c.out.Ingests, Ingest{Session: s.id, Sub: m.Sub, Range: *r})
	}
}

// Ingested says what the log made of a range.
func (c *Core) Ingested(now Now, e Ingest, res oplog.IngestResult, err error) Output {
	c.begin(now)
	o := e.Range.Origin
	if c.ingests[o]--; c.ingests[o] <= 0 {
		delete(c.ingests, o)
		c.replan[o] = true
	}
	var w *want
	s := c.session(e.Session)
	if s != nil {
		cost := RangeCost(&e.Range)
		s.take.bytes -= min(s.take.bytes, cost)
		s.take.done += cost
		w = s.take.wants[e.Sub]
	}
	if err == nil {
		c.resume()
		var from *peer
		if s != nil {
			delete(s.take.backoff, o)
			delete(s.take.probe, o)
			from = s.peer
		}
		tips := res.Tips
		if tips == nil {
			tips = []oplog.Tip{res.Tip}
		}
		c.advance(o, tips, e.Range.Head, from)
	} else if w != nil {
		c.badRange(w, err)
	}
	return c.finish()
}

// badRange deals with a range that was not taken in: it costs this origin at
// this peer a back-off, unless the fault is the local log's (L5).
func (c *Core) badRange(w *want, err error) {
	e := Event{Kind: EventBadRange, Session: w.s.id, Key: w.s.peer.key, Origin: w.origin, Err: err}
	switch {
	case errors.Is(err, oplog.ErrFork):
		c.dropWant(w, 30*c.cfg.BackoffMin, 0)
	case errors.Is(err, oplog.ErrGap) && !w.probe:
		// The range continues something that is not here: the branches have
		// parted. Show more of our line (L7c).
		w.s.take.probe[w.origin] = true
		c.dropWant(w, 0, 0)
		return
	case errors.Is(err, oplog.ErrGap):
		c.dropWant(w, c.cfg.BackoffMin, 0)
	case errors.Is(err, oplog.ErrBadRange), errors.Is(err, oplog.ErrMalformed),
		errors.Is(err, oplog.ErrUnknownOrigin), errors.Is(err, oplog.ErrVersion), errors.Is(err, oplog.ErrTooLarge):
		c.dropWant(w, c.cfg.BackoffMin, 0)
	default:
		// The store: no peer can help. Everything waits.
		e.Kind = EventStore
		c.pause(err)
		c.dropWant(w, 0, 0)
	}
	c.event(e)
}

// onSubError is the giving side's word on one of our subscriptions.
func (c *Core) onSubError(s *session, m *MsgError) {
	w := s.take.wants[m.Sub]
	if w == nil {
		return
	}
	delete(s.take.wants, m.Sub) // it is over there already; no Unwant
	retry := time.Duration(m.RetryMillis) * time.Millisecond
	if m.Code == WireFork && !w.probe {
		s.take.probe[w.origin] = true
		c.dropWant(w, 0, 0)
		return
	}
	c.dropWant(w, c.cfg.BackoffMin, retry)
}

// giveCredit returns to the sender what has been dealt with, in steps so that
// credit costs little, and at once when nothing is in flight.
func (c *Core) giveCredit(s *session, first bool) {
	t := &s.take
	total := t.done + uint64(c.cfg.Window)
	if s.hello == nil || total == t.granted && !first {
		return
	}
	if first || t.bytes == 0 || total-t.granted >= uint64(c.cfg.Window)/8 {
		t.granted = total
		c.send(s, &MsgCredit{Total: total})
	}
}
