//go:build !linux

package main

import "os"

// reserve gives a file blocks of its own.
func reserve(f *os.File, size int64) error { return fillBlocks(f, size) }
