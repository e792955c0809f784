package sim

import (
	"container/heap"
	"time"
)

// event is something that happens at a virtual time.
type event struct {
	at  time.Duration
	seq uint64 // order of scheduling, so that equal times have an order
	do  func()
}

// queue holds events by time.
type queue struct {
	events []event
	seq    uint64
	now    time.Duration
}

func (q *queue) Len() int { return len(q.events) }
func (q *queue) Less(i, j int) bool {
	a, b := &q.events[i], &q.events[j]
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}
func (q *queue) Swap(i, j int) { q.events[i], q.events[j] = q.events[j], q.events[i] }
func (q *queue) Push(x any)    { q.events = append(q.events, x.(event)) }
func (q *queue) Pop() any {
	last := len(q.events) - 1
	e := q.events[last]
	q.events[last] = event{}
	q.events = q.events[:last]
	return e
}

// after schedules do in d from now.
func (q *queue) after(d time.Duration, do func()) { q.at(q.now+d, do) }

// at schedules do; a time that has passed means now.
func (q *queue) at(t time.Duration, do func()) {
	q.seq++
	heap.Push(q, event{at: max(t, q.now), seq: q.seq, do: do})
}

// step runs the next event that is due before end. It reports whether there
// was one; if not, time moves to end.
func (q *queue) step(end time.Duration) bool {
	if len(q.events) == 0 || q.events[0].at > end {
		q.now = max(q.now, end)
		return false
	}
	e := heap.Pop(q).(event)
	q.now = e.at
	e.do()
	return true
}
