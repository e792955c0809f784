package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A4: the log of a detached owner has a limit; the newest lines are kept.
func TestA4_LogFileTurns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tally.log")
	l, err := openLogFile(path, 100)
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Repeat("x", 29) + "\n"
	for range 10 {
		if n, err := l.Write([]byte(line)); err != nil || n != len(line) {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]int{path: 30, path + ".1": 90} {
		b, err := os.ReadFile(file)
		if err != nil || len(b) != want {
			t.Errorf("%s has %d bytes (%v), want %d", filepath.Base(file), len(b), err, want)
		}
	}
	if _, err := l.Write([]byte("late")); err == nil {
		t.Error("Write after Close succeeded")
	}
	// A reopened log goes on where it was.
	l, err = openLogFile(path, 100)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.Write([]byte(line))
	if b, _ := os.ReadFile(path); len(b) != 60 {
		t.Errorf("reopened log has %d bytes, want 60", len(b))
	}
}
