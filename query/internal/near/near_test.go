package near

import (
	"slices"
	"testing"
)

func TestNames(t *testing.T) {
	all := []string{"mac:claude:tally", "mac:codex:tally", "nas:gemini:x", "MAC:claude:tally"}
	if got := Names("mac:claud:tally", all); len(got) == 0 || got[0] != "MAC:claude:tally" && got[0] != "mac:claude:tally" {
		t.Errorf("%q", got)
	}
	if got := Names("codex", all); !slices.Equal(got, []string{"mac:codex:tally"}) {
		t.Errorf("%q", got)
	}
	if got := Names("zzzzzzzz", all); len(got) != 0 {
		t.Errorf("%q", got)
	}
}
