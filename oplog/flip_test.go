package oplog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

var (
	flips    = flag.Int("flips", 32, "how many damaged stores the flip test opens")
	flipSeed = flag.Uint64("flip.seed", 1, "seed of the flip test's choices")
)

const (
	flipDir   = "TALLY_FLIP_DIR"   // set in the child: the damaged store
	flipPlain = "TALLY_FLIP_PLAIN" // set when it is not encrypted
)

func flipConfig(dir string, plain bool) Config {
	cfg := crashConfig(filepath.Join(dir, "store"))
	cfg.StateDir = filepath.Join(dir, "state")
	if plain {
		cfg.EncryptionKey = nil
	}
	// Small tables, so that there are several, and levels.
	cfg.change = func(o *badger.Options) {
		*o = o.WithMemTableSize(1 << 20).WithBaseTableSize(1 << 18).WithValueThreshold(1 << 16)
	}
	return cfg
}

// flipChild opens a damaged store and reads all of it. It prints the hash of
// every entry it is given, and what was reported.
func flipChild(dir string) {
	var said bytes.Buffer
	cfg := flipConfig(dir, os.Getenv(flipPlain) != "")
	cfg.Logger = slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))
	l, err := Open(context.Background(), cfg)
	if err != nil {
		fmt.Printf("refused %t %v\n", errors.Is(err, ErrDamaged) || errors.Is(err, ErrKey), err)
		return
	}
	if l.reason != "" {
		fmt.Println("reported reason", l.reason)
	}
	if said.Len() > 0 {
		fmt.Println("reported", strings.ReplaceAll(said.String(), "\n", " "))
	}
	err = l.View(func(s Snapshot) error {
		return s.Arrived(0, false, func(_ uint64, e *Entry) (bool, error) {
			fmt.Printf("entry %s %x\n", e.Hash, sha256.Sum256(e.Payload))
			return true, nil
		})
	})
	if err != nil {
		fmt.Println("reported read", err)
	}
	v, err := l.Verify(context.Background(), nil)
	if err != nil {
		fmt.Println("reported verify", err)
	} else if len(v.Findings) > 0 {
		fmt.Println("reported finding", v.Findings[0])
	}
	if err := l.Close(); err != nil {
		fmt.Println("reported close", err)
	}
	fmt.Println("done")
}

