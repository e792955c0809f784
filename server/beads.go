package server

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"tallystick/query/identity"
	"tallystick/query/jsoncount"
)

// BeadsRow is one record of a beads JSONL file, checked and ready to import:
// a request, and what follows from it.
type BeadsRow struct {
	Line      int            `json:"line"`
	ID        string         `json:"id"`
	Title     string         `json:"title"` // verbatim
	Body      string         `json:"body,omitempty"`
	Status    string         `json:"status"` // as the row says
	Type      string         `json:"type,omitempty"`
	Assignee  string         `json:"assignee,omitempty"`
	Author    string         `json:"author,omitempty"`
	CreatedAt string         `json:"created_at,omitempty"` // verbatim
	Ack       *BeadsAck      `json:"ack,omitempty"`        // the row is closed
	Summary   *BeadsSummary  `json:"summary,omitempty"`
	Replies   []BeadsComment `json:"replies,omitempty"`
}

// BeadsAck closes the request of a row.
type BeadsAck struct {
	At string `json:"at,omitempty"` // closed_at verbatim; empty when unreadable
}

// BeadsSummary is the outcome of a closed row that gives a reason.
type BeadsSummary struct {
	Title    string   `json:"title"`
	Text     string   `json:"text"`
	Category string   `json:"category"`
	Sources  []string `json:"sources"`
	AtMillis int64    `json:"at_ms"`
}

// BeadsComment is one comment on a row.
type BeadsComment struct {
	ID     string `json:"id"`
	Author string `json:"author,omitempty"`
	Text   string `json:"text"`
	At     string `json:"at,omitempty"`
}

// BeadsError is what is wrong with one line.
type BeadsError struct {
	Line   int    `json:"line"`
	ID     string `json:"id,omitempty"`
	Reason string `json:"reason"`
}

// NotImported counts what a file holds and an import leaves out.
type NotImported struct {
	Dependencies int `json:"dependencies"`
	Notes        int `json:"notes"`
	Labels       int `json:"labels"`
}

// BeadsFile is a parsed file.
type BeadsFile struct {
	Lines             int
	Rows              []BeadsRow
	Errors            []BeadsError
	SkippedTombstones int
	NotImported       NotImported
}

// Counts are the parts that importing this file into an empty mesh stores.
func (f *BeadsFile) Counts() ImportCounts {
	var n ImportCounts
	for i := range f.Rows {
		r := &f.Rows[i]
		n.Requests++
		if r.Ack != nil {
			n.Acks++
		}
		if r.Summary != nil {
			n.Summaries++
		}
		n.Replies += len(r.Replies)
	}
	return n
}

const (
	maxBeadsLine  = 8 << 20
	maxBeadsTitle = 32 << 10
	maxBeadsSaid  = 5000   // errors listed of a file
	maxComments   = 10_000 // of an issue
	maxLeftOut    = 100    // comments of an issue whose error is told
)

var beadsStatus = map[string]bool{
	"open": true, "in_progress": true, "blocked": true, "deferred": true, "hooked": true,
	"pinned": true, "closed": true, "tombstone": true,
}

// ParseBeads reads a beads JSONL file. A bad line becomes an error with its
// number and reason, the rest goes in. It fails only when reading does.
func ParseBeads(r io.Reader) (*BeadsFile, error) {
	f := &BeadsFile{Errors: []BeadsError{}}
	seen := map[string][sha256.Size]byte{}
	in := bufio.NewReaderSize(r, 64<<10)
	for number := 1; ; number++ {
		line, tooLong, err := readLine(in)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("server: read line %d: %w", number, err)
		}
		if number == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		if line = bytes.TrimSpace(line); len(line) > 0 || tooLong {
			f.Lines++
			f.line(number, line, tooLong, seen)
		}
		if err != nil {
			return f, nil
		}
	}
}

