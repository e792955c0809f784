package replica

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tallystick/oplog"
)

// Protocols on the one mesh port, told apart by ALPN.
const (
	alpnSync   = "tally-sync/1"
	alpnGossip = "tally-gossip/1"
	alpnJoin   = "tally-join/1"
)

// Limits of the listener.
const (
	maxHandshakes  = 64  // handshakes at a time; more wait in the kernel's queue
	maxConnections = 512 // accepted connections that are open
)

// transport owns the TCP listener. TLS 1.3 with both sides' device keys;
// strangers are refused in the handshake (T1). Session tickets are off, so
// that every connection is checked against the members of the moment.
type transport struct {
	ln      net.Listener
	cert    atomic.Pointer[tls.Certificate]
	self    oplog.DeviceKey
	timeout time.Duration
	log     *slog.Logger

	// admit decides whether a device may connect; proof is what its
	// certificate shows. Safe for concurrent use.
	admit func(key oplog.DeviceKey, proof []byte) error
	// ended says whether a device was a member and is none any more.
	ended func(key oplog.DeviceKey) bool
	// joining says whether an invite is open.
	joining func() bool
	// handle takes an accepted connection over and closes it.
	handle func(conn *tls.Conn, alpn string, peer oplog.DeviceKey)

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
	wg     sync.WaitGroup
}

var errSelf = errors.New("that is this replica itself")

// verify is the check of both ends. want, when not zero, is the only key
// that will do.
func (t *transport) verify(cs tls.ConnectionState, want oplog.DeviceKey, serving bool) error {
	key, err := peerKey(&cs)
	if err != nil {
		return err
	}
	switch {
	case key == t.self:
		return errSelf
	case !want.IsZero() && key != want:
		return fmt.Errorf("the peer there is device %s, not %s", shortKey(key), shortKey(want))
	case cs.NegotiatedProtocol == alpnJoin:
		return nil // an unknown key is accepted here, and nothing else is spoken
	case cs.NegotiatedProtocol == alpnEnded && serving:
		if !t.ended(key) {
			return errNotMember // and never was one, or is one
		}
		return nil // it is told what has become of it, and nothing else is spoken
	case cs.NegotiatedProtocol == "":
		return errors.New("no common protocol")
	}
	return t.admit(key, peerProof(&cs))
}

func (t *transport) serverConfig() *tls.Config {
	base := &tls.Config{
		MinVersion:             tls.VersionTLS13,
		ClientAuth:             tls.RequireAnyClientCert,
		SessionTicketsDisabled: true,
		NextProtos:             []string{alpnSync, alpnGossip, alpnEnded},
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return t.cert.Load(), nil },
		VerifyConnection:       func(cs tls.ConnectionState) error { return t.verify(cs, oplog.DeviceKey{}, true) },
	}
	join := base.Clone()
	join.NextProtos = []string{alpnSync, alpnGossip, alpnEnded, alpnJoin}
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		if t.joining() {
			return join, nil
		}
		return nil, nil
	}
	return base
}

// serve accepts until the listener closes.
func (t *transport) serve() {
	conf := t.serverConfig()
	slots := make(chan struct{}, maxHandshakes)
	for {
		raw, err := t.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			t.log.Warn("accept failed", slog.Any("error", err))
			time.Sleep(50 * time.Millisecond) // out of descriptors, most likely
			continue
		}
		if !t.track(raw) {
			raw.Close()
			continue
		}
		slots <- struct{}{}
		go func() {
			defer t.untrack(raw)
			conn := tls.Server(raw, conf)
			peer, err := t.handshake(conn)
			<-slots
			if err != nil {
				raw.Close()
				if !errors.Is(err, errSelf) {
					t.log.Info("refused a connection", slog.String("from", raw.RemoteAddr().String()), slog.Any("error", err))
				}
				return
			}
			t.handle(conn, conn.ConnectionState().NegotiatedProtocol, peer)
		}()
	}
}

func (t *transport) handshake(conn *tls.Conn) (oplog.DeviceKey, error) {
	ctx, cancel := context.WithTimeout(context.Background(), t.timeout)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		return oplog.DeviceKey{}, err
	}
	cs := conn.ConnectionState()
	return peerKey(&cs)
}

// track counts a connection in, unless there are too many or the transport
// is closing.
func (t *transport) track(c net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || len(t.conns) >= maxConnections {
		return false
	}
	t.conns[c] = struct{}{}
	t.wg.Add(1)
	return true
}

func (t *transport) untrack(c net.Conn) {
	t.mu.Lock()
	delete(t.conns, c)
	t.mu.Unlock()
	t.wg.Done()
}

// dial connects to addr and finishes the handshake. In TLS 1.3 a client that
// the other side refuses learns of it on its first read only.
func (t *transport) dial(ctx context.Context, addr, alpn string, want oplog.DeviceKey) (*tls.Conn, oplog.DeviceKey, error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	var d net.Dialer
	raw, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, oplog.DeviceKey{}, &Error{Code: CodeUnreachable, Field: addr, Message: "no connection to " + addr, Err: err}
	}
	conn := tls.Client(raw, &tls.Config{
		MinVersion:             tls.VersionTLS13,
		InsecureSkipVerify:     true, // no names and no authorities here: VerifyConnection checks the key
		SessionTicketsDisabled: true,
		NextProtos:             []string{alpn},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return t.cert.Load(), nil
		},
		VerifyConnection: func(cs tls.ConnectionState) error { return t.verify(cs, want, false) },
	})
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, oplog.DeviceKey{}, refused(addr, err)
	}
	cs := conn.ConnectionState()
	key, err := peerKey(&cs)
	return conn, key, err
}

// refused tells a handshake that was refused from a line that broke.
func refused(addr string, err error) error {
	if errors.Is(err, errSelf) {
		return err
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "remote error" || isAlert(err) {
		return &Error{Code: CodePeerRefused, Field: addr, Message: "the peer at " + addr + " refuses this replica", Err: err,
			Hint: "is this device a member of that mesh? See `tally invite` there and `tally join` here"}
	}
	var ne net.Error
	if errors.As(err, &ne) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &Error{Code: CodeUnreachable, Field: addr, Message: "no answer from " + addr, Err: err}
	}
	return &Error{Code: CodePeerRefused, Field: addr, Message: "the peer at " + addr + " is not accepted here", Err: err,
		Hint: "another machine may have that address now: check it, or make a new invite there"}
}

func isAlert(err error) bool {
	if err == nil {
		return false
	}
	var a tls.AlertError
	return errors.As(err, &a) || strings.Contains(err.Error(), "remote error: tls:")
}

// close stops listening, cuts accepted connections and waits for their
// handlers.
func (t *transport) close() {
	t.mu.Lock()
	t.closed = true
	for c := range t.conns {
		c.Close()
	}
	t.mu.Unlock()
	t.ln.Close()
	t.wg.Wait()
}
