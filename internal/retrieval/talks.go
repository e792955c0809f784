package retrieval

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"tallystick/query/search"
)

//go:embed talks.txt
var talks string

// topic is something that people tell each other, and what may be asked of it.
type topic struct {
	name  string
	lines []line
	asked []asking
}

type line struct {
	subject bool // said by the person it is about
	answers bool
	text    string
}

type asking struct{ kind, text string }

// slots are what the braces of talks.txt stand for.
var slots = map[string][]string{
	"city":       {"Lisbon", "Tallinn", "Graz", "Leipzig", "Oslo", "Porto", "Bergen", "Ghent", "Turin", "Malmo", "Bremen", "Riga", "Seville", "Krakow"},
	"when":       {"next Saturday", "next month", "in two weeks", "on the third of May", "in October", "on Friday", "in three days", "on the twelfth of June", "next spring"},
	"ago":        {"yesterday", "last week", "last Friday", "two weeks ago", "last month", "on Monday", "three days ago", "last Sunday", "in January"},
	"month":      {"January", "March", "April", "June", "August", "September", "October", "November"},
	"weekday":    {"Monday", "Tuesday", "Wednesday", "Thursday", "Saturday"},
	"num":        {"two", "three", "four", "six", "seven", "nine", "eleven", "12", "14", "sixteen", "20"},
	"pet":        {"tortoise", "greyhound", "parrot", "kitten", "hedgehog", "ferret", "rabbit"},
	"petname":    {"Pixel", "Mango", "Olive", "Biscuit", "Pepper", "Waffle", "Clementine"},
	"kid":        {"Ida", "Lotte", "Frieda", "Nele", "Ronja", "Tilda"},
	"friend":     {"Harriet", "Agnes", "Beatriz", "Yuki", "Oksana", "Marlene", "Salma", "Ingrid", "Paola"},
	"job":        {"gardener", "nurse", "ferry captain", "carpenter", "teacher", "bookbinder", "paramedic"},
	"instrument": {"cello", "trumpet", "accordion", "harp", "banjo", "clarinet"},
	"book":       {"The Glass Orchard", "A Winter of Foxes", "Salt and Thunder", "The Cartographer's Son", "Seven Bridges"},
	"food":       {"hazelnuts", "shrimps", "celery", "lentils", "plums", "saffron", "mustard"},
	"color":      {"green", "silver", "yellow", "purple", "orange", "blue"},
	"peak":       {"Rauhkopf", "Monte Lira", "Blackhorn", "Storfjell", "Eagle Ridge"},
	"lang":       {"Finnish", "Portuguese", "Korean", "Hungarian", "Arabic"},
	"veg":        {"radishes", "pumpkins", "courgettes", "peas", "beetroots"},
	"band":       {"Paper Whales", "The Late Herons", "Nine Lanterns", "Velvet Tram"},
	"topic":      {"lighthouses", "forgotten bridges", "medieval cooking", "stamps", "moths"},
}

// couples talk to each other; everybody has a name of their own.
var couples = [][2]string{
	{"Maren", "Tobias"}, {"Elif", "Jonas"}, {"Priya", "Connor"}, {"Zofia", "Mateo"}, {"Aline", "Rasmus"},
	{"Dilara", "Hugo"}, {"Svea", "Patrick"}, {"Noemi", "Viktor"}, {"Carmen", "Anton"}, {"Hanne", "Luis"},
}

// parseTalks reads talks.txt.
func parseTalks() (topics []topic, small []string) {
	for text := range strings.Lines(talks) {
		text = strings.TrimSpace(text)
		head, rest, _ := strings.Cut(text, " ")
		var t *topic
		if len(topics) > 0 {
			t = &topics[len(topics)-1]
		}
		switch head {
		case "", "#":
		case "@":
			topics = append(topics, topic{name: rest})
		case "-":
			small = append(small, rest)
		case "?":
			kind, q, _ := strings.Cut(rest, " | ")
			t.asked = append(t.asked, asking{kind, q})
		default:
			who := strings.TrimSuffix(strings.TrimPrefix(head, "!"), ":")
			t.lines = append(t.lines, line{who == "s", head[0] == '!', rest})
		}
	}
	return topics, small
}

