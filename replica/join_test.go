package replica

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"tallystick/oplog"
)

func mustInvite(t testing.TB, r *Replica) Invite {
	t.Helper()
	inv, err := r.Invite(testContext(t), InviteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return inv
}

// refusedJoin wants an error of a code that names a field and says what to do,
// and nothing left behind that would make a mesh.
func refusedJoin(t *testing.T, cfg Config, token string, want Code) error {
	t.Helper()
	_, err := Join(testContext(t), cfg, token)
	var e *Error
	if !errors.As(err, &e) || e.Code != want {
		t.Fatalf("got %v, want %s", err, want)
	}
	if e.Hint == "" || e.Field == "" {
		t.Errorf("%v: field %q, hint %q", err, e.Field, e.Hint)
	}
	return err
}

func TestT2_InviteAdmitsOneDeviceOnce(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	inv := mustInvite(t, a)
	if !strings.HasPrefix(inv.Token, "tally1.") || len(inv.Addresses) == 0 || !inv.ExpiresAt.After(time.Now().Add(9*time.Minute)) {
		t.Errorf("invite %+v", inv)
	}
	res, err := Join(testContext(t), testConfig(t, "b"), inv.Token)
	if err != nil || res.Mesh != a.Mesh() || res.Label != "b" || res.Inviter != "a" {
		t.Fatalf("%+v, %v", res, err)
	}
	spent(a)
	// Nothing is open any more: the port does not even answer.
	refusedJoin(t, testConfig(t, "c"), inv.Token, CodeInviteUsed)
	// With another invite open the inviter itself says so.
	mustInvite(t, a)
	err = refusedJoin(t, testConfig(t, "c"), inv.Token, CodeInviteUsed)
	if !strings.Contains(err.Error(), "has been used") {
		t.Error(err)
	}
	if n := len(a.Members()); n != 2 {
		t.Errorf("%d members, want 2", n)
	}
}

// spent lets the time pass in which a used invite still answers.
func spent(r *Replica) {
	r.invites.mu.Lock()
	defer r.invites.mu.Unlock()
	for _, i := range r.invites.list {
		i.usedAt = i.usedAt.Add(-askAgain)
	}
}

func TestT2_InviteExpires(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	inv := mustInvite(t, a)
	a.invites.mu.Lock()
	for _, i := range a.invites.list {
		i.expires = time.Now().Add(-time.Second)
	}
	a.invites.mu.Unlock()
	cfg := testConfig(t, "b")
	late := cfg
	late.Wall = func() int64 { return inv.ExpiresAt.Add(time.Second).UnixMilli() }
	refusedJoin(t, late, inv.Token, CodeInviteExpired) // nobody answers
	mustInvite(t, a)
	refusedJoin(t, cfg, inv.Token, CodeInviteExpired) // the inviter says so
	if n := len(a.Members()); n != 1 {
		t.Errorf("%d members, want 1", n)
	}
	for _, ttl := range []time.Duration{-1, time.Millisecond, 25 * time.Hour} {
		if _, err := a.Invite(testContext(t), InviteOptions{TTL: ttl}); CodeOf(err) != CodeInvalidArgument {
			t.Errorf("ttl %s: %v", ttl, err)
		}
	}
}

// TestT2_CheckJoin: what stands against a join is found without the store.
func TestT2_CheckJoin(t *testing.T) {
	cfg := testConfig(t, "a")
	a := mustOpen(t, cfg)
	inv := mustInvite(t, a)
	fresh := testConfig(t, "b")
	if err := CheckJoin(fresh, inv.Token); err != nil {
		t.Error(err)
	}
	late := fresh
	late.Wall = func() int64 { return inv.ExpiresAt.UnixMilli() + 1 }
	for _, c := range []struct {
		cfg   Config
		token string
		want  Code
	}{{fresh, "tally1.rubbish", CodeInvalidArgument}, {late, inv.Token, CodeInviteExpired}, {cfg, inv.Token, CodeConflict}} {
		if err := CheckJoin(c.cfg, c.token); CodeOf(err) != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	if err := a.CheckLeave(); err != nil {
		t.Errorf("a mesh of one without entries: %v", err)
	}
}

func TestT2_GarbledTokens(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	good := mustInvite(t, a).Token
	cfg := testConfig(t, "b")
	for what, token := range map[string]string{
		"ErrEmpty": "", "ErrPrefix": "tally2." + good[7:], "ErrCut": good[:len(good)-9], "ErrLong": good + strings.Repeat("A", 5000),
		"ErrBase64": good[:20] + "!" + good[21:],
	} {
		t.Run(what, func(t *testing.T) { refusedJoin(t, cfg, token, CodeInvalidArgument) })
	}
	if _, err := os.Stat(cfg.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Error("a garbled token left a data directory")
	}
}

// TestT2_WrongSecret: the right place and inviter, the wrong secret.
func TestT2_WrongSecret(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	tok, err := parseToken(mustInvite(t, a).Token)
	if err != nil {
		t.Fatal(err)
	}
	spoil := func(change func(*inviteToken)) string {
		c := *tok
		c.Secret, c.Key, c.Mesh = bytes.Clone(tok.Secret), bytes.Clone(tok.Key), bytes.Clone(tok.Mesh)
		change(&c)
		s, err := c.encode()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	refusedJoin(t, testConfig(t, "b"), spoil(func(c *inviteToken) { rand.Read(c.Secret) }), CodePeerRefused)
	refusedJoin(t, testConfig(t, "b"), spoil(func(c *inviteToken) { c.Key[0] ^= 1 }), CodePeerRefused)
	if n := len(a.Members()); n != 1 {
		t.Errorf("%d members, want 1", n)
	}
	// Another mesh than the inviter's: nobody is admitted, the invite is not spent.
	refusedJoin(t, testConfig(t, "b"), spoil(func(c *inviteToken) { c.Mesh[0] ^= 1 }), CodePeerRefused)
	if n := len(a.Members()); n != 1 {
		t.Errorf("%d members, want 1", n)
	}
	good, err := tok.encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Join(testContext(t), testConfig(t, "b"), good); err != nil {
		t.Errorf("the genuine token afterwards: %v", err)
	}
}

func TestJoin_LabelIsTaken(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	inv := mustInvite(t, a)
	cfg := testConfig(t, "a")
	err := refusedJoin(t, cfg, inv.Token, CodeConflict)
	if !strings.Contains(err.Error(), `"a"`) {
		t.Error(err)
	}
	cfg.Label = "b" // the invite is not spent
	if _, err := Join(testContext(t), cfg, inv.Token); err != nil {
		t.Fatal(err)
	}
}

func TestC1_JoinBetweenFarClocksIsRefused(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	inv := mustInvite(t, a)
	cfg := testConfig(t, "b")
	for _, off := range []time.Duration{11 * time.Minute, -11 * time.Minute} {
		cfg.Wall = func() int64 { return time.Now().Add(off).UnixMilli() }
		tok, err := parseToken(inv.Token)
		if err != nil {
			t.Fatal(err)
		}
		tok.Expires += time.Hour.Milliseconds()
		text, err := tok.encode()
		if err != nil {
			t.Fatal(err)
		}
		err = refusedJoin(t, cfg, text, CodeConflict)
		if !strings.Contains(err.Error(), "a says") || !strings.Contains(err.Error(), "b says") {
			t.Errorf("it does not name both clocks: %v", err)
		}
	}
	cfg.Wall = nil
	if _, err := Join(testContext(t), cfg, inv.Token); err != nil {
		t.Fatal(err)
	}
}

// TestC1_NothingIsStampedBelowTheAdmission: the joiner's clock is behind the
// inviter's, within the bound.
func TestC1_NothingIsStampedBelowTheAdmission(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	cfg := testConfig(t, "b")
	cfg.Wall = func() int64 { return time.Now().Add(-5 * time.Minute).UnixMilli() }
	b := mustJoin(t, a, cfg)
	converged(t, a, b)
	var admitted Member
	if err := a.View(func(s oplog.Snapshot) (err error) { admitted, _, err = memberIn(s, b.key); return err }); err != nil {
		t.Fatal(err)
	}
	self := b.Self().ID
	rg, err := b.Log().ReadRange(self, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	birth, _, err := oplog.ParseEntry(rg.Entries)
	if err != nil || birth.Time <= admitted.Admission.Time() {
		t.Errorf("born at %s, admitted at %s, %v", birth.Time.Time(), admitted.Admission.Time().Time(), err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	// So far behind that the admission itself lies beyond the bound: a replica
	// that never wrote does not start, one that did goes on above its last stamp.
	cfg.Wall = func() int64 { return time.Now().Add(-time.Hour).UnixMilli() }
	b = mustOpen(t, cfg)
	if res := note(t, b, "late"); res.Ref.Time() <= admitted.Admission.Time() {
		t.Error("stamped below the admission")
	}
	late := testConfig(t, "c")
	if _, err := Join(testContext(t), late, mustInvite(t, a).Token); err != nil {
		t.Fatal(err)
	}
	late.Wall = cfg.Wall
	refusedOpen(t, late, CodeConflict)
}

func refusedOpen(t *testing.T, cfg Config, want Code) {
	t.Helper()
	r, err := Open(testContext(t), cfg)
	if err == nil {
		r.Close()
	}
	if CodeOf(err) != want {
		t.Errorf("open: %v, want %s", err, want)
	}
}

func TestJoin_FreshHomeMakesNoGenesis(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	b := mustJoin(t, a, testConfig(t, "b"))
	converged(t, a, b)
	n := 0
	err := b.View(func(s oplog.Snapshot) error {
		return s.Arrived(0, false, func(_ uint64, e *oplog.Entry) (bool, error) {
			if e.Kind == KindGenesis {
				n++
			}
			return true, nil
		})
	})
	if err != nil || n != 1 {
		t.Errorf("%d genesis entries, %v; want 1", n, err)
	}
	if b.Mesh() != a.Mesh() {
		t.Errorf("mesh %s, want %s", b.Mesh(), a.Mesh())
	}
}

// TestJoin_SoloMeshIsDropped: a mesh of one without entries of users gives
// way, one with entries does not.
func TestJoin_SoloMeshIsDropped(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	cfg := testConfig(t, "b")
	solo := mustOpen(t, cfg)
	old, key := solo.Self().ID, solo.key
	if err := solo.Close(); err != nil {
		t.Fatal(err)
	}
	b := mustJoin(t, a, cfg)
	converged(t, a, b)
	if b.key != key || b.Self().ID == old {
		t.Errorf("device kept %v, incarnation kept %v; want true, false", b.key == key, b.Self().ID == old)
	}

	full := testConfig(t, "c")
	solo = mustOpen(t, full)
	note(t, solo, "mine")
	inv := mustInvite(t, a)
	if _, err := Join(testContext(t), full, inv.Token); CodeOf(err) != CodeStoreLocked {
		t.Errorf("joining under a running owner: %v", err)
	}
	if err := solo.Close(); err != nil {
		t.Fatal(err)
	}
	refusedJoin(t, full, inv.Token, CodeConflict)
	solo = mustOpen(t, full)
	if got := solo.Log().Views()[1].Rows; got != 1 {
		t.Errorf("%d notes after a refused join, want 1", got)
	}
}

func TestJoin_AlreadyMember(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	cfg := testConfig(t, "b")
	b := mustJoin(t, a, cfg)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	refusedJoin(t, cfg, mustInvite(t, a).Token, CodeConflict)
}

// TestT2_LostAnswer: the inviter has admitted the device, the answer did not
// arrive, and the same device may ask again with the same token.
func TestT2_LostAnswer(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	inv := mustInvite(t, a)
	cfg := testConfig(t, "b")
	if _, err := Join(testContext(t), cfg, inv.Token); err != nil {
		t.Fatal(err)
	}
	filled := cfg.withDefaults()
	if err := os.Remove(filled.meshFile()); err != nil { // as if it had not
		t.Fatal(err)
	}
	if _, err := Join(testContext(t), cfg, inv.Token); err != nil {
		t.Fatal(err)
	}
	b := mustOpen(t, cfg)
	converged(t, a, b)
	if n := len(a.Members()); n != 2 {
		t.Errorf("%d members, want 2", n)
	}
}

func TestJoin_NobodyThere(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	inv := mustInvite(t, a)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := refusedJoin(t, testConfig(t, "b"), inv.Token, CodeUnreachable); !strings.Contains(err.Error(), inv.Addresses[0]) {
		t.Errorf("the address is not named: %v", err)
	}
}

func FuzzParseToken(f *testing.F) {
	tok := inviteToken{Version: 1, Mesh: make([]byte, 16), Key: make([]byte, 32), Addrs: []string{"h:1"}, Secret: make([]byte, 16), Expires: 1}
	s, err := tok.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(s)
	f.Fuzz(func(t *testing.T, s string) {
		tok, err := parseToken(s)
		if err == nil && len(tok.Secret) != secretSize {
			t.Error("malformed token taken")
		}
	})
}

// TestT2_ProofOfAnotherConnection: who has overheard a join has the invite's
// id and a proof, and both are worth nothing on a connection of his own.
func TestT2_ProofOfAnotherConnection(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	tok, err := parseToken(mustInvite(t, a).Token)
	if err != nil {
		t.Fatal(err)
	}
	tr := dialerOf(t, newKey(t), nil)
	ask := func(proof func(*tls.ConnectionState) []byte) joinAnswer {
		conn, _, err := tr.dial(testContext(t), a.ListenAddr(), alpnJoin, a.key)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		cs := conn.ConnectionState()
		id := inviteID(tok.Secret)
		q := joinRequest{Version: joinVersion, Invite: id[:], Label: "x", Wall: time.Now().UnixMilli(), Proof: proof(&cs)}
		if err := writeJoin(conn, joinQMagic, &q); err != nil {
			t.Fatal(err)
		}
		var ans joinAnswer
		if err := readJoin(conn, joinAMagic, &ans); err != nil {
			t.Fatal(err)
		}
		return ans
	}
	good := func(cs *tls.ConnectionState) []byte {
		b, err := joinProof(tok.Secret, tok.Mesh, cs)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for what, proof := range map[string]func(*tls.ConnectionState) []byte{
		"none":          func(*tls.ConnectionState) []byte { return nil },
		"spoilt":        func(cs *tls.ConnectionState) []byte { b := good(cs); b[0] ^= 1; return b },
		"of the secret": func(*tls.ConnectionState) []byte { return tok.Secret },
	} {
		if ans := ask(proof); ans.Code != string(CodePeerRefused) || len(ans.Proof) != 0 || len(ans.Gossip) != 0 {
			t.Errorf("%s: answer %+v", what, ans)
		}
	}
	var old []byte
	if ans := ask(func(cs *tls.ConnectionState) []byte { old = good(cs); return nil }); ans.Code == "" {
		t.Error("admitted without a proof")
	}
	if ans := ask(func(*tls.ConnectionState) []byte { return old }); ans.Code != string(CodePeerRefused) {
		t.Errorf("a proof of another connection: %+v", ans)
	}
	if n := len(a.Members()); n != 1 {
		t.Errorf("%d members, want 1", n)
	}
	if ans := ask(good); ans.Code != "" || ans.Label != "x" {
		t.Errorf("the right proof: %+v", ans)
	}
}
