package sim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"time"

	"tallystick/oplog"
	"tallystick/replica"
)

// Config says what to play. Zero fields mean the defaults beside them.
type Config struct {
	Seed     uint64
	Replicas int           // 5
	Faulty   time.Duration // how long faults go on; 40s
	Settle   time.Duration // virtual time the mesh has to settle afterwards; 10 min
	Tasks    int           // tasks to race for; 8
	Appends  int           // appends, claims included; 120
	Skew     time.Duration // clocks are off by at most this; 90s
	Domain   Domain        // what is written and folded; Real()

	// Quiet switches random faults and writes off: a scenario scripts them.
	Quiet bool
	// Trace, when set, gets a line for every event.
	Trace io.Writer
}

func (c Config) withDefaults() Config {
	if c.Replicas == 0 {
		c.Replicas = 5
	}
	if c.Faulty == 0 {
		c.Faulty = 40 * time.Second
	}
	if c.Settle == 0 {
		c.Settle = 10 * time.Minute
	}
	if c.Tasks == 0 {
		c.Tasks = 8
	}
	if c.Appends == 0 {
		c.Appends = 120
	}
	if c.Skew == 0 {
		c.Skew = 90 * time.Second
	}
	if c.Domain == nil {
		c.Domain = Real()
	}
	return c
}

// Result says what a run came to.
type Result struct {
	Seed     uint64
	Hash     string // SHA-256 over the trace
	Events   int
	Frames   int
	Appended int
	Claimed  int           // tasks with a claim
	Losers   int           // claims lost
	Withheld int           // payloads that relays left out
	Healed   time.Duration // from healing to convergence
}

// epoch is the wall clock of virtual time 0.
const epoch = 1_800_000_000_000 // 2027-01-15, unix ms

// World is a mesh in virtual time.
type World struct {
	cfg   Config
	q     queue
	rng   *rand.Rand
	nodes []*Node
	conns []*conn
	cut   map[[2]int]bool // pairs that cannot talk, lower index first
	black map[[2]int]bool // of those, the ones whose frames vanish in silence
	mesh  replica.MeshID

	sessions uint64
	acked    []acked
	shared   []shared
	faults   bool // random faults are on
	forged   bool // a scenario made a fork
	rate     int  // bytes a second of every stream; 0 is no limit

	trace hash.Hash
	res   Result
	err   error
}

// acked is an append that a writer was told is safe.
type acked struct {
	node int
	oplog.Appended
}

// stop records the first failure of a check.
func (w *World) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
		w.log("FAIL %v", w.err)
	}
}

// log adds a line to the trace.
func (w *World) log(format string, args ...any) {
	fmt.Fprintf(w.trace, "%d ", w.q.now)
	fmt.Fprintf(w.trace, format, args...)
	io.WriteString(w.trace, "\n")
	if w.cfg.Trace != nil {
		fmt.Fprintf(w.cfg.Trace, "%12.6f ", w.q.now.Seconds())
		fmt.Fprintf(w.cfg.Trace, format, args...)
		io.WriteString(w.cfg.Trace, "\n")
	}
}

// New builds a mesh: replica 0 founds it and admits the others, which learn
// so by replication like everything else.
func New(cfg Config) (*World, error) {
	cfg = cfg.withDefaults()
	w := &World{
		cfg:   cfg,
		rng:   rand.New(rand.NewPCG(cfg.Seed, 0x7461_6c6c_79)),
		cut:   map[[2]int]bool{},
		black: map[[2]int]bool{},
		trace: sha256.New(),
	}
	w.res.Seed = cfg.Seed
	for i := range cfg.Replicas {
		if err := w.addNode(i); err != nil {
			w.Close()
			return nil, err
		}
	}
	if err := w.found(); err != nil {
		w.Close()
		return nil, err
	}
	for _, n := range w.nodes {
		n.start()
	}
	return w, nil
}

// Close ends the logs.
func (w *World) Close() {
	for _, n := range w.nodes {
		if err := n.log.Close(); err != nil {
			w.fail("close: %v", err)
		}
	}
}

// Run plays one seed: faults and writes, then healing, then the checks.
func Run(ctx context.Context, cfg Config) (Result, error) {
	w, err := New(cfg)
	if err != nil {
		return Result{}, err
	}
	defer w.Close()
	if !w.cfg.Quiet {
		w.faults = true
		w.scheduleFaults()
		w.scheduleWrites()
	}
	w.Play(w.cfg.Faulty)
	w.Heal()
	if err := w.Settle(ctx); err != nil {
		return w.result(), err
	}
	return w.result(), nil
}

func (w *World) result() Result {
	r := w.res
	r.Hash = hex.EncodeToString(w.trace.Sum(nil))
	return r
}

// Play lets virtual time pass.
func (w *World) Play(d time.Duration) {
	for end := w.q.now + d; w.err == nil && w.q.step(end); {
		w.res.Events++
	}
}

// Heal ends all faults: every pair can talk again, every replica runs.
func (w *World) Heal() {
	w.log("heal")
	w.faults = false
	clear(w.cut)
	clear(w.black)
	for _, n := range w.nodes {
		if n.core == nil {
			n.start()
		}
	}
}

// Cut parts two replicas. In silence, their frames vanish and they find out by
// timeout; otherwise their connections break.
func (w *World) Cut(a, b int, silent bool) {
	p := pair(a, b)
	if w.cut[p] || a == b {
		return
	}
	w.log("cut %d %d silent=%v", a, b, silent)
	w.cut[p] = true
	if silent {
		w.black[p] = true
		return
	}
	for _, c := range w.connsOf(a, b) {
		w.breakConn(c)
	}
}

// Mend lets two replicas talk again. Connections that lost frames in silence
// are broken, for a stream with a hole in it cannot go on.
func (w *World) Mend(a, b int) {
	p := pair(a, b)
	if !w.cut[p] {
		return
	}
	w.log("mend %d %d", a, b)
	delete(w.cut, p)
	delete(w.black, p)
}

// Partition parts the replicas of one side from the others.
func (w *World) Partition(silent bool, side ...int) {
	in := map[int]bool{}
	for _, i := range side {
		in[i] = true
	}
	for a := range w.nodes {
		for b := range a {
			if in[a] != in[b] {
				w.Cut(a, b, silent)
			}
		}
	}
}

// Node is a replica of the world.
func (w *World) Node(i int) *Node { return w.nodes[i] }

func pair(a, b int) [2]int { return [2]int{min(a, b), max(a, b)} }

func (w *World) chance(p float64) bool { return w.rng.Float64() < p }

func (w *World) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(w.rng.Int64N(int64(hi-lo)+1))
}

// seeded is a stream of random bytes for one purpose of one replica.
func (w *World) seeded(node int, purpose byte) io.Reader {
	var key [32]byte
	copy(key[:], fmt.Sprintf("%016x%04x%c", w.cfg.Seed, node, purpose))
	return rand.NewChaCha8(key)
}
