// Package near finds names that look like another, for the note beside an
// empty answer.
package near

import (
	"slices"
	"strings"
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
