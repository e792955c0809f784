package replica

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"tallystick/oplog"
)

// Files of the state directory.
const (
	deviceKeyFile = "device.key"
	storeKeyFile  = "store.key"
	gossipKeyFile = "gossip.key"
	peersFile     = "peers"
)

const (
	deviceKeyMagic = "tallydev"
	storeKeyMagic  = "tallysto"
	gossipKeyMagic = "tallygos"
)

// Keys are the secrets of a replica. They never leave the machine, except
// the gossip key, which members tell each other.
type keys struct {
	device ed25519.PrivateKey
	store  []byte // 32 bytes, nil when the store is not encrypted
}

func (k *keys) public() (d oplog.DeviceKey) {
	copy(d[:], k.device.Public().(ed25519.PublicKey))
	return d
}

// openKeys loads the keys or, on a home without a store, creates them. A key
// file that is damaged, readable by others, or missing beside an existing
// store is an error: a new identity is never made in silence.
func openKeys(cfg *Config, log *slog.Logger) (*keys, error) {
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("replica: create the state directory: %w", err)
	}
	hasStore := dirHasFiles(cfg.storeDir()) || dirHasFiles(filepath.Join(cfg.bringDir(), "store"))
	seed, err := openKey(filepath.Join(cfg.StateDir, deviceKeyFile), deviceKeyMagic, ed25519.SeedSize, hasStore, cfg.Rand, log)
	if err != nil {
		return nil, err
	}
	k := &keys{device: ed25519.NewKeyFromSeed(seed)}
	if !cfg.PlainStore {
		k.store, err = openStoreKey(cfg, hasStore, log)
		if err != nil {
			return nil, err
		}
	}
	return k, nil
}

func openKey(path, magic string, size int, mustExist bool, random io.Reader, log *slog.Logger) ([]byte, error) {
	key, err := readKey(path, magic, size)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if mustExist {
		return nil, &Error{Code: CodeKeyDamaged, Field: path, Message: "key file " + path + " is missing although the store exists",
			Hint: "put the file back from where it went; without it, move the data directory away and join the mesh again as a new device", Err: err}
	}
	key = make([]byte, size)
	if _, err := io.ReadFull(random, key); err != nil {
		return nil, fmt.Errorf("replica: make a key: %w", err)
	}
	err = writeFile(path, encodeFile(magic, key), true)
	if errors.Is(err, fs.ErrExist) { // another process was first
		return readKey(path, magic, size)
	}
	if err != nil {
		return nil, fmt.Errorf("replica: write key file %s: %w", path, err)
	}
	log.Info("key kept in a file that only this user can read", slog.String("file", path))
	return key, nil
}

func readKey(path, magic string, size int) ([]byte, error) {
	b, err := readSmall(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return nil, keyDamaged(path, err)
	}
	if err := checkPrivate(path); err != nil {
		return nil, &Error{Code: CodeKeyDamaged, Field: path, Message: "key file " + path + " is not private",
			Hint: "if nobody else had a look, run: chmod 600 " + path, Err: err}
	}
	key, err := decodeFile(magic, b)
	if err == nil && len(key) != size {
		err = fmt.Errorf("%w: key of %d bytes, want %d", errFileDamaged, len(key), size)
	}
	if err != nil {
		return nil, keyDamaged(path, err)
	}
	return key, nil
}

func keyDamaged(path string, err error) error {
	return &Error{Code: CodeKeyDamaged, Field: path, Message: "key file " + path + " cannot be used",
		Hint: "restore the file; deleting it does not help, since the store belongs to the old key", Err: err}
}

func dirHasFiles(dir string) bool {
	names, err := os.ReadDir(dir)
	return err == nil && len(names) > 0
}

// gossipKey is the shared secret of memberlist's packets. Of two the later
// made counts, so that every replica ends with the same one.
//
// It is 8 bytes of epoch, big-endian, and 32 bytes of key. The epoch is even, the
// time it was made in unix ms; or odd, and the key was turned for an ending (T2):
// then it is right behind the stamp of the revoke or leave.
type gossipKey [40]byte

// turnedEpoch is the epoch of a key that is turned for an ending at a time.
func turnedEpoch(millis int64) uint64 { return (uint64(millis) + 1) | 1 }

// turned reports whether the key was turned for an ending.
func (k gossipKey) turned() bool { return k.epoch()&1 == 1 }

func newGossipKey(random io.Reader, nowMillis int64) (k gossipKey, err error) {
	binary.BigEndian.PutUint64(k[:], uint64(nowMillis)&^1)
	_, err = io.ReadFull(random, k[8:])
	return k, err
}

func (k gossipKey) isZero() bool { return k == gossipKey{} }

func (k gossipKey) epoch() uint64 { return binary.BigEndian.Uint64(k[:8]) }

func gossipKeyOf(epoch uint64, secret []byte) (k gossipKey, ok bool) {
	if len(secret) != len(k)-8 {
		return k, false
	}
	binary.BigEndian.PutUint64(k[:], epoch)
	copy(k[8:], secret)
	return k, true
}

func (k gossipKey) secret() []byte { return k[8:] }

func (k gossipKey) newer(o gossipKey) bool { return string(k[:]) > string(o[:]) }

// loadGossipKey returns the zero key when there is none yet. A damaged file
// costs nothing but itself: the key comes again with the next peer's hello.
func loadGossipKey(cfg *Config, log *slog.Logger) (k gossipKey) {
	path := filepath.Join(cfg.StateDir, gossipKeyFile)
	b, err := readKey(path, gossipKeyMagic, len(k))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			log.Warn("gossip key file unusable, waiting for a peer's", slog.String("file", path), slog.Any("error", err))
		}
		return k
	}
	copy(k[:], b)
	return k
}

func saveGossipKey(cfg *Config, k gossipKey) error {
	return writeFile(filepath.Join(cfg.StateDir, gossipKeyFile), encodeFile(gossipKeyMagic, k[:]), false)
}

func randOr(r io.Reader) io.Reader {
	if r == nil {
		return rand.Reader
	}
	return r
}
