package search

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// The file of an index is a header and frames, each a step of the index's
// growth. docs/search.md specifies it. It is a cache: whatever is wrong with it
// costs a fold.

const (
	fileName    = "search.idx"
	fileMagic   = "TALLYIDX"
	fileVersion = 1
	headerSize  = 8 + 2 + 2 + 32 + 32 + 8 + 8
	flagSealed  = 1
	// maxFrame bounds a frame before it is read into memory.
	maxFrame = 1 << 30
)

var (
	errDamaged  = errors.New("damaged")
	errOutdated = errors.New("made by another version or for other sources")
	errKey      = errors.New("sealed with another key")
)

// file is open for appending frames.
type file struct {
	path   string
	f      *os.File
	aead   cipher.AEAD // nil in a plain file
	header [headerSize]byte
	frames uint64
	size   atomic.Int64
}

func (f *file) describe() string {
	if f.aead == nil {
		return "plain file"
	}
	return "encrypted file"
}

// seal derives the file's own key (the store's is never used twice) and a value
// to know it by.
func seal(key, salt []byte) (aead cipher.AEAD, check []byte, err error) {
	k, err := hkdf.Key(sha256.New, key, salt, "tallystick search index 1", 40)
	if err != nil {
		return nil, nil, fmt.Errorf("search: derive key: %w", err)
	}
	block, err := aes.NewCipher(k[:32])
	if err != nil {
		return nil, nil, fmt.Errorf("search: key: %w", err)
	}
	aead, err = cipher.NewGCM(block)
	return aead, k[32:], err
}

// makeHeader: magic, version, flags, salt, fingerprint, key check, checksum.
func makeHeader(salt, print, check []byte) (h [headerSize]byte) {
	copy(h[:], fileMagic)
	binary.BigEndian.PutUint16(h[8:], fileVersion)
	if check != nil {
		binary.BigEndian.PutUint16(h[10:], flagSealed)
	}
	copy(h[12:], salt)
	copy(h[44:], print)
	copy(h[76:], check)
	binary.BigEndian.PutUint64(h[84:], xxhash.Sum64(h[:84]))
	return h
}

// create begins a file beside path; install puts it in place.
func create(path string, key, print []byte) (*file, error) {
	var salt [32]byte
	if _, err := rand.Read(salt[:]); err != nil {
		return nil, err
	}
	f := &file{path: path}
	var check []byte
	var err error
	if key != nil {
		if f.aead, check, err = seal(key, salt[:]); err != nil {
			return nil, err
		}
	}
	f.header = makeHeader(salt[:], print, check)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("search: make directory: %w", err)
	}
	if f.f, err = os.OpenFile(path+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
		return nil, fmt.Errorf("search: create: %w", err)
	}
	if _, err := f.f.Write(f.header[:]); err != nil {
		f.f.Close()
		return nil, fmt.Errorf("search: write: %w", err)
	}
	f.size.Store(headerSize)
	return f, nil
}

// install makes a created file the index's, for good: after it nothing of
// the old one is left.
func (f *file) install() error {
	if err := f.f.Sync(); err != nil {
		return fmt.Errorf("search: sync: %w", err)
	}
	if err := os.Rename(f.path+".new", f.path); err != nil {
		return fmt.Errorf("search: rename: %w", err)
	}
	dir, err := os.Open(filepath.Dir(f.path))
	if err != nil {
		return fmt.Errorf("search: sync directory: %w", err)
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("search: sync directory: %w", err)
	}
	return nil
}

