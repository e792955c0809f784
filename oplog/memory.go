package oplog

import (
	"bytes"
	"strings"
	"sync"

	"github.com/tidwall/btree"
)

// memory is a store on a copy-on-write tree: the same log without files, for
// tests and simulation. Nothing survives close.
type memory struct {
	mu   sync.Mutex
	tree *btree.Map[string, []byte]
}

func newMemory() *memory { return &memory{tree: new(btree.Map[string, []byte])} }

func (m *memory) snapshot() kvSnapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return memSnapshot{m.tree.Copy()}
}

func (m *memory) commit(b *batch) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	b.items.Scan(func(key string, it item) bool {
		if it.deleted {
			m.tree.Delete(key)
		} else {
			m.tree.Set(strings.Clone(key), bytes.Clone(it.value))
		}
		return true
	})
	return nil
}

func (m *memory) wipe(prefix []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var keys []string
	m.tree.Ascend(string(prefix), func(key string, _ []byte) bool {
		if !bytes.HasPrefix([]byte(key), prefix) {
			return false
		}
		keys = append(keys, key)
		return true
	})
	for _, k := range keys {
		m.tree.Delete(k)
	}
	return nil
}

func (m *memory) close() error { return nil }

type memSnapshot struct{ tree *btree.Map[string, []byte] }

func (s memSnapshot) get(key []byte) ([]byte, error) {
	v, ok := s.tree.Get(string(key))
	if !ok {
		return nil, ErrNotFound
	}
	return v, nil
}

func (s memSnapshot) scan(prefix, start []byte, reverse bool, fn func(key, value []byte) (bool, error)) error {
	var err error
	take := func(key string, value []byte) bool {
		if !bytes.HasPrefix([]byte(key), prefix) {
			return false
		}
		var more bool
		more, err = fn([]byte(key), value)
		return more && err == nil
	}
	switch {
	case !reverse && start == nil:
		s.tree.Ascend(string(prefix), take)
	case !reverse:
		s.tree.Ascend(string(start), take)
	case start != nil:
		s.tree.Descend(string(start), take)
	default:
		end := prefixEnd(prefix)
		if end == nil {
			s.tree.Reverse(take)
			break
		}
		s.tree.Descend(string(end), func(key string, value []byte) bool {
			return key == string(end) || take(key, value)
		})
	}
	return err
}

func (s memSnapshot) release() {}
