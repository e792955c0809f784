package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
)

// What is read at most of a file, in bytes.
const (
	maxSettingsFile = 8 << 20 // of a client, or rules for agents
	maxOwnFile      = 1 << 20 // settings of a replica, the place of a watch, a report, what git keeps
	maxRootsFile    = 8 << 20 // at most maxRoots rows, each with a path
)

// readSmall reads a whole file of at most so many bytes. A pipe, a device or a
// longer file is neither waited for nor read.
func readSmall(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	no := fmt.Errorf("%s is no file of at most %d bytes", path, most)
	if !info.Mode().IsRegular() || info.Size() > most {
		return nil, no
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := bytes.NewBuffer(make([]byte, 0, info.Size()+bytes.MinRead))
	_, err = b.ReadFrom(io.LimitReader(f, most+1)) // it may have grown since
	if int64(b.Len()) > most {
		return nil, no
	}
	return b.Bytes(), err
}
