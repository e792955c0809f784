package server

import (
	"context"
	"encoding/json"
)

type whoamiResult struct {
	Identity string `json:"identity"`
	Host     string `json:"host"`
	Agent    string `json:"agent"`
	Project  string `json:"project"`
	Bound    bool   `json:"bound"`
	Replica  string `json:"replica"`
	Mesh     string `json:"mesh"`
	Version  string `json:"version"`
	Note     string `json:"note,omitempty"`
}

func (s *Service) whoami(_ context.Context, c *call) (any, *Error) {
	self := s.d.Mesh.Self()
	r := whoamiResult{
		Identity: c.id.Name, Host: c.id.Host, Agent: c.id.Agent, Project: c.id.Project, Bound: c.id.Bound,
		Replica: self.Replica, Mesh: self.Mesh, Version: s.d.Version,
	}
	if c.id.why != nil {
		r.Note = c.id.why.Error()
	}
	return r, nil
}

type statusResult struct {
	Replica     string             `json:"replica"`
	Label       string             `json:"label"`
	Mesh        string             `json:"mesh"`
	Peers       []peerRow          `json:"peers"`
	Clock       clockRow           `json:"clock"`
	Held        int                `json:"held"`
	Quarantined int                `json:"quarantined"`
	Owed        int                `json:"owed,omitempty"` // their payload is asked of peers
	Aside       []asideRow         `json:"aside"`          // the first of both
	Views       map[string]viewRow `json:"views"`
	OldNames    []oldName          `json:"old_names,omitempty"`
	Search      *searchRow         `json:"search,omitempty"`
	Note        string             `json:"note,omitempty"`
}

type peerRow struct {
	Label    string  `json:"label"`
	ID       string  `json:"id"`
	Reach    bool    `json:"reachable"`
	LastSeen *string `json:"last_seen"`
	Behind   uint64  `json:"entries_behind"`
	Ahead    uint64  `json:"entries_ahead"`
	Address  string  `json:"address"`
	Offset   int64   `json:"clock_offset_ms"`
	Error    string  `json:"error,omitempty"`
}

type clockRow struct {
	HLC     string `json:"hlc"`
	Wall    string `json:"wall"`
	BoundMS int64  `json:"bound_ms"`
	Outlier bool   `json:"outlier"`
}

type asideRow struct {
	ID     string `json:"id"`
	Held   bool   `json:"held"` // waits; otherwise quarantined
	Kind   string `json:"kind"`
	Author string `json:"author,omitempty"`
	Origin string `json:"origin"`
	Reason string `json:"reason"`
}

type viewRow struct {
	Digest string `json:"digest"`
	Rows   uint64 `json:"rows"`
}

// maxAsideRows bounds the entries listed of what is held or quarantined; the
// counts are always whole.
const maxAsideRows = 20

func (s *Service) meshStatus(ctx context.Context, _ *call) (any, *Error) {
	st, err := s.d.Mesh.Status(ctx)
	if err != nil {
		return nil, s.asError(ctx, err)
	}
	old, err := s.oldNames()
	if err != nil {
		return nil, s.asError(ctx, err)
	}
	self := s.d.Mesh.Self()
	r := statusResult{
		Replica: self.Replica, Label: self.Label, Mesh: self.Mesh,
		Peers: make([]peerRow, 0, len(st.Peers)),
		Clock: clockRow{HLC: st.Clock.HLC, Wall: timeText(st.Clock.Wall), BoundMS: st.Clock.Bound.Milliseconds(), Outlier: st.Clock.Outlier},
		Held:  st.Held, Quarantined: st.Quarantined, Owed: st.Owed, Aside: []asideRow{},
		Views: map[string]viewRow{},
		Note:  st.Note, OldNames: old,
	}
	for _, a := range st.Aside[:min(len(st.Aside), maxAsideRows)] {
		r.Aside = append(r.Aside, asideRow{ID: a.ID, Held: a.Held, Kind: a.Kind, Author: a.Author, Origin: a.Origin, Reason: clip(a.Reason)})
	}
	for _, p := range st.Peers {
		row := peerRow{
			Label: p.Label, ID: p.ID, Reach: p.Reachable, Behind: p.EntriesBehind, Ahead: p.EntriesAhead,
			Address: p.Address, Offset: p.OffsetMillis, Error: clip(p.Error),
		}
		if !p.LastSeen.IsZero() {
			t := timeText(p.LastSeen)
			row.LastSeen = &t
		}
		r.Peers = append(r.Peers, row)
	}
	r.Search = s.searchStatus()
	for _, v := range st.Views {
		r.Views[v.Name] = viewRow{Digest: v.Digest, Rows: v.Rows}
	}
	return r, nil
}

// page collects rows until a result would pass the limit of 32 kB. The first
// row always goes in, however large.
type page struct {
	rows []json.RawMessage
	size int
}

// pageFrame is what a result needs besides its rows, cursor included.
const pageFrame = 1 << 10

func newPage(cursor int) *page { return &page{rows: []json.RawMessage{}, size: pageFrame + cursor} }

// add reports whether the row still fitted.
func (p *page) add(row any) bool {
	b := json.RawMessage(encode(row))
	if len(p.rows) > 0 && p.size+len(b)+1 > pageBytes {
		return false
	}
	p.rows = append(p.rows, b)
	p.size += len(b) + 1
	return true
}
