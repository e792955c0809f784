package oplog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

// benchStore is a closed log of 40,000 notes of about 500 bytes, read with the
// engine's options as they are or changed.
func benchStore(b *testing.B, change func(*badger.Options)) (*Log, []Ref) {
	b.Helper()
	cfg := crashConfig(b.TempDir())
	l, err := Open(context.Background(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	var refs []Ref
	for i := range 40 {
		var ops []Op
		for k := range 1000 {
			ops = append(ops, note(strings.Repeat(fmt.Sprintf("%d and %d, ", i, k), 40)))
		}
		res, err := l.Append(context.Background(), ops...)
		if err != nil {
			b.Fatal(err)
		}
		for _, r := range res {
			refs = append(refs, r.Ref)
		}
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	cfg.change = change
	if l, err = Open(context.Background(), cfg); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	return l, refs
}

// BenchmarkCheck_Blocks reads entries here and there, more than the cache
// holds, and in order, with the engine's block checksums looked at and not.
func BenchmarkCheck_Blocks(b *testing.B) {
	for _, mode := range []options.ChecksumVerificationMode{options.NoVerification, options.OnBlockRead} {
		name := map[options.ChecksumVerificationMode]string{options.NoVerification: "off", options.OnBlockRead: "on"}[mode]
		l, refs := benchStore(b, func(o *badger.Options) { *o = o.WithChecksumVerificationMode(mode) })
		b.Run("get/"+name, func(b *testing.B) {
			rnd := rand.New(rand.NewPCG(1, 2))
			for b.Loop() {
				err := l.View(func(s Snapshot) error {
					_, err := s.Entry(refs[rnd.IntN(len(refs))])
					return err
				})
				if err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("scan/"+name, func(b *testing.B) {
			for b.Loop() {
				n := 0
				err := l.View(func(s Snapshot) error {
					return s.Arrived(0, false, func(uint64, *Entry) (bool, error) { n++; return true, nil })
				})
				if err != nil || n < len(refs) {
					b.Fatal(n, err)
				}
			}
		})
	}
}

// BenchmarkCheck_Serve reads ranges for a peer, which looks at each entry's
// hashes and at the chain, beside that look alone.
func BenchmarkCheck_Serve(b *testing.B) {
	l, _ := benchStore(b, nil)
	var ranges []Range
	var size int64
	for after := uint64(0); ; {
		rg, err := l.ReadRange(l.Self().ID, after, 512<<10)
		if err != nil {
			b.Fatal(err)
		}
		if rg.Count == 0 {
			break
		}
		ranges = append(ranges, rg)
		size += int64(len(rg.Entries))
		after = rg.Head.Seq
	}
	b.Run("range", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			for _, rg := range ranges {
				if _, err := l.ReadRange(rg.Origin, rg.First-1, 512<<10); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("look", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			for _, rg := range ranges {
				for rest := rg.Entries; len(rest) > 0; {
					var err error
					if _, rest, err = ParseEntry(rest); err != nil {
						b.Fatal(err)
					}
				}
			}
		}
	})
}
