package server

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"tallystick/query/secrets"
)

// secretRow is a likely secret in the arguments of a write: which field, and
// never the secret itself.
type secretRow struct {
	Field string `json:"field"`
	Kind  string `json:"kind"`
	Shown string `json:"shown"`
}

const secretsHint = "what is stored is synced to every machine; if it is real, revoke it where it was issued and have the entry erased"

// secrets looks for likely secrets in all texts of the arguments. With
// RefuseSecrets they are an error.
func (s *Service) secrets(args json.RawMessage) ([]secretRow, *Error) {
	var v any
	if dec := json.NewDecoder(bytes.NewReader(args)); dec.Decode(&v) != nil {
		return nil, nil // not JSON: the tool says so
	}
	var found []secretRow
	eachText("", v, func(field, text string) bool {
		for _, f := range secrets.Find(text) {
			found = append(found, secretRow{Field: clip(field), Kind: f.Kind, Shown: f.Shown})
		}
		return len(found) < secrets.MaxFindings
	})
	if len(found) == 0 || !s.d.RefuseSecrets {
		return found, nil
	}
	f := found[0]
	return nil, invalid(f.Field, "take it out; the replica runs with --refuse-secrets", "%s likely holds a secret: %s, %s; nothing was stored", f.Field, f.Kind, quote(f.Shown))
}

// eachText calls fn for every text below v, with its path, until fn says stop.
// A text that is named, such as a metadata field, is seen with its name too.
func eachText(path string, v any, fn func(field, text string) bool) bool {
	switch v := v.(type) {
	case string:
		return fn(path, v)
	case []any:
		for i, sub := range v {
			if !eachText(path+"["+strconv.Itoa(i)+"]", sub, fn) {
				return false
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			at, sub := name, v[name]
			if path != "" {
				at = path + "." + name
				if text, ok := sub.(string); ok && len(secrets.Find(text)) == 0 {
					sub = name + "=" + text
				}
			}
			if !eachText(at, sub, fn) {
				return false
			}
		}
	}
	return true
}

// withSecrets adds what was found to a result.
func withSecrets(out json.RawMessage, found []secretRow) json.RawMessage {
	if len(found) == 0 || len(out) < 2 || out[len(out)-1] != '}' {
		return out
	}
	b := bytes.TrimSuffix(out, []byte{'}'})
	b = append(append([]byte{}, b...), `,"secrets":`...)
	b = append(b, encode(found)...)
	b = append(b, `,"warning":`...)
	b = append(b, encode("this likely holds a secret; "+secretsHint)...)
	return append(b, '}')
}
