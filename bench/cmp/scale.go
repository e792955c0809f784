package main

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"tallystick/oplog"
	"tallystick/query"
	"tallystick/query/logstream"
	"tallystick/query/memory"
	"tallystick/query/rawmemory"
	"tallystick/query/summary"
)

// share is a kind of write and how many of a hundred it is in a heavy day.
type share struct {
	name    string
	percent int
	make    func(text func() string, i int) (oplog.Op, error)
}

const scaleAuthor = "desk:claude:tallystick"

var shares = []share{
	{"event", 40, func(text func() string, i int) (oplog.Op, error) {
		return logstream.NewOp(scaleAuthor, logstream.Event{
			Type: "status", Stream: "project/x", Room: "status", To: "nas:codex:x", Correlation: fmt.Sprint("task_", i/5), Body: text(),
		})
	}},
	{"summary", 10, func(text func() string, i int) (oplog.Op, error) {
		return summary.NewOp(scaleAuthor, summary.Summary{Title: "Mended what was broken", Text: text(), Category: summary.Categories()[i%7]})
	}},
	{"fact", 20, func(text func() string, i int) (oplog.Op, error) {
		t := text()
		return memory.NewAdd(scaleAuthor, memory.Fact{Namespace: "x", Text: strings.ToValidUTF8(t[:min(len(t), 300)], "")})
	}},
	{"turn", 30, func(text func() string, i int) (oplog.Op, error) {
		return rawmemory.NewOp(scaleAuthor, rawmemory.Turn{Session: fmt.Sprint("session-", i/50), Prompt: text(), Response: text() + "\n" + text(), Agent: "claude", ToolCalls: 3})
	}},
}

// texts are what people wrote to their agents, where the data is at hand, else
// made-up words of like lengths.
func texts() (pick func() string, source string) {
	var all []string
	f, err := os.Open(filepath.Join("..", "..", "shared", "data", "agent-work.beads.jsonl"))
	if err == nil {
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var row struct{ Title, Description, Notes string }
			if json.Unmarshal(lines.Bytes(), &row) == nil {
				if t := strings.TrimSpace(row.Title + "\n" + row.Description + "\n" + row.Notes); t != "" {
					all = append(all, t)
				}
			}
		}
	}
	source = fmt.Sprintf("texts of %d issues", len(all))
	if len(all) == 0 {
		words := strings.Fields("the parser lost last line of file when it ends without newline so test was added and patch sent to review by agent on other machine because build failed there after merge with conflict in lock and nobody had seen it before release")
		for range 2000 {
			var b strings.Builder
			for b.Len() < 100+rand.IntN(800) {
				fmt.Fprintf(&b, "%s%d ", words[rand.IntN(len(words))], rand.IntN(40))
			}
			all = append(all, b.String())
		}
		source = "made-up texts"
	}
	return func() string { return all[rand.IntN(len(all))] }, source
}

func openScale(dir, name string) (*oplog.Log, error) {
	seed := make([]byte, ed25519.SeedSize)
	copy(seed, name)
	projections, _ := query.Default()
	return oplog.Open(context.Background(), oplog.Config{
		Dir: dir, Signer: ed25519.NewKeyFromSeed(seed), MinFree: -1, Projections: projections, EncryptionKey: storeKey(),
	})
}

// measureScale writes what agents write, with the product's views, and says
// what an entry of each kind takes on disk after compaction; then a store of
// all kinds, its open, heap, catch-up and rebuild.
func measureScale(dir string) error {
	pick, source := texts()
	header("kind ("+source+")", "entries", "payload B", "disk B, log and views")
	for _, s := range shares {
		n := *entries / 10
		payload, disk, err := fillScale(filepath.Join(dir, s.name), n, func(int) share { return s }, pick)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		row(s.name, fmt.Sprint(n), number(payload), number(disk))
	}
	mixed := filepath.Join(dir, "mixed")
	payload, disk, err := fillScale(mixed, *entries, func(i int) share {
		at := i * 37 % 100
		for _, s := range shares {
			if at -= s.percent; at < 0 {
				return s
			}
		}
		return shares[0]
	}, pick)
	if err != nil {
		return err
	}
	row("heavy day: 40 % events, 10 % summaries, 20 % facts, 30 % turns", fmt.Sprint(*entries), number(payload), number(disk))
	fmt.Println()

	var open []float64
	var l *oplog.Log
	for r := range *rounds {
		if l != nil {
			if err := l.Close(); err != nil {
				return err
			}
		}
		start := time.Now()
		if l, err = openScale(mixed, "mixed"); err != nil {
			return err
		}
		if r > 0 || *rounds == 1 {
			open = append(open, float64(time.Since(start).Microseconds())/1000)
		}
	}
	defer l.Close()
	start := time.Now()
	v, err := l.Verify(context.Background(), nil)
	if err != nil || len(v.Findings) > 0 {
		return fmt.Errorf("verify: %v, %w", v, err)
	}
	verify := time.Since(start)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	start = time.Now()
	if err := l.Rebuild(context.Background(), nil); err != nil {
		return err
	}
	rebuild := time.Since(start)
	start = time.Now()
	if err := catchUp(filepath.Join(dir, "new"), l); err != nil {
		return err
	}
	caught := time.Since(start)
	header("mixed store", "")
	row("rows in views, an entry", number(float64(v.Rows)/float64(v.Entries)))
	row("open, ms", number(median(open)))
	row("heap after reading all of it, MiB", number(float64(m.HeapAlloc)/(1<<20)))
	row("verify, entries/s", number(float64(v.Entries)/verify.Seconds()))
	row("rebuild of all views, entries/s", number(float64(v.Entries)/rebuild.Seconds()))
	row("catch-up of a new replica without a network: verified, folded, synced, entries/s", number(float64(v.Entries)/caught.Seconds()))
	return nil
}

// fillScale writes n entries and compacts. It returns payload and disk bytes an entry.
func fillScale(dir string, n int, kind func(i int) share, pick func() string) (payload, disk float64, err error) {
	l, err := openScale(mkdir(dir, ""), filepath.Base(dir))
	if err != nil {
		return 0, 0, err
	}
	total := 0
	for i := 0; i < n; {
		var ops []oplog.Op
		for size := 0; len(ops) < 256 && size < 256<<10 && i < n; i++ {
			op, err := kind(i).make(pick, i)
			if err != nil {
				return 0, 0, err
			}
			ops = append(ops, op)
			size += len(op.Body)
		}
		for _, op := range ops {
			total += len(op.Body)
		}
		if _, err := l.Append(context.Background(), ops...); err != nil {
			return 0, 0, err
		}
	}
	if err := l.Purge(context.Background()); err != nil {
		return 0, 0, err
	}
	if err := l.Close(); err != nil {
		return 0, 0, err
	}
	bytes, err := diskBytes(dir)
	return float64(total) / float64(n), float64(bytes) / float64(n), err
}

// catchUp copies a log range by range, as a peer does, but without a network.
func catchUp(dir string, from *oplog.Log) error {
	to, err := openScale(mkdir(dir, ""), "new")
	if err != nil {
		return err
	}
	defer to.Close()
	for origin := from.Self().ID; ; {
		r, err := from.ReadRange(origin, to.Frontier().Seq(origin), 512<<10)
		if err != nil || r.Count == 0 {
			return err
		}
		if _, err := to.Ingest(context.Background(), r); err != nil {
			return err
		}
	}
}
