package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tallystick/oplog"
	"tallystick/query"
	"tallystick/query/document"
	"tallystick/query/memory"
	"tallystick/query/rawmemory"
	"tallystick/query/search"
	"tallystick/query/search/analysis"
)

// The figures of docs/performance.md about memory and search. Each is a ratio
// within one run, the two sides taking turns; run them with -benchtime=1x.
// TALLY_BENCH_SIZES ("1000,100000") says how much there is, TALLY_BENCH_CALLS
// (300) how often it is asked, and TALLY_BENCH_SMALL=1 makes turns of 5 to 12
// words in place of 15 to 55.

func benchSizes(b *testing.B, standard string) (sizes []int) {
	b.Helper()
	list := os.Getenv("TALLY_BENCH_SIZES")
	if list == "" {
		list = standard
	}
	for s := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil || n < 1 {
			b.Fatalf("TALLY_BENCH_SIZES: %q", s)
		}
		sizes = append(sizes, n)
	}
	return sizes
}

func benchCalls() int {
	if n, err := strconv.Atoi(os.Getenv("TALLY_BENCH_CALLS")); err == nil && n > 0 {
		return n
	}
	return 300
}

// vocabulary makes texts of words by Zipf's law, one in fifteen an identifier.
type vocabulary struct {
	r *rand.Rand
	z *rand.Zipf
}

func newVocabulary(seed uint64) *vocabulary {
	r := rand.New(rand.NewPCG(seed, 1))
	return &vocabulary{r, rand.NewZipf(r, 1.1, 4, 60_000)}
}

func (v *vocabulary) word() string {
	n := v.z.Uint64()
	if v.r.IntN(15) == 0 {
		return fmt.Sprintf("%s_%s", spell(n), spell(n*7+3))
	}
	return spell(n)
}

// spell is the n-th word.
func spell(n uint64) string {
	const consonants, vowels = "bdfgklmnprstvz", "aeiou"
	var b []byte
	for n += 20; n > 0; n /= 70 {
		b = append(b, consonants[n%14], vowels[n/14%5])
	}
	return string(append(b, 'x'))
}

func (v *vocabulary) text(least, most int) string {
	words := make([]string, least+v.r.IntN(most-least+1))
	for i := range words {
		words[i] = v.word()
	}
	return strings.Join(words, " ")
}

