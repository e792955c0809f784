package retrieval

import (
	_ "embed"
	"fmt"
	"strings"

	"tallystick/query/document"
	"tallystick/query/search"
)

//go:embed fixture.txt
var fixture string

// Fixture is the corpus that always runs: conversations, agents' notes and
// facts of our own. See the head of fixture.txt.
func Fixture() *Corpus {
	c := &Corpus{Name: "fixture", Record: map[string]string{}}
	session, turn := "", 0
	add := func(d search.Document) {
		d.Time = int64(len(c.Docs)) * 60_000
		d.Namespace = "fixture"
		c.Docs = append(c.Docs, d)
		c.Record[d.ID] = d.ID
	}
	for line := range strings.Lines(fixture) {
		line = strings.TrimSpace(line)
		switch head, rest, _ := strings.Cut(line, " "); {
		case line == "" || head == "#":
		case head == "=":
			session, turn = strings.Fields(rest)[0], 0
		case head == "*" || head == "x":
			id, text, _ := strings.Cut(rest, " ")
			d := search.Document{ID: id, Kind: "memory", Text: text}
			if head == "x" {
				d.State = document.Superseded
			}
			add(d)
		case head == "?":
			parts := strings.Split(rest, "|")
			c.Questions = append(c.Questions, Question{strings.TrimSpace(parts[0]), strings.TrimSpace(parts[1]), strings.Fields(parts[2]), ""})
		default:
			turn++
			who, _, _ := strings.Cut(line, ":")
			add(search.Document{
				ID: fmt.Sprintf("%s:%d", session, turn), Kind: "turn", Session: session, Identities: []string{who}, Text: line,
			})
		}
	}
	return c
}
