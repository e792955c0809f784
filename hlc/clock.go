package hlc

import (
	"fmt"
	"sync"
	"time"
)

// DefaultBound is how far ahead of the local wall clock a foreign timestamp
// may lie and still move the local clock (C3).
const DefaultBound = 10 * time.Minute

// AheadError says that a foreign timestamp lies further ahead of the local
// wall clock than the bound. The clock was not moved.
type AheadError struct {
	Timestamp Timestamp
	Wall      int64 // local wall reading, unix milliseconds
	Bound     time.Duration
}

func (e *AheadError) Error() string {
	lead := time.Duration(e.Timestamp.Millis()-e.Wall) * time.Millisecond
	return fmt.Sprintf("hlc: timestamp %s is %s ahead of the local wall clock, more than the bound of %s",
		e.Timestamp.Time().Format(time.RFC3339Nano), lead, e.Bound)
}

// Config are the inputs of a Clock.
type Config struct {
	// Wall reads the wall clock in unix milliseconds. Nil means the machine's.
	Wall func() int64
	// Bound is how far ahead of Wall a merged timestamp may lie. Zero means
	// DefaultBound.
	Bound time.Duration
	// Floor is the timestamp to continue above: the highest of the own stamps,
	// the persisted ceiling and the admission (C1).
	Floor Timestamp
}

// Clock issues timestamps that strictly increase and merges foreign ones
// within a bound. It is safe for concurrent use.
type Clock struct {
	wall  func() int64
	bound time.Duration

	mu   sync.Mutex
	last Timestamp
}

// NewClock returns a clock that continues above cfg.Floor.
func NewClock(cfg Config) *Clock {
	if cfg.Wall == nil {
		cfg.Wall = func() int64 { return time.Now().UnixMilli() }
	}
	if cfg.Bound == 0 {
		cfg.Bound = DefaultBound
	}
	return &Clock{wall: cfg.Wall, bound: cfg.Bound, last: cfg.Floor}
}

// Now issues the next timestamp: the wall reading when it has advanced, else
// one above the last (C1). It never repeats and never goes back.
func (c *Clock) Now() Timestamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := New(c.wall(), 0); w > c.last {
		c.last = w
	} else {
		c.last++
	}
	return c.last
}

// Last is the highest timestamp issued or merged.
func (c *Clock) Last() Timestamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// Merge lifts the clock to t, so that the next Now lies above it. A t further
// ahead of the wall than the bound leaves the clock alone and returns
// *AheadError (C3). Merge the maximum of a batch, after it has committed.
func (c *Clock) Merge(t Timestamp) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall := c.wall()
	if t.Millis() > wall && time.Duration(t.Millis()-wall)*time.Millisecond > c.bound {
		return &AheadError{Timestamp: t, Wall: wall, Bound: c.bound}
	}
	if t > c.last {
		c.last = t
	}
	return nil
}

// Ahead reports how far t lies ahead of the local wall clock beyond nothing:
// zero when it does not, and whether that is more than the bound.
func (c *Clock) Ahead(t Timestamp) (lead time.Duration, beyond bool) {
	wall := c.wall()
	if t.Millis() <= wall {
		return 0, false
	}
	lead = time.Duration(t.Millis()-wall) * time.Millisecond
	return lead, lead > c.bound
}

// Wall is the wall reading this clock goes by, in unix milliseconds.
func (c *Clock) Wall() int64 { return c.wall() }

// Bound is how far ahead of the wall a merged timestamp may lie.
func (c *Clock) Bound() time.Duration { return c.bound }
