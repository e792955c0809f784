package importers

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"tallystick/query/imported"
	"tallystick/query/memory"
	"tallystick/server"
)

// Source is a tool whose memory can be read.
type Source string

// The sources.
const (
	MCPMemory  Source = "mcp-memory" // JSONL of entities and relations
	Claude     Source = "claude"     // CLAUDE.md and auto memory
	GrayMatter Source = "graymatter" // facts as JSON
	Engram     Source = "engram"     // chunks and exports, JSONL or JSON, gzip too
	Markdown   Source = "markdown"   // a folder
	Tally      Source = "tally"      // tally export
)

// Sources lists them.
func Sources() []Source {
	return []Source{MCPMemory, Claude, GrayMatter, Engram, Markdown, Tally}
}

// Limits. Over one is an error of that file or line, never a cut.
const (
	maxLine  = 16 << 20
	maxFile  = 256 << 20
	maxFiles = 20_000
	maxText  = 16 << 20 // of a file of Markdown
	maxRows  = 500_000  // of one reading; they are all in memory
	maxItems = 200_000  // elements of one list in JSON
	maxSaid  = 5000     // errors listed of one reading
)

// Result is what was read.
type Result struct {
	Files   int
	Lines   int // of JSONL, or blocks of Markdown
	Rows    []server.MemoryRow
	Errors  []server.RowError
	Skipped int // on purpose: retired, deleted, indexes, marked blocks
}

// reading is the work on one path.
type reading struct {
	res  Result
	root string
	file string // relative to root, with slashes
	over bool   // than maxRows, and said so

	read map[imported.Key]revision // of engram's observations
	gone map[imported.Key]bool     // what engram's chunks delete
}

// bad notes what is wrong with a line. A file of nothing but errors is known for
// one long before the last.
func (r *reading) bad(line int, id, format string, args ...any) {
	switch n := len(r.res.Errors); {
	case n == maxSaid:
		id, format, args = "", "more than %d errors; those from here on are not listed", []any{maxSaid}
	case n > maxSaid:
		return
	}
	r.res.Errors = append(r.res.Errors, server.RowError{File: r.file, Line: line, ID: id, Reason: fmt.Sprintf(format, args...)})
}

func (r *reading) add(line int, row server.MemoryRow) {
	if len(r.res.Rows) == maxRows {
		if !r.over {
			r.bad(line, "", "more than %d rows; those from here on are not read: split the file, and import each part", maxRows)
		}
		r.over = true
		return
	}
	row.File, row.Line = r.file, line
	r.res.Rows = append(r.res.Rows, row)
}

// Read reads a file or a folder. namespace is where facts go whose source says
// nothing of it; empty is the importer's own.
func Read(source Source, path, namespace string) (*Result, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	r := &reading{root: path, res: Result{Errors: []server.RowError{}}}
	files := []string{path}
	if info.IsDir() {
		if files, err = walk(path, source); err != nil {
			return nil, err
		}
		if len(files) == 0 {
			return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("no file here that looks like " + string(source))}
		}
	} else {
		r.root = filepath.Dir(path)
	}
	for _, f := range files {
		rel, err := filepath.Rel(r.root, f)
		if err != nil {
			return nil, err
		}
		r.file = filepath.ToSlash(rel)
		text, err := readFile(f)
		if err != nil {
			if !info.IsDir() {
				return nil, err
			}
			r.bad(0, "", "%v", err)
			continue
		}
		r.res.Files++
		switch source {
		case MCPMemory:
			r.lines(text, r.mcpLine)
		case Claude:
			r.claude(text)
		case Markdown:
			r.markdown(Markdown, text)
		case GrayMatter:
			r.grayMatter(text)
		case Engram:
			r.engram(text)
		case Tally:
			r.lines(text, r.tallyLine)
		default:
			return nil, fmt.Errorf("importers: no source %q", source)
		}
	}
	if source == Tally {
		inOrder(r.res.Rows)
	}
	if len(r.gone) > 0 {
		var dropped int
		r.res.Rows, dropped = without(r.res.Rows, r.gone)
		r.res.Skipped += dropped
	}
	for i := range r.res.Rows {
		if row := &r.res.Rows[i]; row.Namespace == "" && row.Kind != server.RowSummary && row.Kind != server.RowTurn {
			row.Namespace = namespace
			if namespace != "" && row.Kind == server.RowFact {
				row.Imported.Part = part(row.Imported.Part, namespace)
			}
		}
	}
	return &r.res, nil
}

