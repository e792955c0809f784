package replica

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"tallystick/oplog"
)

// JoinResult says where a join has led.
type JoinResult struct {
	Mesh    MeshID
	Label   string // of this replica, fixed from now on
	Inviter string // label of the device that admitted it
	Key     oplog.DeviceKey
	Brings  bool // entries of the former mesh wait: BringFormer carries them over
}

// JoinOptions shape a join.
type JoinOptions struct {
	// Bring lets a mesh of one that holds entries of users be left: its store is
	// put aside, for Replica.BringFormer.
	Bring bool
}

// Join makes the home in cfg a member of the mesh that the token invites to.
// The replica must not be running; Open it afterwards, and it catches up. A
// fresh home founds no mesh. A mesh of one without entries of users is
// dropped; a home that holds more refuses, for what is in it belongs to
// another mesh: see JoinOptions.Bring, or join from a fresh home then.
func Join(ctx context.Context, cfg Config, token string) (JoinResult, error) {
	return JoinWith(ctx, cfg, token, JoinOptions{})
}

// JoinWith is Join with options.
func JoinWith(ctx context.Context, cfg Config, token string, opt JoinOptions) (JoinResult, error) {
	t, err := parseToken(token)
	if err != nil {
		return JoinResult{}, err
	}
	if err := cfg.Validate(); err != nil {
		return JoinResult{}, err
	}
	c := cfg.withDefaults()
	j := &joiner{cfg: &c, token: t}
	copy(j.mesh[:], t.Mesh)
	copy(j.inviter[:], t.Key)
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return JoinResult{}, fmt.Errorf("replica: create the data directory: %w", err)
	}
	if err := settleBring(&c, c.Logger); err != nil {
		return JoinResult{}, err
	}
	switch f, pending, err := pendingFormer(&c); {
	case err != nil:
		return JoinResult{}, err
	case pending:
		return JoinResult{}, errorf(CodeConflict, f.Dir, "start it with `tally up`, which goes on with that, and join then",
			"entries of the former mesh %s are still to be brought into this one", f.Mesh)
	}
	if j.keys, err = openKeys(&c, c.Logger); err != nil {
		return JoinResult{}, err
	}
	if err := j.checkHome(ctx, opt.Bring); err != nil {
		return JoinResult{}, err
	}
	a, err := j.ask(ctx)
	if err != nil {
		return JoinResult{}, err
	}
	if err := j.settle(a); err != nil {
		return JoinResult{}, err
	}
	return JoinResult{Mesh: j.mesh, Label: a.Label, Inviter: a.Inviter, Key: j.keys.public(), Brings: j.from != nil}, nil
}

// CheckJoin refuses a token that cannot lead anywhere, as far as that can be
// told from here: it is no invite, it has expired, or the home in cfg is a
// member already. It opens no store, so the replica may be running.
func CheckJoin(cfg Config, token string) error {
	t, err := parseToken(token)
	if err != nil {
		return err
	}
	if err := cfg.Validate(); err != nil {
		return err
	}
	c := cfg.withDefaults()
	if at := time.UnixMilli(t.Expires); c.Wall() > t.Expires {
		return errorf(CodeInviteExpired, "token", "make a new one with `tally invite`; when it is new, set this machine's clock",
			"the invite has expired: it was good until %s and it is %s", at.UTC().Format(time.RFC3339), time.UnixMilli(c.Wall()).UTC().Format(time.RFC3339))
	}
	state, err := loadMesh(&c)
	if err != nil {
		if meshMissing(err) {
			return nil
		}
		return err
	}
	return state.refuseAgain(MeshID(t.Mesh))
}

// refuseAgain refuses a mesh that this replica is a member of.
func (s *meshState) refuseAgain(mesh MeshID) error {
	if s.id() != mesh {
		return nil
	}
	return errorf(CodeConflict, "token", "nothing to do: `tally up` connects", "this replica is a member of that mesh, as %q", s.Label)
}

// CheckLeave refuses to leave the mesh of this replica for another one when
// something would be lost.
func (r *Replica) CheckLeave() error {
	_, err := checkLeave(r.log, r.key, r.cfg.Dir, false)
	return err
}

const newHomeHint = "join with a new replica, TALLY_HOME=DIR tally join TOKEN, and keep this one to read (docs/command-line.md)"

// checkLeave reports whether a store that may be left holds something to bring
// along.
func checkLeave(log *oplog.Log, self oplog.DeviceKey, dir string, bring bool) (holds bool, err error) {
	solo := true
	origins := log.Origins()
	for _, o := range origins {
		solo = solo && o.Key == self
	}
	kinds, n, err := userEntries(log)
	if err != nil {
		return false, storeError(dir, err)
	}
	switch {
	case !solo:
		return false, errorf(CodeConflict, dir, newHomeHint,
			"the store in %s belongs to another mesh and holds %d entries of users and %d origins, not this machine's alone", dir, n, len(origins))
	case n > 0 && !bring:
		return false, errorf(CodeConflict, dir, "take them along with --bring; or "+newHomeHint,
			"the store in %s belongs to another mesh and holds %d entries of users (%s)", dir, n, countText(kinds))
	case len(origins) > 1 && n == 0 && !bring:
		return false, errorf(CodeConflict, dir, "leave them behind with --bring; or "+newHomeHint,
			"the store in %s belongs to another mesh and holds %d origins", dir, len(origins))
	}
	return n > 0, nil
}

