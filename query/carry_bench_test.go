package query_test

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"slices"
	"testing"
	"time"

	"tallystick/oplog"
	"tallystick/query"
	"tallystick/query/carried"
	"tallystick/query/logstream"
)

// BenchmarkBring carries a log of tasks (a request, a claim, an apply) and
// compares that with appending as many plain events in batches of the same
// size.
func BenchmarkBring(b *testing.B) {
	const tasks = 4_000
	views, _ := query.Default()
	ctx := context.Background()
	fresh := func(seed byte) *oplog.Log {
		log, err := oplog.Open(ctx, oplog.Config{Dir: b.TempDir(), Signer: ed25519.NewKeyFromSeed(append(make([]byte, 31), seed)),
			EncryptionKey: make([]byte, 32), Projections: views})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { log.Close() })
		return log
	}
	event := func(i int) oplog.Op {
		op, err := logstream.NewOp("a:owner:x", logstream.Event{Type: logstream.TypeRequest, Stream: "project/x", Room: "r", Correlation: fmt.Sprint("t", i), Body: "mend it"})
		if err != nil {
			b.Fatal(err)
		}
		return op
	}
	old := fresh(1)
	for part := range slices.Chunk(make([]struct{}, tasks), 256) {
		var ops []oplog.Op
		for range part {
			ops = append(ops, event(int(old.Frontier().Total())*1000+len(ops)))
		}
		res, err := old.Append(ctx, ops...)
		if err != nil {
			b.Fatal(err)
		}
		var acks []oplog.Op
		for i, r := range res {
			for _, status := range []string{logstream.StatusClaimed, logstream.StatusApplied} {
				op, err := logstream.NewAckOp("a:worker:x", logstream.Ack{Event: logstream.Event{Stream: "project/x", Room: "r", Status: status},
					Task: "r\x00" + res[i].Hash.String(), Of: r.Ref})
				if err != nil {
					b.Fatal(err)
				}
				acks = append(acks, op)
			}
		}
		if _, err := old.Append(ctx, acks...); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		plain, now := fresh(2), fresh(3)
		began := time.Now()
		for i := 0; i < 3*tasks; i += 512 {
			var ops []oplog.Op
			for j := range min(512, 3*tasks-i) {
				ops = append(ops, event(i+j))
			}
			if _, err := plain.Append(ctx, ops...); err != nil {
				b.Fatal(err)
			}
		}
		appended := time.Since(began)
		began = time.Now()
		report, err := carried.Bring(ctx, now, old, options("a", "a"))
		if err != nil || report.Total() != 3*tasks {
			b.Fatalf("%+v, %v", report, err)
		}
		carry := time.Since(began)
		b.ReportMetric(float64(carry)/float64(appended), "x-of-append")
		b.ReportMetric(float64(3*tasks)/carry.Seconds(), "entries/s")
	}
}
