package replica

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tallystick/hlc"
	"tallystick/oplog"
)

// Replica is one running participant of a mesh. It is safe for concurrent
// use.
type Replica struct {
	cfg     Config
	keys    *keys
	key     oplog.DeviceKey
	members *Membership
	log     *oplog.Log
	tr      *transport
	logger  *slog.Logger
	started time.Time

	ctx    context.Context // ends when Close begins
	cancel context.CancelFunc
	wg     sync.WaitGroup // every goroutine but those of the transport
	closer sync.Once
	closed chan struct{}
	cerr   error

	core     *Core                 // owned by the goroutine of loop
	sessions map[SessionID]*stream // the same
	lost     []SessionID           // the same: taken out, the core not told yet
	inputs   chan func(now Now) Output
	stopped  chan struct{} // closed when loop has ended
	reads    chan struct{} // tokens of running reads
	lanes    ingestLanes
	chunks   chunkLanes

	dialer  *dialer
	gossip  *gossip
	invites invites

	saidIn atomic.Pointer[oplog.OriginID] // the incarnation that has said its label

	roomless atomic.Bool // the disk is too full, and somebody watches it

	erasing sync.Mutex // one settling of erases at a time
	erased  string     // digest of the erasures at which all were settled

	renaming sync.Mutex // one rename at a time

	keeping sync.Mutex                // one writing of the gossip key at a time
	ending  sync.Mutex                // one settling of revokes and leaves at a time
	barred  int                       // devices that are barred; under ending
	told    atomic.Pointer[endedWord] // what a member told this device of its own ending

	mu          sync.Mutex
	state       meshState // once the goroutines run only its label changes, under mu
	gkey        gossipKey
	gtold       gossipKey         // the one that is told on
	endingEpoch uint64            // the gossip key must be younger than this
	hungUp      []oplog.DeviceKey // members that said that this device is none any more
	turnDue     uint64            // at the next slow tick this replica turns the key for this epoch
}

// Open starts the replica in cfg.Dir. On a fresh home it makes the device key
// and founds a mesh of one; a home that Join has prepared enters its mesh.
// Close it when done.
func Open(ctx context.Context, cfg Config) (_ *Replica, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	r := &Replica{cfg: cfg.withDefaults(), closed: make(chan struct{}), started: time.Now(),
		sessions: map[SessionID]*stream{}, inputs: make(chan func(Now) Output, 64), reads: make(chan struct{}, maxLogReads),
		stopped: make(chan struct{})}
	r.logger = r.cfg.Logger
	r.ctx, r.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			r.undo()
		}
	}()
	if err := r.openStore(ctx); err != nil {
		return nil, err
	}
	if err := r.listen(ctx); err != nil {
		return nil, err
	}
	r.start()
	return r, nil
}

// openStore opens keys, mesh file and log, and founds the mesh on a fresh home.
func (r *Replica) openStore(ctx context.Context) error {
	cfg := &r.cfg
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("replica: create the data directory: %w", err)
	}
	err := settleBring(cfg, r.logger)
	if err != nil {
		return err
	}
	if r.keys, err = openKeys(cfg, r.logger); err != nil {
		return err
	}
	r.key = r.keys.public()
	state, err := loadMesh(cfg)
	switch {
	case err == nil:
		r.state = *state
	case !meshMissing(err):
		return fmt.Errorf("replica: read %s: %w", cfg.meshFile(), err)
	case errors.Is(err, errFileDamaged):
		r.logger.Warn("mesh file is damaged, taking the mesh from the log", slog.String("file", cfg.meshFile()), slog.Any("error", err))
	}
	r.members = NewMembership(r.state.id())
	admitted := r.trustOwnProof()
	r.log, err = oplog.Open(ctx, oplog.Config{
		Dir: cfg.storeDir(), StateDir: cfg.StateDir, EncryptionKey: r.keys.store, Signer: r.keys.device,
		Wall: cfg.Wall, Rand: cfg.Rand, Bound: cfg.Bound, MinFree: cfg.MinFree, Logger: r.logger,
		Projections: slices.Concat([]oplog.Projection{r.members}, cfg.Projections, []oplog.Projection{erasures{}}), Gate: r.members,
	})
	if err != nil {
		return storeError(cfg.Dir, err)
	}
	// Nothing of this device is stamped below its admission (C1): others count on
	// it before they have heard anything of it.
	if err := r.log.Clock().Merge(admitted); err != nil && r.log.Self().Tips == nil {
		return &Error{Code: CodeConflict, Field: "clock", Message: "this machine's clock is behind its admission to the mesh",
			Hint: "set the clock and start again", Err: err}
	}
	if r.state.id().IsZero() {
		if err := r.foundOrRecover(ctx); err != nil {
			return err
		}
	}
	if err := r.settleLabel(ctx); err != nil {
		return err
	}
	r.loadEnded()
	return r.openGossipKey()
}

