package main

import (
	"fmt"
	"strings"

	"tallystick/server"
)

// bar shows how far a long call is, on a terminal only; what is not a terminal
// gets no control characters.
type bar struct {
	a    *app
	what string
	on   bool
}

func (a *app) newBar(what string) *bar {
	return &bar{a: a, what: what, on: !a.quiet && isTerminal(a.Stderr)}
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
	return fmt.Sprintf("%s [%s%s] %3.0f%%  %d of %d entries", b.what, strings.Repeat("#", full), strings.Repeat(".", barWidth-full), 100*part, p.Done, p.Total)
}

func (b *bar) end() {
	if b.on {
		fmt.Fprint(b.a.Stderr, "\r\x1b[K")
	}
}

// long runs a long call of the owner with a bar.
func long[T any](a *app, c *server.Client, cmd ctxer, verb, what string) (T, error) {
	var out T
	b := a.newBar(what)
	defer b.end()
	return out, c.Long(cmd.Context(), verb, struct{}{}, b.show, &out)
}
