package oplog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"pgregory.net/rapid"
)

// namer is a projection of entries of kind "file" that name one blob each:
// body is hash and size.
type namer struct{ contentNotes }

func (namer) Content() []string { return []string{"note", "file"} }
func (namer) Kinds() []string   { return []string{"note", "file"} }
func (n namer) Apply(tx Tx, e *Entry) error {
	if e.Kind == "file" {
		ref := e.Ref()
		return tx.Insert(append([]byte("f"), ref[:]...), nil)
	}
	return n.contentNotes.Apply(tx, e)
}

func (namer) Blobs(e *Entry) []BlobName {
	if e.Kind != "file" {
		return nil
	}
	r := reader{b: e.Body}
	b := r.binN(40)
	return []BlobName{{Hash: Hash(b), Size: int64(binary.BigEndian.Uint64(b[32:]))}}
}

func withBlobs(c *Config) { c.Projections = []Projection{namer{}} }

func fileOp(h Hash, size int64) Op {
	return Op{Kind: "file", Author: "a:b:c", Body: appendBin(nil, binary.BigEndian.AppendUint64(h[:], uint64(size)))}
}

// content is n bytes that do not repeat.
func content(n int, seed byte) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

func mustPut(t testing.TB, l *testLog, data []byte) Hash {
	t.Helper()
	h, n, err := l.PutBlob(context.Background(), bytes.NewReader(data), int64(len(data)))
	if err != nil || n != int64(len(data)) || h != sha256.Sum256(data) {
		t.Fatalf("put of %d bytes: %s, %d, %v", len(data), h, n, err)
	}
	return h
}

// share puts content and writes the entry that names it.
func share(t testing.TB, l *testLog, data []byte) (Hash, Appended) {
	t.Helper()
	h := mustPut(t, l, data)
	return h, mustAppend(t, l, fileOp(h, int64(len(data))))[0]
}

func mustHold(t testing.TB, l *testLog, h Hash, want []byte) {
	t.Helper()
	r, err := l.Blob(h)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, want) || r.Size() != int64(len(want)) {
		t.Fatalf("blob reads as %d bytes, %v; want %d", len(got), err, len(want))
	}
}

// rows counts the keys of a table.
func rows(t testing.TB, l *testLog, tab byte) (n int) {
	t.Helper()
	kv := l.db.snapshot()
	defer kv.release()
	if err := kv.scan([]byte{tab}, nil, false, func(_, _ []byte) (bool, error) { n++; return true, nil }); err != nil {
		t.Fatal(err)
	}
	return n
}

// fetch moves what to misses from one that has it, as replicas do.
func fetch(t testing.TB, to, from *testLog) {
	t.Helper()
	missing, _ := to.MissingBlobs()
	for _, m := range missing {
		for i := m.Have; ; {
			data, size, err := from.BlobChunk(m.Hash, i)
			if err != nil {
				t.Fatal(err)
			}
			res, err := to.PutChunk(context.Background(), m.Hash, size, i, data)
			if err != nil {
				t.Fatal(err)
			}
			if i = res.Have; res.Whole {
				break
			}
		}
	}
}

func TestBlobSizes(t *testing.T) {
	l := openTest(t, "a", onDisk(t), withBlobs)
	for _, n := range []int{1, ChunkSize - 1, ChunkSize, ChunkSize + 1, 3*ChunkSize + 7} {
		data := content(n, byte(n))
		h := mustPut(t, l, data)
		mustHold(t, l, h, data)
		if again := mustPut(t, l, data); again != h {
			t.Error("the same content has two hashes")
		}
		mustAppend(t, l, fileOp(h, int64(n)))
	}
	if got := rows(t, l, tabChunk); got != 1+1+1+2+4 {
		t.Errorf("%d chunks", got)
	}
	if got := rows(t, l, tabUpload); got != 0 {
		t.Errorf("%d uploads are left", got)
	}
	if !l.HasBlob(sha256.Sum256(content(1, 1))) || l.HasBlob(Hash{}) {
		t.Error("HasBlob")
	}
	l = l.reopen(t)
	mustHold(t, l, sha256.Sum256(content(3*ChunkSize+7, 7)), content(3*ChunkSize+7, 7))
}

