package oplog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
)

// hurt changes what the store has of an entry, as a bad disk does; nil takes
// it away.
func hurt(t testing.TB, l *testLog, h Hash, how func(stored []byte) []byte) place {
	t.Helper()
	snap := l.db.snapshot()
	defer snap.release()
	p, err := findHash(snap.get, &h)
	if err != nil {
		t.Fatal(err)
	}
	key := seqKey(tabEntry, p.lane, p.seq)
	v, err := snap.get(key)
	if err != nil {
		t.Fatal(err)
	}
	g := l.newGroup(nil)
	defer g.b.release()
	if v = how(bytes.Clone(v)); v == nil {
		g.b.del(key)
	} else {
		g.b.set(key, v)
	}
	if err := l.db.commit(g.b); err != nil {
		t.Fatal(err)
	}
	return p
}

// hurts are the ways in which an entry's bytes go bad.
var hurts = map[string]func([]byte) []byte{
	"a bit of the payload": func(v []byte) []byte { v[len(v)-1] ^= 1; return v },
	"a bit of the author":  func(v []byte) []byte { v[bytes.Index(v, []byte("a:b:c"))] ^= 1; return v },
	"a bit of the seq":     func(v []byte) []byte { v[entryPrefixLen+3+2+20] ^= 1; return v },
	"cut short":            func(v []byte) []byte { return v[:len(v)/2] },
	"zeros":                func(v []byte) []byte { return make([]byte, len(v)) },
	"gone":                 func([]byte) []byte { return nil },
}

func settled(t testing.TB, l *testLog, want Damage) {
	t.Helper()
	d, err := l.Damage()
	d.Oldest = want.Oldest
	if err != nil || d != want {
		t.Errorf("damage %+v, %v; want %+v", d, err, want)
	}
}

// TestL8_DamagedEntryIsMendedInPlace: whatever has become of an entry's bytes,
// they are given to nobody, found by reading, and put back from a peer: log and
// views are then what they were, arrival numbers included.
func TestL8_DamagedEntryIsMendedInPlace(t *testing.T) {
	ctx := context.Background()
	for name, how := range hurts {
		for _, where := range []string{"middle", "tip"} {
			if name == "gone" && where == "tip" {
				continue // then the log is shorter: a peer's frontier says so (L7b)
			}
			t.Run(name+" "+where, func(t *testing.T) {
				a, b := openTest(t, "a", withContent), openTest(t, "b", onDisk(t), withContent)
				write(t, a, "x", 20)
				victim := mustAppend(t, a, note("the one"))[0]
				if where == "middle" {
					write(t, a, "y", 20)
				}
				pull(t, b, a, 1<<20)
				before := b.Views()[0]
				var arrival uint64
				if err := b.View(func(s Snapshot) (err error) { arrival, err = s.Arrival(victim.Ref); return err }); err != nil {
					t.Fatal(err)
				}
				hurt(t, b, victim.Hash, how)
				if where == "tip" {
					b = b.reopen(t) // its head says which it was
				}

				// What a peer is given is whole, or ends before it.
				c := openTest(t, "c", withContent)
				rg, err := b.ReadRange(a.Self().ID, 0, 1<<20)
				if err == nil && rg.Count > 0 {
					if _, err := c.Ingest(ctx, rg); err != nil {
						t.Errorf("what it gives does not verify: %v", err)
					}
				} else if !errors.Is(err, ErrDamaged) {
					t.Errorf("range of %d, %v", rg.Count, err)
				}
				if c.Frontier().Seq(a.Self().ID) >= victim.Ref.Seq() {
					t.Error("it was given")
				}
				if _, err := b.WholeEntry(victim.Hash); err == nil {
					t.Error("it was given by its hash")
				}
				if b.Suspects() == 0 {
					t.Fatal("nobody has noticed")
				}
				epoch := b.OwedEpoch()
				if n, err := b.SettleDamage(ctx); err != nil || n != 1 {
					t.Fatalf("%d marked, %v", n, err)
				}
				if n, err := b.SettleDamage(ctx); err != nil || n != 0 || b.Suspects() != 0 || b.OwedEpoch() == epoch {
					t.Errorf("%d marked again, %v, %d suspects", n, err, b.Suspects())
				}
				settled(t, b, Damage{Found: 1, Waiting: 1, InViews: 1})
				list := owedBy(t, b)
				if len(list) != 1 || list[0].Hash != victim.Hash || !list[0].Damaged || list[0].Seq != victim.Ref.Seq() {
					t.Fatalf("owed %+v", list)
				}
				if b.Views()[0] != before {
					t.Error("views have changed")
				}
				if v, err := b.Verify(ctx, nil); err != nil || len(v.Findings) == 0 {
					t.Errorf("verify finds nothing, %v", err)
				}
				// Others are read all the same, and it is taken from the next range too.
				n := 0
				err = b.View(func(s Snapshot) error {
					return s.Arrived(0, false, func(uint64, *Entry) (bool, error) { n++; return true, nil })
				})
				if err != nil || n < 20 {
					t.Errorf("%d entries are listed, %v", n, err)
				}
				if _, err := b.SettleDamage(ctx); err != nil {
					t.Fatal(err)
				}
				b = b.reopen(t)
				settled(t, b, Damage{Found: 1, Waiting: 1, InViews: 1})

				if err := b.PutOwed(ctx, victim.Hash, wholeEntry(t, a, victim.Hash)); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					settled(t, b, Damage{Found: 1, Mended: 1})
					if v, err := b.Verify(ctx, nil); err != nil || len(v.Findings) > 0 {
						t.Errorf("verify %+v, %v", v, err)
					}
					err = b.View(func(s Snapshot) error {
						if n, err := s.Arrival(victim.Ref); err != nil || n != arrival {
							t.Errorf("arrival %d, %v; it was %d", n, err, arrival)
						}
						return nil
					})
					if err != nil {
						t.Fatal(err)
					}
					if b.Views()[0] != before || b.OwedTotal() != 0 || !bytes.Equal(wholeEntry(t, b, victim.Hash), wholeEntry(t, a, victim.Hash)) {
						t.Error("it is not what it was")
					}
					b = b.reopen(t)
				}
				pull(t, c, b, 1<<20)
				if c.Views()[0] != a.Views()[0] {
					t.Error("a peer sees another view")
				}
			})
		}
	}
}

