package replica

import (
	"errors"
	"slices"
	"time"

	"tallystick/oplog"
)

// Entries whose payload is owed (T5): a relay left it out. They are asked for
// by hash, of whoever says to hold them, their writer's replica first. What is
// owed may be much, so the core knows a window of it at a time, and moves on
// when nobody has what is in it. Like content, they are read for a peer only
// when no range waits for it, and paid from the same credit.

const (
	// maxEntryHashes bounds the hashes of one message.
	maxEntryHashes = 64
	// owedWindow is how many owed entries the core looks at at a time.
	owedWindow = 1024
	// maxOwedNotes bounds what is remembered of a session: what it was asked for
	// in vain, and what it asked for in vain.
	maxOwedNotes = 4 * owedWindow
)

// ReadEntry asks the log for an entry, whole, to send.
type ReadEntry struct {
	Session SessionID
	Sub     uint64
	Hash    oplog.Hash
}

// PutEntry asks the log to take in an entry that it owes.
type PutEntry struct {
	Session SessionID
	Sub     uint64
	Hash    oplog.Hash
	Entry   []byte
}

func (e *PutEntry) cost() uint64 { return chunkCost(len(e.Entry)) }

// ListOwed asks the log what it owes, after a place.
type ListOwed struct{ After string }

// From carries the listing out.
func (e ListOwed) From(log *oplog.Log) (list []oplog.OwedEntry, next string, err error) {
	return log.Owed(e.After, owedWindow)
}

// owed is what the core knows of owed entries.
type owed struct {
	window   []oplog.OwedEntry
	at, next string // where the window begins, and where the next one does; empty: at the beginning
	listing  bool   // a ListOwed is on its way
	again    bool   // list the window anew
	replan   bool
}

// entrySession is what a session has to do with owed entries.
type entrySession struct {
	want     []oplog.Hash // of the peer, being served
	sub      uint64       // its number
	reading  bool
	lastWant uint64              // highest seen
	none     []oplog.Hash        // of the want, not here
	asked    map[oplog.Hash]bool // what it asked for and did not get

	fetch   *entryFetch
	lastSub uint64
	backoff map[oplog.Hash]backoff
	seen    struct { // the last entry, to know a repeat
		sub  uint64
		hash oplog.Hash
	}
}

// entryFetch is a want of this replica.
type entryFetch struct {
	sub      uint64
	left     []oplog.Hash // not answered
	puts     int          // handed to the log
	progress time.Duration
}

func newEntrySession() entrySession {
	return entrySession{asked: map[oplog.Hash]bool{}, backoff: map[oplog.Hash]backoff{}}
}

// OwedChanged tells the core that what the log owes has changed: at the start,
// and when Log.OwedEpoch does.
func (c *Core) OwedChanged(now Now) Output {
	c.begin(now)
	c.owed.again = true
	c.listOwed()
	return c.finish()
}

func (c *Core) listOwed() {
	if c.owed.listing || !c.owed.again {
		return
	}
	c.owed.listing, c.owed.again = true, false
	c.out.Lists = append(c.out.Lists, ListOwed{After: c.owed.at})
}

// OwedListed says what the log gave for a ListOwed.
func (c *Core) OwedListed(now Now, e ListOwed, list []oplog.OwedEntry, next string, err error) Output {
	c.begin(now)
	c.owed.listing = false
	switch {
	case errors.Is(err, oplog.ErrClosed):
	case err != nil:
		c.event(Event{Kind: EventStore, Err: err})
		c.owed.again = true // at the next scan
	default:
		c.owed.window, c.owed.at, c.owed.next = list, e.After, next
		c.owed.replan = true
		if len(list) == 0 && e.After != "" {
			c.owed.at, c.owed.again = "", true
		}
		c.listOwed()
	}
	return c.finish()
}

// planOwed gives every session that is free something to ask for.
func (c *Core) planOwed() {
	if !c.owed.replan || c.now.Mono < c.paused {
		return
	}
	c.owed.replan = false
	if len(c.owed.window) == 0 {
		return
	}
	taken := map[oplog.Hash]bool{}
	for _, s := range c.sessions {
		if f := s.entry.fetch; f != nil {
			for _, h := range f.left {
				taken[h] = true
			}
		}
	}
	for _, s := range c.sessions {
		if s.ready && s.entry.fetch == nil {
			c.askOwed(s, taken)
		}
	}
}

