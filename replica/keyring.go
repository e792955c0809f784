package replica

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
)

// Keyring keeps secrets for the user, encrypted by the system (T3). Both calls
// may block for as long as the system takes to answer; the implementation
// bounds that.
type Keyring interface {
	Set(name string, secret []byte) error
	Get(name string) ([]byte, error)
}

// keyringMagic begins a store.key file that names a secret in the keyring
// instead of holding the key.
const (
	keyringMagic   = "tallykrg"
	maxKeyringName = 128
)

// openStoreKey finds the key of the store, in the keyring or in its file, or
// makes it on a home without a store.
func openStoreKey(cfg *Config, hasStore bool, log *slog.Logger) ([]byte, error) {
	path := filepath.Join(cfg.StateDir, storeKeyFile)
	name, err := readKeyringName(path)
	switch {
	case err == nil:
		return keyFromRing(cfg.Keyring, path, name)
	case errors.Is(err, fs.ErrNotExist) && !hasStore && cfg.Keyring != nil:
		key, err := keyIntoRing(cfg, path)
		if err == nil {
			return key, nil
		}
		log.Warn("the system's keyring does not take the store's key, a key file does", slog.Any("error", err))
	}
	return openKey(path, storeKeyMagic, 32, hasStore, cfg.Rand, log)
}

// readKeyringName reads which secret of the keyring holds the key. Any other
// content of the file is for openKey to judge.
func readKeyringName(path string) (string, error) {
	b, err := readSmall(path)
	if err != nil {
		return "", err
	}
	name, err := decodeFile(keyringMagic, b)
	if err != nil || len(name) == 0 || len(name) > maxKeyringName {
		return "", errFileDamaged
	}
	return string(name), nil
}

// KeyInKeyring reports whether the store's key of a state folder is in the
// system's keyring, and not in its file.
func KeyInKeyring(stateDir string) bool {
	_, err := readKeyringName(filepath.Join(stateDir, storeKeyFile))
	return err == nil
}

func keyFromRing(ring Keyring, path, name string) ([]byte, error) {
	damaged := func(err error) error {
		return &Error{Code: CodeKeyDamaged, Field: path, Message: "the store's key is in the system's keyring as " + name + " and cannot be had from there",
			Hint: "unlock the keyring, or log in to the desktop whose keyring it is, then start again", Err: err}
	}
	if ring == nil {
		return nil, damaged(errors.New("no keyring is in use"))
	}
	key, err := ring.Get(name)
	if err == nil && len(key) != 32 {
		err = fmt.Errorf("%w: key of %d bytes, want 32", errFileDamaged, len(key))
	}
	if err != nil {
		return nil, damaged(err)
	}
	return key, nil
}

// keyIntoRing makes a key, stores it in the keyring, reads it back, and only
// then notes in the file where it is.
func keyIntoRing(cfg *Config, path string) ([]byte, error) {
	secret := make([]byte, 32+8)
	if _, err := io.ReadFull(cfg.Rand, secret); err != nil {
		return nil, fmt.Errorf("replica: make a key: %w", err)
	}
	key, name := secret[:32], "tallystick store "+hex.EncodeToString(secret[32:])
	if err := cfg.Keyring.Set(name, key); err != nil {
		return nil, err
	}
	back, err := cfg.Keyring.Get(name)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(back, key) {
		return nil, errors.New("the keyring gives another secret than it was given")
	}
	return key, writeFile(path, encodeFile(keyringMagic, []byte(name)), true)
}
