package oplog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/pb"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"
)

// checkFiles reads the store's files through before badger opens them, because
// badger does not survive or does not tell all that can be wrong with them: it
// panics on goroutines of its own when a block does not read, takes a damaged
// length in the manifest for a torn end and deletes the tables named after it,
// and cuts a write-ahead log at the first record that does not read, however
// many follow. Only logs without a byte are removed. What badger reports by itself is left to it.
// Tables are read through only when through is set, see checkedFile.
func checkFiles(opts badger.Options, through bool, log *slog.Logger) error {
	if err := checkKeys(opts); err != nil {
		return err
	}
	damaged := func(name string, err error) error {
		return fmt.Errorf("%w: %s: %w", ErrDamaged, name, err)
	}
	tables, _ := filepath.Glob(filepath.Join(opts.Dir, "*.sst"))
	logs, _ := filepath.Glob(filepath.Join(opts.Dir, "*.mem"))
	name := filepath.Join(opts.Dir, badger.ManifestFilename)
	f, err := os.Open(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && len(tables)+len(logs) > 0:
		return damaged(name, errors.New("it is missing, and the store's other files are here"))
	case err != nil:
		return nil
	}
	defer f.Close()
	m, end, err := badger.ReplayManifestFile(f, opts.ExternalMagicVersion, opts)
	if err != nil {
		return nil
	}
	if err := checkManifestEnd(f, end); err != nil {
		return damaged(name, err)
	}
	keys, err := badger.OpenKeyRegistry(badger.KeyRegistryOptions{Dir: opts.Dir, ReadOnly: true, EncryptionKey: opts.EncryptionKey})
	if err != nil {
		return nil
	}
	// Badger deletes the tables that the manifest does not name. A crash leaves
	// such tables, but what is in them is in a log or in other tables too.
	var lastID uint64
	for id := range m.Tables {
		lastID = max(lastID, id)
	}
	var unnamed []string
	for _, file := range tables {
		id, ok := table.ParseFileID(filepath.Base(file))
		if _, named := m.Tables[id]; ok && !named && id >= lastID {
			unnamed = append(unnamed, file)
		}
	}
	how := checkEnds
	switch {
	case through:
		how = checkBlocks
	case len(unnamed) > 0:
		how = checkIndexes
	}
	hollow := hollowLogs(logs)
	if len(hollow) > 0 {
		how = max(how, checkIndexes)
	}
	newest, err := checkNamed(opts.Dir, m.Tables, keys, how)
	if err != nil {
		return err
	}
	before := "" // the log before this one, when it is hollow
	for _, name := range logs {
		if hollow[name] {
			before = name
			continue
		}
		oldest, last, err := checkWAL(name, keys, log)
		if err != nil {
			return damaged(name, err)
		}
		if before != "" && oldest > newest+1 {
			return damaged(before, fmt.Errorf("it has no bytes, and no table holds the writes before those of %s", filepath.Base(name)))
		}
		newest, before = max(newest, last), ""
	}
	for _, file := range unnamed {
		if version, ok := newestIn(file, keys); ok && version > newest {
			return damaged(name, fmt.Errorf("it does not name %s, which holds later writes than all others", filepath.Base(file)))
		}
	}
	return removeHollow(hollow, log)
}

// hollowLogs are the write-ahead logs without a byte. A kill leaves the newest so
// between its making and its first byte, and any whose writes are in tables
// between the cutting of it and its removal; badger opens neither. One that was
// cut by somebody else leaves a gap in the versions before the next.
func hollowLogs(logs []string) map[string]bool {
	hollow := map[string]bool{}
	for _, name := range logs {
		if info, err := os.Stat(name); err == nil && info.Size() == 0 {
			hollow[name] = true
		}
	}
	return hollow
}

func removeHollow(hollow map[string]bool, log *slog.Logger) error {
	for name := range hollow {
		log.Warn("a write-ahead log without a byte is removed: a crash while it was made or removed", "file", name)
		if err := os.Remove(name); err != nil {
			return fmt.Errorf("oplog: an empty write-ahead log: %w", err)
		}
	}
	return nil
}