// trustOwnProof lets the devices on the way from the genesis to this one pass
// the gate before the log has heard of their admission. It returns the stamp of
// this one's.
func (r *Replica) trustOwnProof() (admitted hlc.Timestamp) {
	p, err := decodeProof(r.state.Proof)
	if err != nil || len(p) == 0 {
		return 0
	}
	any := func(oplog.DeviceKey) bool { return true }
	if _, err := p.verify(r.state.id(), r.key, any); err != nil {
		r.logger.Warn("own admission does not verify", slog.Any("error", err))
		return 0
	}
	for i := range p {
		if _, key, label, at, err := p[i].check(r.state.id()); err == nil {
			r.members.trust(key, label)
			if key == r.key {
				admitted = at
			}
		}
	}
	return admitted
}

// foundOrRecover runs when no mesh file is there: it founds a mesh in an
// empty store, or finds the mesh that the store already belongs to.
func (r *Replica) foundOrRecover(ctx context.Context) error {
	self := r.log.Self()
	mesh := MeshOf(self.ID)
	if len(r.log.Origins()) > 0 {
		var found bool
		err := r.log.View(func(s oplog.Snapshot) (err error) {
			mesh, found, err = foundedMesh(s)
			return err
		})
		if err != nil {
			return err
		}
		if !found {
			return errorf(CodeStoreDamaged, r.cfg.meshFile(), "restore the file from a backup, or move the data directory away and join again",
				"the file %s is missing and the store does not tell its mesh", r.cfg.meshFile())
		}
		r.members.setMesh(mesh)
		if err := r.log.ReleaseHeld(ctx); err != nil {
			return storeError(r.cfg.Dir, err)
		}
	} else {
		r.members.setMesh(mesh)
		op, err := genesisOp(self, r.cfg.label())
		if err != nil {
			return fmt.Errorf("replica: genesis: %w", err)
		}
		if _, err := r.log.Append(ctx, op); err != nil {
			return storeError(r.cfg.Dir, err)
		}
		self = r.log.Self()
		r.logger.Info("founded a mesh", slog.String("mesh", mesh.String()), slog.String("label", r.cfg.label()))
	}
	r.state = meshState{Mesh: mesh[:], Label: r.cfg.label()}
	if MeshOf(self.ID) == mesh {
		l, err := cutLink(r.log, self, 2)
		if err != nil {
			return err
		}
		if r.state.Proof, err = (proof{l}).encode(); err != nil {
			return err
		}
	}
	return saveMesh(&r.cfg, &r.state)
}

