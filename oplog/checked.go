package oplog

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"time"
)

// Reading every table through costs a second or two for a million entries, so it
// is done when it is likely to find something: after a run that did not end by
// Close, a crash over a damaged table included, and else once a day. The file
// CHECKED in the store's folder says when the tables were last read through; it
// is taken away at opening and written at Close.
const (
	checkedFile  = "CHECKED"
	checkedMagic = "tallychk"
	checkedFor   = 24 * time.Hour
	checkedLen   = len(checkedMagic) + 8 + 4 // then unix milliseconds and CRC-32 of what is before
)

// takeChecked takes the file away and gives the time in it. It is not fresh
// when the tables must be read through.
func takeChecked(dir string, now time.Time) (at time.Time, fresh bool) {
	name := filepath.Join(dir, checkedFile)
	b, err := readSmallFile(name)
	if err != nil || os.Remove(name) != nil || len(b) != checkedLen || string(b[:len(checkedMagic)]) != checkedMagic {
		return now, false
	}
	end := checkedLen - 4
	if crc32.ChecksumIEEE(b[:end]) != binary.BigEndian.Uint32(b[end:]) {
		return now, false
	}
	at = time.UnixMilli(int64(binary.BigEndian.Uint64(b[len(checkedMagic):])))
	if age := now.Sub(at); age < 0 || age >= checkedFor {
		return now, false
	}
	return at, true
}

// putChecked notes that the store was closed and when its tables were read
// through. Without the file, or with half of it, they are read again.
func putChecked(dir string, at time.Time) {
	b := binary.BigEndian.AppendUint64([]byte(checkedMagic), uint64(at.UnixMilli()))
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	_ = os.WriteFile(filepath.Join(dir, checkedFile), b, 0o600)
}
