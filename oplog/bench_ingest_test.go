package oplog

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"
)

// recorder keeps what each transaction writes, so that bare badger can be
// given exactly the same keys, bytes and transactions.
type recorder struct {
	store
	txns [][]pair
}

func (r *recorder) commit(b *batch) error {
	var t []pair
	b.items.Scan(func(key string, it item) bool {
		if !it.deleted {
			t = append(t, pair{[]byte(key), bytes.Clone(it.value)})
		}
		return true
	})
	r.txns = append(r.txns, t)
	return r.store.commit(b)
}

// fiveRows folds as an event does: five index rows of about 60 bytes.
type fiveRows struct{}

func (fiveRows) Name() string    { return "rows" }
func (fiveRows) Version() uint32 { return 1 }
func (fiveRows) Kinds() []string { return []string{"note"} }
func (fiveRows) Apply(tx Tx, e *Entry) error {
	ref := e.Ref()
	for _, p := range []string{"t", "a", "s", "c", "i"} {
		if err := tx.Insert(append(append([]byte(p), "project/demo"...), ref[:]...), nil); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkIngestAgainstBadger is catch-up without the network: verify, fold
// and commit ranges, against bare badger writing the same transactions.
func BenchmarkIngestAgainstBadger(b *testing.B) {
	const n = 20_000
	src := openTest(b, "src", func(c *Config) { c.Projections = []Projection{fiveRows{}} })
	body := appendBin(nil, benchPayload())
	for i := 0; i < n; i += 64 {
		ops := make([]Op, 64)
		for k := range ops {
			ops[k] = Op{Kind: "note", Author: "mac:claude:bench", OpID: fmt.Sprint("op", i+k), Body: body}
		}
		mustAppend(b, src, ops...)
	}
	var ranges []Range
	for after := uint64(0); ; {
		rg, err := src.ReadRange(src.Self().ID, after, 512<<10)
		if err != nil {
			b.Fatal(err)
		}
		if rg.Count == 0 {
			break
		}
		ranges = append(ranges, rg)
		after = rg.Head.Seq
	}
	for _, enc := range []struct {
		name string
		key  []byte
	}{{"plain", nil}, {"aes256", make([]byte, 32)}} {
		b.Run(enc.name, func(b *testing.B) {
			rec := &recorder{}
			var mine, theirs time.Duration
			total := 0
			for b.Loop() {
				dst := openTest(b, "dst", func(c *Config) {
					c.InMemory, c.Dir, c.EncryptionKey, c.Projections = false, b.TempDir(), enc.key, []Projection{fiveRows{}}
				})
				if rec.txns == nil {
					rec.store = dst.db
					dst.db = rec // before anything is submitted
					ingestAll(b, dst, ranges)
					dst.Close()
					dst = openTest(b, "dst", func(c *Config) {
						c.InMemory, c.Dir, c.EncryptionKey, c.Projections = false, b.TempDir(), enc.key, []Projection{fiveRows{}}
					})
				}
				start := time.Now()
				ingestAll(b, dst, ranges)
				mine += time.Since(start)
				dst.Close()
				s, err := openBadger(b.TempDir(), enc.key, slog.New(slog.DiscardHandler))
				if err != nil {
					b.Fatal(err)
				}
				start = time.Now()
				k := &bareKeys{db: s.db}
				for _, t := range rec.txns {
					k.commit(b, t)
				}
				theirs += time.Since(start)
				s.close()
				total += n
			}
			b.ReportMetric(float64(theirs)/float64(mine), "x_bare")
			b.ReportMetric(float64(total)/mine.Seconds(), "entries/s")
		})
	}
}

// ingestAll verifies the next range while the one before commits, as a
// replica does.
func ingestAll(b *testing.B, l *testLog, ranges []Range) {
	errs := make(chan error, 2)
	slots := make(chan struct{}, 2)
	go func() {
		defer close(errs)
		prev := make(chan struct{})
		close(prev)
		for _, rg := range ranges {
			slots <- struct{}{}
			v, err := l.verifyFor(rg)
			if err != nil {
				errs <- err
				return
			}
			<-prev
			prev = make(chan struct{})
			go func(done chan struct{}) {
				defer close(done)
				if err := l.commitVerified(v); err != nil {
					errs <- err
				}
				<-slots
			}(prev)
		}
		<-prev
	}()
	for err := range errs {
		b.Fatal(err)
	}
}

func (l *testLog) verifyFor(rg Range) (*verified, error) {
	if rg.First > 1 {
		// The origin may still be on its way: wait for the first range.
		for l.Frontier().Seq(rg.Origin) == 0 {
			<-l.Changed()
		}
	}
	return l.verify(rg)
}

func (l *testLog) commitVerified(v *verified) error {
	j := &ingestJob{waiter: newWaiter(), v: v}
	if err := l.submit(context.Background(), j); err != nil {
		return err
	}
	return l.wait(context.Background(), j.waiter)
}
