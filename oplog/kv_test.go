package oplog

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestM2_BatchReadsAndTakesBackItsWrites compares a batch over a store, with
// marks that are taken back, one over another, and with reused memory, with
// plain maps.
func TestM2_BatchReadsAndTakesBackItsWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.Custom(func(t *rapid.T) []byte {
			return []byte(rapid.StringOfN(rapid.RuneFrom([]rune("ab")), 1, 4, -1).Draw(t, "key"))
		})
		store, model := newMemory(), map[string]string{}
		var spare *batch
		for n := rapid.IntRange(1, 3).Draw(t, "batches"); n > 0; n-- {
			b := newBatch(store.snapshot(), spare)
			type place struct {
				mark  batchMark
				model map[string]string
				bytes int
			}
			var marks []place
			for range rapid.IntRange(0, 40).Draw(t, "steps") {
				switch k := key.Draw(t, "key"); rapid.SampledFrom([]string{"set", "set", "del", "mark", "back", "scan"}).Draw(t, "do") {
				case "set":
					v := fmt.Sprint(rapid.IntRange(0, 1000).Draw(t, "value"))
					b.set(k, b.holdValue([]byte(v)))
					model[string(k)] = v
				case "del":
					b.del(k)
					delete(model, string(k))
				case "mark":
					marks = append(marks, place{b.mark(), maps.Clone(model), b.bytes})
				case "back":
					if len(marks) > 0 {
						at := rapid.IntRange(0, len(marks)-1).Draw(t, "to")
						b.rollback(marks[at].mark)
						model = maps.Clone(marks[at].model)
						if b.bytes != marks[at].bytes {
							t.Fatalf("%d bytes after taking back, %d before", b.bytes, marks[at].bytes)
						}
						marks = marks[:at+1]
					}
				case "scan":
					var start []byte
					if rapid.Bool().Draw(t, "from") {
						start = append(k[:len(k):len(k)], key.Draw(t, "start")...)
					}
					compareScan(t, b, model, k, start, rapid.Bool().Draw(t, "reverse"))
				}
			}
			for _, k := range []string{"a", "b", "ab", "ba", "abab"} {
				v, err := b.get([]byte(k))
				if want, ok := model[k]; ok != (err == nil) || string(v) != want {
					t.Fatalf("%q is %q, %v; want %q, %v", k, v, err, want, ok)
				}
			}
			if err := store.commit(b); err != nil {
				t.Fatal(err)
			}
			b.release()
			spare = b
		}
		compareScan(t, newBatch(store.snapshot(), nil), model, nil, nil, false)
	})
}

func compareScan(t *rapid.T, b *batch, model map[string]string, prefix, start []byte, reverse bool) {
	var want, got []string
	for _, k := range slices.Sorted(maps.Keys(model)) {
		if len(k) >= len(prefix) && k[:len(prefix)] == string(prefix) && (start == nil || !reverse && k >= string(start) || reverse && k <= string(start)) {
			want = append(want, k+"="+model[k])
		}
	}
	if reverse {
		slices.Reverse(want)
	}
	if err := b.scan(prefix, start, reverse, func(key, value []byte) (bool, error) {
		got = append(got, string(key)+"="+string(value))
		return true, nil
	}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("scan of %q from %q, reverse %v: %q, want %q", prefix, start, reverse, got, want)
	}
}
