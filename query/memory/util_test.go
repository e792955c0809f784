package memory

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"sort"
	"testing"

	"tallystick/oplog"
)

// host is one replica's log in memory.
type host struct {
	*oplog.Log
	t      testing.TB
	author string
	wall   *int64
}

type seededReader struct{ *rand.ChaCha8 }

func seeded(name string) io.Reader { return seededReader{rand.NewChaCha8(sha256.Sum256([]byte(name)))} }

// wallStart is the time at which the clocks of tests begin.
const wallStart = 1_790_000_000_000

func newHost(t testing.TB, name string) *host {
	t.Helper()
	seed := sha256.Sum256([]byte(name))
	wall := int64(wallStart)
	l, err := oplog.Open(context.Background(), oplog.Config{
		InMemory: true, MinFree: -1, Signer: ed25519.NewKeyFromSeed(seed[:]), Rand: seeded(name),
		Wall: func() int64 { wall++; return wall }, Projections: []oplog.Projection{View{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return &host{Log: l, t: t, author: name + ":agent:proj", wall: &wall}
}

// later moves the host's clock on.
func (h *host) later(ms int64) { *h.wall += ms }

func (h *host) try(ops ...oplog.Op) ([]oplog.Appended, error) {
	return h.Append(context.Background(), ops...)
}

func (h *host) must(ops []oplog.Op, err error) Outcome {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
	done, err := h.try(ops...)
	if err != nil {
		h.t.Fatal(err)
	}
	var o Outcome
	h.view(func(s oplog.Snapshot) error {
		o, err = OutcomeOf(s, done)
		return err
	})
	return o
}

func one(op oplog.Op, err error) ([]oplog.Op, error) { return []oplog.Op{op}, err }

func (h *host) add(ns, text string) string {
	h.t.Helper()
	return h.must(one(NewAdd(h.author, Fact{Namespace: ns, Text: text}))).FactID
}

func (h *host) update(ns, target, text string) string {
	h.t.Helper()
	return h.must(NewUpdate(h.author, Fact{Namespace: ns, Text: text}, target)).FactID
}

func (h *host) forget(ns, target string) Outcome {
	h.t.Helper()
	return h.must(one(NewForget(h.author, ns, target)))
}

func (h *host) view(fn func(s oplog.Snapshot) error) {
	h.t.Helper()
	if err := h.View(fn); err != nil {
		h.t.Fatal(err)
	}
}

// live lists the live texts of a namespace, sorted.
func (h *host) live(ns string) (texts []string) {
	h.t.Helper()
	h.view(func(s oplog.Snapshot) error {
		page, err := List(s, Filter{Namespaces: []string{ns}, Limit: MaxLimit})
		for _, f := range page.Facts {
			if f.Retired != nil {
				h.t.Errorf("a live listing gives the retired %q", f.Text)
			}
			texts = append(texts, f.Text)
		}
		return err
	})
	sort.Strings(texts)
	return texts
}

func (h *host) fact(id string) (rec Record) {
	h.t.Helper()
	h.view(func(s oplog.Snapshot) (err error) {
		rec, err = Get(s, "id", id)
		return err
	})
	return rec
}

func (h *host) merges() (list []Merge) {
	h.t.Helper()
	h.view(func(s oplog.Snapshot) error {
		page, err := Merges(s, MergeFilter{Limit: MaxLimit})
		list = page.Merges
		return err
	})
	return list
}

func (h *host) digest() string { return h.Views()[0].Digest }

// pull copies everything that from holds and h lacks, in pieces.
func (h *host) pull(from *host, maxBytes int) {
	h.t.Helper()
	for again := true; again; {
		again = false
		for _, o := range from.Origins() {
			rg, err := from.ReadRange(o.ID, h.Frontier().Seq(o.ID), maxBytes)
			if err != nil {
				h.t.Fatal(err)
			}
			if rg.Count == 0 {
				continue
			}
			if _, err := h.Ingest(context.Background(), rg); err != nil {
				h.t.Fatal(err)
			}
			again = true
		}
	}
}

func meet(a, b *host) {
	a.t.Helper()
	a.pull(b, 1<<20)
	b.pull(a, 1<<20)
}

// rows is a view as a plain map: what a fold writes, in any order of Apply.
type rows map[string]string

func (r rows) Get(k []byte) ([]byte, error) {
	v, ok := r[string(k)]
	if !ok {
		return nil, oplog.ErrNotFound
	}
	return []byte(v), nil
}

func (r rows) Scan(prefix, start []byte, reverse bool, fn func(key, value []byte) (bool, error)) error {
	var keys []string
	for k := range r {
		if bytes.HasPrefix([]byte(k), prefix) && (start == nil || !reverse && k >= string(start) || reverse && k <= string(start)) {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	for n := range keys {
		k := keys[n]
		if reverse {
			k = keys[len(keys)-1-n]
		}
		if more, err := fn([]byte(k), []byte(r[k])); err != nil || !more {
			return err
		}
	}
	return nil
}

func (r rows) Insert(k, v []byte) error {
	if _, twice := r[string(k)]; twice {
		panic("inserted twice: " + string(k[:1]))
	}
	return r.Set(k, v)
}

func (r rows) Set(k, v []byte) error { r[string(k)] = string(v); return nil }

func (r rows) Delete(k []byte) error { delete(r, string(k)); return nil }
