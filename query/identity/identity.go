// Package identity reads the names of actors: the tuple host:agent:project
// and the older flat host-agent (RFC 005), and the agentIdentity filter by
// which a caller asks for its own records, for one identity's or for all.
//
//	id, err := identity.Parse("mac:claude:tallystick")
//	f, err := identity.ParseFilter("agentIdentity", "@me", true, bound)
//
// Identities are whole tokens and compare by bytes. Nothing here trusts a
// name: that a caller is who it says is the server's to bind (I8).
package identity

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"tallystick/query/refusal"
)

// MaxLen is the longest identity in bytes.
const MaxLen = 256

// Identity is a parsed name. Project is empty for the flat form, and Host is
// empty for a flat name without a hyphen.
type Identity struct {
	Host, Agent, Project string
	Flat                 bool
}

// String is the name as it travels.
func (id Identity) String() string {
	switch {
	case !id.Flat:
		return id.Host + ":" + id.Agent + ":" + id.Project
	case id.Host == "":
		return id.Agent
	}
	return id.Host + "-" + id.Agent
}

// IsZero reports whether no identity is given.
func (id Identity) IsZero() bool { return id == Identity{} }

const tupleRule = "host:agent:project, each part a lower-case letter or digit, then a-z 0-9 . _ -"

// Parse reads a tuple or a flat name. Parts of a tuple are trimmed. Reserved
// words (me, all, *) are never identities, in any case.
func Parse(s string) (Identity, error) {
	s = strings.TrimSpace(s)
	switch {
	case s == "":
		return Identity{}, refusal.Invalid("identity", "use "+tupleRule, "identity is empty")
	case len(s) > MaxLen:
		return Identity{}, refusal.New(refusal.TooLarge, "identity", "use a shorter name", "identity has %d bytes, at most %d are allowed", len(s), MaxLen)
	case Reserved(s):
		return Identity{}, refusal.Invalid("identity", "choose another name", "%s is never an identity", refusal.Quote(s))
	}
	if strings.Contains(s, ":") {
		return parseTuple(s)
	}
	for _, c := range []byte(s) {
		if !flatByte(c) {
			return Identity{}, refusal.Invalid("identity", "use "+tupleRule, "identity %s has a character outside A-Z a-z 0-9 . _ -", refusal.Quote(s))
		}
	}
	id := Identity{Agent: s, Flat: true}
	if host, agent, ok := strings.Cut(s, "-"); ok && host != "" && agent != "" {
		id.Host, id.Agent = host, agent
	}
	return id, nil
}

func parseTuple(s string) (Identity, error) {
	parts := strings.Split(s, ":")
	if len(parts) != 3 {
		return Identity{}, refusal.Invalid("identity", "use "+tupleRule, "identity %s has %d parts, want 3", refusal.Quote(s), len(parts))
	}
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
		if !ValidPart(parts[i]) {
			return Identity{}, refusal.Invalid("identity", "use "+tupleRule, "the %s part of identity %s is %s",
				[]string{"host", "agent", "project"}[i], refusal.Quote(s), refusal.Quote(parts[i]))
		}
	}
	return Identity{Host: parts[0], Agent: parts[1], Project: parts[2]}, nil
}

// ValidPart reports whether s may be a part of a tuple.
func ValidPart(s string) bool {
	for i, c := range []byte(s) {
		lower := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !lower && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return s != ""
}

func flatByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
}

// Reserved reports the words that are never minted, in any case.
func Reserved(s string) bool {
	return strings.EqualFold(s, "me") || strings.EqualFold(s, "all") || s == "*"
}

// Strip takes one leading "@" off, which is how identities are compared.
func Strip(s string) string { return strings.TrimPrefix(s, "@") }

// MaxSources is how many identities one record may belong to.
const MaxSources = 32

// ParseSources reads a sourceAgentIdentities argument: the identities whose
// work a record is, without a leading @ and without repeats. Words that are no
// identity, and lists of more than MaxSources, are refused.
func ParseSources(in []string) ([]string, error) {
	const field = "sourceAgentIdentities"
	if len(in) > MaxSources {
		return nil, refusal.New(refusal.TooLarge, field, "name fewer", "%s has %d identities, at most %d are allowed", field, len(in), MaxSources)
	}
	out := make([]string, 0, len(in))
	for _, id := range in {
		id = Strip(id)
		if err := CheckToken(field, id); err != nil {
			return nil, err
		}
		if Reserved(id) || strings.HasPrefix(id, "@") {
			return nil, refusal.Invalid(field, "name the identity itself", "%s contains %s", field, refusal.Quote(id))
		}
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out, nil
}

// Filter is what an agentIdentity argument asks for: everybody's records, or
// those of one identity.
type Filter struct {
	All      bool
	Identity string // without a leading @; empty when All
}

// ParseFilter reads an agentIdentity argument. Absent (given false) or exactly
// "all" is team-wide; "@me" is the bound caller and fails when there is none,
// never widening (I8); anything else is one identity, whole and
// case-sensitive, with one leading "@" ignored.
func ParseFilter(field, value string, given bool, bound string) (Filter, error) {
	const hint = "use all, @me, or one identity such as host:agent:project"
	bad := func(what string) (Filter, error) {
		e := refusal.Invalid(field, hint, "%s is %s: %s", field, refusal.Quote(value), what)
		e.Allowed = []string{"all", "@me", "one identity"}
		return Filter{}, e
	}
	if !given || value == "all" {
		return Filter{All: true}, nil
	}
	if value == "@me" {
		if bound == "" {
			return Filter{}, refusal.New(refusal.IdentityUnbound, field, "name an identity, or start the server with --agent NAME",
				"%s is @me, but this session is bound to no identity", field)
		}
		return Filter{Identity: bound}, nil
	}
	name := Strip(value)
	switch {
	case strings.TrimSpace(name) == "":
		return bad("blank")
	case strings.TrimSpace(name) != name || strings.TrimSpace(value) != value:
		return bad("padded with white space")
	case strings.HasPrefix(name, "@"):
		return bad("more than one leading @")
	case Reserved(name):
		return bad("a reserved word")
	}
	if err := CheckToken(field, name); err != nil {
		return Filter{}, err
	}
	return Filter{Identity: name}, nil
}

// CheckToken checks what every stored identity must fit: 1 to MaxLen bytes of
// valid text, no padding, commas or control characters. Names from elsewhere
// (imports) need not be tuples.
func CheckToken(field, s string) error {
	const hint = "give one identity as one token"
	switch {
	case strings.TrimSpace(s) == "":
		return refusal.Invalid(field, hint, "%s is blank", field)
	case len(s) > MaxLen:
		return refusal.New(refusal.TooLarge, field, "use a shorter name", "%s has %d bytes, at most %d are allowed", field, len(s), MaxLen)
	case !utf8.ValidString(s):
		return refusal.Invalid(field, hint, "%s is not valid UTF-8", field)
	case strings.TrimSpace(s) != s:
		return refusal.Invalid(field, hint, "%s is padded with white space", field)
	case strings.Contains(s, ","):
		return refusal.Invalid(field, hint, "%s contains a comma", field)
	case strings.IndexFunc(s, unicode.IsControl) >= 0:
		return refusal.Invalid(field, hint, "%s contains control characters", field)
	}
	return nil
}
