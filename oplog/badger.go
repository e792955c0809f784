package oplog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/dgraph-io/badger/v4"
)

// badgerStore is the durable store. SyncWrites is on: badger's commit returns
// after the sync (L1). Conflict detection is off, the log has one writer.
type badgerStore struct {
	db      *badger.DB
	dir     string
	checked time.Time // when its tables were last read through
	gate    *roomGate // nil in benchmarks of the bare store
}

// Sizes for a laptop, measured: 20-40 MiB of heap after use, where badger's
// defaults take 177 MiB.
const (
	memTableSize = 16 << 20
	cacheSize    = 16 << 20
	vlogFileSize = 64 << 20
)

// Block checksums are looked at when a store is opened (preflight.go), and not
// at each read: one that does not match reads as a block without keys, which a
// compaction then drops for good, with all that follows in the table. Without
// the look a flipped bit costs the entry that it is in, whose hashes show it
// (docs/adr/008).

func openBadger(dir string, key []byte, log *slog.Logger, change ...func(*badger.Options)) (*badgerStore, error) {
	opts := badger.DefaultOptions(dir).
		WithSyncWrites(true).
		WithDetectConflicts(false).
		WithMemTableSize(memTableSize).
		WithNumMemtables(2).
		WithBlockCacheSize(cacheSize).
		WithIndexCacheSize(cacheSize). // 0 panics on reopening an encrypted store
		WithValueLogFileSize(vlogFileSize).
		WithNumCompactors(2).
		WithNumLevelZeroTables(3).
		WithNumLevelZeroTablesStall(8).
		WithMetricsEnabled(false).
		WithLogger(badgerLog{log}).
		WithEncryptionKey(key)
	for _, f := range change {
		f(&opts)
	}
	if locked(dir) {
		return nil, fmt.Errorf("%w: %s", ErrLocked, dir)
	}
	checked, fresh := takeChecked(dir, time.Now())
	if err := checkFiles(opts, !fresh, log); err != nil {
		if locked(dir) { // its owner came in between, and writes
			return nil, fmt.Errorf("%w: %s", ErrLocked, dir)
		}
		return nil, err
	}
	db, err := openEngine(opts)
	switch {
	case err == nil:
		return &badgerStore{db: db, dir: dir, checked: checked}, nil
	case errors.Is(err, badger.ErrEncryptionKeyMismatch), errors.Is(err, badger.ErrInvalidEncryptionKey):
		return nil, fmt.Errorf("%w: %s; or its KEYREGISTRY is damaged", ErrKey, dir)
	case strings.Contains(err.Error(), "Cannot acquire directory lock"):
		return nil, fmt.Errorf("%w: %s", ErrLocked, dir)
	case isSystem(err):
		return nil, fmt.Errorf("oplog: open store: %w", systemError(dir, err))
	}
	// What is left is about the files' contents: a manifest, a table or a log
	// that does not read.
	return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, dir, err)
}

// systemError gives an error that badger has passed on as text its cause and
// the store's directory back.
func systemError(dir string, err error) error {
	if file := (*fs.PathError)(nil); errors.As(err, &file) {
		return err
	}
	for text, cause := range systemTexts {
		if strings.Contains(err.Error(), text) {
			return &fs.PathError{Op: err.Error() + ": open", Path: dir, Err: cause}
		}
	}
	return err
}

// systemTexts are what the system says when badger does not wrap.
var systemTexts = map[string]error{
	"permission denied":     fs.ErrPermission,
	"read-only file system": syscall.EROFS,
	"too many open files":   syscall.EMFILE,
}

// openEngine opens badger, whose readers panic on some of what they do not
// expect in a file.
func openEngine(opts badger.Options) (db *badger.DB, err error) {
	defer func() {
		if r := recover(); r != nil {
			db, err = nil, fmt.Errorf("the engine gave up: %v", r)
		}
	}()
	return badger.Open(opts)
}

