package oplog

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// goldenPack is a pack of the golden log's first two entries and one chunk.
func goldenPack(t testing.TB) []byte {
	t.Helper()
	key, _, origin := goldenKey()
	first, second, _ := goldenEntries()
	h := Head{Origin: origin, Seq: 2, Hash: second.Hash, Floor: second.Time.Next()}
	h.sign(key)
	var out bytes.Buffer
	w, err := NewPackWriter(&out, []byte(`{"label":"desk"}`))
	if err != nil {
		t.Fatal(err)
	}
	rg := Range{Origin: origin, First: 1, Count: 2, Entries: second.Append(first.Append(nil)), Head: h}
	if err := w.Range(&rg); err != nil {
		t.Fatal(err)
	}
	if err := w.Chunk(&PackedChunk{Hash: Hash{0: 0xb1, 31: 0xb2}, Size: 5, Data: []byte("hello")}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// L8: the format of a pack does not change by accident.
func TestL8_PackGoldenBytes(t *testing.T) {
	b := goldenPack(t)
	if want := golden(t, "pack-v0", b); !bytes.Equal(b, want) {
		t.Fatalf("a pack is\n%x\nthe golden file has\n%x", b, want)
	}
	n, err := readPack(b)
	if err != nil || n.Ranges != 1 || n.Entries != 2 || n.Chunks != 1 || n.Bytes != uint64(len(b)) {
		t.Fatalf("read back as %+v, %v", n, err)
	}
}

func readPack(b []byte) (PackCounts, error) {
	r, err := NewPackReader(bytes.NewReader(b))
	if err != nil {
		return PackCounts{}, err
	}
	for {
		if _, _, err := r.Next(); errors.Is(err, io.EOF) {
			return r.Counts(), nil
		} else if err != nil {
			return r.Counts(), err
		}
	}
}

// L8: a pack that is cut, changed in one bit, or followed by something is
// refused, wherever that is.
func TestL8_PackIsWholeOrRefused(t *testing.T) {
	b := goldenPack(t)
	for i := range b {
		if _, err := readPack(b[:i]); !errors.Is(err, ErrBadPack) {
			t.Fatalf("cut at %d: %v", i, err)
		}
		for bit := range 8 {
			c := bytes.Clone(b)
			c[i] ^= 1 << bit
			if _, err := readPack(c); !errors.Is(err, ErrBadPack) && !errors.Is(err, ErrFormat) {
				t.Fatalf("bit %d of byte %d turned: %v", bit, i, err)
			}
		}
	}
	if _, err := readPack(append(bytes.Clone(b), 0)); !errors.Is(err, ErrBadPack) {
		t.Fatalf("a byte too many: %v", err)
	}
}

// A4: a record that says it is huge is refused before anything is allocated.
func TestA4_PackRecordLimit(t *testing.T) {
	b := append([]byte(packMagic), packVersion, recMeta, 0x7f, 0xff, 0xff, 0xff)
	if _, err := NewPackReader(bytes.NewReader(b)); !errors.Is(err, ErrBadPack) {
		t.Fatal(err)
	}
	b = append([]byte(packMagic), packVersion, recMeta)
	b = binary.BigEndian.AppendUint32(b, maxRecord)
	var n float64
	for range 10 { // others allocate too, a store that is closing for one
		if n = testing.AllocsPerRun(1, func() { NewPackReader(bytes.NewReader(b)) }); n <= 40 {
			return
		}
	}
	t.Errorf("%v allocations for a record that is not there", n)
}

func exported(t *testing.T, l *testLog) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := l.Export(context.Background(), &b, nil, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func imported(t *testing.T, l *testLog, b []byte) Imported {
	t.Helper()
	r, err := NewPackReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	n, err := l.Import(context.Background(), r, nil)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// L8, L4: a log that was exported and imported elsewhere has the same views
// and frontier, every branch of a fork with it, and a second import adds
// nothing.
func TestL8_ExportCarriesEveryBranch(t *testing.T) {
	l := openTest(t, "a", onDisk(t))
	write(t, l, "common", 30)
	l, clone := cloneDisk(t, l)
	write(t, l, "one", 9)
	write(t, clone, "two", 5)
	both := openTest(t, "b")
	exchange(t, both, l, 1<<20)
	exchange(t, both, clone, 1<<20)
	write(t, both, "own", 3)

	forked := false
	for _, o := range both.Origins() {
		forked = forked || o.Forked()
	}
	if !forked {
		t.Fatal("nothing has forked here")
	}
	b := exported(t, both)
	fresh := openTest(t, "c")
	n := imported(t, fresh, b)
	sameState(t, both, fresh)
	if v, err := both.Verify(context.Background(), nil); err != nil || n.Added != int(v.Entries) {
		t.Errorf("%d added of %+v, %v", n.Added, v, err)
	}
	if again := imported(t, fresh, b); again.Added != 0 || again.Duplicates == 0 {
		t.Errorf("the second import: %+v", again)
	}
}

// L4: a pack whose checksums are right and whose range is not signed by its
// device is refused.
func TestL4_ImportVerifiesRanges(t *testing.T) {
	b := goldenPack(t)
	l := openTest(t, "b")
	r, err := NewPackReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	// The golden log has no birth.
	if _, err := l.Import(context.Background(), r, nil); !IsRangeError(err) {
		t.Fatalf("taken: %v", err)
	}
	a := openTest(t, "a")
	write(t, a, "x", 3)
	rg, err := a.ReadRange(a.Self().ID, 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	rg.Head.Sig[0] ^= 1
	var out bytes.Buffer
	w, err := NewPackWriter(&out, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.Range(&rg)
	w.Close()
	if r, err = NewPackReader(bytes.NewReader(out.Bytes())); err != nil {
		t.Fatal(err)
	}
	if n, err := l.Import(context.Background(), r, nil); !errors.Is(err, ErrBadRange) || n.Added != 0 {
		t.Fatalf("taken: %+v, %v", n, err)
	}
}

// packInput is the buffer of a reader of packs, kept: 64 KiB for each of some
// hundred bytes would be what the fuzzer is busy with.
var packInput = bufio.NewReaderSize(nil, 64<<10)

// FuzzReadPack: no input makes the reader panic, every refusal is one of two
// named errors, and what is read whole is written back byte for byte.
func FuzzReadPack(f *testing.F) {
	b := goldenPack(f)
	f.Add(b)
	f.Add(b[:len(b)/2])
	f.Add([]byte(packMagic))
	most := 4 * len(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > most {
			return // more records of the same kinds, and hashing them takes the time
		}
		if bytes.HasPrefix(b, []byte(packMagic)) {
			checkPack(t, b)
		}
		checkPack(t, mendPack(b))
	})
}

// mendPack makes checksums fit, which a fuzzer does not find.
func mendPack(b []byte) []byte {
	b = bytes.Clone(b)
	for at := packHeader; at+recordHead+recordSum <= len(b); {
		n := int(binary.BigEndian.Uint32(b[at+1:]))
		end := at + recordHead + n
		if n > maxRecord || end+recordSum > len(b) {
			break
		}
		binary.BigEndian.PutUint32(b[end:], crc32.ChecksumIEEE(b[at:end]))
		at = end + recordSum
	}
	return b
}

func checkPack(t *testing.T, b []byte) {
	packInput.Reset(bytes.NewReader(b))
	r, err := NewPackReader(packInput)
	if err != nil {
		if !errors.Is(err, ErrBadPack) && !errors.Is(err, ErrFormat) {
			t.Fatalf("unnamed error %v", err)
		}
		return
	}
	var out bytes.Buffer
	w, err := NewPackWriter(&out, r.Meta())
	if err != nil {
		t.Fatal(err)
	}
	for {
		rg, c, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			if _, err := w.Close(); err != nil || !bytes.Equal(out.Bytes(), b) {
				t.Fatalf("%x\nis written back as\n%x, %v", b, out.Bytes(), err)
			}
			return
		case err != nil:
			if !errors.Is(err, ErrBadPack) {
				t.Fatalf("unnamed error %v", err)
			}
			return
		case rg != nil:
			w.Range(rg)
		default:
			w.Chunk(c)
		}
	}
}

// L8: docs/format-export.md shows the golden pack.
func TestL8_ExportPageShowsGoldenBytes(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "docs", "format-export.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)<!-- pack-v0 -->\n```\n(.*?)```\n").FindSubmatch(page)
	if block == nil {
		t.Fatal("no worked example")
	}
	var got []byte
	for line := range strings.Lines(string(block[1])) {
		offset, digits, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if n, err := strconv.Atoi(offset); err != nil || n != len(got) {
			t.Errorf("line %q is at offset %d", line, len(got))
		}
		b, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
		if err != nil {
			t.Errorf("line %q: %v", line, err)
		}
		got = append(got, b...)
	}
	if want := golden(t, "pack-v0", nil); !bytes.Equal(got, want) {
		t.Errorf("the page shows\n%x\nthe golden file has\n%x", got, want)
	}
}
