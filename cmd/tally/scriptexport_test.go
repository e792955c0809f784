package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"tallystick/server"
)

// sameExportCmd is `sameexport A B`: two exports hold the same memory, as it is
// in different meshes. Ids are another mesh's, and links and aliases have their
// importer as author; all else is compared, also what replaced what.
func sameExportCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: sameexport A B")
	}
	a, b := exportedRows(ts, args[0]), exportedRows(ts, args[1])
	if !slices.Equal(a, b) {
		ts.Fatalf("%s:\n%s\n%s:\n%s", args[0], strings.Join(a, "\n"), args[1], strings.Join(b, "\n"))
	}
}

func exportedRows(ts *testscript.TestScript, file string) (out []string) {
	var rows []server.MemoryRow
	texts := map[string]string{}
	for l := range strings.Lines(ts.ReadFile(file)) {
		var r server.MemoryRow
		ts.Check(json.Unmarshal([]byte(l), &r))
		if r.ID != "" {
			rows, texts[r.ID] = append(rows, r), r.Text
		}
	}
	for _, r := range rows {
		retired := ""
		if r.Retired != nil {
			retired = fmt.Sprintf("%s, now %q", r.Retired.How, texts[r.Retired.SupersededBy])
		}
		if r.Kind == server.RowLink || r.Kind == server.RowAlias || r.Kind == server.RowSummary || r.Kind == server.RowTurn {
			r.Author, r.CreatedAt = "", ""
		}
		r.ID, r.HLC, r.Imported, r.Retired, r.Supersedes = "", "", nil, nil, nil
		b, err := json.Marshal(r)
		ts.Check(err)
		out = append(out, string(b)+" "+retired)
	}
	slices.Sort(out)
	return out
}
