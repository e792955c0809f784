package args

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"tallystick/query/refusal"
)

func TestParse(t *testing.T) {
	for raw, field := range map[string]string{
		`[]`: "", `null`: "", `{`: "", `{"a":1} x`: "", "{\"a\":\"\xff\"}": "", `{"a":1,"a":1}`: "a", `{"A":1}`: "A", `{"a":}`: "", `{"a" 1}`: "",
		`{"a":` + strings.Repeat("[", 20000) + `}`: "",
	} {
		var e *refusal.Error
		if _, err := Parse([]byte(raw), "a", "b"); !errors.As(err, &e) || e.Field != field || e.Hint == "" {
			t.Errorf("%.40s: %v", raw, err)
		}
	}
	for _, raw := range []string{``, ` `, `{}`, `{"b":null}`} {
		if _, err := Parse([]byte(raw), "a", "b"); err != nil {
			t.Errorf("%q: %v", raw, err)
		}
	}
}

func TestTypes(t *testing.T) {
	o, err := Parse([]byte(`{"s":"x\u00e9\ud83e\udd16","n":null,"i":3,"f":3.5,"big":1e400,"l":["a","b"],"m":["a",null],"z":"\u0000","u":"\ud800","v":"\udc00","w":"\ud800\u0041"}`),
		"s", "n", "i", "f", "big", "l", "m", "z", "u", "v", "w")
	if err != nil {
		t.Fatal(err)
	}
	if s, ok, err := o.String("s"); s != "xé🤖" || !ok || err != nil {
		t.Errorf("%q %v %v", s, ok, err)
	}
	if s, ok, err := o.String("absent"); s != "" || ok || err != nil {
		t.Errorf("%q %v %v", s, ok, err)
	}
	for _, f := range []string{"n", "i", "l", "z", "u", "v", "w"} {
		if _, ok, err := o.String(f); ok || refusal.CodeOf(err) != refusal.InvalidArgument {
			t.Errorf("%s as a string: %v", f, err)
		}
	}
	if n, ok, err := o.Int("i"); n != 3 || !ok || err != nil {
		t.Errorf("%d %v %v", n, ok, err)
	}
	for _, f := range []string{"s", "n", "f", "big", "l"} {
		if _, ok, err := o.Int(f); ok || err == nil {
			t.Errorf("%s as a number: %v", f, err)
		}
	}
	if l, ok, err := o.Strings("l", 2); len(l) != 2 || !ok || err != nil {
		t.Errorf("%q %v %v", l, ok, err)
	}
	if _, _, err := o.Strings("l", 1); refusal.CodeOf(err) != refusal.TooLarge {
		t.Errorf("two of at most one: %v", err)
	}
	for _, f := range []string{"s", "n", "m"} {
		if _, ok, err := o.Strings(f, 9); ok || err == nil {
			t.Errorf("%s as strings: %v", f, err)
		}
	}
	if o.Has("absent") || !o.Has("n") {
		t.Error("Has is wrong")
	}
}

func TestTexts(t *testing.T) {
	if err := Text("f", " as given \u202e", 64); err != nil {
		t.Error(err)
	}
	for _, s := range []string{"x\x00", "\xff", strings.Repeat("x", 65)} {
		if err := Text("f", s, 64); err == nil {
			t.Errorf("%q passes", s)
		}
	}
	for _, s := range []string{"", " \t\n", "\u00a0", "\u3000"} {
		if err := Filled("f", s, 64); refusal.CodeOf(err) != refusal.InvalidArgument {
			t.Errorf("%q passes: %v", s, err)
		}
	}
	if err := Author(""); refusal.CodeOf(err) != refusal.IdentityUnbound {
		t.Error(err)
	}
	if err := Author("me"); err == nil {
		t.Error("a reserved word writes")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"a":"\ud83e\udd16","b":["x"]}`))
	f.Add([]byte(`{"a":"\ud800"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := Parse(b, "a", "b")
		if err != nil {
			return
		}
		if s, ok, err := o.String("a"); err == nil && ok {
			var want string
			if json.Unmarshal(o["a"], &want) != nil || s != want || strings.Contains(s, "\x00") {
				t.Errorf("%q gives %q", o["a"], s)
			}
		}
		_, _, _ = o.Strings("b", 4)
		_, _, _ = o.Int("b")
	})
}

// TestA4_ElementsAreCountedFirst: of an array over its limit nothing is
// allocated.
func TestA4_ElementsAreCountedFirst(t *testing.T) {
	o := Object{"b": json.RawMessage("[" + strings.Repeat("1,", 100_000) + "1]")}
	if n := testing.AllocsPerRun(3, func() { _, _, _ = o.Strings("b", 4) }); n > 20 {
		t.Errorf("%v allocations for an array that is refused", n)
	}
}
