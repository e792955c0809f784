package importers

import (
	"encoding/json"
	"slices"
	"strings"

	"tallystick/query/imported"
	"tallystick/server"
)

// ExportHeader is the kind of the first line of an export, and ExportVersion
// the version it states.
const (
	ExportHeader  = "tally.export"
	ExportVersion = 1
)

// tallyLine reads a line of this program's own export.
func (r *reading) tallyLine(line int, b []byte) {
	var row struct {
		server.MemoryRow
		Version int `json:"version"`
	}
	if err := json.Unmarshal(b, &row); err != nil {
		r.bad(line, "", "no row as expected: %v", why(err))
		return
	}
	switch {
	case row.Kind == ExportHeader && row.Version == ExportVersion:
		r.res.Lines--
	case row.Kind == ExportHeader:
		r.bad(line, "", "an export of version %d; this program reads %d", row.Version, ExportVersion)
	case row.ID == "":
		r.bad(line, "", "a row without an id")
	default:
		if row.Imported == nil {
			row.Imported = key(Tally, row.ID, row.Kind)
		}
		row.Replaces = nil // worked out from the rows that are retired
		r.add(line, row.MemoryRow)
	}
}

// maxReplaces is how many facts one may stand in for, as far as that is taken
// along; behind them a fact is retired all the same.
const maxReplaces = 1000

// inOrder puts the rows of an export into the order of its log, which is the one
// in which a later record may retire an earlier, or be the latest checkpoint,
// and says to each fact which retired ones it stands in for. An export is
// written in the order in which records arrived.
func inOrder(rows []server.MemoryRow) {
	if slices.ContainsFunc(rows, func(r server.MemoryRow) bool { return r.HLC == "" }) {
		return
	}
	slices.SortStableFunc(rows, func(a, b server.MemoryRow) int { return strings.Compare(a.HLC, b.HLC) })
	gone := map[string][]imported.Key{}
	for i := range rows {
		r := &rows[i]
		if r.Kind != server.RowFact || r.Retired == nil || r.Retired.SupersededBy == "" {
			continue
		}
		if by := r.Retired.SupersededBy; len(gone[by]) < maxReplaces {
			gone[by] = append(gone[by], *r.Imported)
		}
	}
	for i := range rows {
		if r := &rows[i]; r.Kind == server.RowFact {
			r.Replaces = gone[r.ID]
		}
	}
}
