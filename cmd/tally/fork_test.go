//go:build unix

package main

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

// copySite copies a closed site's home as a copied machine would have it: the
// continuity token, and that it belongs to this folder, come along (L7).
func copySite(s *site) *site {
	t := s.t
	t.Helper()
	c := newSite(t, s.cfg.Label)
	root := filepath.Dir(c.cfg.Dir)
	for _, name := range []string{"data", "state"} {
		if err := os.CopyFS(filepath.Join(root, name), os.DirFS(filepath.Join(s.root(), name))); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(root, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"device.key", "store.key"} {
		if err := os.Chmod(filepath.Join(root, "state", name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, err := filepath.Glob(filepath.Join(root, "state", "continuity-*.json"))
	if err != nil || len(found) != 1 {
		t.Fatalf("copies of the token: %v, %v", found, err)
	}
	raw, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	var k struct {
		Format  int    `json:"format"`
		Store   string `json:"store"`
		Token   string `json:"token"`
		Next    string `json:"next,omitempty"`
		Machine string `json:"machine"`
		Place   string `json:"place"`
		Sum     string `json:"sum"`
	}
	if err := json.Unmarshal(raw, &k); err != nil {
		t.Fatal(err)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(filepath.Join(c.cfg.Dir, "store"), &st); err != nil {
		t.Fatal(err)
	}
	k.Place, k.Sum = fmt.Sprintf("%x-%x", uint64(st.Dev), st.Ino), ""
	plain, err := json.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(plain)
	k.Sum = hex.EncodeToString(sum[:8])
	if raw, err = json.Marshal(k); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(found[0], raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestL7c_DoctorTellsOfACopy: a machine is copied with all it has, and both run.
// Before they have met anybody, each takes itself for the one; after, doctor and
// status say on every machine, in words, that a store was copied, and doctor on
// both copies that they write in a new incarnation. Nothing fails: exit code 0.
func TestL7c_DoctorTellsOfACopy(t *testing.T) {
	desk, lap := pair(t)
	lap.close()
	twin := copySite(lap)
	desk.close()
	lap.open()
	twin.open()
	old := lap.rep.Self().ID
	if twin.rep.Self().ID != old {
		t.Fatalf("the copy is doubted at open: %s", twin.rep.Log().Doubt())
	}
	for i, s := range []*site{lap, twin} {
		for range i + 2 {
			s.do(agent("claude"), "event_append", `{"type":"note","stream":"project/x","room":"talk","to_agent":"*","body":"by one of two"}`)
		}
	}
	desk.open()
	forked := func(s *site) bool {
		for _, o := range s.rep.Log().Origins() {
			if o.ID == old {
				return len(o.Tips) == 2
			}
		}
		return false
	}
	for _, s := range []*site{desk, lap, twin} {
		s.until("both branches are here", func() bool { return forked(s) })
	}
	for _, s := range []*site{lap, twin} {
		s.until("the copied incarnation is given up", func() bool { return s.rep.Self().ID != old })
	}
	converge(desk, lap)
	converge(desk, twin)
	for _, s := range []*site{desk, lap, twin} {
		s.serve()
		s.types("status", "have forked", "a cloned disk")
		words := []string{"lap (" + old.String() + "): 2 branches", "a store was copied or put back; every branch is kept, and each copy must have a machine of its own"}
		if s != desk {
			words = append(words, "this replica writes in a new incarnation: a peer holds entries of this device that this store did not write")
		}
		s.types("doctor", words...) // exit code 0
	}
	var ids []oplog.OriginID
	for _, s := range []*site{lap, twin} {
		ids = append(ids, s.rep.Self().ID)
	}
	if ids[0] == ids[1] {
		t.Error("both copies write in one incarnation")
	}
}
