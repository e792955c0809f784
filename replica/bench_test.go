package replica

import (
	"context"
	"testing"
	"time"

	"tallystick/oplog"
)

// catchUpEntries is how many entries BenchmarkCatchUp moves.
const catchUpEntries = 100_000

// fill appends n notes of 300 bytes, many at a time.
func fill(b *testing.B, r *Replica, n int) {
	b.Helper()
	body := append([]byte{0xda, 0x01, 0x2c}, make([]byte, 300)...)
	for n > 0 {
		ops := make([]oplog.Op, min(n, 256))
		for i := range ops {
			ops[i] = oplog.Op{Kind: "note", Author: r.Label() + ":tester:repo", Version: 1, Body: body}
		}
		if _, err := r.Append(context.Background(), ops...); err != nil {
			b.Fatal(err)
		}
		n -= len(ops)
	}
}

// BenchmarkCatchUp compares, in one run, how fast a store takes in the same
// entries: "local" hands the ranges to the log in process, verified and
// folded; "tls" is a replica that catches up from another over TLS on
// loopback, from the first byte to the last folded entry. docs/performance.md
// has the command.
func BenchmarkCatchUp(b *testing.B) {
	src := mustOpen(b, testConfig(b, "src"))
	fill(b, src, catchUpEntries)
	origin, total := src.Self().ID, src.Self().Tips[0].Seq

	b.Run("local", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			m := NewMembership(src.Mesh())
			log, err := oplog.Open(context.Background(), oplog.Config{Dir: b.TempDir(), EncryptionKey: make([]byte, 32),
				Signer: newKey(b), Projections: []oplog.Projection{m, notes{}}, Gate: m, MinFree: -1})
			if err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			for after := uint64(0); after < total; {
				rg, err := src.Log().ReadRange(origin, after, 512<<10)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := log.Ingest(context.Background(), rg); err != nil {
					b.Fatal(err)
				}
				after += uint64(rg.Count)
			}
			b.StopTimer()
			log.Close()
			b.StartTimer()
		}
		b.ReportMetric(float64(total)*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
	})
	b.Run("tls", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			cfg := quiet(b)
			inv, err := src.Invite(context.Background(), InviteOptions{})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := Join(context.Background(), cfg, inv.Token); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			dst := mustOpen(b, cfg)
			for dst.Log().Frontier().Seq(origin) < total {
				changed := dst.Changed()
				if dst.Log().Frontier().Seq(origin) < total {
					<-changed
				}
			}
			b.StopTimer()
			dst.Close()
			b.StartTimer()
		}
		b.ReportMetric(float64(total)*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
	})
}

var benchLabels int

// quiet is a home with a label of its own and nothing logged.
func quiet(b *testing.B) Config {
	benchLabels++
	cfg := testConfig(b, LabelOf("dst"+time.Duration(benchLabels).String()))
	cfg.Logger = nil
	return cfg
}
