package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"tallystick/oplog"
	"tallystick/query/refusal"
)

// Code names a kind of failure. Codes cross process borders and are
// append-only.
type Code string

// The codes a client can meet.
const (
	CodeInvalidArgument    Code = "invalid_argument"
	CodeUnknownField       Code = "unknown_field"
	CodeTooLarge           Code = "too_large"
	CodeIdentityUnbound    Code = "identity_unbound"
	CodeIdentityMismatch   Code = "identity_mismatch"
	CodeNotFound           Code = "not_found"
	CodeUnknownCursor      Code = "unknown_cursor"
	CodeForeignCursor      Code = "foreign_cursor"
	CodeConflict           Code = "conflict"
	CodeClaimHeld          Code = "claim_held"
	CodeExpired            Code = "expired"
	CodeClosed             Code = "closed"
	CodeInviteUsed         Code = "invite_used"
	CodeInviteExpired      Code = "invite_expired"
	CodePeerRefused        Code = "peer_refused"
	CodeStoreLocked        Code = "store_locked"
	CodeStoreDamaged       Code = "store_damaged"
	CodeKeyDamaged         Code = "key_damaged"
	CodeNoSpace            Code = "no_space"
	CodeBusy               Code = "busy"
	CodeUnsupportedVersion Code = "unsupported_version"
	CodeUnreachable        Code = "unreachable"
	CodeTimedOut           Code = "timed_out"
)

var httpStatus = map[Code]int{
	CodeInvalidArgument:    http.StatusBadRequest,
	CodeUnknownField:       http.StatusBadRequest,
	CodeTooLarge:           http.StatusRequestEntityTooLarge,
	CodeIdentityUnbound:    http.StatusForbidden,
	CodeIdentityMismatch:   http.StatusForbidden,
	CodeNotFound:           http.StatusNotFound,
	CodeUnknownCursor:      http.StatusBadRequest,
	CodeForeignCursor:      http.StatusBadRequest,
	CodeConflict:           http.StatusConflict,
	CodeClaimHeld:          http.StatusConflict,
	CodeExpired:            http.StatusGone,
	CodeClosed:             http.StatusGone,
	CodeInviteUsed:         http.StatusConflict,
	CodeInviteExpired:      http.StatusGone,
	CodePeerRefused:        http.StatusForbidden,
	CodeStoreLocked:        http.StatusConflict,
	CodeStoreDamaged:       http.StatusInternalServerError,
	CodeKeyDamaged:         http.StatusInternalServerError,
	CodeNoSpace:            http.StatusInsufficientStorage,
	CodeBusy:               http.StatusServiceUnavailable,
	CodeUnsupportedVersion: http.StatusUpgradeRequired,
	CodeUnreachable:        http.StatusBadGateway,
	CodeTimedOut:           http.StatusGatewayTimeout,
}

// Error is the one shape of failure on every surface: the text of a failed
// tool call, the last line on stderr with --json, the body of an HTTP answer.
type Error struct {
	Code    Code     `json:"code"`
	Message string   `json:"message"`
	Field   string   `json:"field,omitempty"`
	Allowed []string `json:"allowed,omitempty"`
	Hint    string   `json:"hint"`
}

// Error is the message with the field and what to do next.
func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + "; " + e.Hint
}

