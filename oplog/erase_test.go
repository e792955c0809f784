package oplog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

// contentNotes is byKind with notes declared to be content.
type contentNotes struct{ byKind }

func (contentNotes) Content() []string { return []string{"note"} }
func (contentNotes) Kinds() []string   { return []string{"note", "claim"} }
func (c contentNotes) Apply(tx Tx, e *Entry) error {
	if e.Kind == "claim" {
		ref := e.Ref()
		return tx.Insert(append([]byte("c"), ref[:]...), nil)
	}
	return c.byKind.Apply(tx, e)
}

func withContent(c *Config) { c.Projections = []Projection{contentNotes{byKind{1}}} }

func mustErase(t *testing.T, l *testLog, hashes ...Hash) {
	t.Helper()
	if _, err := l.Erase(context.Background(), "a:b:c", "", "secret", hashes...); err != nil {
		t.Fatal(err)
	}
}

// grep names the files that hold needle. A file that the engine drops after it
// was listed is none of them; what took its place is looked for once more.
func grep(t *testing.T, dir, needle string) (files []string) {
	t.Helper()
	var err error
	for range 100 {
		if files, err = grepOnce(dir, needle); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func grepOnce(dir, needle string) (files []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(needle)) {
			files = append(files, filepath.Base(path))
		}
		return err
	})
	return files, err
}

