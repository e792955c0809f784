package main

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tallystick/server"
)

// Tools name their fields as their contract does: to_agent, lease_ms. A person
// has typed --to and --lease, and is told of those. The flags that a field
// comes from, when it is not the field's own name with dashes; the first one
// that the command has counts, or one that was given.
var fieldFlags = map[string][]string{
	"agentIdentity":         {"identity"},
	"agent_id":              {"agent-id", "shared"},
	"artifact_ids":          {"artifact"},
	"before_event_id":       {"before"},
	"body":                  {"body", "body-file"},
	"content":               {"FILE"},
	"correlation_id":        {"correlation"},
	"equivalents":           {"WORD"},
	"expires_at":            {"expires"},
	"fromIdentity":          {"from"},
	"from_agent":            {"agent"},
	"idempotency_key":       {"key"},
	"inReplyTo":             {"reply-to"},
	"includeArchived":       {"archived"},
	"include_superseded":    {"superseded"},
	"kinds":                 {"kind"},
	"lease_ms":              {"lease"},
	"nResults":              {"limit"},
	"query":                 {"QUERY"},
	"sessionId":             {"session"},
	"since_created_at":      {"since-time"},
	"since_event_id":        {"since"},
	"sourceAgentIdentities": {"source"},
	"state":                 {"state", "file"},
	"summary":               {"text", "file"},
	"target":                {"target", "TEXT", "file"},
	"text":                  {"text", "TEXT", "file"},
	"threadId":              {"thread"},
	"timeout_ms":            {"timeout"},
	"timestamp":             {"time"},
	"to_agent":              {"to"},
	"top_k":                 {"top"},
}

// typedAs is how a field was typed, or would be: --flag, the variable that
// gave the flag its value, or the name of an argument. It is empty when the
// command has nothing of the kind.
func typedAs(cmd *cobra.Command, field string) string {
	if i := strings.IndexAny(field, ".["); i > 0 {
		field = field[:i] // a part of it
	}
	names := slices.Clone(fieldFlags[field])
	if own := dashed(field); !slices.Contains(names, own) {
		names = append(names, own)
	}
	names = append(names, strings.ToUpper(strings.ReplaceAll(dashed(field), "-", "_")))
	words := strings.FieldsFunc(cmd.Use, func(r rune) bool { return !unicode.IsLetter(r) && r != '_' })
	found := ""
	for _, name := range names {
		f := cmd.Flags().Lookup(name)
		switch {
		case f != nil && f.Changed:
			return shownFlag(f)
		case found != "":
		case f != nil && !f.Hidden:
			found = shownFlag(f)
		case f == nil && strings.ToUpper(name) == name && slices.Contains(words, name):
			found = name
		}
	}
	return found
}

// commandOf is the command that a person types for a tool, or empty.
func commandOf(tool string) string {
	names := make([]string, 0, 2)
	for command, t := range toolOf {
		if t == tool && command != "events watch" {
			names = append(names, "tally "+command)
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

func shownFlag(f *pflag.Flag) string {
	if from := f.Annotations[fromEnv]; len(from) > 0 {
		return from[0]
	}
	return "--" + f.Name
}

// dashed is a field's name as a flag would be written.
func dashed(field string) string {
	var b strings.Builder
	for i, r := range field {
		switch {
		case r == '_':
			b.WriteByte('-')
		case unicode.IsUpper(r):
			if i > 0 {
				b.WriteByte('-')
			}
			b.WriteRune(unicode.ToLower(r))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

var (
	// quotedOrName finds what a caller sent, which stays as it is, and the names
	// that only a contract can have written.
	quotedOrName = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\b[a-z]+(?:_[a-z]+|[A-Z][a-z]*)+\b`)
	verb         = regexp.MustCompile(`^(is|are|must|may|has|holds|contains|does|takes|names|begins|ends)\b`)
	passValue    = regexp.MustCompile(`\bpass (--[a-z-]+): `)
	wholeNumber  = regexp.MustCompile(`\b[0-9]+\b`)
)

// asTyped makes an error speak of what was typed. Its field keeps the
// contract's name; message and hint name the flag.
func asTyped(cmd *cobra.Command, e *server.Error) *server.Error {
	if cmd == nil {
		return e
	}
	told := *e
	rename := func(s string) string {
		s = quotedOrName.ReplaceAllStringFunc(s, func(w string) string {
			if w[0] != '"' {
				if typed := typedAs(cmd, w); typed != "" {
					return typed
				}
				if verb := commandOf(w); verb != "" {
					return verb
				}
			}
			return w
		})
		return passValue.ReplaceAllString(s, "pass $1 ")
	}
	flag := ""
	if e.Field != "" {
		flag = typedAs(cmd, e.Field)
	}
	if flag == "" {
		told.Message, told.Hint = rename(e.Message), rename(e.Hint)
		return &told
	}
	if !strings.Contains(e.Message+e.Hint, flag) {
		// A name that is a word, too, is one at the start of the message only.
		if rest, ok := strings.CutPrefix(e.Message, e.Field+" "); ok && verb.MatchString(rest) {
			told.Message = flag + " " + rest
		}
		if rest, ok := strings.CutPrefix(e.Hint, "give "+e.Field+":"); ok {
			told.Hint = "give " + flag + ":" + rest
		}
	}
	if strings.HasSuffix(e.Field, "_ms") {
		told.Message, told.Hint = durations(told.Message), durations(told.Hint)
	}
	told.Message, told.Hint = rename(told.Message), rename(told.Hint)
	// What is not there, or stands in the way, says so itself.
	wrong := e.Code == server.CodeInvalidArgument || e.Code == server.CodeTooLarge || e.Code == ""
	if f := cmd.Flags().Lookup(strings.TrimPrefix(flag, "--")); f != nil && f.Changed {
		wrong = true
	}
	if wrong && !strings.Contains(told.Message+told.Hint, flag) {
		told.Message += " (" + flag + ")"
	}
	return &told
}

// durations writes milliseconds as flags take them.
func durations(s string) string {
	return wholeNumber.ReplaceAllStringFunc(s, func(n string) string {
		ms, err := strconv.ParseInt(n, 10, 64)
		if err != nil || ms > int64(1<<53) {
			return n
		}
		return shortDuration(time.Duration(ms) * time.Millisecond)
	})
}

// shortDuration leaves the zeros of a duration out: 12h, not 12h0m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
