// Package near finds names that look like another, for the note beside an
// empty answer.
package near

import (
	"slices"
	"strings"

	"tallystick/oplog"
	"tallystick/query/refusal"
)

const (
	most = 5
	// MaxCandidates is how many names a caller should look at.
	MaxCandidates = 5000
)

// Names gives the candidates that look like a name, the likest first, at most
// five.
func Names(name string, candidates []string) []string {
	type found struct {
		name string
		far  int
	}
	var list []found
	low := strings.ToLower(name)
	for _, c := range candidates {
		other := strings.ToLower(c)
		d := distance(low, other)
		if c != name && (d <= max(2, len(low)/4) || strings.Contains(other, low) || strings.Contains(low, other)) {
			list = append(list, found{c, d})
		}
	}
	slices.SortFunc(list, func(a, b found) int {
		if a.far != b.far {
			return a.far - b.far
		}
		return strings.Compare(a.name, b.name)
	})
	var out []string
	for _, f := range list[:min(len(list), most)] {
		out = append(out, f.name)
	}
	return out
}

// Note adds to a note about a name of which nothing is here the names that look
// like it, among those behind the first byte of the rows of a table.
func Note(view oplog.Reader, table byte, name, note string) (string, error) {
	var names []string
	err := view.Scan([]byte{table}, nil, false, func(key, _ []byte) (bool, error) {
		if len(key) > 1 {
			names = append(names, string(key[1:]))
		}
		return len(names) < MaxCandidates, nil
	})
	if err != nil {
		return "", err
	}
	like := Names(name, names)
	if len(like) == 0 {
		return note, nil
	}
	for i := range like {
		like[i] = refusal.Quote(like[i])
	}
	return note + " Near names: " + strings.Join(like, ", ") + ".", nil
}

// distance is the edit distance by bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost++
			}
			diagonal = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
