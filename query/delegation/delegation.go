// Package delegation makes the request by which one agent hands work to
// another: one task.request with all that the other needs to begin, and a line
// that tells how to take it.
//
//	op, err := delegation.NewOp("mac:claude:tally", delegation.Request{
//		Project: "tally", To: "lap:codex:tally", Goal: "mend the parser", Branch: "main", BaseCommit: "1f3c2d0", Done: "go test passes",
//	})
//
// A request opens a task: its correlation is new, and package claim decides
// who holds it.
package delegation

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"tallystick/oplog"
	"tallystick/query/logstream"
	"tallystick/query/refusal"
)

// Room is where requests stand.
const Room = "delegation"

// Limits of a request in bytes.
const (
	MaxGoal = 16 << 10
	MaxDone = 16 << 10

	maxSlug   = 40
	minCommit = 7
	maxCommit = 64
)

// Request is a task to hand over. All but ExpiresAt is required.
type Request struct {
	Project    string // with or without the leading "project/"
	To         string // one identity, or * for whoever takes it
	Goal       string
	Branch     string
	BaseCommit string // 7 to 64 hex digits
	Done       string // when the work counts as done
	ExpiresAt  int64  // unix milliseconds, 0 for never
}

// content is what a request keeps in its event's metadata.
type content struct {
	Project string `json:"project"`
	Goal    string `json:"goal"`
	Done    string `json:"done"`
}

// NewOp checks a request and makes the op that appends it.
func NewOp(author string, r Request) (oplog.Op, error) {
	if err := r.check(); err != nil {
		return oplog.Op{}, err
	}
	var meta bytes.Buffer
	enc := json.NewEncoder(&meta)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(content{Project: r.Project, Goal: r.Goal, Done: r.Done}); err != nil {
		return oplog.Op{}, fmt.Errorf("delegation: encode: %w", err)
	}
	return logstream.NewOp(author, logstream.Event{
		Type: logstream.TypeRequest, Stream: "project/" + r.Project, Room: Room, To: r.To, Correlation: correlation(r.Goal),
		Branch: r.Branch, BaseCommit: r.BaseCommit, Status: logstream.StatusOpen, Body: r.Goal + "\n\nDone when: " + r.Done,
		Metadata: bytes.TrimSpace(meta.Bytes()), ExpiresAt: r.ExpiresAt,
	})
}

func (r *Request) check() error {
	r.Project = strings.TrimPrefix(strings.TrimSpace(r.Project), "project/")
	for _, f := range []struct {
		name, hint string
		value      *string
		most       int
	}{
		{"project", "name the project, e.g. tally", &r.Project, 0},
		{"to_agent", "name an identity, or * for whoever takes it", &r.To, 0},
		{"goal", "say what is to be done", &r.Goal, MaxGoal},
		{"branch", "name the branch to begin from", &r.Branch, 0},
		{"base_commit", "give the commit to begin from, as git rev-parse HEAD prints it", &r.BaseCommit, 0},
		{"done", "say when the work counts as done", &r.Done, MaxDone},
	} {
		*f.value = strings.TrimSpace(*f.value)
		switch {
		case *f.value == "":
			return refusal.Invalid(f.name, f.hint, "%s is empty", f.name)
		case f.most > 0 && len(*f.value) > f.most:
			return refusal.New(refusal.TooLarge, f.name, "put the rest into an artifact or the repository", "%s has %d bytes, at most %d are allowed", f.name, len(*f.value), f.most)
		case !utf8.ValidString(*f.value) || strings.IndexByte(*f.value, 0) >= 0:
			return refusal.Invalid(f.name, "send valid UTF-8 without NUL", "%s contains a NUL character or invalid UTF-8", f.name)
		}
	}
	if most := logstream.MaxRouting - len("project/"); utf8.RuneCountInString(r.Project) > most {
		return refusal.New(refusal.TooLarge, "project", "use a shorter name", "project has %d characters, at most %d are allowed", utf8.RuneCountInString(r.Project), most)
	}
	r.BaseCommit = strings.ToLower(r.BaseCommit)
	if n := len(r.BaseCommit); n < minCommit || n > maxCommit || strings.Trim(r.BaseCommit, "0123456789abcdef") != "" {
		return refusal.Invalid("base_commit", "give the commit to begin from, as git rev-parse HEAD prints it",
			"base_commit is %s, which is not %d to %d hex digits", refusal.Quote(r.BaseCommit), minCommit, maxCommit)
	}
	return nil
}

// correlation names a new task after its goal: task_, a slug, 8 random hex
// digits.
func correlation(goal string) string {
	var slug strings.Builder
	gap := false
	for _, c := range strings.ToLower(goal) {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			if gap && slug.Len() > 0 {
				slug.WriteByte('_')
			}
			gap = false
			if slug.WriteRune(c); slug.Len() >= maxSlug {
				break
			}
			continue
		}
		gap = true
	}
	name := strings.TrimRight(slug.String()[:min(slug.Len(), maxSlug)], "_")
	if name != "" {
		name += "_"
	}
	var tail [4]byte
	rand.Read(tail[:])
	return "task_" + name + hex.EncodeToString(tail[:])
}

// Handoff is the line that tells the other how to take the task.
func Handoff(r *logstream.Record) string {
	to := "whoever takes it"
	if r.ToAgent != "*" {
		to = r.ToAgent
	}
	return fmt.Sprintf("%s in %s is for %s: claim it with event_ack event_id %s status claimed, begin from %s at %s, and close it with status applied.",
		r.Correlation, r.Stream, to, r.ID, r.Branch, r.BaseCommit)
}
