package oplog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// testdata/store-v0 is a store as the first format wrote it, closed properly;
// testdata/store-v0.txt says what is in it. Both are kept for good: a later
// format that needs a migration opens this store and migrates it. The flag
// -add-golden writes them where they are missing.
const firstStore = "store-v0"

// firstWall is the wall clock of the first store: 2026-03-01 12:00:00 UTC.
const firstWall = 1772366400000

// firstFold is the projection of the first store. It must never change: the
// rows on disk are its rows.
type firstFold struct{}

func (firstFold) Name() string      { return "first" }
func (firstFold) Version() uint32   { return 1 }
func (firstFold) Kinds() []string   { return []string{"note", "file"} }
func (firstFold) Content() []string { return []string{"note"} }

func (firstFold) Apply(tx Tx, e *Entry) error {
	if bytes.Equal(e.Body, appendStr(nil, "bad")) {
		return Quarantine("bad body")
	}
	ref := e.Ref()
	return tx.Insert(append([]byte(e.Kind+" "), ref[:]...), e.Body)
}

func (firstFold) Blobs(e *Entry) []BlobName { return namer{}.Blobs(e) }

// firstPeer folds the same kinds and refuses nothing, so that it can write
// what the store sets aside.
type firstPeer struct{}

func (firstPeer) Name() string           { return "peer" }
func (firstPeer) Version() uint32        { return 1 }
func (firstPeer) Kinds() []string        { return []string{"note", "newer"} }
func (firstPeer) Apply(Tx, *Entry) error { return nil }

func firstConfig(dir string) func(*Config) {
	return func(c *Config) {
		c.Signer, _, _ = goldenKey()
		c.InMemory, c.Dir = false, dir
		c.Projections = []Projection{firstFold{}}
		c.Wall = func() int64 { return firstWall }
	}
}

