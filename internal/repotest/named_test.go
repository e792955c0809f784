package repotest

import (
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// namedTest finds names of tests in a page's code spans; a star at the end
// stands for any rest.
var namedTest = regexp.MustCompile("`((?:Test|Fuzz|Benchmark|Example)[A-Za-z0-9_]*\\*?)`")

// TestNamedTestsExist keeps the pages that say which test shows what from
// naming tests that are gone.
func TestNamedTestsExist(t *testing.T) {
	have := map[string]bool{}
	for _, s := range load(t) {
		if !s.test {
			continue
		}
		for _, d := range s.ast.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				have[f.Name.Name] = true
			}
		}
	}
	root := repoRoot(t)
	for _, page := range []string{"docs/trials.md", "docs/musts.md", "docs/consistency.md", "docs/memory-contract.md", "docs/coordination-contract.md", "docs/decoders.md"} {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(page)))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range namedTest.FindAllStringSubmatch(string(text), -1) {
			if name, star := strings.CutSuffix(m[1], "*"); !star && !have[name] {
				t.Errorf("%s names %s, which is no test of this repository", page, name)
			} else if star && !anyWith(have, name) {
				t.Errorf("%s names %s, and no test begins like that", page, m[1])
			}
		}
	}
}

// TestL8_FuzzTargetsAreOnThePage wants every fuzz target named in
// docs/decoders.md, so that a new decoder gets its row there.
func TestL8_FuzzTargetsAreOnThePage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repoRoot(t), "docs", "decoders.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range load(t) {
		for _, d := range s.ast.Decls {
			f, ok := d.(*ast.FuncDecl)
			if s.test && ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Fuzz") && !strings.Contains(string(text), "`"+f.Name.Name+"`") {
				t.Errorf("%s: %s is not in docs/decoders.md", s.path, f.Name.Name)
			}
		}
	}
}

func anyWith(names map[string]bool, prefix string) bool {
	for n := range names {
		if strings.HasPrefix(n, prefix) {
			return true
		}
	}
	return false
}

// TestTrialsAreAccountedFor wants a row in docs/trials.md for every
// counter-example and every trial that concerns the log, the clock or claims,
// with a test or with a word on what is missing.
func TestTrialsAreAccountedFor(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repoRoot(t), "docs", "trials.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, "|"); len(cells) > 3 {
			rows[strings.TrimSpace(cells[1])] = line
		}
	}
	var want []string
	for n := range 22 {
		if n < 12 || n >= 19 {
			want = append(want, fmt.Sprint(n+1))
		}
	}
	for n := range 8 {
		want = append(want, fmt.Sprint("A", n+1))
	}
	for n := range 9 {
		want = append(want, fmt.Sprint("B", n+1))
	}
	for _, w := range want {
		found := false
		for row, line := range rows {
			if row == w || len(row) == len(w)+1 && strings.HasPrefix(row, w) && row[len(w)] >= 'a' && row[len(w)] <= 'g' {
				found = true
				if !namedTest.MatchString(line) && !strings.Contains(line, "missing") {
					t.Errorf("row %s names no test and does not say what is missing", row)
				}
			}
		}
		if !found {
			t.Errorf("docs/trials.md has no row %s", w)
		}
	}
}
