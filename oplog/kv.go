package oplog

import (
	"bytes"

	"github.com/tidwall/btree"
)

// store is what the log needs of a key-value engine. Badger is one, a
// copy-on-write tree in memory the other; both carry the same log code.
type store interface {
	snapshot() kvSnapshot
	// commit writes all of b durably, or nothing.
	commit(b *batch) error
	// wipe removes every key with the prefix. It is not atomic.
	wipe(prefix []byte) error
	close() error
}

// kvSnapshot is a consistent reading. Slices are valid until release.
type kvSnapshot interface {
	get(key []byte) ([]byte, error) // ErrNotFound
	scan(prefix, start []byte, reverse bool, fn func(key, value []byte) (bool, error)) error
	release()
}

// Bounds of one transaction. Badger takes 15 % of a memtable of 16 MiB and
// 25,000 keys. A group stops growing at the soft bound, and a job that takes
// it over the hard one waits for the next group.
const (
	softBatchBytes = 1 << 20
	softBatchKeys  = 12_000
	maxBatchBytes  = 2300 << 10
	maxBatchKeys   = 22_000
)

type item struct {
	value   []byte
	deleted bool
}

type undo struct {
	key     string
	old     item
	existed bool
}

// batch collects writes over a snapshot and reads through them. Writes since
// mark can be taken back, so that one failing job or entry leaves no trace.
type batch struct {
	base    kvSnapshot
	items   btree.Map[string, item]
	bytes   int
	journal []undo
}

func newBatch(base kvSnapshot) *batch { return &batch{base: base} }

func (b *batch) put(key string, it item) {
	old, existed := b.items.Set(key, it)
	b.journal = append(b.journal, undo{key, old, existed})
	b.bytes += len(it.value)
	if existed {
		b.bytes -= len(old.value)
	} else {
		b.bytes += len(key) + 16
	}
}

func (b *batch) set(key, value []byte) { b.put(string(key), item{value: value}) }
func (b *batch) del(key []byte)        { b.put(string(key), item{deleted: true}) }

func (b *batch) mark() int { return len(b.journal) }

func (b *batch) rollback(mark int) {
	for i := len(b.journal) - 1; i >= mark; i-- {
		u := b.journal[i]
		if u.existed {
			cur, _ := b.items.Set(u.key, u.old)
			b.bytes += len(u.old.value) - len(cur.value)
			continue
		}
		cur, _ := b.items.Delete(u.key)
		b.bytes -= len(cur.value) + len(u.key) + 16
	}
	b.journal = b.journal[:mark]
}

func (b *batch) full() bool { return b.bytes > softBatchBytes || b.items.Len() > softBatchKeys }
func (b *batch) over() bool { return b.bytes > maxBatchBytes || b.items.Len() > maxBatchKeys }

func (b *batch) get(key []byte) ([]byte, error) { return b.getString(string(key)) }

func (b *batch) getString(key string) ([]byte, error) {
	if it, ok := b.items.Get(key); ok {
		if it.deleted {
			return nil, ErrNotFound
		}
		return it.value, nil
	}
	return b.base.get([]byte(key))
}

// scan merges the batch's writes into the snapshot's keys.
func (b *batch) scan(prefix, start []byte, reverse bool, fn func(key, value []byte) (bool, error)) error {
	own := b.window(prefix, start, reverse)
	if len(own) == 0 {
		return b.base.scan(prefix, start, reverse, fn)
	}
	i, stopped := 0, false
	emit := func(o ownItem) (bool, error) {
		if o.it.deleted {
			return true, nil
		}
		return fn([]byte(o.key), o.it.value)
	}
	before := func(a, c string) bool {
		if reverse {
			return a > c
		}
		return a < c
	}
	err := b.base.scan(prefix, start, reverse, func(key, value []byte) (bool, error) {
		for i < len(own) && before(own[i].key, string(key)) {
			more, err := emit(own[i])
			i++
			if !more || err != nil {
				stopped = true
				return false, err
			}
		}
		if i < len(own) && own[i].key == string(key) {
			more, err := emit(own[i])
			i++
			stopped = !more
			return more, err
		}
		more, err := fn(key, value)
		stopped = !more
		return more, err
	})
	for ; err == nil && !stopped && i < len(own); i++ {
		var more bool
		more, err = emit(own[i])
		stopped = !more
	}
	return err
}

type ownItem struct {
	key string
	it  item
}

// window lists the batch's own writes under a prefix from start on.
func (b *batch) window(prefix, start []byte, reverse bool) (own []ownItem) {
	take := func(key string, it item) bool {
		if !bytes.HasPrefix([]byte(key), prefix) {
			return false
		}
		own = append(own, ownItem{key, it})
		return true
	}
	if reverse {
		if start != nil {
			b.items.Descend(string(start), take)
		} else if end := prefixEnd(prefix); end != nil {
			b.items.Descend(string(end), func(key string, it item) bool {
				if key == string(end) {
					return true
				}
				return take(key, it)
			})
		} else {
			b.items.Reverse(take)
		}
		return own
	}
	if start == nil {
		start = prefix
	}
	b.items.Ascend(string(start), take)
	return own
}

func (b *batch) release() { b.base.release() }

// prefixEnd is the first key after all keys with the prefix, nil if none.
func prefixEnd(prefix []byte) []byte {
	end := bytes.Clone(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] != 0xff {
			end[i]++
			return end[:i+1]
		}
	}
	return nil
}
