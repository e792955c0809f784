//go:build unix

package main

import (
	"os"
	"syscall"
)

// allocated is what a file takes on disk, holes not counted.
func allocated(info os.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int64(st.Blocks) * 512
	}
	return info.Size()
}
