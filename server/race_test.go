package server

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
)

const (
	raceRounds = 200
	racers     = 8
)

// race lets all claim one request at once and counts the outcomes. Racer i
// runs at sites[i%len(sites)].
func race(t *testing.T, sites []*env, id string, who func(i int) Session) (outcomes map[string]int, claims map[string]string) {
	t.Helper()
	var mu sync.Mutex
	outcomes, claims = map[string]int{}, map[string]string{}
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range racers {
		e, s := sites[i%len(sites)], who(i)
		wg.Go(func() {
			<-start
			out, bad := e.svc.Call(t.Context(), s, "event_ack", json.RawMessage(`{"event_id":"`+id+`","status":"claimed"}`), "")
			if bad != nil {
				t.Error(bad)
				return
			}
			m := parse(t, out)
			mu.Lock()
			defer mu.Unlock()
			outcomes[m["outcome"].(string)]++
			if ev, ok := m["event"].(map[string]any); ok {
				claims[ev["id"].(string)] = ev["from_agent"].(string)
			}
		})
	}
	close(start)
	wg.Wait()
	return outcomes, claims
}

// holder is the one live claim of a task, as a replica tells it.
func (e *env) holder(task string) (holder, event string) {
	e.t.Helper()
	list := e.do(claude, "claim_list", `{"correlation_id":"`+task+`"}`)["claims"].([]any)
	if len(list) != 1 {
		e.t.Fatalf("%s: %d live claims", task, len(list))
	}
	c := list[0].(map[string]any)
	return c["holder"].(string), c["event"].(string)
}

// TestI4_RaceOfWindows: eight windows of one identity claim at once. One wins,
// the others join, and one claim is written (RFC 005, K2).
func TestI4_RaceOfWindows(t *testing.T) {
	e := newEnv(t)
	for round := range raceRounds {
		task := fmt.Sprint("w", round)
		id := e.request(`,"correlation_id":"` + task + `"`)
		outcomes, claims := race(t, []*env{e}, id, func(i int) Session {
			s := claude
			s.Client = fmt.Sprint("window ", i)
			return s
		})
		if outcomes["won"] != 1 || outcomes["joined"] != racers-1 || len(claims) != 1 {
			t.Fatalf("round %d: %v, %d claims written", round, outcomes, len(claims))
		}
		if who, ev := e.holder(task); who != "mac:claude:tally" || claims[ev] == "" {
			t.Fatalf("round %d: held by %s with %s, written %v", round, who, ev, claims)
		}
	}
}

// TestK1_RaceOfIdentities: eight identities of one machine claim at once. One
// wins, the others are told who holds it, and one claim is written.
func TestK1_RaceOfIdentities(t *testing.T) {
	e := newEnv(t)
	for round := range raceRounds {
		task := fmt.Sprint("i", round)
		id := e.request(`,"correlation_id":"` + task + `"`)
		outcomes, claims := race(t, []*env{e}, id, func(i int) Session { return Session{Agent: fmt.Sprint("a", i), Project: "p", Bound: true} })
		if outcomes["won"] != 1 || outcomes["held"] != racers-1 || len(claims) != 1 {
			t.Fatalf("round %d: %v, %d claims written", round, outcomes, len(claims))
		}
		if who, ev := e.holder(task); claims[ev] != who {
			t.Fatalf("round %d: held by %s with %s, written %v", round, who, ev, claims)
		}
	}
}

// TestK1_RaceOfHosts: eight racers on two hosts that do not hear each other,
// half of the rounds windows of one identity a host. Once they have met, both
// name the same winner, whose claim is the earliest that was written.
func TestK1_RaceOfHosts(t *testing.T) {
	e := newEnv(t)
	p := newPeer(t, e.wall.Load)
	nas := e.nas(p)
	lost := 0
	for round := range raceRounds {
		e.wall.Add(1)
		task := fmt.Sprint("h", round)
		id := e.request(`,"correlation_id":"` + task + `"`)
		carry(t, e.log, p.log)
		outcomes, claims := race(t, []*env{e, nas}, id, func(i int) Session {
			if round%2 == 0 {
				return Session{Agent: "claude", Project: "p", Bound: true, Client: fmt.Sprint("window ", i)}
			}
			return Session{Agent: fmt.Sprint("a", i), Project: "p", Bound: true}
		})
		if outcomes["won"] != 2 || len(claims) != 2 {
			t.Fatalf("round %d: %v, %d claims written", round, outcomes, len(claims))
		}
		carry(t, p.log, e.log)
		carry(t, e.log, p.log)
		who, ev := e.holder(task)
		if there, same := nas.holder(task); there != who || same != ev || claims[ev] != who {
			t.Fatalf("round %d: mac says %s with %s, nas says %s with %s, written %v", round, who, ev, there, same, claims)
		}
		for id := range claims { // ids begin with the stamp's second, listings with the stamp
			if id == ev {
				continue
			}
			lost++
			var won, other string
			for _, row := range e.do(claude, "event_list", `{"correlation_id":"`+task+`","status":"claimed"}`)["events"].([]any) {
				switch r := row.(map[string]any); r["id"] {
				case ev:
					won = r["hlc"].(string)
				case id:
					other = r["hlc"].(string)
				}
			}
			if won == "" || other == "" || won > other {
				t.Fatalf("round %d: the winner is stamped %s, the loser %s", round, won, other)
			}
		}
	}
	for _, at := range []*env{e, nas} { // nothing is lost in silence (M3, K5)
		n, cursor := 0, ""
		for more := true; more; {
			m := at.do(claude, "merges_list", `{"kind":"claim","limit":500`+cursor+`}`)
			n += int(m["count"].(float64))
			if more = m["has_more"] == true; more {
				cursor = `,"cursor":"` + m["next_cursor"].(string) + `"`
			}
		}
		if n != lost || lost != raceRounds {
			t.Errorf("%s lists %d lost claims of %d in %d rounds", at.mesh.label, n, lost, raceRounds)
		}
	}
}
