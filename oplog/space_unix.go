//go:build unix

package oplog

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// checkSpace refuses when fewer than min bytes are free for this user below
// dir. Badger writes through memory maps, where a full disk is a fatal SIGBUS
// and not an error; so room is checked before every commit.
func checkSpace(dir string, min int64) error {
	if min < 0 || dir == "" {
		return nil
	}
	var st unix.Statfs_t
	err := unix.Statfs(dir, &st)
	for errors.Is(err, fs.ErrNotExist) && filepath.Dir(dir) != dir {
		dir = filepath.Dir(dir)
		err = unix.Statfs(dir, &st)
	}
	if err != nil {
		return fmt.Errorf("oplog: free space of %s: %w", dir, err)
	}
	if free := int64(st.Bavail) * int64(st.Bsize); free < min {
		return fmt.Errorf("%w: %s has %d MiB free, %d MiB must stay free", ErrNoSpace, dir, free>>20, min>>20)
	}
	return nil
}
