package copies

import (
	"errors"
	"slices"
	"sort"
	"strings"
	"testing"

	"tallystick/oplog"
)

// rows is a view in memory.
type rows map[string]string

func (r rows) View(string) oplog.Reader { return r }

func (r rows) Get(k []byte) ([]byte, error) {
	v, ok := r[string(k)]
	if !ok {
		return nil, oplog.ErrNotFound
	}
	return []byte(v), nil
}

func (r rows) Scan(prefix, start []byte, _ bool, fn func(k, v []byte) (bool, error)) error {
	var keys []string
	for k := range r {
		if strings.HasPrefix(k, string(prefix)) && k >= string(start) {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	for _, k := range keys {
		if more, err := fn([]byte(k), []byte(r[k])); err != nil || !more {
			return err
		}
	}
	return nil
}

func (r rows) Set(k, v []byte) error { r[string(k)] = string(v); return nil }

func (r rows) Delete(k []byte) error { delete(r, string(k)); return nil }

func (r rows) Insert(k, v []byte) error {
	if _, ok := r[string(k)]; ok {
		return errors.New("inserted twice")
	}
	return r.Set(k, v)
}

// TestM1_EarliestCounts: whatever the order, the earliest counts, its rows
// alone stay, and the others are listed by pages.
func TestM1_EarliestCounts(t *testing.T) {
	table := Rows{View: "x", Ref: oplog.RefOf}
	key := [16]byte{7}
	ref := func(i byte) (r oplog.Ref) { r[0] = i; return r }
	var first rows
	for _, order := range [][]byte{{1, 2, 3}, {1, 3, 2}, {2, 1, 3}, {2, 3, 1}, {3, 1, 2}, {3, 2, 1}} {
		tx, live := rows{}, map[oplog.Ref]bool{}
		for _, i := range order {
			row := ref(i)
			counts, err := table.Take(tx, key, row, row[:], func(was []byte) error { delete(live, oplog.Ref(was)); return nil })
			if err != nil {
				t.Fatal(err)
			}
			if counts {
				live[row] = true
			}
		}
		if counts, ok, err := table.Counts(tx, key); err != nil || !ok || counts != ref(1) || len(live) != 1 || !live[ref(1)] {
			t.Errorf("%v: %v counts, %v is live", order, counts[0], live)
		}
		if first == nil {
			first = tx
		}
		if len(tx) != len(first) {
			t.Errorf("%v: %d rows, not %d", order, len(tx), len(first))
		}
		for k, v := range first {
			if tx[k] != v {
				t.Errorf("%v: row %x differs", order, k)
			}
		}
		var listed []byte
		for after, more := []byte(nil), true; more; {
			page, next, err := table.Page(tx, after, 1)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range page {
				if c.Counts != ref(1) {
					t.Errorf("%v counts", c.Counts[0])
				}
				listed = append(listed, c.Copy[0])
			}
			after, more = next, next != nil
		}
		others, err := table.Others(tx, key)
		if !slices.Equal(listed, []byte{2, 3}) || err != nil || len(others) != 2 {
			t.Errorf("%v: listed %v, %v", order, listed, others)
		}
	}
	if _, ok, err := table.Counts(rows{}, key); ok || err != nil {
		t.Errorf("of nothing: %v, %v", ok, err)
	}
}
