package sim

import (
	"context"
	"errors"
	"testing"
	"time"

	"tallystick/oplog"
)

// halfYear is a mesh whose machines are on for a while every day. Replicas 0
// to 2 meet daily, 3 stays away from the first day on, and 4 was admitted and
// never met anybody.
type halfYear struct {
	t      *testing.T
	w      *World
	notes  int
	erased []oplog.Appended
	old    oplog.Appended // written before replica 3 left, erased meanwhile
}

const days = 180

// note writes an event or a summary at a replica; artifacts, which are large,
// are left out.
func (h *halfYear) note(i int) oplog.Appended {
	h.t.Helper()
	for h.notes++; h.notes%10 == 5; h.notes++ {
	}
	noteAt(h.t, h.w.Node(i), h.notes)
	return h.w.acked[len(h.w.acked)-1].Appended
}

// event writes an event, which can be erased.
func (h *halfYear) event(i int) oplog.Appended {
	h.t.Helper()
	for h.notes%4 != 0 || (h.notes+1)%10 == 5 {
		h.notes++
	}
	return h.note(i)
}

func (h *halfYear) erase(i int, a oplog.Appended) {
	h.t.Helper()
	if _, err := h.w.Node(i).log.Erase(context.Background(), h.w.Node(i).author(), "", "no longer wanted", a.Hash); err != nil {
		h.t.Fatal(err)
	}
	h.w.Node(i).run(h.w.Node(i).core.LocalCommit(h.w.Node(i).now(), h.w.Node(i).log.Self().Head))
	h.erased = append(h.erased, a)
}

// day runs some replicas for a while and lets the rest of the day pass.
func (h *halfYear) day(replicas []int, do func()) {
	h.t.Helper()
	began := h.w.q.now
	for _, i := range replicas {
		h.w.Node(i).start()
	}
	h.w.Play(4 * time.Second)
	do()
	h.w.Play(4 * time.Second)
	for _, i := range replicas {
		if err := h.w.Node(i).log.ApplyErasures(context.Background()); err != nil {
			h.t.Fatal(err)
		}
		h.w.Node(i).crash()
	}
	h.w.Play(began + 24*time.Hour - h.w.q.now)
	if h.w.err != nil {
		h.t.Fatal(h.w.err)
	}
}

func newHalfYear(t *testing.T, seed uint64) *halfYear {
	t.Helper()
	cfg := Config{Seed: seed, Replicas: 5, Quiet: true}
	if *showFlag {
		cfg.Trace = t.Output()
	}
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	h := &halfYear{t: t, w: w}
	w.Node(4).crash() // before anything reached it
	w.Play(10 * time.Second)
	h.old = h.event(0)
	h.note(3)
	w.Play(5 * time.Second)
	if !w.Node(3).has(w.Node(0)) {
		t.Fatal("replica 3 left before it had heard of anything")
	}
	for i := range 4 {
		w.Node(i).crash()
	}
	for day := range days {
		h.day([]int{0, 1, 2}, func() {
			var last oplog.Appended
			for i := range 3 {
				for range 3 {
					h.note(i)
				}
				last = h.event(i)
			}
			if day%30 == 10 {
				h.erase(day%3, last)
			}
			if day == 40 {
				h.erase(0, h.old)
			}
		})
		if day == 100 {
			// The one that is away works on, on what it knows: both sides claim
			// one task.
			h.w.Partition(false, 3)
			h.day([]int{1, 3}, func() {
				h.note(3)
				claimAt(t, w.Node(1), 1)
				w.Play(time.Second)
				claimAt(t, w.Node(3), 1)
			})
		}
	}
	return h
}

// gone checks that no replica shows a payload that was erased.
func (h *halfYear) gone(when string) {
	h.t.Helper()
	for _, n := range h.w.nodes {
		if err := n.log.ApplyErasures(context.Background()); err != nil {
			h.t.Fatal(err)
		}
		err := n.log.View(func(s oplog.Snapshot) error {
			for _, a := range h.erased {
				if e, err := s.Entry(a.Ref); err != nil || e.Present() {
					return errors.Join(err, errors.New("an erased payload is here"))
				}
			}
			return nil
		})
		if err != nil || n.log.ErasePending() != 0 {
			h.t.Errorf("%s, replica %d: %v, %d erasures pending", when, n.id, err, n.log.ErasePending())
		}
	}
}

// TestA3_LaggardOf180Days: a replica that was away for half a year and one
// that is new catch up, by ranges of many entries, over slow lines. Meanwhile
// what the others write reaches them, and the two that catch up, at once. What
// was erased in the half year is gone everywhere in the end, also from the one
// that held it, and from the new one, which had it from there first. And who
// claimed in vain eighty days before is told.
func TestA3_LaggardOf180Days(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3} {
		h := newHalfYear(t, seed)
		w := h.w
		late, fresh := w.Node(3), w.Node(4)
		w.Heal()
		if seed%2 == 1 {
			// The two meet each other first: what is erased elsewhere travels once more.
			w.Partition(false, 3, 4)
			w.Play(20 * time.Second)
			if e := entryAt(t, fresh, h.old.Ref); !e.Present() {
				t.Errorf("seed %d: the new replica did not get what the other still holds", seed)
			}
			w.Heal()
		}
		ranges, taken := 0, 0
		for _, n := range []*Node{late, fresh} {
			n.refuse = func(r *oplog.Range) error {
				if r.Count > 1 {
					ranges, taken = ranges+1, taken+r.Count
				}
				return nil
			}
		}
		w.rate = 5_000 // some 700 kB of log, from three replicas at once: half a minute and more
		w.Play(6 * time.Second)
		for i := range 3 {
			h.note(i)
		}
		note := w.acked[len(w.acked)-1]
		w.Play(3 * time.Second)
		if late.has(w.Node(0)) || fresh.has(w.Node(0)) {
			t.Fatalf("seed %d: the catch-up is too fast for this test", seed)
		}
		for _, n := range []*Node{w.Node(0), w.Node(1)} {
			if !n.has(w.Node(2)) {
				t.Errorf("seed %d: replica %d waits for others to catch up: %s is not there", seed, n.id, note.Ref.Stamp())
			}
		}
		behind := func(n *Node) bool { return !n.has(w.Node(0)) || !n.has(w.Node(1)) || !n.has(w.Node(2)) }
		for began := w.q.now; behind(late) || behind(fresh); w.Play(10 * time.Second) {
			if w.q.now-began > 15*time.Minute {
				t.Fatalf("seed %d: not caught up after %s", seed, w.q.now-began)
			}
		}
		if ranges == 0 || taken < 10*ranges || taken < days*3*4 {
			t.Errorf("seed %d: %d entries in %d ranges: not packed", seed, taken, ranges)
		}
		w.rate = 0
		w.Play(30 * time.Second)
		h.gone("after the catch-up")
		settle(t, w)
		if w.res.Losers != 1 {
			t.Errorf("seed %d: %d claims lost, of two for one task", seed, w.res.Losers)
		}
		// Gone for good: a restart and another exchange bring nothing back.
		late.crash()
		late.start()
		w.Play(20 * time.Second)
		h.gone("later")
	}
}

func entryAt(t *testing.T, n *Node, ref oplog.Ref) (e oplog.Entry) {
	t.Helper()
	if err := n.log.View(func(s oplog.Snapshot) (err error) { e, err = s.Entry(ref); return err }); err != nil {
		t.Fatal(err)
	}
	return e
}
