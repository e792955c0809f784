package oplog

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"tallystick/hlc"
)

const sane = int64(1_800_000_000_000) // a wall clock that is right

func wallFrom(ms int64) func(*Config) {
	return func(c *Config) { c.Wall = func() int64 { ms++; return ms } }
}

func mustAmend(t testing.TB, l *testLog, o OriginID, last Tip) Appended {
	t.Helper()
	a, err := l.Amend(context.Background(), "a:b:c", "", Amendment{o, last}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func settle(t testing.TB, l *testLog) {
	t.Helper()
	if err := errors.Join(l.ReleaseHeld(context.Background()), l.ApplyAmends(context.Background())); err != nil {
		t.Fatal(err)
	}
	if n := l.AmendPending(); n != 0 {
		t.Fatalf("%d amends pending", n)
	}
}

// stamps lists what every folded note counts as, in C2 order.
func stamps(t testing.TB, l *testLog) (out []Ref) {
	t.Helper()
	err := l.View(func(s Snapshot) error {
		return s.View("bykind").Scan([]byte("r"), nil, false, func(k, _ []byte) (bool, error) {
			ref, err := RefOf(k[1:])
			if err != nil {
				return false, err
			}
			if _, err := s.Entry(ref); err != nil {
				return false, fmt.Errorf("%v: %w", ref, err)
			}
			out = append(out, ref)
			return true, nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// rangesOf cuts everything of an origin toward each of its tips into ranges
// that end at every head there is.
func rangesOf(t testing.TB, l *testLog, o OriginID) (lines [][]Range) {
	t.Helper()
	for _, tip := range l.Frontier()[o] {
		var line []Range
		var after []Tip
		for len(after) == 0 || after[0] != tip {
			rg, err := l.ReadToward(o, after, tip, 1)
			if err != nil {
				t.Fatal(err)
			}
			line = append(line, rg)
			after = []Tip{rg.Head.Tip()}
		}
		lines = append(lines, line)
	}
	return lines
}

// TestC3_AmendAnyOrder: a forked origin of a clock a year ahead, amended by
// three others at different times and places, its own note and theirs. In
// whatever order and portions all that arrives, on a replica whose clock is
// right or itself ahead, and whenever the amends are applied: the same views,
// which are those of a rebuild.
func TestC3_AmendAnyOrder(t *testing.T) {
	fast := openTest(t, "a", onDisk(t), wallFrom(sane+365*24*3600_000))
	write(t, fast, "common", 3)
	common := fast.Frontier()[fast.Self().ID][0]
	one, two := cloneDisk(t, fast)
	write(t, one, "one", 3)
	write(t, two, "two", 4)
	o := one.Self().ID
	tip1, tip2 := one.Frontier()[o][0], two.Frontier()[o][0]

	src := openTest(t, "src", wallFrom(sane))
	exchange(t, src, one, 1)
	exchange(t, src, two, 1)
	var amenders []*testLog
	for i, last := range []Tip{tip1, common, tip2} {
		a := openTest(t, fmt.Sprint("amender", i), wallFrom(sane+int64(3-i)*60_000)) // the last has the lowest stamp
		exchange(t, a, src, 1)
		write(t, a, fmt.Sprint("by", i), 2)
		mustAmend(t, a, o, last)
		if i == 1 {
			mustAmend(t, a, o, tip2) // a minute above what the last says of it
		}
		write(t, a, fmt.Sprint("after", i), 1)
		amenders = append(amenders, a)
	}
	lines := rangesOf(t, src, o)
	if len(lines) != 2 {
		t.Fatalf("%d lines, want a fork", len(lines))
	}
	for _, a := range amenders {
		lines = append(lines, rangesOf(t, a, a.Self().ID)...)
	}

	first := ""
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		ahead := rapid.SampledFrom([]int64{0, 0, 2 * 365 * 24 * 3600_000}).Draw(rt, "own clock ahead")
		x := openTest(t, fmt.Sprint("x", n), wallFrom(sane+10*60_000+ahead))
		at := make([]int, len(lines))
		for left := len(lines); left > 0; {
			i := rapid.IntRange(0, len(lines)-1).Draw(rt, "line")
			for at[i] == len(lines[i]) {
				i = (i + 1) % len(lines)
			}
			if _, err := x.Ingest(context.Background(), lines[i][at[i]]); err != nil {
				rt.Fatal(err)
			}
			if at[i]++; at[i] == len(lines[i]) {
				left--
			}
			if rapid.IntRange(0, 4).Draw(rt, "apply") == 0 {
				settle(t, x)
				stamps(t, x) // every row finds its entry
			}
		}
		stamps(t, x) // also before the amends have acted
		settle(t, x)
		got := x.Views()[0].Digest
		if first == "" {
			first = got
		}
		if got != first {
			rt.Errorf("views %s, another order gave %s", got, first)
		}
		if err := x.Rebuild(context.Background(), nil); err != nil {
			rt.Fatal(err)
		}
		if again := x.Views()[0].Digest; again != got {
			rt.Errorf("views %s, a rebuild makes %s", got, again)
		}
		if x.Held() != 0 {
			rt.Errorf("%d held", x.Held())
		}
		if v, err := x.Verify(context.Background(), nil); err != nil || len(v.Findings) > 0 {
			rt.Errorf("%+v, %v", v, err)
		}
		if err := x.Close(); err != nil {
			rt.Fatal(err)
		}
	})

	// By the lowest amend of each line: tip2's covers what is common, too.
	x := openTest(t, "last", wallFrom(sane+10*60_000))
	for _, line := range lines {
		for _, rg := range line {
			if _, err := x.Ingest(context.Background(), rg); err != nil {
				t.Fatal(err)
			}
		}
	}
	settle(t, x)
	counts := map[int64]int{}
	for _, ref := range stamps(t, x) {
		if ref.Origin() == o {
			counts[(ref.Time().Millis()-sane)/60_000]++
		}
	}
	if counts[3] != 3 || counts[1] != 3+4 || len(counts) != 2 {
		t.Errorf("notes by minute of what they count as: %v; want 3 of one at the 3rd, the common 3 and 4 of two at the 1st", counts)
	}
}

// TestC3_AmendSaysWhatItDoes: it never raises a stamp, releases what is held up
// to the named entry and nothing after, and header and relayed bytes stay.
func TestC3_AmendSaysWhatItDoes(t *testing.T) {
	wall := sane
	fast := openTest(t, "fast", func(c *Config) { c.Wall = func() int64 { wall++; return wall } })
	write(t, fast, "right", 2)
	wall += 3600_000 * 1000
	write(t, fast, "wrong", 3)
	last := fast.Frontier()[fast.Self().ID][0]
	write(t, fast, "later", 2)
	o := fast.Self().ID

	x := openTest(t, "x", onDisk(t), wallFrom(sane+60_000))
	pull(t, x, fast, 1)
	if x.Held() != 5 || len(stamps(t, x)) != 2 {
		t.Fatalf("%d held, %d folded", x.Held(), len(stamps(t, x)))
	}
	if _, err := x.Amend(context.Background(), "", "", Amendment{o, Tip{Seq: 5, Hash: Hash{1}}}, nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("an amend of what is not here: %v", err)
	}
	refused := errors.New("no")
	if _, err := x.Amend(context.Background(), "", "", Amendment{o, last}, func(Views, hlc.Timestamp) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("guard: %v", err)
	}
	a := mustAmend(t, x, o, last)
	if x.Held() != 2 {
		t.Errorf("%d held, want the two after it", x.Held())
	}
	check := func(x *testLog) {
		t.Helper()
		for _, ref := range stamps(t, x) {
			err := x.View(func(s Snapshot) error {
				e, err := s.Entry(ref)
				if err != nil {
					return err
				}
				switch wrong := e.Seq > 3 && e.Seq <= last.Seq; {
				case e.Seq <= last.Seq && e.Time != min(e.Stamped(), a.Ref.Time()):
					t.Errorf("seq %d counts as %v, stamped %v", e.Seq, e.Time, e.Stamped())
				case wrong == (e.Time == e.Stamped()):
					t.Errorf("seq %d stamped %v, counts as %v", e.Seq, e.Stamped(), e.Time)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
	check(x)
	digest := x.Views()[0]
	x = x.reopen(t)
	check(x)
	if x.Views()[0] != digest {
		t.Error("other views after a restart")
	}

	// Relayed bytes are the origin's own, on to one that gets the amend last.
	var want, got []byte
	for _, l := range []*testLog{fast, x} {
		rg, err := l.ReadRange(o, 0, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		want, got = got, rg.Entries
	}
	if !bytes.Equal(got, want) {
		t.Error("an amend changes what is relayed")
	}
	y := openTest(t, "y", wallFrom(sane+3600_000*2000)) // has folded all as it was stamped
	pull(t, y, fast, 1<<20)
	before := stamps(t, y)
	pull(t, y, x, 1<<20)
	if y.AmendPending() != 1 || len(before) != 7 {
		t.Fatalf("%d pending, %d folded", y.AmendPending(), len(before))
	}
	// Marked and not rebuilt yet: the rows name entries as they were stamped, and
	// find them.
	j := &amendJob{waiter: newWaiter()}
	if err := errors.Join(y.submit(context.Background(), j), y.wait(context.Background(), j.waiter)); err != nil {
		t.Fatal(err)
	}
	if got := stamps(t, y); !slices.Equal(got, before) || y.AmendPending() != 1 {
		t.Errorf("%d pending, rows %v, before %v", y.AmendPending(), got, before)
	}
	settle(t, y)
	check(y)
}

// TestC3_AmendedDeviceGoesOnByTheWall: after its clock is right again and its
// stamps are amended, a device that starts opens a new incarnation, which
// nobody holds.
func TestC3_AmendedDeviceGoesOnByTheWall(t *testing.T) {
	fast := openTest(t, "fast", onDisk(t), wallFrom(sane+3600_000*1000))
	write(t, fast, "wrong", 3)
	x := openTest(t, "x", wallFrom(sane))
	pull(t, x, fast, 1<<20)
	o := fast.Self().ID
	mustAmend(t, x, o, fast.Frontier()[o][0])
	pull(t, fast, x, 1<<20)
	settle(t, fast)
	fast = fast.reopen(t, wallFrom(sane+30_000))
	if fast.Self().ID == o || fast.Doubt() == "" {
		t.Fatalf("goes on with %s: %q", fast.Self().ID, fast.Doubt())
	}
	write(t, fast, "right", 2)
	pull(t, x, fast, 1<<20)
	if x.Held() != 0 || len(stamps(t, x)) != 5 {
		t.Errorf("%d held, %d folded", x.Held(), len(stamps(t, x)))
	}
	sameState(t, fast, x)
}

// TestL8_AmendGolden fixes the bytes of an amend's body.
func TestL8_AmendGolden(t *testing.T) {
	a := Amendment{Origin: OriginID{1, 15: 2}, Last: Tip{Seq: 300, Hash: Hash{3, 31: 4}}}
	const want = "93c41001000000000000000000000000000002cd012cc4200300000000000000000000000000000000000000000000000000000000000004"
	if got := hex.EncodeToString(a.body()); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	b, err := parseAmendment(a.body())
	if err != nil || b != a {
		t.Errorf("%+v, %v", b, err)
	}
	for n := range a.body() {
		if _, err := parseAmendment(a.body()[:n]); err == nil {
			t.Errorf("%d bytes of it parse", n)
		}
	}
}

func FuzzParseAmendment(f *testing.F) {
	a := Amendment{Origin: OriginID{1, 15: 2}, Last: Tip{Seq: 300, Hash: Hash{3, 31: 4}}}
	f.Add(a.body())
	f.Add([]byte{0x93})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parseAmendment(b)
		if err == nil && !bytes.Equal(a.body(), b) {
			if c, err := parseAmendment(a.body()); err != nil || c != a {
				t.Errorf("%x reads as %+v, which does not come back", b, a)
			}
		}
	})
}
