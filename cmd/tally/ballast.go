package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
)

// The ballast is a file of real blocks in the state directory. When the disk
// is so full that the store may not be opened, and nothing can be deleted
// through the replica, dropping it gives the room to start and clean up.
const ballastSize = 192 << 20

func (h home) ballastFile() string { return filepath.Join(h.State, "ballast") }

// keepBallast makes the ballast when there is none and the disk has plenty of
// room. It is never a reason not to start. TALLY_BALLAST=off does without.
func (a *app) keepBallast(h home, log *slog.Logger) {
	if a.Getenv("TALLY_BALLAST") == "off" {
		return
	}
	if err := makeBallast(h.ballastFile(), ballastSize); err != nil {
		log.Warn("no ballast file", "error", err)
	}
}

var errLittleRoom = errors.New("too little free disk space for it")

// makeBallast reserves size bytes at path, if eight times that are free.
func makeBallast(path string, size int64) error {
	if info, err := os.Stat(path); err == nil && info.Size() >= size {
		return nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("ballast: %w", err)
	}
	if free, ok := freeDisk(filepath.Dir(path)); ok && free < 8*size {
		return errLittleRoom
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("ballast: %w", err)
	}
	err = errors.Join(reserve(f, size), f.Close())
	if err != nil {
		os.Remove(path)
		return fmt.Errorf("ballast: %w", err)
	}
	return nil
}

// fillBlocks writes bytes that no file system leaves out or compresses.
func fillBlocks(f *os.File, size int64) error {
	block := make([]byte, 1<<20)
	x := uint64(88172645463325252)
	for at := int64(0); at < size; at += int64(len(block)) {
		for i := 0; i < len(block); i += 8 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
			for j := range 8 {
				block[i+j] = byte(x >> (8 * j))
			}
		}
		if _, err := f.Write(block[:min(int64(len(block)), size-at)]); err != nil {
			return err
		}
	}
	return f.Sync()
}

// dropBallast gives its blocks back and says how many bytes that were.
func dropBallast(h home) (int64, error) {
	info, err := os.Stat(h.ballastFile())
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err == nil {
		err = os.Remove(h.ballastFile())
	}
	if err != nil {
		return 0, fmt.Errorf("ballast: %w", err)
	}
	return info.Size(), nil
}
