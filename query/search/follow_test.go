package search_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"tallystick/oplog"
	"tallystick/query/search"
)

func TestM2_AWriteIsFoundByTheNextSearch(t *testing.T) {
	l := openLog(t)
	x := openIndex(t, search.Config{Log: l, Sources: []search.Source{source(1)}})
	for i := range 200 {
		write(t, l, fmt.Sprint("n", i), "live", fmt.Sprintf("fact number w%d", i))
		res := find(t, x, search.Query{Text: fmt.Sprintf("w%d", i)})
		if ids(res) != fmt.Sprint("n", i) || res.Behind != 0 {
			t.Fatalf("write %d: %q, behind %d", i, ids(res), res.Behind)
		}
	}
	write(t, l, "n7", "forgotten", "")
	if res := find(t, x, search.Query{Text: "w7"}); ids(res) != "" && !res.Fuzzy {
		t.Errorf("forgotten fact found: %q", ids(res))
	}
	// A state that arrives before its text.
	write(t, l, "late", "forgotten", "")
	write(t, l, "late", "live", "belated wording")
	if got := ids(find(t, x, search.Query{Text: "belated"})); got != "" {
		t.Errorf("tombstone that came first is lost: %q", got)
	}
	if st := x.Status(); st.Behind != 0 || st.Position != l2(t, l) || st.Documents != 199 || st.Others != 2 {
		t.Errorf("status %+v", st)
	}
}

// Forgetting races searches; once it is acknowledged no search shows the fact.
func TestSearch_ForgetRacingSearches(t *testing.T) {
	l := openLog(t)
	x := openIndex(t, search.Config{Log: l, Sources: []search.Source{source(1)}})
	for i := range 40 {
		id, text := fmt.Sprint("n", i), fmt.Sprintf("only%d", i)
		write(t, l, id, "live", text)
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if _, err := x.Search(context.Background(), search.Query{Text: text}); err != nil {
					t.Error(err)
				}
			})
		}
		write(t, l, id, "forgotten", "")
		if res := find(t, x, search.Query{Text: text}); slices.ContainsFunc(res.Hits, func(h search.Hit) bool { return h.ID == id }) {
			t.Fatalf("%s is found after it was forgotten", id)
		}
		wg.Wait()
		if res := find(t, x, search.Query{Text: text}); slices.ContainsFunc(res.Hits, func(h search.Hit) bool { return h.ID == id }) {
			t.Fatalf("%s came back", id)
		}
	}
}

func TestIndex_GoesOnWhereItStopped(t *testing.T) {
	l := openLog(t)
	key := bytes.Repeat([]byte{7}, 32)
	seen := 0
	counting := func() search.Source {
		s := source(1)
		return search.SourceOf(s.Name(), s.Version(), s.Kinds(), func(snap oplog.Snapshot, e *oplog.Entry) ([]search.Document, error) {
			seen++
			return s.Documents(snap, e)
		})
	}
	cfg := search.Config{Log: l, Sources: []search.Source{counting()}, Dir: t.TempDir(), Key: key}
	for i := range 50 {
		write(t, l, fmt.Sprint("n", i), "live", fmt.Sprintf("fact number w%d about refactoring", i))
	}
	x := openIndex(t, cfg)
	if err := x.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprint(find(t, x, search.Query{Text: "refactor w3 number", Limit: 50}).Hits)
	if err := errors.Join(x.Close(), x.Close()); err != nil {
		t.Fatal(err)
	}
	write(t, l, "n3", "superseded", "")
	write(t, l, "n50", "live", "fact number w50 about refactoring")
	seen = 0
	x = openIndex(t, cfg)
	if err := x.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if seen != 2 {
		t.Errorf("%d entries folded after the restart, want 2", seen)
	}
	if got := ids(find(t, x, search.Query{Text: "w50"})); got != "n50" {
		t.Errorf("new entry: %q", got)
	}
	if got := fmt.Sprint(find(t, x, search.Query{Text: "refactor w3 number", Limit: 50}).Hits); got == want {
		t.Error("the change of state is not seen")
	}
	if st := x.Status(); st.Kept != "encrypted file" || st.FileBytes == 0 || len(st.Refolds) != 0 {
		t.Errorf("status %+v", st)
	}
	// The same as one that folded everything.
	fresh := openIndex(t, search.Config{Log: l, Sources: []search.Source{source(1)}})
	for _, q := range []string{"refactor w3 number", "w50", "fact"} {
		if a, b := find(t, x, search.Query{Text: q, Limit: 60}), find(t, fresh, search.Query{Text: q, Limit: 60}); fmt.Sprint(a.Hits) != fmt.Sprint(b.Hits) {
			t.Errorf("%s: a kept index answers otherwise than a fresh one", q)
		}
	}
}