// A put that does not come to its end leaves nothing, and neither does content
// that no entry names once the log is opened again.
func TestBlobPutThatFailsLeavesNothing(t *testing.T) {
	l := openTest(t, "a", onDisk(t), withBlobs)
	ctx := context.Background()
	data := content(2*ChunkSize+5, 1)
	broken := io.MultiReader(bytes.NewReader(data), iotest.ErrReader(errors.New("cable out")))
	endless := io.LimitReader(rand.NewChaCha8([32]byte{2}), MaxBlob+1)
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	for name, put := range map[string]func() error{
		"reader fails": func() error { _, _, err := l.PutBlob(ctx, broken, -1); return err },
		"too short":    func() error { _, _, err := l.PutBlob(ctx, bytes.NewReader(data), int64(len(data)+1)); return err },
		"too long":     func() error { _, _, err := l.PutBlob(ctx, bytes.NewReader(data), int64(len(data)-1)); return err },
		"empty":        func() error { _, _, err := l.PutBlob(ctx, bytes.NewReader(nil), -1); return err },
		"announced":    func() error { _, _, err := l.PutBlob(ctx, endless, MaxBlob+1); return err },
		"cancelled":    func() error { _, _, err := l.PutBlob(cancelled, bytes.NewReader(data), -1); return err },
	} {
		if err := put(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if b, k, u := rows(t, l, tabBlob), rows(t, l, tabChunk), rows(t, l, tabUpload); b+k+u != 0 {
		t.Errorf("%d blobs, %d chunks, %d uploads are left", b, k, u)
	}
	h := mustPut(t, l, data)
	kept, _ := share(t, l, content(9, 9))
	if err := l.DropBlob(ctx, kept); err != nil || !l.HasBlob(kept) {
		t.Errorf("content that an entry names was dropped, %v", err)
	}
	l = l.reopen(t)
	if l.HasBlob(h) || rows(t, l, tabChunk) != 1 {
		t.Error("content that nothing names outlived the open")
	}
	h = mustPut(t, l, data)
	if err := l.DropBlob(ctx, h); err != nil || l.HasBlob(h) || rows(t, l, tabChunk) != 1 {
		t.Errorf("dropped content is still here, %v", err)
	}
}

// An own entry never names what is not here.
func TestL1_EntryIsNotWrittenBeforeItsBlob(t *testing.T) {
	l := openTest(t, "a", withBlobs)
	data := content(10, 1)
	h := Hash(sha256.Sum256(data))
	if _, err := l.Append(context.Background(), note("first"), fileOp(h, 10)); !errors.Is(err, ErrNoBlob) {
		t.Fatalf("append: %v", err)
	}
	mustPut(t, l, data)
	if _, err := l.Append(context.Background(), fileOp(h, 11)); !errors.Is(err, ErrNoBlob) {
		t.Fatalf("append with another size: %v", err)
	}
	if missing, _ := l.MissingBlobs(); len(missing) != 0 || rows(t, l, tabName) != 0 {
		t.Errorf("a refused entry left %v", missing)
	}
	mustAppend(t, l, fileOp(h, 10))
}

// An entry is folded before its blob arrives; the transfer goes on where it
// was, also after a restart, and content is served only when it was checked.
func TestBlobArrivesAfterItsEntry(t *testing.T) {
	a, b := openTest(t, "a", withBlobs), openTest(t, "b", onDisk(t), withBlobs)
	data := content(3*ChunkSize+1, 1)
	h, _ := share(t, a, data)
	pull(t, b, a, 1<<20)
	if a.Views()[0] != b.Views()[0] {
		t.Error("the view waits for the blob")
	}
	missing, epoch := b.MissingBlobs()
	if len(missing) != 1 || missing[0].Hash != h || missing[0].Size != int64(len(data)) || missing[0].Ref.Origin() != a.Self().ID || epoch == 0 {
		t.Fatalf("missing %+v, epoch %d", missing, epoch)
	}
	ctx := context.Background()
	chunk := func(i uint32) []byte {
		c, _, err := a.BlobChunk(h, i)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	size := int64(len(data))
	for _, i := range []uint32{1, 0, 0, 1} { // out of order and repeated
		if _, err := b.PutChunk(ctx, h, size, i, chunk(i)); err != nil {
			t.Fatal(err)
		}
	}
	b = b.reopen(t)
	if missing, _ = b.MissingBlobs(); len(missing) != 1 || missing[0].Have != 2 || missing[0].Ref.IsZero() {
		t.Fatalf("after reopening: missing %+v", missing)
	}
	if st, err := b.BlobState(h); err != nil || !st.Known || st.Whole || st.Have != 2*ChunkSize || st.Size != size {
		t.Errorf("state %+v, %v", st, err)
	}
	if _, err := b.Blob(h); !errors.Is(err, ErrNotFound) {
		t.Errorf("half a blob is served: %v", err)
	}
	if _, _, err := b.BlobChunk(h, 0); !errors.Is(err, ErrNotFound) {
		t.Errorf("a chunk of half a blob is served: %v", err)
	}
	fetch(t, b, a)
	mustHold(t, b, h, data)
	if missing, _ = b.MissingBlobs(); len(missing) != 0 {
		t.Errorf("still missing %v", missing)
	}
}

func TestA4_ChunksThatDoNotFit(t *testing.T) {
	a, b := openTest(t, "a", withBlobs), openTest(t, "b", withBlobs)
	data := content(ChunkSize+100, 1)
	h, _ := share(t, a, data)
	ctx := context.Background()
	if _, err := b.PutChunk(ctx, h, int64(len(data)), 0, data[:ChunkSize]); !errors.Is(err, ErrBlobUnwanted) {
		t.Errorf("content that nothing names: %v", err)
	}
	pull(t, b, a, 1<<20)
	for _, c := range []struct {
		size  int64
		index uint32
		n     int
	}{{0, 0, 0}, {-1, 0, 1}, {MaxBlob + 1, 0, ChunkSize}, {ChunkSize + 100, 2, 0}, {ChunkSize + 100, 0, ChunkSize - 1}, {ChunkSize + 100, 1, 99}, {10, 1 << 31, 10}} {
		if _, err := b.PutChunk(ctx, h, c.size, c.index, make([]byte, c.n)); !errors.Is(err, ErrBadChunk) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	// Another size than the right one: a liar's chunks give way to the next
	// giver's, and content that is wrong is dropped.
	if _, err := b.PutChunk(ctx, h, 2*ChunkSize, 0, make([]byte, ChunkSize)); err != nil {
		t.Fatal(err)
	}
	if res, err := b.PutChunk(ctx, h, int64(len(data)), 1, data[ChunkSize:]); err != nil || res.Have != 0 {
		t.Fatalf("after a change of size: %+v, %v", res, err)
	}
	bad := bytes.Clone(data)
	bad[5] ^= 1
	if _, err := b.PutChunk(ctx, h, int64(len(data)), 0, bad[:ChunkSize]); err != nil {
		t.Fatal(err)
	}
	if _, err := b.PutChunk(ctx, h, int64(len(data)), 1, bad[ChunkSize:]); !errors.Is(err, ErrBlobHash) {
		t.Fatalf("wrong content: %v", err)
	}
	if b.HasBlob(h) || rows(t, b, tabChunk) != 0 {
		t.Error("wrong content is kept")
	}
	fetch(t, b, a)
	mustHold(t, b, h, data)
}

// TestT5_BlobGoesWithItsLastEntry: on every replica, in whatever order the
// erase comes, and out of every file of a plain store.
func TestT5_BlobGoesWithItsLastEntry(t *testing.T) {
	const secret = "correct-horse-battery-staple"
	open := func(name string) *testLog {
		dir := t.TempDir()
		return openTest(t, name, withBlobs, func(c *Config) {
			c.InMemory, c.Dir = false, dir
			c.change = func(o *badger.Options) { *o = o.WithCompression(options.None) }
		})
	}
	a, b, half := open("a"), open("b"), open("half")
	data := append(content(ChunkSize+10, 3), secret...)
	h, first := share(t, a, data)
	other, _ := share(t, a, content(100, 4))
	second := mustAppend(t, a, fileOp(h, int64(len(data))))[0]
	for _, l := range []*testLog{b, half} {
		pull(t, l, a, 1<<20)
	}
	fetch(t, b, a)
	chunk, size, err := a.BlobChunk(h, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := half.PutChunk(context.Background(), h, size, 0, chunk); err != nil {
		t.Fatal(err)
	}
	if len(grep(t, b.cfg.Dir, secret)) == 0 {
		t.Fatal("this grep cannot find anything")
	}
	mustErase(t, a, first.Hash)
	mustHold(t, a, h, data) // the second entry names it still
	mustErase(t, a, second.Hash)
	late := open("late")
	for name, l := range map[string]*testLog{"a": a, "b": b, "half": half, "late": late} {
		if l != a {
			pull(t, l, a, 1<<20)
		}
		if err := l.ApplyErasures(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := l.Purge(context.Background()); err != nil {
			t.Fatal(err)
		}
		if files := grep(t, l.cfg.Dir, secret); len(files) > 0 {
			t.Errorf("%s: the bytes are still in %v", name, files)
		}
		if missing, _ := l.MissingBlobs(); l.HasBlob(h) || len(missing) > 0 && missing[0].Hash == h {
			t.Errorf("%s: holds or wants the erased content", name)
		}
		if l == a || l == b {
			mustHold(t, l, other, content(100, 4))
		}
		if got, want := rows(t, l, tabName), 1; got != want || rows(t, l, tabUpload) != 0 {
			t.Errorf("%s: %d names, %d uploads", name, got, rows(t, l, tabUpload))
		}
		if l.Views()[0] != a.Views()[0] {
			t.Errorf("%s: another view", name)
		}
	}
}

// TestL1_BlobMachine plays puts, fetches, erases and restarts against what
// must be so: content is whole or not served, and chunks belong to somebody.
func TestL1_BlobMachine(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a, b := openTest(t, "a", withBlobs), openTest(t, "b", withBlobs)
		defer a.Close()
		defer b.Close()
		type shared struct {
			data []byte
			it   Appended
			gone bool
		}
		var all []*shared
		ctx := context.Background()
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			switch rapid.IntRange(0, 4).Draw(rt, "what") {
			case 0, 1:
				data := content(rapid.SampledFrom([]int{1, 1000, ChunkSize, 2*ChunkSize + 1}).Draw(rt, "size"), byte(rapid.IntRange(0, 2).Draw(rt, "seed")))
				_, it := share(t, a, data)
				all = append(all, &shared{data: data, it: it})
			case 2:
				pull(t, b, a, 1<<20)
			case 3:
				missing, _ := b.MissingBlobs()
				for _, m := range missing {
					n := rapid.Uint32Range(0, Chunks(m.Size)-1).Draw(rt, "chunk")
					if data, size, err := a.BlobChunk(m.Hash, n); err == nil {
						if _, err := b.PutChunk(ctx, m.Hash, size, n, data); err != nil {
							rt.Fatal(err)
						}
					}
				}
			case 4:
				if len(all) > 0 {
					s := rapid.SampledFrom(all).Draw(rt, "erase")
					s.gone = true
					mustErase(t, a, s.it.Hash)
				}
			}
		}
		pull(t, b, a, 1<<20)
		if err := b.ApplyErasures(ctx); err != nil {
			rt.Fatal(err)
		}
		fetch(t, b, a)
		live, names, chunks := map[Hash][]byte{}, 0, 0
		for _, s := range all {
			if !s.gone {
				live[sha256.Sum256(s.data)] = s.data
				names++
			}
		}
		for _, data := range live {
			chunks += int(Chunks(int64(len(data))))
		}
		for _, l := range []*testLog{a, b} {
			for h, data := range live {
				mustHold(t, l, h, data)
			}
			if n, bl, k, u := rows(t, l, tabName), rows(t, l, tabBlob), rows(t, l, tabChunk), rows(t, l, tabUpload); n != names || bl != len(live) || k != chunks || u != 0 {
				rt.Fatalf("%d names, %d blobs, %d chunks, %d uploads; want %d, %d, %d, 0", n, bl, k, u, names, len(live), chunks)
			}
		}
	})
}

const crashBlobs = "TALLY_CRASH_BLOBS" // set in the child: put and fetch blobs

// blobCrashChild puts content and names it, and fetches what a second log has,
// until it is killed.
func blobCrashChild(l *Log, say func(string, ...any)) {
	for i := 0; ; i++ {
		data := content((i%4)*ChunkSize+100+i, byte(i))
		binary.BigEndian.PutUint64(data, rand.Uint64()) // what no child before has put: one name a blob
		h, n, err := l.PutBlob(context.Background(), bytes.NewReader(data), -1)
		if err == nil {
			say("put %s", h)
			_, err = l.Append(context.Background(), fileOp(h, n))
		}
		if err != nil {
			say("failed %v", err)
			return
		}
		say("named %s", h)
	}
}

// TestL1_KilledPutLeavesNoHalfBlob kills a child that puts content, over and
// over on one store. After each kill what was named is whole, and nothing else
// is left.
func TestL1_KilledPutLeavesNoHalfBlob(t *testing.T) {
	rng := rand.New(rand.NewPCG(*crashSeed, 2))
	dir := t.TempDir()
	named := map[string]bool{}
	for n := range min(*kills, 200) / 2 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), crashDir+"="+dir, crashBlobs+"=1",
			fmt.Sprintf("%s=%s:%d", crashPoint, []string{pointApplied, pointCommitted, pointPublished, pointAnswered}[n%4], 1+rng.IntN(25)))
		out, err := cmd.Output()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("kill %d: child ended with %v: %s", n, err, out)
		}
		for line := range strings.Lines(string(out)) {
			if f := strings.Fields(line); len(f) == 2 && f[0] == "named" {
				named[f[1]] = true
			}
		}
		cfg := crashConfig(dir)
		withBlobs(&cfg)
		l, err := Open(context.Background(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		tl := &testLog{l, cfg}
		chunks := 0
		for text := range named {
			h, err := ParseHash(text)
			if err != nil {
				t.Fatal(err)
			}
			r, err := l.Blob(h)
			if err != nil {
				t.Fatalf("kill %d: named content %s: %v", n, text, err)
			}
			if _, err := io.Copy(io.Discard, r); err != nil {
				t.Fatalf("kill %d: %v", n, err)
			}
			chunks += int(Chunks(r.Size()))
		}
		// One more may have been named and not told.
		if b, m := rows(t, tl, tabBlob), rows(t, tl, tabName); b != m || b > len(named)+n+1 || rows(t, tl, tabUpload) != 0 || rows(t, tl, tabChunk) > chunks+4*(n+1) {
			t.Fatalf("kill %d: %d blobs, %d names, %d told, %d uploads", n, b, m, len(named), rows(t, tl, tabUpload))
		}
		l.Close()
	}
	if len(named) == 0 {
		t.Error("the child did nothing")
	}
}