// isSystem reports whether opening failed for what the system said and not
// for what the files hold.
func isSystem(err error) bool {
	for _, e := range []error{fs.ErrPermission, fs.ErrExist, syscall.EROFS, syscall.ENOSPC, syscall.EMFILE, syscall.ENFILE, syscall.ENOTDIR, syscall.EIO} {
		if errors.Is(err, e) {
			return true
		}
	}
	for text := range systemTexts {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}

func (s *badgerStore) snapshot() kvSnapshot { return badgerSnapshot{s.db.NewTransaction(false)} }

func (s *badgerStore) commit(b *batch) error {
	txn := s.db.NewTransaction(true)
	defer txn.Discard()
	var err error
	b.items.Scan(func(key string, it item) bool {
		// Badger keeps the key until the commit and does not write to it.
		k := unsafe.Slice(unsafe.StringData(key), len(key))
		if it.deleted {
			err = txn.Delete(k)
		} else {
			err = txn.Set(k, it.value)
		}
		return err == nil
	})
	if err == nil {
		err = txn.Commit()
	}
	return err
}

func (s *badgerStore) wipe(prefix []byte) error { return s.db.DropPrefix(prefix) }

// flatten compacts everything into one level, which drops old versions.
func (s *badgerStore) flatten() error { return s.db.Flatten(1) }

// close writes what is in memory out into tables. Without the room for that it
// leaves the engine as a crash would: everything is in its logs, synced, and a
// table written through a memory map would be the end of the process (SIGBUS).
func (s *badgerStore) close() error {
	if err := checkSpace(s.dir, closeRoom); err != nil {
		left.put(s)
		return nil
	}
	return s.closeNow()
}

func (s *badgerStore) closeNow() error {
	if s.gate != nil {
		s.gate.closing.Store(true)
	}
	err := s.db.Close()
	if err == nil {
		putChecked(s.dir, s.checked)
	}
	return err
}

// closeRoom is what closing may write: three memtables and the compactions
// that are on their way.
const closeRoom = 96 << 20

// left are engines that were not closed for lack of room. Their locks are this
// process's until it ends, or until a log is opened there again.
var left leftEngines

type leftEngines struct {
	mu    sync.Mutex
	byDir map[string]*badgerStore
}

func (l *leftEngines) put(s *badgerStore) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byDir == nil {
		l.byDir = map[string]*badgerStore{}
	}
	l.byDir[filepath.Clean(s.dir)] = s
}

// close closes the engine that was left in dir, if there is one. The caller has
// seen to it that there is room.
func (l *leftEngines) close(dir string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.byDir[filepath.Clean(dir)]
	if s == nil {
		return nil
	}
	delete(l.byDir, filepath.Clean(dir))
	return s.closeNow()
}

type badgerSnapshot struct{ txn *badger.Txn }

func (s badgerSnapshot) get(key []byte) ([]byte, error) {
	it, err := s.txn.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("oplog: read: %w", err)
	}
	if it.EstimatedSize() != it.KeySize()+it.ValueSize() {
		return it.ValueCopy(nil) // it lies in the value log, which may be unmapped
	}
	// What badger hands out is a copy made for this item alone, the third on its
	// way here; a fourth would be for nothing.
	var value []byte
	err = it.Value(func(v []byte) error {
		value = v[:len(v):len(v)]
		return nil
	})
	return value, err
}

func (s badgerSnapshot) scan(prefix, start []byte, reverse bool, fn func(key, value []byte) (bool, error)) error {
	opts := badger.DefaultIteratorOptions
	opts.Prefix = prefix
	opts.PrefetchValues = false // all values are inline: fetching ahead is a goroutine a row for nothing
	opts.Reverse = reverse
	it := s.txn.NewIterator(opts)
	defer it.Close()
	switch {
	case start != nil:
		it.Seek(start)
	case reverse:
		// Seek goes to the greatest key at or below its argument.
		it.Seek(append(bytes.Clone(prefix), bytes.Repeat([]byte{0xff}, 64)...))
	default:
		it.Seek(prefix)
	}
	for ; it.ValidForPrefix(prefix); it.Next() {
		item := it.Item()
		var value []byte
		if item.ValueSize() > 0 { // index rows have none
			var err error
			if value, err = item.ValueCopy(nil); err != nil {
				return fmt.Errorf("oplog: read: %w", err)
			}
		}
		more, err := fn(item.KeyCopy(nil), value)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

func (s badgerSnapshot) release() { s.txn.Discard() }

// badgerLog passes badger's warnings on and drops its talk.
type badgerLog struct{ log *slog.Logger }

func (l badgerLog) Errorf(f string, a ...any) {
	l.log.LogAttrs(context.Background(), slog.LevelError, "store", slog.String("badger", strings.TrimSpace(fmt.Sprintf(f, a...))))
}

func (l badgerLog) Warningf(f string, a ...any) {
	l.log.LogAttrs(context.Background(), slog.LevelWarn, "store", slog.String("badger", strings.TrimSpace(fmt.Sprintf(f, a...))))
}
func (l badgerLog) Infof(string, ...any)  {}
func (l badgerLog) Debugf(string, ...any) {}