// TestL6_RebuildPassesOverDamage: without a peer that has it, a damaged entry
// does not keep the others from being read: a rebuild passes over it. When it
// is back the views are rebuilt once more.
func TestL6_RebuildPassesOverDamage(t *testing.T) {
	ctx := context.Background()
	for name, how := range hurts {
		t.Run(name, func(t *testing.T) {
			a, b := openTest(t, "a", withContent), openTest(t, "b", onDisk(t), withContent)
			write(t, a, "x", 20)
			victim := mustAppend(t, a, note("the one"))[0]
			write(t, a, "y", 20)
			pull(t, b, a, 1<<20)
			hurt(t, b, victim.Hash, how)
			for range 2 { // the second finds it noted already
				mustDo(t, b.Rebuild(ctx, nil))
				if rows := b.Views()[0].Rows; rows != 40+1 {
					t.Fatalf("%d rows", rows)
				}
			}
			b = b.reopen(t)
			d, err := b.Damage()
			if err != nil || d.Found != 1 || d.Waiting != 1 {
				t.Fatalf("damage %+v, %v", d, err)
			}
			// An entry whose header is whole is given on without its payload.
			c := openTest(t, "c", withContent)
			rg, err := b.ReadRange(a.Self().ID, 0, 1<<20)
			if whole := name == "a bit of the payload"; whole != (err == nil && rg.Count > 40) {
				t.Errorf("range of %d, %v", rg.Count, err)
			} else if whole {
				pull(t, c, b, 1<<20)
				if list := owedBy(t, c); len(list) != 1 || list[0].Hash != victim.Hash {
					t.Errorf("its peer is owed %+v", list)
				}
			}
			mustDo(t, b.PutOwed(ctx, victim.Hash, wholeEntry(t, a, victim.Hash)))
			d, err = b.Damage()
			if err != nil || d.Waiting != 0 || d.Mended != 1 {
				t.Errorf("damage %+v, %v", d, err)
			}
			for i := 0; d.Stale > 0; i++ {
				b = b.reopen(t)
				mustDo(t, b.Rebuild(ctx, nil))
				if d, err = b.Damage(); err != nil || i > 2 {
					t.Fatalf("damage %+v, %v", d, err)
				}
			}
			if b.Views()[0] != a.Views()[0] {
				t.Errorf("view %+v, want %+v", b.Views()[0], a.Views()[0])
			}
			if v, err := b.Verify(ctx, nil); err != nil || len(v.Findings) > 0 {
				t.Errorf("verify %+v, %v", v, err)
			}
		})
	}
}

