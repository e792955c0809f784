package server

import (
	"fmt"
	"strings"
	"testing"
)

// The rows of docs/coordination-contract.md that no other test names.

// TestEventDefaults: what event_list and event_wait do when they are told
// nothing, and the largest that each limit lets pass.
func TestEventDefaults(t *testing.T) {
	e := newEnv(t)
	var ids []string
	for i := range 60 {
		ids = append(ids, e.append(claude, "mac:codex:tally", fmt.Sprint(i))["id"].(string))
	}
	for _, c := range []struct {
		tool, args  string
		count       float64
		first, last string
	}{
		{"event_list", `{}`, 50, "59", "10"},
		{"event_list", `{"limit":500}`, 60, "59", "0"},
		{"event_list", `{"since_event_id":"` + ids[0] + `"}`, 50, "1", "50"},
		{"event_list", `{"before_event_id":"` + ids[59] + `"}`, 50, "58", "9"},
		{"event_list", `{"order":"ASC"}`, 50, "0", "49"},
		{"event_wait", `{}`, 50, "59", "10"}, // and the cursor leads to the rest
	} {
		m := e.do(codex, c.tool, c.args)
		events := m["events"].([]any)
		body := func(n int) any { return events[n].(map[string]any)["body"] }
		if m["count"] != c.count || body(0) != c.first || body(len(events)-1) != c.last {
			t.Errorf("%s %s: %v events, %v to %v", c.tool, c.args, m["count"], body(0), body(len(events)-1))
		}
	}
	if defWaitMS != 60_000 || maxWaitMS != 300_000 {
		t.Errorf("a wait is %d ms, at most %d", defWaitMS, maxWaitMS)
	}
	name, largest := strings.Repeat("é", 256), `{"k":"`+strings.Repeat("v", 64<<10-8)+`"}`
	ev := e.do(claude, "event_append", `{"type":"`+strings.Repeat("t", 64)+`","stream":" `+name+` ","room":"r/a:b","topic":"`+name+`","body":"`+strings.Repeat("b", 256<<10)+`","metadata":`+largest+`}`)["event"].(map[string]any)
	if ev["stream"] != name || ev["topic"] != name || ev["room"] != "r/a:b" || len(ev["body"].(string)) != 256<<10 || ev["status"] != nil {
		t.Errorf("the largest came back otherwise: %v", ev["type"])
	}
	m := e.do(codex, "event_ack", `{"event_id":"`+ids[3]+`"}`)
	ack, _ := m["event"].(map[string]any)
	if ack["type"] != "event.ack" || ack["status"] != nil || ack["body"] != "" || ack["to_agent"] != "mac:claude:tally" || ack["correlation_id"] != ids[3] {
		t.Errorf("a bare ack: %v", ack)
	}
}
