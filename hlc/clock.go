package hlc

import (
	"fmt"
	"math"
	"sync"
	"time"
)

// DefaultBound is how far ahead of the local wall clock a foreign timestamp
// may lie and still move the local clock (C3).
const DefaultBound = 10 * time.Minute

// maxWall is the highest wall reading a clock goes by. It leaves about 17
// minutes, 6.8e10 timestamps, below Max: a clock whose wall is stuck at the
// end of time goes on for that long.
const maxWall = MaxMillis - 1<<20

// AheadError says that a foreign timestamp lies further ahead of the local
// wall clock than the bound. The clock was not moved.
type AheadError struct {
	Timestamp Timestamp
	Wall      int64 // local wall reading, unix milliseconds
	Bound     time.Duration
}

func (e *AheadError) Error() string {
	return fmt.Sprintf("hlc: timestamp %s is %s ahead of the local wall clock, more than the bound of %s",
		e.Timestamp.Time().Format(time.RFC3339Nano), millis(e.Timestamp.Millis()-clampWall(e.Wall)), e.Bound)
}

// Config are the inputs of a Clock.
type Config struct {
	// Wall reads the wall clock in unix milliseconds. Nil means the machine's.
	// It is called with the clock's lock held and must not use the clock.
	Wall func() int64
	// Bound is how far ahead of Wall a merged timestamp may lie, in whole
	// milliseconds. Zero means DefaultBound; below zero nothing ahead of Wall is
	// merged.
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
// one above the last (C1). It never repeats and never goes back. It panics
// rather than issue one above Max, which only a Floor up there can bring about.
func (c *Clock) Now() Timestamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := c.last.Next()
	if w := New(clampWall(c.wall()), 0); w > next {
		next = w
	}
	if next > Max || next <= c.last {
		panic(fmt.Sprintf("hlc: clock is at its end, %d", uint64(c.last)))
	}
	c.last = next
	return next
}

// Last is the highest timestamp issued or merged.
func (c *Clock) Last() Timestamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// Merge lifts the clock to t, so that the next Now lies above it. A t further
// ahead of the wall than the bound leaves the clock alone and returns
// *AheadError (C3). Merge the maximum of a batch that Ahead finds within the
// bound, after the batch has committed.
func (c *Clock) Merge(t Timestamp) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall := c.wall()
	if c.beyond(t, wall) {
		return &AheadError{Timestamp: t, Wall: wall, Bound: c.bound}
	}
	if t > c.last {
		c.last = t
	}
	return nil
}

// Ahead reports how far t lies ahead of the local wall clock, zero when it
// does not, and whether that is beyond the bound, so that Merge would refuse
// it.
func (c *Clock) Ahead(t Timestamp) (lead time.Duration, beyond bool) {
	wall := c.wall()
	if ahead := t.Millis() - clampWall(wall); ahead > 0 {
		lead = millis(ahead)
	}
	return lead, c.beyond(t, wall)
}

// beyond compares milliseconds, not durations: 292 years of nanoseconds are
// less than the range of a Timestamp, and a far lead would wrap round to a
// harmless one.
func (c *Clock) beyond(t Timestamp, wall int64) bool {
	if t.Millis() > maxWall {
		return true // no wall that this clock believes can catch up with it
	}
	ahead := t.Millis() - clampWall(wall)
	return ahead > 0 && ahead > c.bound.Milliseconds()
}

// Wall is the wall reading this clock goes by, in unix milliseconds.
func (c *Clock) Wall() int64 { return c.wall() }

// Bound is how far ahead of the wall a merged timestamp may lie.
func (c *Clock) Bound() time.Duration { return c.bound }

func clampWall(ms int64) int64 { return min(max(ms, 0), maxWall) }

// millis is n milliseconds, or the nearest duration there is.
func millis(n int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Millisecond)
	return time.Duration(min(max(n, -most), most)) * time.Millisecond
}
