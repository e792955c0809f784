package server

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"tallystick/query/jsoncount"
)

// arguments are the checked arguments of one call.
type arguments map[string]any

func (a arguments) has(name string) bool { _, ok := a[name]; return ok }

func (a arguments) str(name string) string {
	s, _ := a[name].(string)
	return s
}

func (a arguments) integer(name string, def int64) int64 {
	if n, ok := a[name].(int64); ok {
		return n
	}
	return def
}

func (a arguments) number(name string) float64 {
	f, _ := a[name].(float64)
	return f
}

func (a arguments) boolean(name string) bool {
	b, _ := a[name].(bool)
	return b
}

func (a arguments) list(name string) []string {
	l, _ := a[name].([]string)
	return l
}

func (a arguments) object(name string) json.RawMessage {
	o, _ := a[name].(json.RawMessage)
	return o
}

// decode checks raw against the tool's parameters. It trusts nothing that a
// client may have checked: unknown and repeated fields, null, wrong types,
// characters that are refused and every limit are found here. Numbers are
// read as they are written, never through a float.
func (t *tool) decode(raw json.RawMessage) (arguments, *Error) {
	limit, less := maxArgs, "send less in one call"
	if t.big {
		limit, less = maxBigArgs, contentHint
	}
	if len(raw) > limit {
		return nil, fail(CodeTooLarge, "", less, "arguments of %d bytes, at most %d are allowed", len(raw), limit)
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = json.RawMessage("{}")
	}
	if why := checkText(raw); why != "" {
		field := badTextField(raw)
		what := field
		if field == "" {
			what = "an argument"
		}
		return nil, invalid(field, "send valid Unicode text without NUL", "%s contains %s", what, why)
	}
	if t.parses {
		return arguments{}, nil
	}
	const hint = "send one JSON object with the tool's fields"
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if tok, err := dec.Token(); err != nil {
		return nil, invalid("", hint, "the arguments are not JSON: %v", err)
	} else if tok != json.Delim('{') {
		return nil, invalid("", hint, "the arguments are not a JSON object")
	}
	args := arguments{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, invalid("", hint, "the arguments are not JSON: %v", err)
		}
		name := tok.(string)
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, invalid("", hint, "the arguments are not JSON: %v", err)
		}
		p := t.param(name)
		if p == nil && isCallerField(name) {
			p = &param{name: name, kind: kindToken, hidden: true}
		}
		if p == nil {
			e := fail(CodeUnknownField, clip(name), t.unknownHint(), "%s has no field %s", t.name, quote(name))
			e.Allowed = t.paramNames()
			return nil, e
		}
		if args.has(name) {
			return nil, invalid(name, "give each field once", "%s is given twice", name)
		}
		v, bad := p.decode(value)
		if bad != nil {
			return nil, bad
		}
		args[name] = v
	}
	if _, err := dec.Token(); err != nil {
		return nil, invalid("", hint, "the arguments are not JSON: %v", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, invalid("", hint, "there is something after the arguments object")
	}
	for i := range t.params {
		if p := &t.params[i]; p.required && !args.has(p.name) {
			return nil, invalid(p.name, "give "+p.name+": "+p.desc, "%s is missing", p.name)
		}
	}
	return args, nil
}

func (t *tool) unknownHint() string {
	if len(t.params) == 0 {
		return t.name + " takes no fields"
	}
	return "use only the allowed fields"
}

func (p *param) wrong(got string) *Error {
	e := invalid(p.name, "send "+p.wants(), "%s must be %s, not %s", p.name, p.wants(), got)
	e.Allowed = p.allowed()
	return e
}

func (p *param) allowed() []string {
	if p.enum != nil {
		return p.enum
	}
	if p.kind == kindBool {
		return []string{"true", "false"}
	}
	return nil
}

func (p *param) tooLarge(size, limit int, unit string) *Error {
	hint := "shorten it"
	if p.hint != "" {
		hint = p.hint
	}
	return fail(CodeTooLarge, p.name, hint, "%s has %d %s, at most %d are allowed", p.name, size, unit, limit)
}

