package server

import (
	"encoding/json"
	"slices"
	"testing"
)

// shown lists the tools that a client with these toolsets sees.
func shown(t *testing.T, text string) []string {
	t.Helper()
	sets, err := ParseToolsets(text)
	if err != nil {
		t.Fatal(err)
	}
	raw := listRaw(t, connectMemory(t, newMCP(&brokenBackend{}, MCPOptions{Toolsets: sets}), ""))
	var list []listedTool
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range list {
		names = append(names, tool.Name)
	}
	return names
}

func TestToolsets(t *testing.T) {
	all := shown(t, "all")
	if !slices.Equal(all, ToolNames()) {
		t.Errorf("all shows %v, the table has %v", all, ToolNames())
	}
	standard := shown(t, "")
	if !slices.Equal(standard, shown(t, "default")) {
		t.Error("default is not what nothing gives")
	}
	if len(standard) == 0 || len(standard) > len(all) {
		t.Errorf("%d tools by default of %d", len(standard), len(all))
	}
	if got, want := shown(t, "summaries"), []string{"add_summary", "get_all_summaries", "query_summaries", "whoami"}; !slices.Equal(got, want) {
		t.Errorf("summaries shows %v, want %v", got, want)
	}
	for _, set := range ToolsetNames() {
		if len(shown(t, " "+set+" ,")) == 0 {
			t.Errorf("toolset %s shows nothing", set)
		}
	}
	_, err := ParseToolsets("default,evnts")
	if e := AsError(err); e.Code != CodeInvalidArgument || e.Field != "toolsets" || !slices.Contains(e.Allowed, "events") {
		t.Errorf("an unknown toolset: %+v", e)
	}
}
