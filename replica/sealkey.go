package replica

import (
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
)

// SealKey is a key for files beside the store that are made of what it holds,
// such as a search index: derived from the store's key, another for every
// purpose, and nil when the store is not encrypted (T3).
func (r *Replica) SealKey(purpose string) ([]byte, error) {
	if r.keys.store == nil {
		return nil, nil
	}
	key, err := hkdf.Key(sha256.New, r.keys.store, nil, "tallystick "+purpose, 32)
	if err != nil {
		return nil, fmt.Errorf("replica: derive a key: %w", err)
	}
	return key, nil
}
