package search_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"testing"

	"tallystick/oplog"
	"tallystick/query/search"
)

// cuts is a gate that ends the log's own device at the seq which the last entry
// of kind "cut" names.
type cuts struct{}

func (cuts) Name() string    { return "cuts" }
func (cuts) Version() uint32 { return 1 }
func (cuts) Kinds() []string { return []string{"cut"} }
func (cuts) Acts() []string  { return []string{"cut"} }

func (cuts) Decide(oplog.Views, *oplog.Origin, *oplog.Entry) (oplog.Decision, error) {
	return oplog.Decision{}, nil
}
func (cuts) RecheckKinds() []string { return nil }

func (cuts) Apply(tx oplog.Tx, e *oplog.Entry) error {
	return tx.Set([]byte("cut"), bytes.Clone(e.Body))
}

func (cuts) Endings(views oplog.Views) (map[oplog.DeviceKey]oplog.Ending, error) {
	v, err := views.View("cuts").Get([]byte("cut"))
	if errors.Is(err, oplog.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	tip := oplog.Tip{Seq: binary.BigEndian.Uint64(v), Hash: oplog.Hash(v[8:])}
	key := oplog.DeviceKey(deviceKey.Public().(ed25519.PublicKey))
	cut := oplog.Cut{Origin: oplog.OriginID(v[8+len(tip.Hash):]), Tip: tip}
	return map[oplog.DeviceKey]oplog.Ending{key: {Cuts: []oplog.Cut{cut}, Reason: "revoked"}}, nil
}

var deviceKey = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))

// TestT2_BeyondACutIsNotFound: what is void after a revoke leaves the index at
// the next search, also of an index that was closed meanwhile, and although
// nothing came after it the index is not behind.
func TestT2_BeyondACutIsNotFound(t *testing.T) {
	for name, closed := range map[string]bool{"open": false, "closed meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			l, err := oplog.Open(t.Context(), oplog.Config{
				InMemory: true, MinFree: -1, Signer: deviceKey, Projections: []oplog.Projection{notes{}, cuts{}}, Gate: cuts{},
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			cfg := search.Config{Log: l, Sources: []search.Source{source(1)}, Dir: t.TempDir(), Key: bytes.Repeat([]byte{7}, 32)}
			write(t, l, "n1", "live", "an early finding")
			self := l.Self()
			at := binary.BigEndian.AppendUint64(nil, self.Tips[0].Seq)
			at = append(append(at, self.Tips[0].Hash[:]...), self.ID[:]...)
			write(t, l, "n2", "live", "a late finding")
			x := openIndex(t, cfg)
			if got := ids(find(t, x, search.Query{Text: "late"})); got != "n2" {
				t.Fatalf("before the cut: %q", got)
			}
			if _, err := l.Append(t.Context(), oplog.Op{Kind: "cut", Author: "a", Version: 1, Body: at}); err != nil {
				t.Fatal(err)
			}
			find(t, x, search.Query{Text: "late"}) // now the index stands behind the act
			if closed {
				if err := x.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if err := l.ApplyEndings(t.Context()); err != nil {
				t.Fatal(err)
			}
			if closed {
				x = openIndex(t, cfg)
			}
			res := find(t, x, search.Query{Text: "finding"})
			if ids(res) != "n1" || res.Behind != 0 {
				t.Errorf("after the cut: %q, behind %d", ids(res), res.Behind)
			}
			if st := x.Status(); st.Behind != 0 || len(st.Refolds) == 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}
