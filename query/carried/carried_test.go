package carried_test

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tallystick/hlc"
	"tallystick/oplog"
	"tallystick/query/carried"
)

func entry(opID string, at hlc.Timestamp) *oplog.Entry {
	return &oplog.Entry{Header: oplog.Header{Time: at}, Hash: oplog.Hash{1, 2, 3}, OpID: opID}
}

// TestBring_OpIDNamesTheEntryAndItsStamp: also when it is carried twice.
func TestBring_OpIDNamesTheEntryAndItsStamp(t *testing.T) {
	first := entry("add/o/x", hlc.New(1_790_000_000_000, 7))
	second := entry(carried.OpID(first), hlc.New(1_790_000_009_000, 0))
	hash, at, ok := carried.Of(second)
	if !ok || hash != first.Hash || at != first.Time || carried.Stamp(second) != first.Time {
		t.Errorf("%s: %v %v %v", second.OpID, hash, at, ok)
	}
	third := entry(carried.OpID(second), hlc.New(1_790_000_010_000, 0))
	if carried.Stamp(third) != first.Time {
		t.Error("what is carried twice has lost its first stamp")
	}
	// A stamp in the future of the entry itself counts for nothing.
	if early := entry(carried.OpID(third), first.Time-1); carried.Stamp(early) != early.Time {
		t.Error("an op id moves an entry ahead")
	}
	for _, bad := range []string{"", "carried/", strings.ToUpper(second.OpID), second.OpID + "0", second.OpID[:len(second.OpID)-1],
		strings.Replace(second.OpID, "/0102", "-0102", 1), strings.Replace(second.OpID, "01", "0g", 1), second.OpID[:len(second.OpID)-1] + "A"} {
		if _, _, ok := carried.Of(entry(bad, 1)); ok {
			t.Errorf("%q names an entry", bad)
		}
	}
}

// TestBring_OpIDFormat: the text of docs/format-disk.md.
func TestBring_OpIDFormat(t *testing.T) {
	const golden = "carried/0102030000000000000000000000000000000000000000000000000000000000/01a0c4506c000007"
	if got := carried.OpID(entry("", hlc.New(1_790_000_000_000, 7))); got != golden {
		t.Errorf("got %s", got)
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "format-disk.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), golden) {
		t.Error("docs/format-disk.md shows another one")
	}
}

func FuzzOf(f *testing.F) {
	f.Add(carried.OpID(entry("", hlc.New(1, 1))))
	f.Add("carried/")
	f.Fuzz(func(t *testing.T, opID string) {
		e := entry(opID, hlc.New(1_790_000_000_000, 0))
		hash, at, ok := carried.Of(e)
		if !ok {
			if carried.Stamp(e) != e.Time {
				t.Error("a stamp of nothing")
			}
			return
		}
		if again := carried.OpID(&oplog.Entry{Header: oplog.Header{Time: at}, Hash: hash}); again != opID {
			t.Errorf("%q reads as %q", opID, again)
		}
		if carried.Stamp(e) > e.Time {
			t.Error("later than itself")
		}
	})
}

// lines is a fold of one kind.
type lines struct{}

func (lines) Name() string                       { return "lines" }
func (lines) Version() uint32                    { return 1 }
func (lines) Kinds() []string                    { return []string{"line"} }
func (lines) Apply(oplog.Tx, *oplog.Entry) error { return nil }
func newLog() (*oplog.Log, error) {
	return oplog.Open(context.Background(), oplog.Config{InMemory: true, Signer: ed25519.NewKeyFromSeed(make([]byte, 32)), Projections: []oplog.Projection{lines{}}})
}

func Example() {
	ctx := context.Background()
	old, err := newLog()
	if err != nil {
		panic(err)
	}
	defer old.Close()
	now, err := newLog()
	if err != nil {
		panic(err)
	}
	defer now.Close()
	if _, err := old.Append(ctx, oplog.Op{Kind: "line", Author: "desk:claude:x", Body: []byte{0xa2, 'h', 'i'}}); err != nil {
		panic(err)
	}
	report, err := carried.Bring(ctx, now, old, carried.Options{
		Own: []string{"tally.birth"}, Before: "desk", After: "laptop",
		Kinds: []carried.Kind{{Name: "line", Body: func(e *oplog.Entry, _ *carried.Map) ([]byte, error) { return e.Body, nil }}},
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(report.Brought, report.Renamed, report.Complete())
	// Output: map[line:1] 1 true
}
