package hostile_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"tallystick/internal/hostile"
)

// recorder is a test that is to fail. Fatal ends the goroutine, so that what
// uses it runs in one of its own.
type recorder struct {
	testing.TB
	failed []string
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.failed = append(r.failed, fmt.Sprintf(format, args...))
}
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); panic(r) }
func (r *recorder) Fatal(args ...any)                 { r.Errorf("%s", fmt.Sprint(args...)); panic(r) }

func failures(cases []hostile.Case, decode func([]byte) error) []string {
	r := &recorder{}
	func() {
		defer func() {
			if p := recover(); p != nil && p != any(r) {
				panic(p)
			}
		}()
		hostile.Check(r, cases, nil, decode)
	}()
	return r.failed
}

var pair struct {
	A string `json:"a"`
	B []int  `json:"b"`
}

// TestA4_KitFindsWhatIsWrong: the kit fails a decoder that takes everything,
// one that panics, one that allocates what a length says, and one that makes
// much of little.
func TestA4_KitFindsWhatIsWrong(t *testing.T) {
	good, err := msgpack.Marshal([]any{"text", []int{1, 2}})
	if err != nil {
		t.Fatal(err)
	}
	lists, objects := hostile.Msgpack(good), hostile.JSON([]byte(`{"a":"x","b":[1]}`))
	refuse := errors.New("no")
	for name, c := range map[string]struct {
		cases  []hostile.Case
		decode func([]byte) error
	}{
		"takes everything":   {lists, func([]byte) error { return nil }},
		"panics":             {lists, func(b []byte) error { _ = b[len(good)-1]; return refuse }},
		"believes lengths":   {lists, func(b []byte) error { _ = make([]byte, 4<<20); return refuse }},
		"makes much of some": {objects, func(b []byte) error { _ = bytes.Repeat([]byte{1}, 16*len(b)); return refuse }},
		"takes keys twice":   {objects, func(b []byte) error { return json.Unmarshal(b, &pair) }},
	} {
		if got := failures(c.cases, c.decode); len(got) == 0 {
			t.Errorf("a decoder that %s passes", name)
		}
	}
	if got := failures(lists, func([]byte) error { return refuse }); len(got) > 0 {
		t.Errorf("a decoder that refuses everything fails: %q", got)
	}
}

// TestA4_KitMakesWhatItSays: every kind is there, and what is no JSON for
// encoding/json either is so on purpose.
func TestA4_KitMakesWhatItSays(t *testing.T) {
	cases := hostile.JSON([]byte(`{"a":"x","b":[1]}`))
	for _, k := range []hostile.Kind{hostile.Cut, hostile.Flip, hostile.Nested, hostile.Behind, hostile.Twice, hostile.Unknown, hostile.Type, hostile.Text, hostile.Swap, hostile.Many} {
		if !slices.ContainsFunc(cases, func(c hostile.Case) bool { return c.Kind == k }) {
			t.Errorf("nothing of kind %s", k)
		}
	}
	for _, c := range cases {
		switch valid := json.Valid(c.In); c.Kind {
		case hostile.Cut, hostile.Behind, hostile.Nested:
			if valid {
				t.Errorf("%s, %s is valid", c.Kind, c.Name)
			}
		case hostile.Twice, hostile.Unknown, hostile.Type, hostile.Swap, hostile.Many:
			if !valid {
				t.Errorf("%s, %s is not valid: %.100q", c.Kind, c.Name, c.In)
			}
		}
	}
}

func ExampleCheck() {
	t := &testing.T{} // a test's own
	hostile.Check(t, hostile.JSON([]byte(`{"name":"x"}`)), nil, func(in []byte) error {
		return errors.New("this decoder refuses everything")
	})
	fmt.Println(t.Failed())
	// Output: false
}
