package replica

import (
	"errors"
	"time"

	"tallystick/oplog"
)

// When the local log refuses what peers send, above all for lack of space, no
// peer can help: taking in pauses, giving goes on, and the peers are told, so
// that their people learn why this replica falls behind.

// pause lets everything wait that the store must take in.
func (c *Core) pause(err error) {
	if c.now.Mono < c.paused {
		return
	}
	c.paused = c.now.Mono + min(10*c.cfg.BackoffMin<<min(c.pauses, 10), c.cfg.BackoffMax)
	c.pauses++
	c.busy = "busy: its log takes no entries now"
	if errors.Is(err, oplog.ErrNoSpace) {
		c.busy = "busy, no space: its disk is too full to take entries"
	}
	for _, s := range c.sessions {
		c.tellBusy(s)
	}
}

// tellBusy says that this replica takes no entries, and for how long it does
// not even try; 0 that it does again.
func (c *Core) tellBusy(s *session) {
	if s.hello == nil {
		return
	}
	wait := max(c.paused-c.now.Mono, 0)
	c.send(s, &MsgError{Code: WireBusy, RetryMillis: uint32(wait / time.Millisecond), Text: c.busy})
}

// resume ends a pause: the log has taken something in, or the driver has seen
// that it would.
func (c *Core) resume() {
	c.pauses = 0
	if c.busy == "" {
		return
	}
	c.paused, c.busy = 0, ""
	for _, s := range c.sessions {
		c.tellBusy(s)
	}
	for _, o := range c.origins {
		c.replan[o] = true
		c.storeSaid(o)
	}
	c.blobs.replan = true
}

// StoreReady says that the log, which refused work, would take it now.
func (c *Core) StoreReady(now Now) Output {
	c.begin(now)
	c.resume()
	c.floor.retry = 0
	c.tryRaise()
	return c.finish()
}

// onBusy notes that a peer takes no entries. It says so again each time it has
// tried in vain, so the word holds a little longer than it said.
func (c *Core) onBusy(s *session, m *MsgError) {
	st := &s.peer.status
	st.Busy, s.peer.busyUntil = m.Text, c.now.Mono+time.Duration(m.RetryMillis)*time.Millisecond+c.cfg.DeadAfter
	if m.RetryMillis == 0 {
		st.Busy = ""
	}
}
