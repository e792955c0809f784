package replica_test

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"tallystick/replica"
)

// TestL8_WirePage: the worked examples of docs/format-wire.md are the golden
// bytes, and its limits are the code's.
func TestL8_WirePage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "format-wire.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	examples := regexp.MustCompile("(?s)<!-- golden (\\w+) -->\n```\n(.*?)```").FindAllStringSubmatch(page, -1)
	if len(examples) < 2 {
		t.Fatalf("%d worked examples", len(examples))
	}
	line := regexp.MustCompile(`^([0-9a-f]+)  ((?:[0-9a-f]{2} ?)+)`)
	for _, e := range examples {
		golden, err := os.ReadFile(filepath.Join("testdata", "wire", e[1]+".hex"))
		if err != nil {
			t.Fatal(err)
		}
		var got string
		for l := range strings.Lines(e[2]) {
			m := line.FindStringSubmatch(l)
			if m == nil {
				t.Fatalf("example %s: line %q", e[1], l)
			}
			if want := fmt.Sprintf("%02x", len(got)/2); m[1] != want {
				t.Errorf("example %s: line %q stands at %s", e[1], l, want)
			}
			got += strings.ReplaceAll(m[2], " ", "")
		}
		if _, err := hex.DecodeString(got); err != nil {
			t.Fatal(err)
		}
		if want := strings.Join(strings.Fields(string(golden)), ""); got != want {
			t.Errorf("example %s:\n%s\ngolden\n%s", e[1], got, want)
		}
	}
	for name, value := range map[string]int{"MaxFrame": replica.MaxFrame, "MaxRangeFrame": replica.MaxRangeFrame} {
		if !strings.Contains(page, fmt.Sprintf("| `%s` | %d |", name, value)) {
			t.Errorf("the page does not give %s as %d", name, value)
		}
	}
	codec, err := os.ReadFile("message_codec.go")
	if err != nil {
		t.Fatal(err)
	}
	blob, err := os.ReadFile("core_blob.go")
	if err != nil {
		t.Fatal(err)
	}
	owed, err := os.ReadFile("core_owed.go")
	if err != nil {
		t.Fatal(err)
	}
	codec = append(append(codec, blob...), owed...)
	for _, name := range []string{"maxLabel", "maxAddrs", "maxAddr", "maxHeads", "maxErrorText", "maxAfter", "maxWantChunks", "maxBlobHashes", "maxEntryHashes"} {
		m := regexp.MustCompile(`\n\t` + name + `\s+= (\d+)`).FindSubmatch(codec)
		if m == nil || !strings.Contains(page, fmt.Sprintf("| `%s` | %s |", name, m[1])) {
			t.Errorf("the page does not give %s as %s", name, m)
		}
	}
}
