package search

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tallystick/oplog"
	"tallystick/query/search/analysis"
)

// Log is what the index follows; *oplog.Log is one.
type Log interface {
	View(fn func(oplog.Snapshot) error) error
	Changed() <-chan struct{}
}

// Config says what to index and where to keep it. The zero value is an empty
// index in memory, filled by Put.
type Config struct {
	// Log is followed by arrival number; Sources turn its entries into
	// documents.
	Log     Log
	Sources []Source
	// Dir keeps the index over a restart. Empty means memory only: it is then
	// folded anew at each start.
	Dir string
	// Key encrypts what is kept: the store's own key, from which another is
	// derived. Without one nothing is written to Dir unless Plain says that
	// the store is not encrypted either (T3).
	Key   []byte
	Plain bool
	// Vectorizer adds an arm that compares meaning. Nil is off.
	Vectorizer Vectorizer
	// Logger takes warnings. Nil means silence.
	Logger *slog.Logger
}

// Index finds documents. It is safe for concurrent use.
type Index struct {
	cfg   Config
	log   *slog.Logger
	print [32]byte // fingerprint of what makes the terms

	analysers sync.Pool

	// stepping serialises whoever moves the index forward: the follower, a
	// search that waits for a write, Put, Close.
	stepping sync.Mutex
	file     *file
	dirty    int    // documents that no file holds
	covered  uint64 // see readFrom
	ahead    *ahead // guarded by stepping

	mu      sync.RWMutex
	c       *core
	pos     mark
	caught  <-chan struct{} // open: nothing was committed since pos was the end; or nil
	fault   string          // why the index does not follow, or empty
	refolds []string

	vec    *embedder
	cancel context.CancelFunc
	done   sync.WaitGroup
	closed sync.Once
}

type analyser struct{ analysis.Analyser }

// mark is a place in the local order of arrival. The hash tells whether the
// log is still the one that was followed.
type mark struct {
	arrival uint64
	hash    oplog.Hash
}

const (
	// stepEntries and stepBytes bound what one step holds in memory.
	stepEntries = 1024
	stepBytes   = 4 << 20
	// inline is how far a search lets itself be held up to see every write.
	inline = 2048
	// keepAfter is how many documents are written at once while the log moves.
	keepAfter = 8192
)

// Open starts to load what Dir holds and then to follow the log. In place of a
// damaged, foreign or outdated file everything is folded anew, and Status says
// so.
func Open(ctx context.Context, cfg Config) (*Index, error) {
	if cfg.Dir != "" && cfg.Key == nil && !cfg.Plain {
		return nil, errors.New("search: a directory needs a key: an index holds the words of what it indexes (T3)")
	}
	if cfg.Vectorizer != nil && cfg.Vectorizer.Name() == "" {
		return nil, errors.New("search: a Vectorizer without a name")
	}
	if len(cfg.Sources) > 0 && cfg.Log == nil {
		return nil, errors.New("search: sources without a log")
	}
	seen := map[string]bool{}
	for _, s := range cfg.Sources {
		if seen[s.Name()] {
			return nil, fmt.Errorf("search: two sources named %q", s.Name())
		}
		seen[s.Name()] = true
	}
	x := &Index{cfg: cfg, log: cfg.Logger, c: newCore()}
	if x.log == nil {
		x.log = slog.New(slog.DiscardHandler)
	}
	x.analysers.New = func() any { return new(analyser) }
	x.print = fingerprint(cfg.Sources)
	if cfg.Vectorizer != nil {
		x.c.vec = &vectors{name: cfg.Vectorizer.Name(), of: map[uint32][]int8{}}
	}
	if cfg.Vectorizer != nil {
		x.vec = newEmbedder(x)
	}
	if cfg.Dir != "" {
		if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("search: make directory: %w", err)
		}
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	x.cancel = cancel
	if cfg.Log == nil {
		if err := x.load(run); err != nil {
			cancel()
			return nil, err
		}
		return x, nil
	}
	// A large file takes seconds: searches answer meanwhile, behind.
	x.stepping.Lock()
	x.done.Go(func() {
		err := x.load(run)
		if err != nil && run.Err() == nil {
			x.log.Warn("search index is not kept", "error", err)
			x.mu.Lock()
			x.refolds = append(x.refolds, "the index file cannot be used: "+err.Error())
			x.mu.Unlock()
		}
		x.stepping.Unlock()
		x.follow(run)
	})
	if x.vec != nil && cfg.Log != nil {
		x.done.Go(func() { x.vec.follow(run) })
	}
	return x, nil
}

// fingerprint covers what the terms and documents of an index depend on.
func fingerprint(sources []Source) [32]byte {
	var lines []string
	for _, s := range sources {
		lines = append(lines, fmt.Sprintf("%q %d %q", s.Name(), s.Version(), s.Kinds()))
	}
	slices.Sort(lines)
	return sha256.Sum256(fmt.Appendf(nil, "analysis %d title %d\n%s", analysis.Version, titleWeight, strings.Join(lines, "\n")))
}

// Close stops following, writes what is not kept yet and waits. It may be
// called twice.
func (x *Index) Close() error {
	var err error
	x.closed.Do(func() {
		x.cancel()
		x.done.Wait()
		x.stepping.Lock()
		defer x.stepping.Unlock()
		if x.ahead != nil {
			<-x.ahead.done
		}
		if x.file != nil {
			err = errors.Join(x.keep(), x.file.close())
		}
	})
	return err
}

