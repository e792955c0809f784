package oplog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/dgraph-io/badger/v4"

	"tallystick/hlc"
)

const page = 4096

// disk is what a store's files hold at one moment.
type disk map[string][]byte

func readDisk(dir string) (disk, error) {
	d := disk{}
	list, err := os.ReadDir(dir)
	for _, f := range list {
		if d[f.Name()], err = os.ReadFile(filepath.Join(dir, f.Name())); err != nil {
			return nil, err
		}
	}
	return d, err
}

func (d disk) writeTo(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	zero := make([]byte, page)
	for name, b := range d {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		err = f.Truncate(int64(len(b)))
		for at := 0; at < len(b) && err == nil; at += page {
			if p := cut(b, at); !bytes.Equal(p, zero[:len(p)]) { // the files are sparse
				_, err = f.WriteAt(p, int64(at))
			}
		}
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// changed lists the pages that differ, as "file" and offset.
func changed(before, after disk) (files []string, pages map[string][]int) {
	pages = map[string][]int{}
	for name, b := range after {
		old := before[name]
		for at := 0; at < max(len(b), len(old)); at += page {
			if !bytes.Equal(cut(old, at), cut(b, at)) {
				pages[name] = append(pages[name], at)
			}
		}
		if len(pages[name]) > 0 {
			files = append(files, name)
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			files = append(files, name)
		}
	}
	slices.Sort(files)
	return files, pages
}

func cut(b []byte, at int) []byte { return b[min(at, len(b)):min(at+page, len(b))] }

// smallFiles make a store whose files can be copied at every sync.
func smallFiles(o *badger.Options) { *o = o.WithMemTableSize(8 << 20).WithValueLogFileSize(2 << 20) }

// recorded writes with a copy of the disk at every point where a sync has
// ended, and how many own entries are on it.
func recorded(t *testing.T, writes func(l *testLog)) (disks []disk, seqs []uint64, cfg Config) {
	t.Helper()
	var mu sync.Mutex
	var l *testLog
	ready := make(chan struct{})
	l = openTest(t, "crash", onDisk(t), func(c *Config) {
		c.change = smallFiles
		c.hook = func(point string) {
			<-ready
			if point != pointCommitted {
				return
			}
			d, err := readDisk(c.Dir)
			if err != nil {
				t.Error(err)
			}
			err = l.View(func(s Snapshot) error {
				mu.Lock()
				defer mu.Unlock()
				disks, seqs = append(disks, d), append(seqs, s.LastArrival())
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
	close(ready)
	writes(l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	cfg = l.cfg
	cfg.hook = nil
	return disks, seqs, cfg
}

// opensWith opens what a crash left, without any repair, and wants everything
// up to least, nothing beyond most, and a log that verifies.
func opensWith(t *testing.T, what string, d disk, cfg Config, least, most uint64) {
	t.Helper()
	cfg.Dir = d.writeTo(t)
	l, err := Open(context.Background(), cfg)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	defer l.Close()
	got := l.Self().Tips[0].Seq
	if got != least && got != most {
		t.Fatalf("%s: %d entries, want %d, or %d if the last batch is whole", what, got, least, most)
	}
	v, err := l.Verify(context.Background(), nil)
	if err != nil || len(v.Findings) > 0 || v.Entries != got {
		t.Fatalf("%s: %+v, %v", what, v, err)
	}
	if _, err := l.Append(context.Background(), note("goes on")); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// TestL1_PowerLoss: between two syncs the power goes, and of the pages that
// were not synced any may be on the disk and any not. The store opens without
// repair, holds all that was synced, has the last batch whole or not at all,
// and verifies. A batch is in one file, so that no other file can lose a part
// of it.
func TestL1_PowerLoss(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	disks, seqs, cfg := recorded(t, func(l *testLog) {
		for i, size := range []int{10, 300, 5000, 10, 40_000, 9000, 70_000} {
			mustAppend(t, l, note(strings.Repeat(fmt.Sprint(i%10), size)), note("beside it"))
		}
	})
	for i := 1; i < len(disks); i++ {
		before, after := disks[i-1], disks[i]
		files, pages := changed(before, after)
		if len(files) != 1 || filepath.Ext(files[0]) != ".mem" {
			t.Fatalf("sync %d changed %v, want one log file", i, files)
		}
		torn := pages[files[0]]
		for try := range 6 {
			d := disk{}
			for name, b := range after {
				d[name] = bytes.Clone(b)
			}
			lost := 0
			for n, at := range torn {
				if try == 0 || try == 1 && n == 0 || try == 2 && n == len(torn)-1 || try > 2 && rng.IntN(2) == 0 {
					copy(cut(d[files[0]], at), cut(before[files[0]], at))
					lost++
				}
			}
			opensWith(t, fmt.Sprintf("sync %d, %d of %d pages lost", i, lost, len(torn)), d, cfg, seqs[i-1], seqs[i])
		}
	}
	if len(disks) < 7 {
		t.Errorf("only %d syncs", len(disks))
	}
}

// TestL1_TornLastBatch: the last batch ends in the middle, at any byte. It is
// cut off as a whole, and what is before it is untouched.
func TestL1_TornLastBatch(t *testing.T) {
	disks, seqs, cfg := recorded(t, func(l *testLog) {
		mustAppend(t, l, note("first"))
		mustAppend(t, l, note("second"), note(strings.Repeat("x", 300)))
	})
	before, after := disks[0], disks[1]
	files, _ := changed(before, after)
	old, whole := before[files[0]], after[files[0]]
	from, to := 0, len(whole)
	for old[from] == whole[from] {
		from++
	}
	for old[to-1] == whole[to-1] {
		to--
	}
	step := max(1, (to-from)/40)
	for at := from; at < to; at += step {
		d := disk{}
		for name, b := range after {
			d[name] = bytes.Clone(b)
		}
		copy(d[files[0]][at:], old[at:])
		opensWith(t, fmt.Sprintf("torn %d bytes into a batch of %d", at-from, to-from), d, cfg, seqs[0], seqs[1])
	}
}

// faulty is a store whose commits fail from some time on.
type faulty struct {
	store
	left  atomic.Int64 // commits until then
	wrote bool         // the commit that fails has reached the disk all the same
}

func (f *faulty) commit(b *batch) error {
	if f.left.Add(-1) >= 0 {
		return f.store.commit(b)
	}
	if f.wrote {
		if err := f.store.commit(b); err != nil {
			return err
		}
	}
	return fmt.Errorf("sync: %w", syscall.EIO)
}

// TestL1_FailedSync: the disk reports an error at a sync. The writer stops,
// nobody is told that anything is safe, and the same file is not tried again.
// Opened anew, all that was acknowledged is there and verifies, whether or not
// the failed batch reached the disk.
func TestL1_FailedSync(t *testing.T) {
	for _, wrote := range []bool{false, true} {
		f := &faulty{wrote: wrote}
		f.left.Store(1 << 40)
		l := openTest(t, "a", onDisk(t), func(c *Config) {
			c.wrap = func(s store) store { f.store = s; return f }
		})
		write(t, l, "safe", 5)
		told := l.Self().Head
		f.left.Store(0)
		if _, err := l.Append(context.Background(), note("unsafe")); !errors.Is(err, syscall.EIO) {
			t.Fatalf("append on a failing disk: %v", err)
		}
		<-l.Done()
		if !errors.Is(l.Err(), syscall.EIO) {
			t.Errorf("the log stopped for %v", l.Err())
		}
		if _, err := l.Append(context.Background(), note("more")); !errors.Is(err, ErrClosed) {
			t.Errorf("append after that: %v", err)
		}
		if h := l.Self().Head; h != told {
			t.Errorf("a head of unsynced entries can be told: %d, was %d", h.Seq, told.Seq)
		}
		if got := l.Frontier().Seq(l.Self().ID); got != told.Seq {
			t.Errorf("advertises %d, %d are durable", got, told.Seq)
		}
		l.Close()
		l = l.reopen(t, func(c *Config) { c.wrap = nil })
		if got := l.Self().Tips[0].Seq; got != told.Seq && !(wrote && got == told.Seq+1) {
			t.Errorf("%d entries after reopening, %d were acknowledged", got, told.Seq)
		}
		v, err := l.Verify(context.Background(), nil)
		if err != nil || len(v.Findings) > 0 {
			t.Errorf("after reopening: %+v, %v", v, err)
		}
		write(t, l, "goes on", 1)
	}
}

// TestA3c_CrashAfterAPromise: an idle replica promises a floor an hour ahead
// of its entries, crashes at once, and its wall clock comes up an hour slow.
// What it stamps next keeps the promise.
func TestA3c_CrashAfterAPromise(t *testing.T) {
	now := int64(1_800_000_000_000)
	var copied disk
	l := openTest(t, "a", onDisk(t), func(c *Config) {
		c.change = smallFiles
		c.Wall = func() int64 { return now }
		c.hook = func(point string) {
			if point == pointAnswered {
				var err error
				if copied, err = readDisk(c.Dir); err != nil {
					t.Error(err)
				}
			}
		}
	})
	mustAppend(t, l, note("one"))
	now += 3_600_000
	h, err := l.RaiseFloor(context.Background(), 0)
	if err != nil || h.Floor < hlc.New(now, 0) {
		t.Fatalf("floor %v, %v", h.Floor, err)
	}
	cfg := l.cfg
	l.Close() // waits for the copy; the copy is of before
	now -= 2 * 3_600_000
	cfg.Dir, cfg.hook = copied.writeTo(t), nil
	again, err := Open(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	res, err := again.Append(context.Background(), note("two"))
	if err != nil {
		t.Fatal(err)
	}
	if got := res[0].Ref.Time(); got < h.Floor || res[0].Ref.Origin() != l.Self().ID {
		t.Errorf("stamped %v, below the floor %v that was promised", got, h.Floor)
	}
}