// walk lists the files of a folder that a source reads, in order. Hidden
// folders are left out, but for engram's own, and so are links.
// Holds reports whether there is a folder dir with a file that Read would take.
// One that cannot be looked through counts, so that Read says why.
func Holds(source Source, dir string) bool {
	files, err := walk(dir, source)
	return len(files) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist)
}

func walk(root string, source Source) ([]string, error) {
	var files []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if path == root {
				return err
			}
			return nil
		}
		name := strings.ToLower(d.Name())
		if d.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") && name != ".engram" && name != ".claude" || name == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || !readable(source, filepath.ToSlash(path), name) {
			return nil
		}
		if files = append(files, path); len(files) > maxFiles {
			return fmt.Errorf("importers: more than %d files below %s", maxFiles, root)
		}
		return nil
	})
	slices.Sort(files)
	return files, err
}

func readable(source Source, path, name string) bool {
	switch source {
	case Markdown:
		return strings.HasSuffix(name, ".md") || strings.HasSuffix(name, ".markdown")
	case Claude:
		return strings.HasSuffix(name, ".md") && (name == "claude.md" || name == "claude.local.md" || strings.Contains(path, "/memory/"))
	case GrayMatter:
		return strings.HasSuffix(name, ".json") || strings.HasSuffix(name, ".jsonl")
	case Engram:
		return name != "manifest.json" && (strings.HasSuffix(name, ".jsonl.gz") || strings.HasSuffix(name, ".jsonl") || strings.HasSuffix(name, ".json"))
	}
	return strings.HasSuffix(name, ".jsonl") || strings.HasSuffix(name, ".json")
}

// readFile reads text, unpacked when it is gzip.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in := bufio.NewReader(f)
	var src io.Reader = in
	if magic, err := in.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, &fs.PathError{Op: "unpack", Path: path, Err: err}
		}
		src = z
	}
	b, err := io.ReadAll(io.LimitReader(src, maxFile+1))
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	if len(b) > maxFile {
		return nil, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("more than %d bytes", maxFile)}
	}
	return bytes.TrimPrefix(b, []byte("\ufeff")), nil
}

// lines calls fn for each line that is not blank.
func (r *reading) lines(text []byte, fn func(line int, b []byte)) {
	n := 0
	for b := range bytes.Lines(text) {
		n++
		b = bytes.TrimSpace(b)
		if len(b) == 0 {
			continue
		}
		r.res.Lines++
		switch {
		case len(b) > maxLine:
			r.bad(n, "", "the line has %d bytes, at most %d are read", len(b), maxLine)
		case !utf8.Valid(b):
			r.bad(n, "", "the line is not valid UTF-8")
		default:
			fn(n, b)
		}
	}
}

// key is the import key of a row: its id when that can stand in one, else a
// digest of it.
func key(source Source, id, part string) *imported.Key {
	return &imported.Key{Source: string(source), ID: short(id, imported.MaxID), Part: short(part, imported.MaxPart/2)}
}

func short(s string, most int) string {
	if s == "" || len(s) > most || strings.IndexFunc(s, unicode.IsControl) >= 0 || !utf8.ValidString(s) {
		return "sha256:" + digest(s)
	}
	return s
}

func digest(s string) string {
	d := sha256.Sum256([]byte(s))
	return hex.EncodeToString(d[:12])
}

// part makes the key of a fact that was put into a namespace on purpose another
// one than that of the same fact elsewhere.
func part(p, namespace string) string { return p + "@" + digest(namespace) }

// category is a heading or a type, as far as it fits one.
func category(s string) string {
	s = strings.TrimSpace(s)
	for len(s) > memory.MaxCategory {
		_, n := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-n]
	}
	return s
}
