package sim

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "the seed TestSeed plays; 0 plays one of its own")
	seedsFlag = flag.Int("seeds", 100, "how many seeds TestSeeds plays; CI plays 500")
	showFlag  = flag.Bool("show", false, "TestSeed prints a line for every event")
)

// replay is the command that plays a seed again.
func replay(seed uint64) string {
	return fmt.Sprintf("go test ./internal/sim -run 'TestSeed$' -seed %d -show", seed)
}

// TestSeed plays one seed, twice: the trace must be the same.
func TestSeed(t *testing.T) {
	cfg := Config{Seed: *seedFlag}
	if *showFlag {
		cfg.Trace = os.Stdout
	}
	first, err := Run(context.Background(), cfg)
	if err != nil {
		t.Fatalf("seed %d: %v\nreplay: %s", cfg.Seed, err, replay(cfg.Seed))
	}
	t.Logf("%+v", first)
	cfg.Trace = nil
	second, err := Run(context.Background(), cfg)
	if err != nil {
		t.Fatalf("seed %d, played again: %v", cfg.Seed, err)
	}
	if first != second {
		t.Errorf("seed %d plays differently the second time:\n%+v\n%+v", cfg.Seed, first, second)
	}
}

// TestSeeds plays many seeds. It proves, within what the seeds reach: L1, L2,
// L5, M1, K1 and the liveness of the core after healing.
func TestSeeds(t *testing.T) {
	n := *seedsFlag
	if testing.Short() {
		n = min(n, 50)
	}
	var next, frames, losers, withheld, failed atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				seed := uint64(next.Add(1))
				if seed > uint64(n) || failed.Load() > 3 {
					return
				}
				res, err := Run(context.Background(), Config{Seed: seed})
				if err != nil {
					failed.Add(1)
					t.Errorf("seed %d: %v\nreplay: %s", seed, err, replay(seed))
				}
				frames.Add(int64(res.Frames))
				losers.Add(int64(res.Losers))
				withheld.Add(int64(res.Withheld))
			}
		})
	}
	wg.Wait()
	t.Logf("%d seeds, %d frames, %d claims lost, %d payloads withheld", n, frames.Load(), losers.Load(), withheld.Load())
	if withheld.Load() < int64(n) && !t.Failed() {
		t.Errorf("only %d payloads withheld in %d seeds", withheld.Load(), n)
	}
	if losers.Load() < int64(n) && !t.Failed() {
		t.Errorf("only %d claims lost in %d seeds: the races do not race", losers.Load(), n)
	}
}
