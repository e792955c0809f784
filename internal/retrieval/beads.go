package retrieval

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"tallystick/query/document"
	"tallystick/query/search"
	"tallystick/query/search/analysis"
)

// bead is what is read of a line.
type bead struct {
	ID           string `json:"id"`
	Title        string `json:"title"`
	Description  string `json:"description"`
	Notes        string `json:"notes"`
	Status       string `json:"status"`
	Type         string `json:"issue_type"`
	Assignee     string `json:"assignee"`
	CreatedBy    string `json:"created_by"`
	CreatedAt    string `json:"created_at"`
	ClosedAt     string `json:"closed_at"`
	CloseReason  string `json:"close_reason"`
	Dependencies []struct {
		Issue     string `json:"issue_id"`
		DependsOn string `json:"depends_on_id"`
		Type      string `json:"type"`
	} `json:"dependencies"`
	Comments []struct {
		Author    string `json:"author"`
		Text      string `json:"text"`
		CreatedAt string `json:"created_at"`
	} `json:"comments"`
}

// ruled is how many questions each rule makes.
const (
	ruledIdentifiers = 50
	ruledFacts       = 25
	ruledNotes       = 20
)

// LoadBeads reads an issue tracker's JSONL: a request, its closing summary and
// its replies are documents of one record.
func LoadBeads(file string) (*Corpus, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var rows []*bead
	lines := bufio.NewReaderSize(f, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if len(strings.TrimSpace(string(line))) > 0 {
			b := new(bead)
			if err := json.Unmarshal(line, b); err != nil {
				return nil, fmt.Errorf("line %d: %w", len(rows)+1, err)
			}
			if b.Status != "tombstone" {
				rows = append(rows, b)
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	return build(rows), nil
}

func build(rows []*bead) *Corpus {
	c := &Corpus{Name: "agents' issues", Record: map[string]string{}}
	known, parent := map[string]*bead{}, map[string]string{}
	for _, b := range rows {
		known[b.ID] = b
		for _, d := range b.Dependencies {
			if d.Type == "parent-child" {
				parent[b.ID] = d.DependsOn
			}
		}
	}
	root := func(id string) string {
		for range 8 {
			p, ok := parent[id]
			if !ok || known[p] == nil {
				break
			}
			id = p
		}
		return id
	}
	facts := pickFacts(rows)
	for _, b := range rows {
		ids := identities(b.Assignee, b.CreatedBy)
		add := func(id, kind, title, text, at string, state document.State) {
			c.Docs = append(c.Docs, search.Document{
				ID: id, Kind: kind, Namespace: "project/beads", Identities: ids, Session: root(b.ID),
				Title: title, Text: text, Time: millis(at), State: state,
			})
			c.Record[id] = b.ID
		}
		state := document.Live
		if replacedBy(b) != "" {
			state = document.Superseded
		}
		add(b.ID, "event", b.Title, strings.TrimSpace(b.Description+"\n"+b.Notes), b.CreatedAt, state)
		if b.CloseReason != "" {
			add(b.ID+"/summary", "summary", b.Title, b.CloseReason, b.ClosedAt, state)
		}
		for i, r := range b.Comments {
			add(fmt.Sprintf("%s/reply%d", b.ID, i), "event", "", r.Text, r.CreatedAt, state)
		}
		if facts[b.ID] {
			// A fact and the one that took its place: what was asked for, and
			// what came of it.
			add(b.ID+"/old", "memory", "", "Open: "+b.Title+". Assigned to "+cmp.Or(b.Assignee, b.CreatedBy, "nobody")+".", b.CreatedAt, document.Superseded)
			add(b.ID+"/new", "memory", "", "Closed: "+b.Title+". "+b.CloseReason, b.ClosedAt, document.Live)
			c.Record[b.ID+"/old"], c.Record[b.ID+"/new"] = b.ID+"/old", b.ID+"/new"
		}
	}
	for _, q := range ownWords {
		if slices.ContainsFunc(q.Expect, func(id string) bool { return known[id] != nil }) {
			c.Questions = append(c.Questions, q)
		}
	}
	df := rarity(c.Docs)
	c.Questions = append(c.Questions, identifierQuestions(rows)...)
	c.Questions = append(c.Questions, factQuestions(rows, facts, df)...)
	c.Questions = append(c.Questions, noteQuestions(rows, df)...)
	return c
}

func identities(list ...string) (out []string) {
	for _, s := range list {
		if s = strings.TrimSpace(s); s != "" && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

func millis(s string) int64 {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return 0
	}
	return t.UnixMilli()
}

var duplicate = regexp.MustCompile(`^(?:Duplicate of|Superseded by) ([a-z]+-[a-z0-9.]+)`)

// replacedBy gives the record that took a record's place, if its closing says
// so.
func replacedBy(b *bead) string {
	if m := duplicate.FindStringSubmatch(b.CloseReason); m != nil {
		return strings.TrimRight(m[1], ".")
	}
	return ""
}

// hash orders things by chance, the same each time.
func hash(s string) uint32 {
	h := fnv.New32a()
	io.WriteString(h, s)
	return h.Sum32()
}

func byChance(rows []*bead, salt string, pass func(*bead) bool) []*bead {
	var out []*bead
	for _, b := range rows {
		if pass(b) {
			out = append(out, b)
		}
	}
	slices.SortFunc(out, func(x, y *bead) int {
		return cmp.Or(cmp.Compare(hash(salt+x.ID), hash(salt+y.ID)), strings.Compare(x.ID, y.ID))
	})
	return out
}

var generic = regexp.MustCompile(`^(Closed|Merge|Patrol|mol-|Digest|Branch|Stale|Wrong)`)

func pickFacts(rows []*bead) map[string]bool {
	out := map[string]bool{}
	for _, b := range byChance(rows, "facts", func(b *bead) bool {
		return len(b.CloseReason) >= 60 && len(b.Description) >= 80 && !generic.MatchString(b.Title) && replacedBy(b) == ""
	}) {
		if len(out) < ruledFacts {
			out[b.ID] = true
		}
	}
	return out
}

// rarity counts documents by term.
func rarity(docs []search.Document) map[string]int {
	df := map[string]int{}
	for _, d := range docs {
		seen := map[string]bool{}
		for _, t := range analysis.Tokens(d.Title + "\n" + d.Text) {
			if !seen[t.Term] {
				seen[t.Term] = true
				df[t.Term]++
			}
		}
	}
	return df
}

// rarest gives n words of a text, those that fewest documents hold, in the
// order of the text.
func rarest(text string, n int, df map[string]int) []string {
	var words []analysis.Token
	for _, t := range analysis.Tokens(text) {
		if !t.Whole && len(t.Surface) > 2 && !slices.ContainsFunc(words, func(o analysis.Token) bool { return o.Term == t.Term }) {
			words = append(words, t)
		}
	}
	order := slices.Clone(words)
	slices.SortStableFunc(order, func(a, b analysis.Token) int { return cmp.Compare(df[a.Term], df[b.Term]) })
	keep := order[:min(n, len(order))]
	var out []string
	for _, t := range words {
		if slices.ContainsFunc(keep, func(k analysis.Token) bool { return k.Term == t.Term }) {
			out = append(out, t.Surface)
		}
	}
	return out
}

var (
	identifier = regexp.MustCompile(`\b[A-Za-z][A-Za-z0-9]*(?:[_./-][A-Za-z0-9]+)+|\b[a-z]+[A-Z][A-Za-z0-9]+|\b[0-9a-f]{8}\b|v?[0-9]+\.[0-9]+\.[0-9]+`)
	camel      = regexp.MustCompile(`^[a-z]+(?:[A-Z][a-z0-9]+)+$`)
)

// identifierQuestions asks for names of code, files, versions and hashes that
// one to three records hold. Every third camelCase name is asked for in
// snake_case.
func identifierQuestions(rows []*bead) (out []Question) {
	holders := map[string][]string{}
	for _, b := range rows {
		for _, id := range identifier.FindAllString(b.Title+"\n"+b.Description+"\n"+b.Notes+"\n"+b.CloseReason, -1) {
			if len(id) >= 6 && !slices.Contains(holders[id], b.ID) {
				holders[id] = append(holders[id], b.ID)
			}
		}
	}
	var ids []string
	for id, in := range holders {
		if len(in) <= 3 && strings.ContainsAny(id, "_./ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(x, y string) int {
		return cmp.Or(cmp.Compare(hash("id"+x), hash("id"+y)), strings.Compare(x, y))
	})
	frames := []string{"%s", "where is %s used", "what was wrong with %s", "who changed %s and why"}
	for i, id := range ids[:min(len(ids), ruledIdentifiers)] {
		text := id
		if i%3 == 0 && camel.MatchString(id) {
			text = strings.ToLower(regexp.MustCompile(`([A-Z])`).ReplaceAllString(id, "_$1"))
		}
		out = append(out, Question{"identifiers", fmt.Sprintf(frames[i%len(frames)], text), holders[id], ""})
	}
	return out
}

// factQuestions asks for the state of something of which an older fact is
// superseded; the older one is no answer.
func factQuestions(rows []*bead, facts map[string]bool, df map[string]int) (out []Question) {
	frames := []string{"what came of %s", "is %s done", "outcome: %s"}
	for _, b := range rows {
		if facts[b.ID] {
			text := strings.Join(rarest(b.Title, 4, df), " ")
			out = append(out, Question{"superseded facts", fmt.Sprintf(frames[len(out)%len(frames)], text), []string{b.ID + "/new", b.ID}, ""})
		}
	}
	return out
}

// noteQuestions asks what one agent told or did for another.
func noteQuestions(rows []*bead, df map[string]int) (out []Question) {
	for _, b := range byChance(rows, "notes", func(b *bead) bool {
		return b.Assignee != "" && b.CreatedBy != "" && b.Assignee != b.CreatedBy && len(b.CloseReason) >= 50 && !generic.MatchString(b.CloseReason)
	}) {
		if len(out) == ruledNotes {
			break
		}
		text := strings.Join(rarest(b.CloseReason, 4, df), " ")
		out = append(out, Question{"cross-agent notes", fmt.Sprintf("what did %s tell %s about %s", path.Base(b.Assignee), path.Base(b.CreatedBy), text), []string{b.ID}, ""})
	}
	return out
}
