package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"tallystick/server"
)

// exitCodeCmd is `exitcode N program args...`: the program must end with
// exactly this code. stdout and stderr are compared afterwards, from the files
// stdout and stderr.
func exitCodeCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exitcode N program args...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// setenvCmd is `setenv NAME FILE`: the variable becomes the file's text.
func setenvCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: setenv NAME FILE")
	}
	text := strings.TrimSpace(ts.ReadFile(args[1]))
	if text == "" {
		ts.Fatalf("%s is empty", args[1])
	}
	ts.Setenv(args[0], text)
}

// eventIDCmd is `eventid FILE NAME`: the variable becomes the id of the first
// event in a page, or of the lost side of the first merge.
func eventIDCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: eventid FILE NAME")
	}
	var page struct{ Events, Merges []struct{ ID string } }
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &page))
	list := append(page.Events, page.Merges...)
	if len(list) == 0 {
		ts.Fatalf("no event in %s", args[0])
	}
	ts.Setenv(args[1], list[0].ID)
}

// mcpCmd is `mcp NAME TOOL JSON [args of tally mcp...]`: a client starts its
// own stdio server, keeps it running until the script ends, and calls one tool.
// NAME names the client; later calls with the same name go to the same server.
// The text of the result is stdout.
func mcpCmd(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 3 {
		ts.Fatalf("usage: mcp NAME TOOL JSON [args...]")
	}
	clients := ts.Value(mcpClients{}).(map[string]*mcpClient)
	c, ok := clients[args[0]]
	if !ok {
		c = startMCP(ts, args[3:])
		clients[args[0]] = c
		ts.Defer(c.stop)
	}
	text, isError := c.call(ts, args[1], args[2])
	fmt.Fprintln(ts.Stdout(), text)
	if isError != neg {
		ts.Fatalf("isError = %v: %s", isError, text)
	}
}

// mcpClients is the key of a script's clients by name.
type mcpClients struct{}

type mcpClient struct {
	cmd *exec.Cmd
	in  interface {
		Write([]byte) (int, error)
		Close() error
	}
	out *bufio.Scanner
	id  int
}

func startMCP(ts *testscript.TestScript, args []string) *mcpClient {
	cmd := scriptCommand(ts, "tally", append([]string{"mcp"}, args...)...)
	in, err := cmd.StdinPipe()
	ts.Check(err)
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	cmd.Stderr = io.Discard
	ts.Check(cmd.Start())
	c := &mcpClient{cmd: cmd, in: in, out: bufio.NewScanner(out)}
	c.out.Buffer(nil, 16<<20)
	c.request(ts, "initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"script","version":"1"}}`)
	c.send(ts, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return c
}

func (c *mcpClient) send(ts *testscript.TestScript, line string) {
	_, err := c.in.Write([]byte(line + "\n"))
	ts.Check(err)
}

func (c *mcpClient) request(ts *testscript.TestScript, method, params string) json.RawMessage {
	c.id++
	c.send(ts, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, c.id, method, params))
	for c.out.Scan() {
		var answer struct {
			ID     int             `json:"id"`
			Result json.RawMessage `json:"result"`
			Error  json.RawMessage `json:"error"`
		}
		if err := json.Unmarshal(c.out.Bytes(), &answer); err != nil {
			ts.Fatalf("not JSON on stdout: %q", c.out.Text())
		}
		if answer.ID != c.id {
			continue // a notification
		}
		if answer.Error != nil {
			ts.Fatalf("%s: %s", method, answer.Error)
		}
		return answer.Result
	}
	ts.Fatalf("the server ended: %v", c.out.Err())
	return nil
}

func (c *mcpClient) call(ts *testscript.TestScript, tool, args string) (string, bool) {
	raw := c.request(ts, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, args))
	var r struct {
		IsError bool `json:"isError"`
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
	}
	ts.Check(json.Unmarshal(raw, &r))
	if len(r.Content) != 1 {
		ts.Fatalf("%d parts of content: %s", len(r.Content), raw)
	}
	return r.Content[0].Text, r.IsError
}

