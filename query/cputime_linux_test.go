package query_test

import (
	"runtime"
	"syscall"
	"time"
)

// rusageThread asks getrusage for the calling thread.
const rusageThread = 1

// cpuTime runs f on one thread and gives the processor time it took there: on
// a machine with other work it says more than the clock does.
func cpuTime(f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after syscall.Rusage
	_ = syscall.Getrusage(rusageThread, &before)
	f()
	_ = syscall.Getrusage(rusageThread, &after)
	return time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
}
