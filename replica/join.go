package replica

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"tallystick/hlc"
	"tallystick/oplog"
)

// The join protocol (T2), on the ALPN tally-join/1 while an invite is open:
// the joiner sends joinRequest, the inviter answers joinAnswer, both framed
// like files (file.go). The joiner knows the inviter's key from the token; the
// inviter knows the joiner by HMAC(secret, TLS exporter), which ties the
// token to this one connection.

const (
	tokenPrefix   = "tally1."
	tokenVersion  = 1
	maxToken      = 4096
	secretSize    = 16
	maxInvites    = 64 // remembered, open or not
	maxInviteAddr = 8
	// DefaultInviteTTL is how long an invite is open.
	DefaultInviteTTL = 10 * time.Minute
	// MaxInviteTTL bounds it.
	MaxInviteTTL = 24 * time.Hour

	joinVersion  = 1
	joinLabel    = "EXPORTER-tally-join-1"
	joinQMagic   = "tallyjnq"
	joinAMagic   = "tallyjna"
	maxJoinBytes = 512 << 10
	maxPeersTold = 64
	askAgain     = 30 * time.Second
)

// inviteToken is what a token holds.
type inviteToken struct {
	Version uint8
	Mesh    []byte
	Key     []byte // of the inviter
	Addrs   []string
	Secret  []byte
	Expires int64 // unix ms
}

func (t *inviteToken) encode() (string, error) {
	b, err := marshalArrays(t)
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(b), err
}

func parseToken(text string) (*inviteToken, error) {
	bad := func(what string) (*inviteToken, error) {
		return nil, errorf(CodeInvalidArgument, "token", "copy the whole token that `tally invite` printed, or make a new one", "this is no invite: %s", what)
	}
	text = strings.TrimSpace(text)
	rest, ok := strings.CutPrefix(text, tokenPrefix)
	if !ok || len(text) > maxToken {
		return bad("it does not begin with " + tokenPrefix + " or is too long")
	}
	b, err := base64.RawURLEncoding.DecodeString(rest)
	if err != nil {
		return bad("it is garbled")
	}
	t := new(inviteToken)
	if err := unmarshalArrays(b, t); err != nil {
		return bad("it is garbled")
	}
	if t.Version != tokenVersion {
		return nil, errorf(CodeVersion, "token", "use the same version of the program on both machines", "invite of version %d, this program knows %d", t.Version, tokenVersion)
	}
	if len(t.Mesh) != len(MeshID{}) || len(t.Key) != len(oplog.DeviceKey{}) || len(t.Secret) != secretSize ||
		len(t.Addrs) == 0 || len(t.Addrs) > maxInviteAddr {
		return bad("its fields are malformed")
	}
	for _, a := range t.Addrs {
		if checkAddr(a, false) != nil {
			return bad("it names an address that cannot be dialled")
		}
	}
	return t, nil
}

// InviteOptions shape an invite; zero fields mean defaults.
type InviteOptions struct {
	TTL   time.Duration // DefaultInviteTTL
	Addrs []string      // where the joiner should dial; Addresses()
}

// Invite is an open invitation for one device.
type Invite struct {
	Token     string
	ExpiresAt time.Time
	Addresses []string
}

type openInvite struct {
	secret  []byte
	expires time.Time
	usedBy  oplog.DeviceKey
	usedAt  time.Time
}

// isOpen reports whether the port answers for this invite: while it is unused
// and valid, and for a moment after its use, so that a device whose answer got
// lost can ask again.
func (i *openInvite) isOpen(now time.Time) bool {
	return now.Before(i.expires) && (i.usedBy.IsZero() || now.Sub(i.usedAt) < askAgain)
}

// invites are those of this process: an invite does not outlive its owner.
type invites struct {
	mu   sync.Mutex
	list map[[8]byte]*openInvite
	one  sync.Mutex // one join at a time
}

func inviteID(secret []byte) (id [8]byte) {
	h := sha256.Sum256(append([]byte("tallystick invite 1\x00"), secret...))
	copy(id[:], h[:])
	return id
}

// open reports whether anybody may knock.
func (v *invites) open() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	for _, i := range v.list {
		if i.isOpen(now) {
			return true
		}
	}
	return false
}

func (v *invites) add(secret []byte, expires time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.list == nil {
		v.list = map[[8]byte]*openInvite{}
	}
	now := time.Now()
	for id, i := range v.list {
		if len(v.list) >= maxInvites && !i.isOpen(now) {
			delete(v.list, id)
		}
	}
	if len(v.list) >= maxInvites {
		return false
	}
	v.list[inviteID(secret)] = &openInvite{secret: secret, expires: expires}
	return true
}

func (v *invites) get(id []byte) (i openInvite, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(id) != 8 {
		return i, false
	}
	p := v.list[[8]byte(id)]
	if p == nil {
		return i, false
	}
	return *p, true
}

func (v *invites) use(secret []byte, key oplog.DeviceKey) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if i := v.list[inviteID(secret)]; i != nil {
		i.usedBy, i.usedAt = key, time.Now()
	}
}

