package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// lines is the stdio transport: one message a line. The SDK's own ends the
// whole server at the first line that it cannot read; here each line is looked
// at, a bad one is answered and the others pass, and calls in flight do not
// notice. And what leaves is copied once, where the SDK would scan an answer
// six times.
type lines struct {
	in    io.ReadCloser
	out   io.WriteCloser
	ready *readyAnswers
}

// Connect implements mcp.Transport.
func (t *lines) Connect(context.Context) (mcp.Connection, error) {
	c := &lineConn{lines: t, incoming: make(chan jsonrpc.Message), closed: make(chan struct{}), ended: io.EOF}
	go c.read()
	return c, nil
}

type lineConn struct {
	*lines
	incoming chan jsonrpc.Message // closed when in has ended
	ended    error                // why; read after incoming was closed
	closing  sync.Once
	closed   chan struct{}
	failed   error // of closing
	writing  sync.Mutex
	pending  pendingCalls
}

// SessionID implements mcp.Connection; stdio has no sessions.
func (c *lineConn) SessionID() string { return "" }

// read hands on what in brings until it ends.
func (c *lineConn) read() {
	defer close(c.incoming)
	r := bufio.NewReaderSize(c.in, 64<<10)
	for {
		line, id, err := mcpReadLine(r)
		if line = bytes.TrimSpace(line); len(line) > 0 || id.over {
			msg, answer := checkMessage(line, &id)
			if msg != nil {
				c.pending.came(msg)
				select {
				case c.incoming <- msg:
				case <-c.closed:
					return
				}
			} else if werr := c.writeLine(answer); werr != nil {
				err = werr
			}
		}
		if err != nil {
			c.ended = err
			return
		}
	}
}

// Read implements mcp.Connection.
func (c *lineConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.closed:
		return nil, io.EOF
	case msg, ok := <-c.incoming:
		if !ok {
			return nil, c.ended
		}
		return msg, nil
	}
}

// Write implements mcp.Connection.
func (c *lineConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	line, err := c.ready.encode(msg)
	if err != nil || !c.pending.leaves(msg) {
		return err
	}
	return c.writeLine(line)
}

// writeLine writes whole lines in turn.
func (c *lineConn) writeLine(line []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err := c.out.Write(append(line, '\n'))
	return err
}

// Close implements mcp.Connection.
func (c *lineConn) Close() error {
	c.closing.Do(func() {
		c.failed = errors.Join(c.in.Close(), c.out.Close())
		close(c.closed)
	})
	return c.failed
}

// readyAnswers are answers on their way through the SDK. It is given a token in
// place of a long answer, so that it encodes, scans and copies the token; the
// answer goes in when the message leaves. The zero value is not ready.
type readyAnswers struct {
	mark string // begins every token; nobody else knows it

	mu   sync.Mutex
	next uint64
	of   map[string]json.RawMessage
}

const (
	// readyLeast is how long an answer must be to be worth a token.
	readyLeast = 1 << 10
	// readyMost is how many answers may be on their way: the SDK need not send
	// what nobody waits for any longer.
	readyMost = 256
	// tokenMost is how long a result that holds a token can get.
	tokenMost = 4 << 10
)

func newReadyAnswers() *readyAnswers {
	return &readyAnswers{mark: "tally-answer-" + rand.Text() + "-", of: map[string]json.RawMessage{}}
}

// result is the result of a call, with a token in place of a long answer.
func (r *readyAnswers) result(out json.RawMessage, bad *Error) *mcp.CallToolResult {
	if r == nil || bad != nil || len(out) < readyLeast {
		return toolResult(out, bad)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.of) >= readyMost {
		return toolResult(out, nil)
	}
	r.next++
	token := strconv.FormatUint(r.next, 10)
	r.of[token] = out
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: r.mark + token}}}
}

// encode is what goes onto the wire for a message.
func (r *readyAnswers) encode(msg jsonrpc.Message) ([]byte, error) {
	resp, ok := msg.(*jsonrpc.Response)
	if !ok || resp.Error != nil || len(resp.Result) > tokenMost {
		return jsonrpc.EncodeMessage(msg)
	}
	before, rest, ok := bytes.Cut(resp.Result, []byte(`"`+r.mark))
	if !ok {
		return jsonrpc.EncodeMessage(msg)
	}
	token, after, _ := bytes.Cut(rest, []byte(`"}]`))
	r.mu.Lock()
	out, ok := r.of[string(token)]
	delete(r.of, string(token))
	r.mu.Unlock()
	if !ok {
		return nil, errors.New("server: an answer was sent twice")
	}
	id, text := encode(resp.ID.Raw()), encodeString(string(out))
	line := make([]byte, 0, len(before)+len(text)+len(out)+len(after)+len(id)+64)
	line = append(append(append(line, `{"jsonrpc":"2.0","id":`...), id...), `,"result":`...)
	line = append(append(append(line, before...), text...), `}],"structuredContent":`...)
	return append(append(append(line, out...), after...), '}'), nil
}
