// Command cmp compares the log with other stores and with bare badger, in
// turns within one run, and prints medians and ratios as Markdown tables.
//
//	go run ./cmp append   durable appends at 1, 16 and 128 writers
//	go run ./cmp read     point get and the newest 20 of an index
//	go run ./cmp open     opening a store, and its disk
//	go run ./cmp store    the same, the heap, verify and rebuild
//	go run ./cmp idle     CPU of two idle replicas and of badger with memberlist
//	go run ./cmp codec    the codec against msgpack by reflection
//	go run ./cmp scale    bytes an entry, open, rebuild and catch-up with the product's views
//
// Flags -rounds, -entries and -for bound how long it takes.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

var (
	rounds    = flag.Int("rounds", 5, "how often each side is measured")
	entries   = flag.Int("entries", 300_000, "entries of the store for \"open\", \"store\" and \"scale\" and, at most 100,000, for \"read\"")
	span      = flag.Duration("for", 400*time.Millisecond, "how long each side appends in a round; \"idle\" takes 25 times that")
	encrypted = flag.Bool("encrypted", false, "encrypt the stores of \"read\", \"open\", \"store\" and \"scale\", on both sides")
	only      = flag.String("only", "", "measure \"append\" only against stores with this in their names")
	scratch   = flag.String("dir", "", "where to make the stores; empty is the system's folder for temporary files")
)

var tables = map[string]func(dir string) error{
	"append": compareAppend, "read": compareRead, "open": compareOpen, "store": compareStore, "idle": compareIdle, "codec": compareCodec, "scale": measureScale,
}

func main() {
	flag.Parse()
	if what := os.Getenv("TALLY_BENCH_CHILD"); what != "" {
		if err := child(what, flag.Args()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if flag.NArg() == 0 || *rounds < 1 {
		flag.Usage()
		os.Exit(2)
	}
	for _, name := range flag.Args() {
		table, ok := tables[name]
		if !ok {
			fmt.Fprintf(os.Stderr, "unknown table %q\n", name)
			os.Exit(2)
		}
		if err := run(name, table); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func run(name string, table func(dir string) error) error {
	dir, err := os.MkdirTemp(*scratch, "tally-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	start, before := time.Now(), load()
	fmt.Printf("\n## %s\n\n", name)
	err = table(dir)
	fmt.Printf("\n%s, %s/%s, %d cores, %s, %s; load %s at the start, %s at the end; took %s\n", time.Now().UTC().Format("2006-01-02 15:04 UTC"),
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), cpuName(), runtime.Version(), before, load(), time.Since(start).Round(time.Second))
	return err
}

// load is the machine's load average of the last minute, "?" where it does not say.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "?"
	}
	return strings.Fields(string(b))[0]
}

func cpuName() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(b)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.TrimSpace(strings.TrimLeft(name, "\t :"))
		}
	}
	return "unknown CPU"
}

func median(x []float64) float64 {
	s := slices.Sorted(slices.Values(x))
	if len(s) == 0 {
		return 0
	}
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// ratio is the median of a[i]/b[i], and the least and the greatest.
func ratio(a, b []float64) string {
	r := make([]float64, len(a))
	for i := range a {
		r[i] = a[i] / b[i]
	}
	return fmt.Sprintf("**%.3g** (%.2g-%.2g)", median(r), slices.Min(r), slices.Max(r))
}

func row(cells ...string) { fmt.Println("| " + strings.Join(cells, " | ") + " |") }

func header(cells ...string) {
	row(cells...)
	fmt.Println(strings.Repeat("|---", len(cells)) + "|")
}

func number(x float64) string {
	switch {
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

// diskBytes is what the files below dir take on disk, holes not counted.
func diskBytes(dir string) (total int64, err error) {
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			total += allocated(info)
		}
		return err
	})
	return total, err
}