func (p *param) decode(raw json.RawMessage) (any, *Error) {
	raw = bytes.TrimSpace(raw)
	if raw[0] == 'n' {
		return nil, invalid(p.name, "leave the field out instead of sending null", "%s is null", p.name)
	}
	switch p.kind {
	case kindToken, kindText:
		if raw[0] != '"' {
			return nil, p.wrong(jsonKind(raw))
		}
		return p.decodeString(raw)
	case kindInt:
		return p.decodeInt(raw)
	case kindNumber:
		return p.decodeNumber(raw)
	case kindBool:
		if raw[0] != 't' && raw[0] != 'f' {
			return nil, p.wrong(jsonKind(raw))
		}
		return raw[0] == 't', nil
	case kindObject:
		if raw[0] != '{' {
			return nil, p.wrong(jsonKind(raw))
		}
		var b bytes.Buffer
		if err := json.Compact(&b, raw); err != nil {
			return nil, p.wrong("broken JSON")
		}
		if b.Len() > p.maxBytes {
			return nil, p.tooLarge(b.Len(), p.maxBytes, "bytes")
		}
		return json.RawMessage(b.Bytes()), nil
	}
	if p.kind == kindTokens && raw[0] == '"' {
		s, err := p.decodeString(raw)
		if err != nil {
			return nil, err
		}
		return []string{s.(string)}, nil
	}
	return p.decodeList(raw)
}

func (p *param) decodeList(raw json.RawMessage) (any, *Error) {
	if raw[0] != '[' {
		return nil, p.wrong(jsonKind(raw))
	}
	if n, _ := jsoncount.Elements(raw); n > p.maxItems {
		return nil, p.tooLarge(n, p.maxItems, "items")
	}
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil, p.wrong("broken JSON")
	}
	if len(items) == 0 && p.kind == kindTokens {
		return nil, invalid(p.name, "leave the field out to match any, or name at least one", "%s is an empty list", p.name)
	}
	list := make([]string, 0, len(items))
	for _, item := range items {
		item = bytes.TrimSpace(item)
		if item[0] != '"' {
			return nil, p.wrong("a list with " + jsonKind(item))
		}
		s, err := p.decodeString(item)
		if err != nil {
			return nil, err
		}
		list = append(list, s.(string))
	}
	return list, nil
}

// decodeNumber takes what JSON can write: never NaN, never infinite.
func (p *param) decodeNumber(raw json.RawMessage) (any, *Error) {
	if raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return nil, p.wrong(jsonKind(raw))
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f < float64(p.min) || f > float64(p.max) {
		return nil, p.wrong(clip(string(raw)))
	}
	return f, nil
}

// decodeString keeps text as given; tokens are trimmed.
func (p *param) decodeString(raw json.RawMessage) (any, *Error) {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, p.wrong("broken JSON")
	}
	if p.kind == kindText || p.kind == kindTexts {
		if len(s) > p.maxBytes {
			return nil, p.tooLarge(len(s), p.maxBytes, "bytes")
		}
		if p.required && strings.TrimSpace(s) == "" && p.oneLine {
			return nil, invalid(p.name, "give "+p.name+": "+p.desc, "%s is blank", p.name)
		}
		if p.oneLine && strings.IndexFunc(s, unicode.IsControl) >= 0 {
			return nil, invalid(p.name, "put it on one line, without tabs and control characters", "%s contains a control character", p.name)
		}
		return s, nil
	}
	if p.name != "agentIdentity" { // padding is refused there, not mended
		s = strings.TrimSpace(s)
	}
	if p.enum != nil && s == "" && !p.required && !p.strict {
		return "", nil // blank means none, or any in a filter, as the contract of events has it
	}
	if p.enum != nil {
		for _, v := range p.enum {
			if s == v || p.name == "order" && strings.EqualFold(s, v) {
				return v, nil
			}
		}
		e := invalid(p.name, "use one of the allowed values", "%s is %s, which is not one of %s", p.name, quote(s), strings.Join(p.enum, ", "))
		e.Allowed = p.enum
		return nil, e
	}
	limit := p.maxBytes
	switch n := utf8.RuneCountInString(s); {
	case s == "":
		return nil, invalid(p.name, "leave the field out or give it a value", "%s is blank", p.name)
	case limit == 0 && n > maxRouting:
		return nil, p.tooLarge(n, maxRouting, "characters")
	case limit != 0 && len(s) > limit:
		return nil, p.tooLarge(len(s), limit, "bytes")
	case strings.IndexFunc(s, unicode.IsControl) >= 0:
		return nil, invalid(p.name, "send it on one line, without tabs and control characters", "%s contains a control character", p.name)
	}
	return s, nil
}

