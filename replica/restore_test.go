package replica

import (
	"os"
	"path/filepath"
	"testing"
)

// TestL7_RestoredBackup: a store put back from a copy opens a new incarnation,
// says its label there, fetches its own tail back and writes on.
func TestL7_RestoredBackup(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	cfg := testConfig(t, "b")
	b := mustJoin(t, a, cfg)
	note(t, b, "before the backup")
	converged(t, a, b)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	backup := filepath.Join(t.TempDir(), "backup")
	if err := os.CopyFS(backup, os.DirFS(cfg.Dir)); err != nil {
		t.Fatal(err)
	}
	b = mustOpen(t, cfg)
	old := b.Self().ID
	note(t, b, "after the backup")
	converged(t, a, b)
	total := a.Log().Frontier().Seq(old)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(cfg.Dir); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(cfg.Dir, os.DirFS(backup)); err != nil {
		t.Fatal(err)
	}
	b = mustOpen(t, cfg)
	if b.Self().ID == old {
		t.Fatal("the restored store goes on in the old incarnation")
	}
	note(t, b, "after the restore")
	converged(t, a, b)
	if got := b.Log().Frontier().Seq(old); got != total {
		t.Errorf("%d entries of the old incarnation are back, want %d", got, total)
	}
	st, err := b.Status()
	if err != nil || st.Doubt == "" || st.Label != "b" {
		t.Errorf("status says doubt %q, label %q, %v", st.Doubt, st.Label, err)
	}
}

// TestL7_PeersProofMakesANewIncarnation: keys and state were put back together
// with the store, so that nothing here raises a doubt; a peer that holds more
// of this replica than it does itself proves it, and writing goes on in a new
// incarnation, under the same label.
func TestL7_PeersProofMakesANewIncarnation(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	cfg := testConfig(t, "b")
	b := mustJoin(t, a, cfg)
	converged(t, a, b)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	home := filepath.Dir(cfg.Dir)
	backup := filepath.Join(t.TempDir(), "backup")
	if err := os.CopyFS(backup, os.DirFS(home)); err != nil {
		t.Fatal(err)
	}
	b = mustOpen(t, cfg)
	old := b.Self().ID
	note(t, b, "after the snapshot")
	converged(t, a, b)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	// In place: the directories themselves stay the same.
	err := filepath.WalkDir(home, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			err = os.Remove(path)
		}
		return err
	})
	if err == nil {
		err = copyInto(home, backup)
	}
	if err != nil {
		t.Fatal(err)
	}
	b = mustOpen(t, cfg)
	if b.Self().ID != old {
		t.Fatalf("the store is doubted at open already: %s", b.Log().Doubt())
	}
	eventually(t, "a new incarnation", func() bool { return b.Self().ID != old })
	note(t, b, "on again")
	converged(t, a, b)
	if asides, err := a.Log().Aside(10); err != nil || len(asides) != 0 {
		t.Errorf("set aside: %+v, %v", asides, err)
	}
}

func copyInto(dst, src string) error {
	return filepath.WalkDir(src, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, path)
		if err != nil {
			return err
		}
		to := filepath.Join(dst, rel)
		if d.IsDir() {
			return os.MkdirAll(to, 0o700)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, b, 0o600)
	})
}
