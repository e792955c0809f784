package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tallystick/query/logstream"
	"tallystick/server"
)

// TestK1I4_RaceAcrossReplicas: eight racers on two replicas, twenty rounds,
// exactly one winner each, the same on both. In even rounds all are identities
// of their own; in odd ones they are windows of one identity on either host.
func TestK1I4_RaceAcrossReplicas(t *testing.T) {
	desk, lap := pair(t)
	contested := 0
	for round := range 20 {
		task := fmt.Sprintf("round-%d", round)
		id := desk.request(agent("asker"), `,"correlation_id":"`+task+`"`)
		converge(desk, lap)
		racer := func(i int) server.Session {
			if round%2 == 0 {
				return agent(fmt.Sprintf("racer%d", i))
			}
			s := agent("racer")
			s.Client = fmt.Sprintf("window %d", i)
			return s
		}
		type answer struct{ outcome, by, event string }
		answers := make([]answer, 8)
		start := make(chan struct{})
		var wg sync.WaitGroup
		for i := range answers {
			s, who := []*site{desk, lap}[i%2], racer(i)
			wg.Go(func() {
				<-start
				m, bad := s.call(who, "event_ack", `{"event_id":"`+id+`","status":"claimed"}`)
				if bad != nil {
					t.Error(bad)
					return
				}
				answers[i].outcome, answers[i].by = m["outcome"].(string), s.cfg.Label+":"+who.Agent+":x"
				if ev, ok := m["event"].(map[string]any); ok {
					answers[i].event = ev["id"].(string)
				}
			})
		}
		close(start)
		wg.Wait()
		converge(desk, lap)
		a, b := desk.claim(task), lap.claim(task)
		if a == nil || b == nil || a["holder"] != b["holder"] || a["event"] != b["event"] || a["fence"] != b["fence"] {
			t.Fatalf("round %d: desk says %v, lap says %v", round, a, b)
		}
		// The holder was told that it won. On the other side at most one more has
		// written a claim, and was told "won" as well unless it saw better at once.
		told, stored := 0, 0
		for _, o := range answers {
			if o.outcome == "won" && o.event == a["event"] && o.by == a["holder"] {
				told++
			}
			if o.event != "" {
				stored++
			}
		}
		if told != 1 || stored > 2 {
			t.Fatalf("round %d: %+v, %d claims written, held by %v", round, answers, stored, a["holder"])
		}
		contested += stored - 1
		desk.do(agent("asker"), "event_ack", `{"event_id":"`+id+`","status":"applied"}`)
	}
	converge(desk, lap)
	// Every claim that was written and lost is listed, on both.
	for _, s := range []*site{desk, lap} {
		if m := s.do(agent("asker"), "merges_list", `{"kind":"claim","limit":500}`); m["count"] != float64(contested) {
			t.Errorf("%s lists %v lost claims, want %d", s.cfg.Label, m["count"], contested)
		}
	}
	t.Logf("%d of 20 rounds were claimed on both sides", contested)
}

// apart lets lap claim first while desk is down, then desk while lap is down,
// and opens both again.
func apart(t *testing.T) (desk, lap *site, id string) {
	t.Helper()
	desk, lap = pair(t)
	id = desk.request(agent("asker"), `,"correlation_id":"task"`)
	converge(desk, lap)
	desk.close()
	m := lap.ack(agent("codex"), id, "claimed")
	if c := m["claim"].(map[string]any); m["outcome"] != "won" || c["grade"] != "provisional" || !strings.Contains(fmt.Sprint(c["unheard"]), "desk") {
		t.Fatalf("K4: a claim with desk unheard: %v", m)
	}
	lap.close()
	desk.wall.Add(1000)
	desk.open()
	if m := desk.ack(agent("claude"), id, "claimed"); m["outcome"] != "won" || m["claim"].(map[string]any)["grade"] != "provisional" {
		t.Fatalf("K4: a claim with lap unheard: %v", m)
	}
	lap.open()
	converge(desk, lap)
	return desk, lap, id
}

