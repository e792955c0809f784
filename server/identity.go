package server

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"tallystick/oplog"
	"tallystick/query/identity"
	"tallystick/query/minted"
)

// Session says on whose behalf a local process calls. The host part of the
// identity is never in it: that is the replica's label (I8). The zero Session
// is unbound: it may read team-wide and writes nothing.
type Session struct {
	Agent   string `json:"agent,omitempty"`   // the agent part, e.g. "claude"
	Project string `json:"project,omitempty"` // empty: flat identity host-agent
	Bound   bool   `json:"bound"`             // whether Agent and Project count
	Client  string `json:"client,omitempty"`  // program that calls, for the log only

	// What the working directory's repository is, as far as its client can tell;
	// see minted.Repo. InRepo says that Project was taken from it.
	InRepo bool   `json:"in_repo,omitempty"`
	Root   string `json:"root,omitempty"`
	Remote string `json:"remote,omitempty"`
	// Form holds a long session to the form that its name had at the start,
	// FormFlat or FormTuple. Empty: the name is decided at every call.
	Form string `json:"form,omitempty"`
}

// Identity is what a Session is bound to on one replica.
type Identity struct {
	Name    string // host:agent:project or host-agent; empty when unbound
	Host    string
	Agent   string
	Project string
	Bound   bool

	mint *minted.Mint // to be written before the first write; nil: it is known
	why  *Error       // why a session that names an agent is not bound
}

// Limits of the parts of an identity, in bytes.
const (
	maxAgentPart   = 64
	maxProjectPart = 128
)

var partPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*$`)

const partRule = "lower-case letter or digit first, then a-z 0-9 . _ -"

// Bind computes the identity of a session on the replica with this label,
// without a look at the names that are minted already.
func Bind(label string, s Session) (Identity, *Error) {
	id := Identity{Host: label}
	if !s.Bound {
		return id, nil
	}
	agent, err := identityPart("agent", s.Agent, maxAgentPart)
	if err != nil {
		return Identity{}, err
	}
	if agent == "" {
		return Identity{}, invalid("agent", "start with --agent NAME, e.g. --agent claude", "the agent part of the identity is empty")
	}
	project, err := identityPart("project", s.Project, maxProjectPart)
	if err != nil {
		return Identity{}, err
	}
	if s.Form != "" && s.Form != FormFlat && s.Form != FormTuple {
		return Identity{}, invalid("form", "leave it out", "the form of the identity is %s", quote(s.Form))
	}
	id.Agent, id.Project, id.Bound = agent, project, true
	if project == "" || s.Form == FormFlat {
		id.Name = label + "-" + agent
	} else {
		id.Name = label + ":" + agent + ":" + project
	}
	return id, nil
}

func identityPart(field, s string, limit int) (string, *Error) {
	s = strings.TrimSpace(s)
	switch {
	case s == "":
		return "", nil
	case len(s) > limit:
		return "", invalid(field, "use a shorter name", "the %s part of the identity has %d bytes, at most %d are allowed", field, len(s), limit)
	case strings.Contains(s, ":"):
		return "", invalid(field, "give only this part; the server joins host, agent and project itself", "the %s part of the identity contains a colon", field)
	case !partPattern.MatchString(s):
		e := invalid(field, "for example \"claude\"", "the %s part of the identity is %s; allowed: %s", field, quote(s), partRule)
		e.Allowed = []string{partRule}
		return "", e
	case field == "agent" && identity.Reserved(s):
		return "", invalid(field, "choose another name", "%s is never an identity", quote(s))
	}
	return s, nil
}

// checkFrom refuses a from_agent or created_by that is not the bound identity
// (I8).
func (id Identity) checkFrom(field, given string) *Error {
	given = strings.TrimPrefix(strings.TrimSpace(given), "@")
	if given == "" || id.Bound && (given == id.Name || given == "me") {
		return nil
	}
	if !id.Bound {
		return fail(CodeIdentityMismatch, field, "leave the field out, and start the server with --agent NAME to write",
			"%s is %s, but this session is bound to no identity", field, quote(given))
	}
	e := fail(CodeIdentityMismatch, field, "leave the field out: the server fills it in",
		"%s is %s, but this session is bound to %s", field, quote(given), quote(id.Name))
	e.Allowed = []string{id.Name}
	return e
}

// bindWriter binds the identity of a session that is to write.
func (s *Service) bindWriter(session Session) (Identity, *Error) {
	id, bad := s.bind(session)
	if bad == nil {
		bad = id.mayWrite()
	}
	return id, bad
}

func (id Identity) mayWrite() *Error {
	if id.Bound {
		return nil
	}
	if id.why != nil {
		return id.why
	}
	return fail(CodeIdentityUnbound, "", "start the server with `tally mcp --agent NAME`, or use a token made with --agent; reading works without",
		"this session is bound to no identity, so it may not write")
}

// resolveMe reads an identity that a caller names: @me is the bound one, else
// one leading @ is ignored. It never widens.
func (id Identity) resolveMe(field, given string) (string, *Error) {
	if given == "@me" {
		if !id.Bound {
			return "", fail(CodeIdentityUnbound, field, "name an identity, or start the server with --agent NAME",
				"%s is @me, but this session is bound to no identity", field)
		}
		return id.Name, nil
	}
	name := strings.TrimPrefix(given, "@")
	if name != "*" && identity.Reserved(name) || strings.HasPrefix(name, "@") {
		return "", invalid(field, "use @me for yourself, * for everybody, or one identity such as host:agent:project", "%s is %s, which names nobody", field, quote(given))
	}
	return name, nil
}

// recipient reads the identity that something is sent to. Names from elsewhere
// need not be tuples, but what can name nobody is refused.
func (id Identity) recipient(a arguments, field string) (string, *Error) {
	name, bad := id.resolveMe(field, a.str(field))
	if bad != nil || !a.has(field) || name == "*" {
		return name, bad
	}
	const hint = "give an identity such as host:agent:project or host-agent, or * for everybody"
	if name == "" {
		return "", invalid(field, hint, "%s is blank", field)
	}
	if strings.IndexFunc(name, unicode.IsSpace) >= 0 {
		return "", invalid(field, hint, "%s is %s, and an identity has no white space", field, quote(name))
	}
	if slices.Contains(strings.Split(name, ":"), "") {
		return "", invalid(field, hint, "%s is %s, and a part of it is empty", field, quote(name))
	}
	return name, nil
}

// unheard notes that nothing of a recipient has arrived here: it may be on its
// way, or misspelled.
func (s *Service) unheard(from, to string) (note string, err error) {
	if to == "" || to == "*" || to == from {
		return "", nil
	}
	err = s.d.Log.View(func(snap oplog.Snapshot) error {
		known, err := minted.Spoke(snap, to)
		if err != nil || known {
			return err
		}
		near, err := minted.SpeakersNear(snap, to)
		for i := range near {
			near[i] = quote(near[i])
		}
		note = "nothing of " + quote(to) + " has arrived here yet"
		if len(near) > 0 {
			note += "; near names: " + strings.Join(near, ", ")
		}
		return err
	})
	return note, err
}

// ProjectOf names the project of a directory: the base name of the main
// working tree, so that all worktrees of one repository are one project.
// It is empty outside a repository and when the top level is the home
// directory.
func ProjectOf(dir string) string {
	w, _ := WorkingTreeOf(dir)
	return w.Project
}

// WorkingTree is where a directory's repository is.
type WorkingTree struct {
	Project string // name of the main working tree, as a part of an identity
	Top     string // the working tree that the directory is in
	GitDir  string // what all working trees of the repository share
}

// WorkingTreeOf finds the repository of a directory. It reports false outside
// one and when its top level is the home directory.
func WorkingTreeOf(dir string) (WorkingTree, bool) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return WorkingTree{}, false
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	home, _ := os.UserHomeDir()
	if real, err := filepath.EvalSymlinks(home); err == nil {
		home = real
	}
	for {
		top, common, found := mainTree(dir)
		if found {
			w := WorkingTree{Project: CleanPart(strings.TrimSuffix(filepath.Base(top), ".git")), Top: dir, GitDir: common}
			if top == home || dir == home || w.Project == "" {
				return WorkingTree{}, false
			}
			return w, true
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return WorkingTree{}, false
		}
		dir = parent
	}
}

// mainTree looks for .git in dir and follows a linked worktree to the main
// one. common is the Git directory that they share.
func mainTree(dir string) (top, common string, found bool) {
	git := filepath.Join(dir, ".git")
	info, err := os.Stat(git)
	if err != nil {
		return "", "", false
	}
	if info.IsDir() {
		_, err := os.Stat(filepath.Join(git, "HEAD"))
		return dir, git, err == nil
	}
	link, err := ReadSmallFile(git, maxNoteFile)
	target, ok := strings.CutPrefix(strings.TrimSpace(string(link)), "gitdir:")
	if err != nil || !ok {
		return "", "", false
	}
	target = absTo(dir, strings.TrimSpace(target))
	shared, err := ReadSmallFile(filepath.Join(target, "commondir"), maxNoteFile)
	if err != nil {
		return dir, target, true // a submodule: it is a tree of its own
	}
	common = absTo(target, strings.TrimSpace(string(shared)))
	switch filepath.Base(common) {
	case ".git", ".bare":
		return filepath.Dir(common), common, true
	}
	return common, common, true // a bare repository with worktrees
}

func absTo(dir, path string) string {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	return filepath.Clean(path)
}

// CleanPart makes a part of an identity out of any name: lowered, other
// characters to a hyphen. It is empty when nothing usable is left.
func CleanPart(name string) string {
	mapped := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			return r
		}
		return '-'
	}, strings.ToLower(name))
	mapped = strings.TrimLeft(mapped, "._-")
	if len(mapped) > maxAgentPart {
		mapped = mapped[:maxAgentPart]
	}
	return mapped
}