// TestT5_ADamagedEntryIsErased: an erase takes a damaged entry too, and it does
// not come back.
func TestT5_ADamagedEntryIsErased(t *testing.T) {
	ctx := context.Background()
	for name, how := range hurts {
		for _, noticed := range []bool{false, true} {
			t.Run(fmt.Sprint(name, noticed), func(t *testing.T) {
				a, b := openTest(t, "a", withContent), openTest(t, "b", withContent)
				write(t, a, "x", 20)
				victim := mustAppend(t, a, note("the one"))[0]
				write(t, a, "y", 20)
				pull(t, b, a, 1<<20)
				exact := wholeEntry(t, a, victim.Hash)
				hurt(t, b, victim.Hash, how)
				if noticed {
					_, _ = b.Verify(ctx, nil)
					if _, err := b.SettleDamage(ctx); err != nil {
						t.Fatal(err)
					}
				}
				mustErase(t, a, victim.Hash)
				pull(t, b, a, 1<<20)
				mustDo(t, b.ApplyErasures(ctx))
				_, _ = b.Verify(ctx, nil)
				if _, err := b.SettleDamage(ctx); err != nil {
					t.Fatal(err)
				}
				// A peer that does not know of the erase gives it again.
				if err := b.PutOwed(ctx, victim.Hash, exact); err != nil && !errors.Is(err, ErrNotOwed) {
					t.Fatal(err)
				}
				mustDo(t, b.Rebuild(ctx, nil))
				if b.Views()[0] != a.Views()[0] || b.OwedTotal() != 0 || b.ErasePending() != 0 {
					t.Errorf("view %+v, want %+v; %d owed, %d pending", b.Views()[0], a.Views()[0], b.OwedTotal(), b.ErasePending())
				}
				if _, err := b.WholeEntry(victim.Hash); !errors.Is(err, ErrNotFound) {
					t.Errorf("it is back: %v", err)
				}
				if v, err := b.Verify(ctx, nil); err != nil || len(v.Findings) > 0 {
					t.Errorf("verify %+v, %v", v, err)
				}
			})
		}
	}
}

// TestL8_DamagedRowIsMendedBackwards: of entries in a row that are damaged only
// the last one's hash is known; each that is back tells that of the one before.
func TestL8_DamagedRowIsMendedBackwards(t *testing.T) {
	ctx := context.Background()
	a, b := openTest(t, "a", withContent), openTest(t, "b", onDisk(t), withContent)
	write(t, a, "x", 10)
	row := mustAppend(t, a, note("one"), note("two"), note("three"))
	write(t, a, "y", 10)
	pull(t, b, a, 1<<20)
	for _, e := range row {
		hurt(t, b, e.Hash, hurts["zeros"])
	}
	if _, err := b.Verify(ctx, nil); err != nil {
		t.Fatal(err)
	}
	for i := len(row) - 1; i >= 0; i-- {
		if n, err := b.SettleDamage(ctx); err != nil || n != 1 {
			t.Fatalf("%d marked before %d is back, %v", n, i, err)
		}
		list := owedBy(t, b)
		if len(list) != 1 || list[0].Hash != row[i].Hash {
			t.Fatalf("owed %+v, want %s", list, row[i].Hash)
		}
		mustDo(t, b.PutOwed(ctx, row[i].Hash, wholeEntry(t, a, row[i].Hash)))
	}
	settled(t, b, Damage{Found: 3, Mended: 3})
	if v, err := b.Verify(ctx, nil); err != nil || len(v.Findings) > 0 || b.Views()[0] != a.Views()[0] {
		t.Errorf("verify %+v, %v", v, err)
	}
}
