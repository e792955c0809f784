package importers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tallystick/query/imported"
	"tallystick/query/jsoncount"
	"tallystick/query/memory"
	"tallystick/query/summary"
	"tallystick/server"
)

// mcpLine reads a line of the MCP reference memory server: an entity with
// observations, or a relation. Each observation is a fact that begins with the
// entity's name; a relation is a link and a fact that says it.
func (r *reading) mcpLine(line int, b []byte) {
	var row struct {
		Type         string          `json:"type"`
		Name         string          `json:"name"`
		EntityType   string          `json:"entityType"`
		Observations json.RawMessage `json:"observations"`
		From         string          `json:"from"`
		To           string          `json:"to"`
		RelationType string          `json:"relationType"`
	}
	if err := json.Unmarshal(b, &row); err != nil {
		r.bad(line, "", "no JSON object as expected: %v", why(err))
		return
	}
	switch row.Type {
	case "entity":
		if strings.TrimSpace(row.Name) == "" {
			r.bad(line, "", "an entity without a name")
			return
		}
		var observations []json.RawMessage
		if r.tooMany(line, "observations", row.Observations) {
			return
		}
		if row.Observations != nil && json.Unmarshal(row.Observations, &observations) != nil {
			r.bad(line, row.Name, "observations is no list")
			return
		}
		if len(observations) == 0 {
			r.add(line, server.MemoryRow{
				Kind: server.RowFact, Imported: key(MCPMemory, row.Name, "entity"), Category: category(row.EntityType), Text: describe(row.Name, row.EntityType),
			})
		}
		for i, o := range observations {
			var text string
			if json.Unmarshal(o, &text) != nil || strings.TrimSpace(text) == "" {
				r.bad(line, row.Name, "observation %d is no text", i+1)
				continue
			}
			r.add(line, server.MemoryRow{
				Kind: server.RowFact, Imported: key(MCPMemory, row.Name, "observation:"+digest(text)), Category: category(row.EntityType), Text: row.Name + ": " + text,
			})
		}
	case "relation":
		if strings.TrimSpace(row.From) == "" || strings.TrimSpace(row.To) == "" {
			r.bad(line, "", "a relation without both ends")
			return
		}
		said := strings.TrimSpace(row.From + " " + strings.ReplaceAll(row.RelationType, "_", " ") + " " + row.To)
		k := key(MCPMemory, row.From, "relation:"+digest(row.RelationType+"\x00"+row.To))
		r.add(line, server.MemoryRow{Kind: server.RowFact, Imported: k, Category: "relation", Text: said})
		r.add(line, server.MemoryRow{Kind: server.RowLink, Imported: key(MCPMemory, row.From, "link:"+digest(row.To)), From: row.From, To: row.To})
	default:
		r.bad(line, "", "type is %q, which is neither entity nor relation", row.Type)
	}
}

func describe(name, kind string) string {
	if strings.TrimSpace(kind) == "" {
		return name
	}
	return name + " (" + kind + ")"
}

// grayFact is a fact of GrayMatter's export.
type grayFact struct {
	ID           string `json:"id"`
	AgentID      string `json:"agent_id"`
	Text         string `json:"text"`
	CreatedAt    string `json:"created_at"`
	Confidence   string `json:"confidence"`
	Pinned       bool   `json:"pinned"`
	SupersededBy string `json:"superseded_by"`
}

// grayMatter reads an array of facts, an object that holds arrays of them, or
// one fact a line.
func (r *reading) grayMatter(text []byte) {
	text = bytes.TrimSpace(text)
	var list []json.RawMessage
	if len(text) > 0 && text[0] == '[' {
		if json.Valid(text) && r.tooMany(0, "the list", text) {
			return
		}
		if err := json.Unmarshal(text, &list); err != nil {
			r.bad(0, "", "the file is not JSON: %v", why(err))
			return
		}
	} else {
		var object map[string]json.RawMessage
		if json.Unmarshal(text, &object) != nil || object["text"] != nil {
			r.lines(text, r.grayLine)
			return
		}
		for _, name := range slices.Sorted(maps.Keys(object)) {
			var some []json.RawMessage
			if !r.tooMany(0, name, object[name]) && json.Unmarshal(object[name], &some) == nil {
				list = append(list, some...)
			}
		}
		if len(list) == 0 {
			r.bad(0, "", "the file holds no list of facts")
		}
	}
	for i, b := range list {
		r.res.Lines++
		r.grayLine(i+1, b)
	}
}

