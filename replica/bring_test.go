package replica

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tallystick/oplog"
	"tallystick/query/carried"
)

// carrier carries notes into a replica.
type carrier struct {
	*Replica
	*oplog.Log
}

func (c carrier) Append(ctx context.Context, ops ...oplog.Op) ([]oplog.Appended, error) {
	return c.Replica.Append(ctx, ops...)
}
func (c carrier) View(fn func(oplog.Snapshot) error) error { return c.Replica.View(fn) }

func carryNotes(r *Replica, kinds ...string) func(context.Context, Former, *oplog.Log) (bool, error) {
	return func(ctx context.Context, f Former, old *oplog.Log) (bool, error) {
		opt := carried.Options{Own: OwnKinds(), Before: f.Label, After: r.Label()}
		for _, k := range kinds {
			opt.Kinds = append(opt.Kinds, carried.Kind{Name: k, Body: func(e *oplog.Entry, _ *carried.Map) ([]byte, error) { return e.Body, nil }})
		}
		report, err := carried.Bring(ctx, carrier{r, r.Log()}, old, opt)
		return report.Complete(), err
	}
}

// noteTexts lists the notes here, in C2 order.
func noteTexts(t testing.TB, r *Replica) (list []string) {
	t.Helper()
	err := r.View(func(s oplog.Snapshot) error {
		return s.View("notes").Scan(nil, nil, false, func(_, v []byte) (bool, error) {
			list = append(list, string(v[2:]))
			return true, nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// soloHome is a home in a mesh of its own that holds notes.
func soloHome(t testing.TB, label string) (Config, MeshID) {
	t.Helper()
	cfg := testConfig(t, label)
	r, err := Open(testContext(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range wanted {
		note(t, r, text)
	}
	mesh := r.Mesh()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return cfg, mesh
}

var wanted = []string{"one", "two", "three"}

var errCrash = errors.New("crash")

func crashAt(cfg Config, point string) Config {
	cfg.at = func(p string) error {
		if p == point {
			return errCrash
		}
		return nil
	}
	return cfg
}

func bringAll(t testing.TB, r *Replica) {
	t.Helper()
	kept, err := r.BringFormer(testContext(t), carryNotes(r, "note"))
	if err != nil || kept != "" {
		t.Fatalf("kept %q, %v", kept, err)
	}
	if got := noteTexts(t, r); !slices.Equal(got, wanted) {
		t.Errorf("notes %v, want %v", got, wanted)
	}
	if _, pending, err := r.Former(); pending || err != nil {
		t.Errorf("pending %v, %v", pending, err)
	}
	for _, name := range []string{bringFolder, bringGone} {
		if _, err := os.Stat(filepath.Join(r.cfg.Dir, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
}

// TestT2_BringCrashInJoin: cut off anywhere before the new mesh is entered, the
// home is what it was; after it, the entries wait. Either way each note ends in
// the new mesh once.
func TestT2_BringCrashInJoin(t *testing.T) {
	for _, point := range []string{"journal", "store", "mesh", "peers", "entered"} {
		t.Run(point, func(t *testing.T) {
			a := mustOpen(t, testConfig(t, "a"))
			cfg, old := soloHome(t, "b"+point)
			inv := mustInvite(t, a)
			_, err := JoinWith(testContext(t), crashAt(cfg, point), inv.Token, JoinOptions{Bring: true})
			if !errors.Is(err, errCrash) {
				t.Fatal(err)
			}
			if point != "entered" {
				r, err := Open(testContext(t), cfg)
				if err != nil {
					t.Fatal(err)
				}
				if _, pending, err := r.Former(); r.Mesh() != old || pending || err != nil || !slices.Equal(noteTexts(t, r), wanted) {
					t.Errorf("mesh %v of %v, pending %v, notes %v, %v", r.Mesh(), old, pending, noteTexts(t, r), err)
				}
				if r.Log().Doubt() != "" {
					t.Errorf("the store that was put back is in doubt: %s", r.Log().Doubt())
				}
				if err := r.Close(); err != nil {
					t.Fatal(err)
				}
				res, err := JoinWith(testContext(t), cfg, inv.Token, JoinOptions{Bring: true})
				if err != nil || !res.Brings {
					t.Fatalf("%+v, %v", res, err)
				}
			}
			refusedJoin(t, cfg, mustInvite(t, a).Token, CodeConflict) // what waits is not left behind
			r := mustOpen(t, cfg)
			if f, pending, err := r.Former(); r.Mesh() != a.Mesh() || f.Mesh != old || f.Label != "b"+point || !pending || err != nil {
				t.Errorf("mesh %v, former %+v, %v, %v", r.Mesh(), f, pending, err)
			}
			bringAll(t, r)
		})
	}
}

// TestT2_BringCrashInCarrying: cut off between two appends, before the old
// store goes or while it goes.
func TestT2_BringCrashInCarrying(t *testing.T) {
	for _, point := range []string{"append", "carried", "gone"} {
		t.Run(point, func(t *testing.T) {
			a := mustOpen(t, testConfig(t, "a"))
			cfg, _ := soloHome(t, "b"+point)
			if _, err := JoinWith(testContext(t), cfg, mustInvite(t, a).Token, JoinOptions{Bring: true}); err != nil {
				t.Fatal(err)
			}
			r, err := Open(testContext(t), crashAt(cfg, point))
			if err != nil {
				t.Fatal(err)
			}
			carry := carryNotes(r, "note")
			if point == "append" {
				carry = func(ctx context.Context, f Former, old *oplog.Log) (bool, error) {
					var first oplog.Entry
					err := old.View(func(s oplog.Snapshot) error {
						return s.Arrived(0, false, func(_ uint64, e *oplog.Entry) (bool, error) {
							first = *e
							return e.Kind != "note", nil
						})
					})
					if err != nil {
						return false, err
					}
					_, err = r.Append(ctx, oplog.Op{Kind: first.Kind, Author: first.Author, Version: first.Version, OpID: carried.OpID(&first), Body: first.Body})
					return false, errors.Join(err, errCrash)
				}
			}
			if _, err := r.BringFormer(testContext(t), carry); !errors.Is(err, errCrash) {
				t.Fatal(err)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			r = mustOpen(t, cfg)
			if _, pending, err := r.Former(); pending != (point != "gone") || err != nil {
				t.Errorf("pending %v, %v", pending, err)
			}
			bringAll(t, r)
		})
	}
}

// TestT2_BringKeepsWhatIsMissing: the old store goes only when all of it is
// accounted for.
func TestT2_BringKeepsWhatIsMissing(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	cfg, old := soloHome(t, "b")
	_, err := Join(testContext(t), cfg, mustInvite(t, a).Token)
	var e *Error
	if !errors.As(err, &e) || e.Code != CodeConflict || !strings.Contains(e.Hint, "--bring") || !strings.Contains(e.Message, "3 note") {
		t.Errorf("%v: it does not say what is there and offer to bring it", err)
	}
	if _, err := JoinWith(testContext(t), cfg, mustInvite(t, a).Token, JoinOptions{Bring: true}); err != nil {
		t.Fatal(err)
	}
	r := mustOpen(t, cfg)
	kept, err := r.BringFormer(testContext(t), carryNotes(r)) // knows no kind
	if err != nil || kept == "" || len(noteTexts(t, r)) != 0 {
		t.Fatalf("kept %q, %v", kept, err)
	}
	if list, err := KeptFormer(cfg); err != nil || !slices.Equal(list, []string{kept}) || !strings.Contains(kept, old.String()[5:13]) {
		t.Errorf("%v, %v", list, err)
	}
	if !dirHasFiles(filepath.Join(kept, "store")) {
		t.Error("the old store is gone")
	}
	if _, pending, err := r.Former(); pending || err != nil {
		t.Errorf("pending %v, %v", pending, err)
	}
}

// TestL8_BringJournalDamaged: nothing is put back or deleted by guess, and a
// store that went missing is not made anew.
func TestL8_BringJournalDamaged(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	cfg, _ := soloHome(t, "b")
	if _, err := JoinWith(testContext(t), cfg, mustInvite(t, a).Token, JoinOptions{Bring: true}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(cfg.Dir, bringFolder, journalFile)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, good[:len(good)-1], 0o600); err != nil {
		t.Fatal(err)
	}
	var e *Error
	if _, err := Open(testContext(t), cfg); !errors.As(err, &e) || e.Code != CodeStoreDamaged || e.Field != path || e.Hint == "" {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	r := mustOpen(t, cfg)
	store := filepath.Join(cfg.Dir, bringFolder, "store")
	if err := os.Rename(store, store+".away"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.BringFormer(testContext(t), carryNotes(r, "note")); CodeOf(err) != CodeStoreDamaged {
		t.Errorf("got %v", err)
	}
	if err := os.Rename(store+".away", store); err != nil {
		t.Fatal(err)
	}
	bringAll(t, r)
}

// TestT2_BringIsForASoloMesh: what other machines have written is not one's own
// to bring.
func TestT2_BringIsForASoloMesh(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	b := mustOpen(t, testConfig(t, "b"))
	cfg := testConfig(t, "c")
	inv := mustInvite(t, b)
	if _, err := Join(testContext(t), cfg, inv.Token); err != nil {
		t.Fatal(err)
	}
	c, err := Open(testContext(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	note(t, b, "of b")
	eventually(t, "the note of b", func() bool { return len(noteTexts(t, c)) == 1 })
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = JoinWith(testContext(t), cfg, mustInvite(t, a).Token, JoinOptions{Bring: true})
	if CodeOf(err) != CodeConflict {
		t.Errorf("got %v", err)
	}
}