// TestK1K4K5_AcrossReplicas: the earliest stamp wins on both; both were told
// provisional; the loser hears with both sides, at once and once it is
// settled; the winner's grade settles.
func TestK1K4K5_AcrossReplicas(t *testing.T) {
	desk, lap, id := apart(t)
	for _, s := range []*site{desk, lap} {
		if c := s.claim("task"); c == nil || c["holder"] != "lap:codex:x" {
			t.Errorf("K1: %s says %v", s.cfg.Label, c)
		}
		s.until("the claim settles", func() bool { return s.claim("task")["grade"] == "settled" })
	}
	var notice map[string]any
	notices := func(s *site) (computed, stored int) {
		m := s.do(agent("claude"), "event_list", `{"to_agent":"desk:claude:x","status":"superseded"}`)
		for _, e := range m["events"].([]any) {
			notice = e.(map[string]any)
			if notice["computed"] == true {
				computed++
			} else {
				stored++
			}
		}
		return computed, stored
	}
	desk.until("the settled notice", func() bool { _, stored := notices(desk); return stored == 1 })
	converge(desk, lap)
	for _, s := range []*site{desk, lap} {
		computed, stored := notices(s)
		meta := notice["metadata"].(map[string]any)
		if computed != 0 || stored != 1 || notice["from_agent"] != "desk:claude:x" || meta["automatic"] != true || meta["winner"] == nil || meta["winner_hlc"] == nil || meta["claim"] == nil {
			t.Errorf("K5: %s tells %d and %d, last %v", s.cfg.Label, computed, stored, notice)
		}
	}
	if m := desk.ack(agent("claude"), id, "claimed"); m["outcome"] != "superseded" && m["outcome"] != "held" {
		t.Errorf("K1: the loser claims again: %v", m)
	}
	why := strings.Join(texts(desk.do(agent("claude"), "claim_why", `{"id":"task"}`)["lines"]), "\n")
	if !strings.Contains(why, "earliest stamp wins") || !strings.Contains(why, "lap:codex:x") {
		t.Errorf("why:\n%s", why)
	}
}

func texts(v any) (out []string) {
	for _, s := range v.([]any) {
		out = append(out, s.(string))
	}
	return out
}

// TestK2I4_AcrossReplicas: a second window of the holder joins and appends
// nothing; the same agent on another host does not.
func TestK2I4_AcrossReplicas(t *testing.T) {
	desk, lap := pair(t)
	id := desk.request(agent("asker"), `,"correlation_id":"task"`)
	converge(desk, lap)
	if m := lap.ack(agent("codex"), id, "claimed"); m["outcome"] != "won" {
		t.Fatalf("%v", m)
	}
	window := agent("codex")
	window.Client = "another window"
	before := lap.rep.Log().Frontier().Total()
	m := lap.ack(window, id, "claimed")
	if m["outcome"] != "joined" || m["claim"].(map[string]any)["holder"] != "lap:codex:x" || lap.rep.Log().Frontier().Total() != before {
		t.Errorf("the second window: %v", m)
	}
	converge(desk, lap)
	if m := desk.ack(agent("codex"), id, "claimed"); m["outcome"] != "held" || m["claim"].(map[string]any)["holder"] != "lap:codex:x" {
		t.Errorf("the same agent on another host: %v", m)
	}
}

