package query_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"tallystick/oplog"
	"tallystick/query/identity"
	"tallystick/query/rawmemory"
)

// flatSizes are the sizes of TALLY_BENCH_SIZES, or 1,000 and 200,000.
func flatSizes(b *testing.B) (sizes []int) {
	b.Helper()
	list := os.Getenv("TALLY_BENCH_SIZES")
	if list == "" {
		return []int{1_000, 200_000}
	}
	for s := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil || n < 1000 {
			b.Fatalf("TALLY_BENCH_SIZES: %q, want numbers of at least 1000", s)
		}
		sizes = append(sizes, n)
	}
	return sizes
}

// BenchmarkRecentTurns is query_recent_turns(@me, limit 20) on badger: a page
// costs the page, however many turns there are.
func BenchmarkRecentTurns(b *testing.B) {
	for _, n := range flatSizes(b) {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			log := filled(b, n, func(i int) (oplog.Op, error) {
				return rawmemory.NewOp(fmt.Sprintf("mac:agent%d:x", i%20), rawmemory.Turn{
					Session: fmt.Sprint("s", i/40), Prompt: "Where is the last line?", Response: "Lost by the parser.", ToolCalls: -1,
				})
			})
			if err := log.Purge(context.Background()); err != nil { // as for the summaries
				b.Fatal(err)
			}
			q := rawmemory.RecentQuery{Filter: identity.Filter{Identity: "mac:agent3:x"}, Limit: 20, Caller: "mac:agent3:x"}
			for b.Loop() {
				if err := log.View(func(s oplog.Snapshot) error {
					p, err := rawmemory.Recent(s, q)
					if p.Total != int64(n/20) || p.Count != 20 {
						b.Fatalf("%d of %d", p.Count, p.Total)
					}
					return err
				}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
