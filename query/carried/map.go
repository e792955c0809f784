package carried

import (
	"regexp"

	"tallystick/oplog"
	"tallystick/query/identity"
)

// Map tells a Kind what has become of the entries and names that a payload
// refers to. What was not carried keeps its name.
type Map struct {
	// find gives the entry that carries the one with this tag.
	find func(tag [8]byte) (oplog.Entry, bool)
	// called gives what the entry that carries the one of that id is called.
	called func(id string) (string, bool)
	names  *names
}

// Ref is the reference to the entry that carries the one referred to.
func (m *Map) Ref(ref oplog.Ref) oplog.Ref {
	if ref.IsZero() || m.find == nil {
		return ref
	}
	if e, ok := m.find(ref.Tag()); ok {
		return e.Ref()
	}
	return ref
}

// Hash is the hash of the entry that carries the one of that hash.
func (m *Map) Hash(h oplog.Hash) oplog.Hash {
	if h.IsZero() || m.find == nil {
		return h
	}
	if e, ok := m.find([8]byte(h[:8])); ok {
		return e.Hash
	}
	return h
}

// Hashes is Hash for each of a list.
func (m *Map) Hashes(list []oplog.Hash) []oplog.Hash {
	var out []oplog.Hash
	for _, h := range list {
		out = append(out, m.Hash(h))
	}
	return out
}

// ID is what is called so now: the id of the carrying entry when s is the id
// of a carried one, else s.
func (m *Map) ID(s string) string {
	if m.called != nil {
		if id, ok := m.called(s); ok {
			return id
		}
	}
	return s
}

var idText = regexp.MustCompile(`"(evt|art|sum|mem|chk|raw)_[0-9A-Za-z_]{8,60}"`)

// JSON is a JSON text with every string that is an id, whole, put through ID.
// All other bytes stay as they are.
func (m *Map) JSON(text []byte) []byte {
	if text == nil {
		return nil
	}
	return idText.ReplaceAllFunc(text, func(quoted []byte) []byte {
		return []byte(`"` + m.ID(string(quoted[1:len(quoted)-1])) + `"`)
	})
}

// Name is the name of an agent, after its machine's label has changed. Only
// names of agents of the own machine change.
func (m *Map) Name(s string) string { return m.names.now(s) }

// Names is Name for each of a list, which stays as it is when nothing changes.
func (m *Map) Names(list []string) []string {
	if m.names == nil || list == nil {
		return list
	}
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, m.Name(s))
	}
	return out
}

// Hosts gives the machine's label before and after; equal when it has not
// changed.
func (m *Map) Hosts() (before, after string) {
	if m.names == nil {
		return "", ""
	}
	return m.names.before, m.names.after
}

// names renames agents of one machine. A tuple names its machine; a flat name
// is only known to be one of this machine when it has written here.
type names struct {
	before, after string
	flat          map[string]bool
}

func (n *names) now(s string) string {
	if n == nil {
		return s
	}
	id, err := identity.Parse(s)
	if err != nil || id.Host != n.before || id.Flat && !n.flat[s] || id.String() != s {
		return s
	}
	id.Host = n.after
	return id.String()
}
