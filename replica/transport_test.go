package replica

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"tallystick/oplog"
)

// dialerOf is the client side of a device that runs no replica.
func dialerOf(t testing.TB, priv ed25519.PrivateKey, shown []byte) *transport {
	t.Helper()
	tr := &transport{timeout: 5 * time.Second, log: testLogger(t, "client"),
		admit: func(oplog.DeviceKey, []byte) error { return nil }}
	copy(tr.self[:], priv.Public().(ed25519.PublicKey))
	cert, err := newCertificate(priv, "x", shown, randOr(nil))
	if err != nil {
		t.Fatal(err)
	}
	tr.cert.Store(cert)
	return tr
}

func newKey(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	_, priv, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return priv
}

// readsNothing is what a refused client sees: its dial may succeed, its first
// read fails.
func readsNothing(t *testing.T, conn *tls.Conn, err error) {
	t.Helper()
	if err != nil {
		return
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, err = conn.Read(make([]byte, 1))
	if !isAlert(err) {
		t.Errorf("a stranger read: %v, want an alert", err)
	}
}

// TestT1_StrangerIsRefusedInTheHandshake, on every protocol of the port, with
// and without somebody else's proof.
func TestT1_StrangerIsRefusedInTheHandshake(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	b := mustJoin(t, a, testConfig(t, "b"))
	for _, alpn := range []string{alpnSync, alpnGossip} {
		for what, shown := range map[string][]byte{"nothing": nil, "another's proof": b.state.Proof, "garbage": []byte("xx")} {
			conn, _, err := dialerOf(t, newKey(t), shown).dial(testContext(t), a.ListenAddr(), alpn, oplog.DeviceKey{})
			t.Logf("%s with %s: %v", alpn, what, err)
			readsNothing(t, conn, err)
		}
	}
	st, err := a.Status()
	if err != nil || len(st.Peers) != 1 {
		t.Errorf("peers %+v, %v", st.Peers, err)
	}
	note(t, a, "still up")
	converged(t, a, b)
}

func TestT1_JoinPortIsClosedWithoutInvite(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	tr := dialerOf(t, newKey(t), nil)
	_, _, err := tr.dial(testContext(t), a.ListenAddr(), alpnJoin, a.key)
	if err == nil || !isAlert(err) {
		t.Errorf("join without an invite: %v, want an alert", err)
	}
	if _, err := a.Invite(testContext(t), InviteOptions{}); err != nil {
		t.Fatal(err)
	}
	conn, _, err := tr.dial(testContext(t), a.ListenAddr(), alpnJoin, a.key)
	if err != nil {
		t.Fatalf("join with an invite open: %v", err)
	}
	conn.Close()
}

// TestT1_PeerWithTheWrongKey: whoever answers at a remembered address must be
// who was there, even when it is a member.
func TestT1_PeerWithTheWrongKey(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	b := mustJoin(t, a, testConfig(t, "b"))
	other := oplog.DeviceKey{1, 2, 3}
	_, _, err := b.tr.dial(testContext(t), a.ListenAddr(), alpnSync, other)
	if CodeOf(err) != CodePeerRefused || !strings.Contains(err.Error(), shortKey(other)) {
		t.Errorf("got %v, want peer_refused naming the device", err)
	}
	_, _, err = a.tr.dial(testContext(t), a.ListenAddr(), alpnSync, oplog.DeviceKey{})
	if !errors.Is(err, errSelf) {
		t.Errorf("dialling oneself: %v", err)
	}
}

func TestT1_OnlyTLS13(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	tr := dialerOf(t, newKey(t), nil)
	conn, err := tls.Dial("tcp", a.ListenAddr(), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12,
		Certificates: []tls.Certificate{*tr.cert.Load()}, NextProtos: []string{alpnSync}})
	if err == nil {
		conn.Close()
		t.Error("TLS 1.2 was spoken")
	}
}

// TestL5_GarbageCostsTheConnection: a member that sends what is no frame is
// cut off, and nothing else happens.
func TestL5_GarbageCostsTheConnection(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	cfg := testConfig(t, "b")
	b := mustJoin(t, a, cfg)
	priv, shown := b.keys.device, b.state.Proof
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	conn, _, err := dialerOf(t, priv, shown).dial(testContext(t), a.ListenAddr(), alpnSync, a.key)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	if m, err := ReadFrame(in, nil); err != nil || m.kind() != kindHello {
		t.Fatalf("first frame %v, %v", m, err)
	}
	if _, err := conn.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	for err = nil; err == nil; {
		_, err = ReadFrame(in, nil)
	}
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		t.Error("the connection stood on")
	}
	b = mustOpen(t, cfg)
	note(t, a, "after")
	converged(t, a, b)
}

func TestTransport_SilentClientsDoNotStopOthers(t *testing.T) {
	cfg := testConfig(t, "a")
	cfg.Timing.Handshake = 2 * time.Second
	a := mustOpen(t, cfg)
	var d net.Dialer
	for range maxHandshakes + 8 {
		c, err := d.DialContext(context.Background(), "tcp", a.ListenAddr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	b := mustJoin(t, a, testConfig(t, "b"))
	converged(t, a, b)
}
