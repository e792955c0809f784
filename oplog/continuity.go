package oplog

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The continuity token tells a store that simply went on from one that was
// put back: a restored backup, a cloned disk, a rolled-back machine (L7a). It
// stands in the store and, as a copy, outside of it in the machine's state
// directory, bound to the machine and to the directory's inode. It turns at
// every start, every backup and every hour. Any doubt opens a new incarnation
// before the first write; that costs one entry in the frontier.

const continuityFormat = 0

// continuity is the copy outside the store.
type continuity struct {
	Format  int    `json:"format"`
	Store   string `json:"store"`
	Token   string `json:"token"`
	Next    string `json:"next,omitempty"` // set while the token is being turned
	Machine string `json:"machine"`
	Place   string `json:"place"` // device and inode of the store's directory
	Sum     string `json:"sum"`
}

func (c continuity) sum() string {
	c.Sum = ""
	b, _ := json.Marshal(c) // a struct of strings cannot fail
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:8])
}

func continuityPath(stateDir, store string) string {
	return filepath.Join(stateDir, "continuity-"+store+".json")
}

func readContinuity(path string) (c continuity, err error) {
	b, err := readSmallFile(path)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	if c.Format != continuityFormat || c.Sum != c.sum() {
		return c, fmt.Errorf("%s: not a continuity file of this format, or damaged", path)
	}
	return c, nil
}

// write replaces the file as a whole; a crash leaves the old or the new one.
func (c continuity) write(path string) error {
	c.Sum = c.sum()
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("oplog: continuity: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".continuity-*")
	if err != nil {
		return fmt.Errorf("oplog: continuity: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = io.Copy(f, bytes.NewReader(append(b, '\n')))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("oplog: continuity: %w", err)
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// machineID is what this machine calls itself; empty where it does not say.
func machineID() string {
	for _, p := range []string{"/etc/machine-id", "/var/lib/dbus/machine-id"} {
		if b, err := readSmallFile(p); err == nil {
			h := sha256.Sum256(append([]byte("tallystick machine\x00"), bytes.TrimSpace(b)...))
			return hex.EncodeToString(h[:8])
		}
	}
	return ""
}

// doubt compares the store's token with the copy outside. An empty answer
// means that the store went on from where it stopped on this machine.
func (l *Log) doubt(token []byte) string {
	if l.cfg.StateDir == "" || l.cfg.InMemory {
		return ""
	}
	path := continuityPath(l.cfg.StateDir, l.w.store)
	c, err := readContinuity(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && token == nil:
		return "" // a new store
	case errors.Is(err, fs.ErrNotExist):
		return "no continuity copy for this store on this machine"
	case err != nil:
		return strings.TrimPrefix(err.Error(), "oplog: ")
	}
	have := hex.EncodeToString(token)
	switch {
	case c.Store != l.w.store || have != c.Token && have != c.Next:
		return "the store is not the one that stopped here last: an older copy was put back, or another ran meanwhile"
	case c.Machine != machineID():
		return "the store was moved here from another machine"
	case c.Place != placeID(l.cfg.Dir):
		return "the store's directory is not the one that stopped here last"
	}
	return ""
}

// turn draws a new token: first the copy names both, then the store takes the
// new one, then the copy forgets the old. put stores the token durably.
func (l *Log) turn(old []byte, put func(token []byte) error) error {
	if l.cfg.StateDir == "" || l.cfg.InMemory {
		return nil
	}
	token := make([]byte, 16)
	if _, err := io.ReadFull(l.cfg.Rand, token); err != nil {
		return fmt.Errorf("oplog: continuity token: %w", err)
	}
	path := continuityPath(l.cfg.StateDir, l.w.store)
	c := continuity{
		Format: continuityFormat, Store: l.w.store, Token: hex.EncodeToString(old), Next: hex.EncodeToString(token),
		Machine: machineID(), Place: placeID(l.cfg.Dir),
	}
	if err := c.write(path); err != nil {
		return err
	}
	if err := put(token); err != nil {
		return err
	}
	c.Token, c.Next = c.Next, ""
	return c.write(path)
}
