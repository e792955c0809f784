package oplog

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// withState puts the store and the state directory side by side.
func withState(t *testing.T) func(*Config) {
	root := t.TempDir()
	return func(c *Config) {
		c.InMemory, c.Dir, c.StateDir, c.EncryptionKey = false, filepath.Join(root, "store"), filepath.Join(root, "state"), make([]byte, 32)
	}
}

// putBack replaces what is in dir by what is in from; dir stays the same.
func putBack(t *testing.T, dir, from string) {
	t.Helper()
	old, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range old {
		if err := os.RemoveAll(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

func TestL7a_DoubtOpensANewIncarnation(t *testing.T) {
	place := withState(t)
	for _, c := range []struct {
		name   string
		hurt   func(t *testing.T, cfg Config, backup string)
		reason string
	}{
		{"nothing happened", func(*testing.T, Config, string) {}, ""},
		{"older copy put back", func(t *testing.T, cfg Config, backup string) { putBack(t, cfg.Dir, backup) }, "older copy"},
		{"store moved", func(t *testing.T, cfg Config, backup string) {
			if err := os.Rename(cfg.Dir, cfg.Dir+".gone"); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(cfg.Dir, os.DirFS(cfg.Dir+".gone")); err != nil {
				t.Fatal(err)
			}
		}, "directory"},
		{"copy outside lost", func(t *testing.T, cfg Config, backup string) {
			if err := os.RemoveAll(cfg.StateDir); err != nil {
				t.Fatal(err)
			}
		}, "no continuity copy"},
		{"copy outside damaged", func(t *testing.T, cfg Config, backup string) {
			m, _ := filepath.Glob(filepath.Join(cfg.StateDir, "continuity-*"))
			if err := os.WriteFile(m[0], []byte("{}"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "damaged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			place = withState(t)
			l := openTest(t, "a", place)
			mustAppend(t, l, note("one"))
			first := l.Self()
			backup := t.TempDir()
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(backup, os.DirFS(l.cfg.Dir)); err != nil {
				t.Fatal(err)
			}
			l = l.reopen(t)
			if l.Doubt() != "" || l.Self().ID != first.ID {
				t.Fatalf("a plain restart is doubted: %q", l.Doubt())
			}
			mustAppend(t, l, note("two"))
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			c.hurt(t, l.cfg, backup)
			l = l.reopen(t)
			if c.reason == "" {
				if l.Doubt() != "" || l.Self().ID != first.ID {
					t.Fatalf("doubt %q", l.Doubt())
				}
				return
			}
			if !strings.Contains(l.Doubt(), c.reason) || l.Self().ID == first.ID {
				t.Fatalf("doubt %q, want %q", l.Doubt(), c.reason)
			}
			res := mustAppend(t, l, note("three"))[0]
			if res.Ref.Origin() == first.ID || res.Ref.Seq() != 2 {
				t.Errorf("written as %s seq %d", res.Ref.Origin(), res.Ref.Seq())
			}
			err := l.View(func(s Snapshot) error {
				return s.Arrived(0, true, func(_ uint64, e *Entry) (bool, error) {
					if e.Kind != kindBirth {
						return true, nil
					}
					b, err := BirthOf(e)
					if err != nil || b.Predecessor.Origin != first.ID || b.Predecessor.Tip.Seq == 0 {
						t.Errorf("birth %+v, %v", b, err)
					}
					return false, nil
				})
			})
			if err != nil {
				t.Fatal(err)
			}
			l = l.reopen(t)
			if l.Doubt() != "" || l.Self().ID != res.Ref.Origin() {
				t.Errorf("the new incarnation is doubted in turn: %q", l.Doubt())
			}
		})
	}
}

// TestL7a_TokenTurnsWithinARun: a copy made while the store runs and put back
// within the same run of the machine does not pass once the token has turned.
func TestL7a_TokenTurnsWithinARun(t *testing.T) {
	l := openTest(t, "a", withState(t))
	mustAppend(t, l, note("one"))
	l = l.reopen(t)
	first := l.Self().ID
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	backup := t.TempDir()
	if err := os.CopyFS(backup, os.DirFS(l.cfg.Dir)); err != nil {
		t.Fatal(err)
	}
	n, err := Open(context.Background(), l.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.TurnToken(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	putBack(t, l.cfg.Dir, backup)
	l = l.reopen(t)
	if l.Doubt() == "" || l.Self().ID == first {
		t.Error("an older copy passed as the store that stopped")
	}
}
