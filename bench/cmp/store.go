package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"tallystick/bench/engines"
)

// The stores that compareStore makes, each filled by a process of its own.
var storeSides = []struct{ name, dir string }{
	{"tallystick", "tally"}, {"badger, the log's options", "tuned"}, {"badger, its own options", "default"},
}

// checkedFile says when the log's tables were last read through. Without it
// they are read through at opening, as they are once a day and after a crash.
const checkedFile = "CHECKED"

// figures is what a child process tells.
type figures struct {
	OpenMS  float64 // until the store answers
	Heap    float64 // MiB in use after reads and a collection
	RSSAnon float64 // MiB
}

// compareOpen fills a log and bare badger with the same keys and compares how
// long they take to open, and what they take on disk.
func compareOpen(dir string) error { return compareStores(dir, false) }

// compareStore also compares the heap after reads, and measures verify and
// rebuild.
func compareStore(dir string) error {
	if err := compareStores(dir, true); err != nil {
		return err
	}
	return measureRates(filepath.Join(dir, "tally"))
}

func compareStores(dir string, heaps bool) error {
	filled := make([]figures, len(storeSides))
	for i, s := range storeSides {
		var err error
		if filled[i], err = spawn("fill", filepath.Join(dir, s.dir), s.dir); err != nil {
			return err
		}
	}
	for _, s := range storeSides { // compactions that the loading left
		if _, err := spawn("settle", filepath.Join(dir, s.dir), s.dir); err != nil {
			return err
		}
	}
	open, heap := make([][]float64, len(storeSides)), make([][]float64, len(storeSides))
	var through []float64
	for r := range *rounds {
		for k := range storeSides {
			i := (k + r) % len(storeSides)
			at := filepath.Join(dir, storeSides[i].dir)
			f, err := spawn("open", at, storeSides[i].dir)
			if err != nil {
				return err
			}
			open[i] = append(open[i], f.OpenMS)
			if i == 0 {
				if err := os.Remove(filepath.Join(at, checkedFile)); err != nil {
					return fmt.Errorf("the log was not closed well: %w", err)
				}
				if f, err = spawn("open", at, storeSides[i].dir); err != nil {
					return err
				}
				through = append(through, f.OpenMS)
			}
			if !heaps {
				continue
			}
			if f, err = spawn("read", at, storeSides[i].dir); err != nil {
				return err
			}
			heap[i] = append(heap[i], f.Heap)
		}
	}
	header(fmt.Sprintf("%d entries", *entries), "store", "median", "tallystick / it (less is better)")
	for i, s := range storeSides {
		row("open, ms", s.name, number(median(open[i])), ratio(open[0], open[i]))
	}
	row("open and read every table through, ms", "tallystick, once a day and after a crash", number(median(through)), ratio(through, open[1])+" of badger with its options")
	if heaps {
		for i, s := range storeSides {
			row("heap after reads in a fresh process, MiB", s.name, number(median(heap[i])), ratio(heap[0], heap[i]))
		}
		for i, s := range storeSides {
			row("heap after filling and reads, MiB (one run)", s.name, number(filled[i].Heap), fmt.Sprintf("**%.3g**", filled[0].Heap/filled[i].Heap))
		}
	}
	var first float64
	for i, s := range storeSides {
		n, err := diskBytes(filepath.Join(dir, s.dir))
		if err != nil {
			return err
		}
		if i == 0 {
			first = float64(n)
		}
		row("disk, bytes an entry", s.name, number(float64(n)/float64(*entries)), fmt.Sprintf("**%.3g**", first/float64(n)))
	}
	return nil
}

func measureRates(dir string) error {
	l, err := engines.OpenLog(dir, storeKey())
	if err != nil {
		return err
	}
	defer l.Close()
	var verify, rebuild []float64
	for range *rounds {
		start := time.Now()
		v, err := l.Verify(context.Background(), nil)
		if err != nil || len(v.Findings) > 0 {
			return fmt.Errorf("verify: %v, %w", v, err)
		}
		verify = append(verify, float64(v.Entries)/time.Since(start).Seconds())
		start = time.Now()
		if err := l.Rebuild(context.Background(), nil); err != nil {
			return err
		}
		rebuild = append(rebuild, float64(v.Entries)/time.Since(start).Seconds())
	}
	row("verify, entries/s", "tallystick", number(median(verify)), "")
	row("rebuild of a view with four rows an entry, entries/s", "tallystick", number(median(rebuild)), "")
	return nil
}

// spawn runs a part of the table in a process of its own.
func spawn(what, dir, side string) (f figures, err error) {
	self, err := os.Executable()
	if err != nil {
		return f, err
	}
	cmd := exec.Command(self, "-entries", strconv.Itoa(*entries), "-encrypted="+strconv.FormatBool(*encrypted), dir, side)
	cmd.Env = append(os.Environ(), "TALLY_BENCH_CHILD="+what)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return f, fmt.Errorf("%s %s: %w", what, side, err)
	}
	return f, json.Unmarshal(out, &f)
}

func child(what string, args []string) error {
	if what == "idle" {
		return idleBare(args)
	}
	dir, side := args[0], args[1]
	key := storeKey()
	if what == "fill" {
		open := map[string]engines.Open{
			"tally": engines.Tally(key), "tuned": engines.Bare(engines.Tuned(key)), "default": engines.Bare(engines.Default(key)),
		}[side]
		e, err := open(mkdir(dir, ""))
		if err != nil {
			return err
		}
		if err := engines.Load(e, *entries); err != nil {
			return err
		}
		// The store is read through its own handle, so it closes before.
		if err := e.Close(); err != nil {
			return err
		}
	}
	start := time.Now()
	r, err := reader(dir, side, key)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := r.Newest(1, true); err != nil {
		return err
	}
	f := figures{OpenMS: float64(time.Since(start).Microseconds()) / 1000}
	switch what {
	case "settle":
		time.Sleep(5 * time.Second)
	case "fill", "read":
		if l, ok := r.(*engines.LogReader); ok {
			if err := l.Learn(*entries / 10_000); err != nil {
				return err
			}
		}
		for range 20_000 {
			if err := r.Get(); err != nil {
				return err
			}
		}
		for range 1000 {
			if err := r.Newest(20, true); err != nil {
				return err
			}
		}
		if err := r.Scan(); err != nil {
			return err
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		f.Heap, f.RSSAnon = float64(m.HeapAlloc)/(1<<20), rssAnon()
	}
	return json.NewEncoder(os.Stdout).Encode(f)
}

func reader(dir, side string, key []byte) (engines.Reader, error) {
	switch side {
	case "tally":
		return engines.ReadTally(dir, key)
	case "tuned":
		return engines.ReadBare(dir, *entries, engines.Tuned(key))
	}
	return engines.ReadBare(dir, *entries, engines.Default(key))
}

func rssAnon() float64 {
	b, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(b)) {
		if kb, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			n, _ := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kb), "kB")), 64)
			return n / 1024
		}
	}
	return 0
}
