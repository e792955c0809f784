package jsoncount

import "bytes"

// Elements counts the elements of the outermost list of raw, which must be
// valid JSON; ok is false when raw is no list. It allocates nothing.
func Elements(raw []byte) (n int, ok bool) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || raw[0] != '[' {
		return 0, false
	}
	depth, quoted, some := 0, false, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted:
			if c == '\\' {
				i++
			}
			quoted = c != '"'
		case c == '[' || c == '{':
			some = some || depth > 0
			depth++
		case c == ']' || c == '}':
			depth--
		case c == ',' && depth == 1:
			n++
		case c != ' ' && c != '\t' && c != '\r' && c != '\n':
			quoted, some = c == '"', true
		}
	}
	if some {
		n++
	}
	return n, true
}
