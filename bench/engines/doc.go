// Package engines puts other stores beside the log behind one interface: each
// appends a payload and returns when it is as durable as the log's appends are.
// It is a module of its own so that the product depends on none of them.
package engines

import (
	"crypto/rand"
	"encoding/binary"
	mrand "math/rand/v2"
	"sync"
)

// Engine is an append-only log on some store. Append is safe for concurrent
// use and returns when all payloads are synced to disk, together.
type Engine interface {
	Append(payloads ...[]byte) error
	Close() error
}

// Open opens an engine in an empty directory.
type Open func(dir string) (Engine, error)

// PayloadSize is what Payload gives: half random bytes, half text that
// compresses, as an event is.
const PayloadSize = 400

// Payload makes one payload.
func Payload() []byte {
	p := make([]byte, PayloadSize)
	for i := 0; i < PayloadSize/2; i += 8 {
		binary.BigEndian.PutUint64(p[i:], mrand.Uint64())
	}
	n := copy(p[PayloadSize/2:], "a text of the kind that agents write to each other: what was asked, what was done, which test fails and ")
	copy(p[PayloadSize/2+n:], "why the parser lost the last line of a file that ends without a newline; see the patch")
	return p
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

// maxGroup is how many appends a committer puts into one transaction: as many
// as the log does.
const maxGroup = 256

// committer is the plainest group commit in front of an engine.
type committer struct {
	e    Engine
	jobs chan groupJob
	wg   sync.WaitGroup
}

type groupJob struct {
	payloads [][]byte
	done     chan error
}

// Grouped puts a group commit in front of an engine: whoever waits while a
// transaction is synced shares the next one.
func Grouped(open Open) Open {
	return func(dir string) (Engine, error) {
		e, err := open(dir)
		if err != nil {
			return nil, err
		}
		c := &committer{e: e, jobs: make(chan groupJob, 512)}
		c.wg.Go(c.run)
		return c, nil
	}
}

func (c *committer) run() {
	for first := range c.jobs {
		group, all := []groupJob{first}, first.payloads
	drain:
		for len(group) < maxGroup {
			select {
			case j, ok := <-c.jobs:
				if !ok {
					break drain
				}
				group, all = append(group, j), append(all, j.payloads...)
			default:
				break drain
			}
		}
		err := c.e.Append(all...)
		for _, j := range group {
			j.done <- err
		}
	}
}

func (c *committer) Append(payloads ...[]byte) error {
	done := make(chan error, 1)
	c.jobs <- groupJob{payloads, done}
	return <-done
}

func (c *committer) Close() error {
	close(c.jobs)
	c.wg.Wait()
	return c.e.Close()
}
