package server

import (
	"slices"
	"strings"
)

// Toolsets says which tools a client is shown: a client's model pays for every
// tool in every turn, so the default is small. The zero value is the default.
// It hides, it does not forbid: local programs may call every tool.
type Toolsets struct {
	all   bool
	names []string // empty: the default
}

const (
	setDefault = "default"
	setAll     = "all"
)

// ToolsetNames lists what ParseToolsets takes.
func ToolsetNames() []string {
	names := []string{}
	for i := range tools {
		if s := tools[i].set; s != "" && !slices.Contains(names, s) {
			names = append(names, s)
		}
	}
	slices.Sort(names)
	return append([]string{setDefault, setAll}, names...)
}

// ParseToolsets reads "default", "all", or a list of toolsets with commas, such
// as "default,merges" or "events,mail". Empty is the default.
func ParseToolsets(text string) (Toolsets, error) {
	var s Toolsets
	known := ToolsetNames()
	for _, name := range strings.Split(text, ",") {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
		case !slices.Contains(known, name):
			e := invalid("toolsets", "use default, all, or a list such as default,merges", "there is no toolset %s", quote(name))
			e.Allowed = known
			return Toolsets{}, e
		case name == setAll:
			s.all = true
		default:
			s.names = append(s.names, name)
		}
	}
	return s, nil
}

// shows reports whether a tool is among those that are shown. Tools of no set
// always are.
func (s Toolsets) shows(t *tool) bool {
	switch {
	case s.all, t.set == "":
		return true
	case len(s.names) == 0:
		return !t.extra
	}
	return slices.Contains(s.names, t.set) || !t.extra && slices.Contains(s.names, setDefault)
}
