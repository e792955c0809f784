// Command engines measures the engines that a search index could be made of,
// side by side in one process: bleve's scorch in memory and on disk, postings
// as rows of the encrypted store, and this project's own index. It is a module
// of its own, so that bleve and what it brings stay out of the program.
//
//	cd internal/retrieval/engines && go run . -docs 1000,100000
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// engine is one way to index and to search.
type engine interface {
	name() string
	// add indexes a batch.
	add(ctx context.Context, docs []doc) error
	// search gives the ids of the ten best.
	search(text string) ([]string, error)
	// reopen closes and opens again; false when there is nothing to open.
	reopen(ctx context.Context) (bool, error)
	close() error
	// dir is what is on disk.
	dir() string
}

type doc struct {
	id, session, text string
}

// generator makes texts of the length and the skew of agents' notes: words by
// Zipf's law, one in fifteen an identifier.
type generator struct {
	rng   *rand.Rand
	zipf  *rand.Zipf
	words []string
}

func newGenerator(seed uint64) *generator {
	rng := rand.New(rand.NewPCG(seed, 1))
	g := &generator{rng: rng, zipf: rand.NewZipf(rng, 1.1, 4, 60_000)}
	syllables := strings.Fields("ba ce di fo gu ha je ki lo mu na pe ri so tu va we xi yo zu tion ing ed er ly ment ness able")
	seen := map[string]bool{}
	for len(g.words) <= 60_000 {
		var b strings.Builder
		for range 2 + rng.IntN(3) {
			b.WriteString(syllables[rng.IntN(len(syllables))])
		}
		if w := b.String(); !seen[w] {
			seen[w] = true
			g.words = append(g.words, w)
		}
	}
	return g
}

func (g *generator) word() string { return g.words[g.zipf.Uint64()] }

func (g *generator) doc(n int) doc {
	var b strings.Builder
	for range 15 + g.rng.IntN(40) {
		if g.rng.IntN(15) == 0 {
			fmt.Fprintf(&b, "%s_%s.go ", g.word(), g.word())
			continue
		}
		b.WriteString(g.word())
		b.WriteByte(' ')
	}
	return doc{id: fmt.Sprintf("mem_%012d", n), session: fmt.Sprintf("s%d", n/20), text: b.String()}
}

// query takes three words of one text, neither the commonest nor unknown.
func (g *generator) query() string {
	var words []string
	for len(words) < 3 {
		if w := g.zipf.Uint64(); w > 20 {
			words = append(words, g.words[w])
		}
	}
	return strings.Join(words, " ")
}

func main() {
	sizes := flag.String("docs", "1000,100000", "numbers of documents")
	only := flag.String("only", "", "comma-separated parts of names of engines to run")
	queries := flag.Int("queries", 500, "searches per engine and size")
	profile := flag.String("cpuprofile", "", "write a CPU profile here")
	flag.Parse()
	if *profile != "" {
		f, err := os.Create(*profile)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "engines:", err)
			os.Exit(1)
		}
		defer pprof.StopCPUProfile()
	}
	if err := run(*sizes, *only, *queries); err != nil {
		fmt.Fprintln(os.Stderr, "engines:", err)
		os.Exit(1)
	}
}

func run(sizes, only string, queries int) error {
	ctx := context.Background()
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "docs\tengine\tdocs/s\tOR p50 ms\tOR p99 ms\tword p50 ms\theap MiB\tdisk MiB\tone insert ms\treopen ms\tindexing x\tOR p50 x\t")
	fmt.Fprintln(t, "\t\t\t\t\t\t\t\t\t\tof the first\tof the first\t")
	for _, s := range strings.Split(sizes, ",") {
		n, err := strconv.Atoi(s)
		if err != nil {
			return err
		}
		var base figures
		for _, e := range makers {
			if only != "" && !slices.ContainsFunc(strings.Split(only, ","), func(p string) bool { return strings.Contains(e.label, p) }) {
				continue
			}
			if n > e.most {
				continue
			}
			root, err := os.MkdirTemp("", "engines")
			if err != nil {
				return err
			}
			row, f, err := measure(ctx, e, root, n, queries)
			os.RemoveAll(root)
			if err != nil {
				return fmt.Errorf("%s: %w", e.label, err)
			}
			if base.rate == 0 {
				base = f
			}
			fmt.Fprintf(t, "%s%.2f\t%.2f\t\n", row, f.rate/base.rate, f.p50/base.p50)
			t.Flush()
		}
	}
	return nil
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

// figures are what ratios are made of.
type figures struct{ rate, p50 float64 }

func measure(ctx context.Context, m maker, root string, n, queries int) (string, figures, error) {
	var f figures
	before := heap()
	g := newGenerator(7)
	e, err := m.open(ctx, root)
	if err != nil {
		return "", f, err
	}
	const batch = 1000
	var indexing time.Duration
	for at := 0; at < n; at += batch {
		docs := make([]doc, 0, batch)
		for i := at; i < min(at+batch, n); i++ {
			docs = append(docs, g.doc(i))
		}
		start := time.Now()
		if err := e.add(ctx, docs); err != nil {
			return "", f, err
		}
		indexing += time.Since(start)
	}
	used := heap() - before

	times := func(text func() string) ([]float64, error) {
		var ms []float64
		for range queries {
			q := text()
			start := time.Now()
			if _, err := e.search(q); err != nil {
				return nil, err
			}
			ms = append(ms, float64(time.Since(start).Microseconds())/1000)
		}
		slices.Sort(ms)
		return ms, nil
	}
	or, err := times(g.query)
	if err != nil {
		return "", f, err
	}
	word, err := times(func() string { return g.words[100+g.rng.IntN(5000)] })
	if err != nil {
		return "", f, err
	}
	var one []float64
	for i := range 20 {
		start := time.Now()
		if err := e.add(ctx, []doc{g.doc(n + i)}); err != nil {
			return "", f, err
		}
		one = append(one, float64(time.Since(start).Microseconds())/1000)
	}
	slices.Sort(one)
	reopened := "-"
	start := time.Now()
	if ok, err := e.reopen(ctx); err != nil {
		return "", f, err
	} else if ok {
		if _, err := e.search(g.query()); err != nil {
			return "", f, err
		}
		reopened = fmt.Sprintf("%.0f", float64(time.Since(start).Microseconds())/1000)
	}
	disk := size(e.dir())
	if err := e.close(); err != nil {
		return "", f, err
	}
	f = figures{float64(n) / indexing.Seconds(), at(or, 0.5)}
	return fmt.Sprintf("%d\t%s\t%.0f\t%.2f\t%.2f\t%.2f\t%.0f\t%.1f\t%.2f\t%s\t", n, m.label, float64(n)/indexing.Seconds(),
		at(or, 0.5), at(or, 0.99), at(word, 0.5), used, disk, at(one, 0.5), reopened), f, nil
}

func at(sorted []float64, q float64) float64 {
	return sorted[int(math.Min(float64(len(sorted)-1), q*float64(len(sorted))))]
}

func size(dir string) float64 {
	if dir == "" {
		return 0
	}
	var n int64
	filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if i, err := d.Info(); err == nil {
				n += allocated(i)
			}
		}
		return nil
	})
	return float64(n) / (1 << 20)
}