func (c *mcpClient) stop() {
	c.in.Close()
	c.cmd.Wait()
}

// damageCmd is `damage FILE`: one bit in the middle of the file is turned.
func damageCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: damage FILE")
	}
	path := ts.MkAbs(args[0])
	b, err := os.ReadFile(path)
	ts.Check(err)
	b[len(b)/2] ^= 1
	ts.Check(os.WriteFile(path, b, 0o600))
}

// awaitCmd is `await FILE`: it returns when the file is there. The test's own
// deadline is the only limit.
func awaitCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: await FILE")
	}
	for path := ts.MkAbs(args[0]); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
	}
}

// awaitWaitsCmd is `awaitwaits N`: it returns when so many calls wait for
// events at the replica of TALLY_HOME.
func awaitWaitsCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: awaitwaits N")
	}
	h, err := findHome(ts.Getenv("TALLY_HOME"), ts.Getenv)
	ts.Check(err)
	for ctx := context.Background(); ; time.Sleep(5 * time.Millisecond) {
		c, err := server.Dial(ctx, server.ClientOptions{RunDir: h.Run})
		ts.Check(err)
		st, err := c.Status(ctx, server.Session{})
		ts.Check(errors.Join(err, c.Close()))
		if strconv.Itoa(st.Waiting) == args[0] {
			return
		}
	}
}

// killOwnerCmd is `killowner`: the owner of TALLY_HOME is killed without a
// word, and is gone when the command returns.
func killOwnerCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: killowner")
	}
	h, err := findHome(ts.Getenv("TALLY_HOME"), ts.Getenv)
	ts.Check(err)
	c, err := server.Dial(context.Background(), server.ClientOptions{RunDir: h.Run})
	ts.Check(err)
	pid := c.Hello().PID
	ts.Check(c.Close())
	p, err := os.FindProcess(pid)
	ts.Check(err)
	ts.Check(p.Kill())
	ts.Check(waitReleased(context.Background(), h, pid))
}

// interruptedCmd is `interrupted WORD program args...`: the program is
// interrupted once it has said the word, on either stream, and must end with
// 130. Its output is compared afterwards.
func interruptedCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: interrupted WORD program args...")
	}
	cmd := scriptCommand(ts, args[1], args[2:]...)
	out := &wordWatch{word: args[0], heard: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = io.MultiWriter(ts.Stdout(), out), io.MultiWriter(ts.Stderr(), out)
	ts.Check(cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-out.heard:
		ts.Check(cmd.Process.Signal(os.Interrupt))
	case err := <-ended:
		ts.Fatalf("ended by itself: %v", err)
	}
	var exit *exec.ExitError
	if err := <-ended; !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted {
		ts.Fatalf("ended with %v, want exit code %d", err, exitInterrupted)
	}
}

// wordWatch closes heard when a word has been written.
type wordWatch struct {
	word  string
	heard chan struct{}

	mu   sync.Mutex
	seen bytes.Buffer
	done bool
}

func (w *wordWatch) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen.Write(b)
	if !w.done && strings.Contains(w.seen.String(), w.word) {
		w.done = true
		close(w.heard)
	}
	return len(b), nil
}

// scriptCommand is a program of the script's PATH in the script's folder and
// environment.
func scriptCommand(ts *testscript.TestScript, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	for _, dir := range strings.Split(ts.Getenv("PATH"), string(os.PathListSeparator)) {
		if p, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			cmd.Path, cmd.Err = p, nil
			break
		}
	}
	cmd.Args[0] = name
	cmd.Dir = ts.MkAbs(".")
	for _, v := range []string{"HOME", "PATH", "TALLY_HOME", "TALLY_LABEL", "TALLY_LISTEN", "TMPDIR"} {
		cmd.Env = append(cmd.Env, v+"="+ts.Getenv(v))
	}
	return cmd
}