// Every single damage to a file of a store is harmless, or reported, or keeps
// the store from opening with an error that names the damage. The process never
// ends over it, other bytes are never given, and no entry that was acknowledged
// is missing without a word.
func TestL8_DamagedFilesAreReported(t *testing.T) {
	t.Logf("flip.seed %d, %d flips", *flipSeed, *flips)
	rnd := rand.New(rand.NewPCG(*flipSeed, 0))
	type build struct {
		name  string
		plain bool
		open  bool // copied while it was open: write-ahead logs hold entries
	}
	var dirs []string
	var stores []flipFiles
	var builds []build
	for _, b := range []build{{"encrypted", false, false}, {"plain", true, false}, {"encrypted, running", false, true}, {"plain, running", true, true}} {
		dir, files := flipStore(t, b.plain, b.open)
		dirs, stores, builds = append(dirs, dir), append(stores, files), append(builds, b)
	}
	var want []map[string]bool
	for i, dir := range dirs {
		stores[i].put(t, dir)
		clean := flipRun(t, dir, builds[i].plain)
		if len(clean.reports) > 0 || len(clean.entries) < 400 {
			t.Fatalf("%s: undamaged: %d entries, %v", builds[i].name, len(clean.entries), clean.reports)
		}
		want = append(want, clean.entries)
	}
	outcomes := map[string]int{}
	for n := range *flips {
		which := n % len(stores)
		dir := dirs[which]
		stores[which].put(t, dir)
		what := flipOne(t, rnd, filepath.Join(dir, "store"))
		if strings.Contains(what, ".sst") { // as after a day, or a crash: only then are blocks looked at
			if err := os.Remove(filepath.Join(dir, "store", checkedFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		}
		got := flipRun(t, dir, builds[which].plain)
		outcome := "harmless"
		switch {
		case got.broken != "":
			t.Errorf("%d, %s, %s: %s", n, builds[which].name, what, got.broken)
		case len(got.refused) > 0:
			outcome = "refused"
		case len(got.reports) > 0:
			outcome = "reported"
		}
		missing := 0
		for e := range want[which] {
			if !got.entries[e] {
				missing++
			}
		}
		if outcome == "harmless" && missing > 0 {
			t.Errorf("%d, %s, %s: %d entries are missing without a word", n, builds[which].name, what, missing)
		}
		for e := range got.entries {
			// A new incarnation writes its own birth, and says why.
			if !want[which][e] && !strings.Contains(strings.Join(got.reports, " "), "reason") {
				t.Errorf("%d, %s, %s: %s was never written", n, builds[which].name, what, e)
			}
		}
		outcomes[outcome]++
	}
	t.Logf("outcomes %v", outcomes)
}

// flipStore writes a store and gives a folder for it, and its files.
func flipStore(t *testing.T, plain, open bool) (dir string, files flipFiles) {
	t.Helper()
	dir = t.TempDir()
	cfg := flipConfig(dir, plain)
	ctx := context.Background()
	fill := func(l *Log, rounds int) {
		for i := range rounds {
			var ops []Op
			for k := range 10 {
				body := make([]byte, 600)
				rand.NewChaCha8([32]byte{byte(i), byte(k)}).Read(body)
				ops = append(ops, note(fmt.Sprintf("%d %d %x", i, k, body)))
			}
			if _, err := l.Append(ctx, ops...); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 2 {
		l, err := Open(ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		fill(l, 20)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if !open {
		return dir, flipRead(t, dir)
	}
	l, err := Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fill(l, 10)
	return dir, flipRead(t, dir)
}

// flipFiles are the files of a store and of its state.
type flipFiles map[string][]byte

func flipRead(t *testing.T, dir string) flipFiles {
	t.Helper()
	files := flipFiles{}
	for _, sub := range []string{"store", "state"} {
		found, err := os.ReadDir(filepath.Join(dir, sub))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			if files[filepath.Join(sub, f.Name())], err = os.ReadFile(filepath.Join(dir, sub, f.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	return files
}

// put gives dir the files as they were. The folders stay the same ones: a
// store in another folder is a copy, which is reported whatever is in it.
func (files flipFiles) put(t *testing.T, dir string) {
	t.Helper()
	for name := range flipRead(t, dir) {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, b := range files {
		name = filepath.Join(dir, name)
		// Zeros at the end are a hole, as in the original.
		if err := os.WriteFile(name, bytes.TrimRight(b, "\x00"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(name, int64(len(b))); err != nil {
			t.Fatal(err)
		}
	}
}

// flipOne damages one file and says how.
func flipOne(t *testing.T, rnd *rand.Rand, dir string) string {
	t.Helper()
	var names []string
	for _, pattern := range []string{"*.sst", "*.mem", "*.vlog", "MANIFEST", "KEYREGISTRY", "DISCARD"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		if len(found) > 0 {
			names = append(names, found[rnd.IntN(len(found))])
		}
	}
	name := names[rnd.IntN(len(names))]
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	used := max(1, min(len(b), len(bytes.TrimRight(b, "\x00"))+8))
	at := rnd.IntN(used)
	how := []string{"bit", "bytes", "torn", "page of zeros"}[rnd.IntN(4)]
	switch how {
	case "bit":
		b[at] ^= 1 << rnd.IntN(8)
	case "bytes":
		for i := at; i < min(len(b), at+8); i++ {
			b[i] = byte(rnd.Uint32())
		}
	case "torn":
		b = b[:at]
	default:
		clear(b[at&^4095 : min(len(b), at&^4095+4096)])
	}
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s of %s at %d of %d", how, filepath.Base(name), at, used)
}

type flipResult struct {
	entries          map[string]bool
	reports, refused []string
	broken           string
}

func flipRun(t *testing.T, dir string, plain bool) (r flipResult) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), flipDir+"="+dir)
	if plain {
		cmd.Env = append(cmd.Env, flipPlain+"=1")
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		r.broken = fmt.Sprintf("the process ended with %v: %.2000s", err, stderr.String())
	}
	r.entries = map[string]bool{}
	done := false
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "entry":
			r.entries[rest] = true
		case "reported":
			r.reports = append(r.reports, rest)
		case "refused":
			r.refused, done = append(r.refused, rest), true
			if !strings.HasPrefix(rest, "true ") {
				r.broken = "refused for another reason: " + rest
			}
		case "done":
			done = true
		}
	}
	if !done && r.broken == "" {
		r.broken = "it did not finish: " + string(out)
	}
	return r
}

// BenchmarkOpen_CheckFiles is what reading all files through costs at opening,
// beside the opening itself: bytes are those of the tables.
func BenchmarkOpen_CheckFiles(b *testing.B) {
	dir := b.TempDir()
	cfg := crashConfig(dir)
	l, err := Open(context.Background(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	for i := range 40 {
		var ops []Op
		for k := range 1000 {
			ops = append(ops, note(strings.Repeat(fmt.Sprintf("%d and %d, ", i, k), 20)))
		}
		if _, err := l.Append(context.Background(), ops...); err != nil {
			b.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	var size int64
	tables, _ := filepath.Glob(filepath.Join(dir, "*.sst"))
	for _, name := range tables {
		st, err := os.Stat(name)
		if err != nil {
			b.Fatal(err)
		}
		size += st.Size()
	}
	b.Run("check", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			opts := badger.DefaultOptions(dir).WithEncryptionKey(cfg.EncryptionKey)
			if err := checkFiles(opts, true, slog.New(slog.DiscardHandler)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("open", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			l, err := Open(context.Background(), cfg)
			if err != nil {
				b.Fatal(err)
			}
			if err := l.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// TestL8_FlippedEntryIsMended: bits of two entries flip in a table that is not
// read through when the store is next opened. Both are found by their hashes
// when they are read: they are given to nobody, what lies beside them is, and
// they are put back from a peer, after which the whole log verifies.
func TestL8_FlippedEntryIsMended(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	peer := openTest(t, "a", withContent)
	marks := []string{"the first that goes bad", "the second that goes bad"}
	var bad []Appended
	for _, mark := range marks {
		write(t, peer, "x", 30)
		bad = append(bad, mustAppend(t, peer, note(mark))...)
		write(t, peer, "y", 30)
	}
	b := openTest(t, "b", withContent, func(c *Config) {
		c.InMemory, c.Dir = false, dir
		c.change = func(o *badger.Options) { *o = o.WithCompression(options.None) }
	})
	pull(t, b, peer, 1<<20)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil {
		t.Fatal(err)
	}
	flipped := 0
	for _, name := range tables {
		file, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, mark := range marks {
			for at := 0; ; at++ {
				i := bytes.Index(file[at:], []byte(mark))
				if i < 0 {
					break
				}
				at += i
				file[at] ^= 1 // in the log and in the view
				flipped++
			}
		}
		if err := os.WriteFile(name, file, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if flipped < len(marks) {
		t.Fatalf("%d places flipped in %v", flipped, tables)
	}
	b = b.reopen(t)
	n := 0
	err = b.View(func(s Snapshot) error {
		return s.Arrived(0, false, func(_ uint64, e *Entry) (bool, error) {
			if e.Hash == bad[0].Hash || e.Hash == bad[1].Hash {
				t.Error("a damaged entry was given")
			}
			n++
			return true, nil
		})
	})
	if want := int(peer.Frontier().Total()) - 2; err != nil || n != want {
		t.Errorf("%d entries read, want %d; %v", n, want, err)
	}
	rg, err := b.ReadRange(peer.Self().ID, 0, 1<<20)
	if err == nil && rg.Head.Seq >= bad[0].Ref.Seq() {
		t.Errorf("given up to %d", rg.Head.Seq)
	}
	if n, err := b.SettleDamage(ctx); err != nil || n != 2 {
		t.Fatalf("%d marked, %v", n, err)
	}
	for _, e := range bad {
		mustDo(t, b.PutOwed(ctx, e.Hash, wholeEntry(t, peer, e.Hash)))
	}
	settled(t, b, Damage{Found: 2, Mended: 2})
	mustDo(t, b.Rebuild(ctx, nil)) // the view's copies were flipped too: verify says so, and a rebuild mends it
	if v, err := b.Verify(ctx, nil); err != nil || len(v.Findings) > 0 || b.Views()[0] != peer.Views()[0] {
		t.Errorf("afterwards %+v, %v; view %+v, want %+v", v.Findings, err, b.Views()[0], peer.Views()[0])
	}
	fresh := openTest(t, "c", withContent)
	pull(t, fresh, b, 1<<20)
	if fresh.Views()[0] != peer.Views()[0] {
		t.Error("a peer of it sees another view")
	}
}
