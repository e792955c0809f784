package engines

import (
	"context"
	"crypto/ed25519"

	"tallystick/oplog"
)

// Kind is the kind of all entries that the benchmarks write.
const Kind = "note"

// Rows is the projection of the benchmarks: four index rows an entry, as an
// event has (by topic, author, stream and kind).
type Rows struct{}

// Name implements oplog.Projection.
func (Rows) Name() string { return "rows" }

// Version implements oplog.Projection.
func (Rows) Version() uint32 { return 1 }

// Kinds implements oplog.Projection.
func (Rows) Kinds() []string { return []string{Kind} }

// Indexes are the prefixes of the four index rows.
var Indexes = []string{"t", "a", "s", "k"}

// Apply implements oplog.Projection.
func (Rows) Apply(tx oplog.Tx, e *oplog.Entry) error {
	ref := e.Ref()
	for _, p := range Indexes {
		if err := tx.Insert(append([]byte(p), ref[:]...), nil); err != nil {
			return err
		}
	}
	return nil
}

// OpenLog opens the product's log as the benchmarks use it; key nil is a plain
// store.
func OpenLog(dir string, key []byte) (*oplog.Log, error) {
	return oplog.Open(context.Background(), oplog.Config{
		Dir: dir, EncryptionKey: key, Signer: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), MinFree: -1,
		Projections: []oplog.Projection{Rows{}},
	})
}

// Op is an op with a payload as its body.
func Op(payload []byte) oplog.Op {
	body := append([]byte{0xc5, byte(len(payload) >> 8), byte(len(payload))}, payload...)
	return oplog.Op{Kind: Kind, Author: "desk:claude:bench", Version: 1, Body: body}
}

type tally struct{ l *oplog.Log }

// Tally opens the product's log. An append is stamped, hashed, chained, folded
// into four index rows, and covered by a signed head.
func Tally(key []byte) Open {
	return func(dir string) (Engine, error) {
		l, err := OpenLog(dir, key)
		if err != nil {
			return nil, err
		}
		return tally{l}, nil
	}
}

func (t tally) Append(payloads ...[]byte) error {
	ops := make([]oplog.Op, len(payloads))
	for i, p := range payloads {
		ops[i] = Op(p)
	}
	_, err := t.l.Append(context.Background(), ops...)
	return err
}

func (t tally) Close() error { return t.l.Close() }