// Nothing readable is on disk while there is a key, and without one nothing at
// all unless that is said to be fine.
func TestT3_FileHoldsNoReadableWord(t *testing.T) {
	l := openLog(t)
	write(t, l, "mem_1", "live", "the passphrase hippopotamus opens internal/vault/door.go")
	dir := t.TempDir()
	cfg := search.Config{Log: l, Sources: []search.Source{source(1)}, Dir: dir, Key: make([]byte, 32)}
	x := openIndex(t, cfg)
	if err := errors.Join(x.CatchUp(t.Context()), x.Close()); err != nil {
		t.Fatal(err)
	}
	if raw := contents(t, dir); len(raw) < 200 {
		t.Errorf("only %d bytes kept", len(raw))
	} else {
		for _, w := range []string{"hippopotamus", "hippo", "vault", "mem_1", "note"} {
			if bytes.Contains(raw, []byte(w)) {
				t.Errorf("the file shows %q", w)
			}
		}
	}
	if _, err := search.Open(t.Context(), search.Config{Dir: t.TempDir()}); err == nil {
		t.Error("a directory without a key was taken")
	}
	plain := t.TempDir()
	x = openIndex(t, search.Config{Log: l, Sources: []search.Source{source(1)}, Dir: plain, Plain: true})
	if err := errors.Join(x.CatchUp(t.Context()), x.Close()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(contents(t, plain), []byte("hippopotamus")) {
		t.Error("the check above proves nothing: a plain file does not show the word either")
	}
}

// After an erase no term of the erased text is in the file or in memory.
func TestT5_EraseLeavesNoTerm(t *testing.T) {
	l := openLog(t)
	dir := t.TempDir()
	cfg := search.Config{Log: l, Sources: []search.Source{source(1)}, Dir: dir, Plain: true}
	write(t, l, "keep", "live", "a harmless sentence")
	write(t, l, "drop", "live", "the token xyzzy42 was pasted by mistake")
	x := openIndex(t, cfg)
	if err := errors.Join(x.CatchUp(t.Context()), x.Close()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(contents(t, dir), []byte("xyzzi42")) && !bytes.Contains(contents(t, dir), []byte("xyzzy")) {
		t.Fatal("the term was never in the file")
	}
	x = openIndex(t, cfg)
	if err := x.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	terms := x.Status().Terms
	write(t, l, "drop", "erased", "")
	if err := x.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if raw := contents(t, dir); bytes.Contains(raw, []byte("xyzz")) || bytes.Contains(raw, []byte("mistak")) {
		t.Error("the file still shows what was erased")
	}
	if got := x.Status().Terms; got >= terms {
		t.Errorf("%d terms before the erase, %d after", terms, got)
	}
	if got := ids(find(t, x, search.Query{Text: "harmless"})); got != "keep" {
		t.Errorf("the rest is gone: %q", got)
	}
	if res := find(t, x, search.Query{Text: "xyzzy42", Filter: search.Filter{IncludeForgotten: true, IncludeSuperseded: true}}); len(res.Hits) != 0 {
		t.Errorf("erased document found: %q", ids(res))
	}
}

// An erase of the log takes out what was made of the entry, in whatever domain,
// also what another text has replaced since.
func TestT5_EraseOfTheLog(t *testing.T) {
	l := openLog(t)
	dir := t.TempDir()
	byRef := search.SourceOf("notes", 1, []string{"note"}, func(_ oplog.Snapshot, e *oplog.Entry) ([]search.Document, error) {
		if !e.Present() {
			return nil, nil
		}
		id, _, text := fields(e)
		return []search.Document{{ID: id, Ref: e.Ref(), Kind: "note", Text: text}}, nil
	})
	cfg := search.Config{Log: l, Sources: []search.Source{byRef}, Dir: dir, Plain: true}
	x := openIndex(t, cfg)
	a, err := l.Append(t.Context(), oplog.Op{Kind: "note", Author: "a", Version: 1, Body: []byte("n1|live|the password is hippopotamus")})
	if err != nil {
		t.Fatal(err)
	}
	write(t, l, "n2", "live", "a harmless hint")
	if got := ids(find(t, x, search.Query{Text: "hippopotamus"})); got != "n1" {
		t.Fatalf("before the erase %q", got)
	}
	write(t, l, "n1", "live", "the password was changed")
	if err := errors.Join(x.CatchUp(t.Context()), x.Close()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(contents(t, dir), []byte("hippopotamus")) {
		t.Fatal("the word was never in the file")
	}
	x = openIndex(t, cfg)
	if _, err := l.Erase(t.Context(), "a", "op1", "leaked", a[0].Hash); err != nil {
		t.Fatal(err)
	}
	if err := x.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(contents(t, dir), []byte("hippopotamus")) {
		t.Error("the file still shows what was erased")
	}
	if got := ids(find(t, x, search.Query{Text: "password harmless"})); got != "n1 n2" && got != "n2 n1" {
		t.Errorf("after the erase %q", got)
	}
}

func TestIndex_FoldsAnewAndSaysWhy(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	for _, c := range []struct {
		name   string
		break_ func(t *testing.T, path string, cfg *search.Config)
		reason string
	}{
		{"flipped bit", func(t *testing.T, path string, _ *search.Config) {
			raw := read(t, path)
			raw[len(raw)/2] ^= 1
			put(t, path, raw)
		}, "damaged"},
		{"no header", func(t *testing.T, path string, _ *search.Config) { put(t, path, []byte("TALLY")) }, "damaged"},
		{"something else", func(t *testing.T, path string, _ *search.Config) { put(t, path, bytes.Repeat([]byte("x"), 4096)) }, "damaged"},
		{"another key", func(_ *testing.T, _ string, cfg *search.Config) { cfg.Key = bytes.Repeat([]byte{8}, 32) }, "another key"},
		{"another source version", func(_ *testing.T, _ string, cfg *search.Config) { cfg.Sources = []search.Source{source(2)} }, "another version"},
		{"encryption switched off", func(_ *testing.T, _ string, cfg *search.Config) { cfg.Key, cfg.Plain = nil, true }, "another version"},
		{"another log", func(t *testing.T, _ string, cfg *search.Config) {
			l := openLog(t)
			for i := range 40 {
				write(t, l, fmt.Sprint("n", i), "live", fmt.Sprintf("fact number w%d", i))
			}
			cfg.Log = l
		}, "another entry"},
		{"a log rolled back", func(t *testing.T, _ string, cfg *search.Config) {
			l := openLog(t)
			write(t, l, "n1", "live", "fact number w1")
			cfg.Log = l
		}, "the log ends"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := openLog(t)
			for i := range 30 {
				write(t, l, fmt.Sprint("n", i), "live", fmt.Sprintf("fact number w%d", i))
			}
			dir := t.TempDir()
			cfg := search.Config{Log: l, Sources: []search.Source{source(1)}, Dir: dir, Key: key}
			x := openIndex(t, cfg)
			if err := errors.Join(x.CatchUp(t.Context()), x.Close()); err != nil {
				t.Fatal(err)
			}
			c.break_(t, filepath.Join(dir, "search.idx"), &cfg)
			x = openIndex(t, cfg)
			if err := x.CatchUp(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := ids(find(t, x, search.Query{Text: "w1"})); got != "n1" {
				t.Errorf("after folding anew: %q", got)
			}
			st := x.Status()
			if len(st.Refolds) != 1 || !strings.Contains(st.Refolds[0], c.reason) || st.Behind != 0 {
				t.Errorf("status %+v", st)
			}
			// What was written anew is good.
			if err := x.Close(); err != nil {
				t.Fatal(err)
			}
			x = openIndex(t, cfg)
			if err := x.CatchUp(t.Context()); err != nil {
				t.Fatal(err)
			}
			if st := x.Status(); len(st.Refolds) != 0 {
				t.Errorf("folded anew once more: %v", st.Refolds)
			}
		})
	}
}

// A tail that a crash tore is cut off; what is missing is folded again.
func TestIndex_TornTailIsCut(t *testing.T) {
	l := openLog(t)
	dir := t.TempDir()
	cfg := search.Config{Log: l, Sources: []search.Source{source(1)}, Dir: dir, Key: make([]byte, 32)}
	for i := range 3 {
		write(t, l, fmt.Sprint("n", i), "live", fmt.Sprintf("fact number w%d", i))
		x := openIndex(t, cfg)
		if err := errors.Join(x.CatchUp(t.Context()), x.Close()); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "search.idx")
	raw := read(t, path)
	for cut := 1; cut < 60; cut += 7 {
		put(t, path, raw[:len(raw)-cut])
		x := openIndex(t, cfg)
		if err := x.CatchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := ids(find(t, x, search.Query{Text: "w2"})); got != "n2" || len(x.Status().Refolds) != 0 {
			t.Fatalf("cut %d: %q %v", cut, got, x.Status().Refolds)
		}
		x.Close()
	}
}

func TestIndex_RefoldOnRequest(t *testing.T) {
	l := openLog(t)
	asked := 0
	s := source(1)
	asking := search.SourceOf("notes", 1, []string{"note"}, func(snap oplog.Snapshot, e *oplog.Entry) ([]search.Document, error) {
		if id, _, _ := fields(e); id == "all" {
			asked++
			return nil, search.ErrRefold
		}
		return s.Documents(snap, e)
	})
	write(t, l, "n1", "live", "first")
	x := openIndex(t, search.Config{Log: l, Sources: []search.Source{asking}})
	if err := x.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	write(t, l, "all", "live", "")
	write(t, l, "n2", "live", "second")
	if got := ids(find(t, x, search.Query{Text: "first second"})); got != "n1 n2" && got != "n2 n1" {
		t.Errorf("after folding anew: %q", got)
	}
	if st := x.Status(); len(st.Refolds) != 1 || asked != 2 {
		t.Errorf("refolds %v, asked %d times", st.Refolds, asked)
	}
	if err := x.Rebuild("a person asked"); err != nil {
		t.Fatal(err)
	}
	if got := ids(find(t, x, search.Query{Text: "first"})); got != "n1" {
		t.Errorf("after a rebuild: %q", got)
	}
}

// A source that fails stops the index, not the search, and says so.
func TestIndex_FaultIsTold(t *testing.T) {
	l := openLog(t)
	s := source(1)
	var broken sync.Map
	failing := search.SourceOf("notes", 1, []string{"note"}, func(snap oplog.Snapshot, e *oplog.Entry) ([]search.Document, error) {
		if _, bad := broken.Load("now"); bad {
			return nil, errors.New("the view cannot be read")
		}
		return s.Documents(snap, e)
	})
	write(t, l, "n1", "live", "first")
	x := openIndex(t, search.Config{Log: l, Sources: []search.Source{failing}})
	if err := x.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	broken.Store("now", true)
	write(t, l, "n2", "live", "second")
	res := find(t, x, search.Query{Text: "first"})
	if ids(res) != "n1" || res.Behind != 1 || len(res.Notes) != 1 || x.Status().Fault == "" {
		t.Errorf("%q behind %d notes %v", ids(res), res.Behind, res.Notes)
	}
	broken.Clear()
	res = find(t, x, search.Query{Text: "second"})
	if ids(res) != "n2" || res.Behind != 0 || len(res.Notes) != 0 || x.Status().Fault != "" {
		t.Errorf("%q behind %d notes %v", ids(res), res.Behind, res.Notes)
	}
}

// Far behind, a search answers at once and says how far.
func TestIndex_FarBehindSaysSo(t *testing.T) {
	l := openLog(t)
	gate := make(chan struct{})
	s := source(1)
	slow := search.SourceOf("notes", 1, []string{"note"}, func(snap oplog.Snapshot, e *oplog.Entry) ([]search.Document, error) {
		<-gate
		return s.Documents(snap, e)
	})
	var ops []oplog.Op
	for i := range 2500 {
		ops = append(ops, oplog.Op{Kind: "note", Author: "a", Version: 1, Body: fmt.Appendf(nil, "n%d|live|w%d", i, i)})
		if len(ops) == 250 {
			if _, err := l.Append(t.Context(), ops...); err != nil {
				t.Fatal(err)
			}
			ops = ops[:0]
		}
	}
	x := openIndex(t, search.Config{Log: l, Sources: []search.Source{slow}})
	res := find(t, x, search.Query{Text: "w2400"})
	if len(res.Hits) != 0 || res.Behind != l2(t, l) {
		t.Errorf("%q behind %d", ids(res), res.Behind)
	}
	close(gate)
	if err := x.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if res := find(t, x, search.Query{Text: "w2400"}); ids(res) != "n2400" || res.Behind != 0 {
		t.Errorf("%q behind %d", ids(res), res.Behind)
	}
}
