package minted

import (
	"slices"

	"tallystick/oplog"
)

// Request asks which name an agent goes by.
type Request struct {
	Host, Agent string
	Project     string // by the name of the folder, or as chosen; empty outside a repository
	Repo        Repo
	Chosen      bool // a person named the project
	// SameProject says that this repository is the one already known under
	// the project's name, though it does not look like it.
	SameProject bool
	// Spoken are names that instructions of this agent hold already.
	Spoken []string
	// Formerly are labels that this host had before. What was minted under them
	// says which project a repository is; names are of the host of today.
	Formerly []string
	// Mine reports whether an origin is of this host. Nil means that all are.
	Mine func(oplog.OriginID) bool
}

// Decision is the answer.
type Decision struct {
	Mint  Mint
	Known bool   // minted already; nothing is to be appended
	Why   string // for people
	// Collision is set when the project's name belongs to another repository of
	// this host. There is then no name.
	Collision *Collision
}

// Collision says whose a project's name is.
type Collision struct {
	Project string
	Theirs  Repo // the repository known under it
	Yours   Repo
}

// Decide finds the name. It reads and never writes; the caller appends
// NewOp(d.Mint) when the name is not known yet and is going to be used.
func Decide(views oplog.Views, q Request) (Decision, error) {
	mine := q.Mine
	if mine == nil {
		mine = func(oplog.OriginID) bool { return true }
	}
	all, err := List(views, "")
	if err != nil {
		return Decision{}, err
	}
	var here, before, elsewhere []Known
	for _, n := range all {
		switch {
		case n.Host == q.Host && mine(n.First.Origin()):
			here = append(here, n)
		case slices.Contains(q.Formerly, n.Host) && mine(n.First.Origin()):
			before = append(before, n)
		default:
			elsewhere = append(elsewhere, n)
		}
	}
	d := Decision{Mint: Mint{Host: q.Host, Agent: q.Agent, Repo: q.Repo, Chosen: q.Chosen || q.SameProject}}
	if q.Project == "" {
		d.Mint.Flat, d.Mint.Repo, d.Mint.Chosen = true, Repo{}, false
		d.Why = "there is no project outside a repository"
	} else if d.Mint.Project, d.Collision = project(&q, slices.Concat(here, before), elsewhere); d.Collision != nil {
		return d, nil
	} else if d.Mint.Flat, d.Why, err = form(views, &q, d.Mint.Project, here, mine); err != nil {
		return Decision{}, err
	}
	for _, name := range q.Spoken {
		if name != d.Mint.Name() && !slices.Contains(d.Mint.Former, name) && len(d.Mint.Former) < MaxFormer {
			d.Mint.Former = append(d.Mint.Former, name)
		}
	}
	told, err := Former(views, q.Host, q.Agent)
	if err != nil {
		return Decision{}, err
	}
	d.Mint.Former = slices.DeleteFunc(d.Mint.Former, func(name string) bool { return slices.Contains(told, name) })
	d.Known = len(d.Mint.Former) == 0 && known(&d.Mint, here)
	return d, nil
}

// project settles the project's name: the one that a person chose for this
// repository last, else the first under which it became known on this host,
// else elsewhere, else the folder's.
func project(q *Request, here, elsewhere []Known) (string, *Collision) {
	if !q.Chosen && !q.SameProject {
		var chosen, first, far *Known
		for i := range here {
			n := &here[i]
			if n.Project == "" || n.Repo.Compare(q.Repo) != Same {
				continue
			}
			if n.Chosen && (chosen == nil || n.Last.Compare(chosen.Last) > 0) {
				chosen = n
			}
			if first == nil || n.First.Compare(first.First) < 0 {
				first = n
			}
		}
		if chosen != nil {
			return chosen.Project, nil
		}
		if first != nil {
			return first.Project, nil
		}
		for i := range elsewhere {
			n := &elsewhere[i]
			if n.Project != "" && n.Repo.Compare(q.Repo) == Same && (far == nil || n.First.Compare(far.First) < 0) && taken(n.Project, q.Repo, here) == nil {
				far = n
			}
		}
		if far != nil {
			return far.Project, nil
		}
	}
	if q.SameProject {
		return q.Project, nil
	}
	if other := taken(q.Project, q.Repo, here); other != nil {
		return "", &Collision{Project: q.Project, Theirs: other.Repo, Yours: q.Repo}
	}
	return q.Project, nil
}

// taken finds a repository that has a name, if it is not this one.
func taken(project string, repo Repo, here []Known) (other *Known) {
	for i := range here {
		n := &here[i]
		if n.Project != project {
			continue
		}
		switch n.Repo.Compare(repo) {
		case Same:
			return nil
		case Different:
			if other == nil || n.First.Compare(other.First) < 0 {
				other = n
			}
		}
	}
	return other
}

// form decides between flat and tuple. An agent that is new takes the tuple;
// one that speaks under its flat name keeps it until a second project or
// somebody else of that name appears; and there is no way back.
func form(views oplog.Views, q *Request, project string, here []Known, mine func(oplog.OriginID) bool) (flat bool, why string, err error) {
	flatName := (&Mint{Host: q.Host, Agent: q.Agent, Flat: true}).Name()
	spoke, second := slices.Contains(q.Spoken, flatName), ""
	for _, n := range here {
		if n.Agent != q.Agent || !n.Flat {
			continue
		}
		spoke = true
		if n.Project != "" && n.Project != project && n.Repo.Compare(q.Repo) != Same {
			second = n.Project
		}
	}
	tuple, err := spokenTuple(views, q.Host, q.Agent)
	if err != nil {
		return false, "", err
	}
	if tuple {
		return false, "this agent goes by tuples here already", nil
	}
	origins, err := SpokenFrom(views, flatName)
	if err != nil {
		return false, "", err
	}
	foreign := false
	for _, o := range origins {
		if mine(o) {
			spoke = true
		} else {
			foreign = true
		}
	}
	switch {
	case !spoke:
		return false, "this agent is new here", nil
	case second != "":
		return false, "it has a second project besides " + second, nil
	case foreign:
		return false, "another machine writes as " + flatName + ", too", nil
	}
	return true, "it speaks under this name already and has one project", nil
}

// known reports whether the log says all of it. What a person chose must also
// be the last choice for its repository.
func known(m *Mint, here []Known) bool {
	var same *Known
	for i := range here {
		n := &here[i]
		if n.Agent == m.Agent && n.Project == m.Project && n.Flat == m.Flat && !m.Repo.adds(n.Repo) && (n.Chosen || !m.Chosen) {
			if same == nil || n.Last.Compare(same.Last) > 0 {
				same = n
			}
		}
	}
	if same == nil || !m.Chosen {
		return same != nil
	}
	for i := range here {
		n := &here[i]
		if n.Chosen && n.Project != m.Project && n.Repo.Compare(m.Repo) == Same && n.Last.Compare(same.Last) > 0 {
			return false
		}
	}
	return true
}
