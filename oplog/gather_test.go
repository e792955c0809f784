package oplog

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// TestGatherOnlyWhenTheDiskIsSlow: the writer waits for further jobs when the
// disk took the time of the last commit and others are about, and at most a
// quarter of that time; a lone writer's group goes at once.
func TestGatherOnlyWhenTheDiskIsSlow(t *testing.T) {
	l := openTest(t, "a")
	made := func(keys, jobs int) *group {
		g := l.newGroup(nil)
		for i := range keys {
			g.b.set([]byte(fmt.Sprint(i)), nil)
		}
		g.answers = make([]answer, jobs)
		return g
	}
	for _, c := range []struct {
		what               string
		took               time.Duration
		keys, jobs, others int
		want               int
	}{
		{"a slow disk, two halves", 20 * time.Millisecond, 500, 64, 64, 128},
		{"a slow disk, nobody else", 20 * time.Millisecond, 8, 1, 0, 1},
		{"a fast disk", 3 * time.Millisecond, 500, 64, 64, 0},
	} {
		var w writer
		var cur *group
		if c.others > 0 {
			cur = made(1, c.others)
		}
		start := time.Now()
		w.gather(&flight{g: made(c.keys, c.jobs), took: c.took}, cur)
		if w.expect != c.want {
			t.Errorf("%s: %d jobs expected, want %d", c.what, w.expect, c.want)
		}
		if longest := w.gatherUntil.Sub(start); c.want > 0 && longest < c.took/4 {
			t.Errorf("%s: waits for %s", c.what, longest)
		}
	}
	// next takes what is there, and does not wait for more than is expected.
	jobs := make(chan job, 1)
	l.w.expect, l.w.gatherUntil = 1, time.Now().Add(time.Hour)
	if j := l.next(jobs, made(1, 1)); j != nil {
		t.Error("a job from nowhere")
	}
	jobs <- &releaseJob{newWaiter()}
	if j := l.next(jobs, made(1, 1)); j == nil {
		t.Error("a waiting job is left behind")
	}
}

// slowDisk is a store whose syncs take their time.
type slowDisk struct {
	store
	sync time.Duration
}

func (s slowDisk) commit(b *batch) error {
	time.Sleep(s.sync)
	return s.store.commit(b)
}

// BenchmarkSharedSyncs appends to a disk whose every sync takes long, whatever
// else the machine does. x_perfect is the rate as a part of what it would be
// if all writers shared every sync.
func BenchmarkSharedSyncs(b *testing.B) {
	body := appendBin(nil, benchPayload())
	for _, sync := range []time.Duration{time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond} {
		for _, writers := range []int{1, 16, 128} {
			b.Run(fmt.Sprintf("sync=%s/writers=%d", sync, writers), func(b *testing.B) {
				l := openTest(b, "bench", func(c *Config) {
					c.Projections = []Projection{noFold{}}
					c.wrap = func(s store) store { return slowDisk{s, sync} }
				})
				var took time.Duration
				n := 0
				for b.Loop() {
					took += timed(writers, 16*writers, func() {
						if _, err := l.Append(context.Background(), Op{Kind: "note", Author: "mac:claude:bench", Body: body}); err != nil {
							b.Fatal(err)
						}
					})
					n += 16
				}
				b.ReportMetric(float64(n)*sync.Seconds()/took.Seconds(), "x_perfect")
			})
		}
	}
}