// writeFirstStore makes the store: entries of three origins, a repeated op id,
// a fork, an erased payload, content as a blob, one entry of an unknown kind,
// one that cannot be folded and one that is held for its stamp.
func writeFirstStore(t *testing.T, dir string) {
	l := openTest(t, "first", firstConfig(dir))
	at := func(ms int64) func(*Config) {
		return func(c *Config) {
			c.Wall = func() int64 { return firstWall + ms }
			c.Projections = []Projection{firstPeer{}}
		}
	}
	write(t, l, "own", 12)
	mustAppend(t, l, Op{Kind: "note", Author: "desk:claude:tallystick", OpID: "op-1", Body: appendStr(nil, "once")})
	share(t, l, content(3000, 1))
	secret := mustAppend(t, l, note("to be erased"))[0]

	peer := openTest(t, "peer", at(-1000))
	write(t, peer, "peer", 300) // so that a head is kept for ranges to end at
	mustAppend(t, peer, note("bad"), Op{Kind: "newer", Author: "a:b:c", Body: appendStr(nil, "?")})
	fast := openTest(t, "fast", at(3600_000))
	write(t, fast, "ahead of its time", 2)
	for _, p := range []*testLog{peer, fast} {
		exchange(t, l, p, 16<<10)
	}
	// Two logs that were one: the same seed gives them the same incarnation.
	for _, text := range []string{"left", "right"} {
		twin := openTest(t, "twin", at(0))
		write(t, twin, "common", 2)
		write(t, twin, text, 3)
		exchange(t, l, twin, 16<<10)
	}
	mustErase(t, l, secret.Hash)
	if err := l.ApplyErasures(context.Background()); err != nil {
		t.Fatal(err)
	}
	write(t, l, "last", 3)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// storeText lists what a store holds, in words: every branch with its head,
// every entry with its exact bytes' hash, what is aside, the views and blobs.
func storeText(t *testing.T, l *testLog) string {
	t.Helper()
	var b strings.Builder
	for _, o := range l.Origins() {
		fmt.Fprintf(&b, "origin %s key %x incarnation %x last %d self %v forked %v\n", o.ID, o.Key[:8], o.Incarnation[:8], o.LastTime, o.Self, o.Forked())
		for _, tip := range o.Tips {
			fmt.Fprintf(&b, "tip %d %s\n", tip.Seq, tip.Hash)
		}
	}
	for _, h := range l.Heads() {
		fmt.Fprintf(&b, "head %s\n", hex.EncodeToString(h.Append(nil)))
	}
	snap := l.db.snapshot()
	defer snap.release()
	err := snap.scan([]byte{tabEntry}, nil, false, func(key, value []byte) (bool, error) {
		e, err := parseStored(value)
		if err != nil {
			return false, err
		}
		fmt.Fprintf(&b, "entry %x state %d %s %s author %q op %q payload %v\n", key[1:], value[0], e.Hash, e.Kind, e.Author, e.OpID, e.Present())
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	aside, err := l.Aside(100)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range aside {
		fmt.Fprintf(&b, "aside %s %s held %v\n", a.Ref.Stamp(), a.Kind, a.Held)
	}
	for _, v := range l.Views() {
		fmt.Fprintf(&b, "view %s %s rows %d\n", v.Name, v.Digest, v.Rows)
	}
	return b.String()
}

// firstStoreText reads the list of what the first store holds, writing both if
// they are missing and the flag says so.
func firstStoreText(t *testing.T) (dir, text string) {
	t.Helper()
	dir, path := filepath.Join("testdata", firstStore), filepath.Join("testdata", firstStore+".txt")
	want, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && *addGolden {
		writeFirstStore(t, dir)
		// A megabyte of zeros, and the engine makes another.
		if err := os.Remove(filepath.Join(dir, "DISCARD")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		copied := t.TempDir()
		if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		want = []byte(storeText(t, openTest(t, "first", firstConfig(copied))))
		err = os.WriteFile(path, want, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir, string(want)
}

// copyFirstStore gives a test its own copy of the first store.
func copyFirstStore(t *testing.T) (dir, text string) {
	t.Helper()
	from, text := firstStoreText(t)
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return dir, text
}

// TestL8_FirstStoreHasEveryTable: the first store has keys in every table that
// docs/format-disk.md names, and in no other, but for what came later and for
// chunks that nobody has: a store that was closed has dropped them.
func TestL8_FirstStoreHasEveryTable(t *testing.T) {
	dir, _ := copyFirstStore(t)
	l := openTest(t, "first", firstConfig(dir))
	snap := l.db.snapshot()
	defer snap.release()
	var got []byte
	err := snap.scan(nil, []byte{0}, false, func(key, _ []byte) (bool, error) {
		if len(got) == 0 || got[len(got)-1] != key[0] {
			got = append(got, key[0])
		}
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var want []byte
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z])` \\|").FindAllStringSubmatch(readFormat(t), -1) {
		if !slices.Contains([]byte{tabUpload, tabAmend, tabOwed}, row[1][0]) {
			want = append(want, row[1][0])
		}
	}
	slices.Sort(want)
	if !bytes.Equal(got, want) {
		t.Errorf("the first store has tables %q, the page %q", got, want)
	}
}

// TestL8_FirstFormatOpens opens a store that the first format wrote and finds
// all of it: every entry and head, the views as they were and as a rebuild
// gives them, the content; and writes on in it, in the same incarnation.
func TestL8_FirstFormatOpens(t *testing.T) {
	dir, want := copyFirstStore(t)
	l := openTest(t, "first", firstConfig(dir))
	if l.Doubt() != "" || !l.Self().Self || len(l.Self().Tips) != 1 {
		t.Fatalf("the store is not taken for its own: %q, %+v", l.Doubt(), l.Self())
	}
	if got := storeText(t, l); got != want {
		t.Errorf("the store opens with\n%s\nit was written with\n%s", got, want)
	}
	verify := func() {
		t.Helper()
		v, err := l.Verify(context.Background(), nil)
		if err != nil || len(v.Findings) > 0 || v.Entries < 300 || v.Entries != v.Payloads+1 {
			t.Errorf("verify: %+v, %v", v, err)
		}
	}
	verify()
	data := content(3000, 1)
	mustHold(t, l, sha256.Sum256(data), data)
	views := l.Views()
	if err := l.Rebuild(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	if got := l.Views(); got[0] != views[0] {
		t.Errorf("rebuilt views %+v, as stored %+v", got, views)
	}

	self := l.Self()
	again := mustAppend(t, l, Op{Kind: "note", Author: "desk:claude:tallystick", OpID: "op-1", Body: appendStr(nil, "twice")})[0]
	if !again.Replayed {
		t.Error("an op id of the old store counts twice (A2)")
	}
	res := mustAppend(t, l, note("written by a later version"))[0]
	if res.Ref.Seq() != self.Tips[0].Seq+1 || res.Ref.Origin() != self.ID {
		t.Errorf("the first entry after is %d of %s, the last before %d of %s", res.Ref.Seq(), res.Ref.Origin(), self.Tips[0].Seq, self.ID)
	}
	views = l.Views()
	l = l.reopen(t)
	if got := l.Views(); got[0] != views[0] {
		t.Errorf("views after reopening %+v, before %+v", got, views)
	}
	verify()
	peer := openTest(t, "later", func(c *Config) {
		c.Projections, c.Wall = l.cfg.Projections, l.cfg.Wall
	})
	exchange(t, peer, l, 16<<10)
	sameState(t, l, peer)
}
