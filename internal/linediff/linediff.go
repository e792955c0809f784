package linediff

import (
	"fmt"
	"strings"
)

// diffContext is how many lines around a change are shown.
const diffContext = 3

// Unified shows what changes in the text that is called name, as git and patch
// read it; empty when nothing does. created says that there was no such file
// before.
func Unified(name string, before, after []byte, created bool) string {
	if string(before) == string(after) && !created {
		return ""
	}
	a, b := splitLines(string(before)), splitLines(string(after))
	from := name
	if created {
		from = "/dev/null"
	}
	var out strings.Builder
	fmt.Fprintf(&out, "--- %s\n+++ %s\n", from, name)
	edits := lineEdits(a, b)
	for i := 0; i < len(edits); {
		if edits[i].op == ' ' {
			i++
			continue
		}
		// A hunk: changes no further apart than twice the context.
		start, end, quiet := max(0, i-diffContext), i, 0
		for j := i; j < len(edits) && quiet <= 2*diffContext; j++ {
			if edits[j].op == ' ' {
				quiet++
				continue
			}
			quiet, end = 0, j+1
		}
		stop := min(len(edits), end+diffContext)
		h := edits[start:stop]
		na, nb := 0, 0
		for _, e := range h {
			if e.op != '+' {
				na++
			}
			if e.op != '-' {
				nb++
			}
		}
		fmt.Fprintf(&out, "@@ -%s +%s @@\n", span(h[0].a, na), span(h[0].b, nb))
		for _, e := range h {
			text, whole := strings.CutSuffix(e.text, "\n")
			fmt.Fprintf(&out, "%c%s\n", e.op, strings.TrimSuffix(text, "\r"))
			if !whole {
				out.WriteString("\\ No newline at end of file\n")
			}
		}
		i = stop
	}
	return out.String()
}

func span(at, n int) string {
	if n == 0 {
		return fmt.Sprintf("%d,0", at)
	}
	return fmt.Sprintf("%d,%d", at+1, n)
}

func splitLines(s string) []string {
	lines := strings.SplitAfter(s, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

type lineEdit struct {
	op   byte // ' ', '-' or '+'
	text string
	a, b int // lines of each side before it
}

// maxDiff bounds the table of the comparison; beyond it everything between
// the first and the last difference counts as changed.
const maxDiff = 4 << 20

func lineEdits(a, b []string) (out []lineEdit) {
	add := func(op byte, text string, i, j int) { out = append(out, lineEdit{op, text, i, j}) }
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		add(' ', a[head], head, head)
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	n, m := len(a)-head-tail, len(b)-head-tail
	var same [][]int32 // longest common part of the rests
	if (n+1)*(m+1) <= maxDiff {
		same = make([][]int32, n+1)
		for i := range same {
			same[i] = make([]int32, m+1)
		}
		for i := n - 1; i >= 0; i-- {
			for j := m - 1; j >= 0; j-- {
				if a[head+i] == b[head+j] {
					same[i][j] = same[i+1][j+1] + 1
				} else {
					same[i][j] = max(same[i+1][j], same[i][j+1])
				}
			}
		}
	}
	i, j := 0, 0
	for i < n || j < m {
		switch {
		case same != nil && i < n && j < m && a[head+i] == b[head+j]:
			add(' ', a[head+i], head+i, head+j)
			i, j = i+1, j+1
		case i < n && (j == m || same == nil || same[i+1][j] >= same[i][j+1]):
			add('-', a[head+i], head+i, head+j)
			i++
		default:
			add('+', b[head+j], head+i, head+j)
			j++
		}
	}
	for k := range tail {
		add(' ', a[len(a)-tail+k], len(a)-tail+k, len(b)-tail+k)
	}
	return out
}
