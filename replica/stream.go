package replica

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"tallystick/oplog"
)

// Limits of a session.
const (
	maxStreams    = 128      // at a time
	maxQueueBytes = 16 << 20 // waiting to be written to one peer
	maxQueueCount = 8192
	writeChunk    = 32 << 10 // bytes written under one deadline
	flushTime     = time.Second
)

var (
	errQueueFull   = errors.New("replica: the peer does not read what is sent to it")
	errManyStreams = errors.New("replica: too many connections")
)

// stream is one standing sync stream. Its reader is the goroutine that
// serves it, its writer another; the core sees it by its id alone.
type stream struct {
	id         SessionID
	conn       *tls.Conn
	peer       oplog.DeviceKey
	addr       string // what was dialled; empty for an accepted one
	retryAfter atomic.Int64
	readied    atomic.Bool

	mu     sync.Mutex
	waits  []Message
	bytes  int
	ending bool // nothing more is queued; the writer flushes and closes
	err    error
	wake   chan struct{}
	gone   chan struct{}
	once   sync.Once
}

var lastStream atomic.Uint64

// serveStream runs a sync stream until it ends and says why it ended.
func (r *Replica) serveStream(conn *tls.Conn, peer oplog.DeviceKey, addr string) error {
	s := &stream{id: SessionID(lastStream.Add(1)), conn: conn, peer: peer, addr: addr,
		wake: make(chan struct{}, 1), gone: make(chan struct{})}
	stop := context.AfterFunc(r.ctx, func() { s.cut(ErrClosed) })
	defer stop()
	r.dialer.up(peer)
	defer func() { r.dialer.down(s) }()

	if !r.post(func(now Now) Output {
		if len(r.sessions) >= maxStreams {
			s.cut(errManyStreams)
			return Output{}
		}
		r.sessions[s.id] = s
		r.core.SetAddrs(r.Addresses()) // the machine may have moved
		return r.core.PeerUp(now, s.id, peer, addr != "")
	}) {
		s.cut(ErrClosed)
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		s.write(r.cfg.Timing.Write)
	}()
	s.cut(r.readFrames(s))
	r.post(func(Now) Output { r.lose(s); return Output{} })
	<-written
	return s.reason()
}

func (r *Replica) readFrames(s *stream) error {
	in := bufio.NewReaderSize(s.conn, 64<<10)
	progress := func() {
		select { // a hint: dropped when the core is busy
		case r.inputs <- func(now Now) Output { return r.core.Heard(now, s.id) }:
		default:
		}
	}
	for {
		m, err := ReadFrame(in, progress)
		if err != nil {
			return err
		}
		if !r.post(func(now Now) Output {
			if r.sessions[s.id] != s {
				return Output{}
			}
			return r.core.Step(now, s.id, m)
		}) {
			return ErrClosed
		}
	}
}

// queue takes a message to write. It never waits; false means that the peer
// does not keep up.
func (s *stream) queue(m Message) bool {
	n := 64
	if rg, ok := m.(*MsgRange); ok {
		n += len(rg.Range.Entries)
	}
	if c, ok := m.(*MsgBlobChunk); ok {
		n += len(c.Data)
	}
	if e, ok := m.(*MsgEntry); ok {
		n += len(e.Entry)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return true
	}
	if s.bytes+n > maxQueueBytes || len(s.waits) >= maxQueueCount {
		return false
	}
	s.bytes += n
	s.waits = append(s.waits, m)
	s.signal()
	return true
}

func (s *stream) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *stream) take() (ms []Message, ending bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ms, s.waits, s.bytes = s.waits, nil, 0
	return ms, s.ending
}

// write is the writer goroutine. A peer that takes nothing for the time of a
// deadline is cut off.
func (s *stream) write(timeout time.Duration) {
	var buf []byte
	for {
		ms, ending := s.take()
		for len(ms) > 0 {
			buf = buf[:0]
			for len(ms) > 0 && len(buf) < writeChunk {
				var err error
				if buf, err = AppendFrame(buf, ms[0]); err != nil {
					s.cut(err)
					return
				}
				ms = ms[1:]
			}
			if err := s.writeAll(buf, timeout); err != nil {
				s.cut(err)
				return
			}
		}
		if ending {
			s.close(s.conn.Close)
			return
		}
		select {
		case <-s.wake:
		case <-s.gone:
			return
		}
	}
}

func (s *stream) writeAll(b []byte, timeout time.Duration) error {
	for len(b) > 0 {
		n := min(len(b), writeChunk)
		if err := s.conn.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
			return err
		}
		if _, err := s.conn.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// finish ends the session after what is queued has been written, or after
// flushTime.
func (s *stream) finish(err error) {
	s.mu.Lock()
	s.ending = true
	if s.err == nil {
		s.err = err
	}
	s.signal()
	s.mu.Unlock()
	time.AfterFunc(flushTime, func() { s.cut(err) })
}

// cut ends the session at once. The first reason given stays.
func (s *stream) cut(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	s.mu.Unlock()
	s.close(s.conn.NetConn().Close)
}

func (s *stream) close(how func() error) {
	s.once.Do(func() {
		close(s.gone)
		_ = how() // whatever it says, the connection is gone
	})
}

func (s *stream) reason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(s.err, io.EOF) {
		return errors.New("replica: the peer hung up")
	}
	return s.err
}
