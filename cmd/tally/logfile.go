package main

import (
	"fmt"
	"os"
	"sync"
)

// maxLog is the size at which the log of a detached owner turns; one old file
// is kept beside it.
const maxLog = 10 << 20

// logFile is a log that turns by size: path and path.1, at most maxLog each.
// It is safe for concurrent use.
type logFile struct {
	path string
	max  int64

	mu struct {
		sync.Mutex
		f    *os.File
		size int64
	}
}

func openLogFile(path string, max int64) (*logFile, error) {
	l := &logFile{path: path, max: max}
	if err := l.openLocked(); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *logFile) openLocked() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return fmt.Errorf("open log: %w", err)
	}
	l.mu.f, l.mu.size = f, info.Size()
	return nil
}

// Write appends one record, turning the log first when it would grow over the
// limit.
func (l *logFile) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.f == nil {
		return 0, os.ErrClosed
	}
	if l.mu.size > 0 && l.mu.size+int64(len(b)) > l.max {
		if err := l.turnLocked(); err != nil {
			return 0, err
		}
	}
	n, err := l.mu.f.Write(b)
	l.mu.size += int64(n)
	return n, err
}

func (l *logFile) turnLocked() error {
	l.mu.f.Close()
	l.mu.f = nil
	if err := os.Rename(l.path, l.path+".1"); err != nil {
		return fmt.Errorf("turn log: %w", err)
	}
	return l.openLocked()
}

// Close closes the file. It may be called more than once.
func (l *logFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.f == nil {
		return nil
	}
	f := l.mu.f
	l.mu.f = nil
	return f.Close()
}
