package merge_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"tallystick/query/internal/foldtest"
	"tallystick/query/internal/merge"
)

// TestScanIsTheSortedUnion compares with sorting everything.
func TestScanIsTheSortedUnion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tx := foldtest.NewTx()
		var prefixes [][]byte
		union := map[string]bool{}
		for p := byte('a'); p < 'a'+byte(rapid.IntRange(1, 4).Draw(t, "prefixes")); p++ {
			prefixes = append(prefixes, []byte{p})
			for n := rapid.IntRange(0, 150).Draw(t, "rows"); n > 0; n-- {
				rest := []byte{byte(rapid.IntRange(0, 3).Draw(t, "hi")), byte(rapid.IntRange(0, 255).Draw(t, "lo"))}
				if err := tx.Set(append([]byte{p}, rest...), rest); err != nil {
					t.Fatal(err)
				}
				union[string(rest)] = true
			}
		}
		reverse := rapid.Bool().Draw(t, "reverse")
		var from []byte
		if rapid.Bool().Draw(t, "from") {
			from = []byte{byte(rapid.IntRange(0, 3).Draw(t, "from hi")), 7}
		}
		var want []string
		for r := range union {
			if from == nil || !reverse && r >= string(from) || reverse && r <= string(from) {
				want = append(want, r)
			}
		}
		slices.Sort(want)
		if reverse {
			slices.Reverse(want)
		}
		limit := rapid.IntRange(0, 700).Draw(t, "limit")
		var got []string
		err := merge.Scan(tx, prefixes, from, reverse, func(rest, value []byte) (bool, error) {
			if string(rest) != string(value) {
				t.Fatalf("value %x of row %x", value, rest)
			}
			got = append(got, string(rest))
			return len(got) <= limit, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if want = want[:min(len(want), limit+1)]; !slices.Equal(got, want) {
			t.Fatalf("%d rows, want %d", len(got), len(want))
		}
	})
}
