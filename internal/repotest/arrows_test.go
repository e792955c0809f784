package repotest

import (
	"go/build"
	"strings"
	"testing"
)

// arrows says what a folder, with everything below it, may import of this
// module. The first rule whose folder matches counts; a folder without a rule
// fails, so that a new package is placed on purpose.
var arrows = []struct {
	folder string
	may    []string
	// tests may import more than the code they test
	tests []string
	why   string
}{
	{folder: "hlc", why: "the clock stands alone: std only"},
	{folder: "oplog", may: []string{"hlc", "oplog"}, why: "the log knows no domain and no peer"},
	{folder: "query", may: []string{"hlc", "oplog", "query"}, why: "domains fold the log and never meet the network"},
	{folder: "replica", may: []string{"hlc", "oplog", "replica"}, tests: []string{"query"}, why: "a replica carries entries of any domain"},
	{folder: "server", may: []string{"hlc", "oplog", "query", "replica", "server"}, why: "nothing below may know of tools"},
	{folder: "internal/sim", may: []string{"hlc", "oplog", "query", "replica", "server", "internal/sim"}, why: "the simulation drives real cores and folds"},
	{folder: "internal/repotest", why: "rules read files, they import nothing"},
	{folder: kit, why: "bad input is made for everybody's tests"},
	{folder: "internal", may: []string{"hlc", "oplog", "query", "replica", "server", "internal"}, why: "tests of the whole"},
	{folder: "bench", may: []string{"hlc", "oplog", "query", "bench"}, why: "a module of its own, with the engines that the log is compared with"},
	{folder: "cmd", may: []string{"hlc", "oplog", "query", "replica", "server", "cmd", "internal"}, why: "the program wires everything"},
}

// kit is what the tests of every folder may import, and nothing but tests.
const kit = "internal/hostile"

// TestArrows holds section 4 of the design: hlc <- oplog <- query, replica <-
// server <- cmd; query and replica do not know each other.
func TestArrows(t *testing.T) {
	for _, s := range load(t) {
		rule := -1
		for i, a := range arrows {
			if below(s.pkg, a.folder) {
				rule = i
				break
			}
		}
		if rule < 0 {
			t.Errorf("%s: folder %s has no rule in arrows_test.go; say what it may import", s.path, s.pkg)
			continue
		}
		a := arrows[rule]
		for _, imp := range s.imports {
			target, ours := strings.CutPrefix(imp, module+"/")
			if !ours {
				if a.folder == "hlc" && !s.test && !isStd(imp) {
					t.Errorf("%s imports %s: %s", s.path, imp, a.why)
				}
				continue
			}
			allowed := a.may
			if s.test {
				allowed = append(append([]string{a.folder, kit}, allowed...), a.tests...)
			} else if below(target, kit) {
				t.Errorf("%s imports %s: only tests may", s.path, imp)
			}
			if !anyBelow(target, allowed) {
				t.Errorf("%s imports %s: %s", s.path, imp, a.why)
			}
		}
	}
}

// quarantine says where a dependency may be used by code that is not a test.
var quarantine = []struct {
	dep string
	in  []string // folders, or files when they end in .go
	why string
}{
	{"github.com/dgraph-io/badger", []string{"oplog"}, "the store is a detail of the log"},
	{"github.com/hashicorp/memberlist", []string{"replica/gossip.go"}, "gossip is a hint, one file adapts it"},
	{"github.com/modelcontextprotocol/go-sdk", []string{"server"}, "tools are the server's business"},
	{"github.com/spf13/", []string{"cmd"}, "flags are the program's business"},
	{"pgregory.net/rapid", nil, "for tests only"},
	{"github.com/anishathalye/porcupine", nil, "for tests only"},
	{"github.com/rogpeppe/go-internal", nil, "for tests only"},
}

func TestQuarantinedDependencies(t *testing.T) {
	for _, s := range load(t) {
		if s.test || below(s.pkg, "bench") {
			continue
		}
		for _, q := range quarantine {
			for _, imp := range s.imports {
				if !strings.HasPrefix(imp, q.dep) {
					continue
				}
				ok := false
				for _, place := range q.in {
					ok = ok || s.path == place || !strings.HasSuffix(place, ".go") && below(s.pkg, place)
				}
				if !ok {
					t.Errorf("%s imports %s, allowed only in %v: %s", s.path, imp, q.in, q.why)
				}
			}
		}
	}
}

// TestNobodyImportsTheTop keeps server and cmd from being imported by anything
// below them, whatever the table above says.
func TestNobodyImportsTheTop(t *testing.T) {
	for _, s := range load(t) {
		for _, imp := range s.imports {
			target, ours := strings.CutPrefix(imp, module+"/")
			if !ours {
				continue
			}
			if below(target, "cmd") && !below(s.pkg, "cmd") {
				t.Errorf("%s imports %s: nothing imports the program", s.path, imp)
			}
			if below(target, "server") && !anyBelow(s.pkg, []string{"server", "cmd", "internal"}) {
				t.Errorf("%s imports %s: the server is a shell", s.path, imp)
			}
		}
	}
}

func anyBelow(pkg string, folders []string) bool {
	for _, f := range folders {
		if below(pkg, f) {
			return true
		}
	}
	return false
}

func isStd(imp string) bool {
	p, err := build.Default.Import(imp, "", build.FindOnly)
	return err == nil && p.Goroot
}