// append writes one frame: its length, then its bytes sealed or with a
// checksum.
func (f *file) append(body []byte) error {
	if len(body) > maxFrame-64 {
		return fmt.Errorf("search: frame of %d bytes", len(body))
	}
	out := make([]byte, 4, len(body)+64)
	if f.aead != nil {
		out = f.aead.Seal(out, f.nonce(), body, f.header[:])
	} else {
		out = append(out, body...)
		out = binary.BigEndian.AppendUint64(out, f.checksum(body))
	}
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	n, err := f.f.Write(out)
	if err != nil {
		// A torn frame at the end would hide those behind it.
		if n > 0 {
			err = errors.Join(err, f.f.Truncate(f.size.Load()))
			_, seekErr := f.f.Seek(f.size.Load(), io.SeekStart)
			err = errors.Join(err, seekErr)
		}
		return fmt.Errorf("search: write: %w", err)
	}
	f.frames++
	f.size.Add(int64(n))
	return nil
}

// nonce is the frame's number: the key is this file's own.
func (f *file) nonce() []byte {
	var n [12]byte
	binary.BigEndian.PutUint64(n[4:], f.frames)
	return n[:]
}

// checksum binds a plain frame to its place in its file.
func (f *file) checksum(body []byte) uint64 {
	var h xxhash.Digest
	h.Reset()
	h.Write(f.header[:])
	h.Write(f.nonce())
	h.Write(body)
	return h.Sum64()
}

func (f *file) close() error { return f.f.Close() }

// open reads a file and calls fn with each frame. What a crash tore at the end
// is cut off; damage anywhere else is errDamaged.
func open(path string, key, print []byte, fn func(body []byte) error) (*file, error) {
	h, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	f := &file{path: path, f: h}
	if err := f.read(key, print, fn); err != nil {
		h.Close()
		return nil, err
	}
	return f, nil
}

func (f *file) read(key, print []byte, fn func(body []byte) error) error {
	st, err := f.f.Stat()
	if err != nil {
		return err
	}
	if _, err := io.ReadFull(f.f, f.header[:]); err != nil {
		return errDamaged
	}
	h := f.header[:]
	if string(h[:8]) != fileMagic || binary.BigEndian.Uint64(h[84:]) != xxhash.Sum64(h[:84]) {
		return errDamaged
	}
	sealed := binary.BigEndian.Uint16(h[10:]) == flagSealed
	if binary.BigEndian.Uint16(h[8:]) != fileVersion || !bytes.Equal(h[44:76], print) || sealed != (key != nil) {
		return errOutdated
	}
	if sealed {
		var check []byte
		if f.aead, check, err = seal(key, h[12:44]); err != nil {
			return err
		}
		if subtle.ConstantTimeCompare(check, h[76:84]) != 1 {
			return errKey
		}
	}
	pos := int64(headerSize)
	for pos < st.Size() {
		body, n, err := f.next(st.Size() - pos)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			break // torn: the tail of the last frame never reached the disk
		}
		if err != nil {
			return err
		}
		if err := fn(body); err != nil {
			return err
		}
		f.frames++
		pos += n
	}
	if err := f.f.Truncate(pos); err != nil {
		return err
	}
	if _, err := f.f.Seek(pos, io.SeekStart); err != nil {
		return err
	}
	f.size.Store(pos)
	return nil
}

func (f *file) next(left int64) (body []byte, n int64, err error) {
	var l [4]byte
	if left < 4 {
		return nil, 0, io.ErrUnexpectedEOF
	}
	if _, err := io.ReadFull(f.f, l[:]); err != nil {
		return nil, 0, err
	}
	size := int64(binary.BigEndian.Uint32(l[:]))
	if size > maxFrame || size < 8 {
		return nil, 0, errDamaged
	}
	if size > left-4 {
		return nil, 0, io.ErrUnexpectedEOF
	}
	raw := make([]byte, size)
	if _, err := io.ReadFull(f.f, raw); err != nil {
		return nil, 0, err
	}
	if f.aead != nil {
		if body, err = f.aead.Open(raw[:0], f.nonce(), raw, f.header[:]); err != nil {
			return nil, 0, errDamaged
		}
		return body, size + 4, nil
	}
	body = raw[:size-8]
	if binary.BigEndian.Uint64(raw[size-8:]) != f.checksum(body) {
		return nil, 0, errDamaged
	}
	return body, size + 4, nil
}