// readLine returns the next line without keeping more than the limit of it.
func readLine(in *bufio.Reader) (line []byte, tooLong bool, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if len(line)+len(part) > maxBeadsLine {
			tooLong = true
			line = nil
		}
		if !tooLong {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, tooLong, err
		}
	}
}

func (f *BeadsFile) line(number int, line []byte, tooLong bool, seen map[string][sha256.Size]byte) {
	bad := func(id, format string, args ...any) {
		switch len(f.Errors) {
		case maxBeadsSaid:
			id, format, args = "", "more than %d errors; those from here on are not listed", []any{maxBeadsSaid}
		case maxBeadsSaid + 1:
			return
		}
		f.Errors = append(f.Errors, BeadsError{Line: number, ID: id, Reason: fmt.Sprintf(format, args...)})
	}
	if tooLong {
		bad("", "longer than %d bytes", maxBeadsLine)
		return
	}
	raw, row, err := parseBeadsLine(line)
	if err != nil {
		bad(row.ID, "%v", err)
		return
	}
	sum := sha256.Sum256(line)
	if first, ok := seen[row.ID]; ok {
		if first != sum {
			bad(row.ID, "this id stands on an earlier line with different content; the first one counts")
		}
		return
	}
	seen[row.ID] = sum
	if row.Status == "tombstone" {
		f.SkippedTombstones++
		return
	}
	row.Line = number
	if row.Status == "closed" {
		row.Ack = &BeadsAck{At: raw.ClosedAt}
		at, ok := parseTime(raw.ClosedAt)
		if !ok {
			row.Ack.At = ""
			bad(row.ID, "closed without a readable closed_at: request and ack go in without the time, no summary")
		} else if strings.TrimSpace(raw.CloseReason) != "" {
			if row.Summary, err = raw.summary(&row, at); err != nil {
				bad(row.ID, "no summary: %v", err)
			}
		}
	}
	for _, why := range raw.wrong {
		bad(row.ID, "%s", why)
	}
	f.NotImported.Dependencies += int(raw.Dependencies)
	f.NotImported.Labels += int(raw.Labels)
	if raw.Notes != "" {
		f.NotImported.Notes++
	}
	f.Rows = append(f.Rows, row)
}

type beadsRaw struct {
	ID, Title, Description, Status, IssueType string
	Assignee, CreatedBy, CreatedAt            string
	ClosedAt, CloseReason, Notes              string
	Labels, Dependencies                      listLen
	Comments                                  []json.RawMessage
	wrong                                     []string // what is left out of a row that goes in
}

// listLen is a list of which only the length counts.
type listLen int

// UnmarshalJSON counts.
func (n *listLen) UnmarshalJSON(b []byte) error {
	count, ok := jsoncount.Elements(b)
	if !ok && string(b) != "null" {
		return &json.UnmarshalTypeError{Value: strings.TrimPrefix(strings.TrimPrefix(jsonKind(b), "a "), "an "), Type: reflect.TypeFor[[]any]()}
	}
	*n = listLen(count)
	return nil
}

// beadsFields are the members of an object by their exact names:
// encoding/json alone would take "Title" for "title".
type beadsFields map[string]json.RawMessage

// into reads fields in order and stops at the first of a wrong type.
func (f beadsFields) into(pairs ...any) error {
	for i := 0; i < len(pairs); i += 2 {
		name := pairs[i].(string)
		raw, ok := f[name]
		if !ok {
			continue
		}
		err := json.Unmarshal(raw, pairs[i+1])
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return fmt.Errorf("%s has the wrong type (%s)", name, wrong.Value)
		}
		if err != nil {
			return fmt.Errorf("%s cannot be read: %w", name, err)
		}
	}
	return nil
}

// badText says which field holds what no text may hold, and what that is.
func (f beadsFields) badText() string {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if why := checkText(f[name]); why != "" {
			return name + " holds " + why
		}
	}
	return ""
}

