package server

import (
	"context"
	"slices"
	"strings"

	"tallystick/oplog"
	"tallystick/query/claim"
	"tallystick/query/identity"
	"tallystick/query/logstream"
	"tallystick/query/mailbox"
	"tallystick/query/merges"
	"tallystick/query/minted"
)

// Forms of an identity that a session may be held to.
const (
	FormFlat  = "flat"
	FormTuple = "tuple"
)

// bound is a session's identity as it was decided, and how much of the views
// that took into account.
type bound struct {
	count   uint64
	id      Identity
	changed <-chan struct{} // of the log; while it is the same, nothing was committed
}

// maxBound is how many sessions' identities are remembered.
const maxBound = 1024

// bind finds the identity of a session: the name that was minted for this
// agent in this repository, or the one that is to be (RFC 005). When the
// project's name belongs to another repository the session is unbound, and
// says why to whoever writes or asks for @me.
func (s *Service) bind(session Session) (Identity, *Error) {
	label := s.d.Mesh.Self().Label
	id, bad := Bind(label, session)
	if bad != nil || !id.Bound || id.Project == "" && session.Form == "" {
		return id, bad
	}
	session.Client = ""
	changed := s.d.Log.Changed()
	b, known := s.binds.get(session)
	known = known && b.id.Host == label // else the replica was renamed
	if known && b.changed == changed {
		return b.id, nil
	}
	err := s.d.Log.View(func(snap oplog.Snapshot) error {
		n, err := minted.Count(snap)
		if err != nil {
			return err
		}
		if known && b.count == n {
			id, b.changed = b.id, changed
			s.binds.put(session, b)
			return nil
		}
		d, err := minted.Decide(snap, s.mintRequest(id, session))
		if err != nil {
			return err
		}
		id = boundTo(id, session, d)
		s.binds.put(session, bound{n, id, changed})
		return nil
	})
	if err != nil {
		return Identity{}, s.asError(context.Background(), err)
	}
	return id, nil
}

func (s *Service) mintRequest(id Identity, session Session) minted.Request {
	self, label := s.d.Log.Self().ID, s.d.Mesh.Self().Label
	return minted.Request{
		Host: label, Agent: id.Agent, Project: id.Project, Repo: minted.Repo{Root: session.Root, Remote: session.Remote},
		Mine: func(o oplog.OriginID) bool { return o == self || s.d.Mesh.LabelOf(o) == label }, Formerly: s.formerHosts(),
	}
}

func (s *Service) formerly() []merges.LabelMove {
	if s.d.Formerly == nil {
		return nil
	}
	return s.d.Formerly()
}

func (s *Service) formerHosts() (hosts []string) {
	for _, m := range s.formerly() {
		hosts = append(hosts, m.From)
	}
	return hosts
}

// boundTo is the identity that a decision gives a session. One that is held to
// a form keeps its name while it runs, whatever was minted since.
func boundTo(id Identity, session Session, d minted.Decision) Identity {
	if session.Form != "" {
		m := d.Mint
		m.Project, m.Flat = id.Project, session.Form == FormFlat
		if d.Collision != nil || m.Name() != d.Mint.Name() {
			return id
		}
	}
	if d.Collision != nil {
		return Identity{Host: id.Host, Agent: id.Agent, why: collided(id.Host, d.Collision)}
	}
	id.Name, id.Project = d.Mint.Name(), d.Mint.Project
	if !d.Known && session.InRepo {
		id.mint = &d.Mint
	}
	return id
}

func collided(host string, c *minted.Collision) *Error {
	return fail(CodeConflict, "project",
		"name this one with `tally init --project NAME`; or, if it is the same project, say `tally init --same-project`",
		"project %s on %s is another repository (%s) than this one (%s)", c.Project, host, c.Theirs, c.Yours)
}

// mintAfter writes a new name into the log after its first write, so that what
// is refused mints nothing.
func (s *Service) mintAfter(ctx context.Context, id Identity) {
	if id.mint == nil {
		return
	}
	if bad := s.mintNow(ctx, id.mint); bad != nil {
		s.log.Warn("the name was not minted; the next write tries again", "identity", id.Name, "error", bad)
	}
}

func (s *Service) mintNow(ctx context.Context, m *minted.Mint) *Error {
	op, err := minted.NewOp(*m)
	if err == nil {
		_, err = s.d.Log.Append(ctx, op)
	}
	if err != nil {
		return s.asError(ctx, err)
	}
	return nil
}

// formerFlats are the flat names that a flat one of this host had before the
// host was renamed. A tuple needs none: its host says no more than its device.
func (s *Service) formerFlats(name string) (list []string) {
	agent, flat := strings.CutPrefix(name, s.d.Mesh.Self().Label+"-")
	if !flat || strings.Contains(name, ":") {
		return nil
	}
	for _, host := range s.formerHosts() {
		list = append(list, host+"-"+agent)
	}
	return list
}

// IdentityRequest asks which name an agent goes by.
type IdentityRequest struct {
	Session Session `json:"session"`
	// Project is a name that a person chose for the repository.
	Project string `json:"project,omitempty"`
	// SameProject says that the repository is the one known by that name.
	SameProject bool `json:"same_project,omitempty"`
	// Spoken are names that the agent's instructions hold already.
	Spoken []string `json:"spoken,omitempty"`
	// Mint writes the name into the log.
	Mint bool `json:"mint,omitempty"`
}

