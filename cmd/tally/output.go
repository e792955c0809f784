package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"golang.org/x/term"

	"tallystick/server"
)

// printJSON writes v as one line.
func (a *app) printJSON(v any) error {
	if raw, ok := v.(json.RawMessage); ok {
		var b bytes.Buffer
		if err := json.Compact(&b, raw); err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
		b.WriteByte('\n')
		_, err := a.Stdout.Write(b.Bytes())
		return err
	}
	enc := json.NewEncoder(a.Stdout)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// say writes one line of talk on stderr.
func (a *app) say(format string, args ...any) {
	if !a.quiet {
		fmt.Fprintf(a.Stderr, format+"\n", args...)
	}
}

// table writes rows in columns.
func (a *app) table(header []string, rows [][]string) error {
	w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(header, "\t"))
	for _, r := range rows {
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	return w.Flush()
}

// oneLine makes text of others safe and short for a line on a terminal:
// control and other invisible characters become a visible mark.
func oneLine(s string, most int) string {
	var b strings.Builder
	n := 0
	for _, r := range s {
		if n == most {
			b.WriteString("...")
			break
		}
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			r = ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
			r = '\uFFFD'
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}

// block is oneLine for text of several lines.
func block(s, indent string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	for i, l := range lines {
		lines[i] = indent + oneLine(l, -1)
	}
	return strings.Join(lines, "\n")
}

// shortTime shows an RFC 3339 time in local time to the second, and which zone
// that is.
func shortTime(s string) string {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return s
	}
	return t.Local().Format("2006-01-02 15:04:05 MST")
}

// terminal reports whether a person looks at a stream.
func (a *app) terminal(w io.Writer) bool {
	if a.isTerminal != nil {
		return a.isTerminal(w)
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// readText reads a file that a flag names; "-" is stdin.
func (a *app) readText(field, path string, limit int64) (string, error) {
	r := a.Stdin
	if path != "-" {
		path = a.abs(path)
		f, err := os.Open(path)
		if err != nil {
			return "", fileError(field, path, err)
		}
		defer f.Close()
		r = f
	}
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return "", fileError(field, path, err)
	}
	if int64(len(b)) > limit {
		return "", &server.Error{Code: server.CodeTooLarge, Field: field, Hint: "send less, or split it",
			Message: fmt.Sprintf("%s has more than %d bytes", path, limit)}
	}
	return string(b), nil
}
