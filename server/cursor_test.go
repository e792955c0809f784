package server

import (
	"fmt"
	"testing"
)

// TestCursorOfAnotherMesh: a cursor that tells of no origin known here is
// refused, whatever listing it continues; one of a member whose entries have
// arrived goes on.
func TestCursorOfAnotherMesh(t *testing.T) {
	other, e := newEnvOf(t, 9), newEnv(t)
	for _, r := range []*env{other, e} {
		for range 3 {
			r.do(claude, "event_append", `{"type":"x","stream":"s","room":"r"}`)
		}
	}
	cursors := map[string]string{}
	for name, args := range map[string]string{
		"newest first": `{"limit":1}`, "oldest first": `{"limit":1,"order":"asc"}`, "at the end": `{}`, "inbox": `{"to_agent":"@me"}`,
	} {
		cursors[name] = other.do(claude, "event_list", args)["next_cursor"].(string)
	}
	for name, c := range cursors {
		for _, tool := range []string{"event_list", "event_wait"} {
			bad := e.refused(claude, tool, fmt.Sprintf(`{"cursor":%q}`, c))
			if bad.Code != CodeForeignCursor || bad.Field != "cursor" {
				t.Errorf("%s %s: %s", tool, name, bad.JSON())
			}
		}
	}
	carry(t, other.log, e.log)
	if m := e.do(claude, "event_list", fmt.Sprintf(`{"cursor":%q}`, cursors["at the end"])); m["count"] != 3.0 {
		t.Errorf("after the other's entries have arrived: %v", m)
	}
}
