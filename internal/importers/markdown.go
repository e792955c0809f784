package importers

import (
	"path"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"tallystick/server"
)

// block is a paragraph or a list item, with the headings above it.
type block struct {
	line     int
	headings []string
	text     string
}

var (
	heading  = regexp.MustCompile(`^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$`)
	listItem = regexp.MustCompile(`^ {0,3}(?:[-*+]|\d{1,9}[.)])\s+(\S.*)$`)
	rule     = regexp.MustCompile(`^ {0,3}(?:(?:-\s*){3,}|(?:\*\s*){3,}|(?:_\s*){3,}|=+)$`)
	fence    = regexp.MustCompile("^ {0,3}(`{3,}|~{3,})")
	// managed opens and closes a block that a tool keeps in a file of others;
	// it is that tool's text, not memory.
	managed = regexp.MustCompile(`^\s*<!--\s*([\w.-]+):(?:start|begin)\b.*-->\s*$`)
	// pointer is a list item that only links to a file beside it, as an index
	// has them.
	pointer = regexp.MustCompile(`^\[[^\]]*\]\([^)]+\.md\)`)
	imports = regexp.MustCompile(`^(?:@\S+\s*)+$`)
	// ends finds what a line closes of such blocks.
	ends = regexp.MustCompile(`([\w.-]+):end`)
)

// maxHeading is how long a heading's line may be. A longer one is text: headings
// stand before every block below them, and a long one before thousands would
// make much of little.
const maxHeading = 512

// split cuts Markdown into blocks and reads simple front matter.
func split(text string) (front map[string]string, body string, blocks []block, skipped int) {
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	start := 0
	if len(lines) > 1 && strings.TrimSpace(lines[0]) == "---" {
		for i := 1; i < len(lines); i++ {
			if strings.TrimSpace(lines[i]) == "---" {
				front, start = frontMatter(lines[1:i]), i+1
				break
			}
		}
	}
	body = strings.TrimSpace(strings.Join(lines[start:], "\n"))

	var heads []string
	var cur []string
	from, list := 0, false
	flush := func() {
		if t := strings.TrimSpace(strings.Join(cur, "\n")); t != "" {
			blocks = append(blocks, block{line: from + 1, headings: append([]string{}, heads...), text: t})
		}
		cur, list = nil, false
	}
	var closing map[string][]int // made at the first block of a tool
	for i := start; i < len(lines); i++ {
		l := lines[i]
		if m := managed.FindStringSubmatch(l); m != nil {
			if closing == nil {
				closing = closings(lines)
			}
			if end := after(closing, m[1], i); end > i {
				flush()
				skipped++
				i = end
				continue
			}
		}
		if m := fence.FindStringSubmatch(l); m != nil { // code stays with what it belongs to
			if cur == nil {
				from = i
			}
			cur = append(cur, l)
			for i++; i < len(lines); i++ {
				cur = append(cur, lines[i])
				if strings.HasPrefix(strings.TrimSpace(lines[i]), m[1]) {
					break
				}
			}
			continue
		}
		trimmed := strings.TrimSpace(l)
		switch h, item := heading.FindStringSubmatch(l), listItem.FindStringSubmatch(l); {
		case h != nil && len(l) <= maxHeading:
			flush()
			depth := min(len(h[1])-1, len(heads))
			heads = append(heads[:depth:depth], h[2])
		case rule.MatchString(l), strings.HasPrefix(trimmed, "<!--") && strings.HasSuffix(trimmed, "-->"):
			flush()
		case item != nil:
			flush()
			from, list, cur = i, true, []string{item[1]}
		case trimmed == "":
			if next := i + 1; list && next < len(lines) && strings.HasPrefix(lines[next], "  ") {
				cur = append(cur, "")
				continue
			}
			flush()
		default:
			if cur == nil {
				from = i
			}
			if list {
				l = strings.TrimPrefix(l, "  ")
			}
			cur = append(cur, l)
		}
	}
	flush()
	return front, body, blocks, skipped
}

