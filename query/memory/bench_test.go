package memory

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"testing"

	"tallystick/oplog"
)

// BenchmarkNamespace adds to, looks up in and lists a namespace that holds
// 1,000 and 10,000 facts already, on disk and encrypted.
func BenchmarkNamespace(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		l, err := oplog.Open(context.Background(), oplog.Config{
			Dir: b.TempDir(), EncryptionKey: make([]byte, 32), MinFree: -1,
			Signer: ed25519.NewKeyFromSeed(make([]byte, 32)), Projections: []oplog.Projection{View{}},
		})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { l.Close() })
		text := func(i int) string {
			return fmt.Sprintf("service %d of team %d listens on port %d since the move to host %d, ask %d", i, i%7, 10000+i, i%31, i%13)
		}
		add := func(from, count int) {
			ops := make([]oplog.Op, count)
			for i := range ops {
				if ops[i], err = NewAdd("mac:a:p", Fact{Namespace: "own", Text: text(from + i)}); err != nil {
					b.Fatal(err)
				}
			}
			if _, err := l.Append(context.Background(), ops...); err != nil {
				b.Fatal(err)
			}
		}
		for i := 0; i < n; i += 500 {
			add(i, 500)
		}
		read := func(name string, fn func(s oplog.Snapshot, i int) error) {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				for i := range b.N {
					if err := l.View(func(s oplog.Snapshot) error { return fn(s, i) }); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		read("list8", func(s oplog.Snapshot, _ int) error {
			_, err := List(s, Filter{Namespaces: []string{"own", Shared}, Limit: 8})
			return err
		})
		read("copies", func(s oplog.Snapshot, i int) error {
			_, err := Copies(s, "own", text(i%n))
			return err
		})
		read("near", func(s oplog.Snapshot, i int) error {
			_, err := Near(s, "own", text(i%n), oplog.Hash{}, 5)
			return err
		})
		b.Run(fmt.Sprintf("add/%d", n), func(b *testing.B) {
			for i := range b.N {
				add(1_000_000+i, 1)
			}
		})
		b.Run(fmt.Sprintf("add500/%d", n), func(b *testing.B) {
			for i := range b.N {
				add(2_000_000+500*i, 500)
			}
		})
	}
}