func (p *param) decodeInt(raw json.RawMessage) (any, *Error) {
	text := string(raw)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		if raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
			return nil, p.wrong(jsonKind(raw))
		}
		f, ferr := strconv.ParseFloat(text, 64)
		if ferr != nil || f != math.Trunc(f) || math.Abs(f) >= 1<<53 {
			return nil, p.wrong(clip(text))
		}
		n = int64(f)
	}
	if n < p.min || n > p.max {
		return nil, p.wrong(strconv.FormatInt(n, 10))
	}
	return n, nil
}

func jsonKind(raw []byte) string {
	switch raw[0] {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "a list"
	case 't', 'f':
		return "a truth value"
	case 'n':
		return "null"
	}
	return "a number"
}

// callerFields say who calls. Every tool takes them, and they are left out of
// the schemas, where they would cost every session their tokens: nobody needs
// to send them, and what they say is only compared (I8).
var callerFields = []string{"from_agent", "created_by"}

func isCallerField(name string) bool { return slices.Contains(callerFields, name) }

// takeCallerFields cuts the caller's fields out of the arguments of a tool
// whose domain checks them itself.
func (t *tool) takeCallerFields(raw json.RawMessage) (json.RawMessage, arguments, *Error) {
	args := arguments{}
	if !t.parses || !bytes.Contains(raw, []byte(`"from_agent"`)) && !bytes.Contains(raw, []byte(`"created_by"`)) {
		return raw, args, nil
	}
	var rest bytes.Buffer
	rest.WriteByte('{')
	err := eachField(raw, func(name string, value json.RawMessage) *Error {
		if isCallerField(name) && t.param(name) == nil {
			p := &param{name: name, kind: kindToken}
			if args.has(name) {
				return invalid(name, "give each field once", "%s is given twice", name)
			}
			v, bad := p.decode(value)
			args[name] = v
			return bad
		}
		if rest.Len() > 1 {
			rest.WriteByte(',')
		}
		rest.Write(encodeString(name))
		rest.WriteByte(':')
		rest.Write(value)
		return nil
	})
	if err != nil || len(args) == 0 {
		return raw, args, err
	}
	rest.WriteByte('}')
	return rest.Bytes(), args, nil
}

// eachField gives the fields of a JSON object in order until fn fails; what is
// no object is left to those who judge it.
func eachField(raw json.RawMessage, fn func(name string, value json.RawMessage) *Error) *Error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil
	}
	for dec.More() {
		tok, err := dec.Token()
		name, ok := tok.(string)
		var value json.RawMessage
		if err != nil || !ok || dec.Decode(&value) != nil {
			return nil
		}
		if bad := fn(name, value); bad != nil {
			return bad
		}
	}
	return nil
}

// badTextField is the first field whose value checkText refuses.
func badTextField(raw json.RawMessage) (field string) {
	eachField(raw, func(name string, value json.RawMessage) *Error {
		if checkText(value) != "" {
			field = clip(name)
			return &Error{}
		}
		return nil
	})
	return field
}

// checkText says what encoding/json would mend in silence: bytes that are no
// UTF-8, lone surrogates and NUL. It is empty when there is nothing.
func checkText(raw []byte) string {
	if !utf8.Valid(raw) {
		return "bytes that are not UTF-8"
	}
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' || i+1 >= len(raw) {
			continue
		}
		i++
		if raw[i] != 'u' {
			continue
		}
		r, ok := hex4(raw, i+1)
		if !ok {
			continue // not JSON; the decoder says so
		}
		i += 4
		switch {
		case r == 0:
			return "a NUL character"
		case utf16.IsSurrogate(r):
			low, ok := rune(0), false
			if i+2 < len(raw) && raw[i+1] == '\\' && raw[i+2] == 'u' {
				low, ok = hex4(raw, i+3)
			}
			if !ok || utf16.DecodeRune(r, low) == unicode.ReplacementChar {
				return "half of a surrogate pair"
			}
			i += 6
		}
	}
	return ""
}

func hex4(b []byte, at int) (rune, bool) {
	if at+4 > len(b) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[at:at+4]), 16, 16)
	return rune(n), err == nil
}
