package minted

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"tallystick/oplog"
	"tallystick/query/identity"
	"tallystick/query/internal/pack"
	"tallystick/query/refusal"
)

// Kind is the kind of entry of this domain.
const Kind = "identity"

// PayloadVersion is the version of the payload that this program writes and
// reads.
const PayloadVersion = 0

// Limits, in bytes unless said otherwise.
const (
	MaxPart   = 128
	MaxRemote = 512
	MaxFormer = 8 // names
	maxRoot   = 64
)

// Mint is the payload: one name, and what it was made of.
type Mint struct {
	Host, Agent string
	// Project is empty outside any repository. A flat name has one, too, when
	// it is used in a repository: it is how a second project is noticed.
	Project string
	Flat    bool
	Repo    Repo
	Chosen  bool // a person named the project
	// Former are names that the agent's instructions held until now and that it
	// does not go by any more. Mail to them is still looked for.
	Former []string
}

// Name is the identity.
func (m *Mint) Name() string {
	if m.Flat {
		return m.Host + "-" + m.Agent
	}
	return m.Host + ":" + m.Agent + ":" + m.Project
}

func (m *Mint) check() error {
	const hint = "use lower-case letters, digits and . _ -, a letter or digit first"
	for _, p := range []struct{ field, value string }{{"host", m.Host}, {"agent", m.Agent}, {"project", m.Project}} {
		switch {
		case p.value == "" && p.field == "project" && m.Flat:
		case len(p.value) > MaxPart:
			return refusal.New(refusal.TooLarge, p.field, "use a shorter name", "%s has %d bytes, at most %d are allowed", p.field, len(p.value), MaxPart)
		case !identity.ValidPart(p.value):
			return refusal.Invalid(p.field, hint, "%s is %s", p.field, refusal.Quote(p.value))
		}
	}
	if strings.Contains(m.Host, "-") {
		return refusal.Invalid("host", "labels have no hyphen", "host %s has a hyphen", refusal.Quote(m.Host))
	}
	if identity.Reserved(m.Agent) {
		return refusal.Invalid("agent", "choose another name", "%s is never an identity", refusal.Quote(m.Agent))
	}
	if err := m.Repo.check(); err != nil {
		return err
	}
	if len(m.Former) > MaxFormer {
		return refusal.New(refusal.TooLarge, "former", "name fewer", "%d former names, at most %d are allowed", len(m.Former), MaxFormer)
	}
	for _, f := range m.Former {
		if err := identity.CheckToken("former", f); err != nil {
			return err
		}
	}
	return nil
}

// NewOp makes the op that mints a name. The name is the author; the op id is
// made of what is minted, so that two windows mint it once. A choice may be
// made again after another one, so it has none.
func NewOp(m Mint) (oplog.Op, error) {
	if err := m.check(); err != nil {
		return oplog.Op{}, err
	}
	op := oplog.Op{Kind: Kind, Author: m.Name(), Version: PayloadVersion, Body: m.encode()}
	if !m.Chosen {
		sum := sha256.Sum256(op.Body)
		op.OpID = "mint/" + hex.EncodeToString(sum[:16])
	}
	return op, nil
}

const fields = 8

func (m *Mint) encode() []byte {
	b := pack.Array(make([]byte, 0, 128), fields)
	for _, s := range []string{m.Host, m.Agent, m.Project} {
		b = pack.Str(b, s)
	}
	b = pack.Bool(b, m.Flat)
	b = pack.Str(pack.Str(b, m.Repo.Root), m.Repo.Remote)
	b = pack.Bool(b, m.Chosen)
	b = pack.Array(b, len(m.Former))
	for _, f := range m.Former {
		b = pack.Str(b, f)
	}
	return b
}

