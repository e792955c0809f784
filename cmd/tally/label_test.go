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
		if s != first {
			s.refused(agent("claude"), "merges_undo", `{"id":"`+row["id"].(string)+`"}`, server.CodeConflict)
		}
	}
	_, bad := second.call(agent("claude"), "event_ack", `{"event_id":"`+id+`","status":"claimed"}`)
	if bad == nil || bad.Code != server.CodeConflict || !strings.Contains(bad.Message, "label") || !strings.Contains(bad.Hint, "tally rename") {
		t.Fatalf("the later device claims: %v", bad)
	}
	if m := first.ack(agent("claude"), id, "claimed"); m["outcome"] != "won" {
		t.Errorf("the earlier device claims: %v", m)
	}

	// It takes another label: its agents claim again, everywhere nobody is flagged,
	// and the move is listed with both sides.
	next := desk.request(agent("asker"), `,"correlation_id":"next"`)
	if _, _, err := rename(second.rep)(t.Context(), "r1", "top"); err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		converge(second, s)
	}
	if m := second.ack(agent("claude"), next, "claimed"); m["outcome"] != "won" || m["claim"].(map[string]any)["holder"] != "top:claude:x" {
		t.Errorf("renamed, it claims: %v", m)
	}
	for _, s := range all {
		m := s.do(agent("claude"), "merges_list", `{"kind":"label"}`)
		if m["count"] != 1.0 {
			t.Fatalf("%s lists %v", s.cfg.Label, m)
		}
		row := m["merges"].([]any)[0].(map[string]any)
		lost, kept := row["lost"].(map[string]any), row["kept"].(map[string]any)
		if row["rule"] != "own_last_rename_counts" || lost["what"] != "named lap" || kept["what"] != "named top" || lost["hlc"].(string) >= kept["hlc"].(string) {
			t.Errorf("%s: %v", s.cfg.Label, row)
		}
		s.refused(agent("claude"), "merges_undo", `{"id":"`+row["id"].(string)+`"}`, server.CodeConflict) // elsewhere, or the label is in use
		for _, member := range s.rep.Members() {
			if member.Flagged {
				t.Errorf("%s: %s is flagged", s.cfg.Label, member.Label)
			}
		}
	}
}

// TestM3_LabelMovesAreUndone: of two machines with one label the earlier takes
// another by the undo of the decision; the undo of its own rename takes the
// former label back once it is free.
func TestM3_LabelMovesAreUndone(t *testing.T) {
	desk, lap := pair(t)
	nas := newSite(t, "nas")
	nas.join(desk)
	lap.close()
	if _, _, err := rename(desk.rep)(t.Context(), "r1", "big"); err != nil {
		t.Fatal(err)
	}
	converge(desk, nas)
	desk.close()
	nas.close()
	lap.open()
	if _, _, err := rename(lap.rep)(t.Context(), "r1", "big"); err != nil { // has not heard of it
		t.Fatal(err)
	}
	desk.open()
	converge(desk, lap)
	undo := func(s *site, about string) string {
		for _, row := range s.do(agent("claude"), "merges_list", `{"kind":"label"}`)["merges"].([]any) {
			if m := row.(map[string]any); m["about"] == about {
				return `{"id":"` + m["id"].(string) + `"}`
			}
		}
		t.Fatalf("%s lists nothing about %s", s.cfg.Label, about)
		return ""
	}
	clash := undo(desk, "big")
	lap.refused(agent("claude"), "merges_undo", clash, server.CodeConflict)
	if m := desk.do(agent("claude"), "merges_undo", clash); m["appended"] != 1.0 || desk.rep.Label() != "big_2" {
		t.Errorf("the earlier gives way: %v, %s", m, desk.rep.Label())
	}
	converge(desk, lap)
	if lap.rep.Members()[0].Flagged || lap.rep.Members()[1].Flagged {
		t.Errorf("flagged: %+v", lap.rep.Members())
	}
	back := undo(lap, "lap")
	desk.refused(agent("claude"), "merges_undo", back, server.CodeConflict)
	if m := lap.do(agent("claude"), "merges_undo", back); m["appended"] != 1.0 || lap.rep.Label() != "lap" {
		t.Errorf("the later takes its label back: %v, %s", m, lap.rep.Label())
	}
	if m := lap.do(agent("claude"), "merges_undo", back); m["appended"] != 0.0 || lap.rep.Label() != "lap" {
		t.Errorf("once more: %v, %s", m, lap.rep.Label())
	}
}

