package replica

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// relay forwards TCP between a port of its own and a target, until it is told
// to cut or to swallow.
type relay struct {
	ln      net.Listener
	mu      sync.Mutex
	conns   []net.Conn
	swallow atomic.Bool
	closed  atomic.Bool
}

func newRelay(t testing.TB, target string) *relay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &relay{ln: ln}
	t.Cleanup(func() { ln.Close(); p.cut() })
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			if p.closed.Load() {
				in.Close()
				continue
			}
			out, err := net.Dial("tcp", target)
			if err != nil {
				in.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, in, out)
			p.mu.Unlock()
			go p.copy(in, out)
			go p.copy(out, in)
		}
	}()
	return p
}

func (p *relay) copy(dst, src net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if p.swallow.Load() {
			continue // a dead link: nothing comes out, and nobody says so
		}
		if err == nil {
			_, err = dst.Write(buf[:n])
		}
		if err != nil {
			dst.Close()
			src.Close()
			return
		}
	}
}

func (p *relay) addr() string { return p.ln.Addr().String() }

func (p *relay) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.swallow.Store(false)
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}
