package oplog

import (
	"bufio"
	"context"
	"encoding/hex"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// The crash tests run this test binary again as a child that appends and
// ingests, kill it with SIGKILL, and look at what it left.

var (
	kills     = flag.Int("kills", 40, "how often the crash test kills its child; the nightly target is 10000")
	crashSeed = flag.Uint64("crash.seed", 1, "seed of the crash test's choices")
)

const (
	crashDir   = "TALLY_CRASH_DIR"   // set in the child: the store
	crashPeer  = "TALLY_CRASH_PEER"  // a file with ranges of another origin to ingest
	crashPoint = "TALLY_CRASH_POINT" // point and count at which the child kills itself
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		if err := crashChild(dir); err != nil {
			fmt.Println("failed", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if dir := os.Getenv(flipDir); dir != "" {
		flipChild(dir)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func crashConfig(dir string) Config {
	return Config{
		Dir: dir, EncryptionKey: make([]byte, 32), Signer: deviceKey("crash"),
		Projections: []Projection{byKind{1}}, MinFree: -1,
	}
}

// crashChild appends from four writers and ingests a peer's ranges until it
// is killed. It prints each acknowledged hash after the acknowledgement, and
// each tip before it would be told to a peer.
func crashChild(dir string) error {
	cfg := crashConfig(dir)
	if at := os.Getenv(crashPoint); at != "" {
		name, count, _ := strings.Cut(at, ":")
		left, err := strconv.Atoi(count)
		if err != nil {
			return err
		}
		cfg.hook = func(point string) {
			if point == name {
				if left--; left == 0 {
					if p, err := os.FindProcess(os.Getpid()); err == nil {
						p.Kill()
					}
				}
			}
		}
	}
	if os.Getenv(crashBlobs) != "" {
		withBlobs(&cfg)
	}
	l, err := Open(context.Background(), cfg)
	if err != nil {
		return err
	}
	var out sync.Mutex
	say := func(format string, args ...any) {
		out.Lock()
		defer out.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	say("open")
	if os.Getenv(crashBlobs) != "" {
		blobCrashChild(l, say)
		return nil
	}
	ranges, err := readRanges(os.Getenv(crashPeer))
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for _, rg := range ranges {
			if _, err := l.Ingest(context.Background(), rg); err != nil {
				say("failed ingest %v", err)
				return
			}
			say("ingested %d", rg.Head.Seq)
		}
	})
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				res, err := l.Append(context.Background(), note(fmt.Sprint(os.Getpid(), w, i)))
				if err != nil {
					say("failed append %v", err)
					return
				}
				say("acked %s", res[0].Hash)
				if i%5 == 0 {
					h := l.Self().Head
					say("told %d %s", h.Seq, h.Hash)
				}
			}
		})
	}
	wg.Wait()
	return nil
}

