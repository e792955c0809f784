package repotest

import (
	"bytes"
	"go/format"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPackageDocs wants every package to open with what it is for.
func TestPackageDocs(t *testing.T) {
	documented, packages := map[string]string{}, map[string]bool{}
	for _, s := range load(t) {
		if s.test {
			continue
		}
		packages[s.pkg] = true
		if s.ast.Doc != nil {
			documented[s.pkg] = strings.TrimSpace(s.ast.Doc.Text())
		}
	}
	for pkg := range packages {
		doc := documented[pkg]
		if len(strings.Fields(doc)) < 8 {
			t.Errorf("%s: no package doc of a sentence or more", pkg)
			continue
		}
		if !strings.HasPrefix(doc, "Package ") && !strings.HasPrefix(doc, "Command ") {
			t.Errorf("%s: package doc opens %q, want Package or Command", pkg, strings.Fields(doc)[0])
		}
	}
}

func TestGofmt(t *testing.T) {
	for _, s := range load(t) {
		out, err := format.Source(s.raw)
		if err != nil {
			t.Errorf("%s: %v", s.path, err)
			continue
		}
		if !bytes.Equal(out, s.raw) {
			t.Errorf("%s is not formatted; run gofmt -w %s", s.path, s.path)
		}
	}
}

// maxLines is where a file must say why it is one file ("One file because").
const maxLines = 800

func TestFileSizes(t *testing.T) {
	for _, s := range load(t) {
		n := bytes.Count(s.raw, []byte("\n"))
		if n > maxLines && !bytes.Contains(s.raw[:min(len(s.raw), 2000)], []byte("One file because")) {
			t.Errorf("%s has %d lines; split it, or say at its top why not (One file because ...)", s.path, n)
		}
	}
}

// leftover marks work that is not done; such work is an issue, not a comment.
var leftover = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)

func TestNoLeftovers(t *testing.T) {
	for _, s := range load(t) {
		for i, line := range strings.Split(string(s.raw), "\n") {
			if leftover.MatchString(line) {
				t.Errorf("%s:%d: %s", s.path, i+1, strings.TrimSpace(line))
			}
		}
	}
}

// mdLink finds links to files in the repository's own pages.
var mdLink = regexp.MustCompile(`\]\(([^)#\s]*)(#[^)\s]*)?\)`)

// heading finds the headings of a page, and notInSlug what their anchors leave
// out.
var (
	heading   = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInSlug = regexp.MustCompile("[^a-z0-9_ -]")
)

// anchors are the places of a page that a link can name.
func anchors(text []byte) map[string]bool {
	found := map[string]bool{}
	for _, m := range heading.FindAllSubmatch(text, -1) {
		slug := notInSlug.ReplaceAllString(strings.ToLower(string(m[1])), "")
		found["#"+strings.ReplaceAll(slug, " ", "-")] = true
	}
	return found
}

// TestLinks keeps the pages' links to files of the repository alive, and to
// places within pages.
func TestLinks(t *testing.T) {
	root := repoRoot(t)
	pages, _ := filepath.Glob(filepath.Join(root, "*.md"))
	for _, dir := range []string{"docs", "docs/adr"} {
		more, _ := filepath.Glob(filepath.Join(root, filepath.FromSlash(dir), "*.md"))
		pages = append(pages, more...)
	}
	if len(pages) == 0 {
		t.Fatal("no pages found")
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range mdLink.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			target, there := filepath.Join(filepath.Dir(page), filepath.FromSlash(m[1])), text
			if m[1] == "" {
				target = page // a place of its own
			} else if _, err := os.Stat(target); err != nil {
				rel, _ := filepath.Rel(root, page)
				t.Errorf("%s links to %s, which is not there", rel, m[1])
				continue
			}
			if m[2] == "" || filepath.Ext(target) != ".md" {
				continue
			}
			if target != page {
				if there, err = os.ReadFile(target); err != nil {
					t.Fatal(err)
				}
			}
			if !anchors(there)[m[2]] {
				rel, _ := filepath.Rel(root, page)
				t.Errorf("%s links to %s%s, a heading that is not there", rel, m[1], m[2])
			}
		}
	}
}
