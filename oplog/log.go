package oplog

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/badger/v4"

	"tallystick/hlc"
)

// Config are the inputs of a Log. Zero values mean defaults, except for Dir
// (unless InMemory) and Signer.
type Config struct {
	// Dir is the store's directory; it is created.
	Dir string
	// InMemory keeps everything in memory: the same code without files.
	InMemory bool
	// StateDir is where the copy of the continuity token is kept, outside of
	// what is backed up with Dir (L7). Empty means no check, which is for tests.
	StateDir string
	// EncryptionKey (16, 24 or 32 bytes of AES) encrypts the store at rest
	// (T3). Nil means a plain store.
	EncryptionKey []byte
	// Signer is the device key.
	Signer ed25519.PrivateKey
	// Wall reads the wall clock in unix milliseconds. Nil means the machine's.
	Wall func() int64
	// Rand gives salts and the incarnation. Nil means crypto/rand.
	Rand io.Reader
	// Bound is the clock bound of C3. Zero means hlc.DefaultBound.
	Bound time.Duration
	// Projections fold entries into views, in this order.
	Projections []Projection
	// Gate decides what may be folded. Nil lets everything pass.
	Gate Gate
	// MinFree is how many bytes must stay free on the disk; below it writes are
	// refused with ErrNoSpace. Zero means 160 MiB, negative no check.
	MinFree int64
	// Logger takes warnings. Nil means silence.
	Logger *slog.Logger

	// hook is called at named points of the commit path, for crash tests.
	hook func(point string)
	// change alters the engine's options, for tests that look into its files.
	change func(*badger.Options)
	// wrap puts something between the log and its store, for tests of disks
	// that fail.
	wrap func(store) store
}

// The points of the commit path at which a crash is tried.
const (
	pointApplied   = "applied"   // writes collected, nothing on disk
	pointCommitted = "committed" // on disk, not published, nobody answered
	pointPublished = "published" // readable, nobody answered
	pointAnswered  = "answered"  // callers know
)

func (c *Config) at(point string) {
	if c.hook != nil {
		c.hook(point)
	}
}

const defaultMinFree = 160 << 20

var viewName = regexp.MustCompile(`^[a-z0-9]{1,16}$`)

