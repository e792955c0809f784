package replica

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tallystick/oplog"
)

func (d *device) renames(t testing.TB, label string) {
	op, err := renameOp(d.log.Self(), label)
	d.append(t, op, err)
}

// TestM1_RenamesInAnyOrder: a device that takes another label writes under it
// from then on, also in an incarnation born later, and no longer under the one
// before; whatever the order in which logs arrive, with the same members, flags
// and moves.
func TestM1_RenamesInAnyOrder(t *testing.T) {
	f, mesh := founded(t)
	b, c := newDevice(t, 'b'), newDevice(t, 'c')
	f.admits(t, b.key, "bee")
	f.admits(t, c.key, "bee") // as by another member that had not heard of b
	b.says(t, "bee")
	c.says(t, "bee")
	c.notes(t, "bee:agent:repo")
	c.renames(t, "cee")
	c.notes(t, "cee:agent:repo")
	c.notes(t, "bee:agent:repo") // set aside on every replica
	later := newDevice(t, 'c')   // its store was lost
	later.says(t, "cee")         // waits for the rename
	later.notes(t, "cee:agent:repo")
	later.notes(t, "bee:agent:repo") // set aside

	first := ""
	rng := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		log := reader(t, mesh)
		queues := [][]oplog.Range{f.ranges(t), b.ranges(t), c.ranges(t), later.ranges(t)}
		for left := len(queues); left > 0; {
			i := rng.IntN(len(queues))
			if len(queues[i]) == 0 {
				continue
			}
			if _, err := log.Ingest(context.Background(), queues[i][0]); err != nil {
				t.Fatal(err)
			}
			if queues[i] = queues[i][1:]; len(queues[i]) == 0 {
				left--
			}
		}
		asides, err := log.Aside(9)
		if err != nil || len(asides) != 2 || asides[0].Held || asides[1].Held || asides[0].Author != "bee:agent:repo" || asides[1].Author != "bee:agent:repo" {
			t.Fatalf("set aside: %+v, %v", asides, err)
		}
		got := ""
		if err := log.View(func(s oplog.Snapshot) error {
			members, err := MembersIn(s)
			for _, m := range members {
				got += fmt.Sprintf("%s %v; ", m.Label, m.Flagged)
			}
			moves, merr := LabelMovesIn(s)
			for _, m := range moves {
				got += fmt.Sprintf("%s to %s %v; ", m.From, m.To, m.Last && m.Key == c.key)
			}
			if err == nil {
				err = merr
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if want := "founder false; bee false; cee false; bee to cee true; "; got != want {
			t.Fatalf("members and moves %s\nwant              %s", got, want)
		}
		if first == "" {
			first = viewsOf(log)
		} else if got := viewsOf(log); got != first {
			t.Fatalf("views differ: %s and %s", first, got)
		}
	}
}

// TestI9_LaterTakerOfALabelIsFlagged: what counts is since when a device has
// had its label without a break, not when it was admitted.
func TestI9_LaterTakerOfALabelIsFlagged(t *testing.T) {
	f, mesh := founded(t)
	b, c := newDevice(t, 'b'), newDevice(t, 'c')
	f.admits(t, b.key, "bee")
	b.says(t, "bee")
	b.renames(t, "bus")
	f.admits(t, c.key, "bee") // free by now
	c.says(t, "bee")
	flags := func() (got string) {
		log := reader(t, mesh)
		for _, d := range []*device{f, b, c} {
			for _, r := range d.ranges(t) {
				if _, err := log.Ingest(context.Background(), r); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := log.View(func(s oplog.Snapshot) error {
			members, err := MembersIn(s)
			for _, m := range members {
				got += fmt.Sprintf("%s %v; ", m.Label, m.Flagged)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got, want := flags(), "founder false; bus false; bee false; "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	b.renames(t, "bee") // not having heard of c
	if got, want := flags(), "founder false; bee true; bee false; "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	b.renames(t, "bus")
	if got, want := flags(), "founder false; bus false; bee false; "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestI9_RenameAcrossReplicas: both replicas call the renamed one by its new
// label, before and after a restart; it writes under the new host alone, and
// what it wrote before stays.
func TestI9_RenameAcrossReplicas(t *testing.T) {
	a := mustOpen(t, testConfig(t, "a"))
	cfg := testConfig(t, "b")
	b := mustJoin(t, a, cfg)
	note(t, b, "as b")
	converged(t, a, b)
	if _, err := b.Rename(testContext(t), "r0", "a"); CodeOf(err) != CodeConflict {
		t.Errorf("a label in use: %v", err)
	}
	if _, err := b.Rename(testContext(t), "r0", "No Label"); CodeOf(err) != CodeInvalidArgument {
		t.Errorf("a bad label: %v", err)
	}
	if done, err := b.Rename(testContext(t), "r0", "b"); err != nil || !done.Ref.IsZero() {
		t.Errorf("its own label: %+v, %v", done, err)
	}
	done, err := b.Rename(testContext(t), "r1", "bee")
	if err != nil || done.From != "b" || done.To != "bee" || done.Ref.IsZero() {
		t.Fatalf("%+v, %v", done, err)
	}
	note(t, b, "as bee")
	_, err = b.Append(testContext(t), oplog.Op{Kind: "note", Author: "b:tester:repo", Version: 1, Body: []byte{0xa1, 'x'}})
	if err == nil || !strings.Contains(err.Error(), "I9") {
		t.Errorf("a write under the former host: %v", err)
	}
	converged(t, a, b)
	self := b.Self().ID
	if a.LabelOf(self) != "bee" || b.LabelOf(self) != "bee" || b.Label() != "bee" || peerOf(t, a, "bee").Origin != self {
		t.Errorf("a says %q, b says %q and %q", a.LabelOf(self), b.LabelOf(self), b.Label())
	}
	if got := noteTexts(t, a); !slices.Contains(got, "as b") || !slices.Contains(got, "as bee") {
		t.Errorf("a shows %q", got)
	}
	if _, err := b.Rename(testContext(t), "r2", "bus"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Rename(testContext(t), "r1", "bee"); err != nil || b.Label() != "bus" { // the answer to it was lost
		t.Errorf("a repeat of the former rename: %v, label %q", err, b.Label())
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.Peers = a.Addresses()
	b = mustOpen(t, cfg)
	note(t, b, "as bus")
	converged(t, a, b)
	moves, err := a.LabelMoves()
	if err != nil || b.Label() != "bus" || a.LabelOf(self) != "bus" || len(moves) != 2 || moves[0].From != "b" || moves[1].From != "bee" || !moves[1].Last {
		t.Errorf("after a restart: %q, %q, moves %+v, %v", b.Label(), a.LabelOf(self), moves, err)
	}
	c := mustJoin(t, a, testConfig(t, "b")) // the label is free
	converged(t, a, b, c)
	for _, m := range c.Members() {
		if m.Flagged {
			t.Errorf("%s is flagged", m.Label)
		}
	}
}

// TestL7_RenameAndRestore: a store that was put back, or lost, opens a new
// incarnation. It goes by what the log says that is here, else by the mesh file;
// a rename that no other copy has is lost with it. In the end all agree.
func TestL7_RenameAndRestore(t *testing.T) {
	for name, c := range map[string]struct {
		heard bool // the other replica has the rename
		keep  int  // 1 for a copy from before the rename, 2 from after it, 0 for none
		want  string
	}{
		"copy from after it":             {true, 2, "bee"},
		"copy from before it, not heard": {false, 1, "b"},
		"no copy":                        {true, 0, "bee"},
	} {
		t.Run(name, func(t *testing.T) {
			a := mustOpen(t, testConfig(t, "a"))
			cfg := testConfig(t, "b")
			b := mustJoin(t, a, cfg)
			converged(t, a, b)
			copies := t.TempDir()
			keep := func(n int) {
				if err := b.Close(); err != nil {
					t.Fatal(err)
				}
				if err := os.CopyFS(filepath.Join(copies, fmt.Sprint(n)), os.DirFS(cfg.Dir)); err != nil {
					t.Fatal(err)
				}
			}
			keep(1)
			if !c.heard {
				if err := a.Close(); err != nil {
					t.Fatal(err)
				}
			}
			b = mustOpen(t, cfg)
			if _, err := b.Rename(testContext(t), "", "bee"); err != nil {
				t.Fatal(err)
			}
			if c.heard {
				converged(t, a, b)
			}
			old := b.Self().ID
			keep(2)
			b = mustOpen(t, cfg)
			note(t, b, "after the copy")
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(filepath.Join(cfg.Dir, "store")); err != nil {
				t.Fatal(err)
			}
			if c.keep > 0 {
				if err := os.RemoveAll(cfg.Dir); err != nil {
					t.Fatal(err)
				}
				if err := os.CopyFS(cfg.Dir, os.DirFS(filepath.Join(copies, fmt.Sprint(c.keep)))); err != nil {
					t.Fatal(err)
				}
			}
			if !c.heard {
				a = mustOpen(t, a.cfg)
			}
			cfg.Peers = a.Addresses()
			b = mustOpen(t, cfg)
			if b.Self().ID == old {
				t.Fatal("the restored store goes on in the old incarnation")
			}
			note(t, b, "after the restore")
			converged(t, a, b)
			if got := a.LabelOf(b.Self().ID); got != c.want || b.Label() != c.want || !slices.Contains(noteTexts(t, a), "after the restore") {
				t.Errorf("a calls it %q, itself says %q, want %q", got, b.Label(), c.want)
			}
		})
	}
}
