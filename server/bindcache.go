package server

import "sync"

// bindCache remembers the identities of sessions. A decision reads all names
// minted on this host; nearly every call needs it, and it changes rarely.
type bindCache struct {
	mu   sync.Mutex
	rows map[Session]bound
}

func (c *bindCache) get(s Session) (bound, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, ok := c.rows[s]
	return b, ok
}

func (c *bindCache) put(s Session, b bound) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.rows[s]; c.rows == nil || !known && len(c.rows) >= maxBound {
		c.rows = map[Session]bound{}
	}
	c.rows[s] = b
}