// IdentityAnswer is that name.
type IdentityAnswer struct {
	Identity string   `json:"identity"`
	Host     string   `json:"host"`
	Agent    string   `json:"agent"`
	Project  string   `json:"project,omitempty"`
	Form     string   `json:"form"` // flat or tuple
	Why      string   `json:"why"`
	New      bool     `json:"new"` // the log did not have it before
	Former   []string `json:"former,omitempty"`
	// FormerHosts are labels that this replica had before and no replica has now.
	FormerHosts []string `json:"former_hosts,omitempty"`
}

// Identity decides an agent's name and mints it if asked to.
func (s *Service) Identity(ctx context.Context, q IdentityRequest) (IdentityAnswer, *Error) {
	if q.Project != "" {
		q.Session.Project = q.Project
	}
	q.Session.Form = ""
	id, bad := Bind(s.d.Mesh.Self().Label, q.Session)
	if bad != nil {
		return IdentityAnswer{}, bad
	}
	if !id.Bound {
		return IdentityAnswer{}, fail(CodeIdentityUnbound, "agent", "give --agent NAME", "no agent is named")
	}
	r := s.mintRequest(id, q.Session)
	r.Chosen, r.SameProject = q.Project != "", q.SameProject
	for _, name := range q.Spoken {
		if identity.CheckToken("spoken", name) == nil && !identity.Reserved(name) && !slices.Contains(r.Spoken, name) {
			r.Spoken = append(r.Spoken, name)
		}
	}
	var d minted.Decision
	err := s.d.Log.View(func(snap oplog.Snapshot) (err error) {
		d, err = minted.Decide(snap, r)
		return err
	})
	switch {
	case err != nil:
		return IdentityAnswer{}, s.asError(ctx, err)
	case d.Collision != nil:
		return IdentityAnswer{}, collided(id.Host, d.Collision)
	}
	if q.Mint && !d.Known {
		if bad := s.mintNow(ctx, &d.Mint); bad != nil {
			return IdentityAnswer{}, bad
		}
	}
	a := IdentityAnswer{Identity: d.Mint.Name(), Host: id.Host, Agent: id.Agent, Project: d.Mint.Project, Form: FormTuple, Why: d.Why, New: !d.Known, Former: d.Mint.Former}
	if d.Mint.Flat {
		a.Form = FormFlat
	}
	if a.FormerHosts = s.formerHosts(); a.FormerHosts != nil {
		h := s.d.Mesh.Horizon()
		a.FormerHosts = slices.DeleteFunc(a.FormerHosts, func(host string) bool {
			return slices.ContainsFunc(h.Members, func(m claim.MemberFloor) bool { return m.Label == host })
		})
	}
	return a, nil
}

// oldName is a name that an agent of this host does not go by any more, and
// that is still written to.
type oldName struct {
	Name   string `json:"name"`
	Now    string `json:"now"`    // what it goes by, * for the project
	Events int    `json:"events"` // addressed to the old name since
	Unread int64  `json:"unread"` // mail to it that nobody has read, also from before
}

// renamedHost is a name of a host that goes by another label now.
func renamedHost(name, from, to string) string {
	if rest, ok := strings.CutPrefix(name, from+"-"); ok && !strings.Contains(name, ":") {
		return to + ":" + rest + ":*"
	}
	return to + strings.TrimPrefix(name, from)
}

// maxOldMail bounds how many events to one old name are counted.
const maxOldMail = 1000

// oldNames looks for events addressed to names that agents of this host went
// by before they had tuples, or the host another label (RFC 005: they are shown,
// not lost).
func (s *Service) oldNames() (list []oldName, err error) {
	label, self, formerly := s.d.Mesh.Self().Label, s.d.Log.Self().ID, s.formerly()
	err = s.d.Log.View(func(snap oplog.Snapshot) error {
		shown := map[string]bool{}
		add := func(name, now string, since oplog.Ref) error {
			if shown[name] {
				return nil
			}
			shown[name] = true
			n, err := logstream.Addressed(snap, name, since, maxOldMail)
			if err != nil {
				return err
			}
			mail, err := mailbox.CountsOf(snap, name)
			if err == nil && (n > 0 || mail.Unread > 0) {
				list = append(list, oldName{Name: name, Now: now, Events: n, Unread: mail.Unread})
			}
			return err
		}
		for _, m := range formerly {
			names, err := minted.SpokenAt(snap, m.From, func(o oplog.OriginID) bool { return o == self || s.d.Mesh.LabelOf(o) == label })
			if err != nil {
				return err
			}
			for _, name := range names {
				if err := add(name, renamedHost(name, m.From, label), m.Kept); err != nil {
					return err
				}
			}
		}
		names, err := minted.List(snap, label)
		if err != nil {
			return err
		}
		since := map[string]oplog.Ref{} // agent to its first tuple
		var agents []string
		for _, n := range names {
			if o := n.First.Origin(); n.Flat || o != self && s.d.Mesh.LabelOf(o) != label {
				continue
			}
			first, ok := since[n.Agent]
			if !ok {
				agents = append(agents, n.Agent)
			}
			if !ok || n.First.Compare(first) < 0 {
				since[n.Agent] = n.First
			}
		}
		for _, agent := range agents {
			old, err := minted.Former(snap, label, agent)
			if err != nil {
				return err
			}
			if flat := label + "-" + agent; !slices.Contains(old, flat) {
				old = append(old, flat)
			}
			for _, name := range old {
				if err := add(name, label+":"+agent+":*", since[agent]); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return list, err
}
