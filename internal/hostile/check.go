package hostile

import (
	"fmt"
	"runtime"
	"runtime/metrics"
	"slices"
	"testing"
)

// Budget is how many bytes a decoder may allocate for an input, beyond the
// input's own size.
const Budget = 1 << 20

// libraryBudget is for decoders that are a library's (Memory).
const libraryBudget = 24 * Budget

// Check feeds every case to decode. A case of a kind that must be refused and
// is not fails the test, unless taken names the kind: what is written there
// says why the decoder takes it. A panic and more than Budget allocated fail
// for every kind. Tests that use it do not run in parallel with others.
func Check(t testing.TB, cases []Case, taken map[Kind]string, decode func(in []byte) error) {
	t.Helper()
	count, budget := 0, uint64(Budget)
	if _, ok := taken[Memory]; ok {
		budget = libraryBudget
	}
	for _, c := range cases {
		used, err := run(t, c, budget, decode)
		if used > budget+uint64(len(c.In)) {
			t.Errorf("%s, %s: %d bytes allocated for an input of %d", c.Kind, c.Name, used, len(c.In))
			count++
		}
		if _, ok := taken[c.Kind]; err == nil && !ok && slices.Contains(mustFail, c.Kind) {
			t.Errorf("%s, %s: taken: %.200q", c.Kind, c.Name, c.In)
			count++
		}
		if count > 10 {
			t.Fatal("and more")
		}
	}
}

// run measures a call. What other goroutines of the process allocate meanwhile
// counts as well, so the smallest of several is taken when one looks too much.
func run(t testing.TB, c Case, budget uint64, decode func([]byte) error) (used uint64, err error) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			t.Fatalf("%s, %s: panic: %v: %.200q", c.Kind, c.Name, p, c.In)
		}
	}()
	before := rough()
	err = decode(c.In)
	// The rough count does not stop the world and misses what small objects
	// have not filled up yet, far less than half the budget.
	if used = rough() - before; used < Budget/2 {
		return used, err
	}
	for range 8 {
		if n := exact(func() { err = decode(c.In) }); n < used {
			used = n
		}
		if used <= budget+uint64(len(c.In)) {
			break
		}
	}
	return used, err
}

func rough() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindUint64 {
		panic(fmt.Sprintf("hostile: no metric %s", s[0].Name))
	}
	return s[0].Value.Uint64()
}

func exact(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