// Invite opens the mesh for one more device: whoever brings the token within
// its time is admitted.
func (r *Replica) Invite(ctx context.Context, opt InviteOptions) (Invite, error) {
	if opt.TTL == 0 {
		opt.TTL = DefaultInviteTTL
	}
	if opt.TTL < time.Second || opt.TTL > MaxInviteTTL {
		return Invite{}, errorf(CodeInvalidArgument, "ttl", "", "an invite may be open from 1s to %s", MaxInviteTTL)
	}
	addrs := opt.Addrs
	if len(addrs) == 0 {
		addrs = r.Addresses()
	}
	if len(addrs) > maxInviteAddr {
		return Invite{}, errorf(CodeInvalidArgument, "addr", "", "%d addresses, limit %d", len(addrs), maxInviteAddr)
	}
	for _, a := range addrs {
		if err := checkAddr(a, false); err != nil {
			return Invite{}, errorf(CodeInvalidArgument, "addr", "give host:port", "%v", err)
		}
	}
	if err := ctx.Err(); err != nil {
		return Invite{}, err
	}
	secret := make([]byte, secretSize)
	if _, err := io.ReadFull(rand.Reader, secret); err != nil {
		return Invite{}, fmt.Errorf("replica: draw a secret: %w", err)
	}
	mesh := r.Mesh()
	expires := time.UnixMilli(r.cfg.Wall()).Add(opt.TTL)
	t := inviteToken{Version: tokenVersion, Mesh: mesh[:], Key: r.key[:], Addrs: addrs, Secret: secret, Expires: expires.UnixMilli()}
	token, err := t.encode()
	if err != nil {
		return Invite{}, err
	}
	if !r.invites.add(secret, time.Now().Add(opt.TTL)) {
		return Invite{}, errorf(CodeBusy, "", "wait until one is used or expires", "%d invites are open", maxInvites)
	}
	return Invite{Token: token, ExpiresAt: expires.UTC(), Addresses: addrs}, nil
}

type joinRequest struct {
	Version uint8
	Invite  []byte // inviteID of the secret
	Label   string
	Wall    int64 // unix ms
	Proof   []byte
}

type joinAnswer struct {
	Code    string // "" when admitted
	Message string
	Field   string
	Hint    string
	Mesh    []byte
	Label   string // of the joiner
	Inviter string // label
	Wall    int64
	Proof   []byte // genesis and admissions up to the joiner's
	Peers   []peerRecord
	Gossip  []byte
}

// joinProof ties the token to this one connection, and to the mesh that the
// token names: a token whose mesh was garbled on its way must not spend the
// invite of the real one.
func joinProof(secret, mesh []byte, cs *tls.ConnectionState) ([]byte, error) {
	exported, err := cs.ExportKeyingMaterial(joinLabel, mesh, 32)
	if err != nil {
		return nil, err
	}
	m := hmac.New(sha256.New, secret)
	m.Write(exported)
	return m.Sum(nil), nil
}

func writeJoin(w io.Writer, magic string, v any) error {
	body, err := marshalArrays(v)
	if err == nil {
		_, err = w.Write(encodeFile(magic, body))
	}
	return err
}

func readJoin(r io.Reader, magic string, v any) error {
	head := make([]byte, fileOverhead-4)
	if _, err := io.ReadFull(r, head); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[9:])
	if string(head[:8]) != magic || n > maxJoinBytes {
		return fmt.Errorf("%w: not a join message", ErrFrame)
	}
	// Room is made as bytes come, not by what a stranger says will come.
	frame := bytes.NewBuffer(head)
	frame.Grow(min(int(n)+4, 64<<10))
	if _, err := io.CopyN(frame, r, int64(n)+4); errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	} else if err != nil {
		return err
	}
	body, err := decodeFile(magic, frame.Bytes())
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFrame, err)
	}
	if err := unmarshalArrays(body, v); err != nil {
		return fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return nil
}

// serveJoin is the inviter's side of a join connection.
func (r *Replica) serveJoin(conn *tls.Conn, peer oplog.DeviceKey) {
	if err := conn.SetDeadline(time.Now().Add(r.cfg.Timing.Handshake)); err != nil {
		return
	}
	var q joinRequest
	if err := readJoin(conn, joinQMagic, &q); err != nil {
		r.logger.Info("join refused", slog.String("from", conn.RemoteAddr().String()), slog.Any("error", err))
		return
	}
	cs := conn.ConnectionState()
	a, err := r.admit(&q, &cs, peer)
	if err != nil {
		var e *Error
		if !errors.As(err, &e) {
			e = &Error{Code: CodeBusy, Message: "the inviter could not admit the device: " + err.Error()}
		}
		r.logger.Info("join refused", slog.String("device", shortKey(peer)), slog.Any("error", err))
		a = &joinAnswer{Code: string(e.Code), Message: e.Message, Field: e.Field, Hint: e.Hint}
	} else {
		r.logger.Info("admitted a device", slog.String("device", shortKey(peer)), slog.String("label", a.Label))
	}
	if err := writeJoin(conn, joinAMagic, a); err != nil {
		r.logger.Info("join answer not delivered", slog.Any("error", err))
	}
}

