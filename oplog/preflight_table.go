package oplog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/fb"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/pb"
	"github.com/dgraph-io/badger/v4/y"
	"github.com/klauspost/compress/snappy"
)

var errShort = errors.New("a part of the table is longer than what is there")

// splitEnd takes what ends b: a part, then its length in 4 bytes.
func splitEnd(b []byte) (rest, part []byte, err error) {
	if len(b) < 4 {
		return nil, nil, errShort
	}
	n := uint64(binary.BigEndian.Uint32(b[len(b)-4:]))
	b = b[:len(b)-4]
	if n > uint64(len(b)) {
		return nil, nil, errShort
	}
	return b[:len(b)-int(n)], b[len(b)-int(n):], nil
}

// parseSum reads the protobuf message of a checksum.
func parseSum(b []byte) (*pb.Checksum, error) {
	sum := &pb.Checksum{}
	for len(b) > 0 {
		v, n := binary.Uvarint(b[1:])
		switch {
		case n <= 0:
			return nil, errors.New("the table's checksum does not read")
		case b[0] == 1<<3 && v <= uint64(pb.Checksum_XXHash64):
			sum.Algo = pb.Checksum_Algorithm(v)
		case b[0] == 2<<3:
			sum.Sum = v
		default:
			return nil, errors.New("the table's checksum does not read")
		}
		b = b[1+n:]
	}
	return sum, nil
}

// decryptEnd decrypts a part of a table, whose last bytes are the IV.
func decryptEnd(buf, b []byte, key *pb.DataKey) ([]byte, error) {
	if key == nil {
		return b, nil
	}
	if len(b) < 16 {
		return nil, errShort
	}
	n := len(b) - 16
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	return buf[:n], y.XORBlock(buf[:n], b[:n], key.Data, b[n:])
}

// openIndex checks the end of a table: blocks, index, its length, checksum, its
// length. The checksum is of the index as it lies there, encrypted or not.
func openIndex(b []byte, key *pb.DataKey) (*fb.TableIndex, []byte, error) {
	b, part, err := splitEnd(b)
	if err != nil {
		return nil, nil, err
	}
	want, err := parseSum(part)
	if err != nil {
		return nil, nil, err
	}
	blocks, index, err := splitEnd(b)
	if err != nil {
		return nil, nil, err
	}
	if err := y.VerifyChecksum(index, want); err != nil {
		return nil, nil, err
	}
	if index, err = decryptEnd(nil, index, key); err != nil {
		return nil, nil, err
	}
	if len(index) < 8 {
		return nil, nil, errShort
	}
	return fb.GetRootAsTableIndex(index, 0), blocks, nil
}

// checkTable checks the index and every block of a table and gives the newest
// version in it. A table that is not there is left to badger.
func checkTable(name string, key *pb.DataKey, compression int) (newest uint64, err error) {
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { // the readers of the index panic on what is not one
		if r := recover(); r != nil {
			err = fmt.Errorf("the table does not read: %v", r)
		}
	}()
	index, blocks, err := openIndex(b, key)
	if err != nil {
		return 0, err
	}
	var at fb.BlockOffset
	var plain, loose []byte
	for i := range index.OffsetsLength() {
		if !index.Offsets(&at, i) || uint64(at.Offset())+uint64(at.Len()) > uint64(len(blocks)) {
			return 0, errShort
		}
		block := blocks[at.Offset() : at.Offset()+at.Len()]
		if key != nil {
			if plain, err = decryptEnd(plain, block, key); err != nil {
				return 0, err
			}
			block = plain
		}
		switch options.CompressionType(compression) {
		case options.Snappy:
			if loose, err = snappy.Decode(loose[:cap(loose)], block); err != nil {
				return 0, fmt.Errorf("block at %d: %w", at.Offset(), err)
			}
			block = loose
		case options.ZSTD:
			if loose, err = y.ZSTDDecompress(loose[:0], block); err != nil {
				return 0, fmt.Errorf("block at %d: %w", at.Offset(), err)
			}
			block = loose
		}
		data, part, err := splitEnd(block)
		if err != nil {
			return 0, fmt.Errorf("block at %d: %w", at.Offset(), err)
		}
		want, err := parseSum(part)
		if err == nil {
			err = y.VerifyChecksum(data, want)
		}
		if err != nil {
			return 0, fmt.Errorf("block at %d: %w", at.Offset(), err)
		}
	}
	return index.MaxVersion(), nil
}

// tableEnd is how much of a table's end is read to check its index, in bytes:
// most indexes are shorter.
const tableEnd = 256 << 10

// footLen is more than what stands behind a table's index, in bytes: length of
// the index, checksum, length of the checksum.
const footLen = 64

// checkEnd checks the lengths at the end of a table, which badger believes, and
// the form of its checksum. Badger panics on goroutines of its own over these;
// that the checksum fits the index it checks by itself, and gives an error.
func checkEnd(name string) error {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	b := make([]byte, min(st.Size(), footLen))
	if _, err := f.ReadAt(b, st.Size()-int64(len(b))); err != nil {
		return err
	}
	rest, part, err := splitEnd(b)
	if err != nil {
		return err
	}
	if _, err := parseSum(part); err != nil {
		return err
	}
	if len(rest) < 4 {
		return errShort
	}
	index := int64(binary.BigEndian.Uint32(rest[len(rest)-4:]))
	if before := st.Size() - int64(len(b)-len(rest)) - 4; index < 8 || index > before {
		return errShort
	}
	return nil
}

// checkIndex checks the end of a table and its index, and gives the newest
// version in the table.
func checkIndex(name string, key *pb.DataKey) (newest uint64, err error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the table does not read: %v", r)
		}
	}()
	for n := min(st.Size(), tableEnd); ; n = st.Size() {
		b := make([]byte, n)
		if _, err := f.ReadAt(b, st.Size()-n); err != nil {
			return 0, err
		}
		index, _, err := openIndex(b, key)
		switch {
		case err == nil:
			return index.MaxVersion(), nil
		case !errors.Is(err, errShort) || n == st.Size():
			return 0, err
		}
	}
}

// newestIn is the newest version in a table that no manifest names, so that
// nobody knows its key. False means that it is torn, as a crash leaves it.
func newestIn(name string, keys *badger.KeyRegistry) (newest uint64, ok bool) {
	b, err := os.ReadFile(name)
	if err != nil {
		return 0, false
	}
	try := func(key *pb.DataKey) (version uint64, ok bool) {
		defer func() {
			if recover() != nil {
				ok = false
			}
		}()
		index, blocks, err := openIndex(b, key)
		if err != nil {
			return 0, false
		}
		var at fb.BlockOffset
		n := index.OffsetsLength()
		ok = n > 0 && index.Offsets(&at, n-1) && uint64(at.Offset())+uint64(at.Len()) == uint64(len(blocks))
		return index.MaxVersion(), ok
	}
	if newest, ok = try(nil); ok {
		return newest, ok
	}
	for id := uint64(1); !ok; id++ {
		key, err := keys.DataKey(id)
		if err != nil {
			return 0, false
		}
		newest, ok = try(key)
	}
	return newest, ok
}