// Conversations is a corpus of long conversations between people, made of the
// topics of talks.txt by a fixed seed: ten couples, each over many dated
// sessions, who tell each other the same kinds of things with other names,
// places and times. A question asks in other words what one person told.
// The halves are of topics (Question.FirstHalf).
func Conversations() *Corpus {
	topics, small := parseTalks()
	c := &Corpus{Name: "conversations", Record: map[string]string{}}
	r := rand.New(rand.NewPCG(7, 11))
	for n, couple := range couples {
		converse(c, r, n, couple, topics, small)
	}
	return c
}

// converse adds the sessions of one couple.
func converse(c *Corpus, r *rand.Rand, n int, couple [2]string, topics []topic, small []string) {
	at := time.Date(2025, time.Month(1+n), 3, 18, 0, 0, 0, time.UTC)
	type told struct {
		t     topic
		about int
	}
	var todo []told
	for _, t := range topics {
		for about := range couple {
			if r.IntN(3) == 0 { // not everybody has everything to tell
				todo = append(todo, told{t, about})
			}
		}
	}
	r.Shuffle(len(todo), func(i, j int) { todo[i], todo[j] = todo[j], todo[i] })
	session, turn := 0, 0
	say := func(who int, text string) string {
		turn++
		id := fmt.Sprintf("c%d:%d:%d", n, session, turn)
		at = at.Add(time.Minute)
		c.Docs = append(c.Docs, search.Document{
			ID: id, Kind: "turn", Namespace: "conversations", Session: fmt.Sprintf("c%d:%d", n, session), Time: at.UnixMilli(),
			Identities: []string{strings.ToLower(couple[who])}, Text: couple[who] + ": " + text,
		})
		c.Record[id] = id
		return id
	}
	chat := func(most int) {
		for range 1 + r.IntN(most) {
			say(r.IntN(2), small[r.IntN(len(small))])
		}
	}
	for len(todo) > 0 {
		session, turn = session+1, 0
		at = at.AddDate(0, 0, 4+r.IntN(12))
		chat(3)
		for range min(len(todo), 2+r.IntN(3)) {
			one := todo[0]
			todo = todo[1:]
			names := strings.NewReplacer("{S}", couple[one.about], "{O}", couple[1-one.about])
			fill := map[string]string{}
			var answers []string
			var filled [][]string
			for _, l := range one.t.lines {
				who := one.about
				if !l.subject {
					who = 1 - who
				}
				text, used := fillSlots(r, l.text, fill)
				id := say(who, names.Replace(text))
				if l.answers {
					answers, filled = append(answers, id), append(filled, used)
				}
			}
			for i, q := range one.t.asked {
				c.Questions = append(c.Questions, Question{
					Category: q.kind, Text: names.Replace(q.text), Group: one.t.name,
					Expect: []string{answers[answering(q.kind, i, filled)]},
				})
			}
			chat(4)
		}
	}
}

// answering says which of the marked lines answers a question: the one with a
// slot of its kind.
func answering(kind string, i int, filled [][]string) int {
	want := map[string][]string{
		"when": {"when", "ago", "month", "weekday"}, "where": {"city", "peak", "color", "friend"}, "who": {"friend", "kid", "petname"}, "count": {"num"},
	}[kind]
	for _, w := range want {
		for n, used := range filled {
			if slices.Contains(used, w) {
				return n
			}
		}
	}
	if kind != "what" {
		return min(i, len(filled)-1)
	}
	for n, used := range filled {
		for _, u := range used {
			if !slices.Contains([]string{"ago", "month", "when", "num", "city", "friend", "weekday"}, u) {
				return n
			}
		}
	}
	return 0
}

// fillSlots replaces braces, the same brace alike within a topic.
func fillSlots(r *rand.Rand, text string, fill map[string]string) (out string, used []string) {
	for {
		before, rest, ok := strings.Cut(text, "{")
		out += before
		if !ok {
			return out, used
		}
		name, after, _ := strings.Cut(rest, "}")
		if name == "S" || name == "O" {
			out += "{" + name + "}"
		} else {
			if fill[name] == "" {
				fill[name] = slots[name][r.IntN(len(slots[name]))]
			}
			out += fill[name]
			used = append(used, name)
		}
		text = after
	}
}
