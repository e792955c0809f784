package repotest

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestMustsNameTests: every test that docs/musts.md and the two contracts name
// exists.
func TestMustsNameTests(t *testing.T) {
	root := filepath.Join("..", "..")
	page, err := os.ReadFile(filepath.Join(root, "docs", "musts.md"))
	if err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		all.Write(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, contract := range []string{"memory-contract.md", "coordination-contract.md"} {
		more, err := os.ReadFile(filepath.Join(root, "docs", contract))
		if err != nil {
			t.Fatal(err)
		}
		page = append(page, more...)
	}
	names := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(page), -1)
	if len(names) < 20 {
		t.Fatalf("the page names %d tests", len(names))
	}
	for _, n := range names {
		if !bytes.Contains(all.Bytes(), []byte("\nfunc "+n[1]+"(t *testing.T)")) {
			t.Errorf("there is no %s", n[1])
		}
	}
}