// How much of a table is checked.
const (
	checkEnds    = iota // what badger ends the process over; its newest version is not told
	checkIndexes        // all that badger reads at opening
	checkBlocks         // everything
)

// checkNamed checks the tables of a manifest, on several cores: their blocks at
// about 400 MB/s on each, one or two seconds of one core for a million entries.
func checkNamed(dir string, tables map[uint64]badger.TableManifest, keys *badger.KeyRegistry, how int) (newest uint64, err error) {
	var mu sync.Mutex
	var group sync.WaitGroup
	slots := make(chan struct{}, min(4, runtime.GOMAXPROCS(0)))
	for id, t := range tables {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			name := table.NewFilename(id, dir)
			var version uint64
			key, bad := keys.DataKey(t.KeyID)
			switch {
			case bad != nil:
			case how == checkBlocks:
				version, bad = checkTable(name, key, int(t.Compression))
			case how == checkIndexes:
				version, bad = checkIndex(name, key)
			default:
				bad = checkEnd(name)
			}
			mu.Lock()
			defer mu.Unlock()
			newest = max(newest, version)
			if bad != nil && err == nil {
				err = fmt.Errorf("%w: %s: %w", ErrDamaged, name, bad)
			}
		})
	}
	group.Wait()
	return newest, err
}

// checkManifestEnd tells a torn record at the end of the manifest, which is
// what a crash leaves, from a whole one with a damaged length.
func checkManifestEnd(f *os.File, end int64) error {
	if _, err := f.Seek(end, io.SeekStart); err != nil {
		return err
	}
	rest, err := io.ReadAll(f)
	if err != nil || len(rest) <= 8 {
		return err
	}
	want, sum := binary.BigEndian.Uint32(rest[4:]), uint32(0)
	for i := range rest[8:] {
		if sum = crc32.Update(sum, y.CastagnoliCrcTable, rest[8+i:9+i]); sum == want {
			return errors.New("the length of a record is damaged")
		}
	}
	return nil
}

// Lengths in the file of data keys, in bytes: what shows whether the store's
// key is the right one, and the length and checksum before each data key.
const (
	registryStart  = 16 + len("Hello Badger")
	registryRecord = 8
)

// checkKeys checks the records of the file of data keys, because badger panics
// over one that ends early and believes any length. Whether the store's key
// fits it tells by itself.
func checkKeys(opts badger.Options) error {
	name := filepath.Join(opts.Dir, badger.KeyRegistryFileName)
	b, err := os.ReadFile(name)
	if err != nil {
		return nil
	}
	bad := func(why string) error { return fmt.Errorf("%w: %s: %s", ErrDamaged, name, why) }
	if len(b) < registryStart {
		return bad("it is cut short")
	}
	for b = b[registryStart:]; len(b) > 0; {
		if len(b) < registryRecord {
			return bad("it is cut short")
		}
		n, sum := int64(binary.BigEndian.Uint32(b)), binary.BigEndian.Uint32(b[4:])
		if b = b[registryRecord:]; len(b) == 0 {
			return nil // badger takes this for the end
		}
		if n == 0 || n > int64(len(b)) {
			return bad("a data key's length does not fit")
		}
		if crc32.Checksum(b[:n], y.CastagnoliCrcTable) != sum {
			return bad("a data key's checksum does not match")
		}
		b = b[n:]
	}
	return nil
}

// WAL layout: key id, base IV, then records of header, key, value, CRC-32C.
const (
	walHeaderLen = 8 + 12
	walTxn       = 1 << 6 // one of the records of a transaction
	walFin       = 1 << 7 // the record that ends it
)

type walRecord struct {
	meta       byte
	key, value []byte
	end        int
}

