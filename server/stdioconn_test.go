package server

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// tellingBackend answers a call by its arguments.
type tellingBackend struct {
	answer func(args json.RawMessage) (json.RawMessage, *Error)
}

func (b tellingBackend) Call(_ context.Context, _ Session, _ string, args json.RawMessage, _ string) (json.RawMessage, *Error) {
	return b.answer(args)
}

// TestStdioLongAnswers: an answer of any size reaches its own call, the same
// as text and as structured content, whatever it holds, however many are on
// their way, and with what the protocol adds to a result.
func TestStdioLongAnswers(t *testing.T) {
	hostile := "\"}],\"structuredContent\":{} <b>&\u2028 \\u0000 tally-answer-1 " + strings.Repeat("ü", 3000)
	const many = readyMost + 40
	waiting, gate := make(chan struct{}, many), make(chan struct{})
	r := startRawStdio(t, tellingBackend{func(args json.RawMessage) (json.RawMessage, *Error) {
		var a struct {
			Room string `json:"room"`
		}
		if err := json.Unmarshal(args, &a); err != nil {
			return nil, internalError()
		}
		if a.Room == "refused" {
			return nil, invalid("room", "", "%s", strings.Repeat("long ", 1000))
		}
		if strings.HasPrefix(a.Room, "at once") {
			waiting <- struct{}{}
			<-gate
		}
		return encode(map[string]string{"room": a.Room, "text": hostile}), nil
	}})
	call := func(id, room, meta string) {
		r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{%s"name":"event_list","arguments":{"room":"%s"}}}`, id, meta, room))
	}
	check := func(m map[string]any, room string) (result map[string]any) {
		t.Helper()
		result, _ = m["result"].(map[string]any)
		want := map[string]any{"room": room, "text": hostile}
		content, _ := result["content"].([]any)
		if len(content) != 1 || !reflect.DeepEqual(result["structuredContent"], want) {
			t.Fatalf("%s: %.300v", room, m)
		}
		var text map[string]any
		if err := json.Unmarshal([]byte(content[0].(map[string]any)["text"].(string)), &text); err != nil || !reflect.DeepEqual(text, want) {
			t.Fatalf("%s: the text is %.300v, %v", room, text, err)
		}
		return result
	}
	call(`"a \" quote"`, "one", "")
	m := r.read()
	check(m, "one")
	if m["id"] != `a " quote` {
		t.Errorf("the id is %v", m["id"])
	}
	call("7", "progress", `"_meta":{"progressToken":3},`)
	check(r.read(), "progress")
	call("8", "new", `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"n","version":"1"}},`)
	if res := check(r.read(), "new"); res["_meta"] == nil {
		t.Errorf("what the newer protocol adds is lost")
	}
	call("9", "refused", "")
	if res := r.read()["result"].(map[string]any); res["isError"] != true || res["structuredContent"] != nil {
		t.Errorf("%v", res)
	}
	go func() {
		for range many {
			<-waiting
		}
		close(gate)
	}()
	for i := range many {
		call(fmt.Sprint(100+i), fmt.Sprint("at once ", i), "")
	}
	seen := map[float64]bool{}
	for range many {
		m := r.read()
		id := m["id"].(float64)
		check(m, fmt.Sprint("at once ", int(id)-100))
		seen[id] = true
	}
	if len(seen) != many {
		t.Errorf("%d answers of %d", len(seen), many)
	}
}