// TestT5_ErasedBytesAreGone erases on one replica and looks into every file of
// every replica's store: the one that wrote, one that had the entry, one that
// gets it only after the erase, and one that gets it from a relay which knows
// of no erase. The stores are plain and not compressed, so that a grep could
// find the bytes; it does before.
func TestT5_ErasedBytesAreGone(t *testing.T) {
	const secret = "correct-horse-battery-staple"
	open := func(name string) *testLog {
		dir := t.TempDir()
		return openTest(t, name, withContent, func(c *Config) {
			c.InMemory, c.Dir = false, dir
			c.change = func(o *badger.Options) { *o = o.WithCompression(options.None) }
		})
	}
	a, b, relay, late := open("a"), open("b"), open("relay"), open("late")
	write(t, a, "before", 20)
	it := mustAppend(t, a, note("the password is "+secret))[0]
	write(t, a, "after", 20)
	pull(t, b, a, 1<<20)
	pull(t, relay, a, 1<<20)
	for _, l := range []*testLog{a, b, relay} {
		if len(grep(t, l.cfg.Dir, secret)) == 0 {
			t.Fatal("this grep cannot find anything")
		}
	}
	mustErase(t, a, it.Hash)
	// b hears of the erase, late hears of it before it sees the entry.
	pull(t, b, a, 1<<20)
	pull(t, late, a, 1<<20) // a's log has no payload there any more
	later := open("later")
	c := openTest(t, "c", withContent)
	mustErase(t, c, it.Hash)
	pull(t, later, c, 1<<20)     // the erase alone
	pull(t, later, relay, 1<<20) // the entry from one that knows of no erase
	for name, l := range map[string]*testLog{"a": a, "b": b, "late": late, "later": later} {
		if err := l.ApplyErasures(context.Background()); err != nil {
			t.Fatal(err)
		}
		if n := l.ErasePending(); n != 0 {
			t.Errorf("%s: %d erasures pending", name, n)
		}
		if err := l.Purge(context.Background()); err != nil {
			t.Fatal(err)
		}
		if files := grep(t, l.cfg.Dir, secret); len(files) > 0 {
			t.Errorf("%s: the bytes are still in %v", name, files)
		}
		err := l.View(func(s Snapshot) error {
			e, err := s.Entry(it.Ref)
			if err != nil {
				return err
			}
			if e.Present() || e.Hash != it.Hash {
				t.Errorf("%s: the entry is %+v", name, e)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if rows := l.Views()[0].Rows; rows != 40+1 {
			t.Errorf("%s: %d rows, want the notes that are left and the counter", name, rows)
		}
		if l.Views()[0].Digest != a.Views()[0].Digest {
			t.Errorf("%s: another view than the eraser's", name)
		}
		// The chain still verifies: a new replica takes it all.
		fresh := openTest(t, "fresh "+name, withContent)
		pull(t, fresh, l, 1000)
		if fresh.Views()[0].Digest != a.Views()[0].Digest {
			t.Errorf("%s: another view after relaying", name)
		}
		n := l.reopen(t)
		if n.Views()[0].Digest != a.Views()[0].Digest || n.ErasePending() != 0 {
			t.Errorf("%s: another view after reopening", name)
		}
	}
}

func TestT5_StructuralKindsStay(t *testing.T) {
	l := openTest(t, "a", withContent)
	write(t, l, "x", 2)
	claim := mustAppend(t, l, Op{Kind: "claim", Author: "a:b:c", Body: []byte{0xc0}})[0]
	before := l.Views()[0]
	if _, err := l.Erase(context.Background(), "a:b:c", "", "", claim.Hash); !errors.Is(err, ErrStructural) {
		t.Errorf("erase of a claim: %v", err)
	}
	if l.Self().Tips[0].Seq != claim.Ref.Seq() {
		t.Error("a refused erase was written")
	}
	// A peer that allows it convinces nobody else.
	lax := openTest(t, "lax", func(c *Config) { c.Projections = []Projection{laxContent{}} })
	pull(t, lax, l, 1<<20)
	mustErase(t, lax, claim.Hash)
	pull(t, l, lax, 1<<20)
	if err := l.ApplyErasures(context.Background()); err != nil {
		t.Fatal(err)
	}
	if l.Views()[0] != before {
		t.Error("a claim was erased")
	}
}

type laxContent struct{ contentNotes }

func (laxContent) Content() []string { return []string{"note", "claim"} }

func TestL8_RebuildWhileWriting(t *testing.T) {
	l := openTest(t, "a", onDisk(t), withContent)
	write(t, l, "x", 2000)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 200 {
			if _, err := l.Append(context.Background(), note(fmt.Sprint("meanwhile", i))); err != nil {
				t.Error(err)
			}
		}
	})
	var told uint64
	if err := l.Rebuild(context.Background(), func(done, _ uint64) { told = done }); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if told < 2000 {
		t.Errorf("progress ended at %d", told)
	}
	fresh := openTest(t, "fresh", withContent)
	pull(t, fresh, l, 1<<20)
	if got, want := l.Views()[0], fresh.Views()[0]; got != want {
		t.Errorf("rebuilt %+v, folded %+v", got, want)
	}
	l = l.reopen(t)
	if got, want := l.Views()[0], fresh.Views()[0]; got != want {
		t.Errorf("reopened %+v, folded %+v", got, want)
	}
}

// TestT5_TidyingTakesTurns compacts and drops keys from several sides, and
// closes in the middle: the race detector sees when two of them meet in badger.
func TestT5_TidyingTakesTurns(t *testing.T) {
	l := openTest(t, "a", onDisk(t), withContent)
	write(t, l, "x", 50)
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			tidy := l.Purge
			if i%3 == 0 {
				tidy = func(ctx context.Context) error { return l.Rebuild(ctx, nil) }
			}
			if err := tidy(context.Background()); err != nil && !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		})
	}
	if err := l.Purge(context.Background()); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

// picky does not understand version 9.
type picky struct{ contentNotes }

func (p picky) Apply(tx Tx, e *Entry) error {
	if e.Version == 9 {
		return Quarantine("version 9")
	}
	return p.contentNotes.Apply(tx, e)
}

