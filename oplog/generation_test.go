package oplog

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
)

// TestM2_SnapshotReadsItsOwnGeneration: a snapshot that is taken while a
// rebuild switches a view over, before or after the commit is published, reads
// the generation that its own record of the view names.
func TestM2_SnapshotReadsItsOwnGeneration(t *testing.T) {
	var l *testLog
	var looked, known atomic.Int64
	look := func() {
		s := l.snapshot()
		defer s.kv.release()
		rec, err := s.kv.get(infoKey("bykind"))
		if err != nil {
			t.Error(err)
			return
		}
		if s.infos != nil {
			known.Add(1)
		}
		view := s.View("bykind").(readView)
		if got, want := view.prefix[len(view.prefix)-1], rec[viewRecordLen-1]; got != want {
			t.Errorf("the snapshot reads generation %d, its record says %d", got, want)
		}
		looked.Add(1)
	}
	var armed atomic.Bool
	l = openTest(t, "a", func(c *Config) {
		c.hook = func(string) {
			if armed.Load() {
				look()
			}
		}
	})
	write(t, l, "x", 500)
	armed.Store(true)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				look()
			}
		}
	})
	for range 20 {
		if err := l.Rebuild(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
	if looked.Load() < 20 || known.Load() == 0 {
		t.Errorf("%d looks, %d from memory", looked.Load(), known.Load())
	}
}
