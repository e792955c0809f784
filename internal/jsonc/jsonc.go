package jsonc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Node is a value with the places of what it holds.
type Node struct {
	// Value is what encoding/json would give, with numbers as json.Number.
	Value any

	from, to int
	members  []member // of an object
	items    []Node   // of a list
	object   bool
	list     bool
}

type member struct {
	key  string
	node Node
}

type parser struct {
	src   []byte
	at    int
	depth int
}

// Parse reads a text. An error names the line.
func Parse(src []byte) (n Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			bad, ok := p.(mistake)
			if !ok {
				panic(p)
			}
			err = fmt.Errorf("line %d: %s", 1+bytes.Count(src[:min(bad.at, len(src))], []byte("\n")), bad.what)
		}
	}()
	p := &parser{src: src}
	if bytes.HasPrefix(src, []byte("\uFEFF")) {
		p.at = len("\uFEFF")
	}
	n = p.node()
	p.space()
	if p.at < len(src) {
		p.fail("there is text behind the end")
	}
	return n, nil
}

type mistake struct {
	at   int
	what string
}

func (p *parser) fail(what string) { panic(mistake{p.at, what}) }

// space skips white space and comments.
func (p *parser) space() {
	for p.at < len(p.src) {
		rest := p.src[p.at:]
		switch {
		case rest[0] == ' ' || rest[0] == '\t' || rest[0] == '\r' || rest[0] == '\n':
			p.at++
		case bytes.HasPrefix(rest, []byte("//")):
			if i := bytes.IndexByte(rest, '\n'); i >= 0 {
				p.at += i
			} else {
				p.at = len(p.src)
			}
		case bytes.HasPrefix(rest, []byte("/*")):
			i := bytes.Index(rest[2:], []byte("*/"))
			if i < 0 {
				p.fail("a comment has no end")
			}
			p.at += i + 4
		default:
			return
		}
	}
}

func (p *parser) next() byte {
	p.space()
	if p.at == len(p.src) {
		p.fail("the text ends too early")
	}
	return p.src[p.at]
}

func (p *parser) node() (n Node) {
	if p.depth++; p.depth > 200 {
		p.fail("it is nested too deeply")
	}
	defer func() { p.depth-- }()
	c := p.next()
	n.from = p.at
	switch c {
	case '{':
		n.object = true
		m := map[string]any{}
		for p.at++; p.next() != '}'; {
			if p.src[p.at] != '"' {
				p.fail("a name is no string")
			}
			key := p.scalar().(string)
			if p.next() != ':' {
				p.fail("there is no colon behind a name")
			}
			p.at++
			v := p.node()
			n.members = append(n.members, member{key, v})
			m[key] = v.Value
			p.comma('}')
		}
		p.at++
		n.Value = m
	case '[':
		list := []any{}
		for p.at++; p.next() != ']'; {
			item := p.node()
			n.items = append(n.items, item)
			list = append(list, item.Value)
			p.comma(']')
		}
		p.at++
		n.list = true
		n.Value = list
	default:
		n.Value = p.scalar()
	}
	n.to = p.at
	return n
}

func (p *parser) comma(end byte) {
	switch p.next() {
	case ',':
		p.at++
	case end:
	default:
		p.fail("there is no comma between two values")
	}
}

func (p *parser) scalar() (v any) {
	from := p.at
	if p.src[p.at] == '"' {
		for p.at++; ; p.at++ {
			if p.at >= len(p.src) {
				p.fail("a string has no end")
			}
			if p.src[p.at] == '\\' {
				p.at++
			} else if p.src[p.at] == '"' {
				break
			}
		}
		p.at++
	} else {
		for p.at < len(p.src) && !bytes.ContainsRune([]byte(" \t\r\n,:]}/[{\""), rune(p.src[p.at])) {
			p.at++
		}
	}
	v, ok := scalarOf(p.src[from:p.at])
	if !ok {
		p.at = from
		p.fail("this is no JSON value")
	}
	return v
}

// scalarOf reads a value that is neither an object nor a list. A json.Decoder
// for each would cost a thousand times its size.
func scalarOf(b []byte) (v any, ok bool) {
	switch string(b) {
	case "":
		return nil, false
	case "null":
		return nil, true
	case "true", "false":
		return len(b) == len("true"), true
	}
	if !json.Valid(b) {
		return nil, false
	}
	if b[0] != '"' {
		return json.Number(b), true
	}
	var s string
	err := json.Unmarshal(b, &s)
	return s, err == nil
}

// Member gives an object's last member of a name, which is the one that
// counts, or nil.
func (n *Node) Member(key string) *Node {
	for i := len(n.members) - 1; i >= 0; i-- {
		if n.members[i].key == key {
			return &n.members[i].node
		}
	}
	return nil
}

// At follows a path of names through objects; nil when it leads nowhere.
func (n *Node) At(path ...string) *Node {
	for _, key := range path {
		if n = n.Member(key); n == nil {
			return nil
		}
	}
	return n
}