// settleLabel says the own label in the own log, once per incarnation (L7
// makes new ones), which also gives this replica a head to carry the floor
// that everyone waits for.
func (r *Replica) settleLabel(ctx context.Context) error {
	self := r.log.Self()
	if at := r.saidIn.Load(); at != nil && *at == self.ID {
		return nil
	}
	var said, label string
	var known bool
	err := r.log.View(func(s oplog.Snapshot) (err error) {
		if said, err = saidLabel(s.View(MembersView), self.ID, math.MaxUint64); err == nil && said == "" {
			label, known, err = r.ownLabel(s)
		}
		return err
	})
	if err != nil {
		return err
	}
	if said == "" {
		say := labelOp
		if !known { // a rename that the restored log has lost
			say = renameOp
		}
		op, err := say(self, label)
		if err == nil {
			_, err = r.log.Append(ctx, op)
		}
		if errors.Is(err, oplog.ErrEnded) {
			return nil // and nothing else is said
		}
		if err != nil {
			return storeError(r.cfg.Dir, err)
		}
		said = label
	}
	r.saidIn.Store(&self.ID)
	switch {
	case said == r.Label():
		return nil
	case r.core != nil:
		return r.adoptLabel()
	}
	r.state.Label = said
	return saveMesh(&r.cfg, &r.state)
}

func (r *Replica) openGossipKey() error {
	r.gkey = loadGossipKey(&r.cfg, r.logger)
	if !r.gkey.isZero() {
		r.gtold = r.gkey
		return nil
	}
	var err error
	if r.gkey, err = newGossipKey(r.cfg.Rand, r.cfg.Wall()); err != nil {
		return err
	}
	r.gtold = r.gkey
	return saveGossipKey(&r.cfg, r.gkey)
}

func (r *Replica) listen(ctx context.Context) error {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", r.cfg.Listen)
	if err != nil {
		return &Error{Code: CodeInvalidArgument, Field: "listen", Message: "cannot listen on " + r.cfg.Listen,
			Hint: "choose another address with --listen; port 0 takes any free one", Err: err}
	}
	r.tr = &transport{ln: ln, self: r.key, timeout: r.cfg.Timing.Handshake, log: r.logger,
		admit: r.admitPeer, ended: r.hasEnded, joining: r.invites.open, handle: r.accepted, conns: map[net.Conn]struct{}{}}
	cert, err := newCertificate(r.keys.device, r.state.Label, r.state.Proof, r.cfg.Rand)
	if err != nil {
		return err
	}
	r.tr.cert.Store(cert)
	return nil
}

func (r *Replica) start() {
	self := r.log.Self()
	r.core = NewCore(CoreConfig{
		Mesh: r.members.Mesh(), Key: r.key, Label: r.state.Label, Self: self.ID, Origins: r.log.Origins(),
		GossipEpoch: r.gkey.epoch(), GossipKey: r.gkey.secret(), Addrs: r.Addresses(), Bound: r.cfg.Bound,
		PingAfter: r.cfg.Timing.Idle / 3, DeadAfter: r.cfg.Timing.Idle,
	})
	r.dialer = newDialer(r)
	if !r.cfg.Static {
		r.gossip = newGossip(r)
	}
	r.run(r.loop)
	r.run(r.watchLog)
	r.run(r.react)
	r.run(r.dialer.loop)
	if r.gossip != nil {
		r.run(r.gossip.loop)
	}
	r.run(r.tr.serve)
}

func (r *Replica) run(fn func()) {
	r.wg.Add(1)
	go func() {
		defer r.wg.Done()
		fn()
	}()
}

// undo takes a failed start back.
func (r *Replica) undo() {
	r.cancel()
	if r.tr != nil {
		r.tr.ln.Close()
	}
	if r.log != nil {
		r.log.Close()
	}
}

// Close stops the replica: it cuts its connections, waits for its goroutines
// and closes the log. It is idempotent and safe from any goroutine.
func (r *Replica) Close() error {
	r.closer.Do(func() {
		defer close(r.closed)
		r.cancel()
		if r.gossip != nil {
			r.gossip.shutdown()
		}
		r.tr.close()
		r.wg.Wait()
		r.cerr = r.log.Close()
	})
	<-r.closed
	return r.cerr
}

// Done is closed when the replica has closed or its log has failed.
func (r *Replica) Done() <-chan struct{} { return r.log.Done() }