func readWAL(b []byte, at int, key *pb.DataKey) (r walRecord, ok bool) {
	if len(b)-at < 2 {
		return r, false
	}
	i := at + 2
	var nums [3]uint64 // lengths of key and value, expiry
	for k := range nums {
		v, n := binary.Uvarint(b[i:])
		if n <= 0 {
			return r, false
		}
		nums[k], i = v, i+n
	}
	if nums[0] == 0 || nums[0] > 1<<16 || nums[1] > uint64(len(b)) || nums[0]+nums[1]+4 > uint64(len(b)-i) {
		return r, false
	}
	kv := b[i : i+int(nums[0]+nums[1])]
	r.end = i + len(kv) + 4
	if crc32.Checksum(b[at:r.end-4], y.CastagnoliCrcTable) != binary.BigEndian.Uint32(b[r.end-4:]) {
		return r, false
	}
	if key != nil {
		var iv [16]byte
		copy(iv[:], b[8:walHeaderLen])
		binary.BigEndian.PutUint32(iv[12:], uint32(at))
		var err error
		if kv, err = y.XORBlockAllocate(kv, key.Data, iv[:]); err != nil {
			return r, false
		}
	}
	r.meta, r.key, r.value = b[at], kv[:nums[0]], kv[nums[0]:]
	return r, true
}

// checkWAL reads a write-ahead log as badger does and says what it would lose.
// One transaction that does not read at the end is what a power loss leaves of
// one that nobody was told of; a damaged last one looks the same, so it is
// warned of. Transactions are written one at a time: when another one follows,
// the bytes are damaged. It gives the oldest and the newest version in the log, 0
// when it holds none.
func checkWAL(name string, keys *badger.KeyRegistry, log *slog.Logger) (oldest, newest uint64, err error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return 0, 0, nil
	}
	if len(b) < walHeaderLen {
		log.Warn("a write-ahead log has no header: a crash while it was made, or damage", "file", name, "bytes", len(b))
		return 0, 0, nil
	}
	key, err := keys.DataKey(binary.BigEndian.Uint64(b))
	if err != nil {
		return 0, 0, err
	}
	size := len(b)
	b = b[:max(walHeaderLen, len(bytes.TrimRight(b, "\x00")))]
	if len(b)+8 <= size {
		b = b[:len(b)+8] // a checksum may end with zeros
	} else {
		b = b[:size]
	}
	at, end, txn := walHeaderLen, walHeaderLen, uint64(0)
	for {
		r, ok := readWAL(b, at, key)
		if !ok {
			break
		}
		if len(r.key) < 8 {
			return 0, 0, fmt.Errorf("the record at %d has a key of %d bytes", at, len(r.key))
		}
		version := y.ParseTs(r.key)
		switch {
		case r.meta&walTxn != 0:
			if txn != 0 && txn != version {
				return 0, 0, fmt.Errorf("the record at %d is of another transaction", at)
			}
			txn = version
		case r.meta&walFin != 0:
			if txn == 0 || string(r.value) != fmt.Sprint(txn) {
				return 0, 0, fmt.Errorf("the record at %d ends another transaction", at)
			}
			if oldest == 0 {
				oldest = txn
			}
			newest, txn, end = max(newest, txn), 0, r.end
		case txn != 0:
			return 0, 0, fmt.Errorf("the record at %d is of no transaction", at)
		default:
			if oldest == 0 {
				oldest = version
			}
			newest, end = max(newest, version), r.end
		}
		at = r.end
	}
	rest := bytes.TrimRight(b[end:], "\x00")
	if len(rest) == 0 && (size%4096 == 0 || end == size) {
		return oldest, newest, nil
	}
	if size%4096 != 0 {
		return 0, 0, fmt.Errorf("it is cut short at %d, within the transaction at %d", size, end)
	}
	for i := at; i+5 < len(b); i++ {
		// The record that ends a transaction: 19 bytes of key, at most 20 digits.
		if b[i] != walFin || b[i+1] != 0 || b[i+2] != 19 || b[i+3] > 20 || b[i+4] != 0 {
			continue
		}
		if r, ok := readWAL(b, i, nil); ok && len(bytes.TrimRight(b[min(r.end, len(b)):], "\x00")) > 0 {
			return 0, 0, fmt.Errorf("the record at %d does not read, and others follow it", at)
		}
	}
	log.Warn("the last transaction of a write-ahead log does not read and is dropped: one that nobody was told of when the power failed, damage otherwise", "file", name, "at", at)
	return oldest, newest, nil
}
