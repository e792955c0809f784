package jsonc

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A server is added where it belongs and nothing else moves.
func TestAddJSON(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"OK empty":          {"", "{\n  \"s\": {\n    \"tally\": 1\n  }\n}\n"},
		"OK empty object":   {"{}", "{\n  \"s\": {\n    \"tally\": 1\n  }\n}"},
		"OK others":         {"{\n    \"a\": [1, {}],\n    \"s\": {\n        \"x\": {}\n    }\n}\n", "{\n    \"a\": [1, {}],\n    \"s\": {\n        \"x\": {},\n        \"tally\": 1\n    }\n}\n"},
		"OK one line":       {`{"s": {"x": 1}, "b": "}"}`, `{"s": {"x": 1, "tally": 1}, "b": "}"}`},
		"OK trailing comma": {"{\n\t\"s\": {\n\t\t\"x\": 1, // why\n\t},\n}", "{\n\t\"s\": {\n\t\t\"x\": 1, // why\n\t\t\"tally\": 1\n\t},\n}"},
		"OK comment":        {"{\n  \"a\": 1 // not , here\n}", "{\n  \"a\": 1, // not , here\n  \"s\": {\n    \"tally\": 1\n  }\n}"},
		"OK line ends":      {"{\r\n  \"s\": {}\r\n}\r\n", "{\r\n  \"s\": {\r\n    \"tally\": 1\r\n  }\r\n}\r\n"},
		"OK twice":          {`{"s": 1, "s": {"x": 1}}`, `{"s": 1, "s": {"x": 1, "tally": 1}}`},
		"OK big number":     {`{"s": {"x": 9007199254740993}}`, `{"s": {"x": 9007199254740993, "tally": 1}}`},
		"BAD list":          {`[]`, ""},
		"BAD no object":     {`{"s": []}`, ""},
		"BAD text":          {`{"s": {}`, ""},
		"BAD two values":    {`{} {}`, ""},
		"BAD word":          {`{"a": nope}`, ""},
		"BAD string":        {`{"a": "x`, ""},
		"BAD comment":       {`{} /* x`, ""},
		"BAD commas":        {`{"a": 1 "b": 2}`, ""},
		"BAD depth":         {strings.Repeat("[", 10_000), ""},
	} {
		t.Run(name, func(t *testing.T) {
			out, there, err := Add([]byte(c.in), []string{"s", "tally"}, 1)
			if (err != nil) != strings.HasPrefix(name, "BAD") {
				t.Fatalf("error: %v", err)
			}
			if err == nil && (string(out) != c.want || there != nil) {
				t.Errorf("got\n%s\nwant\n%s", out, c.want)
			}
		})
	}
	out, there, err := Add([]byte(`{"s": {"tally": {"mine": true}}}`), []string{"s", "tally"}, 1)
	if err != nil || !reflect.DeepEqual(there, map[string]any{"mine": true}) || string(out) != `{"s": {"tally": {"mine": true}}}` {
		t.Errorf("one that is there: %s, %v, %v", out, there, err)
	}
}

// Whatever a file looks like, it holds the same and one thing more, or is
// refused.
func TestAddJSONKeepsTheRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ws := rapid.SampledFrom([]string{"", " ", "\n", "\n\t", " // c, }\n", "/* { */", "\r\n  "})
		var value func(depth int) string
		value = func(depth int) string {
			kind := rapid.IntRange(0, 4).Draw(t, "kind")
			if depth > 3 {
				kind = 0
			}
			switch kind {
			case 1, 2:
				var b strings.Builder
				b.WriteString("{" + ws.Draw(t, "ws"))
				n := rapid.IntRange(0, 3).Draw(t, "n")
				for i := range n {
					b.WriteString(fmt.Sprintf("%q%s:%s%s%s", rapid.SampledFrom([]string{"s", "t", "a\"", "//"}).Draw(t, "key"), ws.Draw(t, "ws"), ws.Draw(t, "ws"), value(depth+1), ws.Draw(t, "ws")))
					if i < n-1 || rapid.Bool().Draw(t, "comma") {
						b.WriteString("," + ws.Draw(t, "ws"))
					}
				}
				return b.String() + "}"
			case 3:
				return "[" + value(depth+1) + ws.Draw(t, "ws") + "]"
			}
			return rapid.SampledFrom([]string{"1", `"x"`, `"}"`, "null", "true"}).Draw(t, "scalar")
		}
		src := value(0)
		before, err := Parse([]byte(src))
		if err != nil {
			t.Fatalf("%q: %v", src, err)
		}
		out, there, err := Add([]byte(src), []string{"s", "new"}, "v")
		if err != nil || there != nil {
			root, ok := before.Value.(map[string]any)
			if inner, isObject := root["s"].(map[string]any); ok && (root["s"] == nil || isObject && inner["new"] == nil) && !strings.Contains(src, `"s"`) {
				t.Fatalf("%q: refused: %v", src, err)
			}
			return
		}
		again, there, err := Add(out, []string{"s", "new"}, "v")
		if err != nil || there != "v" || string(again) != string(out) {
			t.Fatalf("%q became %q, and then %q: %v", src, out, again, err)
		}
	})
}

func ExampleAdd() {
	out, _, err := Add([]byte("{\n  // mine\n  \"servers\": {},\n}\n"), []string{"servers", "tally"}, map[string]string{"command": "tally"})
	fmt.Printf("%s%v\n", out, err)
	// Output:
	// {
	//   // mine
	//   "servers": {
	//     "tally": {
	//       "command": "tally"
	//     }
	//   },
	// }
	// <nil>
}
