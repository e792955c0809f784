package oplog

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// damage changes a stored value behind the log's back.
func damage(t *testing.T, l *testLog, key []byte, change func([]byte) []byte) {
	t.Helper()
	snap := l.db.snapshot()
	defer snap.release()
	v, err := snap.get(key)
	if err != nil {
		t.Fatal(err)
	}
	b := newBatch(snap, nil)
	if v = change(append([]byte{}, v...)); v == nil {
		b.del(key)
	} else {
		b.set(key, v)
	}
	if err := l.db.commit(b); err != nil {
		t.Fatal(err)
	}
}

func flip(at int) func([]byte) []byte {
	return func(b []byte) []byte {
		b[len(b)-at] ^= 0x10
		return b
	}
}

func TestL8_VerifyFindsDamage(t *testing.T) {
	for _, c := range []struct {
		name string
		hurt func(t *testing.T, l *testLog)
		want string
	}{
		{"nothing", func(*testing.T, *testLog) {}, ""},
		{"a flipped bit in a payload", func(t *testing.T, l *testLog) { damage(t, l, seqKey(tabEntry, 0, 7), flip(2)) }, "seq 7: "},
		{"a flipped bit in a header", func(t *testing.T, l *testLog) {
			damage(t, l, seqKey(tabEntry, 0, 7), func(b []byte) []byte { b[60] ^= 1; return b })
		}, "seq 7: "},
		{"a lost entry", func(t *testing.T, l *testLog) {
			damage(t, l, seqKey(tabEntry, 0, 5), func([]byte) []byte { return nil })
		}, "seq 5: missing"},
		{"a forged head", func(t *testing.T, l *testLog) { damage(t, l, laneKey(tabHead, 1), flip(1)) }, "not signed"},
		{"a lost hash", func(t *testing.T, l *testLog) {
			e := l.lanes[0].tip
			damage(t, l, hashKey(e.Hash[:]), func([]byte) []byte { return nil })
		}, "not found by its hash"},
		{"a lost arrival", func(t *testing.T, l *testLog) { damage(t, l, arrKey(4), func([]byte) []byte { return nil }) }, "arrival 4 is missing"},
		{"the last arrival lost", func(t *testing.T, l *testLog) {
			damage(t, l, arrKey(l.w.arrival), func([]byte) []byte { return nil })
		}, "arrivals end at"},
		{"a changed row", func(t *testing.T, l *testLog) {
			damage(t, l, append(viewPrefix("bykind", 0), 'n'), func([]byte) []byte { return []byte{99} })
		}, "view bykind"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, peer := openTest(t, "a"), openTest(t, "peer")
			write(t, l, "mine", 20)
			write(t, peer, "theirs", 10)
			pull(t, l, peer, 1<<20)
			c.hurt(t, l)
			v, err := l.Verify(context.Background(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.want == "" {
				if len(v.Findings) != 0 || v.Entries != 32 || v.Payloads != 32 || v.Heads == 0 || v.Rows != 31 {
					t.Errorf("%+v", v)
				}
				return
			}
			if len(v.Findings) == 0 || !strings.Contains(fmt.Sprint(v.Findings), c.want) {
				t.Errorf("findings %v, want %q", v.Findings, c.want)
			}
		})
	}
}

func TestL8_VerifyFollowsBranches(t *testing.T) {
	a := openTest(t, "a", onDisk(t))
	write(t, a, "common", 10)
	a, b := cloneDisk(t, a)
	write(t, a, "a", 3)
	write(t, b, "b", 3)
	x := openTest(t, "x")
	exchange(t, x, a, 1<<20)
	exchange(t, x, b, 1<<20)
	v, err := x.Verify(context.Background(), nil)
	if err != nil || len(v.Findings) != 0 || v.Entries != 17 {
		t.Errorf("%+v, %v", v, err)
	}
}