// HTTPStatus is the status an HTTP answer with this error has.
func (e *Error) HTTPStatus() int {
	if s, ok := httpStatus[e.Code]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// JSON is the object {"error": {...}} without a line end.
func (e *Error) JSON() []byte {
	return encode(struct {
		Error *Error `json:"error"`
	}{e})
}

// ParseError reads what JSON writes. It reports false for anything else.
func ParseError(b []byte) (*Error, bool) {
	var w struct {
		Error *Error `json:"error"`
	}
	if json.Unmarshal(b, &w) != nil || w.Error == nil || w.Error.Code == "" {
		return nil, false
	}
	return w.Error, true
}

// maxErrorText keeps a message short enough for a model to read whole.
const maxErrorText = 400

func clip(s string) string {
	if len(s) <= maxErrorText {
		return s
	}
	return strings.ToValidUTF8(s[:maxErrorText], "") + "..."
}

func fail(code Code, field, hint, format string, args ...any) *Error {
	return &Error{Code: code, Field: field, Hint: hint, Message: clip(fmt.Sprintf(format, args...))}
}

func invalid(field, hint, format string, args ...any) *Error {
	return fail(CodeInvalidArgument, field, hint, format, args...)
}

// quote shows a value in a message: as a JSON string, cut, so that text of
// others never stands unquoted in our prose.
func quote(s string) string {
	const most = 60
	cut := ""
	if len(s) > most {
		s, cut = strings.ToValidUTF8(s[:most], ""), "..."
	}
	return string(encodeString(s)) + cut
}

// encode writes v as compact JSON without HTML escaping. v is always one of
// our own result types, so failing is a programming error.
func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("server: result does not encode: %v", err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
}

// framed is an answer whose rows are encoded already: they are put into their
// field as they are. To the encoder they would be text to scan once more.
type framed struct {
	frame any // with an empty list in the field
	field string
	rows  []json.RawMessage
}

// encodeAnswer encodes what a tool answers.
func encodeAnswer(v any) []byte {
	f, ok := v.(framed)
	if !ok {
		return encode(v)
	}
	frame := encode(f.frame)
	// No text can hold this: quotes within texts are escaped.
	at := bytes.Index(frame, []byte(`"`+f.field+`":[]`))
	if at < 0 {
		panic("server: an answer without the list " + f.field)
	}
	at += len(f.field) + len(`"":[`)
	size := len(frame)
	for _, row := range f.rows {
		size += len(row) + 1
	}
	b := append(make([]byte, 0, size), frame[:at]...)
	for i, row := range f.rows {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, row...)
	}
	return append(b, frame[at:]...)
}

func encodeString(s string) []byte { return encode(s) }

// AsError makes an Error of any error: it finds one that is wrapped, and
// gives the log's own failures their code.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	var r *refusal.Error
	if errors.As(err, &r) {
		return &Error{Code: Code(r.Code), Message: clip(r.Message), Field: r.Field, Allowed: r.Allowed, Hint: r.Hint}
	}
	var q *oplog.QuarantineError
	if errors.As(err, &q) {
		return fail(CodeInvalidArgument, "", "change what is sent; nothing was stored", "this cannot be stored: %s", q.Reason)
	}
	switch {
	case errors.Is(err, oplog.ErrNoSpace):
		return fail(CodeNoSpace, "", "free some disk space on this machine; reading still works, nothing was stored", "the disk is too full to write safely")
	case errors.Is(err, oplog.ErrTooLarge):
		return fail(CodeTooLarge, "", "send less in one call", "%v", err)
	case errors.Is(err, oplog.ErrLocked):
		return fail(CodeStoreLocked, "", "talk to the running replica, or stop it with `tally stop`", "another process owns the store")
	case errors.Is(err, oplog.ErrKey):
		return fail(CodeKeyDamaged, "", "put back the key file that belongs to this store", "%v", err)
	case errors.Is(err, oplog.ErrDamaged):
		return fail(CodeStoreDamaged, "", "move the replica's home aside, whole, then restore a backup with `tally restore` or join again with `tally join`: other replicas hold what was synced", "%v", err)
	case errors.Is(err, oplog.ErrFormat):
		return fail(CodeStoreDamaged, "", "run `tally doctor`; other replicas still hold what was synced", "%v", err)
	case errors.Is(err, oplog.ErrClosed):
		return fail(CodeUnreachable, "", "start the replica again with `tally up`", "the replica is shutting down")
	case errors.Is(err, oplog.ErrNotFound):
		return fail(CodeNotFound, "", "it may not have arrived here yet; try again later", "%v", err)
	case errors.Is(err, context.Canceled):
		return fail(CodeTimedOut, "", "call again if you still want the answer", "the call was cancelled before it was answered")
	case errors.Is(err, context.DeadlineExceeded):
		return fail(CodeTimedOut, "", "call again", "the call ran out of time")
	}
	return fail(CodeBusy, "", "try again; if it stays, look at the replica's log", "internal failure: %v", err)
}
