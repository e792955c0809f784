package server

import (
	"encoding/json"

	"tallystick/oplog"
	"tallystick/query"
	"tallystick/query/logstream"
	"tallystick/query/memory"
	"tallystick/query/rawmemory"
	"tallystick/query/search"
	"tallystick/query/summary"
)

// maxFoundText is how much of a text a search over everything shows.
const maxFoundText = 300

// foundRowOf reads a hit of any kind from the log; oplog.ErrNotFound when it
// does not hold any longer.
func foundRowOf(snap oplog.Snapshot, h *search.Hit) (foundRow, error) {
	r := foundRow{ID: h.ID, Score: h.Score, Why: h.Why.String(), Category: h.Category, Whose: []string{}}
	switch h.Kind {
	case query.DocFact:
		rec, err := memory.ByRef(snap, h.Ref)
		if err != nil {
			return r, err
		}
		if rec.Retired != nil {
			return r, oplog.ErrNotFound
		}
		r.Kind, r.Text, r.Where, r.Whose, r.Invisible = "fact", rec.Text, rec.Namespace, []string{rec.Author}, rec.Invisible
		r.Timestamp = &rec.CreatedAt
	case query.DocTurn:
		rec, err := rawmemory.ByRef(snap, h.Ref, nil)
		if err != nil {
			return r, err
		}
		r.Kind, r.Text, r.Where, r.Whose, r.Invisible = "turn", rec.Prompt+"\n"+rec.Response, rec.SessionID, rec.Identities, rec.Invisible
		r.Timestamp = rec.Timestamp
	case query.DocSummary:
		rec, err := summary.ByRef(snap, h.Ref, nil)
		if err != nil {
			return r, err
		}
		r.Kind, r.Title, r.Text, r.Where, r.Whose, r.Invisible = "summary", rec.Title, rec.Summary, rec.SessionID, rec.Identities, rec.Invisible
		r.Timestamp = rec.Timestamp
	default:
		rec, err := logstream.ByRef(snap, h.Ref, nil)
		if err != nil {
			return r, err
		}
		r.Kind, r.Text, r.Where, r.Whose, r.Invisible = h.Kind, rec.Body, rec.Stream, []string{rec.FromAgent}, rec.Invisible
		if rec.ToAgent != "" {
			r.Whose = append(r.Whose, rec.ToAgent)
		}
		r.Timestamp = &rec.CreatedAt
		var meta struct {
			Title   string `json:"title"`
			Subject string `json:"subject"`
		}
		if json.Unmarshal(rec.Metadata, &meta) == nil {
			r.Title = meta.Title + meta.Subject
		}
	}
	r.Text = cut(r.Text, maxFoundText)
	return r, nil
}

// searchRow is the state of the search index in mesh_status.
type searchRow struct {
	Documents int         `json:"documents"`
	Others    int         `json:"others"` // superseded or forgotten
	Behind    uint64      `json:"behind"` // entries it has not seen yet
	Kept      string      `json:"kept"`   // where it is kept over a restart
	Rebuilt   []string    `json:"rebuilt,omitempty"`
	Fault     string      `json:"fault,omitempty"`
	Vectors   *vectorsRow `json:"vectors,omitempty"`
}

type vectorsRow struct {
	Name      string `json:"name"`
	Documents int    `json:"documents"`
	Behind    uint64 `json:"behind"`
	Fault     string `json:"fault,omitempty"`
}

func (s *Service) searchStatus() *searchRow {
	if s.d.Search == nil {
		return nil
	}
	st := s.d.Search.Status()
	r := &searchRow{Documents: st.Documents, Others: st.Others, Behind: st.Behind, Kept: st.Kept, Fault: clip(st.Fault)}
	for _, why := range st.Refolds {
		r.Rebuilt = append(r.Rebuilt, clip(why))
	}
	if v := st.Vectors; v != nil {
		r.Vectors = &vectorsRow{Name: clip(v.Name), Documents: v.Documents, Behind: v.Behind, Fault: clip(v.Fault)}
	}
	return r
}
