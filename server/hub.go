package server

import (
	"sync"
	"sync/atomic"

	"tallystick/oplog"
	"tallystick/query/logstream"
)

// hub wakes those who wait for events. After a commit one goroutine reads what
// has arrived, once for everybody, and wakes only those for whom it may be; a
// waiter costs nothing until then. The goroutine is there while anybody waits.
type hub struct {
	log   Log
	wakes atomic.Int64 // for tests

	mu      sync.Mutex
	n       int
	buckets map[string]map[*waiter]struct{}
	after   uint64 // arrival number read up to
	stop    chan struct{}
	dead    bool // reading has failed
}

// waiter is somebody who waits.
type waiter struct {
	f    logstream.Filter
	any  bool // wants to hear of everything that arrives
	wake chan struct{}
	keys []string
}

// Buckets: a waiter is found by whom it listens for, else by the task, else
// it is asked about every event.
const (
	byTarget      = "t"
	byCorrelation = "c"
	byInbox       = "i" // all who listen for anybody
	byNothing     = ""
)

func (w *waiter) sort() {
	switch {
	case w.any:
		w.keys = []string{byNothing}
	case len(w.f.To) > 0:
		w.keys = []string{byInbox}
		for _, to := range w.f.To {
			w.keys = append(w.keys, byTarget+to)
		}
	case w.f.Correlation != "":
		w.keys = []string{byCorrelation + w.f.Correlation}
	default:
		w.keys = []string{byNothing}
	}
}

// join lets somebody wait. What becomes visible after it has returned wakes
// the waiter; what was visible before is the caller's to look at.
func (h *hub) join(f logstream.Filter, any bool) (*waiter, error) {
	w := &waiter{f: f, any: any, wake: make(chan struct{}, 1)}
	w.sort()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n == 0 {
		err := h.log.View(func(snap oplog.Snapshot) error {
			h.after = snap.LastArrival()
			return nil
		})
		if err != nil {
			return nil, err
		}
		h.buckets = map[string]map[*waiter]struct{}{}
		h.start()
	}
	h.n++
	for _, k := range w.keys {
		if h.buckets[k] == nil {
			h.buckets[k] = map[*waiter]struct{}{}
		}
		h.buckets[k][w] = struct{}{}
	}
	return w, nil
}

func (h *hub) start() {
	h.dead, h.stop = false, make(chan struct{})
	go h.run(h.stop)
}

// ensure starts the reading again after it has failed, where it failed.
func (h *hub) ensure() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead {
		h.start()
	}
}

func (h *hub) leave(w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range w.keys {
		if delete(h.buckets[k], w); len(h.buckets[k]) == 0 {
			delete(h.buckets, k)
		}
	}
	if h.n--; h.n == 0 {
		close(h.stop)
	}
}

func (h *hub) run(stop chan struct{}) {
	for {
		changed := h.log.Changed()
		if err := h.deliver(stop); err != nil {
			// They find out what is wrong when they look themselves.
			h.mu.Lock()
			defer h.mu.Unlock()
			h.dead = h.stop == stop
			for k := range h.buckets {
				h.wakeAll(k, nil, nil)
			}
			return
		}
		select {
		case <-changed:
		case <-stop:
			return
		}
	}
}

// deliver reads what has arrived since the last time.
func (h *hub) deliver(stop chan struct{}) error {
	h.mu.Lock()
	after := h.after
	h.mu.Unlock()
	return h.log.View(func(snap oplog.Snapshot) error {
		return snap.Arrived(after, false, func(arrival uint64, e *oplog.Entry) (bool, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			select {
			case <-stop: // another run has begun where this one ends
				return false, nil
			default:
			}
			h.after = arrival
			for w := range h.buckets[byNothing] {
				if w.any {
					h.tell(w)
				}
			}
			if e.Kind != logstream.KindEvent && e.Kind != logstream.KindAck || !e.Present() {
				return true, nil
			}
			raw, err := logstream.Decode(e)
			if err != nil {
				return false, err
			}
			h.wakeAll(byNothing, &raw, e)
			if len(raw.Correlation) > 0 {
				h.wakeAll(byCorrelation+string(raw.Correlation), &raw, e)
			}
			switch to := string(raw.To); {
			case e.Kind == logstream.KindAck:
				// It may make somebody's claim a lost one, which an inbox shows
				// before any event tells of it.
				h.wakeAll(byInbox, nil, nil)
			case to == "*":
				h.wakeAll(byInbox, &raw, e)
			case to != "":
				h.wakeAll(byTarget+to, &raw, e)
			}
			return true, nil
		})
	})
}

// wakeAll wakes those of a bucket whom an event is for; without an event, all.
func (h *hub) wakeAll(bucket string, raw *logstream.Raw, e *oplog.Entry) {
	for w := range h.buckets[bucket] {
		if raw == nil || w.f.Matches(raw, e) {
			h.tell(w)
		}
	}
}

func (h *hub) tell(w *waiter) {
	select {
	case w.wake <- struct{}{}:
		h.wakes.Add(1)
	default: // it has been told already
	}
}
