package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// compareCodec runs the product's own benchmarks of the codec, which measure
// both sides in turns, and prints the medians of what they report.
func compareCodec(string) error {
	cmd := exec.Command("go", "test", "tallystick/oplog", "-run", "^$", "-bench", "Entry(Encode|Decode)/.*-vs-", "-benchtime", "200ms", "-count", strconv.Itoa(*rounds))
	cmd.Dir = ".."
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	type result struct{ ours, theirs, times []float64 }
	results, order := map[string]*result{}, []string{}
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		r := results[f[0]]
		if r == nil {
			r = &result{}
			results[f[0]], order = r, append(order, f[0])
		}
		for i := 2; i+1 < len(f); i += 2 {
			v, err := strconv.ParseFloat(f[i], 64)
			if err != nil {
				return fmt.Errorf("%q: %w", lines.Text(), err)
			}
			switch f[i+1] {
			case "fast-ns":
				r.ours = append(r.ours, v)
			case "slow-ns":
				r.theirs = append(r.theirs, v)
			case "x":
				r.times = append(r.times, v)
			}
		}
	}
	header("benchmark", "by hand, ns", "msgpack by reflection, ns", "times as fast")
	for _, name := range order {
		r := results[name]
		one := make([]float64, len(r.times))
		for i := range one {
			one[i] = 1
		}
		row("`"+strings.TrimPrefix(name, "Benchmark")+"`", number(median(r.ours)), number(median(r.theirs)), ratio(r.times, one))
	}
	return nil
}
