package imported_test

import (
	"fmt"
	"strings"
	"testing"

	"tallystick/query/imported"
	"tallystick/query/internal/pack"
	"tallystick/query/refusal"
)

func TestCheck(t *testing.T) {
	ok := imported.Key{Source: "beads", ID: "bd-1", Part: "reply:c 1"}
	if err := ok.Check(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		key   imported.Key
		field string
		code  refusal.Code
	}{
		{imported.Key{ID: "i", Part: "p"}, "import.source", refusal.InvalidArgument},
		{imported.Key{Source: "s", Part: "p"}, "import.id", refusal.InvalidArgument},
		{imported.Key{Source: "s", ID: "i"}, "import.part", refusal.InvalidArgument},
		{imported.Key{Source: "s", ID: "a\x00b", Part: "p"}, "import.id", refusal.InvalidArgument},
		{imported.Key{Source: "s", ID: "\xff", Part: "p"}, "import.id", refusal.InvalidArgument},
		{imported.Key{Source: strings.Repeat("s", 65), ID: "i", Part: "p"}, "import.source", refusal.TooLarge},
	} {
		e, ok := refusal.As(c.key.Check())
		if !ok || e.Field != c.field || e.Code != c.code {
			t.Errorf("%+v: %v", c.key, e)
		}
	}
}

func TestHashTellsKeysApart(t *testing.T) {
	seen := map[[16]byte]imported.Key{}
	for _, k := range []imported.Key{
		{Source: "a", ID: "b", Part: "c"}, {Source: "ab", ID: "", Part: "c"}, {Source: "a", ID: "bc"}, {Source: "a", ID: "b", Part: "d"},
	} {
		if other, ok := seen[k.Hash()]; ok {
			t.Errorf("%+v and %+v share a hash", k, other)
		}
		seen[k.Hash()] = k
	}
}

func TestRoundTrip(t *testing.T) {
	for _, k := range []imported.Key{{}, {Source: "s", ID: "i", Part: "p"}} {
		r := pack.NewReader(k.Append(nil))
		if got := imported.Read(&r); got != k || r.End() != nil {
			t.Errorf("%+v gives %+v, %v", k, got, r.Err())
		}
	}
	r := pack.NewReader([]byte{0x93, 0xa1, 's', 0xa0, 0xa1, 'p'})
	if imported.Read(&r); r.End() == nil {
		t.Error("a key with an empty part passes")
	}
}

func ExampleKey() {
	k := imported.Key{Source: "beads", ID: "bd-1", Part: "request"}
	fmt.Println(k.Check(), k.Hash() == imported.Key{Source: "beads", ID: "bd-1", Part: "request"}.Hash())
	// Output: <nil> true
}