// admitPeer is the transport's question in each handshake (T1): is the device
// a member, by the log or by the admission its certificate shows?
func (r *Replica) admitPeer(key oplog.DeviceKey, shown []byte) error {
	known := r.isMember(key)
	if known {
		return nil
	}
	if r.hasEnded(key) {
		return fmt.Errorf("device %s: %w any more", shortKey(key), errNotMember)
	}
	p, err := decodeProof(shown)
	if err == nil {
		var label string
		if label, err = p.verify(r.members.Mesh(), key, r.isMember); err == nil {
			err = r.checkAdmitters(p)
		}
		if err == nil {
			r.members.trust(key, label)
			return nil
		}
	}
	return fmt.Errorf("device %s: %w: %w", shortKey(key), errNotMember, err)
}

func (r *Replica) isMember(key oplog.DeviceKey) bool {
	ok := false
	err := r.log.View(func(s oplog.Snapshot) (err error) {
		ok, err = r.members.current(s.View(MembersView), key)
		return err
	})
	return ok && err == nil
}

// hasEnded reports whether a device is no member any more.
func (r *Replica) hasEnded(key oplog.DeviceKey) bool {
	_, ended := r.log.Endings()[key]
	return ended
}

// checkAdmitters refuses a proof by way of a device that was revoked: whether
// that admission counts only the log can tell.
func (r *Replica) checkAdmitters(p proof) error {
	list, err := r.Departed()
	if err != nil {
		return err
	}
	for i := range p {
		for _, d := range list {
			if d.Ending.Standing != Left && string(p[i].Key) == string(d.Key[:]) {
				return fmt.Errorf("it was admitted by device %s, which is %s", shortKey(d.Key), d.Ending.Standing)
			}
		}
	}
	return nil
}

// accepted takes a connection that the listener has let in.
func (r *Replica) accepted(conn *tls.Conn, alpn string, peer oplog.DeviceKey) {
	switch alpn {
	case alpnSync:
		r.serveStream(conn, peer, "")
	case alpnGossip:
		if r.gossip != nil {
			r.gossip.accept(conn)
		}
	case alpnJoin:
		r.serveJoin(conn, peer)
	case alpnEnded:
		r.serveEnded(conn, peer)
	}
	conn.Close()
}

// Addresses are where peers are told to dial: those of Config.Advertise, or
// the machine's, with the listening port.
func (r *Replica) Addresses() []string {
	if len(r.cfg.Advertise) > 0 {
		return r.cfg.Advertise[:min(len(r.cfg.Advertise), maxAddrs)]
	}
	return listenAddresses(r.tr.ln.Addr().(*net.TCPAddr))
}

// ListenAddr is the address the mesh port is bound to.
func (r *Replica) ListenAddr() string { return r.tr.ln.Addr().String() }

// Log is the replica's log, for reading. Write through Append.
func (r *Replica) Log() *oplog.Log { return r.log }

// Self is the own origin.
func (r *Replica) Self() oplog.Origin { return r.log.Self() }

// Mesh is the mesh this replica belongs to.
func (r *Replica) Mesh() MeshID { return r.members.Mesh() }

// Label is this replica's name in the mesh: of its admission, or its own rename.
func (r *Replica) Label() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.Label
}

// Append writes ops to the own log; see oplog.Log.Append. It never waits for
// the network (A1).
func (r *Replica) Append(ctx context.Context, ops ...oplog.Op) ([]oplog.Appended, error) {
	if err := r.checkMember(); err != nil {
		return nil, err
	}
	if err := r.settleLabel(ctx); err != nil {
		return nil, err
	}
	res, err := r.log.Append(ctx, ops...)
	return res, storeError(r.cfg.Dir, err)
}

// View reads the log and the views; see oplog.Log.View.
func (r *Replica) View(fn func(oplog.Snapshot) error) error { return r.log.View(fn) }

// Changed is closed at the next commit; see oplog.Log.Changed.
func (r *Replica) Changed() <-chan struct{} { return r.log.Changed() }

// AskFloor asks the mesh to promise floors above a timestamp, because
// somebody here has a provisional claim (L4). It does not wait for them.
func (r *Replica) AskFloor(above hlc.Timestamp) {
	r.post(func(now Now) Output { return r.core.AskFloor(now, above) })
}
