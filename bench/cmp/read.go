package main

import (
	"fmt"
	"time"

	"tallystick/bench/engines"
)

// compareRead measures reads of one store, at most 100,000 entries of -entries,
// against the same keys in other stores. The sides take turns.
func compareRead(dir string) error {
	n, key := min(*entries, 100_000), storeKey()
	names := []string{"tallystick", "badger, the log's options", "badger, its own options", "SQLite", "bbolt"}
	writers := []engines.Open{
		engines.Tally(key), engines.Bare(engines.Tuned(key)), engines.Bare(engines.Default(key)), engines.SQLite(true), engines.Bolt(true),
	}
	readers := make([]engines.Reader, len(names))
	for i, open := range writers {
		at := mkdir(dir, fmt.Sprint(i))
		if err := load1(open, at, n); err != nil {
			return fmt.Errorf("%s: %w", names[i], err)
		}
		var err error
		switch i {
		case 0:
			var l *engines.LogReader
			if l, err = engines.ReadTally(at, key); err == nil {
				err = l.Learn(7)
			}
			readers[i] = l
		case 1:
			readers[i], err = engines.ReadBare(at, n, engines.Tuned(key))
		case 2:
			readers[i], err = engines.ReadBare(at, n, engines.Default(key))
		case 3:
			readers[i], err = engines.ReadSQLite(at, n)
		case 4:
			readers[i], err = engines.ReadBolt(at, n)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", names[i], err)
		}
		defer readers[i].Close()
	}
	time.Sleep(3 * time.Second) // compactions that the loading left
	header(fmt.Sprintf("of %d entries", n), "store", "µs", "tallystick / it (less is better)", "of processor time")
	for _, what := range []struct {
		name  string
		times int
		read  func(engines.Reader) error
	}{
		{"point get", 4000, engines.Reader.Get},
		{"newest 20 of an index", 1000, func(r engines.Reader) error { return r.Newest(20, false) }},
		{"newest 20 of an index, with entries", 300, func(r engines.Reader) error { return r.Newest(20, true) }},
	} {
		took, work := make([][]float64, len(names)), make([][]float64, len(names))
		for r := -1; r < *rounds; r++ {
			for k := range names {
				i := (k + r + 1) % len(names)
				start, worked := time.Now(), processTime()
				for range what.times {
					if err := what.read(readers[i]); err != nil {
						return fmt.Errorf("%s: %w", names[i], err)
					}
				}
				worked = processTime() - worked
				if r >= 0 {
					work[i] = append(work[i], float64(worked.Nanoseconds()))
					took[i] = append(took[i], float64(time.Since(start).Microseconds())/float64(what.times))
				}
			}
		}
		for i, name := range names {
			row(what.name, name, number(median(took[i])), ratio(took[0], took[i]), ratio(work[0], work[i]))
		}
	}
	return nil
}

func storeKey() []byte {
	if *encrypted {
		return make([]byte, 32)
	}
	return nil
}

func load1(open engines.Open, dir string, n int) error {
	e, err := open(dir)
	if err != nil {
		return err
	}
	if err := engines.Load(e, n); err != nil {
		return err
	}
	return e.Close()
}