func writeRanges(t *testing.T, path string, from *testLog) {
	t.Helper()
	var b strings.Builder
	for after := uint64(0); ; {
		rg, err := from.ReadRange(from.Self().ID, after, 2000)
		if err != nil {
			t.Fatal(err)
		}
		if rg.Count == 0 {
			break
		}
		fmt.Fprintf(&b, "%d %d %x %x\n", rg.First, rg.Count, rg.Head.Append(nil), rg.Entries)
		after = rg.Head.Seq
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

func readRanges(path string) (out []Range, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(b)) {
		var rg Range
		var head, entries string
		if _, err := fmt.Sscan(line, &rg.First, &rg.Count, &head, &entries); err != nil {
			return nil, err
		}
		h, err := hex.DecodeString(head)
		if err != nil {
			return nil, err
		}
		if rg.Head, _, err = ParseHead(h); err != nil {
			return nil, err
		}
		if rg.Entries, err = hex.DecodeString(entries); err != nil {
			return nil, err
		}
		rg.Origin = rg.Head.Origin
		out = append(out, rg)
	}
	return out, nil
}

// killsPerStore is when the crash test goes on with a new store: each kill
// reads the whole store through, which thousands of kills make long.
const killsPerStore = 200

// TestL1_KilledAnywhereLosesNothing kills a writing child at random moments
// and at every named point of the commit path, over and over on one store.
// After each kill: every acknowledged entry is there, everything told to a
// peer is there, chain and heads verify, and the views equal a rebuild.
func TestL1_KilledAnywhereLosesNothing(t *testing.T) {
	t.Logf("seed %d, %d kills; go test ./oplog -run KilledAnywhere -kills N -crash.seed S", *crashSeed, *kills)
	rng := rand.New(rand.NewPCG(*crashSeed, 1))
	peer := openTest(t, "peer")
	for i := range 400 {
		mustAppend(t, peer, note(fmt.Sprint("peer", i)))
	}
	work := t.TempDir()
	ranges := filepath.Join(work, "ranges")
	writeRanges(t, ranges, peer)
	points := []string{pointApplied, pointCommitted, pointPublished, pointAnswered}
	acked := map[string]bool{}
	told := map[uint64]string{}
	ingested := uint64(0)
	store, total, most := "", 0, uint64(0)
	for n := range *kills {
		if n%killsPerStore == 0 {
			if store != "" {
				if err := os.RemoveAll(store); err != nil {
					t.Fatal(err)
				}
			}
			store = filepath.Join(work, fmt.Sprint("store", n))
			acked, told, ingested = map[string]bool{}, map[uint64]string{}, 0
		}
		env := append(os.Environ(), crashDir+"="+store, crashPeer+"="+ranges)
		lines := 1 + rng.IntN(120)
		if n%2 == 0 {
			env = append(env, fmt.Sprintf("%s=%s:%d", crashPoint, points[n/2%len(points)], 1+rng.IntN(40)))
			lines = -1
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = env
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		sc := bufio.NewScanner(out)
		for sc.Scan() {
			f := strings.Fields(sc.Text())
			switch {
			case len(f) == 2 && f[0] == "acked":
				acked[f[1]] = true
				total++
			case len(f) == 3 && f[0] == "told":
				seq, _ := strconv.ParseUint(f[1], 10, 64)
				told[seq] = f[2]
			case len(f) == 2 && f[0] == "ingested":
				seq, _ := strconv.ParseUint(f[1], 10, 64)
				ingested = max(ingested, seq)
			case len(f) > 0 && f[0] == "failed":
				t.Fatalf("kill %d: child: %s", n, sc.Text())
			}
			if lines--; lines == 0 {
				cmd.Process.Kill()
			}
		}
		cmd.Wait()
		checkAfterCrash(t, n, store, peer, acked, told, ingested)
		most = max(most, ingested)
	}
	t.Logf("%d acknowledged appends; of the last store %d heads told, %d of %d peer entries ingested", total, len(told), ingested, peer.Self().Tips[0].Seq)
	if total == 0 || most == 0 {
		t.Error("the child did nothing")
	}
}

func checkAfterCrash(t *testing.T, n int, store string, peer *testLog, acked map[string]bool, told map[uint64]string, ingested uint64) {
	t.Helper()
	l, err := Open(context.Background(), crashConfig(store))
	if err != nil {
		t.Fatalf("kill %d: reopen: %v", n, err)
	}
	defer l.Close()
	missing := map[string]bool{}
	for h := range acked {
		missing[h] = true
	}
	prev := map[OriginID]Entry{}
	err = l.View(func(s Snapshot) error {
		return s.Arrived(0, false, func(_ uint64, e *Entry) (bool, error) {
			delete(missing, e.Hash.String())
			p := prev[e.Origin]
			if e.Seq != p.Seq+1 || e.Prev != p.Hash {
				return false, fmt.Errorf("seq %d does not follow %d", e.Seq, p.Seq)
			}
			if h, ok := told[e.Seq]; ok && e.Origin == l.w.id && h != e.Hash.String() {
				return false, fmt.Errorf("seq %d was told as %s and is %s", e.Seq, h, e.Hash)
			}
			prev[e.Origin] = *e
			return true, nil
		})
	})
	if err != nil {
		t.Fatalf("kill %d: %v", n, err)
	}
	if len(missing) > 0 {
		t.Fatalf("kill %d: %d of %d acknowledged entries are gone", n, len(missing), len(acked))
	}
	for seq := range told {
		if seq > l.Self().Tips[0].Seq {
			t.Fatalf("kill %d: seq %d was told to peers and is gone", n, seq)
		}
	}
	for _, o := range l.Origins() {
		if !o.Head.IsZero() && !o.Head.Verify(o.Key) {
			t.Fatalf("kill %d: head of %s does not verify", n, o.ID)
		}
	}
	if got := l.Frontier().Seq(peer.w.id); got < ingested {
		t.Fatalf("kill %d: %d peer entries, %d were acknowledged", n, got, ingested)
	}
	// Not openTest: what it opens stays in memory to the end of the test.
	r, err := Open(context.Background(), Config{InMemory: true, Signer: deviceKey("rebuild"), Rand: seeded("rebuild"), MinFree: -1, Projections: []Projection{byKind{1}}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	rebuilt := &testLog{Log: r}
	pull(t, rebuilt, &testLog{Log: l}, 1<<20)
	if got, want := l.Views()[0], rebuilt.Views()[0]; got != want {
		t.Fatalf("kill %d: view %+v, rebuilt %+v", n, got, want)
	}
}
