package memory

import (
	"context"
	"sort"
	"testing"

	"tallystick/oplog"
	"tallystick/query/internal/viewtest"
)

// host is one replica's log in memory.
type host struct {
	*viewtest.Log
	t      testing.TB
	author string
}

func newHost(t testing.TB, name string) *host {
	t.Helper()
	l := viewtest.New(t, name, View{})
	return &host{Log: l, t: t, author: l.Author}
}

// later moves the host's clock on.
func (h *host) later(ms int64) { h.Later(ms) }

func (h *host) try(ops ...oplog.Op) ([]oplog.Appended, error) {
	return h.Append(context.Background(), ops...)
}

func (h *host) must(ops []oplog.Op, err error) Outcome {
	h.t.Helper()
	done := h.Add(ops, err)
	var o Outcome
	h.view(func(s oplog.Snapshot) (err error) {
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
	h.Read(fn)
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

func (h *host) digest() string { return h.Digest() }

func (h *host) pull(from *host, maxBytes int) { h.Pull(from.Log, maxBytes) }

func meet(a, b *host) { viewtest.Meet(a.Log, b.Log) }
