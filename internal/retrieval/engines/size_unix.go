//go:build unix

package main

import (
	"os"
	"syscall"
)

// allocated is what a file takes on disk; badger's are sparse.
func allocated(i os.FileInfo) int64 {
	if st, ok := i.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return i.Size()
}
