package linediff

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// What is shown is what git would apply.
func TestDiffApplies(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Log("git is not installed; the script tests look at diffs, too")
		return
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.Custom(func(t *rapid.T) string {
			lines := rapid.SliceOfN(rapid.SampledFrom([]string{"a\n", "b\n", "\n", "c\n"}), 0, 30).Draw(t, "lines")
			end := rapid.SampledFrom([]string{"", "end"}).Draw(t, "end")
			return strings.Join(lines, "") + end
		})
		a, b := text.Draw(t, "before"), text.Draw(t, "after")
		d := Unified("f", []byte(a), []byte(b), false)
		if a == b {
			if d != "" {
				t.Fatalf("a difference of equal texts:\n%s", d)
			}
			return
		}
		dir, err := os.MkdirTemp("", "diff")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		if err := os.WriteFile(filepath.Join(dir, "f"), []byte(a), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("git", "apply", "--unidiff-zero", "-p0", "-")
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(d)
		plain := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "GIT_") })
		cmd.Env = append(plain, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s\n%s", err, out, d)
		}
		got, err := os.ReadFile(filepath.Join(dir, "f"))
		if err != nil || string(got) != b {
			t.Fatalf("%q, want %q, by\n%s", got, b, d)
		}
	})
}

func ExampleUnified() {
	fmt.Print(Unified("notes", []byte("one\ntwo\n"), []byte("one\n2\n"), false))
	// Output:
	// --- notes
	// +++ notes
	// @@ -1,2 +1,2 @@
	//  one
	// -two
	// +2
}