// frontMatter reads the part of YAML that memory files use: names with a value
// on their line or in a block below, and what is nested under metadata.
func frontMatter(lines []string) map[string]string {
	front, parent := map[string]string{}, ""
	for i := 0; i < len(lines); i++ {
		name, value, ok := strings.Cut(lines[i], ":")
		nested := strings.HasPrefix(name, " ") || strings.HasPrefix(name, "\t")
		if !ok || nested && parent != "metadata" {
			continue
		}
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !nested {
			parent = name
		}
		if sep, block := blockScalars[strings.TrimRight(value, "+-")]; block {
			var text []string
			for i+1 < len(lines) && (strings.TrimSpace(lines[i+1]) == "" || strings.HasPrefix(lines[i+1], " ")) {
				i++
				text = append(text, strings.TrimSpace(lines[i]))
			}
			value = strings.TrimSpace(strings.Join(text, sep))
		}
		if _, twice := front[name]; !twice {
			front[name] = strings.Trim(value, `"'`)
		}
	}
	return front
}

var blockScalars = map[string]string{">": " ", "|": "\n"}

// closings are the lines that close the blocks of each tool.
func closings(lines []string) map[string][]int {
	at := map[string][]int{}
	for i, l := range lines {
		if strings.HasPrefix(strings.TrimSpace(l), "<!--") {
			for _, m := range ends.FindAllStringSubmatch(l, -1) {
				at[m[1]] = append(at[m[1]], i)
			}
		}
	}
	return at
}

// after is the first line behind from that closes a block of name, else -1. It
// forgets those before: nobody asks for them again.
func after(closing map[string][]int, name string, from int) int {
	list := closing[name]
	for len(list) > 0 && list[0] <= from {
		list = list[1:]
	}
	closing[name] = list
	if len(list) == 0 {
		return -1
	}
	return list[0]
}

// isText refuses what is no Markdown that people write.
func (r *reading) isText(text []byte) bool {
	switch {
	case len(text) > maxText:
		r.bad(0, "", "the file has %d bytes, at most %d are read of Markdown", len(text), maxText)
	case !utf8.Valid(text):
		r.bad(0, "", "the file is not valid UTF-8")
	default:
		return true
	}
	return false
}

// markdown makes a fact of each block, with its headings in front.
func (r *reading) markdown(source Source, text []byte) {
	if !r.isText(text) {
		return
	}
	_, _, blocks, skipped := split(string(text))
	r.res.Skipped += skipped
	r.blocks(source, blocks)
}

func (r *reading) blocks(source Source, blocks []block) {
	for _, b := range blocks {
		r.res.Lines++
		text := b.text
		if len(b.headings) > 0 {
			text = strings.Join(b.headings, " > ") + ": " + text
		}
		row := server.MemoryRow{Kind: server.RowFact, Imported: key(source, r.file, "block:"+digest(text)), Text: text}
		if n := len(b.headings); n > 0 {
			row.Category = category(b.headings[n-1])
		}
		r.add(b.line, row)
	}
}

// claude reads a memory file of Claude Code. A topic file with front matter is
// one fact; an index of such files is left out; CLAUDE.md is cut into blocks.
func (r *reading) claude(text []byte) {
	if !r.isText(text) {
		return
	}
	front, body, blocks, skipped := split(string(text))
	r.res.Skipped += skipped
	if front["name"] != "" && body != "" {
		r.res.Lines++
		name := front["name"]
		if d := front["description"]; d != "" {
			name += ": " + d
		}
		kind := cmpOr(front["type"], path.Dir(r.file))
		r.add(1, server.MemoryRow{Kind: server.RowFact, Imported: key(Claude, r.file, "topic:"+digest(name+"\n"+body)), Category: category(kind), Text: name + "\n" + body})
		return
	}
	kept := blocks[:0]
	for _, b := range blocks {
		if pointer.MatchString(b.text) || imports.MatchString(b.text) {
			r.res.Skipped++
			continue
		}
		kept = append(kept, b)
	}
	r.blocks(Claude, kept)
}

// title is the first line of a summary, as far as it fits one.
func title(text, fallback string) string {
	for l := range strings.Lines(text) {
		if l = strings.TrimSpace(strings.TrimLeft(strings.TrimSpace(l), "#*- ")); l != "" {
			const most = 200
			if utf8.RuneCountInString(l) > most {
				l = string([]rune(l)[:most]) + "..."
			}
			return strings.Map(func(c rune) rune {
				if c < 0x20 || c == 0x7f {
					return ' '
				}
				return c
			}, l)
		}
	}
	return cmpOr(fallback, "session")
}

// rfc3339 reads the times that SQLite and others write.
func rfc3339(s string) (string, bool) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999", "2006-01-02T15:04:05.999999999", time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC().Format(time.RFC3339Nano), true
		}
	}
	return "", false
}
