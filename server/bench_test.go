package server

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tallystick/oplog"
	"tallystick/query"
	"tallystick/query/logstream"
)

// benchDisk is a service over a log on disk, encrypted and synced as in use.
func benchDisk(b *testing.B) *Service {
	b.Helper()
	projections, _ := query.Default()
	log, err := oplog.Open(context.Background(), oplog.Config{
		Dir: b.TempDir(), Signer: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), EncryptionKey: make([]byte, 32), Projections: projections,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { log.Close() })
	return benchService(b, log)
}

func benchService(b *testing.B, log *oplog.Log) *Service {
	b.Helper()
	wall := &atomic.Int64{}
	wall.Store(time.Now().UnixMilli())
	svc, err := New(Deps{Log: log, Blobs: log, Mesh: &testMesh{log: log, wall: wall, label: "mac"}})
	if err != nil {
		b.Fatal(err)
	}
	return svc
}

// benchEntries is the size of a long log, TALLY_BENCH_EVENTS or a million.
func benchEntries(b *testing.B) int {
	b.Helper()
	s := os.Getenv("TALLY_BENCH_EVENTS")
	if s == "" {
		return 1_000_000
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1000 {
		b.Fatalf("TALLY_BENCH_EVENTS=%q: want a number of at least 1000", s)
	}
	return n
}

// BenchmarkAppend is one event appended through each way in, in turns with the
// library call that does the same durable work.
func BenchmarkAppend(b *testing.B) {
	svc := benchDisk(b)
	log := svc.d.Log
	runDir, _ := listenSocket(b, svc)
	socket := dialSocket(b, ClientOptions{RunDir: runDir})
	stdio := connectStdio(b, socket, claude)
	web, tokens := newHTTP(b, svc, HTTPOptions{})
	overHTTP := connect(b, &mcp.StreamableClientTransport{Endpoint: web.URL(), HTTPClient: &http.Client{Transport: withToken{mustToken(b, tokens, claude)}}}, "")
	defer overHTTP.Close()
	ctx := context.Background()
	args := json.RawMessage(`{"type":"status","stream":"project/x","room":"status","to_agent":"*","body":"what became of it"}`)
	tool := func(cs *mcp.ClientSession) func() error {
		return func() error {
			res, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "event_append", Arguments: args})
			if err == nil && res.IsError {
				err = fmt.Errorf("%s", contentText(res))
			}
			return err
		}
	}
	call := func(backend Backend) func() error {
		return func() error {
			if _, bad := backend.Call(ctx, claude, "event_append", args, NewOpID()); bad != nil {
				return bad
			}
			return nil
		}
	}
	library := func() error {
		op, err := logstream.NewOp("mac:claude:tally", logstream.Event{Type: "status", Stream: "project/x", Room: "status", To: "*", Body: "what became of it"})
		if err == nil {
			_, err = log.Append(ctx, op)
		}
		return err
	}
	for _, way := range []struct {
		name string
		do   func() error
	}{
		{"service", call(svc)}, {"socket", call(socket)}, {"mcp-stdio", tool(stdio)}, {"mcp-http", tool(overHTTP)},
	} {
		b.Run(way.name, func(b *testing.B) {
			var spent [2]time.Duration
			n := 0
			for b.Loop() {
				n++
				for i, do := range []func() error{library, way.do} {
					start := time.Now()
					if err := do(); err != nil {
						b.Fatal(err)
					}
					spent[i] += time.Since(start)
				}
			}
			b.ReportMetric(float64(spent[0].Microseconds())/float64(n), "library-us")
			b.ReportMetric(float64(spent[1].Microseconds())/float64(n), "this-us")
			b.ReportMetric(float64(spent[1])/float64(spent[0]), "x_library")
		})
	}
}

// BenchmarkWake is how long after a commit a waiting call has its answer,
// alone and beside 999 others for whom the event is not. The clock runs from
// when the commit is announced to everybody, whoever hears of it first.
func BenchmarkWake(b *testing.B) {
	for _, others := range []int{0, 999} {
		b.Run(fmt.Sprintf("waiters=%d", others+1), func(b *testing.B) {
			svc := benchDisk(b)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			for i := range others {
				go svc.Call(ctx, codex, "event_wait", json.RawMessage(fmt.Sprintf(`{"to_agent":"nobody%d","timeout_ms":300000}`, i)), "")
			}
			cursor := ""
			woken := make(chan time.Time)
			var delays []time.Duration
			for b.Loop() {
				go func() {
					args := json.RawMessage(fmt.Sprintf(`{"to_agent":"@me","type":"note","timeout_ms":300000,"cursor":%q}`, cursor))
					if cursor == "" {
						args = json.RawMessage(`{"to_agent":"@me","type":"note","timeout_ms":300000}`)
					}
					out, bad := svc.Call(ctx, codex, "event_wait", args, "")
					at := time.Now()
					var r waitResult
					if bad == nil {
						if err := json.Unmarshal(out, &r); err != nil || r.Count != 1 {
							b.Errorf("%s, %v", out, err)
						}
					}
					cursor = r.NextCursor
					woken <- at
				}()
				for len(svc.waits) != others+1 {
					time.Sleep(50 * time.Microsecond)
				}
				committed := make(chan time.Time, 1)
				changed := svc.d.Log.Changed()
				go func() { <-changed; committed <- time.Now() }()
				args := json.RawMessage(`{"type":"note","stream":"s","room":"r","to_agent":"mac:codex:tally"}`)
				if _, bad := svc.Call(ctx, claude, "event_append", args, ""); bad != nil {
					b.Fatal(bad)
				}
				at := <-woken
				delays = append(delays, max(0, at.Sub(<-committed)))
			}
			slices.Sort(delays)
			for _, p := range []int{50, 99} {
				b.ReportMetric(float64(delays[(len(delays)-1)*p/100].Microseconds())/1000, fmt.Sprintf("p%d-ms", p))
			}
		})
	}
}
