package oplog

import (
	"bytes"
	"strings"
	"unsafe"

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

// batch collects writes over a snapshot and reads through them. Writes since
// mark can be taken back, so that one failing job or entry leaves no trace.
type batch struct {
	base  kvSnapshot
	items writes
	bytes int
	arena []byte // room for keys and short values
}

// writes are the last write of each key. They lie in the order in which keys
// were first written, so that taking back cuts the end off; the order of keys
// is made when somebody scans, which most groups of appends never do.
type writes struct {
	at      map[string]int32
	list    []written
	journal []undo
	order   btree.Map[string, int32] // of list[:ordered]
	ordered int
}

type written struct {
	key string
	it  item
}

// undo is what a key held that is written again.
type undo struct {
	at  int32
	old item
}

// batchMark is a place in a batch to which it can be taken back.
type batchMark struct{ list, journal int }

// Len is how many keys are written or deleted.
func (w *writes) Len() int { return len(w.list) }

// Scan calls fn for each write, in no particular order, until it returns
// false.
func (w *writes) Scan(fn func(key string, it item) bool) {
	for i := range w.list {
		if !fn(w.list[i].key, w.list[i].it) {
			return
		}
	}
}

// sorted is the order of keys, of all that is written by now.
func (w *writes) sorted() *btree.Map[string, int32] {
	for ; w.ordered < len(w.list); w.ordered++ {
		w.order.Set(w.list[w.ordered].key, int32(w.ordered))
	}
	return &w.order
}

// reuseKeys bounds what is kept of a batch for the next one.
const reuseKeys = 16 << 10

// newBatch starts a batch over a snapshot, with the memory of an old one that
// nobody reads any more, if there is one.
func newBatch(base kvSnapshot, old *batch) *batch {
	b := &batch{base: base}
	if old != nil && cap(old.items.list) <= reuseKeys {
		n := len(old.items.list)
		if clear(old.items.list); cap(old.items.list) <= 64+16*n {
			clear(old.items.at)
			clear(old.items.journal)
			b.items.at, b.items.list, b.items.journal = old.items.at, old.items.list[:0], old.items.journal[:0]
		}
	}
	if b.items.at == nil {
		b.items.at = map[string]int32{}
	}
	return b
}

// Sizes of the arena that keys and short values are copied to.
const (
	arenaSize  = 8 << 10
	arenaValue = 512
)

// hold copies bytes to the arena.
func (b *batch) hold(data []byte) []byte {
	if len(data) > arenaSize/2 {
		return bytes.Clone(data)
	}
	if cap(b.arena)-len(b.arena) < len(data) {
		b.arena = make([]byte, 0, arenaSize)
	}
	n := len(b.arena)
	b.arena = append(b.arena, data...)
	return b.arena[n:len(b.arena):len(b.arena)]
}

// holdValue copies a value, never to nil.
func (b *batch) holdValue(value []byte) []byte {
	if len(value) > arenaValue {
		return bytes.Clone(value)
	}
	if len(value) == 0 {
		return []byte{}
	}
	return b.hold(value)
}

// put writes a key, which is copied, and a value, which is not.
func (b *batch) put(key []byte, it item) {
	w := &b.items
	b.bytes += len(it.value)
	if i, ok := w.at[string(key)]; ok {
		was := &w.list[i].it
		b.bytes -= len(was.value)
		w.journal = append(w.journal, undo{i, *was})
		*was = it
		return
	}
	held := b.hold(key)
	name := unsafe.String(unsafe.SliceData(held), len(held)) // nothing writes to what is held
	w.at[name] = int32(len(w.list))
	w.list = append(w.list, written{name, it})
	b.bytes += len(key) + 16
}

func (b *batch) set(key, value []byte) { b.put(key, item{value: value}) }
func (b *batch) del(key []byte)        { b.put(key, item{deleted: true}) }

func (b *batch) mark() batchMark { return batchMark{len(b.items.list), len(b.items.journal)} }

func (b *batch) rollback(m batchMark) {
	w := &b.items
	for i := len(w.journal) - 1; i >= m.journal; i-- {
		u := w.journal[i]
		b.bytes += len(u.old.value) - len(w.list[u.at].it.value)
		w.list[u.at].it = u.old
	}
	w.journal = w.journal[:m.journal]
	for i := len(w.list) - 1; i >= m.list; i-- {
		key := w.list[i].key
		b.bytes -= len(w.list[i].it.value) + len(key) + 16
		delete(w.at, key)
		if i < w.ordered {
			w.order.Delete(key)
		}
	}
	w.list = w.list[:m.list]
	w.ordered = min(w.ordered, m.list)
}

func (b *batch) full() bool { return b.bytes > softBatchBytes || b.items.Len() > softBatchKeys }
func (b *batch) over() bool { return b.bytes > maxBatchBytes || b.items.Len() > maxBatchKeys }

func (b *batch) get(key []byte) ([]byte, error) {
	if i, ok := b.items.at[string(key)]; ok {
		if it := &b.items.list[i].it; !it.deleted {
			return it.value, nil
		}
		return nil, ErrNotFound
	}
	return b.base.get(key)
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

type ownItem = written

// window lists the batch's own writes under a prefix from start on.
func (b *batch) window(prefix, start []byte, reverse bool) (own []ownItem) {
	if b.items.Len() == 0 {
		return nil
	}
	order := b.items.sorted()
	take := func(key string, at int32) bool {
		if !strings.HasPrefix(key, unsafe.String(unsafe.SliceData(prefix), len(prefix))) {
			return false
		}
		own = append(own, ownItem{key, b.items.list[at].it})
		return true
	}
	if reverse {
		if start != nil {
			order.Descend(string(start), take)
		} else if end := prefixEnd(prefix); end != nil {
			order.Descend(string(end), func(key string, at int32) bool {
				if key == string(end) {
					return true
				}
				return take(key, at)
			})
		} else {
			order.Reverse(take)
		}
		return own
	}
	if start == nil {
		start = prefix
	}
	order.Ascend(string(start), take)
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
