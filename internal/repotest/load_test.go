package repotest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "tallystick"

// source is one parsed Go file.
type source struct {
	path    string // slash-separated, relative to the repository
	pkg     string // folder, "." for the root
	test    bool
	raw     []byte
	ast     *ast.File
	imports []string
}

func repoRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.mod above the working directory")
		}
		dir = up
	}
}

// load parses every Go file of the repository.
func load(t *testing.T) []source {
	t.Helper()
	root := repoRoot(t)
	var files []source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			name := d.Name()
			if path != root && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		parsed, err := parser.ParseFile(token.NewFileSet(), rel, raw, parser.ParseComments)
		if err != nil {
			return err
		}
		s := source{path: rel, pkg: folderOf(rel), test: strings.HasSuffix(rel, "_test.go"), raw: raw, ast: parsed}
		for _, spec := range parsed.Imports {
			p, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			s.imports = append(s.imports, p)
		}
		files = append(files, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 10 {
		t.Fatalf("only %d Go files found below %s", len(files), root)
	}
	return files
}

func folderOf(path string) string {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i]
	}
	return "."
}

// below reports whether pkg is folder or inside it.
func below(pkg, folder string) bool {
	return pkg == folder || strings.HasPrefix(pkg, folder+"/")
}