func (c Config) withDefaults() Config {
	if c.Rand == nil {
		c.Rand = rand.Reader
	}
	if c.Bound == 0 {
		c.Bound = hlc.DefaultBound
	}
	if c.MinFree == 0 {
		c.MinFree = defaultMinFree
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Dir == "" && !c.InMemory {
		errs = append(errs, errors.New("oplog: Config.Dir is empty"))
	}
	if len(c.Signer) != ed25519.PrivateKeySize {
		errs = append(errs, errors.New("oplog: Config.Signer is not an ed25519 key"))
	}
	seen := map[string]bool{}
	for _, p := range c.Projections {
		if !viewName.MatchString(p.Name()) || seen[p.Name()] {
			errs = append(errs, fmt.Errorf("oplog: view name %q: want 1 to 16 of a-z and 0-9, unique", p.Name()))
		}
		seen[p.Name()] = true
	}
	return errors.Join(errs...)
}

// Log is the durable log of all origins on one replica, with the views
// folded from it. It is safe for concurrent use.
type Log struct {
	cfg   Config
	db    store
	clock *hlc.Clock
	key   DeviceKey
	folds map[string][]int // kind -> indexes of projections that fold it
	all   []int            // indexes of projections that see every kind
	known map[string]bool  // kinds that a projection understands

	cutter Cutter          // the gate, when it knows endings (T2)
	acts   map[string]bool // its acts

	content map[string]bool        // kinds whose payload may be erased (T5)
	namers  map[string][]BlobNamer // kinds whose entries name blobs

	jobs   chan job
	quit   chan struct{}
	done   chan struct{}
	closer sync.Once
	failed error // why the writer gave up; read after done

	w writer // owned by the writer goroutine

	turning sync.Mutex // one TurnToken at a time
	tidying sync.Mutex // one drop of keys or compaction at a time: badger stops and starts its own compactions in both

	switches atomic.Uint64 // counts beginnings and ends of transactions in which a view changes its generation: odd within one

	mu       sync.RWMutex
	lanes    []*lane               // as committed; a lane is never changed in place
	byID     map[OriginID][]uint32 // lanes of an origin, the first one first
	changed  chan struct{}
	infos    []viewState
	aside    int    // entries held
	erasing  int    // entries named by an erase whose bytes are still here
	amending int    // named entries that wait for ApplyAmends
	owed     int    // entries that are owed
	mended   int    // entries that were damaged, are back, and that the views lack
	self     Origin // the own incarnation; without tips before its birth
	endings  map[DeviceKey]Ending
	recut    recut
	reason   string // why the own incarnation is a new one; empty when it is not

	missing   map[Hash]MissingBlob // named and not whole here
	blobEpoch uint64
	owedEpoch uint64

	suspects struct { // places whose bytes did not verify when they were read
		sync.Mutex
		at    map[place]bool // not looked at yet
		known map[place]bool // noted as owed: nothing new
	}
}

// Open opens or creates the log in cfg.Dir and brings its views up to date.
func Open(ctx context.Context, cfg Config) (*Log, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	l := &Log{
		cfg:     cfg,
		folds:   map[string][]int{},
		known:   map[string]bool{kindBirth: true, kindErase: true, kindAmend: true},
		content: map[string]bool{},
		namers:  map[string][]BlobNamer{},
		missing: map[Hash]MissingBlob{},
		jobs:    make(chan job, 512),
		quit:    make(chan struct{}),
		done:    make(chan struct{}),
		changed: make(chan struct{}),
		byID:    map[OriginID][]uint32{},
	}
	copy(l.key[:], cfg.Signer.Public().(ed25519.PublicKey))
	for i, p := range cfg.Projections {
		if c, ok := p.(Content); ok {
			for _, k := range c.Content() {
				l.content[k] = !isStructural(k)
			}
		}
		for _, k := range p.Kinds() {
			if k == "*" {
				l.all = append(l.all, i)
				continue
			}
			l.known[k] = true
			l.folds[k] = append(l.folds[k], i)
			if n, ok := p.(BlobNamer); ok {
				l.namers[k] = append(l.namers[k], n)
			}
		}
	}
	if c, ok := cfg.Gate.(Cutter); ok {
		l.cutter, l.acts = c, map[string]bool{}
		for _, k := range c.Acts() {
			l.acts[k] = true
		}
	}
	if cfg.InMemory {
		l.db = newMemory()
	} else {
		if err := checkSpace(cfg.Dir, cfg.MinFree); err != nil {
			return nil, err
		}
		if err := left.close(cfg.Dir); err != nil {
			return nil, fmt.Errorf("oplog: close what was left open for lack of space: %w", err)
		}
		gate := newRoomGate(&cfg)
		change := []func(*badger.Options){gate.options}
		if cfg.change != nil {
			change = append(change, cfg.change)
		}
		db, err := openBadger(cfg.Dir, cfg.EncryptionKey, cfg.Logger, change...)
		if err != nil {
			return nil, err
		}
		db.gate = gate
		l.db = db
	}
	if cfg.wrap != nil {
		l.db = cfg.wrap(l.db)
	}
	if err := l.load(ctx); err != nil {
		return nil, errors.Join(err, l.db.close())
	}
	go l.write()
	return l, nil
}

// Close stops the writer and closes the store. Appends that were acknowledged
// are on disk. On a disk too full to write the store's tables out its files are
// left as after a crash, and locked until this process ends or opens it again.
// It is idempotent and safe from any goroutine.
func (l *Log) Close() error {
	var err error
	l.closer.Do(func() {
		close(l.quit)
		<-l.done
		l.tidying.Lock()
		defer l.tidying.Unlock()
		err = l.db.close()
	})
	<-l.done
	return err
}

// Clock is the clock that stamps this log's entries.
func (l *Log) Clock() *hlc.Clock { return l.clock }

// Changed is closed at the next commit. Fetch it before reading, so that
// nothing is missed between the read and the wait.
func (l *Log) Changed() <-chan struct{} {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.changed
}

// Done is closed when the writer has stopped: by Close, or because the store
// failed. Err says why.
func (l *Log) Done() <-chan struct{} { return l.done }

// Err is why the writer stopped, nil before that and after a plain Close.
func (l *Log) Err() error {
	select {
	case <-l.done:
		return l.failed
	default:
		return nil
	}
}

const storeFormat = 0

// load reads what the store holds into memory, or founds a new store.
func (l *Log) load(ctx context.Context) error {
	snap := l.db.snapshot()
	defer snap.release()
	b := newBatch(snap, nil)
	switch v, err := snap.get(metaKey("format")); {
	case errors.Is(err, ErrNotFound):
		id := make([]byte, 16)
		if _, err := io.ReadFull(l.cfg.Rand, id); err != nil {
			return fmt.Errorf("oplog: store id: %w", err)
		}
		b.set(metaKey("format"), []byte{storeFormat})
		b.set(metaKey("store"), id)
		l.w.store = hex.EncodeToString(id)
	case err != nil:
		return err
	case len(v) != 1 || v[0] != storeFormat:
		return fmt.Errorf("%w: %x, this program reads %d", ErrFormat, v, storeFormat)
	default:
		id, err := snap.get(metaKey("store"))
		if err != nil || len(id) != 16 {
			return fmt.Errorf("%w: store id", ErrDamaged)
		}
		l.w.store = hex.EncodeToString(id)
	}

	var ceiling hlc.Timestamp
	switch v, err := snap.get(metaKey("state")); {
	case errors.Is(err, ErrNotFound):
	case err != nil:
		return err
	case len(v) != 16:
		return fmt.Errorf("%w: state record", ErrDamaged)
	default:
		l.w.arrival = binary.BigEndian.Uint64(v)
		ceiling = hlc.Timestamp(binary.BigEndian.Uint64(v[8:]))
	}
	if err := l.loadLanes(snap); err != nil {
		return err
	}
	if err := l.loadPromises(snap); err != nil {
		return err
	}
	if err := l.loadSelf(snap, b); err != nil {
		return err
	}
	if err := l.loadErased(snap); err != nil {
		return err
	}
	if err := l.loadAmends(snap); err != nil {
		return err
	}
	if err := l.loadOwed(snap); err != nil {
		return err
	}
	if len(l.byID[l.w.id]) == 0 && l.beyond(ceiling) {
		ceiling = 0
	}
	for _, ln := range l.lanes {
		// C1: above every own stamp, and above every other that is not held. The
		// stamps of a given-up incarnation count like another origin's, so that a
		// wrong clock does not outlive it.
		own := ln.id == l.w.id
		if (own || ln.heldFrom == 0 && !l.beyond(ln.last)) && ln.last > ceiling {
			ceiling = ln.last
		}
	}
	l.clock = hlc.NewClock(hlc.Config{Wall: l.cfg.Wall, Bound: l.cfg.Bound, Floor: ceiling})
	if b.items.Len() > 0 {
		if err := l.db.commit(b); err != nil {
			return fmt.Errorf("oplog: found store: %w", err)
		}
	}
	if err := l.turn(l.w.token, l.putToken); err != nil {
		return err
	}
	if err := l.loadViews(ctx); err != nil {
		return err
	}
	return l.loadBlobs()
}

// amendedAhead reports whether the own incarnation could only go on in a
// future that was amended away: a new one goes by the wall clock.
func (l *Log) amendedAhead() bool {
	all := l.byID[l.w.id]
	if len(all) == 0 {
		return false
	}
	ln := l.lanes[all[0]]
	return ln.amended && l.beyond(ln.last)
}

// beyond reports whether a stamp lies further ahead of the wall than the bound.
func (l *Log) beyond(t hlc.Timestamp) bool {
	_, far := hlc.NewClock(hlc.Config{Wall: l.cfg.Wall, Bound: l.cfg.Bound}).Ahead(t)
	return far
}

// putToken stores a continuity token outside of the writer, at open.
func (l *Log) putToken(token []byte) error {
	snap := l.db.snapshot()
	defer snap.release()
	b := newBatch(snap, nil)
	b.set(metaKey("token"), token)
	l.w.token = token
	return l.db.commit(b)
}

// loadSelf finds the own incarnation, or draws a new one: for a new store, and
// for one that may not be what stopped here last (L7). Its birth is written
// together with the first entry.
func (l *Log) loadSelf(snap kvSnapshot, b *batch) error {
	token, err := snap.get(metaKey("token"))
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	l.w.token = token
	v, err := snap.get(metaKey("self"))
	switch {
	case errors.Is(err, ErrNotFound):
		if err := l.newIncarnation(b, Predecessor{}); err != nil {
			return err
		}
	case err != nil:
		return err
	case len(v) < 48:
		return fmt.Errorf("%w: self record", ErrDamaged)
	case DeviceKey(v[:32]) != l.key:
		return fmt.Errorf("%w: the store belongs to device %x, the key file holds another device's key", ErrKey, v[:6])
	default:
		copy(l.w.birth.Incarnation[:], v[32:])
		r := reader{b: v[48:]}
		l.w.birth.Predecessor.read(&r)
		if r.end(); r.err != nil {
			return fmt.Errorf("%w: self record: %w", ErrDamaged, r.err)
		}
	}
	l.w.birth.Key = l.key
	l.w.id = OriginOf(l.key, l.w.birth.Incarnation)
	if l.reason = l.doubt(token); l.reason == "" && l.amendedAhead() {
		l.reason = "its stamps lie in the future and a member has amended them (tally clock)"
	}
	if l.reason != "" {
		l.cfg.Logger.Warn("opening a new incarnation", "reason", l.reason)
		pred := Predecessor{Origin: l.w.id}
		if idx, ok := l.byID[l.w.id]; ok {
			pred.Tip = l.lanes[idx[0]].tip
		}
		if err := l.newIncarnation(b, pred); err != nil {
			return err
		}
	}
	for i, ln := range l.lanes {
		if ln.key != l.key || ln.head.Seq == ln.tip.Seq {
			continue
		}
		// The last head was not stored before the stop. All stamps up to the
		// tip are durable, so the promise holds.
		c := *ln
		c.head = Head{Origin: ln.id, Seq: ln.tip.Seq, Hash: ln.tip.Hash, Floor: ln.last.Next()}
		c.head.sign(l.cfg.Signer)
		b.set(laneKey(tabHead, ln.idx), c.head.Append(nil))
		l.lanes[i] = &c
	}
	l.self = Origin{ID: l.w.id, Key: l.key, Incarnation: l.w.birth.Incarnation, Self: true}
	return nil
}

func (l *Log) newIncarnation(b *batch, pred Predecessor) error {
	birth, err := l.drawBirth(b, pred)
	if err != nil {
		return err
	}
	l.w.birth = birth
	l.w.id = OriginOf(l.key, birth.Incarnation)
	return nil
}

// drawBirth draws a new incarnation and records it as the own one.
func (l *Log) drawBirth(b *batch, pred Predecessor) (Birth, error) {
	birth := Birth{Key: l.key, Predecessor: pred}
	if _, err := io.ReadFull(l.cfg.Rand, birth.Incarnation[:]); err != nil {
		return Birth{}, fmt.Errorf("oplog: incarnation: %w", err)
	}
	rec := append(append([]byte{}, l.key[:]...), birth.Incarnation[:]...)
	if pred.Origin.IsZero() {
		rec = appendNil(rec)
	} else {
		rec = pred.append(rec)
	}
	b.set(metaKey("self"), rec)
	return birth, nil
}

// Doubt says why the own incarnation is a new one: what was found at open, or
// what a peer proved since (L7). Empty when it goes on with the one before.
func (l *Log) Doubt() string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.reason
}