// benchLog is an encrypted log on disk with every view of the product.
func benchLog(b *testing.B) *oplog.Log {
	b.Helper()
	views, _ := query.Default()
	log, err := oplog.Open(context.Background(), oplog.Config{
		Dir: b.TempDir(), Signer: ed25519.NewKeyFromSeed(make([]byte, 32)), EncryptionKey: make([]byte, 32), Projections: views,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { log.Close() })
	return log
}

// fill appends n ops in batches.
func fill(b *testing.B, log *oplog.Log, n int, op func(i int) (oplog.Op, error)) {
	b.Helper()
	for i := 0; i < n; {
		var ops []oplog.Op
		for ; i < n && len(ops) < 500; i++ {
			o, err := op(i)
			if err != nil {
				b.Fatal(err)
			}
			ops = append(ops, o)
		}
		if _, err := log.Append(context.Background(), ops...); err != nil {
			b.Fatal(err)
		}
	}
}

func turnOp(v *vocabulary, i int) (oplog.Op, error) {
	t := rawmemory.Turn{Session: fmt.Sprintf("s%d", i/20), ToolCalls: -1}
	if os.Getenv("TALLY_BENCH_SMALL") != "" {
		t.Prompt, t.Response = v.text(2, 5), v.text(3, 7)
	} else {
		t.Prompt, t.Response = v.text(5, 20), v.text(10, 35)
	}
	return rawmemory.NewOp(fmt.Sprintf("mac:agent%d:tally", i/20%20), t)
}

// searchService is a service over a log and its index.
func searchService(b *testing.B, log *oplog.Log, index *search.Index) *Service {
	b.Helper()
	wall := &atomic.Int64{}
	wall.Store(time.Now().UnixMilli())
	svc, err := New(Deps{Log: log, Blobs: log, Mesh: &testMesh{log: log, wall: wall, label: "mac"}, Search: index, Version: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	return svc
}

// times are durations of calls of one way.
type times []time.Duration

func (t times) at(q float64) float64 {
	s := slices.Clone(t)
	slices.Sort(s)
	return float64(s[min(len(s)-1, int(math.Ceil(q*float64(len(s))))-1)]) / float64(time.Millisecond)
}

func timed(b *testing.B, t *times, fn func() error) {
	b.Helper()
	start := time.Now()
	err := fn()
	*t = append(*t, time.Since(start))
	if err != nil {
		b.Fatal(err)
	}
}

// canned is a backend that does nothing: it gives the answer it was told. MCP
// over it costs what the transport costs for an answer of that size.
type canned struct {
	answer atomic.Pointer[json.RawMessage]
}

func (c *canned) Call(context.Context, Session, string, json.RawMessage, string) (json.RawMessage, *Error) {
	return *c.answer.Load(), nil
}

// lineClient speaks to a server over stdio by hand: what a client spends on
// reading an answer is the client's. It returns when the answer's line is here.
func lineClient(b *testing.B, back Backend, s Session) func(tool string, args json.RawMessage) error {
	b.Helper()
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- ServeStdio(context.WithoutCancel(b.Context()), in, out, back, MCPOptions{Session: s, Toolsets: Toolsets{all: true}})
	}()
	b.Cleanup(func() {
		toServer.Close()
		if err := <-ended; err != nil {
			b.Errorf("stdio server ended with %v", err)
		}
	})
	lines := bufio.NewReaderSize(fromServer, 256<<10)
	n := 0
	call := func(method, params string) ([]byte, error) {
		n++
		if _, err := fmt.Fprintf(toServer, `{"jsonrpc":"2.0","id":%d,"method":"%s","params":%s}`+"\n", n, method, params); err != nil {
			return nil, err
		}
		return lines.ReadSlice('\n')
	}
	if _, err := call("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}`); err != nil {
		b.Fatal(err)
	}
	if _, err := io.WriteString(toServer, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"); err != nil {
		b.Fatal(err)
	}
	return func(tool string, args json.RawMessage) error {
		line, err := call("tools/call", `{"name":"`+tool+`","arguments":`+string(args)+`}`)
		if err == nil && (!bytes.Contains(line, []byte(`"structuredContent"`)) || bytes.Contains(line, []byte(`"isError":true`))) {
			err = fmt.Errorf("%s: %.300s", tool, line)
		}
		return err
	}
}

// BenchmarkSearchScale fills a log with turns, lets the index catch up with it
// beside the bare engine that gets the same documents in batches, and then
// asks the bare engine, the API, and MCP over stdio the same questions in turn;
// and MCP over stdio before a server that has the answer ready: its floor.
func BenchmarkSearchScale(b *testing.B) {
	for _, n := range benchSizes(b, "1000,100000") {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			log, v := benchLog(b), newVocabulary(1)
			fill(b, log, n, func(i int) (oplog.Op, error) { return turnOp(v, i) })
			bare, index := catchUp(b, log, n)
			svc := searchService(b, log, index)
			me := Session{Agent: "agent3", Project: "tally", Bound: true}
			floor := &canned{}
			ask, askNone := lineClient(b, svc, me), lineClient(b, floor, me)
			questions := make([]string, benchCalls())
			for i := range questions {
				questions[i] = v.text(3, 3)
			}
			ctx := context.Background()
			var engine, api, overMCP, nothing, recent times
			for i, text := range append(slices.Clone(questions[:min(20, len(questions))]), questions...) {
				if i == min(20, len(questions)) { // the first warm all three up
					engine, api, overMCP, nothing = nil, nil, nil, nil
				}
				args, _ := json.Marshal(map[string]any{"query": text, "nResults": 10})
				timed(b, &engine, func() error {
					_, err := bare.Search(ctx, search.Query{Text: text, Limit: 10, Filter: search.Filter{Kinds: []string{query.DocTurn}}})
					return err
				})
				timed(b, &api, func() error {
					out, bad := svc.Call(ctx, me, "query_raw_memories", args, "")
					floor.answer.Store(&out)
					return asErr(bad)
				})
				timed(b, &nothing, func() error { return askNone("query_raw_memories", args) })
				timed(b, &overMCP, func() error { return ask("query_raw_memories", args) })
				timed(b, &recent, func() error {
					_, bad := svc.Call(ctx, me, "query_recent_turns", json.RawMessage(`{"limit":20}`), "")
					return asErr(bad)
				})
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(engine.at(.5), "bare_p50_ms")
			b.ReportMetric(engine.at(.99), "bare_p99_ms")
			b.ReportMetric(api.at(.5), "api_p50_ms")
			b.ReportMetric(api.at(.99), "api_p99_ms")
			b.ReportMetric(overMCP.at(.5), "mcp_p50_ms")
			b.ReportMetric(overMCP.at(.99), "mcp_p99_ms")
			b.ReportMetric(nothing.at(.5), "floor_p50_ms")
			b.ReportMetric(nothing.at(.99), "floor_p99_ms")
			b.ReportMetric(api.at(.5)/engine.at(.5), "x_api")
			b.ReportMetric(api.at(.99)/engine.at(.99), "x_api_p99")
			b.ReportMetric(overMCP.at(.5)/engine.at(.5), "x_mcp")
			b.ReportMetric(overMCP.at(.99)/engine.at(.99), "x_mcp_p99")
			b.ReportMetric((overMCP.at(.5)-nothing.at(.5))/engine.at(.5), "x_mcp_less_floor")
			b.ReportMetric(recent.at(.5), "recent_p50_ms")
		})
	}
}

// catchUp gives the bare engine and then the index that follows a log of n turns
// the same documents, and reports both rates and the lag on the way.
func catchUp(b *testing.B, log *oplog.Log, n int) (bare, index *search.Index) {
	b.Helper()
	ctx := context.Background()
	open := func(cfg search.Config) *search.Index {
		x, err := search.Open(ctx, cfg)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { x.Close() })
		return x
	}
	bare = open(search.Config{Dir: b.TempDir(), Key: make([]byte, 32)})
	var docs []document.Document
	err := log.View(func(s oplog.Snapshot) error {
		return s.Arrived(0, false, func(_ uint64, e *oplog.Entry) (bool, error) {
			d, err := rawmemory.Documents(s, e)
			docs = append(docs, d...)
			return err == nil, err
		})
	})
	if err != nil {
		b.Fatal(err)
	}
	start := time.Now()
	for part := range slices.Chunk(docs, 1000) {
		if err := bare.Put(ctx, part...); err != nil {
			b.Fatal(err)
		}
	}
	alone := time.Since(start)
	docs = nil
	start = time.Now()
	index = open(search.Config{Log: log, Sources: query.Sources(), Dir: b.TempDir(), Key: make([]byte, 32)})
	lag := make(chan []string, 1)
	done := make(chan struct{})
	go func() {
		var seen []string
		tick := time.NewTicker(max(10*time.Millisecond, alone/8))
		defer tick.Stop()
		for {
			select {
			case <-done:
				lag <- seen
				return
			case <-tick.C:
				seen = append(seen, fmt.Sprintf("%d at %.1fs", index.Status().Behind, time.Since(start).Seconds()))
			}
		}
	}()
	if err := index.CatchUp(ctx); err != nil {
		b.Fatal(err)
	}
	took := time.Since(start)
	close(done)
	if st := index.Status(); st.Documents < n || st.Behind != 0 {
		b.Fatalf("%+v", st)
	}
	b.Logf("behind: %s; 0 at %.1fs", strings.Join(<-lag, ", "), took.Seconds())
	b.ReportMetric(float64(n)/took.Seconds(), "follow_docs/s")
	b.ReportMetric(float64(n)/alone.Seconds(), "bare_docs/s")
	b.ReportMetric(alone.Seconds()/took.Seconds(), "x_follow")
	return bare, index
}

