package main

import (
	"strings"
	"testing"

	"tallystick/replica"
	"tallystick/server"
)

// join lets a site become a member through another.
func (s *site) join(through *site) {
	s.t.Helper()
	inv, err := through.rep.Invite(s.t.Context(), replica.InviteOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := replica.Join(s.t.Context(), s.cfg, inv.Token); err != nil {
		s.t.Fatal(err)
	}
	s.open()
	converge(through, s)
}

// TestI9_OneLabelTwice: two devices were admitted as "lap" by members that did
// not hear each other. Once they have met, the later may not claim, everybody
// lists the decision with both admissions, and the earlier goes on.
func TestI9_OneLabelTwice(t *testing.T) {
	desk, nas := newSite(t, "desk"), newSite(t, "nas")
	first, second := newSite(t, "lap"), newSite(t, "lap")
	desk.open()
	nas.join(desk)
	id := desk.request(agent("asker"), `,"correlation_id":"task"`)
	converge(desk, nas)
	nas.close()
	first.join(desk)
	first.close()
	desk.close()
	nas.open()
	second.join(nas)
	if m := second.do(agent("claude"), "merges_list", `{"kind":"label"}`); m["count"] != 0.0 {
		t.Fatalf("before they have met: %v", m)
	}
	desk.open()
	first.open()
	all := []*site{desk, nas, first, second}
	for _, s := range all {
		converge(desk, s)
	}
	for _, s := range all {
		m := s.do(agent("claude"), "merges_list", `{"kind":"label"}`)
		if m["count"] != 1.0 {
			t.Fatalf("%s lists %v", s.cfg.Label, m)
		}
		row := m["merges"].([]any)[0].(map[string]any)
		lost, kept := row["lost"].(map[string]any), row["kept"].(map[string]any)
		if row["about"] != "lap" || lost["hlc"].(string) <= kept["hlc"].(string) || lost["author"] == kept["author"] {
			t.Errorf("%s: %v", s.cfg.Label, row)
		}
		s.refused(agent("claude"), "merges_undo", `{"id":"`+row["id"].(string)+`"}`, server.CodeConflict)
	}
	_, bad := second.call(agent("claude"), "event_ack", `{"event_id":"`+id+`","status":"claimed"}`)
	if bad == nil || bad.Code != server.CodeConflict || !strings.Contains(bad.Message, "label") {
		t.Fatalf("the later device claims: %v", bad)
	}
	if m := first.ack(agent("claude"), id, "claimed"); m["outcome"] != "won" {
		t.Errorf("the earlier device claims: %v", m)
	}
}