// TestK3_AcrossReplicas: a lease ends by stamps on both, so that the other may
// claim; an applied task stays closed on both.
func TestK3_AcrossReplicas(t *testing.T) {
	desk, lap := pair(t)
	id := desk.request(agent("asker"), `,"correlation_id":"task"`)
	short := desk.request(agent("asker"), `,"correlation_id":"short","expires_at":"`+time.Now().Add(time.Hour).UTC().Format(time.RFC3339)+`"`)
	converge(desk, lap)
	lap.do(agent("codex"), "event_ack", `{"event_id":"`+id+`","status":"claimed","lease_ms":600000}`)
	converge(desk, lap)
	if m := desk.ack(agent("claude"), id, "claimed"); m["outcome"] != "held" {
		t.Fatalf("within the lease: %v", m)
	}
	for _, s := range []*site{desk, lap} {
		s.wall.Add((11 * time.Minute).Milliseconds())
	}
	if m := desk.ack(agent("claude"), id, "claimed"); m["outcome"] != "won" {
		t.Errorf("after the lease: %v", m)
	}
	converge(desk, lap)
	for _, s := range []*site{desk, lap} {
		if c := s.claim("task"); c == nil || c["holder"] != "desk:claude:x" {
			t.Errorf("%s says %v", s.cfg.Label, c)
		}
	}
	if m := lap.ack(agent("codex"), id, "applied"); m["outcome"] != "recorded" {
		t.Errorf("applied by another: %v", m)
	}
	converge(desk, lap)
	if m := desk.ack(agent("claude"), id, "claimed"); m["outcome"] != "closed" {
		t.Errorf("after the close: %v", m)
	}
	for _, s := range []*site{desk, lap} {
		s.wall.Add(time.Hour.Milliseconds())
		if m := s.ack(agent("claude"), short, "claimed"); m["outcome"] != "expired" {
			t.Errorf("%s: after the expiry: %v", s.cfg.Label, m)
		}
	}
}

// inbox lists the bodies of what has arrived for somebody.
func (s *site) inbox(who string) (bodies []string) {
	s.t.Helper()
	m := s.do(agent("reader"), "event_list", `{"to_agent":"`+who+`","type":"note","order":"asc"}`)
	for _, e := range m["events"].([]any) {
		bodies = append(bodies, e.(map[string]any)["body"].(string))
	}
	slices.Sort(bodies)
	return bodies
}

func (s *site) note(who server.Session, to, body string) map[string]any {
	s.t.Helper()
	target := ""
	if to != "" {
		target = `,"to_agent":"` + to + `"`
	}
	return s.do(who, "event_append", `{"type":"note","stream":"project/x","room":"talk","body":"`+body+`","metadata":{"pid":4711}`+target+`}`)["event"].(map[string]any)
}

// TestI1I2I3_AcrossReplicas: who wrote is host, agent and project; windows
// share the name; the process is metadata.
func TestI1I2I3_AcrossReplicas(t *testing.T) {
	desk, lap := pair(t)
	window := agent("codex")
	window.Client = "another window"
	first, second := lap.note(agent("codex"), "desk:claude:x", "one"), lap.note(window, "desk:claude:x", "two")
	converge(desk, lap)
	m := desk.do(agent("claude"), "event_list", `{"to_agent":"@me","type":"note"}`)
	if m["count"] != 2.0 {
		t.Fatalf("%v", m)
	}
	for _, e := range m["events"].([]any) {
		e := e.(map[string]any)
		if e["from_agent"] != "lap:codex:x" || e["origin"] != "lap" || e["metadata"].(map[string]any)["pid"] != 4711.0 {
			t.Errorf("%v", e)
		}
	}
	if first["from_agent"] != second["from_agent"] {
		t.Errorf("two windows are %v and %v", first["from_agent"], second["from_agent"])
	}
	// Both windows read one inbox, and a mark of one holds for the other and on
	// the other host.
	id := desk.do(agent("claude"), "add_message", `{"to":"lap:codex:x","subject":"s","body":"b"}`)["messageId"].(string)
	converge(desk, lap)
	lap.do(agent("codex"), "mark_read", `{"messageId":"`+id+`"}`)
	converge(desk, lap)
	if m := lap.do(window, "list_messages", `{"status":"unread"}`); m["count"] != 0.0 {
		t.Errorf("the other window: %v", m)
	}
	desk.until("the receipt and the delivery", func() bool {
		m := desk.do(agent("claude"), "get_message", `{"messageId":"`+id+`"}`)
		return m["readCount"] == 1.0 && fmt.Sprint(m["durable_on"], m["not_yet"]) == "[desk lap] []"
	})
}

