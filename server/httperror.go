package server

import (
	"bytes"
	"io"
	"net/http"
	"strings"
)

// jsonErrors turns the plain text of the SDK's refusals into the one error
// object, with the same status.
func jsonErrors(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > httpBody {
			writeError(w, http.StatusRequestEntityTooLarge, httpRefusal(r, http.StatusRequestEntityTooLarge, ""))
			return
		}
		e := &errorWriter{ResponseWriter: w}
		body := &checkedBody{ReadCloser: r.Body}
		if r.Body != nil {
			r.Body = body
		}
		next.ServeHTTP(e, r)
		if e.status == 0 {
			return
		}
		if body.bad != nil {
			w.Header().Del("Content-Length")
			writeError(w, http.StatusBadRequest, body.bad)
			return
		}
		text := strings.TrimSpace(e.text.String())
		if strings.Contains(text, "body too large") {
			e.status = http.StatusRequestEntityTooLarge
		}
		w.Header().Del("Content-Length")
		writeError(w, e.status, httpRefusal(r, e.status, text))
	})
}

// checkedBody looks at a message as the SDK reads it: what it would take deep
// into a parser of its own, or not look at, ends the reading.
type checkedBody struct {
	io.ReadCloser
	scan idScan
	bad  *Error
}

func (c *checkedBody) Read(p []byte) (int, error) {
	if c.bad != nil {
		return 0, c.bad
	}
	n, err := c.ReadCloser.Read(p)
	c.scan.feed(p[:n])
	switch {
	case c.scan.deepest > mcpDepth:
		c.bad = fail(CodeTooLarge, "", "send flatter arguments", "the message is nested more than %d levels deep", mcpDepth)
	case c.scan.structured:
		c.bad = invalid("id", "send a string or a number", "the id of the message is neither a string nor a number")
	case c.scan.behind:
		c.bad = invalid("", "send one message in a body", "something follows the message")
	}
	if c.bad != nil {
		return 0, c.bad
	}
	return n, err
}

func httpRefusal(r *http.Request, status int, text string) *Error {
	if text == "" {
		text = http.StatusText(status)
	}
	text = strings.ToLower(text[:1]) + text[1:]
	switch {
	case status == http.StatusRequestEntityTooLarge:
		return fail(CodeTooLarge, "", "send less in one call", "the body is longer than %d bytes", httpBody)
	case status == http.StatusMethodNotAllowed:
		return invalid("method", "use POST to call, GET to listen, DELETE to end a session", "%s is not served here: %s", quote(r.Method), text)
	case status == http.StatusNotFound && r.Header.Get("Mcp-Session-Id") != "":
		return fail(CodeNotFound, "Mcp-Session-Id", "open a new session with initialize", "there is no such session: %s", text)
	case status == http.StatusNotFound:
		return fail(CodeNotFound, "", "MCP is served at /mcp", "%s", text)
	case status == http.StatusForbidden, status == http.StatusUnauthorized:
		return fail(CodePeerRefused, "", "open a session of your own with initialize, and keep to the token that opened it", "%s", text)
	case status == http.StatusConflict:
		return fail(CodeConflict, "", "end the other request first", "%s", text)
	case status >= 500 || status == http.StatusTooManyRequests:
		return fail(CodeBusy, "", "try again; if it stays, look at the replica's log", "%s", text)
	}
	return invalid("", "send what the MCP specification asks for", "%s", text)
}

// errorWriter keeps back an answer that is an error in plain text.
type errorWriter struct {
	http.ResponseWriter
	wrote  bool
	status int // of an answer that is kept back
	text   bytes.Buffer
}

func (e *errorWriter) WriteHeader(status int) {
	kind := e.Header().Get("Content-Type")
	if !e.wrote && status >= 400 && (kind == "" || strings.HasPrefix(kind, "text/plain")) {
		if e.status == 0 {
			e.status = status
		}
		return
	}
	e.wrote = e.wrote || status >= 200
	e.ResponseWriter.WriteHeader(status)
}

func (e *errorWriter) Write(b []byte) (int, error) {
	if e.status != 0 {
		if e.text.Len() < maxErrorText {
			e.text.Write(b)
		}
		return len(b), nil
	}
	e.wrote = true
	return e.ResponseWriter.Write(b)
}

// FlushError passes a flush of what was not kept back.
func (e *errorWriter) FlushError() error {
	if e.status != 0 {
		return nil
	}
	e.wrote = true
	return http.NewResponseController(e.ResponseWriter).Flush()
}

// Flush is for those who ask for an http.Flusher.
func (e *errorWriter) Flush() { e.FlushError() }

func (e *errorWriter) Unwrap() http.ResponseWriter { return e.ResponseWriter }