// TestT5_ErasedOutOfEveryView: what is held or quarantined lies in no view, so
// that no view is rebuilt for it. Its bytes go all the same.
func TestT5_ErasedOutOfEveryView(t *testing.T) {
	const secret = "correct-horse-battery-staple"
	a := openTest(t, "a", withContent)
	far := openTest(t, "far", withContent, wallFrom(4_000_000_000_000))
	bad := mustAppend(t, a, Op{Kind: "note", Version: 9, Body: append([]byte{0xd9, byte(len(secret))}, secret...)}, note("behind it"))
	held := mustAppend(t, far, note("in the future: "+secret))
	dir := t.TempDir()
	b := openTest(t, "b", func(c *Config) {
		c.Projections = []Projection{picky{contentNotes{byKind{1}}}}
		c.InMemory, c.Dir = false, dir
		c.change = func(o *badger.Options) { *o = o.WithCompression(options.None) }
	})
	pull(t, b, a, 1<<20)
	pull(t, b, far, 1<<20)
	if len(grep(t, dir, secret)) == 0 || len(asideOf(t, b)) != 2 {
		t.Fatalf("this grep cannot find anything, or nothing is aside: %+v", asideOf(t, b))
	}
	mustErase(t, b, bad[0].Hash, held[0].Hash)
	if n := b.ErasePending(); n != 0 {
		t.Errorf("%d erasures pending", n)
	}
	if err := b.Purge(context.Background()); err != nil {
		t.Fatal(err)
	}
	if files := grep(t, dir, secret); len(files) > 0 {
		t.Errorf("the bytes are still in %v", files)
	}
}

// noWipe is a store whose process ends where old rows would be dropped.
type noWipe struct{ store }

func (noWipe) wipe([]byte) error { return errors.New("the process ends here") }

// TestT5_ErasedAcrossACrash: the process ends after the views have switched and
// before the bytes are off the disk. The next start takes them off.
func TestT5_ErasedAcrossACrash(t *testing.T) {
	const secret = "correct-horse-battery-staple"
	dir := t.TempDir()
	l := openTest(t, "a", withContent, func(c *Config) {
		c.InMemory, c.Dir = false, dir
		c.change = func(o *badger.Options) { *o = o.WithCompression(options.None) }
		c.wrap = func(s store) store { return noWipe{s} }
	})
	it := mustAppend(t, l, note(secret))[0]
	if _, err := l.Erase(context.Background(), "a:b:c", "", "", it.Hash); err == nil {
		t.Fatal("the process did not end")
	}
	again := l.reopen(t, func(c *Config) { c.wrap = nil })
	if err := again.Purge(context.Background()); err != nil {
		t.Fatal(err)
	}
	if files := grep(t, dir, secret); len(files) > 0 {
		t.Errorf("the bytes are still in %v", files)
	}
}

// endsAt is a store whose process ends at one of its commits.
type endsAt struct {
	store
	left *int // commits until then; negative for never
}

func (s endsAt) commit(b *batch) error {
	if *s.left--; *s.left == 0 {
		return errors.New("the process ends here")
	}
	return s.store.commit(b)
}

// TestL8_RebuildCutShort: the process ends in the middle of a rebuild. The next
// start knows nothing of what was folded by then, nor does the next rebuild.
func TestL8_RebuildCutShort(t *testing.T) {
	left := -1
	l := openTest(t, "a", onDisk(t), func(c *Config) { c.wrap = func(s store) store { return endsAt{s, &left} } })
	for i := range 60 { // more than one transaction's worth
		mustAppend(t, l, note(fmt.Sprint(i, strings.Repeat("x", 50_000))))
	}
	before := l.Views()[0]
	left = 2
	if err := l.Rebuild(context.Background(), nil); err == nil {
		t.Fatal("the process did not end")
	}
	again := l.reopen(t, func(c *Config) { c.wrap = nil })
	if got := again.Views()[0]; got != before {
		t.Errorf("the view is %+v after the stop, was %+v", got, before)
	}
	if err := again.Rebuild(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	if got := again.Views()[0]; got != before {
		t.Errorf("the view is %+v rebuilt, was %+v", got, before)
	}
	v, err := again.Verify(context.Background(), nil)
	if err != nil || len(v.Findings) != 0 {
		t.Errorf("verify finds %v, %v", v.Findings, err)
	}
}

func asideOf(t *testing.T, l *testLog) []Aside {
	t.Helper()
	list, err := l.Aside(10)
	if err != nil {
		t.Fatal(err)
	}
	return list
}