// Put adds documents by hand, for an index without a log.
func (x *Index) Put(ctx context.Context, docs ...Document) error {
	x.stepping.Lock()
	defer x.stepping.Unlock()
	x.apply(docs, nil, nil)
	if x.vec != nil {
		if err := x.vec.put(ctx, docs, true); err != nil {
			return err
		}
	}
	return x.tidy(false)
}

// slice is how many documents are cut and put in at a time: searches go in
// between.
const slice = 256

// apply cuts documents and puts them in, the one while the other. The caller
// holds stepping.
func (x *Index) apply(docs []Document, next *mark, erased []oplog.Ref) {
	cut := make([]prepared, len(docs))
	for i, d := range docs {
		cut[i] = x.c.prepare(d)
	}
	parts := slices.Collect(slices.Chunk(cut, slice))
	ready := make([]chan struct{}, len(parts))
	for i := range ready {
		ready[i] = make(chan struct{})
	}
	var turn atomic.Int64
	var wg sync.WaitGroup
	defer wg.Wait()
	for range min(runtime.GOMAXPROCS(0), len(parts)) {
		wg.Go(func() {
			a := x.analysers.Get().(*analyser)
			defer x.analysers.Put(a)
			for {
				n := int(turn.Add(1)) - 1
				if n >= len(parts) {
					return
				}
				for i := range parts[n] {
					if p := &parts[n][i]; !p.known {
						p.cut(&a.Analyser)
					}
				}
				close(ready[n])
			}
		})
	}
	for n, part := range parts {
		<-ready[n]
		x.mu.Lock()
		for i := range part {
			x.c.put(&part[i])
		}
		x.mu.Unlock()
	}
	if next != nil {
		x.mu.Lock()
		x.c.eraseRefs(erased)
		x.pos, x.fault = *next, ""
		x.mu.Unlock()
	}
	x.dirty += len(docs)
}

// tidy compacts and writes when it is time. The caller holds stepping.
func (x *Index) tidy(idle bool) error {
	if x.c.wasteful() {
		fresh := x.c.compact()
		x.mu.Lock()
		x.c = fresh
		x.mu.Unlock()
		if x.file != nil {
			return x.rewrite()
		}
		return nil
	}
	if x.file != nil && (x.dirty >= keepAfter || idle) {
		return x.keep()
	}
	return nil
}

// Rebuild folds everything anew and says why in Status. The new index is
// there when CatchUp returns.
func (x *Index) Rebuild(reason string) error {
	x.stepping.Lock()
	defer x.stepping.Unlock()
	return x.refold(reason)
}

// refold empties the index. The caller holds stepping.
func (x *Index) refold(reason string) error {
	fresh := newCore()
	if x.cfg.Vectorizer != nil {
		fresh.vec = &vectors{name: x.cfg.Vectorizer.Name(), of: map[uint32][]int8{}}
	}
	x.mu.Lock()
	x.c, x.pos, x.caught, x.fault = fresh, mark{}, nil, ""
	if len(x.refolds) < 16 {
		x.refolds = append(x.refolds, reason)
	}
	x.mu.Unlock()
	x.dirty = 0
	if x.vec != nil {
		x.vec.restart()
	}
	x.log.Warn("search index folded anew", "reason", reason)
	if x.file != nil {
		return x.rewrite()
	}
	return nil
}

// Status describes the index.
type Status struct {
	Documents int    // that can be found by default
	Others    int    // superseded or forgotten
	Terms     int    // distinct
	Position  uint64 // arrival number folded
	Last      uint64 // of the log
	Behind    uint64
	Kept      string // "memory", "encrypted file", "plain file"
	FileBytes int64
	Refolds   []string // why everything was folded anew since Open
	Fault     string   // why the index does not follow now
	Vectors   *VectorStatus
}

// VectorStatus describes the vector arm.
type VectorStatus struct {
	Name      string
	Documents int
	Behind    uint64
	Fault     string
}

// Status says how far the index is.
func (x *Index) Status() Status {
	last := x.last()
	x.mu.RLock()
	defer x.mu.RUnlock()
	st := Status{
		Documents: x.c.live, Others: len(x.c.keys) - x.c.live, Terms: len(x.c.terms),
		Position: x.pos.arrival, Last: last, Behind: last - min(last, x.pos.arrival),
		Refolds: slices.Clone(x.refolds), Fault: x.fault, Kept: "memory",
	}
	if x.file != nil {
		st.Kept, st.FileBytes = x.file.describe(), x.file.size.Load()
	}
	if x.vec != nil {
		st.Vectors = &VectorStatus{Name: x.cfg.Vectorizer.Name(), Documents: len(x.c.vec.of), Fault: x.vec.fault}
		st.Vectors.Behind = last - min(last, x.vec.pos.arrival)
	}
	return st
}

// last is the log's newest arrival number; a log that cannot be read has none.
func (x *Index) last() (last uint64) {
	if x.cfg.Log == nil {
		return 0
	}
	if err := x.cfg.Log.View(func(s oplog.Snapshot) error {
		last = s.LastArrival()
		return nil
	}); err != nil {
		return 0
	}
	return last
}

// idleKeep is how long the index waits for more before it writes.
const idleKeep = 5 * time.Second
