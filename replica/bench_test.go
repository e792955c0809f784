package replica

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"

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

// BenchmarkCatchUp compares, in one run and in turns, a replica that catches
// up from another over TLS on loopback, from the first byte to the last folded
// entry, with bare badger that is given the same keys and values in
// transactions of the same size. x_bare is our rate as a multiple of badger's;
// docs/performance.md has the command.
func BenchmarkCatchUp(b *testing.B) {
	src := mustOpen(b, testConfig(b, "src"))
	fill(b, src, catchUpEntries)
	origin, total := src.Self().ID, src.Self().Tips[0].Seq
	var (
		rows         []row
		mine, theirs time.Duration
	)
	for b.Loop() {
		cfg := quiet(b)
		inv, err := src.Invite(context.Background(), InviteOptions{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := Join(context.Background(), cfg, inv.Token); err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		dst := mustOpen(b, cfg)
		for dst.Log().Frontier().Seq(origin) < total {
			changed := dst.Changed()
			if dst.Log().Frontier().Seq(origin) < total {
				<-changed
			}
		}
		mine += time.Since(start)
		key := dst.keys.store
		dst.Close()
		if rows == nil {
			rows = dumpStore(b, dst.cfg.storeDir(), key)
		}
		theirs += replayStore(b, rows, key)
	}
	b.ReportMetric(float64(theirs)/float64(mine), "x_bare")
	b.ReportMetric(float64(total)*float64(b.N)/mine.Seconds(), "entries/s")
	b.ReportMetric(float64(total)*float64(b.N)/theirs.Seconds(), "bare/s")
}

type row struct{ key, value []byte }

// benchStore opens bare badger with the options of the log's store.
func benchStore(b *testing.B, dir string, key []byte) *badger.DB {
	b.Helper()
	db, err := badger.Open(badger.DefaultOptions(dir).WithSyncWrites(true).WithDetectConflicts(false).
		WithMemTableSize(16 << 20).WithNumMemtables(2).WithBlockCacheSize(16 << 20).WithIndexCacheSize(16 << 20).
		WithValueLogFileSize(64 << 20).WithNumCompactors(2).WithNumLevelZeroTables(3).WithNumLevelZeroTablesStall(8).
		WithMetricsEnabled(false).WithLogger(nil).WithEncryptionKey(key))
	if err != nil {
		b.Fatal(err)
	}
	return db
}

func dumpStore(b *testing.B, dir string, key []byte) (rows []row) {
	b.Helper()
	db := benchStore(b, dir, key)
	defer db.Close()
	err := db.View(func(txn *badger.Txn) error {
		it := txn.NewIterator(badger.DefaultIteratorOptions)
		defer it.Close()
		for it.Rewind(); it.Valid(); it.Next() {
			v, err := it.Item().ValueCopy(nil)
			if err != nil {
				return err
			}
			rows = append(rows, row{it.Item().KeyCopy(nil), v})
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return asWritten(rows)
}

// asWritten orders rows as a replica writes them: what belongs to an entry
// together, each table in its own order, hashes in none.
func asWritten(rows []row) []row {
	tables := map[byte][]row{}
	for _, r := range rows {
		tables[r.key[0]] = append(tables[r.key[0]], r)
	}
	hashes := tables['h']
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(hashes), func(i, j int) { hashes[i], hashes[j] = hashes[j], hashes[i] })
	out := make([]row, 0, len(rows))
	entries := len(tables['e'])
	taken := map[byte]int{}
	for i := 1; i <= entries; i++ {
		for t, list := range tables {
			for upTo := len(list) * i / entries; taken[t] < upTo; taken[t]++ {
				out = append(out, list[taken[t]])
			}
		}
	}
	return out
}

func replayStore(b *testing.B, rows []row, key []byte) time.Duration {
	b.Helper()
	db := benchStore(b, b.TempDir(), key)
	defer db.Close()
	start := time.Now()
	for len(rows) > 0 {
		txn := db.NewTransaction(true)
		n := 0
		for n < 1<<20 && len(rows) > 0 {
			if err := txn.Set(rows[0].key, rows[0].value); err != nil {
				b.Fatal(err)
			}
			n += len(rows[0].key) + len(rows[0].value) + 16
			rows = rows[1:]
		}
		if err := txn.Commit(); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(start)
}

var benchLabels int

// quiet is a home with a label of its own and nothing logged.
func quiet(b *testing.B) Config {
	benchLabels++
	cfg := testConfig(b, LabelOf("dst"+time.Duration(benchLabels).String()))
	cfg.Logger = nil
	return cfg
}
