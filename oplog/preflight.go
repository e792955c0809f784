package oplog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/pb"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"
)

// Lengths in the file of data keys, in bytes: what shows whether the store's
// key is the right one, and the length and checksum before each data key.
const (
	registryStart  = 16 + len("Hello Badger")
	registryRecord = 8
)

// checkKeys checks the records of the file of data keys, because badger panics
// over one that ends early and believes any length. Whether the store's key
// fits it tells by itself.
func checkKeys(opts badger.Options) error {
	name := filepath.Join(opts.Dir, badger.KeyRegistryFileName)
	b, err := os.ReadFile(name)
	if err != nil {
		return nil
	}
	bad := func(why string) error { return fmt.Errorf("%w: %s: %s", ErrDamaged, name, why) }
	if len(b) < registryStart {
		return bad("it is cut short")
	}
	for b = b[registryStart:]; len(b) > 0; {
		if len(b) < registryRecord {
			return bad("it is cut short")
		}
		n, sum := int64(binary.BigEndian.Uint32(b)), binary.BigEndian.Uint32(b[4:])
		if b = b[registryRecord:]; len(b) == 0 {
			return nil // badger takes this for the end
		}
		if n == 0 || n > int64(len(b)) {
			return bad("a data key's length does not fit")
		}
		if crc32.Checksum(b[:n], y.CastagnoliCrcTable) != sum {
			return bad("a data key's checksum does not match")
		}
		b = b[n:]
	}
	return nil
}

// checkTables checks the index of every table that the manifest names, because
// badger ends the process, on a goroutine of its own, when a table's last bytes
// do not read. Other tables may be torn by a crash, and badger removes them.
// What else is wrong, a manifest or a lost file, badger reports by itself.
func checkTables(opts badger.Options) error {
	f, err := os.Open(filepath.Join(opts.Dir, badger.ManifestFilename))
	if err != nil {
		return nil
	}
	defer f.Close()
	m, _, err := badger.ReplayManifestFile(f, opts.ExternalMagicVersion, opts)
	if err != nil {
		return nil
	}
	for id := range m.Tables {
		name := table.NewFilename(id, opts.Dir)
		if err := checkTable(name); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrDamaged, name, err)
		}
	}
	return nil
}

// checkTable reads a table from its end: index, its length, checksum, its
// length. The checksum is of the index as it lies there, encrypted or not.
func checkTable(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	take := func(n int64) ([]byte, error) {
		if n > end {
			return nil, fmt.Errorf("the table's end names %d bytes, %d are there", n, end)
		}
		end -= n
		b := make([]byte, n)
		_, err := f.ReadAt(b, end)
		return b, err
	}
	part := func() ([]byte, error) {
		n, err := take(4)
		if err != nil {
			return nil, err
		}
		return take(int64(binary.BigEndian.Uint32(n)))
	}
	sum, err := part()
	if err != nil {
		return err
	}
	var want pb.Checksum
	for len(sum) > 0 {
		v, n := binary.Uvarint(sum[1:])
		switch {
		case n <= 0:
			return fmt.Errorf("the table's checksum does not read")
		case sum[0] == 1<<3 && v <= uint64(pb.Checksum_XXHash64):
			want.Algo = pb.Checksum_Algorithm(v)
		case sum[0] == 2<<3:
			want.Sum = v
		default:
			return fmt.Errorf("the table's checksum does not read")
		}
		sum = sum[1+n:]
	}
	index, err := part()
	if err != nil {
		return err
	}
	return y.VerifyChecksum(index, &want)
}
