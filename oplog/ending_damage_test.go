package oplog

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
)

// cutGate knows of the endings that a test sets; an entry of kind "end" makes the
// log ask for them.
type cutGate struct {
	mu  sync.Mutex
	now map[DeviceKey]Ending
}

func (*cutGate) Decide(Views, *Origin, *Entry) (Decision, error) { return Decision{}, nil }
func (*cutGate) RecheckKinds() []string                          { return nil }
func (*cutGate) Acts() []string                                  { return []string{"end"} }

func (c *cutGate) Endings(Views) (map[DeviceKey]Ending, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.now), nil
}

// ends folds nothing: the acts of the gate are then known kinds.
type ends struct{}

func (ends) Name() string           { return "ends" }
func (ends) Version() uint32        { return 1 }
func (ends) Kinds() []string        { return []string{"end"} }
func (ends) Apply(Tx, *Entry) error { return nil }

func (c *cutGate) in(cfg *Config) { cfg.Gate, cfg.Projections = c, append(cfg.Projections, ends{}) }

// set ends a device's log at an entry of its; the log asks with the next act.
func (c *cutGate) set(o Origin, at Appended) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = map[DeviceKey]Ending{o.Key: {At: 1, Reason: "revoked", Cuts: []Cut{{Origin: o.ID, Tip: Tip{Seq: at.Ref.Seq(), Hash: at.Hash}}}}}
}

// cut ends a device's log at an entry of its, and lets the log act on it.
func (c *cutGate) cut(t *testing.T, l *testLog, o Origin, at Appended) {
	t.Helper()
	c.set(o, at)
	mustAppend(t, l, Op{Kind: "end", Author: "a:b:c", Body: appendNil(nil)})
	if err := l.ApplyEndings(context.Background()); err != nil {
		t.Fatalf("the cut does not act: %v", err)
	}
}

// noted are the entries of an origin that a log shows by arrival, each once, as
// far as they are what their hash says.
func noted(t *testing.T, l *testLog, o OriginID) (seqs []uint64) {
	t.Helper()
	last, seen := uint64(0), map[uint64]bool{}
	err := l.View(func(s Snapshot) error {
		return s.Arrived(0, false, func(arrival uint64, e *Entry) (bool, error) {
			if arrival <= last {
				t.Errorf("arrival %d after %d", arrival, last)
			}
			if last = arrival; e.Origin == o && e.Present() {
				if at, err := s.ByHash(e.Hash[:]); err != nil || at.Seq != e.Seq {
					return true, nil
				}
				if seen[e.Seq] {
					t.Errorf("entry %d has arrived twice", e.Seq)
				}
				seen[e.Seq] = true
				seqs = append(seqs, e.Seq)
			}
			return true, nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return seqs
}

// TestT2_L6_CutsPassOverDamage: an entry of a revoked device whose stored bytes
// are damaged keeps no cut from acting, before or beyond it; when the entry is
// back it stands where the cut has it, whichever moved meanwhile.
func TestT2_L6_CutsPassOverDamage(t *testing.T) {
	ctx := context.Background()
	for _, name := range []string{"a bit of the payload", "a bit of the seq", "zeros", "gone"} {
		how := hurts[name]
		for _, when := range []string{"before the cut comes", "while it is beyond", "within the cut", "as the only one beyond it"} {
			t.Run(name+" "+when, func(t *testing.T) {
				gate := &cutGate{}
				a := openTest(t, "a", withContent)
				b := openTest(t, "b", onDisk(t), withContent, gate.in)
				list := mustAppend(t, a, note("0"), note("1"), note("2"), note("3"), note("4"), note("5"))
				pull(t, b, a, 1<<20)
				victim, at, want := list[4], list[2], []uint64{1, 2, 3, 4} // its birth and three notes
				switch when {
				case "within the cut":
					victim, want = list[1], []uint64{1, 2, 4}
				case "as the only one beyond it":
					if name == "gone" {
						return // then the log is shorter, and a peer's frontier says so
					}
					victim, at, want = list[5], list[4], []uint64{1, 2, 3, 4, 5, 6}
				}
				if when != "while it is beyond" {
					hurt(t, b, victim.Hash, how)
				}
				gate.cut(t, b, a.Self(), at)
				if when == "while it is beyond" {
					hurt(t, b, victim.Hash, how)
				}
				if got := noted(t, b, a.Self().ID); !slices.Equal(got, want) {
					t.Errorf("%v count, want %v", got, want)
				}
				if when != "within the cut" {
					sound := openTest(t, "sound", withContent, gate.in)
					pull(t, sound, a, 1<<20)
					pull(t, sound, b, 1<<20)
					if x, y := b.Views()[0], sound.Views()[0]; x.Digest != y.Digest {
						t.Errorf("view %s shows what lies beyond the cut; %s", x.Digest, y.Digest)
					}
				}
				if when == "while it is beyond" {
					gate.cut(t, b, a.Self(), list[3]) // looks at what is aside
				}
				if _, err := b.SettleDamage(ctx); err != nil {
					t.Fatal(err)
				}
				if owed := owedBy(t, b); len(owed) != 1 || owed[0].Hash != victim.Hash {
					t.Fatalf("owed %+v", owed)
				}
				b = b.reopen(t)
				if err := b.PutOwed(ctx, victim.Hash, wholeEntry(t, a, victim.Hash)); err != nil {
					t.Fatal(err)
				}
				if err := b.ApplyEndings(ctx); err != nil {
					t.Fatal(err)
				}
				if err := b.Rebuild(ctx, nil); err != nil { // of what was back too late for it
					t.Fatal(err)
				}
				for _, at := range []int{2, 5, 3} {
					gate.cut(t, b, a.Self(), list[at])
					fresh := openTest(t, "fresh", withContent, gate.in)
					pull(t, fresh, a, 1<<20)
					if got := noted(t, b, a.Self().ID); fmt.Sprint(got) != fmt.Sprint(noted(t, fresh, a.Self().ID)) {
						t.Errorf("cut at %d: %v count", at, got)
					}
					pull(t, fresh, b, 1<<20)
					if x, y := b.Views()[0], fresh.Views()[0]; x.Digest != y.Digest {
						t.Errorf("cut at %d: view %s, where nothing was damaged %s", at, x.Digest, y.Digest)
					}
					if v, err := b.Verify(ctx, nil); err != nil || len(v.Findings) > 0 {
						t.Errorf("cut at %d: verify %+v, %v", at, v.Findings, err)
					}
				}
			})
		}
	}
}
