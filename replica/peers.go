package replica

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"

	"tallystick/oplog"
)

const (
	peersMagic = "tallyprs"
	maxPeers   = 4096
)

// peerRecord is a line of the address book, which survives restarts.
type peerRecord struct {
	Key   []byte
	Label string
	Addrs []string
	Seen  int64
}

func (p *peerRecord) valid() bool {
	return len(p.Key) == len(oplog.DeviceKey{}) && len(p.Label) <= maxLabel && len(p.Addrs) <= maxRemember &&
		!slices.ContainsFunc(p.Addrs, func(a string) bool { return checkAddr(a, false) != nil })
}

// loadPeers reads the address book. A damaged one costs nothing but the
// addresses in it.
func loadPeers(cfg *Config, log *slog.Logger) []peerRecord {
	path := filepath.Join(cfg.StateDir, peersFile)
	b, err := readSmall(path)
	if err == nil {
		b, err = decodeFile(peersMagic, b)
	}
	var list []peerRecord
	if err == nil {
		list, err = decodePeers(b)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("remembered addresses are lost", slog.String("file", path), slog.Any("error", err))
	}
	return list
}

func decodePeers(b []byte) (list []peerRecord, err error) {
	if n := arrayLen(b); n > maxPeers {
		return nil, fmt.Errorf("%d peers, limit %d", n, maxPeers)
	}
	var all []peerRecord
	if err := unmarshalMany(b, &all, maxPeers*(5+maxRemember)); err != nil {
		return nil, err
	}
	for _, p := range all {
		if p.valid() && len(list) < maxPeers {
			list = append(list, p)
		}
	}
	return list, nil
}

func savePeers(cfg *Config, list []peerRecord) error {
	slices.SortFunc(list, func(a, b peerRecord) int { return bytes.Compare(a.Key, b.Key) })
	if len(list) > maxPeers {
		list = list[:maxPeers]
	}
	body, err := marshalArrays(list)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(cfg.StateDir, peersFile), encodeFile(peersMagic, body), false)
}

// save writes the address book if it has changed.
func (d *dialer) save() {
	d.mu.Lock()
	if !d.dirty {
		d.mu.Unlock()
		return
	}
	d.dirty = false
	list := d.recordsLocked()
	d.mu.Unlock()
	if err := savePeers(&d.r.cfg, list); err != nil {
		d.r.logger.Warn("addresses not kept", slog.Any("error", err))
	}
}

func (d *dialer) recordsLocked() []peerRecord {
	var list []peerRecord
	for key, t := range d.peers {
		if _, out := d.out[key]; !out && len(t.addrs) > 0 {
			list = append(list, peerRecord{Key: bytes.Clone(key[:]), Label: t.label, Addrs: slices.Clone(t.addrs), Seen: t.seen})
		}
	}
	return list
}

func (d *dialer) records() []peerRecord {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.recordsLocked()
}
