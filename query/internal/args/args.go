// Package args checks the arguments of a call at run time, for callers that
// do not validate: JSON objects strictly, and the texts in them. Every error
// is a *refusal.Error that names the field.
package args

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"sort"
	"strings"
	"unicode/utf8"

	"tallystick/query/identity"
	"tallystick/query/jsoncount"
	"tallystick/query/refusal"
)

// UnknownField is the code for an argument that the call does not take.
const UnknownField refusal.Code = "unknown_field"

// Object is a JSON object whose keys are known to be allowed and unique.
type Object map[string]json.RawMessage

// Parse reads a JSON object with keys among allowed. Repeated keys are
// refused: which of two values a decoder takes is no matter of luck.
func Parse(raw []byte, allowed ...string) (Object, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = []byte("{}")
	}
	if !utf8.Valid(raw) {
		return nil, refusal.Invalid("", "send valid UTF-8", "the arguments are not valid UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, refusal.Invalid("", "send one JSON object", "the arguments are not a JSON object")
	}
	obj := Object{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, malformed(err)
		}
		key, _ := t.(string)
		if !contains(allowed, key) {
			e := refusal.New(UnknownField, key, "leave it out", "there is no argument %s", refusal.Quote(key))
			e.Allowed = append([]string{}, allowed...)
			sort.Strings(e.Allowed)
			return nil, e
		}
		if _, twice := obj[key]; twice {
			return nil, refusal.Invalid(key, "send it once", "%s is given twice", key)
		}
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return nil, malformed(err)
		}
		obj[key] = v
	}
	if _, err := dec.Token(); err != nil {
		return nil, malformed(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, refusal.Invalid("", "send one JSON object", "something follows the arguments")
	}
	return obj, nil
}

func malformed(err error) error {
	return refusal.Invalid("", "send one JSON object", "the arguments are no JSON: %v", err)
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}

// Has reports whether the argument is present, null included.
func (o Object) Has(field string) bool { _, ok := o[field]; return ok }

// String is a string argument, and whether it is present. Null and every
// other type are refused, and so are NUL and lone surrogates.
func (o Object) String(field string) (value string, present bool, err error) {
	raw, ok := o[field]
	if !ok {
		return "", false, nil
	}
	s, err := text(field, raw)
	return s, err == nil, err
}

func text(field string, raw json.RawMessage) (string, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || raw[0] != '"' {
		return "", refusal.Invalid(field, "send a string or leave it out", "%s is %s, not a string", field, kind(raw))
	}
	if BadEscape(raw) {
		return "", refusal.Invalid(field, "remove it", "%s contains a NUL character or a lone surrogate", field)
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", refusal.Invalid(field, "send a string", "%s is not a string: %v", field, err)
	}
	return s, nil
}

// Strings is an argument that is an array of at most max strings.
func (o Object) Strings(field string, max int) (values []string, present bool, err error) {
	raw, ok := o[field]
	if !ok {
		return nil, false, nil
	}
	n, ok := jsoncount.Elements(raw)
	if !ok {
		return nil, false, refusal.Invalid(field, "send an array of strings", "%s is %s, not an array of strings", field, kind(raw))
	}
	if n > max {
		return nil, false, refusal.New(refusal.TooLarge, field, "send fewer", "%s has %d elements, at most %d are allowed", field, n, max)
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return nil, false, refusal.Invalid(field, "send an array of strings", "%s is %s, not an array of strings", field, kind(raw))
	}
	values = make([]string, 0, len(list))
	for _, r := range list {
		s, err := text(field, r)
		if err != nil {
			return nil, false, err
		}
		values = append(values, s)
	}
	return values, true, nil
}

// Int is a whole number argument.
func (o Object) Int(field string) (value int64, present bool, err error) {
	raw, ok := o[field]
	if !ok {
		return 0, false, nil
	}
	if err := json.Unmarshal(raw, &value); err != nil || bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
		return 0, false, refusal.Invalid(field, "send a whole number", "%s is %s, not a whole number in range", field, kind(raw))
	}
	return value, true, nil
}

func kind(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	}
	return "the number " + refusal.Quote(string(raw))
}

// BadEscape finds \u0000 and lone surrogates among the escapes of valid JSON,
// and NUL bytes themselves.
func BadEscape(b []byte) bool {
	for i := 0; i < len(b); i++ {
		switch {
		case b[i] == 0:
			return true
		case b[i] != '\\' || i+1 >= len(b):
			continue
		}
		i++
		if b[i] != 'u' {
			continue
		}
		c, ok := hex4(b, i+1)
		if !ok {
			return true
		}
		i += 4
		switch {
		case c == 0, c >= 0xdc00 && c < 0xe000:
			return true
		case c >= 0xd800 && c < 0xdc00:
			if i+2 >= len(b) || b[i+1] != '\\' || b[i+2] != 'u' {
				return true
			}
			if d, ok := hex4(b, i+3); !ok || d < 0xdc00 || d >= 0xe000 {
				return true
			}
			i += 6
		}
	}
	return false
}

func hex4(b []byte, at int) (v rune, ok bool) {
	if at+4 > len(b) {
		return 0, false
	}
	for _, c := range b[at : at+4] {
		v <<= 4
		switch {
		case c >= '0' && c <= '9':
			v |= rune(c - '0')
		case c >= 'a' && c <= 'f':
			v |= rune(c - 'a' + 10)
		case c >= 'A' && c <= 'F':
			v |= rune(c - 'A' + 10)
		default:
			return 0, false
		}
	}
	return v, true
}

// Text checks a text that is to be stored: valid UTF-8 without NUL, at most
// max bytes. Its bytes are kept as they are.
func Text(field, s string, max int) error {
	switch {
	case len(s) > max:
		return refusal.New(refusal.TooLarge, field, "store a shorter text, and keep what is long in an artifact", "%s has %d bytes, at most %d are allowed", field, len(s), max)
	case !utf8.ValidString(s):
		return refusal.Invalid(field, "send valid UTF-8", "%s is not valid UTF-8", field)
	case strings.IndexByte(s, 0) >= 0:
		return refusal.Invalid(field, "remove it", "%s contains a NUL character", field)
	}
	return nil
}

// Filled is Text for what must hold more than white space.
func Filled(field, s string, max int) error {
	if Blank(s) {
		return refusal.Invalid(field, "give "+field, "%s is required and must hold more than white space", field)
	}
	return Text(field, s, max)
}

// Blank reports whether s is empty or white space only.
func Blank(s string) bool { return strings.TrimSpace(s) == "" }

// Author checks the bound identity under which something is written (I8).
func Author(author string) error {
	if author == "" {
		return refusal.New(refusal.IdentityUnbound, "author", "start the server with --agent NAME", "this session is bound to no identity and may only read")
	}
	_, err := identity.Parse(author)
	return err
}

// Plain reports whether decoded bytes are text that may stand in a view:
// valid UTF-8 without NUL.
func Plain[T ~string | ~[]byte](b T) bool {
	return utf8.ValidString(string(b)) && strings.IndexByte(string(b), 0) < 0
}
