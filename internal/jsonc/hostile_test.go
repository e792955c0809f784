package jsonc

import (
	"encoding/json"
	"testing"

	"tallystick/internal/hostile"
)

// TestA4_HostileSettings: a settings file of a client, which people write by
// hand. Of a key given twice the last counts, as for the clients.
func TestA4_HostileSettings(t *testing.T) {
	good := []byte(`{"servers":{"a":{"command":"x","args":["y"]}},"n":1,"on":true}`)
	cases := hostile.JSON(good)
	const any = "a settings file holds anything"
	hostile.Check(t, cases, map[hostile.Kind]string{hostile.Twice: "the last counts", hostile.Unknown: any, hostile.Type: any, hostile.Text: any, hostile.Memory: "each value has its place in the file beside it"}, func(b []byte) error {
		_, err := Parse(b)
		return err
	})
}

// FuzzParse: what is read has its places inside the text, and JSON without
// comments reads as encoding/json reads it.
func FuzzParse(f *testing.F) {
	f.Add([]byte("{\"a\": [1, \"x\", true, null], // c\n /* d */ \"b\": {},}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := Parse(b)
		if err != nil {
			if json.Valid(b) && len(b) < 200 { // too short to be nested too deeply
				t.Fatalf("%q: %v", b, err)
			}
			return
		}
		if _, _, err := Add(b, []string{"fuzz"}, 1); err == nil && !n.object {
			t.Fatalf("%q: a member was put into no object", b)
		}
	})
}