// countText is "3 event, 1 fact".
func countText(kinds map[string]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		parts = append(parts, fmt.Sprintf("%d %s", kinds[k], k))
	}
	return strings.Join(parts, ", ")
}

type joiner struct {
	cfg     *Config
	token   *inviteToken
	mesh    MeshID
	inviter oplog.DeviceKey
	keys    *keys
	from    *meshState // the solo mesh whose entries are brought along; nil when there are none
}

// checkHome refuses a home whose entries would be lost.
func (j *joiner) checkHome(ctx context.Context, bring bool) error {
	state, err := loadMesh(j.cfg)
	if err != nil && !meshMissing(err) {
		return err
	}
	if err == nil {
		if err := state.refuseAgain(j.mesh); err != nil {
			return err
		}
	}
	if !dirHasFiles(j.cfg.storeDir()) {
		return nil
	}
	var mesh MeshID
	if state != nil {
		mesh = state.id()
	}
	members := NewMembership(mesh)
	log, err := oplog.Open(ctx, oplog.Config{Dir: j.cfg.storeDir(), EncryptionKey: j.keys.store, Signer: j.keys.device,
		Wall: j.cfg.Wall, Bound: j.cfg.Bound, MinFree: j.cfg.MinFree, Logger: j.cfg.Logger,
		Projections: slices.Concat([]oplog.Projection{members}, j.cfg.Projections, []oplog.Projection{erasures{}}), Gate: members})
	if err != nil {
		return storeError(j.cfg.Dir, err)
	}
	defer log.Close()
	holds, err := checkLeave(log, j.keys.public(), j.cfg.Dir, bring)
	if err != nil || !holds {
		return err
	}
	if j.from = state; state == nil {
		return errorf(CodeStoreDamaged, j.cfg.meshFile(), "run `tally up` once, which finds it again, and join then",
			"the file %s is missing, so the former mesh is not known", j.cfg.meshFile())
	}
	return nil
}

// userEntries counts what somebody would miss: everything but the replica's
// own founding acts, folded or not.
func userEntries(log *oplog.Log) (kinds map[string]int, n int, err error) {
	kinds = map[string]int{}
	err = log.View(func(s oplog.Snapshot) error {
		return s.Arrived(0, false, func(_ uint64, e *oplog.Entry) (bool, error) {
			if e.Kind != kindBirth && e.Kind != KindGenesis && e.Kind != KindLabel && e.Kind != KindRename && e.Kind != KindSeal {
				n++
				kinds[e.Kind]++
			}
			return true, nil
		})
	})
	if err != nil {
		return nil, 0, err
	}
	asides, err := log.Aside(maxAsides)
	for _, a := range asides {
		n++
		kinds[a.Kind]++
	}
	return kinds, n, err
}

// ask knocks at the token's addresses until one answers.
func (j *joiner) ask(ctx context.Context) (*joinAnswer, error) {
	cert, err := newCertificate(j.keys.device, j.cfg.label(), nil, j.cfg.Rand)
	if err != nil {
		return nil, err
	}
	tr := &transport{self: j.keys.public(), timeout: j.cfg.Timing.Handshake, log: j.cfg.Logger}
	tr.cert.Store(cert)
	var first error
	for _, addr := range j.token.Addrs {
		a, err := j.askAt(ctx, tr, addr)
		if err == nil {
			return a, nil
		}
		if first == nil || CodeOf(err) != CodeUnreachable && CodeOf(first) == CodeUnreachable {
			first = err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	if CodeOf(first) == CodeUnreachable {
		return nil, &Error{Code: CodeUnreachable, Field: "token", Message: "no address in the invite answers (" + strings.Join(j.token.Addrs, ", ") + ")", Err: first,
			Hint: "see that the inviter runs and that its firewall lets the port through; `tally invite --addr HOST:PORT` puts another address in"}
	}
	return nil, first
}

func (j *joiner) askAt(ctx context.Context, tr *transport, addr string) (*joinAnswer, error) {
	conn, _, err := tr.dial(ctx, addr, alpnJoin, j.inviter)
	if err != nil {
		return nil, j.notOpen(addr, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.NetConn().Close() })
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(j.cfg.Timing.Handshake)); err != nil {
		return nil, err
	}
	cs := conn.ConnectionState()
	proof, err := joinProof(j.token.Secret, j.token.Mesh, &cs)
	if err != nil {
		return nil, err
	}
	id := inviteID(j.token.Secret)
	q := joinRequest{Version: joinVersion, Invite: id[:], Label: j.cfg.label(), Wall: j.cfg.Wall(), Proof: proof}
	if err := writeJoin(conn, joinQMagic, &q); err != nil {
		return nil, j.notOpen(addr, refused(addr, err))
	}
	a := new(joinAnswer)
	if err := readJoin(conn, joinAMagic, a); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("no answer: %w", io.ErrUnexpectedEOF)
		}
		return nil, j.notOpen(addr, refused(addr, err))
	}
	if a.Code != "" {
		return nil, &Error{Code: Code(a.Code), Message: a.Message, Field: a.Field, Hint: a.Hint}
	}
	return a, j.check(addr, a)
}