func (c *Core) askOwed(s *session, taken map[oplog.Hash]bool) {
	var ask []oplog.Hash
	for i := range c.owed.window {
		o := &c.owed.window[i]
		if taken[o.Hash] || !c.mayAsk(s, o) || c.ownerGives(s, o) {
			continue
		}
		taken[o.Hash] = true
		if ask = append(ask, o.Hash); len(ask) == maxEntryHashes {
			break
		}
	}
	if len(ask) == 0 {
		return
	}
	b := &s.entry
	b.lastSub++
	b.fetch = &entryFetch{sub: b.lastSub, left: ask, progress: c.now.Mono}
	c.send(s, &MsgEntryWant{Sub: b.lastSub, Hashes: slices.Clone(ask)})
}

// mayAsk reports whether a peer is worth asking: it says to hold the entry and
// has not failed just now.
func (c *Core) mayAsk(s *session, o *oplog.OwedEntry) bool {
	return s.ready && s.entry.backoff[o.Hash].until <= c.now.Mono && s.peer.tips.Seq(o.Origin) >= o.Seq
}

// ownerGives reports whether the replica that wrote the entry can be asked
// instead: it surely has it, unless it was erased.
func (c *Core) ownerGives(s *session, o *oplog.OwedEntry) bool {
	if c.isOwner(s, o.Origin) {
		return false
	}
	for _, t := range c.sessions {
		if t != s && c.isOwner(t, o.Origin) && t.entry.fetch == nil && c.mayAsk(t, o) {
			return true
		}
	}
	return false
}

func (s *session) vain(h oplog.Hash, base time.Duration, c *Core) {
	if len(s.entry.backoff) >= maxOwedNotes {
		clear(s.entry.backoff) // a fresh chance for all
	}
	b := s.entry.backoff[h]
	s.entry.backoff[h] = backoff{until: c.now.Mono + min(base<<min(b.n, 20), c.cfg.BackoffMax), n: b.n + 1}
}

// answered takes a hash out of a fetch, and ends the fetch with the last.
func (c *Core) answered(s *session, h oplog.Hash) bool {
	f := s.entry.fetch
	if f == nil {
		return false
	}
	i := slices.Index(f.left, h)
	if i < 0 {
		return false
	}
	f.left = slices.Delete(f.left, i, i+1)
	f.progress = c.now.Mono
	c.endEntries(s)
	return true
}

func (c *Core) endEntries(s *session) {
	if f := s.entry.fetch; f != nil && len(f.left) == 0 && f.puts == 0 {
		s.entry.fetch = nil
		c.owed.replan = true
	}
}

func (c *Core) onEntry(s *session, m *MsgEntry) {
	s.bulk = c.now.Mono
	b := &s.entry
	if b.seen.sub == m.Sub && b.seen.hash == m.Hash {
		return // a repeat; its cost is not counted twice by the sender either
	}
	b.seen.sub, b.seen.hash = m.Sub, m.Hash
	cost, f := chunkCost(len(m.Entry)), b.fetch
	if f == nil || f.sub != m.Sub || !slices.Contains(f.left, m.Hash) {
		s.take.done += cost // of a want that is over
		return
	}
	if s.take.bytes+cost > uint64(c.cfg.Window)+(maxReads+1)*MaxRangeFrame {
		c.hangUp(s, WireProtocol, "more entries than the credit allows", violationRetry)
		return
	}
	s.take.bytes += cost
	f.puts++
	c.answered(s, m.Hash)
	c.out.Pays = append(c.out.Pays, PutEntry{Session: s.id, Sub: m.Sub, Hash: m.Hash, Entry: m.Entry})
}

// EntryPut says what the log made of an owed entry.
func (c *Core) EntryPut(now Now, e PutEntry, err error) Output {
	c.begin(now)
	s := c.session(e.Session)
	if s != nil {
		s.take.bytes -= min(s.take.bytes, e.cost())
		s.take.done += e.cost()
		if f := s.entry.fetch; f != nil && f.sub == e.Sub {
			f.puts--
			f.progress = now.Mono
			c.endEntries(s)
		}
	}
	switch {
	case err == nil:
		c.paid(e.Hash)
		c.tellEntry(e.Hash)
	case errors.Is(err, oplog.ErrNotOwed):
		c.paid(e.Hash)
	case errors.Is(err, oplog.ErrBadRange):
		if s != nil {
			s.vain(e.Hash, 30*c.cfg.BackoffMin, c)
			c.event(Event{Kind: EventBadRange, Session: s.id, Key: s.peer.key, Err: err})
		}
		c.owed.replan = true
	case errors.Is(err, oplog.ErrClosed):
	default:
		// The store: no peer can help. Everything waits.
		c.event(Event{Kind: EventStore, Session: e.Session, Err: err})
		c.pause(err)
		c.owed.replan = true
	}
	return c.finish()
}

