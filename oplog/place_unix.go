//go:build unix

package oplog

import (
	"fmt"

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
