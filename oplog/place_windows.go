package oplog

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/windows"
)

// placeID is not available on this system.
func placeID(string) string { return "" }

// locked reports whether a process, this one included, has the store open. The
// engine keeps a file open there that it shares with nobody, and that goes when
// it ends.
func locked(dir string) bool {
	f, err := os.Open(filepath.Join(dir, "LOCK"))
	if err != nil {
		return errors.Is(err, windows.ERROR_SHARING_VIOLATION)
	}
	f.Close()
	return false
}
