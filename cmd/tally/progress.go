package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/schollz/progressbar/v3"

	"tallystick/server"
)

// bar shows how far a long call is, on a terminal only; what is not a terminal
// gets no control characters.
type bar struct {
	a    *app
	what string
	on   bool
}

// newBar draws the empty bar at once, so that a call which is over before it
// has told how far it is has said what it does all the same.
func (a *app) newBar(what string) *bar {
	b := &bar{a: a, what: what, on: a.showsProgress()}
	b.show(server.Progress{})
	return b
}

// showsProgress reports whether somebody looks at how far a call is: a person
// at a terminal who has not asked for quiet, nor for JSON.
func (a *app) showsProgress() bool { return !a.quiet && !a.json && a.terminal(a.Stderr) }

// countBar shows how many of a number of things are done; of -1 how many are.
func (a *app) countBar(what string, of int) *progressbar.ProgressBar {
	return a.barOf(what, int64(of), progressbar.OptionShowCount())
}

// bytesBar shows how many bytes are done; a size of -1 is not known.
func (a *app) bytesBar(what string, size int64) *progressbar.ProgressBar {
	return a.barOf(what, size, progressbar.OptionShowBytes(true))
}

func (a *app) barOf(what string, of int64, o progressbar.Option) *progressbar.ProgressBar {
	w := a.Stderr
	if !a.showsProgress() {
		w = io.Discard
	}
	if of == 0 {
		of = -1 // nothing to do is no division by zero
	}
	return progressbar.NewOptions64(of, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what), o,
		progressbar.OptionClearOnFinish(), progressbar.OptionSetRenderBlankState(true), progressbar.OptionSetWidth(barWidth))
}

// fileSize is a file's size for a bar, or -1.
func fileSize(f *os.File) int64 {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return -1
	}
	return info.Size()
}

func (b *bar) show(p server.Progress) {
	if b.on {
		fmt.Fprintf(b.a.Stderr, "\r%s\x1b[K", b.line(p))
	}
}

const barWidth = 30

func (b *bar) line(p server.Progress) string {
	part := 0.0
	if p.Total > 0 {
		part = min(float64(p.Done)/float64(p.Total), 1)
	}
	full := int(part * barWidth)
	if p.Total == 0 {
		return fmt.Sprintf("%s [%s]", b.what, strings.Repeat(".", barWidth))
	}
	return fmt.Sprintf("%s [%s%s] %3.0f%%  %d of %d entries", b.what, strings.Repeat("#", full), strings.Repeat(".", barWidth-full), 100*part, p.Done, p.Total)
}

func (b *bar) end() {
	if b.on {
		fmt.Fprint(b.a.Stderr, "\r\x1b[K")
	}
}
