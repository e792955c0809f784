package replica

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// ring is a keyring in memory that can be locked.
type ring struct {
	secrets map[string][]byte
	locked  error
}

func (r *ring) Set(name string, secret []byte) error {
	if r.locked == nil {
		r.secrets[name] = bytes.Clone(secret)
	}
	return r.locked
}

func (r *ring) Get(name string) ([]byte, error) {
	if r.locked != nil {
		return nil, r.locked
	}
	return r.secrets[name], nil
}

func TestT3_StoreKeyInTheKeyring(t *testing.T) {
	cfg := testConfig(t, "a")
	k := &ring{secrets: map[string][]byte{}}
	cfg.Keyring = k
	a := mustOpen(t, cfg)
	note(t, a, "kept")
	key := bytes.Clone(a.keys.store)
	a.Close()
	if len(k.secrets) != 1 {
		t.Fatalf("%d secrets in the keyring", len(k.secrets))
	}
	for name, secret := range k.secrets {
		if !bytes.Equal(secret, key) {
			t.Errorf("%s is not the store's key", name)
		}
	}
	file, err := os.ReadFile(filepath.Join(a.cfg.StateDir, storeKeyFile))
	if err != nil || bytes.Contains(file, key) {
		t.Errorf("the key file holds the key beside the keyring (%v)", err)
	}
	again := mustOpen(t, cfg)
	if again.Log().Views()[0].Rows == 0 || !bytes.Equal(again.keys.store, key) {
		t.Error("the store does not open with the key of the keyring")
	}
	again.Close()

	before := maps.Clone(k.secrets)
	k.locked = errors.New("locked")
	if _, err := Open(testContext(t), cfg); CodeOf(err) != CodeKeyDamaged {
		t.Errorf("with a locked keyring: %v", err)
	}
	cfg.Keyring = nil
	if _, err := Open(testContext(t), cfg); CodeOf(err) != CodeKeyDamaged {
		t.Errorf("without a keyring: %v", err)
	}
	if len(k.secrets) != len(before) {
		t.Error("a refused opening made another key")
	}
}

func TestT3_KeyFileWhereNoKeyringAnswers(t *testing.T) {
	cfg := testConfig(t, "a")
	cfg.Keyring = &ring{secrets: map[string][]byte{}, locked: errors.New("no session bus")}
	a := mustOpen(t, cfg)
	note(t, a, "kept")
	a.Close()
	cfg.Keyring = nil
	b := mustOpen(t, cfg)
	if b.Log().Views()[0].Rows == 0 {
		t.Error("the store does not open with the key file")
	}
}
