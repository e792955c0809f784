package query_test

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"tallystick/oplog"
	"tallystick/query"
	"tallystick/query/claim"
	"tallystick/query/identity"
	"tallystick/query/imported"
	"tallystick/query/internal/foldtest"
	"tallystick/query/logstream"
	"tallystick/query/summary"
)

// BenchmarkFold is the cost of the folds alone, per entry: rows go nowhere.
func BenchmarkFold(b *testing.B) {
	body := "The parser loses the last line when the file ends without a newline; see the attached patch."
	ev := logstream.Event{Type: "status", Stream: "project/x", Room: "status", Body: body, To: "nas:codex:x", Correlation: "task_1"}
	ack := logstream.Ack{Event: ev, Task: "c\x00project/x\x00task_1", Of: oplog.Ref{1}}
	ack.Type, ack.Status = logstream.TypeAck, "claimed"
	sum := summary.Summary{Title: "Fixed the parser", Text: body, Category: "bugfix", Identities: []string{"mac:claude:x"}}
	for _, c := range []struct {
		name, kind string
		body       []byte
	}{
		{"event", logstream.KindEvent, ev.Append(nil)},
		{"ack", logstream.KindAck, ack.Append(nil)},
		{"summary", summary.Kind, sum.Append(nil)},
	} {
		b.Run(c.name, func(b *testing.B) {
			views, _ := query.Default()
			e := foldtest.Entry(1, 1, foldtest.At(1), c.kind, "mac:claude:x", c.body)
			b.ReportAllocs()
			for b.Loop() {
				for _, v := range views {
					for _, k := range v.Kinds() {
						if k == e.Kind {
							if err := v.Apply(sink{}, &e); err != nil {
								b.Fatal(err)
							}
						}
					}
				}
			}
		})
	}
}

// sink is a view that is always empty.
type sink struct{}

func (sink) Get([]byte) ([]byte, error) { return nil, oplog.ErrNotFound }
func (sink) Insert(_, _ []byte) error   { return nil }
func (sink) Set(_, _ []byte) error      { return nil }
func (sink) Delete([]byte) error        { return nil }
func (sink) Scan(_, _ []byte, _ bool, _ func(_, _ []byte) (bool, error)) error {
	return nil
}

// BenchmarkOwnSummaries is get_all_summaries(@me, limit 5) on badger: a page
// costs the page, whatever the size of the ledger.
func BenchmarkOwnSummaries(b *testing.B) {
	for _, n := range flatSizes(b) {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			log := filled(b, n, func(i int) (oplog.Op, error) {
				me := fmt.Sprintf("mac:agent%d:x", i%20)
				return summary.NewOp(me, summary.Summary{
					Title: "Fixed the parser", Text: "It lost the last line.", Category: summary.Categories()[i%7],
					Import: imported.Key{Source: "bench", ID: fmt.Sprint(i), Part: "summary"},
				})
			})
			// The load just before leaves compactions behind that would run beside
			// the reads; a ledger of this size has long settled.
			if err := log.Purge(context.Background()); err != nil {
				b.Fatal(err)
			}
			q := summary.Query{Filter: identity.Filter{Identity: "mac:agent3:x"}, Limit: 5}
			for b.Loop() {
				if err := log.View(func(s oplog.Snapshot) error {
					p, err := summary.List(s, q)
					if p.Total != int64(n/20) || p.Count != 5 {
						b.Fatalf("%+v", p)
					}
					return err
				}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkEventPage is a page of 50 of event_list by inbox, correlation and
// stream, out of 1,000 events and out of a million, in turns. "Common" is one
// event in ten, "rare" are 60 at either size. TALLY_BENCH_EVENTS sets the
// larger size.
func BenchmarkEventPage(b *testing.B) {
	big := 1_000_000
	if s := os.Getenv("TALLY_BENCH_EVENTS"); s != "" {
		var err error
		if big, err = strconv.Atoi(s); err != nil || big < 1000 {
			b.Fatalf("TALLY_BENCH_EVENTS=%q: want a number of at least 1000", s)
		}
	}
	var logs [2]*oplog.Log
	for i, n := range []int{1_000, big} {
		logs[i] = filled(b, n, func(i int) (oplog.Op, error) {
			at := func(every int) string {
				switch {
				case i%every == 1:
					return "common"
				case i%max(1, n/60) == 0:
					return "rare"
				}
				return fmt.Sprint("other", i%1000)
			}
			return logstream.NewOp("mac:claude:x", logstream.Event{Type: "status", Stream: at(10), Room: "r", To: "nas:" + at(10) + ":x", Correlation: at(10), Body: "what became of it"})
		})
		if err := logs[i].Purge(context.Background()); err != nil { // settles what the load left behind
			b.Fatal(err)
		}
	}
	for _, how := range []string{"common", "rare"} {
		for name, f := range map[string]logstream.Filter{
			"inbox": {To: []string{"nas:" + how + ":x"}}, "correlation": {Correlation: how}, "stream": {Stream: how},
		} {
			b.Run(name+"/"+how, func(b *testing.B) {
				var spent, worked [2]time.Duration
				for b.Loop() {
					for i, log := range logs {
						start := time.Now()
						worked[i] += cpuTime(func() {
							if err := log.View(func(s oplog.Snapshot) error {
								p, err := query.Events(s, f, claim.Horizon{})
								if p.Count != 50 {
									b.Fatalf("%d events", p.Count)
								}
								return err
							}); err != nil {
								b.Fatal(err)
							}
						})
						spent[i] += time.Since(start)
					}
				}
				b.ReportMetric(float64(spent[0].Microseconds())/float64(b.N), "small-us")
				b.ReportMetric(float64(spent[1].Microseconds())/float64(b.N), "big-us")
				b.ReportMetric(float64(spent[1])/float64(spent[0]), "x_small")
				b.ReportMetric(float64(worked[1])/float64(worked[0]), "x_small_cpu")
			})
		}
	}
}

// filled is a log on disk with n entries.
func filled(b *testing.B, n int, op func(i int) (oplog.Op, error)) *oplog.Log {
	b.Helper()
	views, _ := query.Default()
	log, err := oplog.Open(context.Background(), oplog.Config{
		Dir: b.TempDir(), Signer: ed25519.NewKeyFromSeed(make([]byte, 32)), EncryptionKey: make([]byte, 32), Projections: views,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := log.Close(); err != nil {
			b.Error(err)
		}
	})
	for i := 0; i < n; {
		var ops []oplog.Op
		for ; i < n && len(ops) < 500; i++ {
			o, err := op(i)
			if err != nil {
				b.Fatal(err)
			}
			ops = append(ops, o)
		}
		if _, err := log.Append(context.Background(), ops...); err != nil {
			b.Fatal(err)
		}
	}
	return log
}
