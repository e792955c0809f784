package search_test

import (
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tallystick/oplog"
	"tallystick/query/document"
	"tallystick/query/search"
)

// notes is a small domain: an entry of kind "note" holds "id|state|text"; the
// view keeps the state per id, and states only grow, so any order folds the
// same.
type notes struct{}

func (notes) Name() string    { return "notes" }
func (notes) Version() uint32 { return 1 }
func (notes) Kinds() []string { return []string{"note"} }

// Content says that a note may be erased.
func (notes) Content() []string { return []string{"note"} }

var grows = []string{"live", "superseded", "forgotten", "erased"}

func (notes) Apply(tx oplog.Tx, e *oplog.Entry) error {
	id, state, text := fields(e)
	if text != "" {
		if err := tx.Set([]byte("t"+id), []byte(text)); err != nil {
			return err
		}
	}
	was, err := tx.Get([]byte("s" + id))
	if err != nil && !errors.Is(err, oplog.ErrNotFound) {
		return err
	}
	if slices.Index(grows, state) >= slices.Index(grows, string(was)) {
		return tx.Set([]byte("s"+id), []byte(state))
	}
	return nil
}

func fields(e *oplog.Entry) (id, state, text string) {
	p := strings.SplitN(string(e.Body), "|", 3)
	return p[0], p[1], p[2]
}

// source gives each note with the state the view has now.
func source(version uint32) search.Source {
	return search.SourceOf("notes", version, []string{"note"}, func(snap oplog.Snapshot, e *oplog.Entry) ([]search.Document, error) {
		id, _, _ := fields(e)
		v := snap.View("notes")
		text, err := v.Get([]byte("t" + id))
		if errors.Is(err, oplog.ErrNotFound) {
			return nil, nil // its text has not arrived
		}
		if err != nil {
			return nil, err
		}
		state, err := v.Get([]byte("s" + id))
		if err != nil {
			return nil, err
		}
		return []search.Document{{ID: id, Kind: "note", Text: string(text), State: document.State(state)}}, nil
	})
}

func openLog(t testing.TB) *oplog.Log {
	t.Helper()
	l, err := oplog.Open(t.Context(), oplog.Config{
		InMemory: true, MinFree: -1, Signer: ed25519.NewKeyFromSeed(make([]byte, 32)), Projections: []oplog.Projection{notes{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func write(t testing.TB, l *oplog.Log, id, state, text string) {
	t.Helper()
	if _, err := l.Append(t.Context(), oplog.Op{Kind: "note", Author: "a", Version: 1, Body: []byte(id + "|" + state + "|" + text)}); err != nil {
		t.Error(err)
	}
}

func openIndex(t testing.TB, cfg search.Config) *search.Index {
	t.Helper()
	x, err := search.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	return x
}

func l2(t testing.TB, l *oplog.Log) (n uint64) {
	t.Helper()
	if err := l.View(func(s oplog.Snapshot) error { n = s.LastArrival(); return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}

func contents(t testing.TB, dir string) (out []byte) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		out = append(out, raw...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func put(t testing.TB, path string, raw []byte) {
	t.Helper()
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}