// admit checks a request and, when it is good, writes the admission durably.
// A device whose answer got lost may ask again with its token.
func (r *Replica) admit(q *joinRequest, cs *tls.ConnectionState, peer oplog.DeviceKey) (*joinAnswer, error) {
	r.invites.one.Lock()
	defer r.invites.one.Unlock()
	if q.Version != joinVersion {
		return nil, errorf(CodeVersion, "", "use the same version of the program on both machines", "join of version %d, the inviter knows %d", q.Version, joinVersion)
	}
	inv, ok := r.invites.get(q.Invite)
	if !ok {
		return nil, errorf(CodePeerRefused, "token", "make a new one with `tally invite`; an invite ends with the process that made it", "the inviter does not know this invite")
	}
	mesh := r.Mesh()
	want, err := joinProof(inv.secret, mesh[:], cs)
	if err != nil {
		return nil, err
	}
	if !hmac.Equal(want, q.Proof) {
		return nil, errorf(CodePeerRefused, "token", "copy the whole token that `tally invite` printed", "the token's secret or mesh is wrong")
	}
	again := inv.usedBy == peer
	switch {
	case !inv.usedBy.IsZero() && !again:
		return nil, errorf(CodeInviteUsed, "token", "make a new one with `tally invite`: each admits one device", "the invite has been used")
	case !again && !time.Now().Before(inv.expires):
		return nil, errorf(CodeInviteExpired, "token", "make a new one with `tally invite`", "the invite has expired")
	}
	if err := CheckLabel(q.Label); err != nil {
		return nil, err
	}
	if err := checkClocks(r.Label(), r.cfg.Wall(), q.Label, q.Wall, r.cfg.Bound); err != nil {
		return nil, err
	}
	label, err := r.writeAdmission(peer, q, again)
	if err != nil {
		return nil, err
	}
	r.invites.use(inv.secret, peer)
	return r.joinAnswer(peer, q.Invite, label)
}

func checkClocks(here string, wallHere int64, there string, wallThere int64, bound time.Duration) error {
	diff := time.Duration(wallThere-wallHere) * time.Millisecond
	if diff.Abs() <= bound {
		return nil
	}
	show := func(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }
	return errorf(CodeConflict, "clock", "set the clock that is wrong and join again",
		"the clocks differ by %s, more than %s: %s says %s, %s says %s", diff.Abs().Round(time.Second), bound,
		here, show(wallHere), there, show(wallThere))
}

func admitOpID(peer oplog.DeviceKey, invite []byte) string {
	return fmt.Sprintf("admit:%s:%x", peer, invite)
}

// writeAdmission appends the admission unless this very join has done so. The
// label is looked at in the log's writer, so that no two joins share one.
func (r *Replica) writeAdmission(peer oplog.DeviceKey, q *joinRequest, again bool) (label string, err error) {
	label = q.Label
	var known bool
	err = r.log.View(func(s oplog.Snapshot) error {
		m, ok, err := memberIn(s, peer)
		if known = ok; ok {
			label = m.Label // fixed by the first admission
		}
		return err
	})
	if err != nil || again && known {
		return label, err
	}
	op, err := admitOp(peer, label)
	if err != nil {
		return "", err
	}
	op.OpID = admitOpID(peer, q.Invite)
	op.Guard = func(views oplog.Views, _ hlc.Timestamp) error {
		owner, used, err := labelOwner(views, label)
		if err == nil && used && owner != peer {
			err = errorf(CodeConflict, "label", "choose another with --label", "the label %q is used in this mesh by device %s", label, shortKey(owner))
		}
		return err
	}
	_, err = r.log.Append(r.ctx, op)
	return label, storeError(r.cfg.Dir, err)
}

func (r *Replica) joinAnswer(peer oplog.DeviceKey, invite []byte, label string) (*joinAnswer, error) {
	var seq uint64
	err := r.log.View(func(s oplog.Snapshot) error {
		e, err := s.ByOp("", admitOpID(peer, invite))
		seq = e.Seq
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("find the admission: %w", err)
	}
	last, err := cutLink(r.log, r.log.Self(), seq)
	if err != nil {
		return nil, err
	}
	own, err := decodeProof(r.state.Proof)
	if err != nil {
		own = nil // the joiner knows this replica by the token
	}
	shown, err := own.append(last).encode()
	if err != nil {
		return nil, err
	}
	if len(shown) > maxProofBytes {
		return nil, errorf(CodeBusy, "", "try again", "the admission was written amid many other entries")
	}
	mesh := r.Mesh()
	r.mu.Lock()
	gossip := r.gkey
	r.mu.Unlock()
	peers := append([]peerRecord{{Key: r.key[:], Label: r.Label(), Addrs: r.Addresses()}}, r.dialer.records()...)
	if len(peers) > maxPeersTold {
		peers = peers[:maxPeersTold]
	}
	return &joinAnswer{Mesh: mesh[:], Label: label, Inviter: r.Label(), Wall: r.cfg.Wall(), Proof: shown, Peers: peers, Gossip: gossip[:]}, nil
}
