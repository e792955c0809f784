package server

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// What is read at most of a file, in bytes.
const (
	maxTokenFile = 1 << 20
	maxNoteFile  = 64 << 10 // a path or a mark, of this program or of git
)

var errNoSmallFile = errors.New("no small regular file")

// ReadSmallFile reads a whole file of at most so many bytes. A pipe, a device or a
// longer file is neither waited for nor read: the error is a *fs.PathError. It is for
// the files that the server and the program keep beside a replica.
func ReadSmallFile(path string, most int64) ([]byte, error) {
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
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("%w: more than %d bytes", errNoSmallFile, most)}
	}
	return b, err
}