// TestI4_ClaimsOutliveARename: a claim stays its identity's when the machine
// gets another label: it joins, is listed, renews, loses and is told by the new
// name. Mail to the former name is shown, not lost (I7).
func TestI4_ClaimsOutliveARename(t *testing.T) {
	desk, lap := pair(t)
	claude := agent("claude")
	held := desk.request(agent("asker"), `,"correlation_id":"held"`)
	raced := desk.request(agent("asker"), `,"correlation_id":"raced"`)
	flatTask := desk.request(agent("asker"), `,"correlation_id":"flat"`)
	converge(desk, lap)
	flat := server.Session{Agent: "codex", Bound: true} // outside a repository
	if m := lap.ack(flat, flatTask, "claimed"); m["outcome"] != "won" {
		t.Fatalf("%v", m)
	}
	lap.ack(claude, held, "claimed")
	converge(desk, lap)
	lap.close()
	desk.ack(claude, raced, "claimed")
	desk.close()
	lap.open()
	lap.wall.Store(1000) // later than desk
	lap.ack(claude, raced, "claimed")
	if _, _, err := rename(lap.rep)(t.Context(), "r1", "top"); err != nil {
		t.Fatal(err)
	}
	if who := lap.do(claude, "whoami", `{}`); who["identity"] != "top:claude:x" {
		t.Errorf("whoami says %v", who)
	}
	if m := lap.ack(claude, held, "claimed"); m["outcome"] != "joined" {
		t.Errorf("it claims again: %v", m)
	}
	if m := lap.do(claude, "claim_list", `{"identity":"@me"}`); m["count"] != 2.0 {
		t.Errorf("its claims: %v", m)
	}
	if m := lap.ack(claude, held, "ready"); m["outcome"] != "recorded" || m["note"] != nil {
		t.Errorf("it keeps its claim: %v", m)
	}
	lap.ack(claude, held, "released")
	if m := lap.ack(flat, flatTask, "claimed"); m["outcome"] != "joined" {
		t.Errorf("a flat name claims again: %v", m)
	}
	if m := lap.do(flat, "claim_list", `{"identity":"@me"}`); m["count"] != 1.0 {
		t.Errorf("its claims: %v", m)
	}
	if m := lap.ack(flat, flatTask, "released"); m["outcome"] != "recorded" || m["claim"] != nil {
		t.Errorf("it gives its claim up: %v", m)
	}
	desk.open()
	converge(desk, lap)
	if m := desk.ack(claude, held, "claimed"); m["outcome"] != "won" {
		t.Errorf("after the release: %v", m)
	}
	// The loser hears of it under its new name, once.
	lap.until("the ack of the lost claim", func() bool {
		n := 0
		for _, e := range lap.do(claude, "event_list", `{"to_agent":"@me","status":"superseded"}`)["events"].([]any) {
			if ev := e.(map[string]any); ev["from_agent"] == "top:claude:x" && ev["to_agent"] == "top:claude:x" && ev["id"] != "" {
				n++
			}
		}
		return n == 1
	})
	desk.do(claude, "add_message", `{"to":"lap:claude:x","subject":"s","body":"to the old name"}`)
	converge(desk, lap)
	old := lap.do(claude, "mesh_status", `{}`)["old_names"]
	if list, ok := old.([]any); !ok || len(list) != 1 || list[0].(map[string]any)["name"] != "lap:claude:x" || list[0].(map[string]any)["now"] != "top:claude:x" {
		t.Errorf("mail to the former name: %v", old)
	}
}
