package analysis

import (
	_ "embed"
	"slices"
	"strings"
	"sync"
)

//go:embed kin.txt
var kinText string

// kin maps a stem to those that people use for it.
var kin = sync.OnceValue(func() map[string][]string {
	out := map[string][]string{}
	put := func(asked, found string) {
		if asked != found && !slices.Contains(out[asked], found) {
			out[asked] = append(out[asked], found)
		}
	}
	for line := range strings.Lines(kinText) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		head, rest, directed := strings.Cut(line, " > ")
		if !directed {
			head, rest = "", line
		}
		words := strings.Fields(rest)
		for i, w := range words {
			words[i] = Stem(w)
		}
		if directed {
			for _, w := range words {
				put(Stem(head), w)
			}
			continue
		}
		for _, a := range words {
			for _, b := range words {
				put(a, b)
			}
		}
	}
	return out
})

// Kin gives stems that mean about the same as a stem, or are a kind of it, by a
// small list of everyday words and words of the trade. The slice is shared: do
// not change it.
func Kin(stem string) []string { return kin()[stem] }
