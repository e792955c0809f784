package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/windows"
)

// detach gives the command no console, so that closing one does not end it.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.DETACHED_PROCESS | windows.CREATE_NEW_PROCESS_GROUP}
}

func stopSignals() []os.Signal { return []os.Signal{os.Interrupt} }

// tryLock takes an exclusive lock that the system drops when the process ends.
// It reports false when another process has it.
func tryLock(f *os.File) (bool, error) {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	// A byte far behind the text, so that others can read who has it.
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, &windows.Overlapped{Offset: 1 << 20})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}

func addressInUse(err error) bool { return errors.Is(err, windows.WSAEADDRINUSE) }

func outOfSpace(err error) bool { return errors.Is(err, windows.ERROR_DISK_FULL) }

// freeDisk is not known here.
func freeDisk(string) (int64, bool) { return 0, false }