// paid takes an entry off the window.
func (c *Core) paid(h oplog.Hash) {
	c.owed.window = slices.DeleteFunc(c.owed.window, func(o oplog.OwedEntry) bool { return o.Hash == h })
	for _, s := range c.sessions {
		delete(s.entry.backoff, h)
	}
	c.owed.replan = true
	if len(c.owed.window) == 0 && c.owed.next != "" {
		c.owed.at, c.owed.again = c.owed.next, true
		c.listOwed()
	}
}

// tellEntry tells the sessions that asked for an entry in vain that it is here.
func (c *Core) tellEntry(h oplog.Hash) {
	for _, s := range c.sessions {
		if s.entry.asked[h] {
			delete(s.entry.asked, h)
			c.send(s, &MsgEntryState{Here: true, Hashes: []oplog.Hash{h}})
		}
	}
}

func (c *Core) onEntryWant(s *session, m *MsgEntryWant) {
	b := &s.entry
	if m.Sub <= b.lastWant {
		return // a repeat
	}
	b.lastWant, b.sub, b.want, b.none = m.Sub, m.Sub, slices.Clone(m.Hashes), nil
}

// pumpEntry reads the next owed entry for a session when no ranges wait for it
// and its credit allows.
func (c *Core) pumpEntry(s *session) {
	v, b := &s.serve, &s.entry
	if len(b.want) == 0 || b.reading || len(v.queue) > 0 || v.spent+v.reserved >= v.granted {
		return
	}
	b.reading = true
	v.reserved += chunkCost(oplog.MaxEntry)
	c.out.Entries = append(c.out.Entries, ReadEntry{Session: s.id, Sub: b.sub, Hash: b.want[0]})
}

// EntryRead says what the log gave for a ReadEntry.
func (c *Core) EntryRead(now Now, e ReadEntry, exact []byte, err error) Output {
	c.begin(now)
	s := c.session(e.Session)
	if s == nil {
		return c.finish()
	}
	b := &s.entry
	b.reading = false
	s.serve.reserved -= min(s.serve.reserved, chunkCost(oplog.MaxEntry))
	if b.sub != e.Sub || len(b.want) == 0 {
		return c.finish() // it wants something else by now
	}
	b.want = b.want[1:]
	if err == nil {
		delete(b.asked, e.Hash)
		c.send(s, &MsgEntry{Sub: e.Sub, Hash: e.Hash, Entry: exact})
		s.serve.spent += chunkCost(len(exact))
	} else {
		if len(b.asked) < maxOwedNotes {
			b.asked[e.Hash] = true
		}
		b.none = append(b.none, e.Hash)
		if !errors.Is(err, oplog.ErrNotFound) && !errors.Is(err, oplog.ErrClosed) {
			c.event(Event{Kind: EventStore, Session: s.id, Key: s.peer.key, Err: err})
		}
	}
	if len(b.want) == 0 && len(b.none) > 0 {
		c.send(s, &MsgEntryState{Hashes: b.none})
		b.none = nil
	}
	return c.finish()
}

// onEntryState is a peer's word on entries that were wanted from it.
func (c *Core) onEntryState(s *session, m *MsgEntryState) {
	for _, h := range m.Hashes {
		switch {
		case m.Here:
			delete(s.entry.backoff, h)
			c.owed.replan = true
		case c.answered(s, h):
			s.vain(h, c.cfg.BackoffMin, c)
		}
	}
}

// scanOwed lets time pass: what stalls is asked for elsewhere, and when nobody
// has what is in the window, the next one is looked at.
func (c *Core) scanOwed() {
	c.listOwed()
	busy, hope := false, false
	for _, s := range c.sessions {
		if f := s.entry.fetch; f != nil {
			own := c.now.Mono - f.progress
			if f.puts > 0 || own <= 6*c.cfg.StallTimeout && min(own, c.now.Mono-s.bulk) <= c.cfg.StallTimeout {
				busy = true
				continue
			}
			for _, h := range f.left {
				s.vain(h, c.cfg.BackoffMin, c)
			}
			s.entry.fetch = nil
		}
		hope = hope || s.ready
		for i := range c.owed.window {
			busy = busy || c.mayAsk(s, &c.owed.window[i])
		}
	}
	c.owed.replan = c.owed.replan || len(c.owed.window) > 0
	if !busy && hope && (c.owed.at != "" || c.owed.next != "") {
		c.owed.at, c.owed.again = c.owed.next, true
		c.listOwed()
	}
}

// forgetEntries is what the end of a session means for owed entries.
func (c *Core) forgetEntries(s *session) {
	s.entry.fetch = nil
	c.owed.replan = true
}
