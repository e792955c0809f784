package server

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

const (
	// mcpLine is the longest line accepted on stdio.
	mcpLine = 16 << 20
	// mcpDepth is how deep the SDK reads a message; beyond it gives up the
	// connection.
	mcpDepth = 1000
)

// mcpReadLine reads one line, and of one over the limit what is needed to
// answer it.
func mcpReadLine(r *bufio.Reader) (line []byte, id idScan, err error) {
	for {
		part, err := r.ReadSlice('\n')
		id.feed(part)
		if len(line)+len(bytes.TrimRight(part, "\r\n")) > mcpLine {
			id.over = true
			line = nil
		}
		if !id.over {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, id, err
		}
	}
}

// checkMessage is the message of a line, or the answer to one that the SDK must
// not see.
func checkMessage(line []byte, id *idScan) (msg jsonrpc.Message, answer []byte) {
	switch {
	case id.over:
		return nil, rpcError(id.id(), jsonrpc.CodeInvalidRequest, fmt.Sprintf("the message is longer than %d bytes; send less in one call", mcpLine))
	case id.deepest > mcpDepth:
		const what = "nested more than %d levels deep"
		if string(id.method) == `"tools/call"` && id.id() != nil {
			e := fail(CodeTooLarge, "arguments", "send flatter arguments", "the arguments are "+what, mcpDepth)
			return nil, encode(map[string]any{"jsonrpc": "2.0", "id": id.id(), "result": toolResult(nil, e)})
		}
		return nil, rpcError(id.id(), jsonrpc.CodeInvalidRequest, fmt.Sprintf("the message is "+what, mcpDepth))
	case !json.Valid(line):
		return nil, rpcError(nil, jsonrpc.CodeParseError, "the line is no JSON; send one JSON-RPC message per line")
	case id.structured:
		return nil, rpcError(nil, jsonrpc.CodeInvalidRequest, "the line is no JSON-RPC 2.0 message: its id is neither a string nor a number")
	case line[0] == '[':
		return nil, rpcError(nil, jsonrpc.CodeInvalidRequest, "batches are not supported; send one message per line")
	case line[0] != '{':
		return nil, rpcError(nil, jsonrpc.CodeInvalidRequest, "the line is no JSON-RPC message, which is an object")
	}
	msg, err := jsonrpc.DecodeMessage(line)
	if err != nil {
		return nil, rpcError(id.id(), jsonrpc.CodeInvalidRequest, "the line is no JSON-RPC 2.0 message: "+clip(err.Error()))
	}
	return msg, nil
}

func rpcError(id json.RawMessage, code int, message string) []byte {
	if id == nil {
		id = json.RawMessage("null")
	}
	return encode(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code, "message": message}})
}

// idScan finds the id and the method of a message and how deep it nests, as
// its bytes pass, so that a message that is too long to keep, or too deep to
// parse, is still answered.
type idScan struct {
	over       bool
	deepest    int
	structured bool // the id is a list or an object
	behind     bool // something follows the message

	ended             bool
	depth             int
	inString, escaped bool
	isKey, isValue    bool // at the first level, what comes next or is being read
	key, val          []byte
	ident, method     []byte
}

const idScanMost = 512 // bytes of a key or a value that are kept

func (s *idScan) feed(part []byte) {
	for _, b := range part {
		if s.inString {
			s.keep(b)
			switch {
			case s.escaped:
				s.escaped = false
			case b == '\\':
				s.escaped = true
			case b == '"':
				s.inString = false
			}
			continue
		}
		switch b {
		case '"':
			s.behind = s.behind || s.ended
			s.inString = true
			s.keep(b)
		case '{', '[':
			s.behind = s.behind || s.ended
			if s.depth == 1 && s.isValue && len(s.val) == 0 && string(s.key) == `"id"` {
				s.structured = true
			}
			if s.depth++; s.depth > s.deepest {
				s.deepest = s.depth
			}
			if s.depth == 1 && b == '{' {
				s.isKey, s.isValue, s.key, s.val = true, false, nil, nil
			} else {
				s.keep(b)
			}
		case '}', ']':
			if s.depth == 1 {
				s.end()
				s.isKey, s.isValue = false, false
			} else {
				s.keep(b)
			}
			s.depth--
			s.ended = s.ended || s.depth <= 0
		case ',':
			if s.depth == 1 {
				s.end()
				s.isKey, s.isValue, s.key, s.val = true, false, nil, nil
			}
		case ':':
			if s.depth == 1 && s.isKey {
				s.isKey, s.isValue = false, true
			}
		case ' ', '\t', '\r', '\n':
		default:
			s.behind = s.behind || s.ended
			s.keep(b)
		}
	}
}

func (s *idScan) keep(b byte) {
	switch {
	case s.isKey && len(s.key) < idScanMost:
		s.key = append(s.key, b)
	case s.isValue && len(s.val) < idScanMost:
		s.val = append(s.val, b)
	}
}

func (s *idScan) end() {
	switch string(s.key) {
	case `"id"`:
		s.ident = s.val
	case `"method"`:
		s.method = s.val
	}
}

// id is the id if it is one that JSON-RPC knows, else nil.
func (s *idScan) id() json.RawMessage {
	if len(s.ident) == 0 || len(s.ident) == idScanMost || !json.Valid(s.ident) {
		return nil
	}
	if c := s.ident[0]; c == '"' || c == '-' || c >= '0' && c <= '9' {
		return json.RawMessage(s.ident)
	}
	return nil
}
