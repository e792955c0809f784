//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// detach puts the command in a session of its own, so that neither a closed
// terminal nor a signal to the client's process group ends the owner.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

func stopSignals() []os.Signal { return []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} }

// tryLock takes an exclusive lock that the system drops when the process ends.
// It reports false when another process has it.
func tryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

func addressInUse(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }

func outOfSpace(err error) bool { return errors.Is(err, syscall.ENOSPC) }

// freeDisk is how many bytes are free for this user below dir.
func freeDisk(dir string) (int64, bool) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, false
	}
	return int64(st.Bavail) * int64(st.Bsize), true
}
