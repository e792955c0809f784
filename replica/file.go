package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// Small files outside the store carry magic, version, length and checksum
// (L8):
//
//	8 bytes  magic, ASCII
//	1 byte   version
//	4 bytes  length of the body, big-endian
//	n bytes  body
//	4 bytes  CRC-32 (IEEE) of all before it, big-endian
const (
	fileVersion  = 1
	fileOverhead = 8 + 1 + 4 + 4
	maxFile      = 1 << 20
)

var errFileDamaged = errors.New("the file is damaged")

func encodeFile(magic string, body []byte) []byte {
	b := make([]byte, 0, len(body)+fileOverhead)
	b = append(b, magic...)
	b = append(b, fileVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	b = append(b, body...)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

func decodeFile(magic string, b []byte) ([]byte, error) {
	if len(b) < fileOverhead || string(b[:8]) != magic {
		return nil, fmt.Errorf("%w: it does not begin with %q", errFileDamaged, magic)
	}
	if b[8] != fileVersion {
		return nil, fmt.Errorf("%w: version %d, this program knows %d", errFileDamaged, b[8], fileVersion)
	}
	n := int(binary.BigEndian.Uint32(b[9:]))
	if n != len(b)-fileOverhead {
		return nil, fmt.Errorf("%w: it holds %d bytes and says %d", errFileDamaged, len(b)-fileOverhead, n)
	}
	end := len(b) - 4
	if crc32.ChecksumIEEE(b[:end]) != binary.BigEndian.Uint32(b[end:]) {
		return nil, fmt.Errorf("%w: its checksum does not match", errFileDamaged)
	}
	return b[13:end], nil
}

// readSmall reads a whole file of at most maxFile bytes.
func readSmall(path string) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > maxFile {
		return nil, fmt.Errorf("%w: %s is no small regular file", errFileDamaged, path)
	}
	return os.ReadFile(path)
}

// checkPrivate refuses a secret that others on this machine can read.
func checkPrivate(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if st.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("mode %04o lets others on this machine read it", st.Mode().Perm())
	}
	return nil
}

// writeFile replaces path by data so that a crash leaves the old file or the
// new one. With fresh it refuses to replace: fs.ErrExist.
func writeFile(path string, data []byte, fresh bool) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*") // created 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if fresh {
		err = linkFresh(f.Name(), path)
	} else {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return err
	}
	return syncDir(dir)
}

// linkFresh puts the file at path only if nothing is there, also between two
// processes that start at the same time.
func linkFresh(tmp, path string) error {
	err := os.Link(tmp, path)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	// A file system without hard links: the store's lock is what is left to
	// keep two starters apart.
	if _, serr := os.Lstat(path); serr == nil {
		return fs.ErrExist
	}
	return os.Rename(tmp, path)
}

func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}
