package replica

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"testing"

	"tallystick/oplog"
)

// files is a small domain of entries that name one blob each: hash and size.
type files struct{}

func (files) Name() string    { return "files" }
func (files) Version() uint32 { return 1 }
func (files) Kinds() []string { return []string{"file"} }
func (files) Content() []string {
	return []string{"file"}
}

func (files) Apply(tx oplog.Tx, e *oplog.Entry) error {
	if len(e.Body) != 42 {
		return oplog.Quarantine("body of %d bytes", len(e.Body))
	}
	ref := e.Ref()
	return tx.Insert(ref[:], nil)
}

func (files) Blobs(e *oplog.Entry) []oplog.BlobName {
	return []oplog.BlobName{{Hash: oplog.Hash(e.Body[2:]), Size: int64(binary.BigEndian.Uint64(e.Body[34:]))}}
}

func fileConfig(t testing.TB, label string) Config {
	cfg := testConfig(t, label)
	cfg.Projections = append(cfg.Projections, files{})
	return cfg
}

func putFile(t testing.TB, r *Replica, data []byte) (oplog.Hash, oplog.Appended) {
	t.Helper()
	h, n, err := r.Log().PutBlob(testContext(t), bytes.NewReader(data), -1)
	if err != nil {
		t.Fatal(err)
	}
	body := binary.BigEndian.AppendUint64(append([]byte{0xc4, 40}, h[:]...), uint64(n))
	res, err := r.Append(testContext(t), oplog.Op{Kind: "file", Author: r.Label() + ":tester:repo", Version: 1, Body: body})
	if err != nil {
		t.Fatal(err)
	}
	return h, res[0]
}

func randomBytes(n int, seed byte) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

func holds(t testing.TB, r *Replica, h oplog.Hash, want []byte) {
	t.Helper()
	eventually(t, "content at "+r.Label(), func() bool { return r.Log().HasBlob(h) })
	b, err := r.Log().Blob(h)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(b); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s has %d bytes, %v", r.Label(), len(got), err)
	}
}

// TestBlobsOverTLS: content reaches a member over a real stream, small and
// large, also one that joins later; an erase takes it away everywhere (T5).
func TestBlobsOverTLS(t *testing.T) {
	a := mustOpen(t, fileConfig(t, "a"))
	large, small := randomBytes(9*oplog.ChunkSize+17, 1), randomBytes(3, 2)
	hl, _ := putFile(t, a, large)
	b := mustJoin(t, a, fileConfig(t, "b"))
	hs, it := putFile(t, a, small)
	holds(t, b, hl, large)
	holds(t, b, hs, small)
	back, _ := putFile(t, b, randomBytes(oplog.ChunkSize, 3))
	holds(t, a, back, randomBytes(oplog.ChunkSize, 3))
	c := mustJoin(t, b, fileConfig(t, "c"))
	for h, want := range map[oplog.Hash][]byte{hl: large, hs: small} {
		holds(t, c, h, want)
	}
	if _, err := a.Log().Erase(testContext(t), "a:tester:repo", "", "a secret", it.Hash); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*Replica{a, b, c} {
		eventually(t, "the erase at "+r.Label(), func() bool {
			st, err := r.Log().BlobState(hs)
			return err == nil && !st.Known
		})
	}
	converged(t, a, b, c)
}