// Decode reads and checks an entry of this kind. An error is a
// *oplog.QuarantineError.
func Decode(e *oplog.Entry) (Mint, error) {
	if e.Version != PayloadVersion {
		return Mint{}, oplog.Quarantine("identity of payload version %d; this program reads %d", e.Version, PayloadVersion)
	}
	r := pack.NewReader(e.Body)
	r.Exactly(fields)
	var m Mint
	for _, s := range []*string{&m.Host, &m.Agent, &m.Project} {
		*s = string(r.Str(MaxPart))
	}
	m.Flat = r.Bool()
	m.Repo.Root, m.Repo.Remote = string(r.Str(maxRoot)), string(r.Str(MaxRemote))
	m.Chosen = r.Bool()
	for n := r.Array(MaxFormer); n > 0 && r.Err() == nil; n-- {
		m.Former = append(m.Former, string(r.Str(identity.MaxLen)))
	}
	err := r.End()
	if err == nil {
		err = m.check()
	}
	if err == nil && e.Author != m.Name() {
		err = fmt.Errorf("minted by %q, not by the name itself", e.Author)
	}
	if err != nil {
		return Mint{}, oplog.Quarantine("identity: %v", err)
	}
	return m, nil
}

// Repo tells a repository apart from others, wherever it lies.
type Repo struct {
	Root   string // first commit, in hex; empty when there is none or it is not known
	Remote string // host/path of the remote, as CleanRemote gives it; empty when there is none
}

// IsZero reports that nothing is known of the repository.
func (r Repo) IsZero() bool { return r == Repo{} }

func (r Repo) check() error {
	if r.Root != "" && len(r.Root) != 40 && len(r.Root) != 64 || strings.Trim(r.Root, "0123456789abcdef") != "" {
		return refusal.Invalid("root", "give the first commit's full id", "root is %s, no commit id", refusal.Quote(r.Root))
	}
	bad := func(c rune) bool { return unicode.IsControl(c) || c == ' ' }
	if len(r.Remote) > MaxRemote || !utf8.ValidString(r.Remote) || strings.IndexFunc(r.Remote, bad) >= 0 {
		return refusal.Invalid("remote", "leave it out", "remote is no address of at most %d bytes", MaxRemote)
	}
	return nil
}

// Relation is what two descriptions of repositories say of each other.
type Relation int

// Unknown: there is nothing to compare. A remote that both have decides; a
// fork has the first commit of another repository and is not it.
const (
	Unknown Relation = iota
	Same
	Different
)

// Compare compares two repositories.
func (r Repo) Compare(o Repo) Relation {
	switch {
	case r.Remote != "" && o.Remote != "":
		if r.Remote == o.Remote {
			return Same
		}
		return Different
	case r.Root != "" && o.Root != "":
		if r.Root == o.Root {
			return Same
		}
		return Different
	}
	return Unknown
}

// adds reports whether r says something that o does not.
func (r Repo) adds(o Repo) bool {
	return r.Root != "" && r.Root != o.Root || r.Remote != "" && r.Remote != o.Remote
}

func (r Repo) String() string {
	switch {
	case r.Remote != "":
		return r.Remote
	case r.Root != "":
		return "first commit " + r.Root[:12]
	}
	return "a repository without commits"
}

// CleanRemote makes one form of the many ways to write a remote's address:
// host/path in lower case, without scheme, user, password, port or .git. It is
// empty for a folder of this machine, which says nothing elsewhere.
func CleanRemote(url string) string {
	s := strings.TrimSpace(url)
	scheme, rest, ok := strings.Cut(s, "://")
	var host, path string
	if ok {
		if scheme == "file" {
			return ""
		}
		host, path, _ = strings.Cut(rest, "/")
	} else {
		host, path, ok = strings.Cut(s, ":") // user@host:path
		if !ok || strings.ContainsAny(host, `/\`) || len(host) == 1 {
			return "" // a path, or C:\
		}
	}
	if i := strings.LastIndexByte(host, '@'); i >= 0 {
		host = host[i+1:]
	}
	if scheme != s { // only a URL has a port
		host, _, _ = strings.Cut(host, ":")
	}
	path, _, _ = strings.Cut(path, "?")
	path = strings.Trim(path, "/")
	path = strings.Trim(strings.TrimSuffix(path, ".git"), "/")
	out := strings.ToLower(host + "/" + path)
	if host == "" || path == "" || (Repo{Remote: out}).check() != nil {
		return ""
	}
	return out
}