func parseBeadsLine(line []byte) (raw beadsRaw, row BeadsRow, err error) {
	if line[0] != '{' {
		return raw, row, errors.New("not a JSON object")
	}
	var fields beadsFields
	if err := json.Unmarshal(line, &fields); err != nil {
		if strings.Contains(err.Error(), "max depth") {
			return raw, row, errors.New("nested too deep")
		}
		return raw, row, errors.New("broken JSON")
	}
	why := fields.badText()
	if why == "" { // what is not in a field
		why = checkText(line)
	}
	if why != "" {
		if checkText(fields["id"]) == "" && fields.into("id", &raw.ID) == nil && token(raw.ID) {
			row.ID = raw.ID
		}
		return raw, row, errors.New(why)
	}
	err = fields.into("id", &raw.ID)
	if token(raw.ID) {
		row.ID = raw.ID
	}
	if n, _ := jsoncount.Elements(fields["comments"]); err == nil && n > maxComments {
		err = fmt.Errorf("%d comments, at most %d are read", n, maxComments)
	}
	if err == nil {
		err = fields.into(
			"title", &raw.Title, "description", &raw.Description, "status", &raw.Status, "issue_type", &raw.IssueType,
			"assignee", &raw.Assignee, "created_by", &raw.CreatedBy, "created_at", &raw.CreatedAt,
			"closed_at", &raw.ClosedAt, "close_reason", &raw.CloseReason, "notes", &raw.Notes,
			"labels", &raw.Labels, "dependencies", &raw.Dependencies, "comments", &raw.Comments)
	}
	if err != nil {
		return raw, row, err
	}
	row.Title, row.Body, row.Status, row.Type = raw.Title, raw.Description, raw.Status, raw.IssueType
	row.Author, row.CreatedAt = raw.CreatedBy, raw.CreatedAt
	switch {
	case strings.TrimSpace(raw.ID) == "":
		err = errors.New("no id")
	case strings.IndexFunc(raw.ID, unicode.IsControl) >= 0:
		err = errors.New("control character in id")
	case !token(raw.ID):
		err = fmt.Errorf("id is longer than %d characters", maxRouting)
	case strings.TrimSpace(raw.Title) == "":
		err = errors.New("no title")
	case len(raw.Title) > maxBeadsTitle:
		err = fmt.Errorf("title is longer than %d bytes", maxBeadsTitle)
	case raw.Status == "":
		err = errors.New("no status")
	case !beadsStatus[raw.Status]:
		err = fmt.Errorf("unknown status %s", quote(raw.Status))
	case len(raw.Description) > maxBody:
		err = fmt.Errorf("description is longer than %d bytes", maxBody)
	case len(raw.CreatedBy) > maxBeadsTitle/2 || len(raw.CreatedAt) > maxRouting:
		err = errors.New("created_by or created_at is too long")
	}
	if err != nil {
		return raw, row, err
	}
	if row.Assignee, why = beadsRecipient(raw.Assignee); why != "" {
		raw.wrong = append(raw.wrong, "no to_agent: "+why)
	}
	// What the domain would refuse of one row must not hold up the others.
	if _, err := tryBeads.request(&row); err != nil {
		return raw, row, err
	}
	raw.replies(&row)
	return raw, row, nil
}

// replies takes the comments that can be taken.
func (raw *beadsRaw) replies(row *BeadsRow) {
	byID, left := map[string]int{}, 0
	leave := func(i int, format string, args ...any) {
		if left++; left <= maxLeftOut {
			raw.wrong = append(raw.wrong, fmt.Sprintf("comment %d is left out: ", i+1)+fmt.Sprintf(format, args...))
		}
	}
	for i, c := range raw.Comments {
		reply, err := parseBeadsComment(c)
		if err == nil {
			_, err = tryBeads.reply(row, target{}, &reply)
		}
		if err != nil {
			leave(i, "%v", err)
			continue
		}
		switch k, ok := byID[reply.ID]; {
		case !ok:
			byID[reply.ID] = len(row.Replies)
			row.Replies = append(row.Replies, reply)
		case row.Replies[k] != reply:
			leave(i, "its id %s stands on an earlier comment with different content; the first one counts", quote(reply.ID))
		}
	}
	if left > maxLeftOut {
		raw.wrong = append(raw.wrong, fmt.Sprintf("%d more comments are left out", left-maxLeftOut))
	}
}