// BenchmarkAddIndexed is memory_add with an index that follows and without
// one, in slices that take turns.
func BenchmarkAddIndexed(b *testing.B) {
	const slice, writers = 1000, 16
	v := newVocabulary(2)
	type side struct {
		svc  *Service
		took time.Duration
	}
	var sides [2]side
	var index *search.Index
	for i := range sides {
		log := benchLog(b)
		if i == 1 {
			var err error
			if index, err = search.Open(context.Background(), search.Config{Log: log, Sources: query.Sources(), Dir: b.TempDir(), Key: make([]byte, 32)}); err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { index.Close() })
		}
		sides[i].svc = searchService(b, log, index)
	}
	worst, rounds := uint64(0), 0
	for b.Loop() {
		for range 4 {
			texts := make([]json.RawMessage, slice)
			for i := range texts {
				texts[i], _ = json.Marshal(map[string]string{"text": v.text(10, 25)})
			}
			for i := range sides {
				start := time.Now()
				var wg sync.WaitGroup
				for w := range writers {
					wg.Go(func() {
						for _, args := range texts[w*slice/writers : (w+1)*slice/writers] {
							if _, bad := sides[i].svc.Call(context.Background(), claude, "memory_add", args, ""); bad != nil {
								b.Error(bad)
							}
						}
					})
				}
				wg.Wait()
				sides[i].took += time.Since(start)
			}
			worst = max(worst, index.Status().Behind)
			rounds++
		}
	}
	n := float64(rounds * slice)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(n/sides[0].took.Seconds(), "off_adds/s")
	b.ReportMetric(n/sides[1].took.Seconds(), "on_adds/s")
	b.ReportMetric(sides[0].took.Seconds()/sides[1].took.Seconds(), "x_on")
	b.ReportMetric(float64(worst), "worst_lag")
}