// Add puts a value at a path of object names, unless something is there
// already, which is returned then. Empty text is an empty object.
func Add(src []byte, path []string, value any) (out []byte, there any, err error) {
	if len(bytes.TrimSpace(src)) == 0 {
		src = []byte("{}\n")
	}
	root, err := Parse(src)
	if err != nil {
		return nil, nil, err
	}
	at := &root
	depth := 0
	for ; ; depth++ {
		if !at.object {
			return nil, nil, fmt.Errorf("%s is no object", strings.Join(append([]string{"the file"}, path[:depth]...), "."))
		}
		m := at.Member(path[depth])
		if m == nil {
			break
		}
		if depth == len(path)-1 {
			return src, m.Value, nil
		}
		at = m
	}
	// What is to be inserted: the value, wrapped in the objects that are missing.
	for i := len(path) - 1; i > depth; i-- {
		value = map[string]any{path[i]: value}
	}
	out = insertInto(src, at, path[depth], value)
	return out, nil, fits(out, root.Value, path[:depth], func(v any) any {
		v.(map[string]any)[path[depth]] = asJSON(value)
		return v
	})
}

// Append puts an item behind the others of the list at a path, which is
// made when it is missing, unless one of the items counts as there already.
func Append(src []byte, path []string, item any, same func(item any) bool) (out []byte, there bool, err error) {
	out, old, err := Add(src, path, []any{item})
	if err != nil || old == nil {
		return out, false, err
	}
	items, ok := old.([]any)
	if !ok {
		return nil, false, fmt.Errorf("%s is no list", strings.Join(path, "."))
	}
	if slices.ContainsFunc(items, same) {
		return src, true, nil
	}
	root, err := Parse(src)
	if err != nil {
		return nil, false, err
	}
	out = insertInto(src, root.At(path...), "", item)
	last := len(path) - 1
	return out, false, fits(out, root.Value, path[:last], func(v any) any {
		m := v.(map[string]any)
		m[path[last]] = append(m[path[last]].([]any), asJSON(item))
		return v
	})
}

// fits checks that a changed text says what the old one said, with change made
// to the object at a path, and nothing else.
func fits(out []byte, before any, path []string, change func(any) any) error {
	again, err := Parse(out)
	if err != nil {
		return fmt.Errorf("the change does not fit: %w", err)
	}
	want := asJSON(before)
	inner := want
	for _, key := range path {
		inner = inner.(map[string]any)[key]
	}
	change(inner)
	if !reflect.DeepEqual(want, asJSON(again.Value)) {
		return fmt.Errorf("the change does not fit")
	}
	return nil
}

// asJSON makes one form of equal values.
func asJSON(v any) (out any) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if d.Decode(&out) != nil {
		return nil
	}
	return out
}

// lastEnd is where the last member or item of a node ends, and how many there
// are.
func (n *Node) lastEnd() (end, count int) {
	switch {
	case len(n.members) > 0:
		return n.members[len(n.members)-1].node.to, len(n.members)
	case len(n.items) > 0:
		return n.items[len(n.items)-1].to, len(n.items)
	}
	return 0, 0
}

// insertInto writes a member behind the others of an object, or an item behind
// those of a list, in the style of the text around it.
func insertInto(src []byte, obj *Node, key string, value any) []byte {
	nl := "\n"
	if bytes.Contains(src, []byte("\r\n")) {
		nl = "\r\n"
	}
	inner := src[obj.from+1 : obj.to-1]
	end := obj.from + 1 + len(bytes.TrimRight(inner, " \t\r\n")) // behind the last thing in it
	name, _ := json.Marshal(key)
	last, count := obj.lastEnd()
	oneLine := count > 0 && !bytes.Contains(inner, []byte("\n"))
	unit, base := indentOf(src), lineIndent(src, obj.from)
	var text []byte
	if oneLine {
		text = Encode(value)
	} else {
		text = bytes.ReplaceAll(encode(value, base+unit, unit), []byte("\n"), []byte(nl))
	}
	member := string(text)
	if obj.object {
		member = string(name) + ": " + member
	}

	comma := ","
	if count > 0 {
		if p := (&parser{src: src, at: last}); p.next() == ',' {
			comma = ""
		}
	} else {
		comma = ""
	}
	var b bytes.Buffer
	if count > 0 {
		b.Write(src[:last])
		b.WriteString(comma)
		b.Write(src[last:end])
	} else {
		b.Write(src[:end])
	}
	if oneLine {
		b.WriteString(" " + member)
		b.Write(src[end:])
		return b.Bytes()
	}
	b.WriteString(nl + base + unit + member + nl + base)
	b.Write(src[obj.to-1:])
	return b.Bytes()
}

// Encode writes a value on one line, with <, > and & as they are; what cannot
// be written is null.
func Encode(v any) []byte { return encode(v, "", "") }

// encode writes a value over several lines, with its inner lines indented
// from prefix on; without a unit on one line.
func encode(v any, prefix, unit string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if unit != "" {
		e.SetIndent(prefix, unit)
	}
	if e.Encode(v) != nil {
		return []byte("null")
	}
	return bytes.TrimSpace(b.Bytes())
}

// indentOf is how a file indents: the white space before its first inner
// line.
func indentOf(src []byte) string {
	for _, line := range bytes.Split(src, []byte("\n")) {
		text := bytes.TrimLeft(line, " \t")
		if n := len(line) - len(text); n > 0 && len(bytes.TrimSpace(text)) > 0 {
			return string(line[:n])
		}
	}
	return "  "
}

// lineIndent is the white space at the start of the line of a place.
func lineIndent(src []byte, at int) string {
	line := src[bytes.LastIndexByte(src[:at], '\n')+1 : at]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}