// TestI5I7_AcrossReplicas: a name is matched whole or not at all; flat names
// and tuples are different names and both route.
func TestI5I7_AcrossReplicas(t *testing.T) {
	desk, lap := pair(t)
	flat := server.Session{Agent: "codex", Bound: true}
	for to, body := range map[string]string{
		"lap:codex:x": "tuple", "lap-codex": "flat", "*": "all", "": "nobody", "lap:codex:*": "glob", "lap:codex:xy": "longer", "lap:codex": "shorter", "LAP:codex:x": "case",
	} {
		desk.note(agent("claude"), to, body)
	}
	converge(desk, lap)
	if m := lap.do(flat, "whoami", `{}`); m["identity"] != "lap-codex" {
		t.Errorf("flat: %v", m)
	}
	for who, want := range map[string][]string{
		"lap:codex:x": {"all", "tuple"}, "lap-codex": {"all", "flat"}, "lap:gemini:x": {"all"}, "lap:codex:xy": {"all", "longer"},
	} {
		if got := lap.inbox(who); !slices.Equal(got, want) {
			t.Errorf("inbox of %s: %v, want %v", who, got, want)
		}
	}
}

// TestI6I8_AcrossReplicas: each server says who its callers are; nobody may
// say otherwise, and who has no name writes nothing.
func TestI6I8_AcrossReplicas(t *testing.T) {
	desk, lap := pair(t)
	for _, s := range []*site{desk, lap} {
		if m := s.do(agent("claude"), "whoami", `{}`); m["identity"] != s.cfg.Label+":claude:x" || m["host"] != s.cfg.Label {
			t.Errorf("%v", m)
		}
	}
	lap.refused(agent("claude"), "event_append", `{"type":"note","stream":"s","room":"r","from_agent":"desk:claude:x"}`, server.CodeIdentityMismatch)
	lap.refused(agent("claude"), "add_message", `{"to":"@me","subject":"s","body":"b","from_agent":"desk:claude:x"}`, server.CodeIdentityMismatch)
	lap.refused(server.Session{}, "event_append", `{"type":"note","stream":"s","room":"r"}`, server.CodeIdentityUnbound)
	lap.refused(server.Session{}, "event_list", `{"to_agent":"@me"}`, server.CodeIdentityUnbound)
	lap.refused(server.Session{}, "list_messages", `{}`, server.CodeIdentityUnbound)
	desk.note(agent("claude"), "*", "hello")
	converge(desk, lap)
	if m := lap.do(server.Session{}, "event_list", `{"type":"note"}`); m["count"] != 1.0 {
		t.Errorf("an unbound session reads %v", m)
	}
}

// TestI9_AcrossReplicas: a replica does not even write under another host's
// name (that a peer which does is set aside: TestI9_ForgingPeer of package
// replica); flat names carry no host, and the origin is shown beside them.
func TestI9_AcrossReplicas(t *testing.T) {
	desk, lap := pair(t)
	for _, n := range []struct{ author, body string }{{"desk:claude:x", "forged"}, {"lap:claude:x", "own"}, {"desk-claude", "flat"}} {
		op, err := logstream.NewOp(n.author, logstream.Event{Type: "note", Stream: "s", Room: "r", To: "*", Body: n.body})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := lap.rep.Append(t.Context(), op); (err != nil) != (n.body == "forged") {
			t.Errorf("%s: %v", n.author, err)
		}
	}
	converge(desk, lap)
	for _, s := range []*site{desk, lap} {
		if got := s.inbox("nobody"); !slices.Equal(got, []string{"flat", "own"}) {
			t.Errorf("%s shows %v", s.cfg.Label, got)
		}
	}
	m := desk.do(agent("claude"), "event_list", `{"writer":"desk-claude"}`)
	if e := m["events"].([]any)[0].(map[string]any); e["origin"] != "lap" {
		t.Errorf("what is from elsewhere under a flat name does not say from where: %v", e)
	}
}
