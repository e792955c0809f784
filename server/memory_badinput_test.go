package server

import (
	"strings"
	"testing"
)

// TestBadInput_Memory: every rule of the memory tools is checked here, whatever
// the client has checked; the error names the field and nothing is stored.
func TestBadInput_Memory(t *testing.T) {
	long := strings.Repeat("x", 10<<20)
	many := strings.TrimSuffix(strings.Repeat(`"a",`, 33), ",")
	const turn = `"prompt":"p","thought":"t","response":"r"`
	tests := []struct {
		tool, args string
		code       Code
		field      string
	}{
		{"memory_add", `[]`, CodeInvalidArgument, ""},
		{"memory_add", `{}`, CodeInvalidArgument, "text"},
		{"memory_add", `{"text":null}`, CodeInvalidArgument, "text"},
		{"memory_add", `{"text":7}`, CodeInvalidArgument, "text"},
		{"memory_add", `{"text":""}`, CodeInvalidArgument, "text"},
		{"memory_add", `{"text":" \n"}`, CodeInvalidArgument, "text"},
		{"memory_add", `{"text":"x","Text":"y"}`, CodeUnknownField, "Text"},
		{"memory_add", `{"text":"x","agent_id":null}`, CodeInvalidArgument, "agent_id"},
		{"memory_add", `{"text":"x","agent_id":" "}`, CodeInvalidArgument, "agent_id"},
		{"memory_add", `{"text":"x","agentId":"a"}`, CodeUnknownField, "agentId"},
		{"memory_add", `{"text":"x","confidence":"HIGH"}`, CodeInvalidArgument, "confidence"},
		{"memory_add", `{"text":"x","confidence":""}`, CodeInvalidArgument, "confidence"},
		{"memory_add", `{"text":"a\u0000b"}`, CodeInvalidArgument, "text"},
		{"memory_add", `{"text":"\ud800"}`, CodeInvalidArgument, "text"},
		{"memory_add", `{"text":"` + long + `"}`, CodeTooLarge, ""},
		{"memory_add", `{"text":"` + long[:70<<10] + `"}`, CodeTooLarge, "text"},
		{"memory_add", `{"text":"x","min_confidence":"verified"}`, CodeUnknownField, "min_confidence"},
		{"memory_alias", `{"term":"t"}`, CodeInvalidArgument, "equivalents"},
		{"memory_alias", `{"equivalents":["a"]}`, CodeInvalidArgument, "term"},
		{"memory_alias", `{"term":"t","equivalents":[]}`, CodeInvalidArgument, "equivalents"},
		{"memory_alias", `{"term":"t","equivalents":"a"}`, CodeInvalidArgument, "equivalents"},
		{"memory_alias", `{"term":"t","equivalents":["a",7]}`, CodeInvalidArgument, "equivalents"},
		{"memory_alias", `{"term":"t","equivalents":[" "]}`, CodeInvalidArgument, "equivalents"},
		{"memory_alias", `{"term":"t","equivalents":[` + many + `]}`, CodeTooLarge, "equivalents"},
		{"memory_search", `{}`, CodeInvalidArgument, "query"},
		{"memory_search", `{"query":""}`, CodeInvalidArgument, "query"},
		{"memory_search", `{"query":" \t"}`, CodeInvalidArgument, "query"},
		{"memory_search", `{"query":null}`, CodeInvalidArgument, "query"},
		{"memory_search", `{"query":["x"]}`, CodeInvalidArgument, "query"},
		{"memory_search", `{"query":"` + long[:9<<10] + `"}`, CodeTooLarge, "query"},
		{"memory_search", `{"query":"x","top_k":1000000000}`, CodeInvalidArgument, "top_k"},
		{"memory_search", `{"query":"x","top_k":1e9}`, CodeInvalidArgument, "top_k"},
		{"memory_search", `{"query":"x","top_k":2.5}`, CodeInvalidArgument, "top_k"},
		{"memory_search", `{"query":"x","top_k":"8"}`, CodeInvalidArgument, "top_k"},
		{"memory_search", `{"query":"x","top_k":null}`, CodeInvalidArgument, "top_k"},
		{"memory_search", `{"query":"x","min_confidence":"Verified"}`, CodeInvalidArgument, "min_confidence"},
		{"memory_search", `{"query":"x","min_confidence":""}`, CodeInvalidArgument, "min_confidence"},
		{"memory_search", `{"query":"x","min_confidence":" verified"}`, CodeInvalidArgument, "min_confidence"},
		{"memory_search", `{"query":"x","confidence_weight":0.6}`, CodeInvalidArgument, "confidence_weight"},
		{"memory_search", `{"query":"x","confidence_weight":-0.1}`, CodeInvalidArgument, "confidence_weight"},
		{"memory_search", `{"query":"x","confidence_weight":1e400}`, CodeInvalidArgument, "confidence_weight"},
		{"memory_search", `{"query":"x","confidence_weight":"0.5"}`, CodeInvalidArgument, "confidence_weight"},
		{"memory_search", `{"query":"x","explain":"yes"}`, CodeInvalidArgument, "explain"},
		{"memory_search", `{"query":"x","offset":-1}`, CodeUnknownField, "offset"},
		{"memory_search_batch", `{"queries":"x"}`, CodeInvalidArgument, "queries"},
		{"memory_search_batch", `{"queries":[null]}`, CodeInvalidArgument, "queries"},
		{"memory_search_batch", `{"queries":[` + many + `]}`, CodeTooLarge, "queries"},
		{"memory_search_batch", `{"query":"x"}`, CodeUnknownField, "query"},
		{"checkpoint_save", `{"agent_id":""}`, CodeInvalidArgument, "agent_id"},
		{"checkpoint_save", `{"branch":"a\nb"}`, CodeInvalidArgument, "branch"},
		{"checkpoint_save", `{"base_commit":7}`, CodeInvalidArgument, "base_commit"},
		{"checkpoint_save", `{"state":"{\"a\":\"\\u0000\"}"}`, CodeInvalidArgument, "state"},
		{"checkpoint_save", `{"state":"{\"a\":\"` + long[:600<<10] + `\"}"}`, CodeTooLarge, "state"},
		{"checkpoint_resume", `{"on_missing":null}`, CodeInvalidArgument, "on_missing"},
		{"checkpoint_resume", `{"agent_id":" "}`, CodeInvalidArgument, "agent_id"},
		{"checkpoint_resume", `{"state":"x"}`, CodeUnknownField, "state"},
		{"add_memory", `{"prompt":"p","thought":"t"}`, CodeInvalidArgument, "response"},
		{"add_memory", `{"prompt":"","thought":" ","response":""}`, CodeInvalidArgument, "prompt"},
		{"add_memory", `{` + turn + `,"sessionId":""}`, CodeInvalidArgument, "sessionId"},
		{"add_memory", `{` + turn + `,"sessionId":"a\nb"}`, CodeInvalidArgument, "sessionId"},
		{"add_memory", `{` + turn + `,"timestamp":"yesterday"}`, CodeInvalidArgument, "timestamp"},
		{"add_memory", `{` + turn + `,"timestamp":""}`, CodeInvalidArgument, "timestamp"},
		{"add_memory", `{` + turn + `,"amountToolCalls":-1}`, CodeInvalidArgument, "amountToolCalls"},
		{"add_memory", `{` + turn + `,"amountToolCalls":1.5}`, CodeInvalidArgument, "amountToolCalls"},
		{"add_memory", `{` + turn + `,"toolsUsed":"bash"}`, CodeInvalidArgument, "toolsUsed"},
		{"add_memory", `{` + turn + `,"sourceAgentIdentities":["a,b"]}`, CodeInvalidArgument, "sourceAgentIdentities"},
		{"add_memory", `{` + turn + `,"sourceAgentIdentities":["all"]}`, CodeInvalidArgument, "sourceAgentIdentities"},
		{"add_memory", `{` + turn + `,"sourceAgentIdentities":[` + many + `]}`, CodeTooLarge, "sourceAgentIdentities"},
		{"add_memory", `{` + turn + `,"agentIdentity":"x"}`, CodeUnknownField, "agentIdentity"},
		{"add_memory", `{"prompt":"` + long[:300<<10] + `","thought":"t","response":"r"}`, CodeTooLarge, "prompt"},
		{"get_session_memories", `{}`, CodeInvalidArgument, "sessionId"},
		{"get_session_memories", `{"sessionId":" "}`, CodeInvalidArgument, "sessionId"},
		{"get_session_memories", `{"sessionId":7}`, CodeInvalidArgument, "sessionId"},
		{"get_session_memories", `{"sessionId":"s","limit":0}`, CodeInvalidArgument, "limit"},
		{"get_session_memories", `{"sessionId":"s","limit":1000000000}`, CodeInvalidArgument, "limit"},
		{"get_session_memories", `{"sessionId":"s","offset":-1}`, CodeInvalidArgument, "offset"},
		{"query_recent_turns", `{"limit":0}`, CodeInvalidArgument, "limit"},
		{"query_recent_turns", `{"limit":-1}`, CodeInvalidArgument, "limit"},
		{"query_recent_turns", `{"limit":1000000000}`, CodeInvalidArgument, "limit"},
		{"query_recent_turns", `{"before":"x"}`, CodeInvalidArgument, "before"},
		{"query_recent_turns", `{"before":{}}`, CodeInvalidArgument, "before"},
		{"query_recent_turns", `{"before":{"id":7}}`, CodeInvalidArgument, "before"},
		{"query_recent_turns", `{"before":{"id":""}}`, CodeInvalidArgument, "before"},
		{"query_recent_turns", `{"before":{"at":"x"}}`, CodeUnknownField, "before"},
		{"query_recent_turns", `{"before":{"timestamp":"never"}}`, CodeInvalidArgument, "before"},
		{"query_recent_turns", `{"before":{"id":"mem_x"}}`, CodeInvalidArgument, "before"},
		{"query_recent_turns", `{"before":{"id":"mem_0123456789abcdef"}}`, CodeUnknownCursor, "before"},
		{"query_recent_turns", `{"detail":"Full"}`, CodeInvalidArgument, "detail"},
		{"query_recent_turns", `{"projection":"all"}`, CodeInvalidArgument, "projection"},
		{"query_summaries", `{"query":" "}`, CodeInvalidArgument, "query"},
		{"query_summaries", `{"query":"x","nResults":0}`, CodeInvalidArgument, "nResults"},
		{"query_summaries", `{"query":"x","nResults":1000000000}`, CodeInvalidArgument, "nResults"},
		{"query_summaries", `{"query":"x","category":"Bugfix"}`, CodeInvalidArgument, "category"},
		{"query_summaries", `{"query":"x","memorySharing":7}`, CodeInvalidArgument, "memorySharing"},
		{"query_raw_memories", `{"query":"x","memorySharing":null}`, CodeInvalidArgument, "memorySharing"},
		{"get_all_summaries", `{"memorySharing":"team"}`, CodeUnknownField, "memorySharing"},
		{"get_session_memories", `{"sessionId":"s","memorySharing":"team"}`, CodeUnknownField, "memorySharing"},
		{"query_raw_memories", `{"query":"x","nResults":101}`, CodeInvalidArgument, "nResults"},
		{"query_raw_memories", `{"query":7}`, CodeInvalidArgument, "query"},
		{"search", `{"query":"x","kinds":["Fact"]}`, CodeInvalidArgument, "kinds"},
		{"search", `{"query":"x","kinds":"fact"}`, CodeInvalidArgument, "kinds"},
		{"search", `{"query":"x","after":"soon"}`, CodeInvalidArgument, "after"},
		{"search", `{"query":"x","after":"2026-02-01","before":"2026-01-01"}`, CodeInvalidArgument, "before"},
		{"search", `{"query":"x","limit":101}`, CodeInvalidArgument, "limit"},
	}
	for name, dial := range transports {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			e := newEnv(t)
			call := dial(t, e, claude)
			before := e.entries()
			for _, tt := range tests {
				if name == "http" && (len(tt.args) > 5<<20 || strings.Contains(tt.args, "1e400")) {
					continue // the client or the endpoint speaks first
				}
				bad := call.err(t, tt.tool, tt.args, tt.code, tt.field)
				if bad.Hint == "" || len(bad.JSON()) > 1000 {
					t.Errorf("%s %.100s: %s", tt.tool, tt.args, bad.JSON())
				}
			}
			if n := e.entries(); n != before {
				t.Errorf("%d entries were stored by refused calls", n-before)
			}
		})
	}
}
