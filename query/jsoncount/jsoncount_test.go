package jsoncount_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"tallystick/query/jsoncount"
)

// TestA4_ElementsAreCounted: the count is that of encoding/json.
func TestA4_ElementsAreCounted(t *testing.T) {
	for _, raw := range []string{"[]", " [ ] ", "[1]", "[null]", `[""]`, "[[]]", "[{}]", `["a,b","\"],"]`, `[[1,2],{"a":[3,4]},5]`, "[ 1 , 2 ]", "[[[]],[]]", `["\\"]`, `["\\\"",","]`} {
		var list []json.RawMessage
		if err := json.Unmarshal([]byte(raw), &list); err != nil {
			t.Fatal(err)
		}
		if n, ok := jsoncount.Elements([]byte(raw)); !ok || n != len(list) {
			t.Errorf("%s: %d elements, %v; want %d", raw, n, ok, len(list))
		}
	}
	for _, raw := range []string{"", "1", `"["`, "{}", "null"} {
		if _, ok := jsoncount.Elements([]byte(raw)); ok {
			t.Errorf("%s is a list", raw)
		}
	}
}

func FuzzElements(f *testing.F) {
	f.Add([]byte(`["a",[1,{}],null]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var list []json.RawMessage
		n, ok := jsoncount.Elements(raw) // must not panic on anything
		if json.Unmarshal(raw, &list) == nil && list != nil && (!ok || n != len(list)) {
			t.Fatalf("%q: %d elements, %v; want %d", raw, n, ok, len(list))
		}
	})
}

func ExampleElements() {
	n, ok := jsoncount.Elements([]byte(`["a",["b","c"]]`))
	fmt.Println(n, ok)
	// Output: 2 true
}