// scanning is a store that reads, cuts and ranks every fact of a namespace for
// each search, which is what the published behaviour of others comes to; it
// writes nothing back, as they do.
type scanning struct{ texts []string }

func (s *scanning) search(text string, k int) []int {
	words := func(text string) (out []string) {
		for _, t := range analysis.Tokens(text) {
			out = append(out, t.Term)
		}
		return out
	}
	asked, df := words(text), map[string]int{}
	tfs, total := make([]map[string]int, len(s.texts)), 0
	for i, t := range s.texts {
		tfs[i] = map[string]int{}
		for _, w := range words(t) {
			if tfs[i][w]++; tfs[i][w] == 1 {
				df[w]++
			}
			total++
		}
	}
	scores, order := make([]float64, len(s.texts)), make([]int, len(s.texts))
	for i := range s.texts {
		order[i] = i
		for _, w := range asked {
			tf := float64(tfs[i][w])
			scores[i] += math.Log(1+float64(len(s.texts))/float64(1+df[w])) * tf / (tf + 1)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		switch {
		case scores[a] > scores[b]:
			return -1
		case scores[a] < scores[b]:
			return 1
		}
		return a - b
	})
	return order[:min(k, len(order))]
}

// BenchmarkFactScale is memory_add and memory_search in one namespace that
// holds many facts, and a store that scans.
func BenchmarkFactScale(b *testing.B) {
	for _, n := range benchSizes(b, "1000,10000") {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			log, v := benchLog(b), newVocabulary(3)
			store := &scanning{}
			fill(b, log, n, func(int) (oplog.Op, error) {
				text := v.text(16, 16)
				store.texts = append(store.texts, text)
				return memory.NewAdd("mac:claude:tally", memory.Fact{Namespace: "mac:claude:tally", Text: text})
			})
			index, err := search.Open(context.Background(), search.Config{Log: log, Sources: query.Sources(), Dir: b.TempDir(), Key: make([]byte, 32)})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { index.Close() })
			if err := index.CatchUp(context.Background()); err != nil {
				b.Fatal(err)
			}
			svc := searchService(b, log, index)
			cs := connectStdio(b, svc, claude)
			var adds, api, overMCP, scan times
			for range benchCalls() {
				text := v.text(3, 3)
				args, _ := json.Marshal(map[string]any{"query": text})
				fact, _ := json.Marshal(map[string]any{"text": v.text(16, 16)})
				timed(b, &adds, func() error {
					_, bad := svc.Call(context.Background(), claude, "memory_add", fact, "")
					return asErr(bad)
				})
				timed(b, &api, func() error {
					_, bad := svc.Call(context.Background(), claude, "memory_search", args, "")
					return asErr(bad)
				})
				timed(b, &overMCP, func() error { return callMCP(cs, "memory_search", args) })
				timed(b, &scan, func() error { store.search(text, 8); return nil })
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(adds.at(.5), "add_p50_ms")
			b.ReportMetric(adds.at(.99), "add_p99_ms")
			b.ReportMetric(api.at(.5), "search_p50_ms")
			b.ReportMetric(api.at(.95), "search_p95_ms")
			b.ReportMetric(overMCP.at(.5), "mcp_p50_ms")
			b.ReportMetric(scan.at(.5), "scan_p50_ms")
			b.ReportMetric(api.at(.5)/scan.at(.5), "x_scan")
		})
	}
}

func callMCP(cs *mcp.ClientSession, tool string, args json.RawMessage) error {
	res, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err == nil && res.IsError {
		err = fmt.Errorf("%s: %s", tool, contentText(res))
	}
	return err
}