func (r *reading) grayLine(line int, b []byte) {
	var f grayFact
	if err := json.Unmarshal(b, &f); err != nil {
		r.bad(line, "", "no fact as expected: %v", why(err))
		return
	}
	if f.SupersededBy != "" {
		r.res.Skipped++
		return
	}
	if strings.TrimSpace(f.Text) == "" {
		r.bad(line, f.ID, "a fact without text")
		return
	}
	id := f.ID
	if id == "" {
		id = f.AgentID + "/" + digest(f.Text)
	}
	row := server.MemoryRow{
		Kind: server.RowFact, Imported: key(GrayMatter, id, "fact"), Namespace: f.AgentID, Text: f.Text, CreatedAt: f.CreatedAt, Pinned: f.Pinned,
	}
	if slices.Contains(memory.Confidences(), f.Confidence) {
		row.Confidence = f.Confidence
	} else if f.Confidence != "" {
		row.Confidence = memory.Unverified // an unknown label ranks so
	}
	r.add(line, row)
}

// engramChunk is a chunk or an export of engram.
type engramChunk struct {
	Sessions     []engramSession     `json:"sessions"`
	Observations []engramObservation `json:"observations"`
	Prompts      []engramPrompt      `json:"prompts"`
	Mutations    []engramMutation    `json:"mutations"`
}

type engramSession struct {
	ID        string  `json:"id"`
	Project   string  `json:"project"`
	StartedAt string  `json:"started_at"`
	EndedAt   *string `json:"ended_at"`
	Summary   *string `json:"summary"`
}

type engramObservation struct {
	ID        json.RawMessage `json:"id"`
	SyncID    string          `json:"sync_id"`
	SessionID string          `json:"session_id"`
	Type      string          `json:"type"`
	Title     string          `json:"title"`
	Content   string          `json:"content"`
	Project   *string         `json:"project"`
	TopicKey  *string         `json:"topic_key"`
	Pinned    bool            `json:"pinned"`
	CreatedAt string          `json:"created_at"`
	UpdatedAt string          `json:"updated_at"`
	DeletedAt *string         `json:"deleted_at"`
}

type engramPrompt struct {
	ID        json.RawMessage `json:"id"`
	SyncID    string          `json:"sync_id"`
	SessionID string          `json:"session_id"`
	Content   string          `json:"content"`
	CreatedAt string          `json:"created_at"`
}

type engramMutation struct {
	Entity    string `json:"entity"`
	EntityKey string `json:"entity_key"`
	Op        string `json:"op"`
	Payload   string `json:"payload"`
}

// engram reads chunks, one a line or one a file, and single observations a
// line. An observation is a fact, a session with a summary is a summary, a
// prompt is a turn.
func (r *reading) engram(text []byte) {
	text = bytes.TrimSpace(text)
	var whole engramChunk
	var object map[string]json.RawMessage
	if json.Unmarshal(text, &object) == nil && isChunk(object) {
		r.res.Lines++
		if r.tooManyOf(0, object) {
			return
		}
		if err := json.Unmarshal(text, &whole); err != nil {
			r.bad(0, "", "the file is no export as expected: %v", why(err))
			return
		}
		r.engramChunk(1, &whole)
		return
	}
	r.lines(text, func(line int, b []byte) {
		var probe map[string]json.RawMessage
		if err := json.Unmarshal(b, &probe); err != nil {
			r.bad(line, "", "no JSON object: %v", why(err))
			return
		}
		var c engramChunk
		var err error
		switch {
		case isChunk(probe):
			if r.tooManyOf(line, probe) {
				return
			}
			err = json.Unmarshal(b, &c)
		case probe["title"] != nil || probe["type"] != nil && probe["content"] != nil:
			c.Observations = make([]engramObservation, 1)
			err = json.Unmarshal(b, &c.Observations[0])
		case probe["content"] != nil:
			c.Prompts = make([]engramPrompt, 1)
			err = json.Unmarshal(b, &c.Prompts[0])
		case probe["started_at"] != nil:
			c.Sessions = make([]engramSession, 1)
			err = json.Unmarshal(b, &c.Sessions[0])
		default:
			err = fmt.Errorf("neither an observation nor a session, a prompt or a chunk")
		}
		if err != nil {
			r.bad(line, "", "%v", err)
			return
		}
		r.engramChunk(line, &c)
	})
}

// tooMany refuses a list of more elements than are taken into memory at once.
func (r *reading) tooMany(line int, name string, list json.RawMessage) bool {
	n, _ := jsoncount.Elements(list)
	if n > maxItems {
		r.bad(line, "", "%s has %d elements, at most %d are read: split the file, and import each part", short(name, 64), n, maxItems)
	}
	return n > maxItems
}

func (r *reading) tooManyOf(line int, o map[string]json.RawMessage) bool {
	for _, name := range []string{"sessions", "observations", "prompts", "mutations"} {
		if r.tooMany(line, name, o[name]) {
			return true
		}
	}
	return false
}

func isChunk(o map[string]json.RawMessage) bool {
	return o["observations"] != nil || o["sessions"] != nil || o["prompts"] != nil || o["mutations"] != nil
}

