package oplog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// maxSmallFile bounds what is read of a file beside the store. Each takes a few
// hundred bytes as this program writes it.
const maxSmallFile = 64 << 10

var errNoSmallFile = errors.New("no small regular file")

// readSmallFile reads a whole file of at most maxSmallFile bytes. A pipe, a
// device or a longer file has been put there by somebody else, and is neither
// waited for nor read. The log imports nothing above it, so it does not share the
// server's.
func readSmallFile(path string) ([]byte, error) {
	switch st, err := os.Stat(path); {
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular():
		return nil, &fs.PathError{Op: "read", Path: path, Err: errNoSmallFile}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSmallFile+1))
	if err == nil && len(b) > maxSmallFile {
		err = &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("%w: more than %d bytes", errNoSmallFile, maxSmallFile)}
	}
	return b, err
}
