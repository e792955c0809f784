package server

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// paramKind is the type of a tool's parameter. There are few on purpose:
// schemas stay flat and plain, because one odd schema makes some clients drop
// the whole tool list.
type paramKind int

const (
	kindToken   paramKind = iota // one line of text, trimmed, 1..maxRouting characters
	kindText                     // any text, kept as given
	kindTexts                    // list of texts
	kindNumber                   // any number
	kindInt                      // whole number
	kindBool                     // true or false
	kindObject                   // free JSON object
	kindStrings                  // list of tokens
	kindTokens                   // list of tokens, or one token
)

// param is one parameter of a tool: what its schema shows and what is
// checked, whatever the client has checked before.
type param struct {
	name     string
	kind     paramKind
	required bool
	desc     string
	enum     []string // allowed values of a token
	min, max int64    // of a number
	filled   bool     // the schema says that text is not empty
	strict   bool     // a blank value of an enum is refused, not taken for an absent one
	maxBytes int      // of text, token or encoded object; 0 = maxRouting characters
	maxItems int      // of a list
	oneLine  bool     // text without control characters
	prose    bool     // the description names the values, to keep the schema small
	hidden   bool     // accepted but not shown: nobody needs to send it
	hint     string   // what to do when it is too large
}

// tool is one row of the table of tools.
type tool struct {
	name        string
	desc        string
	readOnly    bool
	destructive bool
	idempotent  bool
	write       bool   // needs a bound identity
	set         string // toolset; a tool of none is always shown
	extra       bool   // not in the default toolset
	big         bool   // takes content: more arguments than others
	parses      bool   // its domain checks the arguments, to the byte
	params      []param
	run         handler
}

// Limits of arguments and results. Over one is a named error, never a cut.
const (
	maxRouting   = 256 // characters of a routing field
	maxIdentity  = 256 // bytes
	maxBody      = 256 << 10
	maxMetadata  = 64 << 10
	maxSummary   = 64 << 10
	maxTitle     = 512
	maxSources   = 32
	maxCursor    = 16 << 10
	maxKey       = 200
	maxArgs      = 4 << 20
	maxArtifacts = 64
	maxWaitItems = 32
	maxLimit     = 500
	defaultLimit = 50
	maxWaitMS    = 300_000
	defWaitMS    = 60_000
	pageBytes    = 32 << 10
	maxLeaseMS   = 30 * 24 * 3600 * 1000
)

// schemaJSON is the tool's input schema, always the same bytes.
func (t *tool) schemaJSON() []byte {
	var b bytes.Buffer
	b.WriteString(`{"type":"object","properties":{`)
	var required []string
	sep := ""
	for i := range t.params {
		p := &t.params[i]
		if p.hidden {
			continue
		}
		b.WriteString(sep)
		sep = ","
		b.Write(encodeString(p.name))
		b.WriteByte(':')
		p.writeSchema(&b)
		if p.required {
			required = append(required, p.name)
		}
	}
	b.WriteByte('}')
	if required != nil {
		b.WriteString(`,"required":`)
		b.Write(encode(required))
	}
	b.WriteString(`,"additionalProperties":false}`)
	return b.Bytes()
}

func (p *param) writeSchema(b *bytes.Buffer) {
	switch p.kind {
	case kindToken, kindText:
		b.WriteString(`{"type":"string"`)
		if p.filled {
			b.WriteString(`,"minLength":1`)
		}
		if p.enum != nil && !p.prose {
			b.WriteString(`,"enum":`)
			b.Write(encode(p.enum))
		}
	case kindInt:
		b.WriteString(`{"type":"integer"`)
	case kindNumber:
		b.WriteString(`{"type":"number"`)
	case kindBool:
		b.WriteString(`{"type":"boolean"`)
	case kindObject:
		b.WriteString(`{"type":"object"`)
	case kindStrings, kindTokens, kindTexts:
		b.WriteString(`{"type":"array","items":{"type":"string"}`)
	}
	b.WriteString(`,"description":`)
	b.Write(encodeString(p.desc))
	b.WriteByte('}')
}

func (t *tool) param(name string) *param {
	for i := range t.params {
		if t.params[i].name == name {
			return &t.params[i]
		}
	}
	return nil
}

func (t *tool) paramNames() []string {
	names := []string{}
	for i := range t.params {
		if !t.params[i].hidden {
			names = append(names, t.params[i].name)
		}
	}
	slices.Sort(names)
	return names
}

// wants says in words what a parameter takes, for error messages.
func (p *param) wants() string {
	limit := p.maxBytes
	switch p.kind {
	case kindToken:
		if p.enum != nil {
			return "one of " + strings.Join(p.enum, ", ")
		}
		return "a string on one line"
	case kindText:
		return "a string of at most " + strconv.Itoa(limit) + " bytes"
	case kindInt:
		return "a whole number from " + strconv.FormatInt(p.min, 10) + " to " + strconv.FormatInt(p.max, 10)
	case kindNumber:
		return "a number from " + strconv.FormatInt(p.min, 10) + " to " + strconv.FormatInt(p.max, 10)
	case kindBool:
		return "true or false"
	case kindObject:
		return "a JSON object of at most " + strconv.Itoa(limit) + " bytes"
	case kindTokens:
		return "a string or a list of strings"
	}
	return "a list of strings"
}
