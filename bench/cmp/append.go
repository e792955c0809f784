package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tallystick/bench/engines"
)

type side struct {
	name  string
	open  engines.Open
	group bool // has a committer, which one writer has no use for
}

var sides = []side{
	{"tallystick", engines.Tally(nil), false},
	{"badger, a transaction each", engines.Bare(engines.Tuned(nil)), false},
	{"badger, bare committer", engines.Grouped(engines.Bare(engines.Tuned(nil))), true},
	{"SQLite, payload alone, a transaction each", engines.SQLite(false), false},
	{"SQLite, payload alone, bare committer", engines.Grouped(engines.SQLite(false)), true},
	{"SQLite, same keys, bare committer", engines.Grouped(engines.SQLite(true)), true},
	{"bbolt, payload alone, a transaction each", engines.Bolt(false), false},
	{"bbolt, payload alone, bare committer", engines.Grouped(engines.Bolt(false)), true},
	{"bbolt, same keys, bare committer", engines.Grouped(engines.Bolt(true)), true},
	{"NATS JetStream, payload alone", engines.JetStream, false},
	{"tallystick, encrypted", engines.Tally(make([]byte, 32)), false},
	{"badger encrypted, a transaction each", engines.Bare(engines.Tuned(make([]byte, 32))), false},
	{"badger encrypted, bare committer", engines.Grouped(engines.Bare(engines.Tuned(make([]byte, 32)))), true},
}

// encryptedFrom is the index of the first side with an encrypted store.
const encryptedFrom = 10

// compareAppend measures durable appends. The sides take turns, in another
// order every round; the ratio is that of the same round.
func compareAppend(dir string) error {
	header("writers", "store", "appends/s", "mean wait ms", "tallystick / it", "processor µs", "its / tallystick's")
	for _, writers := range []int{1, 16, 128} {
		if err := appendTable(dir, writers); err != nil {
			return err
		}
	}
	return nil
}

func appendTable(dir string, writers int) error {
	open := make([]engines.Engine, len(sides))
	rates, waits, work := make([][]float64, len(sides)), make([][]float64, len(sides)), make([][]float64, len(sides))
	for r := -1; r < *rounds; r++ { // the first round opens and warms up
		for k := range sides {
			i := (k + r + 1) % len(sides)
			s := &sides[i]
			if s.group && writers == 1 || !strings.Contains(s.name, *only) && i != 0 && i != encryptedFrom {
				continue
			}
			var err error
			if open[i] == nil {
				if open[i], err = s.open(mkdir(dir, fmt.Sprintf("%d-%d", writers, i))); err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
			}
			worked := processTime()
			n, took, err := appendFor(open[i], writers, *span)
			worked = processTime() - worked
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if r >= 0 {
				rates[i] = append(rates[i], float64(n)/took.Seconds())
				work[i] = append(work[i], 1e6*worked.Seconds()/float64(n))
				waits[i] = append(waits[i], 1e3*took.Seconds()*float64(writers)/float64(n))
			}
		}
	}
	for i, s := range sides {
		if open[i] == nil {
			continue
		}
		ours := 0
		if i >= encryptedFrom {
			ours = encryptedFrom
		}
		row(fmt.Sprint(writers), s.name, number(median(rates[i])), number(median(waits[i])), ratio(rates[ours], rates[i]),
			number(median(work[i])), ratio(work[i], work[ours]))
		if err := open[i].Close(); err != nil {
			return err
		}
	}
	return nil
}

func mkdir(dir, name string) string {
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(path, 0o700); err != nil {
		panic(err)
	}
	return path
}

// appendFor lets writers append one payload after the other for some time.
func appendFor(e engines.Engine, writers int, d time.Duration) (n int, took time.Duration, err error) {
	var wg sync.WaitGroup
	var count atomic.Int64
	var failed atomic.Pointer[error]
	start := time.Now()
	for range writers {
		wg.Go(func() {
			for time.Since(start) < d && failed.Load() == nil {
				if err := e.Append(engines.Payload()); err != nil {
					failed.Store(&err)
					return
				}
				count.Add(1)
			}
		})
	}
	wg.Wait()
	if f := failed.Load(); f != nil {
		err = *f
	}
	return int(count.Load()), time.Since(start), err
}
