//go:build unix

package replica

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"tallystick/oplog"
)

// cloneHome copies a closed replica's folders so that nothing in the copy
// raises a doubt, as when a whole machine is copied: the copy of the token
// outside the store is bound to the folder, and that binding is moved along.
func cloneHome(t *testing.T, cfg Config) Config {
	t.Helper()
	root := t.TempDir()
	if err := copyInto(root, filepath.Dir(cfg.Dir)); err != nil {
		t.Fatal(err)
	}
	cfg.Dir, cfg.StateDir = filepath.Join(root, "data"), filepath.Join(root, "state")
	found, err := filepath.Glob(filepath.Join(cfg.StateDir, "continuity-*.json"))
	if err != nil || len(found) != 1 {
		t.Fatalf("copies of the token: %v, %v", found, err)
	}
	raw, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Format  int    `json:"format"`
		Store   string `json:"store"`
		Token   string `json:"token"`
		Next    string `json:"next,omitempty"`
		Machine string `json:"machine"`
		Place   string `json:"place"`
		Sum     string `json:"sum"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(cfg.storeDir(), &st); err != nil {
		t.Fatal(err)
	}
	c.Place, c.Sum = fmt.Sprintf("%x-%x", uint64(st.Dev), st.Ino), ""
	plain, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(plain)
	c.Sum = hex.EncodeToString(sum[:8])
	if raw, err = json.Marshal(c); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(found[0], raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// told reports whether a replica tells its person that origin o has forked.
func told(t *testing.T, r *Replica, o oplog.OriginID) bool {
	t.Helper()
	st, err := r.Status()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range st.Forks {
		if f.Origin == o {
			return true
		}
	}
	return false
}

// TestL7c_TwoLiveClones: a device was copied, and both copies are online at
// once, with the same key and the same incarnation. Each wrote before anybody
// could tell it of the other. A third and a fourth replica, which meet both,
// keep every branch; all four end alike, everybody says that there is a fork,
// and each copy writes on in an incarnation of its own.
func TestL7c_TwoLiveClones(t *testing.T) {
	cfgA, cfgB := testConfig(t, "a"), testConfig(t, "b")
	a := mustOpen(t, cfgA)
	cfgA.Listen = a.ListenAddr()
	b := mustJoin(t, a, cfgB)
	c := mustJoin(t, a, testConfig(t, "c"))
	note(t, b, "common")
	converged(t, a, b, c)
	before := a.Log().Frontier()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	cfgClone := cloneHome(t, cfgB)
	for _, r := range []*Replica{a, c} { // nobody is there to tell them
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	b = mustOpen(t, cfgB)
	clone := mustOpen(t, cfgClone)
	old := b.Self().ID
	if clone.Self().ID != old || clone.Log().Doubt() != "" {
		t.Fatalf("the copy is doubted at open: %q", clone.Log().Doubt())
	}
	for i := range 4 {
		note(t, b, fmt.Sprint("b", i))
	}
	for i := range 7 {
		note(t, clone, fmt.Sprint("clone", i))
	}
	a = mustOpen(t, cfgA)
	c = mustOpen(t, c.cfg)
	everybody := []*Replica{a, b, c, clone}
	eventually(t, "both copies to give their incarnation up", func() bool {
		return b.Self().ID != old && clone.Self().ID != old && b.Self().ID != clone.Self().ID
	})
	converged(t, everybody...)
	note(t, b, "b goes on")
	note(t, clone, "clone goes on")
	converged(t, everybody...)
	for _, r := range everybody {
		f := r.Log().Frontier()
		if len(f[old]) != 2 {
			t.Errorf("%s holds %d branches of the copied incarnation", r.Label(), len(f[old]))
		}
		for o := range before {
			for _, tip := range before[o] {
				if ok, err := r.Log().Holds(o, tip); err != nil || !ok {
					t.Errorf("%s: a frontier went back: %s %d, %v", r.Label(), o, tip.Seq, err)
				}
			}
		}
		if !told(t, r, old) {
			t.Errorf("%s does not tell of the fork", r.Label())
		}
		if asides, err := r.Log().Aside(10); err != nil || len(asides) != 0 {
			t.Errorf("%s sets aside %+v, %v", r.Label(), asides, err)
		}
		if rows := r.Log().Views()[1]; rows.Name == "notes" && rows.Rows != 1+4+7+2 {
			t.Errorf("%s shows %d notes", r.Label(), rows.Rows)
		}
	}
	for _, r := range []*Replica{b, clone} {
		if st, err := r.Status(); err != nil || st.Doubt == "" {
			t.Errorf("a copy does not say why it writes anew: %v", err)
		}
	}
}
