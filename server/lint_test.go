package server

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var update = flag.Bool("update", false, "rewrite golden files")

// listedTool is a tool as a client reads it off the wire.
type listedTool struct {
	Name         string          `json:"name"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"inputSchema"`
	OutputSchema json.RawMessage `json:"outputSchema"`
	Annotations  map[string]any  `json:"annotations"`
}

// TestSchemaLint holds the real tools/list to the portability rules: one odd
// schema makes some clients drop every tool of the server.
func TestSchemaLint(t *testing.T) {
	raw := listRaw(t, connectMemory(t, newMCP(&brokenBackend{}, MCPOptions{}), ""))
	var list []listedTool
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 || len(list) > 20 {
		t.Fatalf("%d tools", len(list))
	}
	if !slices.IsSortedFunc(list, func(a, b listedTool) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("tools are not sorted by name")
	}
	readOnly := map[string]bool{
		"whoami": true, "event_list": true, "event_wait": true, "get_all_summaries": true, "mesh_status": true, "claim_list": true,
		"event_append": false, "event_ack": false, "add_summary": false,
		"list_messages": true, "get_message": true, "add_message": false, "mark_read": false, "archive_message": false, "task_create": false,
		"memory_search": true, "memory_add": false, "memory_reflect": false, "checkpoint_save": false, "checkpoint_resume": true,
	}
	total, bytesTotal := 0, 0
	for _, tool := range list {
		for _, problem := range lintTool(tool) {
			t.Errorf("%s: %s", tool.Name, problem)
		}
		want, known := readOnly[tool.Name]
		if !known || tool.Annotations["readOnlyHint"] != want {
			t.Errorf("%s: readOnlyHint %v, the table says %v (known %v)", tool.Name, tool.Annotations["readOnlyHint"], want, known)
		}
		n := tokens(tool.Name) + tokens(tool.Description) + tokens(string(tool.InputSchema))
		if n > 235 { // 250 by the tokenizer of a current model, which splits a little finer
			t.Errorf("%s: about %d tokens", tool.Name, n)
		}
		total += n
		bytesTotal += len(tool.Name) + len(tool.Description) + len(tool.InputSchema)
	}
	if total > 3000 || bytesTotal > 12_000 {
		t.Errorf("all tools: about %d tokens, %d bytes", total, bytesTotal)
	}
	t.Logf("%d tools, about %d tokens, %d bytes", len(list), total, bytesTotal)
	if len(instructions) > 2000 || !ascii(instructions) {
		t.Errorf("instructions: %d bytes, ASCII %v", len(instructions), ascii(instructions))
	}
}

// TestSchemaLintAll holds the tools outside the default to the same rules,
// but for the size of the whole list.
func TestSchemaLintAll(t *testing.T) {
	raw := listRaw(t, connectMemory(t, newMCP(&brokenBackend{}, MCPOptions{Toolsets: Toolsets{all: true}}), ""))
	var list []listedTool
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	for _, tool := range list {
		for _, problem := range lintTool(tool) {
			t.Errorf("%s: %s", tool.Name, problem)
		}
		if n := tokens(tool.Name) + tokens(tool.Description) + tokens(string(tool.InputSchema)); n > 235 {
			t.Errorf("%s: about %d tokens", tool.Name, n)
		}
		if toolByName(tool.Name).readOnly == toolByName(tool.Name).write {
			t.Errorf("%s: a tool reads only, or writes", tool.Name)
		}
	}
}

func lintTool(tool listedTool) (problems []string) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if !regexp.MustCompile(`^[a-z][a-z0-9_]{2,39}$`).MatchString(tool.Name) {
		bad("name")
	}
	if len("mcp__tallystick__")+len(tool.Name) > 60 {
		bad("qualified name is too long")
	}
	if tool.Description == "" || len(tool.Description) > 1024 || !ascii(tool.Description) {
		bad("description")
	}
	if len(tool.OutputSchema) > 0 {
		bad("has an outputSchema")
	}
	for _, hint := range []string{"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"} {
		if _, ok := tool.Annotations[hint].(bool); !ok {
			bad("%s is not explicit", hint)
		}
	}
	var root map[string]any
	if json.Unmarshal(tool.InputSchema, &root) != nil || root["type"] != "object" {
		bad("root is not an object")
		return problems
	}
	if _, ok := root["properties"].(map[string]any); !ok {
		bad("no properties")
	}
	if root["additionalProperties"] != false {
		bad("additionalProperties is not false")
	}
	lintSchema("", root, 1, bad)
	return problems
}

