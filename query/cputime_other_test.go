//go:build !linux

package query_test

import "time"

// cpuTime runs f and gives the time it took: this system does not count the
// processor time of a thread.
func cpuTime(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}