func (r *reading) engramChunk(line int, c *engramChunk) {
	for i := range c.Mutations {
		m := &c.Mutations[i]
		if m.Op == "delete" {
			r.res.Skipped++
			if r.gone == nil {
				r.gone = map[imported.Key]bool{}
			}
			r.gone[*key(Engram, m.EntityKey, m.Entity)] = true
			continue
		}
		var err error
		switch m.Entity {
		case "session":
			var s engramSession
			if err = json.Unmarshal([]byte(m.Payload), &s); err == nil {
				c.Sessions = append(c.Sessions, s)
			}
		case "observation":
			var o engramObservation
			if err = json.Unmarshal([]byte(m.Payload), &o); err == nil {
				c.Observations = append(c.Observations, o)
			}
		case "prompt":
			var p engramPrompt
			if err = json.Unmarshal([]byte(m.Payload), &p); err == nil {
				c.Prompts = append(c.Prompts, p)
			}
		default:
			r.res.Skipped++
		}
		if err != nil {
			r.bad(line, "", "mutation %d: %v", i+1, err)
		}
	}
	for i := range c.Observations {
		o := &c.Observations[i]
		if o.DeletedAt != nil && *o.DeletedAt != "" {
			r.res.Skipped++
			continue
		}
		text := strings.TrimSpace(strings.TrimSpace(o.Title) + "\n" + o.Content)
		if text == "" {
			r.bad(line, o.SyncID, "observation %d has neither title nor content", i+1)
			continue
		}
		id := engramID(o.SyncID, o.ID, o.SessionID, text)
		row := server.MemoryRow{Kind: server.RowFact, Imported: key(Engram, id, "observation"), Category: category(o.Type), Text: text, CreatedAt: o.CreatedAt, Pinned: o.Pinned}
		if !r.newer(&row, cmpOr(o.UpdatedAt, o.CreatedAt), line) {
			r.add(line, row)
		}
	}
	for _, s := range c.Sessions {
		if s.Summary == nil || strings.TrimSpace(*s.Summary) == "" {
			r.res.Skipped++ // nothing was said about it
			continue
		}
		if s.ID == "" {
			r.bad(line, "", "a session without an id")
			continue
		}
		at := s.StartedAt
		if s.EndedAt != nil && *s.EndedAt != "" {
			at = *s.EndedAt
		}
		row := server.MemoryRow{
			Kind: server.RowSummary, Imported: key(Engram, s.ID, "session"), Title: title(*s.Summary, s.Project), Text: *s.Summary,
			Category: summary.DefaultCategory, Session: s.ID, Identities: []string{},
		}
		if t, ok := rfc3339(at); ok {
			row.Timestamp = &t
		}
		r.add(line, row)
	}
	for i, p := range c.Prompts {
		if strings.TrimSpace(p.Content) == "" {
			r.bad(line, p.SyncID, "prompt %d is empty", i+1)
			continue
		}
		row := server.MemoryRow{
			Kind: server.RowTurn, Imported: key(Engram, engramID(p.SyncID, p.ID, p.SessionID, p.Content), "prompt"),
			Session: cmpOr(p.SessionID, "engram"), Prompt: p.Content, Identities: []string{},
		}
		if t, ok := rfc3339(p.CreatedAt); ok {
			row.Timestamp = &t
		}
		r.add(line, row)
	}
}

// newer reports whether an observation was read before. Chunks are added to and
// named by digests, so which of them has the last revision is in the times, not
// in the order of the files: the later one stays.
func (r *reading) newer(row *server.MemoryRow, at string, line int) bool {
	if r.read == nil {
		r.read = map[imported.Key]revision{}
	}
	was, twice := r.read[*row.Imported]
	if !twice {
		if len(r.res.Rows) < maxRows {
			r.read[*row.Imported] = revision{len(r.res.Rows), at}
		}
		return false
	}
	r.res.Skipped++
	if at > was.at {
		row.File, row.Line = r.file, line
		r.res.Rows[was.row], r.read[*row.Imported] = *row, revision{was.row, at}
	}
	return true
}

// revision is the row of a record that was read, and when it was written.
type revision struct {
	row int
	at  string
}

// without drops the rows that a later chunk deletes.
func without(rows []server.MemoryRow, gone map[imported.Key]bool) (kept []server.MemoryRow, dropped int) {
	n := len(rows)
	kept = slices.DeleteFunc(rows, func(r server.MemoryRow) bool { return gone[*r.Imported] })
	return kept, n - len(kept)
}

// engramID is the id that is the same on every machine; the number in the
// database is not.
func engramID(syncID string, _ json.RawMessage, session, text string) string {
	if syncID != "" {
		return syncID
	}
	return session + "/" + digest(text)
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// why says what is wrong with JSON in the words of JSON, not of Go.
func why(err error) string {
	var typ *json.UnmarshalTypeError
	if !errors.As(err, &typ) {
		return err.Error()
	}
	kind, _, _ := strings.Cut(typ.Value, " ") // a number comes with its digits
	where := "it"
	if typ.Field != "" {
		where = typ.Field
	}
	return where + " must not be of type " + kind
}
