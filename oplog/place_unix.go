//go:build unix

package oplog

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// placeID tells one directory from a copy of it at the same path.
func placeID(dir string) string {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return ""
	}
	return fmt.Sprintf("%x-%x", uint64(st.Dev), st.Ino)
}

// locked reports whether a process, this one included, has the store open.
func locked(dir string) bool {
	f, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == unix.EWOULDBLOCK
}