var propertyKey = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_]{0,39}$`)

func lintSchema(path string, s map[string]any, depth int, bad func(string, ...any)) {
	allowed := []string{"type", "properties", "required", "additionalProperties", "description", "enum", "items", "minLength"}
	for k := range s {
		if !slices.Contains(allowed, k) {
			bad("%s: keyword %s", path, k)
		}
	}
	kind, ok := s["type"].(string)
	if !ok || kind == "null" {
		bad("%s: type is not one string", path)
	}
	if depth > 3 {
		bad("%s: nested too deep", path)
	}
	if desc, _ := s["description"].(string); path != "" && !strings.HasSuffix(path, "[]") && (desc == "" || len(desc) > 300 || !ascii(desc)) {
		bad("%s: description", path)
	}
	if values, ok := s["enum"].([]any); ok {
		for _, v := range values {
			if _, ok := v.(string); !ok {
				bad("%s: enum value %v", path, v)
			}
		}
	}
	if kind == "array" {
		items, ok := s["items"].(map[string]any)
		if !ok {
			bad("%s: items", path)
			return
		}
		lintSchema(path+"[]", items, depth+1, bad)
	}
	props, _ := s["properties"].(map[string]any)
	if len(props) > 16 {
		bad("%s: %d properties", path, len(props))
	}
	for name, v := range props {
		if !propertyKey.MatchString(name) {
			bad("property %s", name)
		}
		sub, ok := v.(map[string]any)
		if !ok || len(sub) == 0 {
			bad("%s.%s: not a schema object", path, name)
			continue
		}
		lintSchema(path+"."+name, sub, depth+1, bad)
	}
	required, _ := s["required"].([]any)
	for _, r := range required {
		if _, ok := props[r.(string)]; !ok {
			bad("%s: required %v is no property", path, r)
		}
	}
}

func ascii(s string) bool {
	for _, c := range []byte(s) {
		if c >= 0x80 || c < 0x20 && c != '\n' {
			return false
		}
	}
	return true
}

// tokens counts what a model's tokenizer splits text into before it merges
// pairs: close to the number of tokens for plain English and JSON.
func tokens(s string) int {
	return len(pretoken.FindAllString(s, -1))
}

var pretoken = regexp.MustCompile(`[^\r\n\pL\pN]?\p{Lu}*\p{Ll}+|[^\r\n\pL\pN]?\p{Lu}+|\pN{1,3}| ?[^\s\pL\pN]+|\s+`)

// TestToolsListGolden pins names, descriptions, schemas and annotations: they
// are a contract with clients. Run with -update after a change of contract.
func TestToolsListGolden(t *testing.T) {
	raw := listRaw(t, connectMemory(t, newMCP(&brokenBackend{}, MCPOptions{}), ""))
	var got bytes.Buffer
	if err := json.Indent(&got, raw, "", "  "); err != nil {
		t.Fatal(err)
	}
	got.WriteByte('\n')
	path := filepath.Join("testdata", "tools_list.json")
	if *update {
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("tools/list is not that of %s; if the contract has changed, run the test with -update and say so in CHANGELOG.md\n%s", path, got.Bytes())
	}
}

// TestToolsListStable: the same bytes twice, over every protocol revision.
func TestToolsListStable(t *testing.T) {
	srv := newMCP(&brokenBackend{}, MCPOptions{})
	var first []byte
	for _, revision := range append(mcp.SupportedProtocolVersions(), "") {
		for range 2 {
			raw := listRaw(t, connectMemory(t, srv, revision))
			if first == nil {
				first = raw
			}
			if !bytes.Equal(raw, first) {
				t.Errorf("revision %q: another list", revision)
			}
		}
	}
}
