package jsonc

import "testing"

// An item goes behind the others of a list, once, and nothing else moves.
func TestAppendJSON(t *testing.T) {
	const item = "mine"
	same := func(v any) bool { return v == item }
	for name, c := range map[string]struct{ in, want string }{
		"empty file":    {"", "{\n  \"a\": {\n    \"b\": [\n      \"mine\"\n    ]\n  }\n}\n"},
		"missing list":  {"{\"a\": {\"c\": 1}}", "{\"a\": {\"c\": 1, \"b\": [\"mine\"]}}"},
		"empty list":    {"{\"a\": {\"b\": []}}", "{\"a\": {\"b\": [\n  \"mine\"\n]}}"},
		"one line":      {"{\"a\": {\"b\": [1, 2]}}", "{\"a\": {\"b\": [1, 2, \"mine\"]}}"},
		"lines":         {"{\n\t\"a\": {\n\t\t\"b\": [\n\t\t\t1, // one\n\t\t]\n\t}\n}", "{\n\t\"a\": {\n\t\t\"b\": [\n\t\t\t1, // one\n\t\t\t\"mine\"\n\t\t]\n\t}\n}"},
		"line ends":     {"{\"a\": {\"b\": [\r\n  1\r\n]}}", "{\"a\": {\"b\": [\r\n  1,\r\n  \"mine\"\r\n]}}"},
		"THERE":         {"{\"a\": {\"b\": [1, \"mine\"]}}", ""},
		"BAD no list":   {"{\"a\": {\"b\": {}}}", ""},
		"BAD no object": {"{\"a\": 1}", ""},
		"BAD text":      {"{\"a\": ", ""},
	} {
		out, there, err := Append([]byte(c.in), []string{"a", "b"}, item, same)
		switch {
		case (err != nil) != (name[0] == 'B') || there != (name == "THERE"):
			t.Errorf("%s: there %v, error %v", name, there, err)
		case c.want != "" && string(out) != c.want:
			t.Errorf("%s: got\n%s\nwant\n%s", name, out, c.want)
		}
	}
}