// notOpen explains a refused handshake: nobody takes joins there any more.
// The inviter says nothing to strangers, so the token's own time has to tell.
func (j *joiner) notOpen(addr string, err error) error {
	var alert tls.AlertError
	if !errors.As(err, &alert) && !strings.Contains(err.Error(), "no application protocol") {
		return err
	}
	if j.cfg.Wall() > j.token.Expires {
		return &Error{Code: CodeInviteExpired, Field: "token", Message: "the invite has expired",
			Hint: "make a new one with `tally invite`", Err: err}
	}
	return &Error{Code: CodeInviteUsed, Field: "token", Message: "the inviter at " + addr + " has no open invite: this one was used, or the inviter was restarted",
		Hint: "make a new one with `tally invite`", Err: err}
}

// check verifies what the inviter gave before anything is written.
func (j *joiner) check(addr string, a *joinAnswer) error {
	bad := func(err error) error {
		return &Error{Code: CodePeerRefused, Field: addr, Message: "the answer of the inviter at " + addr + " does not verify", Err: err}
	}
	if !bytes.Equal(a.Mesh, j.mesh[:]) {
		return bad(errors.New("it is of another mesh"))
	}
	if err := CheckLabel(a.Label); err != nil {
		return bad(err)
	}
	if err := checkClocks(j.cfg.label(), j.cfg.Wall(), a.Inviter, a.Wall, j.cfg.Bound); err != nil {
		return err
	}
	p, err := decodeProof(a.Proof)
	if err != nil {
		return bad(err)
	}
	label, err := p.verify(j.mesh, j.keys.public(), func(k oplog.DeviceKey) bool { return k == j.inviter })
	if err != nil {
		return bad(err)
	}
	if label != a.Label {
		return bad(fmt.Errorf("it admits %q and says %q", label, a.Label))
	}
	if len(a.Gossip) != len(gossipKey{}) || len(a.Peers) > maxPeersTold {
		return bad(errors.New("malformed fields"))
	}
	return nil
}

// settle turns the home over to the new mesh. A crash in between leaves the
// old solo mesh or a fresh home, and the token works once more for this device.
// What is brought along is put aside and put back by the next open (bring.go).
func (j *joiner) settle(a *joinAnswer) error {
	if j.from != nil {
		if err := setAside(j.cfg, j.mesh, j.from); err != nil {
			return err
		}
	} else if err := j.dropSolo(); err != nil {
		return err
	}
	return j.enter(a)
}

func (j *joiner) dropSolo() error {
	if err := os.Remove(j.cfg.meshFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("replica: leave the solo mesh: %w", err)
	}
	if err := os.RemoveAll(j.cfg.storeDir()); err != nil {
		return fmt.Errorf("replica: leave the solo mesh: %w", err)
	}
	return nil
}

// enter writes what is needed to open in the new mesh, its name last.
func (j *joiner) enter(a *joinAnswer) error {
	var peers []peerRecord
	for _, p := range a.Peers {
		if p.valid() && len(p.Addrs) > 0 {
			peers = append(peers, p)
		}
	}
	for i := range peers {
		if bytes.Equal(peers[i].Key, j.inviter[:]) {
			peers[i].Addrs = dedupe(append(j.token.Addrs, peers[i].Addrs...), maxRemember)
		}
	}
	if err := savePeers(j.cfg, peers); err != nil {
		return fmt.Errorf("replica: keep the peers' addresses: %w", err)
	}
	var k gossipKey
	copy(k[:], a.Gossip)
	if err := saveGossipKey(j.cfg, k); err != nil {
		return fmt.Errorf("replica: keep the gossip key: %w", err)
	}
	if err := j.cfg.reach("peers"); err != nil {
		return err
	}
	err := saveMesh(j.cfg, &meshState{Mesh: j.mesh[:], Label: a.Label, Proof: a.Proof})
	if err != nil {
		return fmt.Errorf("replica: keep the membership: %w", err)
	}
	return j.cfg.reach("entered")
}

func dedupe(list []string, limit int) []string {
	var out []string
	seen := map[string]bool{}
	for _, s := range list {
		if !seen[s] && len(out) < limit {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}