// tryBeads makes ops that nobody appends, to find out what would be refused.
var tryBeads = importing{author: "import", stream: importStream}

// beadsRecipient is who a request is addressed to. It is never a word that
// event_append would refuse, nor everybody.
func beadsRecipient(assignee string) (to, why string) {
	to = strings.TrimSpace(assignee)
	switch {
	case to == "":
		return "", ""
	case !token(to):
		return "", "assignee is too long or holds a control character"
	}
	to, bad := Identity{}.resolveMe("assignee", to)
	if bad != nil || to == "" || to == "*" {
		return "", "assignee " + quote(assignee) + " names nobody"
	}
	return to, ""
}

func parseBeadsComment(raw json.RawMessage) (c BeadsComment, err error) {
	var fields beadsFields
	if json.Unmarshal(raw, &fields) != nil || fields == nil {
		return c, errors.New("it is not an object")
	}
	var id any
	number := json.NewDecoder(bytes.NewReader(fields["id"]))
	number.UseNumber()
	if len(fields["id"]) > 0 && number.Decode(&id) == nil {
		switch v := id.(type) {
		case string:
			c.ID = v
		case json.Number:
			c.ID = v.String()
		}
	}
	if !token(c.ID) {
		c.ID = ""
		return c, errors.New("it has no usable id")
	}
	if err := fields.into("author", &c.Author, "text", &c.Text, "created_at", &c.At); err != nil {
		return c, err
	}
	switch {
	case len(c.Text) > maxBody:
		err = fmt.Errorf("text is longer than %d bytes", maxBody)
	case len(c.Author) > maxBeadsTitle/2 || len(c.At) > maxRouting:
		err = errors.New("author or created_at is too long")
	}
	return c, err
}

// token reports whether s may stand in a routing field.
func token(s string) bool {
	return strings.TrimSpace(s) != "" && utf8.RuneCountInString(s) <= maxRouting && strings.IndexFunc(s, unicode.IsControl) < 0
}

func (raw *beadsRaw) summary(row *BeadsRow, at time.Time) (*BeadsSummary, error) {
	s := &BeadsSummary{
		Title: strings.TrimSpace(raw.Title), Text: raw.CloseReason, Category: "other",
		Sources: []string{}, AtMillis: at.UnixMilli(),
	}
	switch raw.IssueType {
	case "bug":
		s.Category = "bugfix"
	case "feature":
		s.Category = "feature"
	}
	switch {
	case len(s.Title) > maxTitle:
		return nil, fmt.Errorf("title is longer than %d bytes", maxTitle)
	case strings.IndexFunc(s.Title, unicode.IsControl) >= 0:
		return nil, errors.New("control character in title")
	case len(s.Text) > maxSummary:
		return nil, fmt.Errorf("close_reason is longer than %d bytes", maxSummary)
	}
	for _, name := range []string{raw.Assignee, raw.CreatedBy} {
		name = strings.TrimSpace(name)
		if name == "" || len(s.Sources) > 0 && s.Sources[0] == name {
			continue
		}
		bare := identity.Strip(name)
		if identity.CheckToken("", bare) != nil || identity.Reserved(bare) || strings.HasPrefix(bare, "@") {
			return nil, fmt.Errorf("assignee or created_by is %s, which is no identity", quote(name))
		}
		s.Sources = append(s.Sources, name)
	}
	try := *row
	try.Summary = s
	if _, err := tryBeads.summaryOp(&try); err != nil {
		return nil, err
	}
	return s, nil
}

// parseTime reads an RFC 3339 time.
func parseTime(s string) (time.Time, bool) {
	t, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(s))
	if err != nil || t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}, false
	}
	return t.UTC(), true
}
