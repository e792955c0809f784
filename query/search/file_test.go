package search

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"tallystick/oplog"
	"tallystick/query/document"
	"tallystick/query/search/analysis"
)

var update = flag.Bool("update", false, "write golden files anew")

// sample is a core with everything a frame can hold.
func sample() *core {
	c := newCore()
	c.vec = &vectors{name: "tiny", of: map[uint32][]int8{}}
	var a analysis.Analyser
	for i, d := range []Document{
		{ID: "mem_1", Ref: oplog.Ref{39: 1}, Kind: "fact", Namespace: "h:a:p", Identities: []string{"@ann", "bo"}, Time: 1_700_000_000_000, Confidence: Verified, Text: "queryContext fails"},
		{ID: "evt_2", Ref: oplog.Ref{39: 2}, Kind: "event", Category: "x", Session: "s", Time: -5, Title: "A title", Text: "and a text", State: document.Superseded},
		{ID: "mem_1", Ref: oplog.Ref{39: 3}, Kind: "fact", Namespace: "h:a:p", Text: "queryContext works"},
	} {
		p := c.prepare(d)
		p.cut(&a)
		c.put(&p)
		if i == 0 {
			c.kept.docs = 1 // as if written: the change is then told
		}
	}
	c.kept.docs = 0
	if err := c.setVector("mem_1", digest("", "queryContext works"), []float32{0.5, -1, 0}); err != nil {
		panic(err)
	}
	return c
}

// TestL8_GoldenFrame pins the bytes of a frame. They change only with
// fileVersion.
func TestL8_GoldenFrame(t *testing.T) {
	got := hex.Dump(sample().frame(mark{42, oplog.Hash{31: 9}}, 3))
	path := filepath.Join("testdata", "frame-1.hex")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("frame differs from %s:\n%s", path, got)
	}
}

func TestL8_GoldenHeader(t *testing.T) {
	h := makeHeader(bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32), bytes.Repeat([]byte{3}, 8))
	const want = "54414c4c5949445800010001" +
		"0101010101010101010101010101010101010101010101010101010101010101" +
		"0202020202020202020202020202020202020202020202020202020202020202" +
		"0303030303030303" + "1753182ecaac2e26"
	if got := hex.EncodeToString(h[:]); got != want {
		t.Errorf("header %s", got)
	}
}

func TestFrame_ReplayIsTheSame(t *testing.T) {
	c := sample()
	body := c.frame(mark{42, oplog.Hash{31: 9}}, 3)
	d := newCore()
	d.vec = &vectors{name: "tiny", of: map[uint32][]int8{}}
	var pos mark
	if err := d.replay(body, &pos); err != nil {
		t.Fatal(err)
	}
	if pos.arrival != 42 || pos.hash != (oplog.Hash{31: 9}) || len(d.vec.of) != 1 || d.live != 1 || len(d.keys) != 2 {
		t.Errorf("mark %v, %d vectors, %d live, %d keys", pos, len(d.vec.of), d.live, len(d.keys))
	}
	for n := range c.hot {
		var a, b prepared
		c.export(uint32(n), &a)
		d.export(uint32(n), &b)
		if fmt.Sprint(a) != fmt.Sprint(b) {
			t.Errorf("document %d: %v, replayed %v", n, a, b)
		}
	}
	for i := range c.terms {
		if c.terms[i].df != d.terms[i].df || !bytes.Equal(c.terms[i].post, d.terms[i].post) {
			t.Errorf("term %q differs", c.terms[i].text)
		}
	}
}

// FuzzReplay: any bytes give a core or errDamaged, never a panic, and what was
// taken can be searched, written and compacted.
func FuzzReplay(f *testing.F) {
	f.Add(sample().frame(mark{42, oplog.Hash{31: 9}}, 3))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		c := newCore()
		c.vec = &vectors{name: "tiny", of: map[uint32][]int8{}}
		var pos mark
		if err := c.replay(body, &pos); err != nil {
			if !errors.Is(err, errDamaged) {
				t.Fatal(err)
			}
			return
		}
		x, err := Open(context.Background(), Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		x.c = c
		if _, err := x.Search(context.Background(), Query{Text: "queryContext title works"}); err != nil {
			t.Fatal(err)
		}
		again := c.compact()
		if again.live != c.live {
			t.Fatalf("%d live documents, %d after compaction", c.live, again.live)
		}
		d := newCore()
		if err := d.replay(again.frame(pos, len(again.hot)), &pos); err != nil {
			t.Fatal(err)
		}
	})
}

// TestFile_EveryFlippedBitIsFound damages each byte of a sealed and a plain
// file in turn.
func TestFile_EveryFlippedBitIsFound(t *testing.T) {
	for _, key := range [][]byte{nil, make([]byte, 32)} {
		path := filepath.Join(t.TempDir(), fileName)
		print := make([]byte, 32)
		f, err := create(path, key, print)
		if err != nil {
			t.Fatal(err)
		}
		for _, body := range []string{"first frame", "second frame"} {
			if err := f.append([]byte(body)); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(f.install(), f.close()); err != nil {
			t.Fatal(err)
		}
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := range good {
			bad := bytes.Clone(good)
			bad[i] ^= 0x10
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			var frames []string
			g, err := open(path, key, print, func(body []byte) error {
				frames = append(frames, string(body))
				return nil
			})
			if err == nil {
				g.close()
			}
			// A longer length makes a frame look torn; then it is left out.
			if err == nil && len(frames) == 2 {
				t.Errorf("key %v: flipped byte %d of %d went unseen", key != nil, i, len(good))
			}
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		d    int
	}{{"daemon", "deamon", 1}, {"lease", "lease", 0}, {"lease", "least", 1}, {"abc", "xyz", 3}, {"frontier", "fronteir", 1}, {"caf\u00e9", "cafe", 1}} {
		if got := distance(c.a, c.b, 2); got != c.d {
			t.Errorf("%s %s: %d, want %d", c.a, c.b, got, c.d)
		}
	}
}
